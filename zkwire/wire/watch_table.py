"""The watch table of a session: its watchers, which of them an event wakes, what to set again after a reconnect.

The table does no input or output: the session reports replies and events to it, in the order of the wire.  Its paths
are those on the server.  The server keeps watches per connection.  For one-shot watches it has two tables, data and
child.  The client must in addition distinguish exist watches (set on a missing node) from data watches, because
SetWatches makes an exist watch fire whenever the node exists.  Persistent watches, on one node or on a node and all
below it, stay until they are removed.

Servers of 3.6 to 3.8 store one watch of a connection per path, whatever its kind (ZOOKEEPER-4466, ZOOKEEPER-4471): a
removal of one kind removes the others too.  So the client does not ask for a removal that could take away a persistent
watch.
"""

import enum
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from zkwire.errors import SessionError, UnimplementedError
from zkwire.paths import ancestors
from zkwire.wire.records import EVENT_XID, WatcherEvent
from zkwire.wire.requests import RemoveWatchesRequest, Request, SetWatches2Request, SetWatchesRequest, WatcherType

_NO_NODE: Final = -101
_EVENT_START: Final = struct.Struct(">ii")  # length, xid
_EVENT_HEADER_SIZE: Final = 16  # bytes: xid, zxid and error code
_SYNC_CONNECTED: Final = 3  # the state in every event

# The most bytes of paths in one SetWatches request, unless a single path is longer.  The server closes the connection
# at a frame of more than 1 MiB, so a client with many watches would reconnect for ever (ZOOKEEPER-706).
_CHUNK: Final = 128 * 1024
_SET_WATCHES_OVERHEAD: Final = 36  # bytes of a SetWatches2 frame without its paths: xid, opcode, zxid, five counts


class WatchEventType(enum.IntEnum):
    """What happened to a watched node."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4

    __hash__ = int.__hash__  # an Enum computes the hash of a member in Python, from its name, at every dict access


def deletion_frame(path: str) -> bytes:
    """Return the frame of the event that the node at `path` was deleted, without its zxid and error code."""
    event = WatcherEvent(WatchEventType.DELETED, _SYNC_CONNECTED, path).encode()
    return _EVENT_START.pack(_EVENT_HEADER_SIZE + len(event), EVENT_XID) + event


class WatchKind(enum.Enum):
    """The kind of a watch, by the request that set it."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "persistent recursive"

    __hash__: Callable[..., int] = object.__hash__


# The kind of each watch as the server sees it.
ON_SERVER: Final = {
    WatchKind.DATA: WatcherType.DATA,
    WatchKind.EXIST: WatcherType.DATA,
    WatchKind.CHILD: WatcherType.CHILDREN,
    WatchKind.PERSISTENT: WatcherType.PERSISTENT,
    WatchKind.RECURSIVE: WatcherType.PERSISTENT_RECURSIVE,
}
# ZooKeeper calls both kinds persistent.  Here "lasting" means either of the two, because PERSISTENT is the name of one.
_LASTING: Final = {WatchKind.PERSISTENT, WatchKind.RECURSIVE}
_LASTING_ON_SERVER: Final = {ON_SERVER[kind] for kind in _LASTING}

_WOKEN_BY: Final = {
    WatchEventType.CREATED: (WatchKind.DATA, WatchKind.EXIST),
    WatchEventType.CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    WatchEventType.DELETED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD),
    WatchEventType.CHILDREN: (WatchKind.CHILD,),
}


def kind_set_by(asked: WatchKind, code: int) -> WatchKind | None:
    """Return the kind of watch that a request for an `asked` watch has set, given its reply's error code, or None."""
    if code == 0:
        return WatchKind.DATA if asked is WatchKind.EXIST else asked
    return WatchKind.EXIST if asked is WatchKind.EXIST and code == _NO_NODE else None


class Notification(NamedTuple):
    """A watch event as received: the type's number, the path on the server, the zxid (-1 if the server sends none)."""

    type: int
    path: str
    zxid: int


class Watcher(Protocol):
    """A receiver of watch events; each method is called in the same step in which the bytes that cause it are decoded.

    `_fire` is called for an event, `_fail` when the watch is lost.  `_rearmed` is called when the watch has moved to
    another connection: for a one-shot watch before any event of that connection, for a persistent watch once the server
    has confirmed it.
    """

    given_up: bool

    def _fire(self, event: WatchEventType, notification: Notification, /) -> None: ...

    def _fail(self, error: SessionError) -> None: ...

    def _rearmed(self) -> None: ...


W = TypeVar("W")


class WatchTable(Generic[W]):
    """The watches of one session; W is the type of its watchers, which the table stores and returns unchanged.

    Args:
        request_limit: The largest request that the server accepts, in bytes.

    Attributes:
        lasting: The number of persistent watchers of both kinds: if it is 0, no event needs a call of `concerned`.
    """

    def __init__(self, request_limit: int = 1_048_575) -> None:
        self.lasting: int = 0
        self._chunk = min(_CHUNK, request_limit - _SET_WATCHES_OVERHEAD)
        self._watchers: dict[WatchKind, dict[str, dict[W, None]]] = {kind: {} for kind in WatchKind}
        self._in_flight: Counter[tuple[WatcherType, str]] = Counter()
        self._put_off: dict[tuple[WatcherType, str], bool] = {}  # removals that wait for a reply: it may set the watch
        self._unconfirmed: set[tuple[WatchKind, str]] = set()  # persistent watches not yet set again after a reconnect
        self._can_remove = True  # False once a server has refused removeWatches as unknown

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._watchers.values() for watchers in table.values())

    def asked(self, kind: WatchKind, path: str) -> None:
        """Record a request for such a watch as in flight: until its reply, the server's watch must not be removed."""
        self._in_flight[ON_SERVER[kind], path] += 1

    def answered(self, kind: WatchKind, path: str) -> bool:
        """Record that a request reported by `asked` is no longer in flight.

        Return whether the removal of an earlier watch was put off, and is due now unless this one was set.
        """
        key = ON_SERVER[kind], path
        self._in_flight[key] -= 1
        if self._in_flight[key] > 0:
            return False
        del self._in_flight[key]  # it is less than 0 if the table was cleared while the request was in flight
        return self._put_off.pop(key, False)

    def add(self, kind: WatchKind, path: str, watcher: W) -> None:
        """Register `watcher`; call this in the same step in which the reply that set its watch is decoded.

        The next bytes may hold the event already, and an event without a watcher is dropped.
        """
        self._watchers[kind].setdefault(path, {})[watcher] = None
        if kind in _LASTING:
            self.lasting += 1

    def discard(self, path: str, watcher: W) -> WatcherType | None:
        """Remove `watcher`; return its kind as the server sees it, None if it was not registered for `path`."""
        for kind, table in self._watchers.items():
            watchers = table.get(path)
            if watchers and watcher in watchers:
                del watchers[watcher]
                if not watchers:
                    del table[path]
                if kind in _LASTING:
                    self.lasting -= 1
                return ON_SERVER[kind]
        return None

    def _wanted(self, path: str) -> set[WatcherType]:
        wanted = {ON_SERVER[kind] for kind, table in self._watchers.items() if path in table}
        wanted.update(where for where in ON_SERVER.values() if (where, path) in self._in_flight)
        return wanted

    def to_remove(self, where: WatcherType, path: str) -> WatcherType | None:
        """Return what the server should remove from `path`, after a watcher of the kind `where` was discarded.

        None means that nothing should be removed:
        - while other watchers need the same kind;
        - for a one-shot watch beside a persistent one, because the server sends no more events with it than without it,
          and a server before 3.9 would remove the persistent one too;
        - if the server does not know removeWatches.

        When no watcher needs `path` any more, everything is removed, including one-shot watches left by the second
        rule.  This also covers servers before 3.9, which cannot remove a persistent watch in any other way.
        """
        wanted = self._wanted(path)
        if (where, path) in self._in_flight:
            self._put_off[where, path] = True
        if not self._can_remove or where in wanted:
            return None
        if not wanted:
            return WatcherType.ANY
        if where is WatcherType.ANY:  # asked again after a refusal, and meanwhile there are new watchers
            return None
        return where if where in _LASTING_ON_SERVER or wanted.isdisjoint(_LASTING_ON_SERVER) else None

    def heard(self, request: Request[Any], code: int) -> list[W]:
        """Record the reply to a SetWatches, SetWatches2 or RemoveWatches request that the session sent by itself.

        Return the persistent watchers whose watches the server has now set again.
        """
        if isinstance(request, SetWatches2Request) and code == 0:
            confirmed = [(WatchKind.PERSISTENT, path) for path in request.persistent]
            confirmed += [(WatchKind.RECURSIVE, path) for path in request.persistent_recursive]
            self._unconfirmed.difference_update(confirmed)
            return [watcher for kind, path in confirmed for watcher in self._watchers[kind].get(path, ())]
        if isinstance(request, RemoveWatchesRequest) and code == UnimplementedError.code:
            # A server of 3.4 does not know the request, and closes the connection after it: never send it again.
            self._can_remove = False
        return []

    def dispatch(self, event: WatchEventType, path: str) -> list[W]:
        """Remove and return the one-shot watchers that the event wakes."""
        woken: list[W] = []
        for kind in _WOKEN_BY[event]:
            watchers = self._watchers[kind].pop(path, None)
            if watchers:
                woken += watchers
        return woken

    def concerned(self, event: WatchEventType, path: str) -> list[W]:
        """Return the persistent watchers that the event is for; they stay registered."""
        # A recursive watch never gets CHILDREN events.  If one arrives for a path below it, it belongs to a one-shot
        # child watch or to a persistent watch on that path.
        candidates = [(WatchKind.PERSISTENT, path)]
        if event is not WatchEventType.CHILDREN:
            # A path of a hostile server may have a great many ancestors: only those that can be watched are built.
            longest = max(map(len, self._watchers[WatchKind.RECURSIVE]), default=0)
            candidates += [(WatchKind.RECURSIVE, above) for above in ("/", *ancestors(path[: longest + 1]))]
        found: list[W] = []
        for kind, at in candidates:
            watchers = self._watchers[kind].get(at)
            # After a reconnect, SetWatches makes up events for one-shot watches of nodes that changed in the meantime.
            # They come in no order, so persistent watchers ignore events until the server has set their watch again.
            if watchers and (kind, at) not in self._unconfirmed:
                found += watchers
        return found

    def one_shot(self) -> Iterator[W]:
        """Yield every watcher that waits for one event."""
        for kind in (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD):
            for watchers in self._watchers[kind].values():
                yield from watchers

    def take(self, kinds: set[WatchKind] = _LASTING) -> list[W]:
        """Remove and return every watcher of `kinds`, which must contain the persistent ones, by default only those."""
        tables = [table for kind, table in self._watchers.items() if kind in kinds]
        gone = [watcher for table in tables for watchers in table.values() for watcher in watchers]
        for table in tables:
            table.clear()
        self.lasting = 0
        return gone

    def clear(self) -> list[W]:
        """Remove and return every watcher, because the session is over."""
        gone = self.take(set(WatchKind))
        self._in_flight.clear()
        self._put_off.clear()
        self._unconfirmed.clear()
        self._can_remove = True
        return gone

    def rearm(self, last_zxid: int) -> list[SetWatchesRequest | SetWatches2Request]:
        """Return the requests that set every watch again on a new connection.

        Args:
            last_zxid: The newest zxid in any reply.  A one-shot watch of a node that changed after it fires at once; a
                persistent watch does not.
        """
        self._unconfirmed = {(kind, path) for kind in _LASTING for path in self._watchers[kind]}
        # Each chunk becomes one request.  Chunks are filled one after the other, and one may hold several kinds.  The
        # one-shot kinds come first: only the last chunks then need SetWatches2, which servers before 3.6 do not know.
        chunks: list[dict[WatchKind, list[str]]] = []
        size = 0
        for kind, table in self._watchers.items():
            for path in table:
                length = 4 + len(path.encode())  # on the wire each path follows its length
                if not chunks or size + length > self._chunk:
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
    return SetWatchesRequest(last_zxid, *one_shot)  # servers before 3.6 know this one as well
