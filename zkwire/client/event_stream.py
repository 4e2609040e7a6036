"""Streams of events, built on ZooKeeper's persistent watches: of one node, or of a node and all nodes below it.

An EventStream sets the watch, gives it up, and sets it again in a new session.  After a reconnect within a session, the
session sets it again.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Self

from zkwire import paths
from zkwire.client.requester import Requester, check_number
from zkwire.client.streams import Stream
from zkwire.client.watch import WatchEvent
from zkwire.errors import SessionExpiredError
from zkwire.wire.requests import AddWatchMode, AddWatchRequest
from zkwire.wire.watch_table import Notification, WatchEventType, WatchKind

BACKLOG: Final = 65_536  # events that wait to be taken: about 10 MB


@dataclass(slots=True, frozen=True)
class Resync:
    """A notice in a stream of events: events may be missing here, so read the nodes again.

    The server keeps no events for a client that is away.  When the stream gives a Resync, the watch is set again: a
    read that is sent now shows everything that was missed, and the following events show what changes from now on.  The
    stream gives one after a reconnect, after the beginning of a new session, and in place of events that were not taken
    in time.
    """


class EventStream(Stream["WatchEvent | Resync"]):
    """A stream of the events of a node, or of a node and all nodes below it; `Client.events` makes it.

    Enter it with ``async with``, then iterate it.
    """

    def __init__(self, requester: Requester, path: str, *, recursive: bool, backlog: int) -> None:
        check_number("backlog", backlog, int, "a number of events, 1 or more", least=1)
        super().__init__(requester.loop, f"event of {path}")
        self.path = path
        self._requester = requester
        self._server_path = requester.server_path(path)
        self._is_recursive = recursive
        self._backlog = backlog
        self._queue: deque[WatchEvent | Resync] = deque()
        self._is_entered = False
        self._is_set = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise RuntimeError(f"the events of {self.path} have been entered already: call zk.events again")
        self._is_entered = True
        while not self._is_set:
            await self._set()
        return self

    def __aiter__(self) -> Self:
        if not self._is_entered:
            raise RuntimeError(f"enter the events of {self.path} first: async with zk.events(...) as events")
        return self

    def close(self) -> None:
        """End the iteration and give up the watch, here and on the server, without waiting for the answer."""
        self._queue.clear()
        self._requester.requests.give_up(self._server_path, self)
        super().close()

    async def _next(self) -> WatchEvent | Resync:
        while not self._queue:
            if self._is_closed:
                raise StopAsyncIteration
            if self._is_set:
                await self._wait()
                continue
            await self._set()  # in the session that follows
            if self._is_set and not self._is_closed:
                return Resync()
        return self._queue.popleft()

    async def _set(self) -> None:
        """Set the watch; `_is_set` shows whether the session, and the watch with it, has ended since."""
        mode, kind = AddWatchMode.PERSISTENT, WatchKind.PERSISTENT
        if self._is_recursive:
            mode, kind = AddWatchMode.PERSISTENT_RECURSIVE, WatchKind.RECURSIVE
        self.given_up = False
        # Before the request: the session can end after the answer and before this task runs again, and `fail` must
        # have the last word.
        self._is_set = True
        try:
            await self._requester.ask(AddWatchRequest(self._server_path, mode), self, kind)
        except BaseException as error:
            self._is_set = False
            self._requester.requests.give_up(self._server_path, self)
            if self._requester.requests.refusal is not None or not isinstance(error, SessionExpiredError):
                raise

    # -- called by the session --------------------------------------------------------------------------------------

    def _fire(self, event: WatchEventType, notification: Notification) -> None:
        """Add the event to the stream; called by the session."""
        if self.given_up:  # by another watcher, which the session called for the same event just before
            return
        if len(self._queue) >= self._backlog:
            self._queue.clear()
            self._queue.append(Resync())
        path = paths.strip_chroot(self._requester.chroot, notification.path)
        zxid = notification.zxid
        self._queue.append(WatchEvent(event, path, zxid if zxid > 0 else None))
        self._wake()

    def _rearmed(self) -> None:
        """Add a Resync, as the watch was set again on another connection; called by the session."""
        if not (self._queue and isinstance(self._queue[-1], Resync)):
            self._queue.append(Resync())
        self._wake()

    def _fail(self, error: Exception) -> None:
        """Report the end of the session, and of the watch with it; called by the session.

        The error is not kept: the next attempt to set the watch raises it if no other session follows.
        """
        self._is_set = False
        self._wake()
