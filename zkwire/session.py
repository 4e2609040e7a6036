"""The session: the one loop that connects, resumes, re-arms watches, expires and closes.

Nobody else knows that reconnection exists; what becomes of the requests meanwhile is in exchange.py.  Time comes from
the loop, randomness from the generator handed in, connections from the function handed in.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any, Final

from zkwire import timing
from zkwire.connection import Call, Connection
from zkwire.errors import ProtocolError, SessionClosedError, SessionError, SessionExpiredError
from zkwire.exchange import Exchange
from zkwire.hosts import Address, Hosts
from zkwire.janitor import Creation
from zkwire.records import ConnectRequest, ConnectResponse
from zkwire.requests import CloseSessionRequest, PingRequest
from zkwire.states import SessionState, States
from zkwire.transport import Link, OpenLink, open_link

_log = logging.getLogger(__name__)

REPLY_LIMIT: Final = 64 * 1024 * 1024  # a list of a million children fits; two gigabytes of nonsense do not
_NO_PASSWORD: Final = bytes(16)


class Session(Exchange):
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
        super().__init__(max_in_flight)
        self._hosts = Hosts(addresses, timeout, rng)
        self._wanted_timeout = self.timeout = timeout
        self.id = session_id
        self.password = password or _NO_PASSWORD
        self._renew = renew
        self._open_link = open_link
        self.states = States()
        self._closing: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[bool] = self._loop.create_future()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._runner = self._loop.create_task(self._run(), name="zkwire session")
        self._runner.add_done_callback(self._ran)

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

    def link_lost(self, link: Link, reason: Exception) -> None:
        """Settle the calls that were in flight, and say that the session is in doubt."""
        if link is not self._link:
            return
        super().link_lost(link, reason)
        if self._over is None and self.states.now is SessionState.CONNECTED:
            _log.warning("lost the connection to %s: %s", self.server, reason)
            self.states.enter(SessionState.SUSPENDED)

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
        for watcher in self.watches.all():
            watcher.carried_over()
        for request in self.watches.rearm(self.last_zxid):
            link.connection.send(Call(request), now)
        self._greeting.set_result(True)
        if not self._started.done():
            self._started.set_result(None)
        self.states.enter(SessionState.CONNECTED)
        self._flush()

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

async def _finish(link: Link) -> None:
    """Close the link, if it is not yet, so that no socket is left when the caller goes on."""
    if not link.closed.done():
        link.abort(ConnectionAbortedError("the client has closed the connection"))
        await asyncio.wait({link.closed})


class _RefusedError(Exception):
    """The server says that the session is gone."""
