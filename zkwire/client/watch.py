"""One-shot watches: a Watch is awaited for its one event, a WatchSet waits for the events of many watches.

The session calls a watch synchronously, in the step in which it decodes the event.  The watch then wakes the one task
that waits for it through a future.
"""

# Why there is an urgent path.  Usually a future that is done runs its task in the next turn of the event loop: after
# every callback that is ready already, and after another call of select().  For most watches this is good enough.  But
# the deletion of one certain node makes a task that waits for a lock the owner of that lock, and all other contenders
# stand still until it goes on.  Such a task must not wait for another turn of the loop.  So:
#
# 1. The task awaits `WatchSet.ready(urgent=paths)`, which is a ReadyFuture.  For each of the paths, the watch registers
#    `ReadyFuture.run_waiter` with the session (`Watch.call_urgently`).
# 2. When the bytes that arrive are exactly the deletion of one of these nodes, the transport calls `run_waiter` before
#    it decodes the event.  This runs the task, inside of the transport's callback, up to its next await.
# 3. The event is then decoded and reaches the watch as every other event does.
#
# An event that arrives together with other bytes, or after a reconnect, takes the usual path only.

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, Self
from weakref import ref

from zkwire.errors import SessionError
from zkwire.session.request_queue import RequestQueue
from zkwire.session.transport import check_loop
from zkwire.wire.watch_table import Notification, WatchEventType


class WatchEvent(NamedTuple):
    """What happened to a watched node.

    Attributes:
        type: The kind of the change.
        path: The node.
        zxid: The zxid of the change, None where the server sends none.  Servers send it from 3.9 on, except for events
            that they synthesise after a reconnect.
    """

    type: WatchEventType
    path: str
    zxid: int | None


class ReadyFuture(asyncio.Future["str | None"]):
    """A future that can run the task that awaits it in the same step, instead of in the next turn of the event loop.

    `run_waiter` does this.  `set_result` works as for every other future.
    """

    _task: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, callback: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Add a callback, as for every future, and remember the one that wakes the awaiting task."""
        if context is not None:  # only a task that awaits this future gives a context
            self._task = callback, context
        super().add_done_callback(callback, context=context)

    def run_waiter(self, path: str | None = None) -> None:
        """Set the result to `path` and run the awaiting task until its next await.  Call it outside of any task."""
        if self.done():
            return
        if self._task is None:
            self.set_result(path)
            return
        (callback, context), self._task = self._task, None
        # Without this, set_result would schedule the task for the next turn as well, and wake it twice.
        self.remove_done_callback(callback)
        self.set_result(path)
        context.run(callback, self)


def wake(waiter: asyncio.Future[Any] | None) -> None:
    """Let the task that awaits `waiter` go on, if there is one."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class Watch:
    """A one-shot watch: await it, once, for the WatchEvent.

    A watch that is in no WatchSet is also given up when the program has dropped the last reference to it.

    Attributes:
        path: The node that is watched.
        given_up: Whether `cancel` was called.

    Raises:
        SessionExpiredError: From the await, if the session expires first.
        SessionClosedError: From the await, if the client is closed first.

    Cancellation:
        Cancelling the await gives the watch up, as `cancel` does.

    Order:
        The event is delivered before any reply that shows the change.
    """

    def __init__(self, registry: RequestQueue, server_path: str, path: str, group: WatchSet | None = None) -> None:
        self.path: str = path
        self.given_up: bool = False
        self._registry = registry
        self._server_path = server_path
        self._group = group
        self._outcome: WatchEvent | Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._watcher: Watch | _WeakWatcher
        if group is None:
            self._watcher = _WeakWatcher(self, registry, server_path)
        else:
            self._watcher = self
            group._add(self, registry.loop)

    def __await__(self) -> Generator[object, None, WatchEvent]:
        if self._outcome is None:
            if self._waiter is not None or self.given_up:
                raise RuntimeError(f"the watch on {self.path} is awaited already, or was given up")
            check_loop(self._registry.loop)
            self._waiter = self._registry.loop.create_future()
            if isinstance(self._watcher, _WeakWatcher):
                self._watcher.awaited = self
            try:
                yield from self._waiter.__await__()
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                if isinstance(self._watcher, _WeakWatcher):
                    self._watcher.awaited = None
        if isinstance(self._outcome, WatchEvent):
            return self._outcome
        if self._outcome is None:
            raise asyncio.CancelledError  # another task called `cancel` while this one waited
        raise self._outcome

    def done(self) -> bool:
        """Return whether the watch has fired, was given up, or its session has ended.

        Returns:
            Whether an await would return or raise at once.
        """
        return self.given_up or self._outcome is not None

    def cancel(self) -> None:
        """Give the watch up, here and on the server, without waiting for the server's answer."""
        if self.given_up:
            return
        self.given_up = True
        if self._group is not None:
            self._group._remove(self)
        self._registry.give_up(self._server_path, self._watcher)
        wake(self._waiter)

    def call_urgently(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the deletion of the node arrives, before the event is decoded.

        It is not called for other events, for a deletion that arrives together with other bytes, or for one that a
        reconnect brings.  The event itself is delivered in every case.

        Args:
            callback: What to call.
        """
        self._registry.call_urgently(self._server_path, callback)

    def _fire(self, event: WatchEventType, notification: Notification) -> None:
        """Deliver the event; called by the session."""
        if self.given_up:  # by another watcher, which the session called for the same event just before
            return
        zxid = notification.zxid
        self._outcome = seen = WatchEvent(event, self.path, zxid if zxid > 0 else None)
        if self._group is not None:
            self._group._fired(self, seen)
        if self._waiter is not None:
            wake(self._waiter)

    def _fail(self, error: SessionError) -> None:
        """Report the end of the session; called by the session."""
        self._outcome = error._again()
        if self._group is not None:
            self._group._failed(error)
        wake(self._waiter)

    def _rearmed(self) -> None:
        """Report that the watch was set again on another connection; called by the session."""
        if self._group is not None:
            self._group.was_rearmed = True


class _WeakWatcher:
    """The watcher of a Watch that is in no WatchSet; it gives the watch up when the program has dropped the Watch.

    The session keeps this object and not the Watch, which it would otherwise keep alive until the watch fires.
    """

    __slots__ = ("_registry", "_server_path", "_watch", "awaited", "given_up")

    def __init__(self, watch: Watch, registry: RequestQueue, server_path: str) -> None:
        self.given_up: bool = False
        # The watch while a task awaits it.  The event loop does not keep its tasks alive: without this reference, a
        # task that only the watch refers to could be collected while it waits.
        self.awaited: Watch | None = None
        self._registry = registry
        self._server_path = server_path
        self._watch = ref(watch, self._dropped)

    def _fire(self, event: WatchEventType, notification: Notification) -> None:
        self.given_up = True  # there is nothing left to be given up
        watch = self._watch()
        if watch is not None:
            watch._fire(event, notification)

    def _fail(self, error: SessionError) -> None:
        self.given_up = True  # there is nothing left to be given up
        watch = self._watch()
        if watch is not None:
            watch._fail(error)

    def _rearmed(self) -> None:
        """Do nothing: only a WatchSet has use for it."""

    def _dropped(self, _: object) -> None:
        # The garbage collector may run in any thread and within any step of the session, so the watch is given up in a
        # later turn of the event loop.
        if not (self.given_up or self._registry.loop.is_closed()):
            self._registry.loop.call_soon_threadsafe(self._registry.give_up, self._server_path, self)


class WatchSet:
    """Several one-shot watches that are waited for together; leaving the `with` block gives up those that have not
    fired::

        with zkwire.WatchSet() as watches:
            await zk.get_and_watch("/a", into=watches)
            await zk.exists_and_watch("/b", into=watches)
            event = await watches.next()

    Attributes:
        was_rearmed: Whether a watch of the set has been set again after a reconnect.

    Order:
        Events come in the order of the changes, except those that a reconnect brings at once: their order means
        nothing.
    """

    __slots__ = ("_callback", "_error", "_events", "_loop", "_ready", "_watches", "was_rearmed")

    def __init__(self) -> None:
        self.was_rearmed: bool = False
        self._watches: dict[Watch, None] = {}
        self._events: deque[WatchEvent] = deque()
        self._error: SessionError | None = None
        self._ready: ReadyFuture | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the one of the watches
        self._callback: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()

    async def next(self) -> WatchEvent:
        """Return the next event of any watch of the set, in the order in which the events arrive.

        Returns:
            The event.

        Raises:
            SessionExpiredError: If the session has expired.
            SessionClosedError: If the client was closed.

        Cancellation:
            It loses no event and gives up no watch.
        """
        while not self._events:
            if self._error is not None:
                raise self._error._again()
            await self.ready()
        return self._events.popleft()

    def ready(self, urgent: Collection[str] = ()) -> asyncio.Future[str | None]:
        """Return a future that is done once `take` has something to return or to raise.

        Only one such future may be pending at a time.

        Args:
            urgent: Paths of nodes that this set watches.  The deletion of one of them runs the awaiting task in the
                step in which it arrives, with the path as the result; `take` returns the event itself only a moment
                later.  A deletion that arrives together with other bytes, or after a reconnect, gives the result None.

        Returns:
            The future; its result is None, or the path of an urgent node.

        Raises:
            RuntimeError: If another task waits for this set, or in another event loop than the one of the watches.

        Cancellation:
            Cancelling the future does no harm.

        Order:
            The task runs before anything else that the urgent event causes, and after everything that the session
            received before it.
        """
        if self._ready is not None and not self._ready.done():
            raise RuntimeError("another task waits for this WatchSet already")
        loop = asyncio.get_running_loop()
        if self._loop is not None:
            check_loop(self._loop)
        self._ready = ReadyFuture(loop=loop)
        if urgent:
            for watch in self._watches:
                if watch.path in urgent:
                    watch.call_urgently(partial(self._ready.run_waiter, watch.path))
        if self._events or self._error is not None:
            wake(self._ready)
        return self._ready

    def take(self) -> list[WatchEvent]:
        """Return the events that have arrived, without waiting.

        Returns:
            The events, in the order in which they have arrived.

        Raises:
            SessionError: As `next`.
        """
        if self._error is not None:
            raise self._error._again()
        events = list(self._events)
        self._events.clear()
        return events

    def set_callback(self, callback: Callable[[], None] | None) -> None:
        """Have `callback` called whenever `take` gets something to return or to raise, even if no task waits; None
        switches it off.

        It is called in the step in which an event is decoded.  For events that have arrived before this call, and for
        the end of the session, it is called in the next turn of the event loop.

        Args:
            callback: What to call, or None.
        """
        self._callback = callback
        if callback is not None and (self._events or self._error is not None):
            asyncio.get_running_loop().call_soon(self._call_back)

    def cancel(self) -> None:
        """Give up every watch that has not fired."""
        for watch in list(self._watches):
            watch.cancel()

    def _add(self, watch: Watch, loop: asyncio.AbstractEventLoop) -> None:
        """Add `watch`, of the event loop `loop`, to the set; called by the watch when it is made."""
        self._watches[watch] = None
        self._loop = loop

    def _remove(self, watch: Watch) -> None:
        """Remove `watch` from the set; called by the watch when it is given up."""
        self._watches.pop(watch, None)

    def _fired(self, watch: Watch, event: WatchEvent) -> None:
        """Add an event; called by the watch."""
        self._watches.pop(watch, None)
        self._events.append(event)
        if self._callback is not None:
            try:
                self._callback()
            except Exception as error:  # noqa: BLE001  # a failing callback must not stop what else has arrived
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"the callback of a WatchSet has failed at the event {event}", "exception": error}
                )
        wake(self._ready)

    def _failed(self, error: SessionError) -> None:
        """Report the end of the session; called by a watch."""
        if self._error is None and self._callback is not None:
            asyncio.get_running_loop().call_soon(self._call_back)
        self._error = error
        wake(self._ready)

    def _call_back(self) -> None:
        if self._callback is not None:
            self._callback()
