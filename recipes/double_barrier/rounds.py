"""The members at a double barrier: which children they are, in which order they came, what a leaving one waits for.

Pure: knows names and data of nodes, and nothing of servers.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from recipes.common import numbers
from zkwire import NoAuthError, Node, NoNodeError, ZooKeeperError, sequence

# The members of one round, in the order in which they came: the names of their nodes. `ready` holds them, one a line.
Round: TypeAlias = tuple[str, ...]

# A member's node: a unique id, the member's count, and the sequence number.
_MEMBER: Final = re.compile(r"[0-9a-f-]{36}-of-([1-9][0-9]{0,9})-(?:[0-9]{10}|-[0-9]{9,10})")


def count_of(name: str) -> int | None:
    """Return the count with which the member `name` was made; None if it is not the name of a member."""
    match = _MEMBER.fullmatch(name)
    return int(match[1]) if match and sequence(name) is not None else None


def in_order(names: Iterable[str], own: str) -> list[str]:
    """Return those of `names` that are names of members, in the order in which the members came.

    Args:
        own: The name of the member that asks.
    """
    return numbers.in_order(filter(count_of, names), sequence(own) or 0)


def is_round(names: Sequence[str]) -> bool:
    """Return whether `names` can be those of a round: different names of members, as many as each one's count."""
    return len(names) > 0 and len(set(names)) == len(names) and all(count_of(name) == len(names) for name in names)


def to_wait_for(own: str, present: Sequence[str]) -> str | None:
    """Return the member whose departure the leaving member `own` waits for; None when no other member is left.

    The first member stays until it is alone, and waits for the last one. All others go at once, and wait for the first.
    So each departure wakes one member, except for the first member's, which ends the round for all.

    Args:
        present: The members of the round whose nodes exist, in their order.
    """
    if not [name for name in present if name != own]:
        return None
    return present[-1] if present[0] == own else present[0]


def members_in(ready: Node | ZooKeeperError) -> Round | None:
    """Return the names in `ready`, given what its read got; None if it is missing.

    There are none if it may not be read: then it is not the work of members.

    Raises:
        ZooKeeperError: if the read has failed otherwise.
    """
    if isinstance(ready, Node):
        return tuple(ready.data.decode(errors="replace").split("\n"))
    if isinstance(ready, NoAuthError | NoNodeError):
        return () if isinstance(ready, NoAuthError) else None
    raise ready
