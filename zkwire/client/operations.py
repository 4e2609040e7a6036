"""Operations as values, for `Client.pipeline` and `Client.get_many`.

Each docstring names the Client method that has the same arguments and the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from zkwire.client.arguments import Data
from zkwire.client.watch import WatchSet
from zkwire.wire.records import ACL, OPEN_ACL, Stat


class Node(NamedTuple):
    """A node's data and its Stat; null data, which Java clients can store, becomes b""."""

    data: bytes
    stat: Stat


# Node(data, stat) calls a function that NamedTuple wrote in Python, once for each node that is read.  This makes the
# same object without that call.
new_node: Final[Callable[[tuple[bytes, Stat]], Node]] = partial(tuple.__new__, Node)


@dataclass(slots=True)
class Create:
    """The operation `create_and_stat`; its result is the path and the Stat.

    A protected create that was not carried out is not sent again: its result is the ConnectionLostError.
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


@dataclass(slots=True)
class GetData:
    """The operation `get`; its result is the Node.  With `into`, a WatchSet: `get_and_watch` into that set."""

    path: str
    into: WatchSet | None = None


@dataclass(slots=True)
class GetChildren:
    """The operation `get_children`; its result is the names.  With `into`, a WatchSet: `get_children_and_watch`."""

    path: str
    into: WatchSet | None = None


@dataclass(slots=True)
class GetChildrenAndStat:
    """The operation `get_children_and_stat`; its result is the names and the Stat.

    With `into`, a WatchSet: `get_children_stat_and_watch`.
    """

    path: str
    into: WatchSet | None = None


@dataclass(slots=True)
class Sync:
    """The operation `sync`; its result is None."""

    path: str


Operation: TypeAlias = Create | GetData | GetChildren | GetChildrenAndStat | Sync
