"""The watch table of a session: who waits for what, what an event wakes, what to ask for again after a reconnect.

Pure: it is told of replies and events in the order of the wire.  Paths are the server's.  The server keeps watches per
connection.  Of the one-shot ones it knows two tables, data and child; the client must tell exist watches (set on a
missing node) from data watches, because SetWatches fires an exist watch whenever the node is there.  Lasting watches,
on a node or on all below it, stay until they are removed.

Servers of 3.6 to 3.8 keep one watch of a connection for each path, whatever its kind (ZOOKEEPER-4466, 4471): what is
removed for one kind is gone for the others.  So nothing is removed there that could take a lasting watch with it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from zkwire.errors import UnimplementedError
from zkwire.paths import ancestors
from zkwire.wire.requests import RemoveWatchesRequest, Request, SetWatches2Request, SetWatchesRequest, WatcherType

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
    PERSISTENT = "persistent"
    RECURSIVE = "persistent recursive"

    __hash__ = object.__hash__

    @property
    def on_server(self) -> WatcherType:
        """What the server calls it."""
        return _ON_SERVER[self]


_ON_SERVER: Final = {
    WatchKind.DATA: WatcherType.DATA,
    WatchKind.EXIST: WatcherType.DATA,
    WatchKind.CHILD: WatcherType.CHILDREN,
    WatchKind.PERSISTENT: WatcherType.PERSISTENT,
    WatchKind.RECURSIVE: WatcherType.PERSISTENT_RECURSIVE,
}
_LASTING: Final = {WatchKind.PERSISTENT, WatchKind.RECURSIVE}
_LASTING_ON_SERVER: Final = {_ON_SERVER[kind] for kind in _LASTING}

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
    """One session's watches; W is whatever the session wants back when one fires.

    `lasting` is the number of watchers that stay, so that nobody need look for them where there are none.
    """

    def __init__(self) -> None:
        self.lasting = 0
        self._watchers: dict[WatchKind, dict[str, list[W]]] = {kind: {} for kind in WatchKind}
        self._asked: Counter[tuple[WatcherType, str]] = Counter()
        self._away: set[tuple[WatchKind, str]] = set()  # lasting ones that the connection's server has not set yet
        self._can_remove = True

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._watchers.values() for watchers in table.values())

    def asked(self, kind: WatchKind, path: str) -> None:
        """Note that a request for such a watch is under way, so that the server's must not be removed."""
        self._asked[_ON_SERVER[kind], path] += 1

    def answered(self, kind: WatchKind, path: str) -> None:
        """Note that such a request is no longer under way."""
        key = _ON_SERVER[kind], path
        self._asked[key] -= 1
        if self._asked[key] <= 0:  # below: the table was cleared while the request was under way
            del self._asked[key]

    def add(self, kind: WatchKind, path: str, watcher: W) -> None:
        """Register `watcher`; to be called in the step in which the reply that set its watch is decoded."""
        self._watchers[kind].setdefault(path, []).append(watcher)
        if kind in _LASTING:
            self.lasting += 1

    def discard(self, path: str, watcher: W) -> WatcherType | None:
        """Forget `watcher`; return what the server calls its watch, None if it did not wait here."""
        for kind, table in self._watchers.items():
            watchers = table.get(path)
            if watchers and watcher in watchers:
                watchers.remove(watcher)
                if not watchers:
                    del table[path]
                if kind in _LASTING:
                    self.lasting -= 1
                return _ON_SERVER[kind]
        return None

    def is_wanted(self, where: WatcherType, path: str) -> bool:
        """Whether anybody here waits, or is about to wait, for what the server calls `where` on `path`."""
        return where in self._wanted(path)

    def _wanted(self, path: str) -> set[WatcherType]:
        wanted = {_ON_SERVER[kind] for kind, table in self._watchers.items() if path in table}
        wanted.update(where for where in _ON_SERVER.values() if (where, path) in self._asked)
        return wanted

    def to_remove(self, where: WatcherType, path: str) -> WatcherType | None:
        """Return what to have the server remove from `path` now that somebody has ceased to wait for `where` there.

        None while others here wait for the same, and for a one-shot watch beside a lasting one: it brings nothing that
        the other would not, and before 3.9 the other would go with it.  When nobody wants anything of the path any
        more, everything goes, with all that was left so; and servers before 3.9 have no other name for a lasting one.
        """
        wanted = self._wanted(path)
        if not self._can_remove or where in wanted:
            return None
        if not wanted:
            return WatcherType.ANY
        return where if where in _LASTING_ON_SERVER or wanted.isdisjoint(_LASTING_ON_SERVER) else None

    def heard(self, request: Request[Any], code: int) -> list[W]:
        """Take note of the answer to one of our own requests; return the lasting watchers that stand again by it."""
        if isinstance(request, SetWatches2Request) and code == 0:
            again = [(WatchKind.PERSISTENT, path) for path in request.persistent]
            again += [(WatchKind.RECURSIVE, path) for path in request.persistent_recursive]
            self._away.difference_update(again)
            return [watcher for kind, path in again for watcher in self._watchers[kind].get(path, ())]
        if isinstance(request, RemoveWatchesRequest) and code == UnimplementedError.code:
            # A server of 3.4 knows no removal, and drops the connection of whoever asks for one.
            self._can_remove = False
        return []

    def dispatch(self, event: WatchEventType, path: str) -> list[W]:
        """Take out and return the one-shot watchers that the event wakes."""
        woken: list[W] = []
        for kind in _WOKEN_BY[event]:
            watchers = self._watchers[kind].pop(path, None)
            if watchers:
                woken += watchers
        return woken

    def concerned(self, event: WatchEventType, path: str) -> list[W]:
        """Return the lasting watchers that the event is for; they stay.

        A recursive watch never gets CHILDREN: such an event is for a watch on the children of `path`, and may come for
        a one-shot one that is none of its concern.  Nor is for any of them what SetWatches makes up for one-shot ones,
        out of order, before the lasting ones stand again.
        """
        places = [(WatchKind.PERSISTENT, path)]
        if event is not WatchEventType.CHILDREN:
            places += [(WatchKind.RECURSIVE, above) for above in ("/", *ancestors(path))]
        found: list[W] = []
        for kind, at in places:
            watchers = self._watchers[kind].get(at)
            if watchers and (kind, at) not in self._away:
                found += watchers
        return found

    def all(self) -> Iterator[W]:
        """Every watcher that waits."""
        for table in self._watchers.values():
            for watchers in table.values():
                yield from watchers

    def one_shot(self) -> Iterator[W]:
        """Every watcher that waits for one event."""
        for kind in (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD):
            for watchers in self._watchers[kind].values():
                yield from watchers

    def clear(self) -> list[W]:
        """Take out and return every watcher: the session is over."""
        gone = list(self.all())
        for table in self._watchers.values():
            table.clear()
        self.lasting = 0
        self._asked.clear()
        self._away.clear()
        self._can_remove = True
        return gone

    def rearm(self, last_zxid: int) -> list[SetWatchesRequest | SetWatches2Request]:
        """Return the requests that set every watch again on a new connection.

        Arguments: `last_zxid`, the newest that replies have shown: what is newer fires at once, but for lasting ones.
        """
        self._away = {(kind, path) for kind in _LASTING for path in self._watchers[kind]}
        chunks: list[dict[WatchKind, list[str]]] = []
        size = 0
        for kind, table in self._watchers.items():
            for path in table:
                length = 4 + len(path.encode())
                if not chunks or size + length > _CHUNK:
                    chunks.append({each: [] for each in WatchKind})
                    size = 0
                chunks[-1][kind].append(path)
                size += length
        return [_set_again(last_zxid, chunk) for chunk in chunks]


def _set_again(last_zxid: int, chunk: dict[WatchKind, list[str]]) -> SetWatchesRequest | SetWatches2Request:
    one_shot = (chunk[WatchKind.DATA], chunk[WatchKind.EXIST], chunk[WatchKind.CHILD])
    lasting = (chunk[WatchKind.PERSISTENT], chunk[WatchKind.RECURSIVE])
    if any(lasting):
        return SetWatches2Request(last_zxid, *one_shot, *lasting)
    return SetWatchesRequest(last_zxid, *one_shot)  # which servers before 3.6 know as well
