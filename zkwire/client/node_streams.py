"""Streams of states: of a node's data, of the names of its children, or whatever else nodes tell, now and after each
change.

Built on one-shot watches, so that every server can do it, and on one request at a time, so that no state comes out of
order: read and set a watch, give the state, wait until the watch fires, read again.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from zkwire.client.operations import Node
from zkwire.client.requester import Requester
from zkwire.client.watch import WatchEvent, WatchSet
from zkwire.errors import NoNodeError, SessionExpiredError
from zkwire.wire.jute import Record
from zkwire.wire.requests import ExistsRequest, GetChildren2Request, GetDataRequest, Request
from zkwire.wire.watch_table import WatchKind

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R", bound=Record)

_NOTHING_YET: Final = object()


class ValueStream(Generic[T]):
    """What nodes mean, now and after each change: the base of streams that are built on one-shot watches.

        class Count(zkwire.ValueStream[int]):                      # how many children a node has
            def __init__(self, zk, path):
                super().__init__(path, lambda: zk.state is zkwire.SessionState.EXPIRED)
                self._zk = zk

            async def _look(self):
                names, _ = await self._zk.get_children_and_watch(self.path, into=self._watches)
                return len(names), len(names)

        async for count in Count(zk, "/a"): ...

    A subclass says by `_look` what the state is, and leaves watches in `_watches` for its change; by `_heard`, if it
    keeps anything of its own between two looks, what an event makes of that.  The rest is known here: waiting, telling
    states apart, going on in a new session, and that no watch stays.
    Arguments: `path`, which errors name; `is_over`, which tells, when a session has expired, whether no other will
    follow it.  It must not refer to the stream itself: one that is left by `break` is to go at once.
    Of changes in quick succession some may be left out, the last one never; a reconnect, or a new session after an
    expiry, is not noticed.  Leave a loop by `break` as you like; who keeps the stream in a variable closes it, by
    `close()`, by `async with` or by contextlib.aclosing.
    Raises, from the iteration: SessionExpiredError if no other session follows; RuntimeError when two iterate; whatever
    `_look` raises, after which the iteration may be taken up again.
    Cancellation: of the wait for the next state removes the watches from the server; it may be taken up again.
    Order: of the changes.
    """

    _noun = "state"  # what a RuntimeError calls that which is waited for
    _is_armed = False  # whether the watches that the last look has left stand, or have fired

    def __init__(self, path: str, is_over: Callable[[], bool]) -> None:
        self.path = path
        self._is_over = is_over
        self._loop = asyncio.get_running_loop()
        self._watches = WatchSet()  # those whose firing makes the last state an old one
        self._last: object = _NOTHING_YET
        self._ready: asyncio.Future[str | None] | None = None
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
        """Give the watches up, here and on the server, and end the iteration; nothing waits for an answer."""
        self._is_closed = True
        self._disarm()
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def __del__(self) -> None:
        # Left by `break`.  Whatever thread collects us, the watches are given up in the loop's own.
        if self._is_armed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watches.cancel)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._is_iterated:
            raise RuntimeError(f"somebody waits for the next {self._noun} of {self.path} already")
        self._is_iterated = True
        try:
            while not self._is_closed:
                try:
                    mark, state = await self._next()
                except SessionExpiredError:
                    if self._is_over():
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
        """Wait until the state may be another one, and return what `_look` does."""
        try:
            if self._is_armed:
                watches = self._watches
                self._ready = watches.ready()
                await self._ready
                if self._is_closed:
                    raise StopAsyncIteration
                for event in watches.take():
                    self._heard(event)
            found = await self._look()
            self._is_armed = True
            return found
        except BaseException:
            self._disarm()
            raise

    # -- for subclasses ---------------------------------------------------------------------------------------------

    @abstractmethod
    async def _look(self) -> tuple[object, T]:
        """Return the mark by which two states are told apart, and the state now.

        Leave at least one watch `into=self._watches`; those of before that have not fired are there still.
        """

    def _heard(self, event: WatchEvent) -> None:
        """Take note of an event, ahead of the next look."""

    def _disarm(self) -> None:
        """Give all watches up, as is done when a look has failed or was cancelled, and when the stream is closed: the
        next look, which finds `_is_armed` false, is like a first one."""
        self._is_armed = False
        self._watches.cancel()
        self._watches = WatchSet()

    @staticmethod
    async def _found(question: Awaitable[A]) -> A | None:
        """Return the answer, None if the node is absent."""
        try:
            return await question
        except NoNodeError as error:
            error.__traceback__ = None  # it holds us, in a circle, which would keep the watch of a stream left by break
            return None


class NodeStream(ValueStream[T]):
    """The states of one node; see DataStream and ChildrenStream."""

    def __init__(self, requester: Requester, path: str) -> None:
        self._requester = requester
        self._server_path = requester.server_path(path)
        super().__init__(path, lambda: requester.is_over)

    async def _ask(self, request: Request[R], kind: WatchKind) -> R | None:
        """Return the reply, None if the node is absent, and leave the watch that this sets, and no other."""
        self._disarm()
        return await self._found(self._requester.ask(request, self._requester.watch(self.path, self._watches), kind))

    async def _is_absent(self) -> bool:
        """Leave a watch for the node's creation and return True, unless it is there by now."""
        return await self._ask(ExistsRequest(self._server_path, True), WatchKind.EXIST) is None


class DataStream(NodeStream[Node | None]):
    """A node's data and Stat, now and after each change, None while it is absent; made by `Client.data`."""

    async def _look(self) -> tuple[object, Node | None]:
        while True:
            reply = await self._ask(GetDataRequest(self._server_path, True), WatchKind.DATA)
            if reply is not None:
                return (reply.stat.czxid, reply.stat.mzxid), Node(reply.data or b"", reply.stat)
            if await self._is_absent():
                return None, None


class ChildrenStream(NodeStream[list[str] | None]):
    """The names of a node's children, now and after each change, None while it is absent; made by `Client.children`."""

    async def _look(self) -> tuple[object, list[str] | None]:
        while True:
            reply = await self._ask(GetChildren2Request(self._server_path, True), WatchKind.CHILD)
            if reply is not None:
                return (reply.stat.czxid, reply.stat.pzxid), reply.children
            if await self._is_absent():
                return None, None
