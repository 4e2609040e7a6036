"""What a caller waits on: a one-shot Watch, a WatchSet that waits for many at once, the stream of session states.

All are told synchronously, in the step in which the session learns of a thing, and wake their one waiter by a future;
who waits in a hurry, since he may be the one who has the lock now, goes on in that very step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from zkwire.errors import SessionError
from zkwire.wire.connection import Notification, Watcher
from zkwire.wire.watch_table import WatchEventType


@dataclass(slots=True)
class WatchEvent:
    """What happened to a watched node: the `type`, the `path`, and the `zxid` of the change, None where the server
    sends none.

    Servers send the zxid from 3.9 on, but not for what they make up for after a reconnect.
    """

    type: WatchEventType
    path: str
    zxid: int | None


class ReadyFuture(asyncio.Future["str | None"]):
    """A future whose task may go on in the step in which it is done; any other's goes on a turn of the loop later.

    It is one in all else: `set_result` has everybody go on in the next turn.
    """

    _task: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, callback: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """As of every future; whoever gives a context is a task that awaits this."""
        if context is not None:
            self._task = callback, context
        super().add_done_callback(callback, context=context)

    def run_waiter(self, path: str | None = None) -> None:
        """Be done, and run the task that awaits this until it waits for something else.

        To be called outside of any task.
        """
        if self.done():
            return
        if self._task is None:
            self.set_result(path)
            return
        (callback, context), self._task = self._task, None
        self.remove_done_callback(callback)
        self.set_result(path)
        context.run(callback, self)


class _Registry(Protocol):
    """The part of a session that watches need: ways to say that nobody waits any more, and that somebody may go on."""

    def give_up(self, path: str, watcher: Watcher) -> None: ...

    def call_urgently(self, path: str, callback: Callable[[], None]) -> None: ...


class Watch:
    """A one-shot watch: await it, once, for the WatchEvent.

    Raises: SessionExpiredError or SessionClosedError from the await when the session ends first.
    Cancellation: of the await gives the watch up, as `cancel` does.
    Order: the event is there before any reply that shows the change.
    """

    __slots__ = ("_group", "_outcome", "_registry", "_server_path", "_waiter", "given_up", "path")

    def __init__(self, registry: _Registry, server_path: str, path: str, group: WatchSet | None = None) -> None:
        self.path = path
        self.given_up = False
        self._registry = registry
        self._server_path = server_path
        self._group = group
        self._outcome: WatchEvent | Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        if group is not None:
            group.add(self)

    def __await__(self) -> Generator[object, None, WatchEvent]:
        if self._outcome is None:
            if self._waiter is not None or self.given_up:
                raise RuntimeError(f"the watch on {self.path} is awaited already, or was given up")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                yield from self._waiter.__await__()
            except asyncio.CancelledError:
                self.cancel()
                raise
        if isinstance(self._outcome, WatchEvent):
            return self._outcome
        if self._outcome is None:
            raise asyncio.CancelledError  # given up by somebody else meanwhile
        raise self._outcome

    def done(self) -> bool:
        """Whether it has fired, was given up, or its session has ended."""
        return self.given_up or self._outcome is not None

    def cancel(self) -> None:
        """Give the watch up, here and on the server; nothing waits for an answer."""
        if self.given_up:
            return
        self.given_up = True
        if self._group is not None:
            self._group.remove(self)
        self._registry.give_up(self._server_path, self)
        self._wake()

    def call_urgently(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the deletion of the node is told, ahead of all else that is done about it.

        Other events, and a deletion that is told in company, or after a reconnect, come in their time only.
        """
        self._registry.call_urgently(self._server_path, callback)

    def fire(self, event: WatchEventType, told: Notification) -> None:
        """Take the event; called by the session."""
        if self.given_up:  # by who was told of the same event just before
            return
        zxid = told.zxid
        self._outcome = seen = WatchEvent(event, self.path, zxid if zxid > 0 else None)
        if self._group is not None:
            self._group.fired(self, seen)
        if self._waiter is not None:
            self._wake()

    def fail(self, error: SessionError) -> None:
        """Take the end of the session; called by the session."""
        self._outcome = error.again()
        if self._group is not None:
            self._group.failed(error)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def rearmed(self) -> None:
        """Take note that the watch now stands on another connection; called by the session."""
        if self._group is not None:
            self._group.was_rearmed = True


class WatchSet:
    """Several one-shot watches waited for as one; leaving the `with` block gives up those that have not fired.

        with zkwire.WatchSet() as watches:
            await zk.get_and_watch("/a", into=watches)
            await zk.exists_and_watch("/b", into=watches)
            event = await watches.next()

    `was_rearmed` tells whether a watch of the set has survived a reconnect.  Events that a reconnect brings at
    once come in no order that means anything; before it, events come in the order of the changes.
    """

    __slots__ = ("_callback", "_error", "_events", "_ready", "_watches", "was_rearmed")

    def __init__(self) -> None:
        self.was_rearmed = False
        self._watches: dict[Watch, None] = {}
        self._events: list[WatchEvent] = []
        self._error: SessionError | None = None
        self._ready: ReadyFuture | None = None
        self._callback: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    async def next(self) -> WatchEvent:
        """Return the next event of any watch of the set, in the order of the wire.

        Raises: SessionExpiredError, SessionClosedError when the session ends.
        Cancellation: loses no event and gives nothing up.
        """
        while not self._events:
            if self._error is not None:
                raise self._error.again()
            await self.ready()
        return self._events.pop(0)

    def ready(self, urgent: Collection[str] = ()) -> asyncio.Future[str | None]:
        """Return a future that is done once there is something to take; one at a time may wait.

        Arguments: `urgent`, the paths of those nodes, watched by this set, whose deletion is waited for in a hurry: the
        future's result is then the path, and the event itself can be taken a moment later only.  A deletion that comes
        in company, or after a reconnect, comes as all else does, with the result None.
        Cancellation: of the future, harmless.
        Order: who waits in a hurry goes on ahead of all else that is done about the event; what the session had said
        before is known by then.
        """
        if self._ready is not None and not self._ready.done():
            raise RuntimeError("somebody waits for this WatchSet already")
        self._ready = ReadyFuture(loop=asyncio.get_running_loop())
        if urgent:
            for watch in self._watches:
                if watch.path in urgent:
                    watch.call_urgently(partial(self._ready.run_waiter, watch.path))
        if self._events or self._error is not None:
            self._wake()
        return self._ready

    def take(self) -> list[WatchEvent]:
        """Return the events that are there, without waiting.  Raises: as `next`."""
        if self._error is not None:
            raise self._error.again()
        events = self._events
        self._events = []
        return events

    def set_callback(self, callback: Callable[[], None] | None) -> None:
        """Have `callback` called whenever there is something to take, also where nobody waits; None: no more.

        It is called in the step in which an event is decoded, with what is there already and with the end of the
        session a turn of the loop later.
        """
        self._callback = callback
        if callback is not None and (self._events or self._error is not None):
            asyncio.get_running_loop().call_soon(self._call_back)

    def cancel(self) -> None:
        """Give up every watch that has not fired."""
        for watch in list(self._watches):
            watch.cancel()

    def add(self, watch: Watch) -> None:
        """Take `watch` in; called when it is made."""
        self._watches[watch] = None

    def remove(self, watch: Watch) -> None:
        """Let `watch` go; called when it is given up."""
        self._watches.pop(watch, None)

    def fired(self, watch: Watch, event: WatchEvent) -> None:
        """Take an event; called by the watch."""
        self._watches.pop(watch, None)
        self._events.append(event)
        if self._callback is not None:
            try:
                self._callback()
            except Exception as error:  # noqa: BLE001  # as of any callback: what else has arrived must not suffer
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"what was to be told of the event {event} has failed", "exception": error}
                )
        self._wake()

    def failed(self, error: SessionError) -> None:
        """Take the end of the session; called by a watch."""
        if self._error is None and self._callback is not None:
            asyncio.get_running_loop().call_soon(self._call_back)
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _call_back(self) -> None:
        if self._callback is not None:
            self._callback()
