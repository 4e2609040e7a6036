"""The requests of a session: they wait here for a connection, and are settled in the step that decodes their answers.

`RequestQueue` owns the calls that wait, the watches, and what becomes of the calls in flight when the connection
breaks.  The seam to `Session` (session.py), which owns the connection:

- The session lends it an open link (`attach`) and takes it back (`detach`, `take_all`).  It passes on what the link
  delivers (`answered`, `notified`) and calls `flush` when the link can take more.
- The session tells it when nothing more may be submitted (`refusal`) and which error ends calls and watches (`fail`,
  `fail_watches`).

The queue does not know when or where to connect, which state the session is in, or until when it is certain to live.
The session does not know which calls wait or which watches are set.
"""

import asyncio
import logging
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from zkwire import errors
from zkwire.errors import SessionError, described, explained
from zkwire.session.cleanup import Cleanup, LostCreate, is_write, traced_creates
from zkwire.session.observer import ObserverTap
from zkwire.session.session_log import Repetitions
from zkwire.session.transport import Link, check_loop
from zkwire.wire.connection import Call
from zkwire.wire.jute import Record
from zkwire.wire.requests import SET_WATCHES, AuthRequest, RemoveWatchesRequest, Request, WatcherType
from zkwire.wire.watch_table import ON_SERVER, Notification, Watcher, WatchEventType, WatchKind, WatchTable, kind_set_by

_log = logging.getLogger(__name__)

REQUEST_LIMIT: Final = 1_048_575  # bytes: what a server accepts unless its jute.maxbuffer says otherwise
# Bytes of large requests that may be unanswered at a time.  Until the server has taken them, the frames are copied
# several times: with no such limit, `max_in_flight` requests of a megabyte would take several gigabytes.
_LARGE_IN_FLIGHT: Final = 4 * 1024 * 1024
# Bytes by which a SetWatches2 with one path can be larger than the request that has set the watch.
_SET_AGAIN: Final = 27
_TIMES_UNREADABLE: Final = 2
_OVERLOAD_PAUSE: Final = 0.2  # seconds
_MANY: Final = 64  # calls that may wait before the cancelled ones among them are dropped
_EVENT_TYPES: Final = {kind.value: kind for kind in WatchEventType}

R = TypeVar("R", bound=Record)


class RequestTooLargeError(ValueError):
    """A request is larger than a server accepts; it was not sent.  Sizes are in bytes."""

    def __init__(self, operation: str, path: str | None, size: int, limit: int) -> None:
        super().__init__(operation, path, size, limit)  # all of them: a copy is made by them
        self.operation: str = operation
        self.path: str | None = path

    def __str__(self) -> str:
        *_, size, limit = self.args
        return (
            f"{described(self.operation, self.path)}: the request has {size} bytes, but a server accepts {limit} (its"
            " jute.maxbuffer, see `request_limit` of zkwire.connect): store less, or spread it over several nodes"
        )


class RequestQueue:
    """The calls of a session, waiting and in flight, and its watches.

    Args:
        max_in_flight: How many requests may be unanswered at a time.  The large ones among them, of more than 4 KiB,
            have no more than 4 MiB together, unless it is a single one.
        request_limit: The largest request that a server accepts, in bytes.
        tap: Called with each answer, failure and event, None if there is no observer.

    Attributes, of which the session sets the first four:
        session_id: The session in which requests are sent, 0 while there is none.
        last_zxid: The newest zxid that answers have shown.
        has_past: Whether another client has begun the session: its nodes may be from before.
        server: The "host:port" that was used last, as errors name it.
        refusal: What every later `submit` raises, once the session closes or has ended; calls that wait go on.
        link: The connection, None while there is none.
        unsent: The calls that wait; `flush` them when answers have made room in flight.
    """

    def __init__(
        self, max_in_flight: int, request_limit: int, tap: ObserverTap | None = None, *, has_past: bool = False
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._max_in_flight = max_in_flight
        self.request_limit = request_limit
        self._tap = tap
        self.session_id: int = 0
        self.last_zxid: int = 0
        self.has_past: bool = has_past
        self.server = ""
        self.watches: WatchTable[Watcher] = WatchTable(request_limit)
        self.cleanup: Cleanup = Cleanup(self)
        # Creates that failed with a lost connection, until their futures are gone: see `abandon`.
        self._lost_creates: WeakKeyDictionary[asyncio.Future[Any], list[LostCreate]] = WeakKeyDictionary()
        self.unsent: deque[Call] = deque()
        self._many_unsent = _MANY
        self._flush_due = False
        self._repetitions = Repetitions()
        self.link: Link | None = None
        self.refusal: SessionError | None = None

    # -- for callers ------------------------------------------------------------------------------------------------

    def submit(
        self, request: Request[R], watcher: Watcher | None = None, kind: WatchKind = WatchKind.DATA
    ) -> asyncio.Future[R]:
        """Put `request` into the queue and return the future of its reply; `watcher` gets events of the watch it sets.

        Raises: ValueError if the request is too large for a server; SessionError if the session is over; RuntimeError
        in another event loop than the session's.
        Cancellation: of the future: a request that was not yet written is not sent; see `abandon`.
        Order: as submitted; requests that are submitted in one turn of the event loop leave in one write.
        """
        if get_running_loop() is not self.loop:
            check_loop(self.loop)
        future: asyncio.Future[R] = self.loop.create_future()
        self.send(Call(request, future, watcher, kind))
        return future

    def send(self, call: Call) -> None:
        """Put `call` into the queue; its waiter need not be a future.  Raises: as `submit`."""
        if self.refusal is not None:
            raise self.refusal._again()
        request, size = call.request, call.size
        if size > self.request_limit:
            raise RequestTooLargeError(request.operation, request.subject, size, self.request_limit)
        if call.watcher is not None:
            if size + _SET_AGAIN > self.request_limit:  # the watch could not be set again on another connection
                raise RequestTooLargeError(request.operation, request.subject, size + _SET_AGAIN, self.request_limit)
            self.watches.asked(call.watch_kind, request.subject or "")
        self.unsent.append(call)
        if len(self.unsent) > self._many_unsent:
            self._drop_cancelled()
        if not self._flush_due:
            # Not at once: what is submitted in this turn of the event loop leaves in one write.
            self._flush_due = True
            self.loop.call_soon(self.flush)

    def send_at_once(self, call: Call) -> None:
        """Put `call` into the queue, and write the queue before this returns, as far as the connection allows.

        `call` must be small and set no watch.
        Raises: SessionError when the session is over.
        """
        if self.refusal is not None:
            raise self.refusal._again()
        self.unsent.append(call)
        self.flush()

    def abandon(self, future: asyncio.Future[Any], request: Request[Any]) -> None:
        """Record that the task that awaited `future`, for `request`, was cancelled although `future` is done.

        That happens in the turn of the event loop in which a future is settled.  The nodes of a create are removed.
        """
        if future.cancelled():
            return
        if future.exception() is None:
            self.cleanup.remove_created(request, future.result(), self.last_zxid)
        elif future in self._lost_creates:
            with self.sent_first():
                self.cleanup.search(self._lost_creates[future])

    def give_up(self, path: str, watcher: Watcher) -> None:
        """Forget `watcher`, which waits for `path`; remove the server's watch too if no other watcher needs it."""
        watcher.given_up = True
        if self.link is not None:
            self.link.connection.discard_urgent(path)
        where = self.watches.discard(path, watcher)
        if where is not None:
            self._remove_watch(where, path)

    def call_urgently(self, path: str, callback: Callable[[], None]) -> None:
        """Have `callback` called when the event arrives that the node at the server's `path` is deleted.

        It is called before that event is decoded and delivered to watchers.  A watch on the node must be set.
        The callback is dropped with the connection: the events that a new connection brings at once are in no order.
        """
        if self.link is not None:
            self.link.connection.add_urgent(path, callback)

    # -- for the session: the link ----------------------------------------------------------------------------------

    def attach(self, link: Link, session_id: int, credentials: Iterable[Call]) -> None:
        """Begin to use `link`, after its handshake; the calls that wait follow with the next `flush`.

        A server forgets watches with the connection, so all are set again here.  The order matters:

        - Credentials first: everything after them may need the identities, which the server forgot as well.
        - Then SetWatches, before the calls that wait: no answer may show a change whose event is still to come.
        - One-shot watchers are notified before SetWatches is sent, since its events may come before its answer.
          Lasting ones are notified with the answer (see `answered`), because only then does the server watch again.
        """
        self.link = link
        self.session_id = session_id
        now = self.loop.time()
        for call in credentials:
            link.connection.send(call, now)
        # `credentials` repeats those that wait.
        self.unsent = deque(call for call in self.unsent if not isinstance(call.request, AuthRequest))
        for watcher in self.watches.one_shot():
            watcher._rearmed()
        # `last_zxid` comes from answers and never from events.  One transaction can fire several watches: if the
        # connection broke after the first event and we named its zxid here, the server would not fire the others.
        for request in self.watches.rearm(self.last_zxid):
            link.connection.send(Call(request), now)

    def flush(self) -> None:
        """Write the calls that wait, in order, as many as may be in flight."""
        self._flush_due = False
        link, now = self.link, self.loop.time()
        # If the event loop was blocked, the link may be dead.  Writes that were sent now would fail with it, although
        # the next connection can carry them.
        if link is None or link.is_blocked or now > link.overdue_at or link.connection.error is not None:
            return
        connection = link.connection
        in_flight = connection.calls
        while self.unsent and len(in_flight) < self._max_in_flight:
            call = self.unsent.popleft()
            waiter = call.waiter
            if waiter is not None and waiter.done():  # cancelled before it was written: never sent
                self._settle_watch(call)
            elif (
                call.body is None
                and connection.large_in_flight
                and (connection.large_in_flight + call.size > _LARGE_IN_FLIGHT)
            ):
                self.unsent.appendleft(call)  # a call that is larger than the limit is sent alone
                break
            else:
                if self.cleanup.deletes.creates:
                    self.cleanup.writing(call.request)
                connection.send(call, now)
        link.flush()

    def detach(self, reason: Exception) -> bool:
        """Settle the calls that were in flight on the link, which was lost for `reason`; return whether one of them was
        a write.

        No call in flight is known to have been carried out or not.  Of each:
        - The client's own pings and SetWatches are dropped; the next connection begins with its own.
        - A read or another repeatable request is sent again on the next connection, before the calls that wait.
          After two unreadable answers it fails instead: a third would break the third connection, and so on forever.
          So does a large one with which the server has closed four connections: it may be above the server's limit.
        - A write fails with ConnectionLostError, and is never sent again.
        - The node of a create is searched for if the caller is cancelled or the create is to be recovered, see Cleanup.
        """
        link, self.link = self.link, None
        assert link is not None
        waiting, self.unsent = self.unsent, deque()
        again: list[Call] = []
        lost: list[LostCreate] = []
        in_flight = link.connection.calls
        has_write = any(is_write(call.request) for call in in_flight)
        if in_flight and isinstance(reason, ConnectionError) and not isinstance(reason, ConnectionAbortedError):
            largest = max(in_flight, key=lambda call: call.size)  # if any is above the server's limit, this one is
            largest.times_unreadable += 0.5 if largest.body is None else 0
        after_zxid = self.last_zxid or -self.has_past
        for call in in_flight:
            request = call.request
            if call.waiter is None:
                continue
            creates = [LostCreate(each, call, self.session_id, after_zxid) for each in traced_creates(request)]
            if call.waiter.done() or request.is_recovered:
                self._settle_watch(call)
                lost += creates
            elif request.repeatable and call.times_unreadable < _TIMES_UNREADABLE:
                again.append(call)
            elif request.repeatable:
                why = (
                    f"the server sent something else than the answer, or none: {explained(reason)}; if that or this was"
                    " too large, ask for less at a time, or see `request_limit` and `reply_limit` of zkwire.connect"
                )
                self.fail_call(call, errors.ProtocolError(why, operation=request.operation, path=request.subject))
                self._settle_watch(call)
            else:
                # The caller of a create may be cancelled now, before it sees the error: `abandon` looks here.
                if isinstance(call.waiter, asyncio.Future):
                    self._lost_creates[call.waiter] = creates
                why = (
                    f"the connection to {self.server} broke before the answer came ({explained(reason)}); it may have"
                    " been carried out: look before you repeat it"
                )
                lost_answer = errors.ConnectionLostError(
                    why, maybe_applied=True, operation=request.operation, path=request.subject
                )
                self.fail_call(call, lost_answer)
        # The new order: searches, repeated reads, what deletes have sent while their calls failed above, and then the
        # calls that waited before.  Deletes come before waiting creates of the same path: they would otherwise delete
        # the new node.  Searches spare it, and come first so that nodes without an owner go soon.
        again += self.unsent
        self.unsent = deque([*again, *waiting])
        with self.sent_first():
            self.cleanup.search(lost)
            self.cleanup.search_again()
        return has_write

    # -- for the session: what the link delivers --------------------------------------------------------------------

    def answered(self, call: Call) -> None:
        """Settle an answered call, in the step in which the answer was decoded."""
        if self._tap is not None:
            self._tap.answered(call, self.server)
        if call.watcher is not None:
            self._settle_watch(call)
        waiter = call.waiter
        if waiter is None:
            if call.code and self.link is not None and isinstance(call.request, SET_WATCHES):
                # The watches are not set on this connection, and the callers would wait for events in vain.
                error = call.request.refusal(call.code, self.server)
                if isinstance(error, errors.UnimplementedError):
                    # This server is older than the one before.  Each stream asks again, and raises the refusal.
                    for watcher in self.watches.take():
                        watcher._fail(SessionError(str(error)))
                self.link.abort(ConnectionAbortedError(f"the server refuses to set the watches again: {error}"))
            if call.code == errors.ThrottledError.code and isinstance(call.request, RemoveWatchesRequest):
                self.loop.call_later(_OVERLOAD_PAUSE, self._remove_later, self.link, call.request)
            for watcher in self.watches.heard(call.request, call.code):
                watcher._rearmed()
            return
        if waiter.done():  # the caller was cancelled
            self.cleanup.remove_created(call.request, call.reply, call.zxid)
        elif call.code == 0:
            if self.cleanup.searches:
                self.cleanup.answered(call.request, call.zxid)
            waiter.set_result(call.reply)
        else:
            waiter.set_exception(call.request.refusal(call.code, self.server))

    def notified(self, event: Notification) -> None:
        """Deliver a watch event to its watchers, in the step in which it was decoded."""
        kind = _EVENT_TYPES.get(event.type)
        if kind is None:
            added = self._repetitions.note("an event of an unknown type", self.loop.time())
            if added is not None:
                _log.warning("an event of the unknown type %d for %.200r%s", event.type, event.path, added)
            return
        if self._tap is not None:
            self._tap.notified(kind, event)
        for watcher in self.watches.dispatch(kind, event.path):
            watcher._fire(kind, event)
        if self.watches.lasting:
            for watcher in self.watches.concerned(kind, event.path):
                watcher._fire(kind, event)

    # -- for the clean-up: the end of a search ------------------------------------------------------------------------

    def recovered(self, call: Call) -> None:
        """Settle a create whose answer was lost; `call.reply` is what a search has found out."""
        if self._tap is not None:
            self._tap.answered(call, self.server)
        if call.waiter is not None:
            call.waiter.set_result(call.reply)

    def fail_call(self, call: Call, error: Exception) -> None:
        """Fail `call`, unless its caller was cancelled."""
        if call.waiter is not None and not call.waiter.done():
            if self._tap is not None:
                self._tap.done(call, error)
            call.waiter.set_exception(error)

    # -- for the session: the end -----------------------------------------------------------------------------------

    def take_all(self) -> list[Call]:
        """Return every call, waiting and in flight, and keep none; let the link and the clean-up go."""
        link, self.link = self.link, None
        in_flight = () if link is None else link.connection.calls
        calls = [*self.cleanup.dismiss(in_flight), *self.unsent, *in_flight]
        if self.refusal is not None:
            self.cleanup.give_up()
        self.unsent.clear()
        return calls

    def fail(self, calls: Iterable[Call], error: SessionError) -> None:
        """Fail `calls`, each with a fresh copy of `error`."""
        for call in calls:
            self.fail_call(call, error._again())

    def fail_watches(self, error: SessionError) -> None:
        """Fail every watch with `error`, and forget it."""
        for watcher in self.watches.clear():
            watcher._fail(error)

    def forget_session(self) -> None:
        """Record that the session has expired, and that the next link will bring a new one."""
        self.session_id = 0
        # A new session is made by a transaction, so that its server has seen all that the old session has seen.
        self.last_zxid, self.has_past = 0, False
        self.cleanup.resume()

    @property
    def is_cleaning_up(self) -> bool:
        """Whether there are nodes to remove, or unanswered calls with a cancelled caller, which may have made some."""
        calls = () if self.link is None else self.link.connection.calls
        has_cancelled = any(call.waiter and call.waiter.done() for call in calls)
        return has_cancelled or bool(self.cleanup.deletes.under_way or self.cleanup.searches)

    # -- within -----------------------------------------------------------------------------------------------------

    def _drop_cancelled(self) -> None:
        """Forget the waiting calls of cancelled callers, which would fill the memory while there is no connection."""
        # The threshold doubles with what is left: the cost stays constant for each call.
        unsent, self.unsent = self.unsent, deque()
        for call in unsent:
            if call.waiter is not None and call.waiter.done():
                self._settle_watch(call)
            else:
                self.unsent.append(call)
        self._many_unsent = max(2 * len(self.unsent), _MANY)

    @contextmanager
    def sent_first(self) -> Iterator[None]:
        """Put what is submitted within the context before all calls that wait."""
        waiting, self.unsent = self.unsent, deque()
        yield
        self.unsent.extend(waiting)

    def _settle_watch(self, call: Call) -> None:
        """Register the watch that an answer has set, in the step in which the answer is decoded.

        A moment later would be too late: the next frame may be the event.  A call that gets no answer has ended by now.
        """
        if call.watcher is None:
            return
        path = call.request.subject or ""
        is_removal_due = self.watches.answered(call.watch_kind, path)
        kind = kind_set_by(call.watch_kind, call.code)
        is_unwanted = call.watcher.given_up or (call.waiter is not None and call.waiter.done())
        if is_unwanted or (is_removal_due and kind is None):
            self._remove_watch(ON_SERVER[call.watch_kind], path)
        elif kind is not None:
            self.watches.add(kind, path, call.watcher)

    def _remove_watch(self, where: WatcherType, path: str) -> None:
        """Remove the server's watch, if there is a connection; otherwise it is gone with the connection.

        If it has fired meanwhile, the answer is NoWatcher, which is ignored.
        """
        if self.link is None or self.refusal is not None:
            return
        what = self.watches.to_remove(where, path)
        if what is not None:
            self.send(Call(RemoveWatchesRequest(path, what)))

    def _remove_later(self, link: Link | None, request: RemoveWatchesRequest) -> None:
        """Send `request` again, unless `link` is lost: an overloaded server has refused it, and has kept the watch."""
        if self.link is link:
            self._remove_watch(WatcherType(request.type), request.path)
