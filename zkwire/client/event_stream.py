"""What a lasting watch tells: the stream of events of a node, or of all below it.

Knows how such a watch is set, given back, and set again in a new session; that it is armed again after a reconnect is
the session's affair.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from zkwire import paths
from zkwire.client.requester import Requester
from zkwire.client.watch import WatchEvent
from zkwire.errors import SessionExpiredError
from zkwire.wire.connection import Notification
from zkwire.wire.requests import AddWatchMode, AddWatchRequest
from zkwire.wire.watch_table import WatchEventType, WatchKind

BACKLOG: Final = 65_536  # some 10 MB of events that nobody has taken


@dataclass(slots=True)
class Resync:
    """Events may be missing here, by the server's design: read again what you keep of the nodes.

    The watch stands again when this is given: a read that is sent now shows everything that was missed, and what
    changes from now on is told by the events that follow.  Given after a reconnect, after the beginning of a new
    session, and in place of events that were not taken in time.
    """


class EventStream:
    """The events of a node, or of all below it; made by `Client.events`, and entered with `async with`."""

    def __init__(self, requester: Requester, path: str, *, recursive: bool, backlog: int) -> None:
        if not isinstance(backlog, int) or backlog < 1:
            raise ValueError(f"backlog must be at least 1, not {backlog!r}")
        self.path = path
        self.given_up = False
        self._requester = requester
        self._server_path = requester.server_path(path)
        self._is_recursive = recursive
        self._backlog = backlog
        self._queue: deque[WatchEvent | Resync] = deque()
        self._is_entered = False
        self._is_left = False
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._is_iterated = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise RuntimeError(f"the events of {self.path} have been entered already: call zk.events again")
        self._is_entered = True
        await self._set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_left = True
        self._queue.clear()
        self._requester.give_up(self._server_path, self)
        self._wake()

    def __aiter__(self) -> Self:
        if not self._is_entered:
            raise RuntimeError(f"enter the events of {self.path} first: async with zk.events(...) as events")
        return self

    async def __anext__(self) -> WatchEvent | Resync:
        if self._is_iterated:
            raise RuntimeError(f"somebody waits for these events of {self.path} already")
        self._is_iterated = True
        try:
            while not self._queue:
                if self._is_left:
                    raise StopAsyncIteration
                if not self._is_set:
                    await self._set_again()
                    return Resync()
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            return self._queue.popleft()
        finally:
            self._is_iterated = False

    async def _set(self) -> None:
        mode, kind = AddWatchMode.PERSISTENT, WatchKind.PERSISTENT
        if self._is_recursive:
            mode, kind = AddWatchMode.PERSISTENT_RECURSIVE, WatchKind.RECURSIVE
        self.given_up = False
        self._is_set = True
        try:
            await self._requester.ask(AddWatchRequest(self._server_path, mode), self, kind)
        except BaseException:
            self._is_set = False
            self._requester.give_up(self._server_path, self)
            raise

    async def _set_again(self) -> None:
        """Set the watch in the session that has followed the one that it was set in."""
        while not self._is_set:
            try:
                await self._set()
            except SessionExpiredError:
                if self._requester.is_over:
                    raise

    # -- what the session tells --------------------------------------------------------------------------------------

    def fire(self, event: WatchEventType, told: Notification) -> None:
        """Take the event; called by the session."""
        if self.given_up:  # by who was told of the same event just before
            return
        if len(self._queue) >= self._backlog:
            self._queue.clear()
            self._queue.append(Resync())
        path = paths.strip_chroot(self._requester.chroot, told.path)
        self._queue.append(WatchEvent(event, path, told.zxid if told.zxid > 0 else None))
        self._wake()

    def rearmed(self) -> None:
        """Take note that the watch stands again, on another connection; called by the session."""
        if not (self._queue and isinstance(self._queue[-1], Resync)):
            self._queue.append(Resync())
        self._wake()

    def fail(self, error: Exception) -> None:
        """Take the end of the session, and of the watch with it; called by the session."""
        self._is_set = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
