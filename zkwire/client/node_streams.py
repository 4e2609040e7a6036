"""Streams of values: a node's data, the names of its children, or anything else that is read from nodes, now and after
each change.

A stream reads the nodes and sets one-shot watches in the same requests, gives the value, waits until a watch fires, and
reads again.  One-shot watches exist on every server.  Only one read is under way at a time, so that no value comes out
of order.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from zkwire.client.operations import Node
from zkwire.client.requester import Requester
from zkwire.client.streams import Stream
from zkwire.client.watch import Watch, WatchEvent, WatchSet
from zkwire.errors import NoNodeError, SessionExpiredError
from zkwire.wire.jute import Record
from zkwire.wire.requests import ExistsRequest, GetChildren2Request, GetDataRequest, Request
from zkwire.wire.watch_table import WatchKind

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R", bound=Record)

_NOTHING_YET: Final = object()  # equal to no key


class ValueStream(Stream[T]):
    """A stream of a value that is read from nodes, now and after each change; the base class of all such streams.

    The value of another stream, how many children a node has::

        class Count(zkwire.ValueStream[int]):
            def __init__(self, zk, path):
                super().__init__(path, lambda: zk.state is zkwire.SessionState.EXPIRED)
                self._zk = zk.unlimited

            async def _look(self):
                names, _ = await self._zk.get_children_and_watch(self.path, into=self._watches)
                return len(names), len(names)

        async for count in Count(zk, "/a"): ...

    When several changes follow each other quickly, the stream may leave some out, but never the last one.  It does not
    show a reconnect, or a new session after an expiry: it goes on with the present value.

    To leave a loop, ``break`` is enough.  A stream that is kept in a variable must be closed: by `close()`, by
    ``async with`` or by contextlib.aclosing.

    A subclass implements `_look`, which reads the value and adds watches for its next change to `_watches`.  A subclass
    that keeps something between two reads also implements `_heard`, which gets the events.  This class does the
    rest: it waits, leaves out values that have not changed, goes on in a new session, and removes watches.

    Args:
        path: For error messages.
        is_over: Returns, after a session has expired, whether no other session will follow.  It must not refer to the
            stream: else a stream that was left by ``break`` would not be collected at once.

    Raises:
        SessionExpiredError: From the iteration, with ``renew=False``, if the session has expired.
        SessionClosedError: From the iteration, if the client was closed.
        ServerError: From the iteration, such as NoAuthError, if a read is refused; the iteration may be continued.
        RuntimeError: If another task iterates the stream.

    Cancellation:
        Cancelling the wait for the next value removes the watches from the server; the iteration may be continued.

    Order:
        The order of the changes.
    """

    _noun = "state"  # noun used in error messages
    _is_armed = False  # whether `_watches` holds the watches of a read that has succeeded; they may have fired

    def __init__(self, path: str, is_over: Callable[[], bool]) -> None:
        super().__init__(asyncio.get_running_loop(), f"{self._noun} of {path}")
        self.path = path
        self._is_over = is_over
        self._watches = WatchSet()  # watches for changes of the value that was read last
        self._last_key: object = _NOTHING_YET

    def close(self) -> None:
        """End the iteration and give up the watches, here and on the server, without waiting for the answer."""
        super().close()
        self._disarm()

    def __del__(self) -> None:
        # The loop was left by `break`.  The garbage collector may run in any thread, and watches may be given up only
        # in the event loop's.  The callback holds the WatchSet alone, so that this object can go.
        if self._is_armed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watches.cancel)

    async def _next(self) -> T:
        try:
            while not self._is_closed:
                try:
                    key, value = await self._next_value()
                except SessionExpiredError:
                    if self._is_over():
                        raise
                    continue  # read again in the session that follows
                if not self._is_closed and key != self._last_key:  # equal: the watch fired, but the value is the same
                    self._last_key = key
                    return value
            raise StopAsyncIteration
        finally:
            if self._is_closed:
                self._disarm()

    async def _next_value(self) -> tuple[object, T]:
        """Wait until the value may have changed, and return the result of `_look`."""
        try:
            if self._is_armed:
                watches = self._watches  # `close` during the wait replaces `_watches`
                self._waiter = watches.ready()
                await self._waiter
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
        """Read the value now, and return a key and the value; two values are the same if their keys are equal.

        Set at least one watch with `into=self._watches`.  Watches of earlier calls that have not fired are still set.
        """

    def _heard(self, event: WatchEvent) -> None:
        """Update what the subclass keeps between two reads; called for each event, before the next `_look`."""

    def _disarm(self) -> None:
        """Give up all watches; done when `_look` has failed or was cancelled, and when the stream is closed.

        The next `_look` finds `_is_armed` false, and must read everything, like the first one.
        """
        self._is_armed = False
        self._watches.cancel()
        self._watches = WatchSet()

    @staticmethod
    async def _found(reading: Awaitable[A]) -> A | None:
        """Return the result of a read, or None if the node is absent."""
        try:
            return await reading
        except NoNodeError as error:
            # The traceback holds the frames of this stream.  Such a reference cycle would keep a stream that was left
            # by `break`, and its watches, until the garbage collector finds the cycle.
            error.__traceback__ = None
            return None


class NodeStream(ValueStream[T | None]):
    """A stream of a value of one node, or None while the node is absent; the base of DataStream and ChildrenStream."""

    def __init__(self, requester: Requester, path: str) -> None:
        self._requester = requester
        self._server_path = requester.server_path(path)
        super().__init__(path, lambda: requester.requests.refusal is not None)

    async def _look(self) -> tuple[object, T | None]:
        while True:
            found = await self._read()
            if found is not None:
                return found
            # A read of an absent node leaves no watch, but `exists` does.  The node may be created between the two.
            if await self._ask(ExistsRequest(self._server_path, True), WatchKind.EXIST) is None:
                return None, None

    @abstractmethod
    async def _read(self) -> tuple[object, T] | None:
        """Read the value and set a watch; return its key and the value, or None if the node is absent."""

    async def _ask(self, request: Request[R], kind: WatchKind) -> R | None:
        """Send `request` and return the reply, or None if the node is absent; its watch replaces all earlier ones."""
        self._disarm()
        watch = Watch(self._requester.requests, self._server_path, self.path, self._watches)
        return await self._found(self._requester.ask(request, watch, kind))


class DataStream(NodeStream[Node]):
    """A stream of a node's data and Stat, or None while the node is absent; `Client.data` makes it."""

    async def _read(self) -> tuple[object, Node] | None:
        reply = await self._ask(GetDataRequest(self._server_path, True), WatchKind.DATA)
        if reply is None:
            return None
        # A restart may change data without a zxid: /zookeeper/config always has 0 if it is read from a file.
        return (reply.stat.czxid, reply.stat.mzxid, reply.data), Node(reply.data or b"", reply.stat)


class ChildrenStream(NodeStream[list[str]]):
    """A stream of the names of a node's children, or None while the node is absent; `Client.children` makes it."""

    async def _read(self) -> tuple[object, list[str]] | None:
        reply = await self._ask(GetChildren2Request(self._server_path, True), WatchKind.CHILD)
        return None if reply is None else ((reply.stat.czxid, reply.stat.pzxid), reply.children)
