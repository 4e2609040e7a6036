"""Operations as values, for `Client.pipeline` and `Client.get_many`.

Each docstring names the Client method that has the same arguments and the same result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from zkwire.client.watch import WatchSet
from zkwire.wire.records import ACL, OPEN_ACL, Stat

# The data of a node; None is null, which Java clients can store too, and is read as b"".
Data: TypeAlias = bytes | bytearray | memoryview | None

T = TypeVar("T")


class Node(NamedTuple):
    """A node's data and its Stat.

    Attributes:
        data: The data; null, which Java clients can store, becomes b"".
        stat: The Stat.
    """

    data: bytes
    stat: Stat


# Node(data, stat) calls a function that NamedTuple wrote in Python, once for each node that is read.  This makes the
# same object without that call.
new_node: Final[Callable[[tuple[bytes, Stat]], Node]] = partial(tuple.__new__, Node)


class Operation(Generic[T]):
    """The base of all operations; T is the type of the result.

    They are compared and printed by what is here, because `dataclass` takes long to write these methods for each class.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # it may change

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in _values(self).items())})"


def _values(operation: Any) -> dict[str, Any]:
    return {name: getattr(operation, name) for name in operation.__match_args__}


@dataclass(slots=True, eq=False, repr=False)
class Read(Operation[T]):
    """The base of the operations that `get_many` takes."""

    path: str
    into: WatchSet | None = None


@dataclass(slots=True, eq=False, repr=False)
class Create(Operation[tuple[str, Stat]]):
    """The operation `create_and_stat`; its result is the path and the Stat.

    A protected create that was not carried out is not sent again: its result is the ConnectionLostError.

    Args:
        path: As for `create`, like all that follow.
        data: The node's data.
        ephemeral: Whether the server deletes the node with the session.
        sequential: Whether the server appends a number.
        container: Whether the server deletes the node some time after its last child is gone.
        ttl: In seconds.
        acl: The node's access control list.
        protected: Whether a unique id is put before the last name.
        recover: Whether the client finds out what a create has done whose answer was lost.
    """

    path: str
    data: Data = b""
    ephemeral: bool = False
    sequential: bool = False
    container: bool = False
    ttl: float | None = None
    acl: Sequence[ACL] = OPEN_ACL
    protected: bool = False
    recover: bool = False


class GetData(Read[Node]):
    """The operation `get`; its result is the Node.

    Args:
        path: The node.
        into: A WatchSet: then the operation is `get_and_watch` into that set.
    """

    __slots__ = ()


class GetChildren(Read[list[str]]):
    """The operation `get_children`; its result is the names.

    Args:
        path: The node.
        into: A WatchSet: then the operation is `get_children_and_watch` into that set.
    """

    __slots__ = ()


@dataclass(slots=True, eq=False, repr=False)
class GetChildrenAndStat(Operation[tuple[list[str], Stat]]):
    """The operation `get_children_and_stat`; its result is the names and the Stat.

    Args:
        path: The node.
        into: A WatchSet: then the operation is `get_children_stat_and_watch` into that set.
    """

    path: str
    into: WatchSet | None = None


@dataclass(slots=True, eq=False, repr=False)
class Sync(Operation[None]):
    """The operation `sync`; its result is None.

    Args:
        path: Any path.
    """

    path: str
