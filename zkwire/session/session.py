"""The session: the one loop that connects, resumes, expires and closes.

`Session` owns the connection: it chooses the server, performs the handshake and the SASL exchange, shows credentials,
follows the states, and decides when the session is over.  What it leaves to others:

- `RequestQueue` (request_queue.py) has the calls and the watches, and is lent each link that is ready.
- `Lifetime` (keepalive.py) says until when the session is certain to live.
- `Hosts` (hosts.py) says which server to try next and how long to wait before.

No other module knows that a session reconnects.  Tests can replace time, randomness and what opens connections.
"""

import asyncio
import os
import random
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final

from zkwire import errors
from zkwire.session import probe
from zkwire.session.attempt import Attempt, RefusedError, SessionKey
from zkwire.session.closing import (
    CloseWaiter,
    OnClosing,
    clean_up,
    closed,
    drain,
    end_session,
    end_tasks,
    finish,
    while_heard,
)
from zkwire.session.credentials import Credentials, Identity
from zkwire.session.guaranteed_delete import ignored
from zkwire.session.hosts import Address, Hosts
from zkwire.session.keepalive import Keepalive, Lifetime, OnClosed
from zkwire.session.late_writes import LateServer, LateWrites, PreparedServers, peer_of
from zkwire.session.observer import Observer, ObserverTap, SessionState, States
from zkwire.session.opening import unfit
from zkwire.session.request_queue import RequestQueue
from zkwire.session.sasl import SaslMechanism
from zkwire.session.session_log import SessionLog, given_up, not_in_time
from zkwire.session.transport import Link, LinkOwner, OpenLink
from zkwire.session.witness import Witness
from zkwire.wire import timing
from zkwire.wire.connection import AuthenticationDemand, Call, Incoming
from zkwire.wire.records import ConnectResponse, printed, xids
from zkwire.wire.requests import CloseSessionRequest, PingRequest, Request
from zkwire.wire.watch_table import Notification

_LAST_WORDS: Final = 1.0  # seconds in which a client whose task is cancelled from outside closes its session
_FIRST_ATTEMPT: Final = 1.0  # seconds at least, where no session has begun: servers grant more than a tiny wish
REPLY_LIMIT: Final = 64 * 1024 * 1024  # bytes: a list of a million children fits, a bogus length of 2 GB does not


class Session(LinkOwner):
    """One client's session, and the next one when that expires; the owner of its links, see LinkOwner.

    Args, beside those of zkwire.connect:
        timeout: The wished session timeout, in seconds.
        accepts_read_only: Whether to use a server that has lost its quorum until another one can write.

    Attributes:
        requests: Sends requests.
        lifetime: Says until when the session is certain to live; `keepalive` keeps it so.
        key, timeout: Those of the present session, the timeout in seconds.
    """

    def __init__(
        self,
        addresses: list[Address],
        *,
        timeout: float,
        session_id: int,
        password: bytes,
        least_timeout: float | None,
        locks: bool,
        renew: bool,
        max_in_flight: int,
        rng: random.Random,
        open_link: OpenLink,
        auth: Iterable[Identity],
        sasl: SaslMechanism | None,
        accepts_read_only: bool,
        observer: Observer | None,
        request_limit: int,
        reply_limit: int,
    ) -> None:
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        tap = None if observer is None else ObserverTap(observer)
        self.requests: RequestQueue = RequestQueue(max_in_flight, request_limit, tap, has_past=session_id != 0)
        self.lifetime: Lifetime = Lifetime(least_timeout if session_id else float("inf"))
        self.on_closed: OnClosed = OnClosed()
        self.on_closing: OnClosing = OnClosing()
        self.states: States = States()
        if tap is not None:
            self.states.listen(lambda state: tap.state_changed(state, self.requests.server))
        self._hosts, self._wanted_timeout = Hosts(addresses, timeout, rng), timeout
        self.timeout: float = timeout
        self.key: SessionKey = SessionKey(session_id, password, is_resumable=True) if session_id else SessionKey()
        self._xids = xids(1 + rng.getrandbits(30) if session_id else 1)  # the former client's are not known
        self._log = SessionLog(session_id)
        self._is_one_round: bool
        self._renew = renew
        self._reply_limit, self._rng = reply_limit, rng
        self._open_link = open_link
        self.credentials: Credentials = Credentials(auth, self._fail_auth)
        second = partial(Witness, sasl, self.credentials.kept.values())
        run = self.run_in_background
        self.keepalive: Keepalive = Keepalive(self.lifetime, self.requests, rng, open_link, second, run, is_ready=locks)
        self._sasl = sasl
        self._accepts_read_only = accepts_read_only
        self._attempt: Attempt
        self._address: Address  # the server connected to, or tried last
        self._servers = PreparedServers(self.lifetime, open_link, second)
        self._lost_at = self._loop.time()  # when there was a link last
        # When a server last showed that the ensemble keeps the session; see _time_left.
        self._heard = self._loop.time()
        self._background: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] | None = None
        self._started: asyncio.Future[None] = ignored(self._loop.create_future())
        self._ended: asyncio.Future[None] = self._loop.create_future()  # for good
        self._runner = self._loop.create_task(self._run(), name="zkwire session")
        self._runner.add_done_callback(self._runner_ended)

    async def wait_started(self, within: float | None = None) -> None:
        """Return once a server has accepted the session and the credentials given at the start.

        With `within` (seconds) of 0, every server is tried once.
        Raises: TimeoutError, with the last failure of each server; SessionExpiredError if the session to resume is
        gone; AuthFailedError; ConnectionError if no server can be connected to in this way.
        """
        awaited = [self._started, *(credential.accepted for credential in self.credentials.kept.values())]
        self._is_one_round = within == 0
        # One round ends in `_failed`.  It needs a limit anyway, for a server that ignores a credential.
        await asyncio.wait(awaited, timeout=2 * self.timeout if within == 0 else within)
        for each in awaited:  # either all are done, since the end of the session fails all of them, or none has failed
            if within is not None and not each.done():
                raise not_in_time(self._hosts.failures(), within, self._address)
            each.result()

    async def add_auth(self, identity: Identity) -> None:
        """Show a credential, now and on every later connection; see Client.add_auth."""
        if self.requests.refusal is not None:
            raise self.requests.refusal._again()
        await self.credentials.add(identity, self.requests.send if self._is_ready else None)

    def set_hosts(self, addresses: list[Address], *, follows: bool = False) -> None:
        """Use another list of servers, and move to another server if that balances load; see Hosts.replace."""
        if self._hosts.replace(addresses, self._address if self._is_ready else None, follows=follows):
            self._move_on("the list of servers has changed")

    def run_in_background(self, body: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `body` in a task until it returns or the session is closed, and return the task."""
        task = self._loop.create_task(body, name="zkwire background")
        self._background.add(task)
        task.add_done_callback(self._background.discard)  # not kept: so asyncio reports one that has failed
        return task

    async def close(self, *, keep_session: bool = False, within: float | None = None) -> None:
        """End the session, unless it is kept, once the requests submitted before are answered; see Client.close."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = self._loop.create_future()
        end = self._loop.time() + (self.timeout if within is None else min(within, self.timeout))
        last: Request[Any] = PingRequest() if keep_session else CloseSessionRequest()
        try:
            try:
                half = (end - self._loop.time()) / 2
                if not keep_session:
                    await self.on_closing._call(lambda: self.on_closed._closed(closed()), half)
                if (link := self.requests.link) is not None:
                    link.stay()  # the last requests are sent on this link
                    if keep_session and self._is_ready:
                        await clean_up(self.requests, link, half)
            finally:  # also if this task is cancelled: the session must not live on with what it holds
                is_closing = self._is_ready or (self._has_session and not keep_session)
                if is_closing:
                    last_answer = CloseWaiter(self._end_as_closed)
                    self.requests.send_at_once(Call(last, last_answer))  # there may be no time for the next turn
                    self.requests.refusal = closed()
                    if not keep_session:
                        # The server ends the session before it answers: a lock must not be trusted until then.
                        self._end_trust(closed())
            if is_closing:
                until: set[asyncio.Future[Any]] = {self._ended}
                if keep_session and self.requests.link is not None:
                    until.add(self.requests.link.closed)  # a session that lives on needs no other server
                await while_heard(until, lambda: self.requests.link, end, self._lost_at)
                if not keep_session:
                    self._log.closed(self.key.id, self.timeout, is_confirmed=last_answer.is_answered)
        finally:
            try:
                self._end_as_closed()
                await end_tasks({self._runner, *self._background, *self.requests.cleanup.search_tasks})
            finally:
                self._closing.set_result(None)

    @property
    def _is_ready(self) -> bool:
        return self.requests.link is not None and self.requests.link.connection.is_open

    @property
    def _has_session(self) -> bool:
        """Whether there is a session that can be ended at any server of the ensemble."""
        return self.key.is_resumable and self._started.done() and not self._ended.done()

    # -- called by the link: see LinkOwner --------------------------------------------------------------------------

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        """Pass on what has arrived, in the order of the wire and within one step of the event loop."""
        requests = self.requests
        connection = link.connection
        if connection.is_proof_answered:
            connection.is_proof_answered = False
            link.tick_earlier()
        requests.last_zxid = connection.last_zxid
        for item in arrived:
            if requests.refusal is not None and self._ended.done():
                # An item before this one, a refused credential for example, has ended the session and failed all its
                # calls and watches.  These calls were decoded already, so they were not among them.  A watch that was
                # set now would never fire.
                if isinstance(item, Call):
                    requests.fail([item], requests.refusal)
            elif isinstance(item, Call):
                requests.answered(item)
            elif isinstance(item, Notification):
                requests.notified(item)
            elif isinstance(item, AuthenticationDemand):
                self._fail_auth(f"demands an authentication before {item.operation}: see `auth` and `sasl` of connect")
            else:
                self._greeted(link, item)
        if connection.confirms_session and self.key.id:
            self._heard = connection.heard
            self.lifetime.answered(connection.heard)
        if requests.unsent:
            requests.flush()

    def link_writable(self, link: Link) -> None:
        """Write on."""
        self.requests.flush()

    def link_lost(self, link: Link, reason: Exception) -> None:
        """Have the calls in flight settled, and enter the state SUSPENDED."""
        if link is not self.requests.link:
            return
        self._lost_at = self._loop.time()
        self.keepalive.detach()
        if link.connection.is_session_over:
            self.lifetime.doubt()
        if self.requests.detach(reason):
            self._servers.late_writes.lost(peer_of(link, self._address), self._address)
        if not self.key.is_resumable:
            # Only that server has the session.  Its answers confirm nothing to the ensemble, but did keep this session.
            self._heard = link.connection.heard
        self._log.lost(self.requests.server, reason)
        self.states.enter(SessionState.SUSPENDED)

    # -- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._stay_connected()
        except asyncio.CancelledError:
            if self._closing is None and self._has_session and self._process == os.getpid():
                # Not by `close`, but from outside, and between two servers.  Another task must connect: this one is
                # being cancelled.
                self._runner = self._loop.create_task(self._stay_connected(), name="zkwire session, to be closed")
                await self.close(within=_LAST_WORDS)
            raise

    async def _stay_connected(self) -> None:
        """Connect, and serve the connection until it is lost, again and again until the session has ended."""
        while not self._ended.done():
            if self._time_left() <= 0:
                self._expire(
                    f"no server has answered for {timing.give_up_after(self.timeout):.3g} s, so that the session of"
                    f" {self.timeout:.3g} s must be gone"
                )
                continue
            self._address = address = self._hosts.next()
            try:
                link = await self._connect(address)
            except RefusedError:
                what = f"session {printed(self.key.id)}"
                self._expire(f"{address} says that {what} has expired, or that its password is wrong")
                continue
            except errors.AuthFailedError as error:
                self._log.ended(error)
                self._end(error, SessionState.AUTH_FAILED)
            except (OSError, errors.ProtocolError) as error:
                self._failed(address, error)
            else:
                if (late := self._servers.late_writes.doubtful) is None:
                    await self._serve(link, address)
                else:
                    await self._clear_doubt(link, address, late)
            if self._ended.done():
                return
            await asyncio.sleep(min(self._hosts.pause(), max(self._time_left(), 0)))

    def _failed(self, address: Address, error: OSError | errors.ProtocolError) -> None:
        """Log a failed attempt; end a session that has not begun if there is no use in going on."""
        attempt = self._attempt
        if link := attempt.given_up:
            self._servers.late_writes.given_up(peer_of(link, self._address), address)
        if self._sasl is not None and attempt.greeted.done() and not attempt.hello.session_id:  # it has ended its own
            self._forget_key()
        self._log.failed(str(address), error)
        self._hosts.failed(address, unfit(error) or error)
        cause = given_up(self._hosts.failures(), is_one_round=self._is_one_round)
        if cause is not None and not self._started.done():
            self._started.set_exception(cause)
            self._end(errors.SessionClosedError(str(cause)), SessionState.CLOSED)

    def _runner_ended(self, runner: asyncio.Task[None]) -> None:
        """End the session if its loop has failed, or was cancelled together with all tasks: no caller must wait on."""
        error = None if runner.cancelled() else runner.exception()
        if runner.cancelled() and not self._ended.done():
            self._end(errors.SessionClosedError("the client's task was cancelled from outside"), SessionState.CLOSED)
        if error is not None:
            self._end(errors.SessionClosedError(f"the client has failed inside: {error!r}"), SessionState.CLOSED)
            self._loop.call_exception_handler({"message": "a zkwire session has failed", "exception": error})

    async def _serve(self, link: Link, address: Address) -> None:
        """Return when the link is lost."""
        since = self._loop.time()
        try:
            if address not in self._hosts:  # the list was changed while we connected
                self._move_on(f"{address} is no longer among the servers")
            if link.connection.is_read_only and await probe.find_writable(
                self._open_link, self._hosts, address, self.timeout, link.closed
            ):
                self._move_on(f"there is a server that can write: {self._hosts.peek()}")
            reason = await asyncio.shield(link.closed)
        except asyncio.CancelledError:
            # Not by `close`: `asyncio.run` cancels all tasks at its end.  A forked process has its parent's session.
            if self.requests.link is link and self._process == os.getpid():
                await self.close(within=_LAST_WORDS)
            raise
        finally:
            await finish(link)
        # Reset the back-off only after a connection that lasted: a server may accept sessions and drop them at once.
        if self._loop.time() - since >= self._hosts.longest_pause:
            self._hosts.reached()
        if isinstance(reason, errors.ProtocolError):
            self._log.dropped(str(address), reason)

    async def _clear_doubt(self, link: Link, address: Address, late: LateServer) -> None:
        """Drop `link`, to `address`: try `late` once, and again while a lock is certain; then end the session."""
        left = max(self.lifetime.until - self._loop.time(), 0.0)
        try:
            if self._closing is None and (left or not late.was_asked_again):
                late.was_asked_again = True
                await asyncio.sleep(min(left, self._hosts.longest_pause))
                self._hosts.prefer(late.address)
            elif not link.is_lost:
                await end_session(link, timing.connect_within(self.timeout, len(self._hosts)))
                # Also without an answer: the leader may carry that request out at any time.
                self._expire(f"the client has ended it: a write with a lost answer may yet come through {late.address}")
                self._hosts.prefer(address)
        finally:
            await finish(link)

    def _time_left(self) -> float:
        """Return how many seconds remain until the client takes the session for expired by its own clock."""
        if not self.key.id:
            return float("inf")
        return self._heard + timing.give_up_after(self.timeout) - self._loop.time()

    async def _connect(self, address: Address) -> Link:
        """Return a link to `address` that the request queue uses; for what it raises, see Attempt.run.

        Cancellation: leaves no socket.
        """
        seen, is_first = self.requests.last_zxid, not self._started.done()
        hello = self.key.hello(self._wanted_timeout, seen, accepts_read_only=self._accepts_read_only)
        self._attempt = Attempt(self, hello, self._reply_limit, self._sasl, self._xids, is_first=is_first)
        self.requests.server = str(address)
        share = timing.connect_within(self.timeout, len(self._hosts))
        within = min(share if hello.session_id else max(share, _FIRST_ATTEMPT), self._time_left())
        opener = self._servers.opener(address, self._attempt, within)
        link = await self._attempt.run(opener, address, within)
        if self._sasl is not None:
            self._admit(link)
        return link

    def _greeted(self, link: Link, response: ConnectResponse) -> None:
        """Take the server's answer to the handshake; a timeout of 0 or less refuses the session."""
        attempt, connection = self._attempt, link.connection
        if self._ended.done():
            return
        if response.timeout <= 0:
            attempt.greeted.set_result(False)
            return
        is_new = not self.key.is_resumable
        self.key.granted(response, is_read_only=connection.is_read_only)
        self.lifetime.session_id = self.key.id
        if not connection.is_read_only:  # a server without a quorum proves nothing
            phase = self._rng.random()
            self.lifetime.granted(attempt.sent_at, connection.heard, connection.timeout, phase, is_new=is_new)
            connection.certainty = self.lifetime.certainty
        self._servers.granted[peer_of(link, self._address)] = connection.timeout
        self.timeout = self._hosts.timeout = connection.timeout
        # In this very step: what was read together with the handshake may already be an event.
        if self._sasl is None:
            self._admit(link)
        attempt.greeted.set_result(True)

    def _admit(self, link: Link) -> None:
        """Lend `link` to the queue, unless a lost write may come late: credentials, watches, the calls that wait."""
        has_lost_write = bool(self._servers.late_writes)
        self._servers.late_writes.resumed(peer_of(link, self._address), is_read_only=link.connection.is_read_only)
        if self._servers.late_writes.doubtful is not None:
            return
        self.requests.attach(link, self.key.id, [each.call() for each in self.credentials.kept.values()])
        self.keepalive.attach(link, self._address, has_lost_write=has_lost_write)
        if not self._started.done():
            self._started.set_result(None)
        self._log.connected(self.requests.server, self.key.id, self.timeout, is_read_only=link.connection.is_read_only)
        # Listeners may submit requests, which then leave in the same write.
        self.states.enter(SessionState.READ_ONLY if link.connection.is_read_only else SessionState.CONNECTED)
        self.requests.flush()

    def _move_on(self, why: str) -> None:
        """Drop the link once all that is in flight on it is answered; the calls that wait go to the next server.

        Does nothing if the session is leaving already, or closing: `close` needs the link.
        """
        link = self.requests.link
        if link is not None and self._closing is None and not link.is_leaving:
            drain(link, why)

    # -- ends -------------------------------------------------------------------------------------------------------

    def _expire(self, why: str) -> None:
        """Record that the session is gone: fail calls and watches, and begin a new session if that is wanted."""
        if self._closing is not None:  # perhaps by our own request, whose answer was lost
            self._end_as_closed()
            return
        error = errors.SessionExpiredError(f"session {printed(self.key.id)} has expired: {why}")
        self._log.ended(error)
        # A caller that asked to resume a certain session must not get another one in its place: `_started` is not done.
        if self._renew and self._started.done():
            self.states.enter(SessionState.EXPIRED)
            self._settle_all(error)
            self.requests.forget_session()
            self._servers.late_writes = LateWrites()
            self._forget_key()
            self.timeout = self._hosts.timeout = self._wanted_timeout
            self.states.enter(SessionState.CONNECTING)
            return
        self._end(error, SessionState.EXPIRED)

    def _forget_key(self) -> None:
        """Have the next handshake ask for a new session."""
        self.key = SessionKey()
        self.lifetime.renewed()

    def _end(self, error: errors.SessionError, state: SessionState) -> None:
        """End the session for good: every call, watch and later verb fails with `error`."""
        if not self._ended.done():
            self._ended.set_result(None)
        self.requests.refusal = error
        if not self._started.done():
            self._started.set_exception(error)
        self.states.enter(state)
        self._settle_all(error)
        self.credentials.fail(error)
        self.on_closed._closed(error)

    def _end_as_closed(self) -> None:
        """End the session as one that its owner has closed."""
        if self.states.now is not SessionState.CLOSED:
            self._end(closed(), SessionState.CLOSED)

    def _settle_all(self, error: errors.SessionError) -> None:
        """Drop the link, and fail every watch and every call of the session."""
        link, calls = self.requests.link, self.requests.take_all()
        self.keepalive.detach()
        if link is not None:
            link.abort(ConnectionAbortedError(str(error)))
        self._end_trust(error)
        self.requests.fail(calls, error)

    def _end_trust(self, error: errors.SessionError) -> None:
        """Fail the watches, then end certainty: in this order a lock learns the reason before it learns the doubt."""
        self.requests.fail_watches(error)
        self.lifetime.end()

    def _fail_auth(self, what: str) -> None:
        """End the session: its server does `what`, and would do the same on every connection."""
        if self._ended.done():
            return
        why = f"{self.requests.server} {what}; session {printed(self.key.id)} is left to expire"
        error = errors.AuthFailedError(why)
        self._log.ended(error)
        self._end(error, SessionState.AUTH_FAILED)
