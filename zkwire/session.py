"""The session: the one loop that connects, resumes, re-arms watches, expires and closes.

Requests are submitted here and wait in one line until a connection takes them; nobody else knows that
reconnection exists.  Time comes from the loop, randomness from the generator handed in, connections from the function
handed in.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from zkwire import timing
from zkwire.connection import Call, Connection, Incoming, Notification, Watcher
from zkwire.errors import (
    ConnectionLostError,
    ProtocolError,
    ServerError,
    SessionClosedError,
    SessionError,
    SessionExpiredError,
)
from zkwire.hosts import Address, Hosts
from zkwire.janitor import Creation, Janitor
from zkwire.jute import Record
from zkwire.records import ConnectRequest, ConnectResponse
from zkwire.requests import (
    CloseSessionRequest,
    Create2Reply,
    CreateReply,
    PingRequest,
    RemoveWatchesRequest,
    Request,
    WatcherType,
)
from zkwire.states import SessionState, States
from zkwire.transport import Link, OpenLink, open_link
from zkwire.watches import WatchEventType, WatchKind, WatchTable, kind_set_by

_log = logging.getLogger(__name__)

REQUEST_LIMIT: Final = 1_048_575  # what a server takes unless its jute.maxbuffer says otherwise
REPLY_LIMIT: Final = 64 * 1024 * 1024  # a list of a million children fits; two gigabytes of nonsense do not
_NO_PASSWORD: Final = bytes(16)
_NEVER: Final = float("-inf")
_EVENT_TYPES: Final = {kind.value: kind for kind in WatchEventType}

R = TypeVar("R", bound=Record)


class Session:
    """One client's session, and the next one when that expires.

    Arguments: `addresses`, the servers; `timeout`, the wished session timeout in seconds; `session_id` and `password`,
    a session to resume, 0 for a new one; `renew`, whether an expired session is followed by a new one; `max_in_flight`,
    how many requests may be unanswered at a time; `rng`, the source of all randomness; `open_link`, which opens
    connections.

    `certain_until` is the moment on the loop's clock before which the session cannot have expired.
    """

    def __init__(
        self,
        addresses: list[Address],
        *,
        timeout: float,
        session_id: int,
        password: bytes,
        renew: bool,
        max_in_flight: int,
        rng: random.Random,
        open_link: OpenLink = open_link,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._hosts = Hosts(addresses, timeout, rng)
        self._wanted_timeout = self.timeout = timeout
        self.id = session_id
        self.password = password or _NO_PASSWORD
        self._renew = renew
        self._max_in_flight = max_in_flight
        self._open_link = open_link
        self.states = States()
        self.server = ""
        self.last_zxid = 0
        self.certain_until = _NEVER
        self.watches: WatchTable[Watcher] = WatchTable()
        self.janitor = Janitor(self.send, self.submit, lambda: self.id)
        self._lost_creations: WeakKeyDictionary[asyncio.Future[Any], tuple[Creation, int, int]] = WeakKeyDictionary()
        self._heard = self._loop.time()
        self._unsent: deque[Call] = deque()
        self._flush_due = False
        self._link: Link | None = None
        self._over: SessionError | None = None
        self._closing: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[bool] = self._loop.create_future()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._runner = self._loop.create_task(self._run(), name="zkwire session")
        self._runner.add_done_callback(self._ran)

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

    def send(self, call: Call, *, at_once: bool = False) -> None:
        """Put `call` into the line; its waiter need not be a future.

        Arguments: `at_once`, whether to write the line now, without waiting for the end of the loop's turn.
        Raises: as `submit`.
        """
        if self._over is not None:
            raise type(self._over)(*self._over.args)
        request = call.request
        if len(call.body) + 8 > REQUEST_LIMIT:
            raise ValueError(
                f"{request.operation} {request.subject or ''}: a request of {len(call.body) + 8} bytes, where a server"
                f" takes {REQUEST_LIMIT} (its jute.maxbuffer): store less, or spread it over several nodes"
            )
        if call.watcher is not None:
            self.watches.asked(call.watch_kind, request.subject or "")
        if at_once:
            self._unsent.append(call)
            self._flush()
        else:
            self._enqueue(call)

    def disown(self, future: asyncio.Future[Any]) -> None:
        """Take note that whoever awaited `future` was cancelled as its answer came, or was lost: what it made goes."""
        if not future.done() or future.cancelled() or self._over is not None:
            return
        if future.exception() is None:
            self._remove_made(future.result())
        elif future in self._lost_creations:
            self._look_for([self._lost_creations[future]])

    def give_up(self, path: str, watcher: Watcher) -> None:
        """Forget that `watcher` waits for `path`; the server's watch goes too when nobody else here wants it."""
        watcher.given_up = True
        where = self.watches.discard(path, watcher)
        if where is not None:
            self._remove_watch(where, path)

    def certain_for(self, session_id: int) -> float:
        """Return for how many seconds from now `session_id` is the session and lives for certain, or 0."""
        return max(0.0, self.certain_until - self._loop.time()) if session_id == self.id else 0.0

    async def wait_started(self) -> None:
        """Return once a server has taken the session.

        Raises: SessionExpiredError when the session that was to be resumed is gone.
        """
        await asyncio.shield(self._started)

    async def close(self, *, keep_session: bool = False) -> None:
        """End the session, so that its ephemeral nodes go at once; requests submitted before are answered first.

        Arguments: `keep_session`, whether to leave the session alive on the server, to be resumed by its id and
        password.
        Cancellation: closes the connection all the same; the session may then live on until it expires.
        """
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = self._loop.create_future()
        closed = SessionClosedError("the client is closed: make a new one with zkwire.connect")
        try:
            if self._over is None and self._has_disowned_creations():
                # Behind this the janitor has heard what they made, and has asked for its removal.
                await self._answered_or_closed(self.submit(PingRequest()), self._link)
            if self._over is None and self._is_ready:
                last: asyncio.Future[Any] = self.submit(PingRequest() if keep_session else CloseSessionRequest())
                self._over = closed
                await self._answered_or_closed(last, self._link)
        finally:
            try:
                self._end(closed, SessionState.CLOSED)
                self._runner.cancel()
                await asyncio.wait({self._runner})
                await self.janitor.finish()
            finally:
                self._closing.set_result(None)

    def _has_disowned_creations(self) -> bool:
        calls = () if self._link is None else self._link.connection.calls
        return any(isinstance(call.request, Creation) and call.waiter and call.waiter.done() for call in calls)

    async def _answered_or_closed(self, answer: asyncio.Future[Any], link: Link | None) -> None:
        assert link is not None
        try:
            await asyncio.wait([answer, link.closed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # a connection lost while closing: nothing more can be done

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
                else:
                    self._greeted(link, item)
        if connection.timeout and self.id:  # who does not take the session is no sign that it lives
            self._heard = connection.heard
            if is_answer:
                self.certain_until = timing.certain_until(connection.answered, connection.timeout)
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
        again: list[Call] = []
        disowned: list[tuple[Creation, int, int]] = []
        for call in link.connection.calls:
            if call.waiter is None:
                continue
            if call.waiter.done():
                self._settle_watch(call, -1)
                if isinstance(call.request, Creation):
                    disowned.append((call.request, self.id, self.last_zxid))
            elif call.request.repeatable:
                again.append(call)
            else:
                if isinstance(call.request, Creation) and isinstance(call.waiter, asyncio.Future):
                    self._lost_creations[call.waiter] = (call.request, self.id, self.last_zxid)
                call.waiter.set_exception(
                    ConnectionLostError(
                        f"{call.request.operation} {call.request.subject or ''}: the connection to {self.server} broke"
                        f" before the answer came ({reason}); it may have been carried out: look before you repeat it",
                        maybe_applied=True,
                    )
                )
        self._unsent.extendleft(reversed(again))
        self._look_for(disowned)
        if self._over is None and self.states.now is SessionState.CONNECTED:
            _log.warning("lost the connection to %s: %s", self.server, reason)
            self.states.enter(SessionState.SUSPENDED)

    def _look_for(self, lost: list[tuple[Creation, int, int]]) -> None:
        """Have the janitor look for what creates left, ahead of all that waits: it must not find what that makes."""
        waiting, self._unsent = self._unsent, deque()
        for creation, session_id, after_zxid in lost:
            self.janitor.search(creation, session_id, after_zxid)
        self._unsent.extend(waiting)

    # -- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._over is None:
            address = self._hosts.next()
            try:
                link = await self._connect(address)
            except _RefusedError:
                if self.id:
                    self._expire(f"{address} says that session {self.id:#x} has expired, or that its password is wrong")
                    continue
                _log.warning("%s refuses to make a session", address)
            except (OSError, ProtocolError) as error:
                _log.warning("no session with %s: %s: %s", address, type(error).__name__, error or "no answer in time")
            else:
                await self._serve(link, address)
            if self._patience() <= 0:
                self._expire(
                    f"no server has answered for {timing.give_up_after(self.timeout):.3g} s, so that the session of"
                    f" {self.timeout:.3g} s must be gone"
                )
            await asyncio.sleep(min(self._hosts.pause(), max(self._patience(), 0)))

    def _ran(self, runner: asyncio.Task[None]) -> None:
        """If the loop has failed, which it never should, let nobody wait for it."""
        error = None if runner.cancelled() else runner.exception()
        if error is not None:
            self._end(SessionClosedError(f"the client has failed inside: {error!r}"), SessionState.CLOSED)
            self._loop.call_exception_handler({"message": "a zkwire session has failed", "exception": error})

    async def _serve(self, link: Link, address: Address) -> None:
        """Return when the link is lost."""
        since = self._loop.time()
        try:
            reason = await asyncio.shield(link.closed)
        finally:
            await _finish(link)
        if self._loop.time() - since >= self._hosts.longest_pause:
            self._hosts.reached()  # but who is thrown out as soon as he is in must not knock again without a pause
        if isinstance(reason, ProtocolError):
            _log.error("dropped %s: %s: %s", address, type(reason).__name__, reason)

    def _patience(self) -> float:
        """How many seconds remain until the session must be taken for expired."""
        if not self.id:
            return float("inf")
        return self._heard + timing.give_up_after(self.timeout) - self._loop.time()

    async def _connect(self, address: Address) -> Link:
        """Return an open link whose handshake is through."""
        hello = ConnectRequest(0, self.last_zxid, round(self._wanted_timeout * 1000), self.id, self.password, False)
        link: Link | None = None

        def make() -> Link:
            nonlocal link
            link = self._link = Link(Connection(hello, REPLY_LIMIT, self._loop.time()), self)
            return link

        self.server = str(address)
        limit = min(timing.connect_within(self.timeout, len(self._hosts)), max(self._patience(), 0))
        greeted = self._greeting = self._loop.create_future()
        try:
            async with asyncio.timeout(limit):
                link = await self._open_link(make, address.host, address.port)
                await asyncio.wait({greeted, link.closed}, return_when=asyncio.FIRST_COMPLETED)
            if not greeted.done():
                raise link.closed.result()
            if not greeted.result():
                if not self.id:
                    raise ProtocolError("it refuses to make a session")
                raise _RefusedError
        except BaseException:
            if link is not None:
                await _finish(link)
            raise
        return link

    def _greeted(self, link: Link, response: ConnectResponse) -> None:
        """The handshake is through: what the new connection must hear first is queued before anything else."""
        if response.timeout <= 0:
            self._greeting.set_result(False)
            return
        self.id = response.session_id
        self.password = response.password or _NO_PASSWORD
        self.timeout = link.connection.timeout
        now = self._loop.time()
        for watcher in self.watches.one_shot():
            watcher.carried_over()
        for request in self.watches.rearm(self.last_zxid):
            link.connection.send(Call(request), now)
        self._greeting.set_result(True)
        if not self._started.done():
            self._started.set_result(None)
        self.states.enter(SessionState.CONNECTED)
        self._flush()

    @property
    def _is_ready(self) -> bool:
        return self._link is not None and self._link.connection.is_open

    def _enqueue(self, call: Call) -> None:
        self._unsent.append(call)
        if not self._flush_due and self._is_ready:
            self._flush_due = True
            self._loop.call_soon(self._flush)

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
            for watcher in self.watches.heard(call.request, call.code):
                watcher.carried_over()
            return
        if waiter.done():
            self._remove_made(call.reply)
        elif call.code == 0:
            waiter.set_result(call.reply)
        else:
            request = call.request
            waiter.set_exception(
                ServerError.from_code(call.code, request.subject, operation=request.operation, server=self.server)
            )

    def _remove_made(self, reply: Record | None) -> None:
        if isinstance(reply, CreateReply | Create2Reply) and self._over is None:
            self.janitor.removal(reply.path, self.last_zxid).start()

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

    # -- ends -------------------------------------------------------------------------------------------------------

    def _expire(self, why: str) -> None:
        """The session is gone: tell everybody, and begin a new one if that is wanted."""
        error = SessionExpiredError(f"session {self.id:#x} has expired: {why}")
        _log.error("%s", error)
        if self._renew and self._started.done():  # who asked to resume a session must not find another one in its place
            self.states.enter(SessionState.EXPIRED)
            self._settle_all(error)
            # A new session is made by a transaction, so that the server that grants it has seen everything before.
            self.id, self.password, self.last_zxid, self.timeout = 0, _NO_PASSWORD, 0, self._wanted_timeout
            self.states.enter(SessionState.CONNECTING)
            return
        self._end(error, SessionState.EXPIRED)

    def _end(self, error: SessionError, state: SessionState) -> None:
        self._over = error
        if not self._started.done():
            self._started.set_exception(error)
            self._started.exception()  # nobody need wait for it
        self.states.enter(state)
        self._settle_all(error)

    def _settle_all(self, error: SessionError) -> None:
        """Fail every call and watch in the session's name."""
        self.certain_until = _NEVER
        self.janitor.dismiss()
        calls = list(self._unsent)
        self._unsent.clear()
        if self._link is not None:
            calls += self._link.connection.calls
            self._link.abort(ConnectionAbortedError(str(error)))
            self._link = None
        for watcher in self.watches.clear():
            watcher.fail(error)
        for call in calls:
            if call.waiter is not None and not call.waiter.done():
                call.waiter.set_exception(type(error)(*error.args))


async def _finish(link: Link) -> None:
    """Close the link, if it is not yet, so that no socket is left when the caller goes on."""
    if not link.closed.done():
        link.abort(ConnectionAbortedError("the client has closed the connection"))
        await asyncio.wait({link.closed})


class _RefusedError(Exception):
    """The server says that the session is gone."""
