"""The session: the one loop that connects, resumes, re-arms watches, expires and closes.

Nobody else knows that reconnection exists; what becomes of the requests meanwhile is in exchange.py.  Time comes from
the loop, randomness from the generator handed in, connections from the function handed in.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from zkwire.errors import (
    AuthFailedError,
    ProtocolError,
    ServerError,
    SessionClosedError,
    SessionError,
    SessionExpiredError,
)
from zkwire.session import probe
from zkwire.session.cleanup import AnyCreate
from zkwire.session.credentials import Credential, Credentials
from zkwire.session.hosts import Address, Hosts
from zkwire.session.lifetime import OnClosed
from zkwire.session.request_queue import RequestQueue
from zkwire.session.sasl import SaslMechanism
from zkwire.session.states import SessionState, States
from zkwire.session.transport import Link, OpenLink, open_link
from zkwire.wire import timing
from zkwire.wire.connection import AuthenticationDemand, Call, Connection
from zkwire.wire.records import ConnectRequest, ConnectResponse
from zkwire.wire.requests import AuthRequest, CloseSessionRequest, PingRequest, SaslRequest

_log = logging.getLogger(__name__)

REPLY_LIMIT: Final = 64 * 1024 * 1024  # a list of a million children fits; two gigabytes of nonsense do not
_NO_PASSWORD: Final = bytes(16)


class Session(RequestQueue):
    """One client's session, and the next one when that expires.

    Arguments: `addresses`, the servers; `timeout`, the wished session timeout in seconds; `session_id` and `password`,
    a session to resume, 0 for a new one; `renew`, whether an expired session is followed by a new one; `max_in_flight`,
    how many requests may be unanswered at a time; `rng`, the source of all randomness; `open_link`, which opens
    connections; `auth`, credentials to show on each; `sasl`, who speaks for us first on each; `accepts_read_only`,
    whether a server that has lost its quorum will do until there is a better one.

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
        auth: Iterable[tuple[str, bytes]] = (),
        sasl: SaslMechanism | None = None,
        accepts_read_only: bool = False,
    ) -> None:
        super().__init__(max_in_flight)
        self._hosts = Hosts(addresses, timeout, rng)
        self._wanted_timeout = self.timeout = timeout
        self.id = session_id
        self.password = password or _NO_PASSWORD
        self._renew = renew
        self._open_link = open_link
        self._credentials = Credentials(auth, self._refused)
        self._sasl = sasl
        self._accepts_read_only = accepts_read_only
        # What a server without a quorum has granted is unknown to all others, and must not be asked of them.
        self._is_resumable = session_id != 0
        self._address: Address | None = None
        self._leaving: _Leaving | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.states = States()
        self.on_closed = OnClosed()
        self._closing: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[bool] = self._loop.create_future()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._runner = self._loop.create_task(self._run(), name="zkwire session")
        self._runner.add_done_callback(self._ran)

    async def wait_started(self) -> None:
        """Return once a server has taken the session, and the credentials that it began with.

        Raises: SessionExpiredError when the session that was to be resumed is gone; AuthFailedError.
        """
        given = [credential.accepted for credential in self._credentials]
        await asyncio.shield(self._started)
        for accepted in given:
            await asyncio.shield(accepted)

    async def add_auth(self, scheme: str, data: bytes) -> None:
        """Show a credential, now and on every later connection; see Client.add_auth."""
        if self._over is not None:
            raise type(self._over)(*self._over.args)
        credential = self._credentials.add(scheme, data)
        if self._is_ready:
            self.send(credential.call())
        try:
            await asyncio.shield(credential.accepted)
        except asyncio.CancelledError:
            if not credential.was_sent:
                self._credentials.remove(credential)
            raise

    def set_hosts(self, addresses: list[Address]) -> None:
        """Take another list of servers, and go to another one where that keeps the load even; see Client.set_hosts."""
        must_move = self._hosts.replace(addresses, self._address if self._is_ready else None)
        if must_move and self._is_ready:
            self._leave("the list of servers has changed")

    def run_beside(self, body: Coroutine[Any, Any, None]) -> None:
        """Run `body` beside the session until either ends."""
        task = self._loop.create_task(body, name="zkwire companion")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

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
        if self._leaving is not None and self._is_ready:
            self._leaving.stay()  # what is to be said last is said here
        try:
            if self._over is None and self._has_disowned_creations():
                # Behind this the janitor has heard what they made, and has asked for its removal.
                await self._answered_or_closed(self.submit(PingRequest()), self._link)
            if self._over is None and self._is_ready:
                last: asyncio.Future[Any] = self.submit(PingRequest() if keep_session else CloseSessionRequest())
                self._over = closed
                if not keep_session:
                    self._end_certainty(closed)  # the server ends it before it answers
                await self._answered_or_closed(last, self._link)
        finally:
            try:
                self._end(closed, SessionState.CLOSED)
                tasks = {self._runner, *self._background}
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await self.cleanup.finish()
            finally:
                self._closing.set_result(None)

    def _has_disowned_creations(self) -> bool:
        calls = () if self._link is None else self._link.connection.calls
        return any(isinstance(call.request, AnyCreate) and call.waiter and call.waiter.done() for call in calls)

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
        if not self._is_resumable:  # a session of that server alone, which has lived as long as it has answered
            self._heard = link.connection.heard
        if self._over is None and self.states.now in (SessionState.CONNECTED, SessionState.READ_ONLY):
            _log.warning("lost the connection to %s: %s", self.server, reason)
            self.states.enter(SessionState.SUSPENDED)

    # -- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._over is None:
            self._address = address = self._hosts.next()
            try:
                link = await self._connect(address)
            except _RefusedError:
                self._expire(f"{address} says that session {self.id:#x} has expired, or that its password is wrong")
                continue
            except AuthFailedError as error:
                _log.error("%s", error)
                self._end(error, SessionState.AUTH_FAILED)
            except (OSError, ProtocolError) as error:
                _log.warning("no session with %s: %s: %s", address, type(error).__name__, error or "no answer in time")
            else:
                await self._serve(link, address)
            if self._over is not None:
                return
            if self._patience() <= 0:
                self._expire(
                    f"no server has answered for {timing.give_up_after(self.timeout):.3g} s, so that the session of"
                    f" {self.timeout:.3g} s must be gone"
                )
            await asyncio.sleep(min(self._hosts.pause(), max(self._patience(), 0)))

    def _ran(self, runner: asyncio.Task[None]) -> None:
        """If the loop has failed, which it never should, or was cancelled with all tasks, let nobody wait for it."""
        error = None if runner.cancelled() else runner.exception()
        if runner.cancelled() and self._over is None:
            self._end(SessionClosedError("the client's task was cancelled from outside"), SessionState.CLOSED)
        if error is not None:
            self._end(SessionClosedError(f"the client has failed inside: {error!r}"), SessionState.CLOSED)
            self._loop.call_exception_handler({"message": "a zkwire session has failed", "exception": error})

    async def _serve(self, link: Link, address: Address) -> None:
        """Return when the link is lost."""
        since = self._loop.time()
        try:
            if address not in self._hosts:  # the list was changed while we were on our way
                self._leave(f"{address} is no longer among the servers")
            if link.connection.is_read_only and await self._find_writable(link, address):
                self._leave(f"there is a server that can write: {self._hosts.peek()}")
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
        """Return an open link whose handshake is through, and the exchange of SASL behind it."""
        wanted = (self.id, self.password) if self._is_resumable else (0, _NO_PASSWORD)
        hello = ConnectRequest(0, self.last_zxid, round(self._wanted_timeout * 1000), *wanted, self._accepts_read_only)
        link: Link | None = None

        def make() -> Link:
            nonlocal link
            link = Link(Connection(hello, REPLY_LIMIT, self._loop.time()), self)
            link.connection.is_held = self._sasl is not None
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
                    if not self._is_resumable:
                        raise ProtocolError("it refuses to make a session")
                    raise _RefusedError
                if self._sasl is not None:
                    await self._authenticate(self._sasl, link, address)
                    if link.is_lost:  # by what came behind the last word
                        raise await link.closed
                    link.release()
                    self._admit(link)
        except BaseException:
            if link is not None:
                await _finish(link)
            raise
        return link

    def _greeted(self, link: Link, response: ConnectResponse) -> None:
        """The handshake is through."""
        if self._over is not None:
            return
        if response.timeout <= 0:
            self._greeting.set_result(False)
            return
        if not link.connection.is_read_only:
            self._is_resumable = True
        elif response.session_id != self.id:
            self._is_resumable = False
        self.id = response.session_id
        self.password = response.password or _NO_PASSWORD
        self.timeout = self._hosts.timeout = link.connection.timeout
        if self._sasl is None:
            self._admit(link)
        self._greeting.set_result(True)

    async def _authenticate(self, sasl: SaslMechanism, link: Link, address: Address) -> None:
        """Let `sasl` and the server talk until it is content.  Raises: AuthFailedError."""
        failed = f"no authentication by SASL with {address}"
        token = _asked(sasl.start, address.host, failed)
        while token is not None:
            answer: asyncio.Future[Any] = self._loop.create_future()
            link.connection.send_apart(Call(SaslRequest(token), answer), self._loop.time())
            link.flush()
            await asyncio.wait({answer, link.closed}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise link.closed.result()
            refusal = answer.exception()
            if refusal is not None:
                raise AuthFailedError(f"{failed}: it refuses: {refusal}") from refusal
            token = _asked(sasl.step, answer.result().token or b"", failed)

    def _admit(self, link: Link) -> None:
        """Let requests go to `link`, behind what a new connection must hear first."""
        self._link = link
        now = self._loop.time()
        for credential in self._credentials:
            link.connection.send(credential.call(), now)
        if any(isinstance(call.request, AuthRequest) for call in self._unsent):  # they are among the former
            self._unsent = deque(call for call in self._unsent if not isinstance(call.request, AuthRequest))
        for watcher in self.watches.one_shot():
            watcher.rearmed()
        for request in self.watches.rearm(self.last_zxid):
            link.connection.send(Call(request), now)
        if not self._started.done():
            self._started.set_result(None)
        self.states.enter(SessionState.READ_ONLY if link.connection.is_read_only else SessionState.CONNECTED)
        self._flush()

    async def _find_writable(self, link: Link, here: Address) -> bool:
        """Ask the other servers until one says that it can write, and prefer it; return False when `link` is lost."""
        for rounds in itertools.count():
            pause = self._hosts.jittered(timing.ask_again_after(rounds, self.timeout))
            await asyncio.wait({link.closed}, timeout=pause)
            for other in self._hosts.others(here):
                if link.closed.done():
                    return False
                if await self._can_write(other, link):
                    self._hosts.prefer(other)
                    return not link.closed.done()
            if link.closed.done():
                return False
        raise AssertionError

    async def _can_write(self, other: Address, link: Link) -> bool:
        """Whether `other` says that it can write, as long as `link` lasts."""
        limit = timing.connect_within(self.timeout, len(self._hosts))
        asking = self._loop.create_task(probe.can_write(self._open_link, other, limit))
        either: set[asyncio.Future[Any]] = {asking, link.closed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            await asyncio.wait({asking})  # which leaves no socket
        return not asking.cancelled() and asking.result()

    def _leave(self, why: str) -> None:
        """Go to the next server as soon as all that is in flight here is answered; what waits is sent there.

        Who is about to go, and who is about to end, goes nowhere else.
        """
        link = self._link
        is_going = self._leaving is not None and not self._leaving.done()
        if link is None or is_going or self._closing is not None:
            return
        self._leaving = _Leaving(link, why, lambda: self._link is link)
        # Not through the line, which may be full; the last of all, so that its answer is the last.
        link.connection.send(Call(PingRequest(), self._leaving), self._loop.time())
        link.flush()
        link.leave()

    # -- ends -------------------------------------------------------------------------------------------------------

    def _expire(self, why: str) -> None:
        """The session is gone: tell everybody, and begin a new one if that is wanted."""
        error = SessionExpiredError(f"session {self.id:#x} has expired: {why}")
        _log.error("%s", error)
        if self._renew and self._started.done():  # who asked to resume a session must not find another one in its place
            self.states.enter(SessionState.EXPIRED)
            self._settle_all(error)
            # A new session is made by a transaction, so that the server that grants it has seen everything before.
            self.id, self.password, self.last_zxid = 0, _NO_PASSWORD, 0
            self.timeout = self._hosts.timeout = self._wanted_timeout
            self._is_resumable = False
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
        self._credentials.fail(error)
        self.on_closed.come(error)

    def _refused(self, credential: Credential, error: ServerError) -> None:
        """The server takes a credential for none, and will each time: nothing more can be asked in this session."""
        if self._over is None:
            self._fail_auth(f"{self.server} refuses the credential of scheme {credential.scheme!r}", error)

    def _demanded(self, demand: AuthenticationDemand) -> None:
        if self._over is None:
            self._fail_auth(
                f"{self.server} answers {demand.operation} by the demand for an authentication that this client has"
                " not shown: see `auth` and `sasl` of zkwire.connect"
            )

    def _fail_auth(self, why: str, cause: ServerError | None = None) -> None:
        error = AuthFailedError(f"{why}; session {self.id:#x} is left to expire")
        error.__cause__ = cause
        _log.error("%s", error)
        self._end(error, SessionState.AUTH_FAILED)


async def _finish(link: Link) -> None:
    """Close the link, if it is not yet, so that no socket is left when the caller goes on."""
    if not link.closed.done():
        link.abort(ConnectionAbortedError("the client has closed the connection"))
        await asyncio.wait({link.closed})


class _RefusedError(Exception):
    """The server says that the session is gone."""


def _asked(mechanism: Callable[[Any], bytes | None], argument: object, failed: str) -> bytes | None:
    """Return what a mechanism of SASL, which may be the user's own, says to `argument`.  Raises: AuthFailedError."""
    try:
        return mechanism(argument)
    except Exception as error:
        raise AuthFailedError(f"{failed}: {error}") from error


class _Leaving:
    """Waits for the last answer of a link, then drops it."""

    def __init__(self, link: Link, why: str, is_current: Callable[[], bool]) -> None:
        self._link = link
        self._why = why
        self._is_current = is_current
        self._stays = False

    def stay(self) -> None:
        """Let the link live on."""
        if self._is_current():
            self._stays = True
            self._link.stay()

    def done(self) -> bool:
        """Whether the link was lost before, or is to stay."""
        return self._stays or not self._is_current()

    def set_result(self, result: object) -> None:
        """Everything is answered."""
        self._link.abort(ConnectionAbortedError(self._why))

    def set_exception(self, error: BaseException) -> None:
        """As for a result: the session has ended meanwhile, or the server refuses a ping."""
        self._link.abort(ConnectionAbortedError(self._why))
