"""Streams of a node's state: its data, or the names of its children, now and after each change.

Built on one-shot watches, so that every server can do it, and on one request at a time, so that no state comes out of
order: read and set a watch, give the state, wait until the watch fires, read again.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from zkwire.errors import NoNodeError, SessionExpiredError
from zkwire.jute import Record
from zkwire.operations import Node
from zkwire.requester import Requester
from zkwire.requests import ExistsRequest, GetChildren2Request, GetDataRequest, Request
from zkwire.streams import WatchSet
from zkwire.watches import WatchKind

T = TypeVar("T")
R = TypeVar("R", bound=Record)

_NOTHING_YET: Final = object()


class Follower(Generic[T]):
    """The states of one node, one after the other; see DataStream and ChildrenStream."""

    _is_armed = False

    def __init__(self, requester: Requester, path: str) -> None:
        self.path = path
        self._requester = requester
        self._server_path = requester.server_path(path)
        self._loop = asyncio.get_running_loop()
        self._watches = WatchSet()  # of one watch at most: the one whose firing makes the last state an old one
        self._last: object = _NOTHING_YET
        self._arrival: asyncio.Future[None] | None = None
        self._is_closed = False
        self._is_iterated = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do as `close`, for contextlib.aclosing."""
        self.close()

    def close(self) -> None:
        """Give the watch up, here and on the server, and end the iteration; nothing waits for an answer."""
        self._is_closed = True
        self._disarm()
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def __del__(self) -> None:
        # Left by `break`.  Whatever thread collects us, the watch is given up in the loop's own.
        if self._is_armed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watches.cancel)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._is_iterated:
            raise RuntimeError(f"somebody waits for the next state of {self.path} already")
        self._is_iterated = True
        try:
            while not self._is_closed:
                try:
                    mark, state = await self._next()
                except SessionExpiredError:
                    if self._requester.is_over:
                        raise
                    continue  # the state is the same in the session that follows
                if not self._is_closed and mark != self._last:
                    self._last = mark
                    return state
            raise StopAsyncIteration
        finally:
            self._is_iterated = False
            if self._is_closed:
                self._disarm()

    async def _next(self) -> tuple[object, T]:
        """Wait until the state may be another one, and return it and the mark by which two states are told apart."""
        try:
            if self._is_armed:
                watches = self._watches
                self._arrival = watches.arrival()
                await self._arrival
                if self._is_closed:
                    raise StopAsyncIteration
                watches.take()
            return await self._look()
        except BaseException:
            self._disarm()
            raise

    @abstractmethod
    async def _look(self) -> tuple[object, T]:
        """Return the mark and the state now, and leave a watch for its change."""

    async def _ask(self, request: Request[R], kind: WatchKind) -> R | None:
        """Return the reply, None if the node is absent, and leave the watch that this sets."""
        self._disarm()
        reply: R | None
        try:
            reply = await self._requester.ask(request, self._requester.watch(self.path, self._watches), kind)
        except NoNodeError as error:
            error.__traceback__ = None  # it holds us, in a circle, which would keep the watch of a stream left by break
            reply = None
        self._is_armed = reply is not None or kind is WatchKind.EXIST
        return reply

    async def _is_absent(self) -> bool:
        """Leave a watch for the node's creation and return True, unless it is there by now."""
        return await self._ask(ExistsRequest(self._server_path, True), WatchKind.EXIST) is None

    def _disarm(self) -> None:
        self._is_armed = False
        self._watches.cancel()
        self._watches = WatchSet()


class DataStream(Follower[Node | None]):
    """A node's data and Stat, now and after each change, None while it is absent; made by `Client.data`."""

    async def _look(self) -> tuple[object, Node | None]:
        while True:
            reply = await self._ask(GetDataRequest(self._server_path, True), WatchKind.DATA)
            if reply is not None:
                return (reply.stat.czxid, reply.stat.mzxid), Node(reply.data or b"", reply.stat)
            if await self._is_absent():
                return None, None


class ChildrenStream(Follower[list[str] | None]):
    """The names of a node's children, now and after each change, None while it is absent; made by `Client.children`."""

    async def _look(self) -> tuple[object, list[str] | None]:
        while True:
            reply = await self._ask(GetChildren2Request(self._server_path, True), WatchKind.CHILD)
            if reply is not None:
                return (reply.stat.czxid, reply.stat.pzxid), reply.children
            if await self._is_absent():
                return None, None
