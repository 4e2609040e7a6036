"""The watch table of a session: who waits for what, what an event wakes, what to ask for again after a reconnect.

Pure: it is told of replies and events in the order of the wire.  Paths are the server's.  The server keeps watches per
connection and knows two tables, data and child; the client must tell exist watches (set on a missing node) from data
watches, because SetWatches fires an exist watch whenever the node is there.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from zkwire.requests import SetWatchesRequest, WatcherType

_NO_NODE: Final = -101

# One SetWatches holds paths of so many bytes, or a single longer one; the server refuses frames beyond 1 MiB
# (ZOOKEEPER-706).
_CHUNK: Final = 128 * 1024


class WatchEventType(enum.IntEnum):
    """What happened to a watched node."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4

    __hash__ = object.__hash__  # an enumeration's own is computed from the name, at every look into a dict


class WatchKind(enum.Enum):
    """What a watch was set by."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"

    __hash__ = object.__hash__

    @property
    def on_server(self) -> WatcherType:
        """The server's table that holds it."""
        return WatcherType.CHILDREN if self is WatchKind.CHILD else WatcherType.DATA


_WOKEN_BY: Final = {
    WatchEventType.CREATED: (WatchKind.DATA, WatchKind.EXIST),
    WatchEventType.CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    WatchEventType.DELETED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD),
    WatchEventType.CHILDREN: (WatchKind.CHILD,),
}


def kind_set_by(asked: WatchKind, code: int) -> WatchKind | None:
    """Return what a request for an `asked` watch has set, given the error code of its reply; None for nothing."""
    if code == 0:
        return WatchKind.DATA if asked is WatchKind.EXIST else asked
    return WatchKind.EXIST if asked is WatchKind.EXIST and code == _NO_NODE else None


W = TypeVar("W")


class WatchTable(Generic[W]):
    """One session's one-shot watches; W is whatever the session wants back when one fires."""

    def __init__(self) -> None:
        self._watchers: dict[WatchKind, dict[str, list[W]]] = {kind: {} for kind in WatchKind}
        self._asked: Counter[tuple[WatcherType, str]] = Counter()

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._watchers.values() for watchers in table.values())

    def asked(self, kind: WatchKind, path: str) -> None:
        """Note that a request for such a watch is under way, so that the server's must not be removed."""
        self._asked[kind.on_server, path] += 1

    def answered(self, kind: WatchKind, path: str) -> None:
        """Note that such a request is no longer under way."""
        key = kind.on_server, path
        self._asked[key] -= 1
        if self._asked[key] <= 0:  # below: the table was cleared while the request was under way
            del self._asked[key]

    def add(self, kind: WatchKind, path: str, watcher: W) -> None:
        """Register `watcher`; to be called in the step in which the reply that set its watch is decoded."""
        self._watchers[kind].setdefault(path, []).append(watcher)

    def discard(self, path: str, watcher: W) -> WatcherType | None:
        """Forget `watcher`; return the server's table that has its watch, None if it did not wait here."""
        for kind, table in self._watchers.items():
            watchers = table.get(path)
            if watchers and watcher in watchers:
                watchers.remove(watcher)
                if not watchers:
                    del table[path]
                return kind.on_server
        return None

    def is_wanted(self, where: WatcherType, path: str) -> bool:
        """Whether anybody here waits, or is about to wait, for what the server's table `where` has on `path`."""
        return (where, path) in self._asked or any(
            path in table for kind, table in self._watchers.items() if kind.on_server is where
        )

    def dispatch(self, event: WatchEventType, path: str) -> list[W]:
        """Take out and return the watchers that the event wakes."""
        woken: list[W] = []
        for kind in _WOKEN_BY[event]:
            watchers = self._watchers[kind].pop(path, None)
            if watchers:
                woken += watchers
        return woken

    def all(self) -> Iterator[W]:
        """Every watcher that waits."""
        for table in self._watchers.values():
            for watchers in table.values():
                yield from watchers

    def clear(self) -> list[W]:
        """Take out and return every watcher: the session is over."""
        gone = list(self.all())
        for table in self._watchers.values():
            table.clear()
        self._asked.clear()
        return gone

    def rearm(self, last_zxid: int) -> list[SetWatchesRequest]:
        """Return the requests that set every watch again on a new connection.

        Arguments: `last_zxid`, the newest that replies have shown: what is newer fires at once.
        """
        requests: list[SetWatchesRequest] = []
        size = 0
        for kind, table in self._watchers.items():
            for path in table:
                length = 4 + len(path.encode())
                if not requests or size + length > _CHUNK:
                    requests.append(SetWatchesRequest(last_zxid, [], [], []))
                    size = 0
                names: list[str] = getattr(requests[-1], kind.value)
                names.append(path)
                size += length
        return requests
