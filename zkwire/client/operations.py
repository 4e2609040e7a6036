"""Operations as values, for `Client.pipeline`: what to ask, and what to make of the reply.

Each names the verb of Client that it stands for; arguments and results are that verb's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from zkwire.client.watch import WatchSet
from zkwire.wire.records import ACL, OPEN_ACL, Stat


class Node(NamedTuple):
    """A node's data (null data, which Java clients can store, reads as empty) and its Stat."""

    data: bytes
    stat: Stat


@dataclass(slots=True)
class Create:
    """`create_and_stat`: gives the path and the Stat."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False
    container: bool = False
    ttl: float | None = None
    acl: Sequence[ACL] = OPEN_ACL


@dataclass(slots=True)
class GetData:
    """`get`: gives the Node; with `into`, a WatchSet, `get_and_watch`, whose watch belongs to that set."""

    path: str
    into: WatchSet | None = None


@dataclass(slots=True)
class GetChildren:
    """`get_children`: gives the names; with `into`, a WatchSet, `get_children_and_watch`."""

    path: str
    into: WatchSet | None = None


@dataclass(slots=True)
class Sync:
    """`sync`: gives None."""

    path: str


Operation: TypeAlias = Create | GetData | GetChildren | Sync
Result: TypeAlias = Any  # what the operation's verb returns, or the ZooKeeperError that it raises
