"""Requests and their answers, on whatever connection there is: one line in, the futures and watches settled.

Calls wait here until a connection takes them, survive it when it breaks or fail with it, and are settled in the step
in which their answers are decoded.  When to connect, and to whom, is not known here: see session.py.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from zkwire.errors import ConnectionLostError, ProtocolError, SessionError
from zkwire.session.cleanup import AnyCreate, Cleanup
from zkwire.session.lifetime import OnUncertain
from zkwire.session.transport import Link
from zkwire.wire import timing
from zkwire.wire.connection import AuthenticationDemand, Call, Incoming, Notification, Watcher
from zkwire.wire.jute import Record
from zkwire.wire.records import ConnectResponse
from zkwire.wire.requests import (
    Create2Reply,
    CreateReply,
    RemoveWatchesRequest,
    Request,
    SetWatches2Request,
    SetWatchesRequest,
    WatcherType,
)
from zkwire.wire.watch_table import WatchEventType, WatchKind, WatchTable, kind_set_by

_log = logging.getLogger(__name__)

REQUEST_LIMIT: Final = 1_048_575  # what a server takes unless its jute.maxbuffer says otherwise
_TIMES_UNREADABLE: Final = 2
_NEVER: Final = float("-inf")
_MANY: Final = 64  # calls that may wait before those are looked for that were cancelled meanwhile
_EVENT_TYPES: Final = {kind.value: kind for kind in WatchEventType}

R = TypeVar("R", bound=Record)


class RequestQueue(ABC):
    """The line of a session's calls, its watches, and what its connection says to them.

    Arguments: `max_in_flight`, how many requests may be unanswered at a time.

    A base class and not a part of the session, so that neither a request nor its answer passes through one call more.
    `id` is the session's, 0 while there is none; `certain_until` is the moment on the loop's clock before which the
    session cannot have expired; `_link` is the connection, `_over` what ended it all.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_in_flight = max_in_flight
        self.id = 0
        self.server = ""
        self.last_zxid = 0
        self.certain_until = _NEVER
        self.on_uncertain = OnUncertain(lambda: self.certain_until)
        self.watches: WatchTable[Watcher] = WatchTable()
        self.cleanup = Cleanup(self.send_at_once, self.submit, lambda: self.id, lambda: self.last_zxid)
        self._lost_creations: WeakKeyDictionary[asyncio.Future[Any], tuple[AnyCreate, int, int]] = WeakKeyDictionary()
        self._heard = self._loop.time()
        self._unsent: deque[Call] = deque()
        self._many_unsent = _MANY
        self._flush_due = False
        self._link: Link | None = None
        self._over: SessionError | None = None

    # -- asking -----------------------------------------------------------------------------------------------------

    def submit(
        self, request: Request[R], watcher: Watcher | None = None, kind: WatchKind = WatchKind.DATA
    ) -> asyncio.Future[R]:
        """Put `request` into the line and return the future of its reply.

        Arguments: `watcher`, whom to tell when the watch fires that the request sets, and the `kind` of that watch.
        Raises: ValueError when the request is too large for a server; SessionError when the session is over.
        Cancellation: of the future: a request that was not yet written is not sent; what an ephemeral create made is
        removed.
        Order: as submitted; what is submitted in one turn of the loop leaves in one write.
        """
        future: asyncio.Future[R] = self._loop.create_future()
        self.send(Call(request, future, watcher, kind))
        return future

    def send(self, call: Call) -> None:
        """Put `call` into the line; its waiter need not be a future.

        Raises: as `submit`.
        """
        if self._over is not None:
            raise type(self._over)(*self._over.args)
        request = call.request
        if len(call.body) + 8 > REQUEST_LIMIT:
            raise ValueError(
                f"{request.described}: a request of {len(call.body) + 8} bytes, where a server"
                f" takes {REQUEST_LIMIT} (its jute.maxbuffer): store less, or spread it over several nodes"
            )
        if call.watcher is not None:
            self.watches.asked(call.watch_kind, request.subject or "")
        self._enqueue(call)

    def send_at_once(self, call: Call) -> None:
        """As `send`, and write the line up to and with `call` before this returns, as far as that may be.

        Of requests that set no watch and that are small.
        """
        if self._over is not None:
            raise type(self._over)(*self._over.args)
        link = self._link
        connection = None if link is None or link.is_blocked or self._unsent else link.connection
        if link is None or connection is None or connection.error or len(connection.calls) >= self._max_in_flight:
            self._unsent.append(call)
            self._flush()
        else:
            connection.send(call, self._loop.time())
            link.flush()

    def abandon(self, future: asyncio.Future[Any]) -> None:
        """Take note that whoever awaited `future` was cancelled as its answer came, or was lost: what it made goes."""
        if not future.done() or future.cancelled() or self._over is not None:
            return
        if future.exception() is None:
            self._remove_made(future.result())
        elif future in self._lost_creations:
            self._look_for([self._lost_creations[future]])

    def withdraw(self, futures: list[asyncio.Future[Any]]) -> None:
        """Have those requests not be sent that were not yet written; what the others make stays."""
        waiting = {call.waiter for call in self._unsent}
        for future in futures:
            if future in waiting:
                future.cancel()

    def give_up(self, path: str, watcher: Watcher) -> None:
        """Forget that `watcher` waits for `path`; the server's watch goes too when nobody else here wants it."""
        watcher.given_up = True
        if self._link is not None:
            self._link.connection.discard_urgent(path)
        where = self.watches.discard(path, watcher)
        if where is not None:
            self._remove_watch(where, path)

    def call_urgently(self, path: str, callback: Callable[[], None]) -> None:
        """Have `callback` called when the deletion of the node at the server's `path` is told, ahead of all else.

        The watch must stand.  It is not called for what a reconnect brings at once, which comes in no order.
        """
        if self._link is not None:
            self._link.connection.add_urgent(path, callback)

    # -- what the link tells ----------------------------------------------------------------------------------------

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        """Settle what arrived, in the order of the wire and without a pause between."""
        connection = link.connection
        self.last_zxid = connection.last_zxid
        is_answer = False
        for item in arrived:
            if isinstance(item, Notification):
                self._notified(item)
            else:
                is_answer = True
                if isinstance(item, Call):
                    self._answered(item)
                elif isinstance(item, AuthenticationDemand):
                    self._demanded(item)
                else:
                    self._greeted(link, item)
        if connection.confirms_session and self.id:  # who does not take the session is no sign that it lives
            self._heard = connection.heard
            if is_answer and self._over is None:
                until = timing.certain_until(connection.answered, connection.timeout)
                is_sooner = until < self.certain_until  # this server grants less than the one before
                self.certain_until = until
                if is_sooner:
                    self.on_uncertain.look_soon()
        if self._unsent:
            self._flush()

    def link_writable(self, link: Link) -> None:
        """Go on writing."""
        self._flush()

    def link_lost(self, link: Link, reason: Exception) -> None:
        """Settle the calls that were in flight: reads go to the head of the line, writes fail."""
        if link is not self._link:
            return
        self._link = None
        if link.connection.is_session_over:
            self.certain_until = _NEVER
            self.on_uncertain.look_soon()
        waiting, self._unsent = self._unsent, deque()
        again: list[Call] = []
        disowned: list[tuple[AnyCreate, int, int]] = []
        for call in link.connection.calls:
            if call.waiter is None:
                continue
            if call.waiter.done():
                self._settle_watch(call, -1)
                if isinstance(call.request, AnyCreate):
                    disowned.append((call.request, self.id, self.last_zxid))
            elif call.request.repeatable and call.times_unreadable < _TIMES_UNREADABLE:
                again.append(call)
            elif call.request.repeatable:
                # Once is a server gone mad; but what has such an answer every time must not be asked for ever.
                self._settle_watch(call, -1)
                self._fail(
                    call,
                    ProtocolError(
                        f"{call.request.described}: in place of the answer came {reason};"
                        " if the answer was too large, ask for less at a time"
                    ),
                )
            else:
                if isinstance(call.request, AnyCreate) and isinstance(call.waiter, asyncio.Future):
                    self._lost_creations[call.waiter] = (call.request, self.id, self.last_zxid)
                self._fail(
                    call,
                    ConnectionLostError(
                        f"{call.request.described}: the connection to {self.server} broke"
                        f" before the answer came ({reason}); it may have been carried out: look before you repeat it",
                        maybe_applied=True,
                    ),
                )
        # What removals have said to that is ahead of all that waits, too: it may be a create of the same node.
        again += self._unsent
        self._unsent = deque()
        self._look_for(disowned)
        self._unsent.extend(again)
        self._unsent.extend(waiting)

    def _look_for(self, lost: list[tuple[AnyCreate, int, int]]) -> None:
        """Have the janitor look for what creates left, ahead of all that waits: it must not find what that makes."""
        waiting, self._unsent = self._unsent, deque()
        for creation, session_id, after_zxid in lost:
            self.cleanup.search(creation, session_id, after_zxid)
        self._unsent.extend(waiting)

    @abstractmethod
    def _greeted(self, link: Link, response: ConnectResponse) -> None:
        """Take what the server says to the handshake."""

    @abstractmethod
    def _demanded(self, demand: AuthenticationDemand) -> None:
        """Take it that the server serves nobody without an authentication."""

    def _fail(self, call: Call, error: Exception) -> None:
        """Tell who waits for `call` that no answer will come."""
        if call.waiter is not None and not call.waiter.done():
            call.waiter.set_exception(error)

    @property
    def _is_ready(self) -> bool:
        return self._link is not None and self._link.connection.is_open

    def _enqueue(self, call: Call) -> None:
        self._unsent.append(call)
        if len(self._unsent) > self._many_unsent:
            self._drop_cancelled()
        if not self._flush_due and self._is_ready:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _drop_cancelled(self) -> None:
        """Forget the calls that nobody waits for any more: without a connection nothing else does."""
        unsent, self._unsent = self._unsent, deque()
        for call in unsent:
            if call.waiter is not None and call.waiter.done():
                self._settle_watch(call, -1)
            else:
                self._unsent.append(call)
        self._many_unsent = max(2 * len(self._unsent), _MANY)

    def _flush(self) -> None:
        """Write the head of the line, as much of it as may be in flight."""
        self._flush_due = False
        link = self._link
        if link is None or link.is_blocked or not link.connection.is_open:
            return
        connection = link.connection
        now = self._loop.time()
        while self._unsent and len(connection.calls) < self._max_in_flight:
            call = self._unsent.popleft()
            if call.waiter is not None and call.waiter.done():  # cancelled before it was written: never sent
                self._settle_watch(call, -1)
            else:
                connection.send(call, now)
        link.flush()

    # -- settling ---------------------------------------------------------------------------------------------------

    def _answered(self, call: Call) -> None:
        self._settle_watch(call, call.code)
        waiter = call.waiter
        if waiter is None:
            if call.code and isinstance(call.request, SetWatchesRequest | SetWatches2Request):
                self._not_rearmed(call)
            for watcher in self.watches.heard(call.request, call.code):
                watcher.rearmed()
            return
        if waiter.done():
            self._remove_made(call.reply)
        elif call.code == 0:
            waiter.set_result(call.reply)
        else:
            waiter.set_exception(call.request.refusal(call.code, self.server))

    def _not_rearmed(self, call: Call) -> None:
        """The watches do not stand, so that nothing may seem well: another connection, another try."""
        error = call.request.refusal(call.code, self.server)
        if self._link is not None:
            self._link.abort(ConnectionAbortedError(f"the watches are not set again: {error}"))

    def _remove_made(self, reply: Record | None) -> None:
        if isinstance(reply, CreateReply | Create2Reply) and self._over is None:
            self.cleanup.removal(reply.path, self.last_zxid).start()

    def _settle_watch(self, call: Call, code: int) -> None:
        """Register the watch that an answer has set, in the step in which the answer is decoded."""
        if call.watcher is None:
            return
        path = call.request.subject or ""
        self.watches.answered(call.watch_kind, path)
        kind = kind_set_by(call.watch_kind, code)
        if call.watcher.given_up or (call.waiter is not None and call.waiter.done()):
            self._remove_watch(call.watch_kind.on_server, path)
        elif kind is not None:
            self.watches.add(kind, path, call.watcher)

    def _remove_watch(self, where: WatcherType, path: str) -> None:
        """Take back the server's watch; that it may have fired meanwhile (NoWatcher) is nobody's concern."""
        what = self.watches.to_remove(where, path) if self._is_ready and self._over is None else None
        if what is not None:
            self._enqueue(Call(RemoveWatchesRequest(path, what)))

    def _notified(self, event: Notification) -> None:
        kind = _EVENT_TYPES.get(event.type)
        if kind is None:
            _log.warning("an event of the unknown type %d for %s", event.type, event.path)
            return
        for watcher in self.watches.dispatch(kind, event.path):
            watcher.fire(kind, event)
        if self.watches.lasting:
            for watcher in self.watches.concerned(kind, event.path):
                watcher.fire(kind, event)

    def _settle_all(self, error: SessionError) -> None:
        """Fail every call and watch in the session's name."""
        self.cleanup.dismiss()
        calls = list(self._unsent)
        self._unsent.clear()
        if self._link is not None:
            calls += self._link.connection.calls
            self._link.connection.confirms_session = False  # what is read already may still be delivered
            self._link.abort(ConnectionAbortedError(str(error)))
            self._link = None
        self._end_certainty(error)
        for call in calls:
            self._fail(call, type(error)(*error.args))

    def _end_certainty(self, error: SessionError) -> None:
        """Tell all who rely on the session that it is over, or about to be: the watches first, which say why."""
        self.certain_until = _NEVER
        for watcher in self.watches.clear():
            watcher.fail(error)
        self.on_uncertain.look_soon()
