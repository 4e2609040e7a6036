"""Until when the session is certain to live, and the requests that keep it so.

The rule itself is in zkwire/wire/certainty.py.  `Lifetime` applies it to the session's handshakes and answers.
`Keepalive` decides which connection sends proofs and how often, and mends a broken chain.  `OnUncertain` and `OnClosed`
have the callbacks for the end of certainty and of the session.
"""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from zkwire.errors import ConnectionLostError, NotReadOnlyError, ServerError, SessionError, ZooKeeperError, is_transient
from zkwire.session import probe
from zkwire.session.hosts import CONFIG, Address, is_listed
from zkwire.session.request_queue import RequestQueue
from zkwire.session.transport import Link, OpenLink, check_loop
from zkwire.session.witness import MakeWitness
from zkwire.wire import timing
from zkwire.wire.certainty import Certainty, Upkeep
from zkwire.wire.connection import Call
from zkwire.wire.multi import empty_write
from zkwire.wire.requests import GetDataRequest, SyncRequest

_log = logging.getLogger(__name__)

# The event loop's clock leaves out the time for which the machine is suspended, and the servers' clocks do not.
_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
_NEVER: Final = float("-inf")
_A_MOMENT: Final = 0.001  # seconds; `suspended` reads two clocks, one after the other: no greater difference counts
_CHECK_EVERY: Final = 1.0  # seconds: the event loop's timers do not run while the machine is suspended
_QUICK: Final = 3  # so many requests in a row prove a session that was used before; see `certify`
# Fractions of the least timeout.
_PAUSE: Final = 1 / 16
_ENOUGH: Final = 1 / 10  # what a lock begins with at least
_MEND_EVERY: Final = 1 / 2  # how often it is checked whether the chain is broken
_ROLE_AFTER: Final = 1 / 4  # a lock that is held for so long is at rest


def suspended() -> float:
    """Return for how many seconds the machine has been suspended since it was started; always 0 without such a clock.

    This is the one clock beside the event loop's, so that a simulation can replace it.
    """
    return 0.0 if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK) - time.monotonic()


class _Callbacks:
    """Callbacks without arguments that are each called at most once, in the order in which they were added."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks: dict[Callable[[], None], None] = {}

    def add(self, callback: Callable[[], None]) -> None:
        """Add a callback.  Raises: RuntimeError in another event loop or thread, where it would be called too late."""
        if asyncio.get_running_loop() is not self._loop:
            check_loop(self._loop)
        self._callbacks[callback] = None

    def discard(self, callback: Callable[[], None]) -> None:
        """Undo `add`; a callback that was called, or never added, is ignored."""
        self._callbacks.pop(callback, None)

    def _call_all_soon(self) -> None:
        # One handle for each callback: the event loop reports one that raises, and still calls the others.
        for callback in self._callbacks:
            self._loop.call_soon(self._call, callback)

    def _call(self, callback: Callable[[], None]) -> None:
        if callback in self._callbacks:  # a callback that ran before it may have discarded it
            del self._callbacks[callback]
            callback()


class OnUncertain(_Callbacks):
    """Callbacks for the moment at which the session may have expired; `Client.on_uncertain`.

        zk.on_uncertain.add(callback); ...; zk.on_uncertain.discard(callback)

    That moment is `Client.certain_until`.  Each answer from the ensemble postpones it, a server that grants a shorter
    session timeout brings it forward, and the end of the session makes it now.

    Args:
        certain_until: Returns the moment, on the event loop's clock.
    """

    def __init__(self, certain_until: Callable[[], float]) -> None:
        super().__init__()
        self._certain_until = certain_until
        self._timer: asyncio.Handle | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, when the session may have expired.

        Raises:
            RuntimeError: In another event loop or thread than the client's.
        """
        super().add(callback)
        # A timer may be left from callbacks that were discarded: `discard` keeps it, since the next callback is often
        # added a moment later.
        if self._timer is None:
            self._timer = self._loop.call_at(self._next_check(), self._check)

    def _check_soon(self) -> None:
        """Check the time in the next turn of the event loop; to be called when certainty now ends earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._check) if self._callbacks else None

    def _check(self) -> None:
        self._timer = None
        if not self._callbacks:
            return
        certain_until = self._certain_until()
        # Answers postpone the moment without touching the timer, which would cost more than one early check.
        if certain_until > self._loop.time():
            self._timer = self._loop.call_at(self._next_check(), self._check)
            return
        self._call_all_soon()

    def _next_check(self) -> float:
        now = self._loop.time()
        return min(max(self._certain_until(), now), now + _CHECK_EVERY)


class OnClosed(_Callbacks):
    """Callbacks for the end of the session, after which no other session follows; `Client.on_closed`.

        zk.on_closed.add(callback); ...; zk.on_closed.discard(callback)

    The end comes when the client is closed, when the server refuses its credentials, and when the session expires and
    the client was connected with `renew=False`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._error: SessionError | None = None

    @property
    def error(self) -> SessionError | None:
        """A fresh copy of the error that every verb raises from now on, None while the session may go on."""
        return None if self._error is None else self._error._again()

    def add(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, in the turn of the event loop after the end; in the next turn if it is over.

        Raises:
            RuntimeError: In another event loop or thread than the client's.
        """
        super().add(callback)
        if self._error is not None:
            self._call_all_soon()

    def _closed(self, error: SessionError) -> None:
        """Record the end and its cause; called by the session."""
        self._error = error
        self._call_all_soon()


class Lifetime:
    """Until when the session cannot have ended on the ensemble.

    Args:
        least: The least timeout that a session to be resumed was ever granted, in seconds; infinite for a new session;
            None if it is not known: then nothing is ever certain in that session.

    Attributes:
        session_id: The session that a server has granted last.
        certainty: What answers have proven, None where nothing can be.
        on_uncertain: The callbacks for the end of certainty.
    """

    def __init__(self, least: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self.on_uncertain: OnUncertain = OnUncertain(lambda: self.until)
        self.session_id: int
        self.renewed(least)

    @property
    def until(self) -> float:
        """The moment, on the event loop's clock; minus infinity while nothing is known.

        The time for which the machine was suspended since it was proven is taken off.
        """
        if self.certainty is None or self._is_over:
            return _NEVER
        return self.certainty.until - self._missed()

    def certain_for(self, session_id: int) -> float:
        """Return how many seconds from now the session cannot expire; 0 if `session_id` is another session."""
        return max(0.0, self.until - self._loop.time()) if session_id == self.session_id else 0.0

    def is_certain(self, session_id: int) -> bool:
        """Return whether `session_id` is the present session, and certain for long enough to acquire a lock."""
        return self.certain_for(session_id) > self.enough

    @property
    def enough(self) -> float:
        """How many seconds must be certain before a lock may be acquired."""
        return 0.0 if self.certainty is None else self.certainty.least * _ENOUGH

    def renewed(self, least: float | None = float("inf")) -> None:
        """Begin with a new session, which is yet to be made."""
        self.certainty: Certainty | None = None if least is None else Certainty(least)
        self._is_over = False
        self._seen = (_NEVER, _NEVER)  # `certainty.proven` at the last call of `answered`
        self._suspended = suspended()

    @property
    def may_be_certain(self) -> bool:
        """Whether anything can be certain in this session, now or later."""
        return self.certainty is not None and not self._is_over

    def resuming(self, now: float, timeout: float) -> None:
        """Record that a handshake is sent to a server that grants `timeout` seconds; see Certainty.granted."""
        if self.certainty is not None:
            self.certainty.granted(now, timeout)
            self.on_uncertain._check_soon()  # a shorter timeout than the one before brings the moment forward

    def granted(self, sent: float, now: float, timeout: float, phase: float, *, is_new: bool) -> None:
        """Record the answer to a handshake; see Certainty.begun and Certainty.resumed."""
        if self.certainty is None:
            return
        sent -= self._count_suspension(self.certainty, now)
        if is_new:
            self.certainty.begun(sent, now, timeout, phase)
        else:
            self.certainty.resumed(sent, timeout, phase)
            self.on_uncertain._check_soon()
        self._seen = self.certainty.proven

    def answered(self, now: float) -> None:
        """Count the time of a suspension, if anything was proven since the last call."""
        if self.certainty is not None and self.certainty.proven != self._seen:
            self._count_suspension(self.certainty, now)
            self._seen = self.certainty.proven

    def _missed(self) -> float:
        """Return for how many seconds the machine was suspended since `_count_suspension` last found that it was."""
        missed = suspended() - self._suspended
        return missed if missed > _A_MOMENT else 0.0

    def _count_suspension(self, certainty: Certainty, now: float) -> float:
        """Return for how many seconds the machine was suspended since the last call, and bring all forward by that."""
        if missed := self._missed():
            self._suspended += missed
            certainty.missed(missed, now, self._seen)
        return missed

    def doubt(self) -> None:
        """Record that a server has said that it is ending the session; the next handshake shows whether it is."""
        if self.certainty is not None:
            self.certainty.until = _NEVER
        self.on_uncertain._check_soon()

    def end(self) -> None:
        """Record that the session is over, or that the client is ending it."""
        self._is_over = True
        self.on_uncertain._check_soon()


@dataclass(eq=False, repr=False)
class Keepalive:
    """What makes a session certain, and keeps it so.

    Args:
        lifetime: The session's.
        requests: The session's request queue.
        rng: A source of randomness.
        open_link: Opens connections.
        make_witness: Makes a witness of the client.
        run: Runs something in a task until the session is closed.
        is_ready: Whether the chain is kept while there is no lock.
    """

    lifetime: Lifetime
    requests: RequestQueue
    rng: random.Random
    open_link: OpenLink
    make_witness: MakeWitness
    run: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    is_ready: bool

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at_least = Upkeep.READY if self.is_ready else Upkeep.NONE
        self._needs = [0, 0]  # of locks that depend on certainty now, and later
        self._needed_since: float  # when a lock began to depend on it
        self._address: Address  # of the link's server
        self._timer: asyncio.TimerHandle | None = None
        self._mending: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._may_ask = True

    def need(self, *, later: bool) -> None:
        """Record that one lock more depends on certainty, or, with `later`, that one waits which may come to."""
        if not self._needs[0]:
            self._needed_since = self._loop.time()
        self._needs[later] += 1
        if (link := self.requests.link) is not None and link.connection.upkeep is not Upkeep.CERTAIN:
            self._set_upkeep()

    def release(self, *, later: bool) -> None:
        """Undo one `need`.  `_check` lowers the upkeep later: another lock often follows at once."""
        self._needs[later] -= 1

    def _set_upkeep(self) -> None:
        link = self.requests.link
        if link is not None:
            now, later = self._needs
            upkeep = Upkeep.CERTAIN if now else Upkeep.READY if later else self._at_least
            if link.connection.upkeep is not upkeep:
                link.connection.upkeep = upkeep
                if now and link.connection.certainty is not None:
                    link.connection.certainty.needed(self._loop.time())
                link.tick_earlier()

    def attach(self, link: Link, address: Address, *, has_lost_write: bool) -> None:
        """Use a new connection, to the server at `address`.

        On one that resumes the session, the first thing to prove is that its server belongs to a quorum: see
        certainty.py.  Where no lock is held or waited for, the next write of the client shows it.

        Args:
            has_lost_write: Whether the answer to a write was lost before.  Then the first request is a write, which
                changes nothing: a leader that was deposed would answer a sync by itself, and the reads after it would
                show that the lost write was not carried out.
        """
        self._address = address
        self._set_upkeep()
        if has_lost_write and not link.connection.is_read_only:
            link.connection.send(Call(empty_write()), self._loop.time())
        certainty = link.connection.certainty
        if certainty is not None:
            if any(self._needs) and not has_lost_write:
                link.connection.prove(self._loop.time())
            self._timer = self._loop.call_later(certainty.least * _ROLE_AFTER, self._check, link, certainty)

    def detach(self) -> None:
        """Let the lost connection go."""
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._mending, self._asking):
            if task is not None:
                task.cancel()
        self._asking = None

    def _check(self, link: Link, certainty: Certainty) -> None:
        """Lower the upkeep if less is needed; mend a broken chain; find out the server's role if a lock is at rest."""
        self._timer = self._loop.call_later(certainty.least * _MEND_EVERY, self._check, link, certainty)
        self._set_upkeep()
        if certainty.is_broken and any(self._needs):
            # Not all clients at the same time, if all were cut off.
            self._mend(self.rng.random() * certainty.least * _MEND_EVERY)
        elif self._needs[0] and self._asking is None and self._may_ask:
            at_rest = self._needed_since + certainty.least * _ROLE_AFTER
            if self._loop.time() >= at_rest:
                self._asking = self.run(self._ask_role(link, certainty))

    async def _ask_role(self, link: Link, certainty: Certainty) -> None:
        """Have the writes of other clients count if the server is a learner: see Certainty.follows."""
        try:
            if await self._is_at_learner(link):
                # Answered on this connection, which the server would have closed if it had changed its role before.
                await self.requests.submit(SyncRequest("/"))
                if link is self.requests.link:
                    certainty.follows()
        except asyncio.CancelledError:
            # If the configuration is above `reply_limit`, each connection would break at it.
            self._may_ask = link.connection.error is None
            raise
        except ZooKeeperError:
            pass  # not known: only the client's own writes count

    async def _is_at_learner(self, link: Link) -> bool:
        """Return whether the present server is a follower or an observer, as far as can be known.

        It is asked on another connection, which a balancer may lead to another server.  So the address must be one that
        the ensemble lists as a server's own.
        """
        if link.peer is None:
            return False
        peer = Address(*link.peer)
        config = await self.requests.submit(GetDataRequest(CONFIG, False))
        return is_listed(config.data or b"", peer.port, (peer.host, self._address.host)) and await probe.is_learner(
            self.open_link, peer, timing.dead_after(link.connection.timeout)
        )

    def _mend(self, after: float = 0.0) -> asyncio.Task[None]:
        if self._mending is None or self._mending.done():
            self._mending = self.run(self._mend_chain(after))
        return self._mending

    async def _mend_chain(self, after: float) -> None:
        """Have the leader end a witness, then commit a write of this session: see Certainty.witnessed."""
        await asyncio.sleep(after)
        while (link := self.requests.link) and (certainty := link.connection.certainty) and certainty.is_broken:
            within = timing.dead_after(link.connection.timeout)
            begun = self._loop.time()
            try:
                await self.make_witness(self.open_link, self._address, within).run()
                certainty.witnessed(begun, self._loop.time())
                await self.requests.submit(empty_write())
            except (ZooKeeperError, OSError) as error:
                _log.debug("the session cannot be made certain yet: %s", error)
                await asyncio.sleep(certainty.least * _PAUSE)

    async def certify(self) -> None:
        """Return once the session is certain to live for a tenth of its timeout, or at once if it is.

        Raises: SessionError; NotReadOnlyError on a server that has lost its quorum; ValueError when nothing can be
        certain.
        Cancellation: harmless.
        Requests: none if it is certain; one or two if the session was kept; after the session was cut off for long,
        it takes until the leader has ended another session.
        """
        if self.lifetime.is_certain(self.lifetime.session_id):
            return
        self.need(later=False)  # the chain must not run out while it is mended
        try:
            await self._certify()
        finally:
            self.release(later=False)

    async def _certify(self) -> None:
        for tries in itertools.count(1):
            certainty, link, now = self.lifetime.certainty, self.requests.link, self._loop.time()
            if certainty is None:
                raise ValueError(
                    "no lock can be certain in a session that was resumed by its id, unless the least timeout is known"
                    " that it was ever granted: give zkwire.connect the `least_timeout` of the client that had it"
                )
            if self.lifetime.is_certain(self.lifetime.session_id):
                return
            if link is not None and link.connection.is_read_only:  # it cannot know, however often it is asked
                raise SyncRequest("/").refusal(NotReadOnlyError.code, self.requests.server)
            if link is not None and certainty.is_broken and certainty.based < now:
                await asyncio.wait({self._mend()})
                continue
            # Without a connection: a sync, which waits for the next one.
            request = SyncRequest("/") if link is None else link.connection.proof(now)
            try:
                await self.requests.submit(request)
            except ConnectionLostError:
                continue  # the next connection proves itself
            except ServerError as refusal:
                if not is_transient(refusal):
                    raise
            if tries >= _QUICK and link is not None:
                # There was no request half a tick before these; now there is one.
                await asyncio.sleep(certainty.least * _PAUSE)
