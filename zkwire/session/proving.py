"""Keeps the session proven certain: which connection sends proofs, how often, and what mends a broken chain.

The rule itself is in zkwire/wire/certainty.py; until when the session is certain is in lifetime.py.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from zkwire.errors import ConnectionLostError, ProtocolError, ServerError, SessionError, ZooKeeperError
from zkwire.session import probe
from zkwire.session.attempt import Attempt
from zkwire.session.credentials import Credential
from zkwire.session.hosts import CONFIG, Address, is_listed
from zkwire.session.lifetime import Lifetime
from zkwire.session.sasl import SaslMechanism
from zkwire.session.transport import Link, OpenLink
from zkwire.session.witness import Witness
from zkwire.wire import timing
from zkwire.wire.certainty import Certainty, Upkeep
from zkwire.wire.connection import Call, Connection
from zkwire.wire.multi import MultiRequest
from zkwire.wire.requests import CheckVersionRequest, GetDataRequest, Request, SyncRequest

_log = logging.getLogger(__name__)

# So many requests in a row prove a session that was used before; see `certify`.
_QUICK: Final = 3
# Fractions of the least timeout.
_PAUSE: Final = 1 / 16
_ENOUGH: Final = 1 / 10  # what a lock begins with at least
_LOOK_EVERY: Final = 1 / 2  # between two looks whether the chain is broken
_ROLE_AFTER: Final = 1 / 4  # a lock that is held for so long is at rest


class Proving:
    """What makes a session certain, and keeps it so.

    Arguments: `lifetime`, the session's; `submit`, which sends a request; `rng`, a source of randomness; `open_link`,
    which opens connections; `sasl` and `credentials`, the client's; `is_ready`, whether the chain is kept while there
    is no lock.

    `tasks` are those that run; the session ends them.
    """

    def __init__(
        self,
        lifetime: Lifetime,
        submit: Callable[[Request[Any]], asyncio.Future[Any]],
        rng: random.Random,
        open_link: OpenLink,
        sasl: SaslMechanism | None,
        credentials: Iterable[Credential],
        *,
        is_ready: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._lifetime = lifetime
        self._submit = submit
        self._at_least = Upkeep.READY if is_ready else Upkeep.NONE
        self._rng = rng
        self._open_link = open_link
        self._sasl = sasl
        self._credentials = credentials
        self._needs = [0, 0]  # of locks that depend on certainty now, and later
        self._needed_since = 0.0
        self._link: Link | None = None
        self._address: Address | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._mending: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def need(self, *, later: bool) -> None:
        """Record that one lock more depends on certainty, or, with `later`, that one waits which may come to."""
        if not self._needs[0]:
            self._needed_since = self._loop.time()
        self._needs[later] += 1
        connection = None if self._link is None else self._link.connection
        if connection is not None and connection.upkeep is not Upkeep.CERTAIN:
            self._set_upkeep()

    def release(self, *, later: bool) -> None:
        """Undo one `need`.  `_look` lowers the upkeep later: another lock often follows at once."""
        self._needs[later] -= 1

    def _set_upkeep(self) -> None:
        link = self._link
        if link is not None:
            now, later = self._needs
            upkeep = Upkeep.CERTAIN if now else Upkeep.READY if later else self._at_least
            if link.connection.upkeep is not upkeep:
                link.connection.upkeep = upkeep
                if now and link.connection.certainty is not None:
                    link.connection.certainty.needed(self._loop.time())
                link.tick_earlier()

    def greeted(self, attempt: Attempt, connection: Connection) -> None:
        """Record the answer to the handshake of `attempt`."""
        if not connection.is_read_only:  # a server without a quorum proves nothing
            self._lifetime.granted(
                attempt.sent_at,
                connection.heard,
                connection.timeout,
                self._rng.random(),
                is_new=attempt.begins_session,
            )
            connection.certainty = self._lifetime.certainty

    def attach(self, link: Link, address: Address | None, *, has_lost_write: bool) -> None:
        """Use a new connection, to the server at `address`.

        On one that resumes the session, the first thing to prove is that its server belongs to a quorum: see
        certainty.py.  Where no lock is held or waited for, the next write of the client shows it.
        Arguments: `has_lost_write`, whether the answer to a write was lost before.  Then the first request is a write,
        which changes nothing: a leader that was deposed would answer a sync by itself, and the reads behind it would
        show that the lost write was not carried out.
        """
        self._link, self._address = link, address
        self._set_upkeep()
        if has_lost_write and not link.connection.is_read_only:
            link.connection.send(Call(MultiRequest([CheckVersionRequest("/", -1)])), self._loop.time())
        certainty = link.connection.certainty
        if certainty is not None:
            if not certainty.is_linked and any(self._needs) and not has_lost_write:
                link.connection.prove(self._loop.time())
            self._timer = self._loop.call_later(certainty.least * _ROLE_AFTER, self._look)

    def detach(self) -> None:
        """Let the lost connection go."""
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._mending, self._asking):
            if task is not None:
                task.cancel()
        self._mending = self._asking = self._timer = None

    def _look(self) -> None:
        """Lower the upkeep if less is needed; mend a broken chain; find out the server's role if a lock is at rest."""
        link = self._link
        if link is None or link.connection.certainty is None:
            return
        certainty = link.connection.certainty
        self._timer = self._loop.call_later(certainty.least * _LOOK_EVERY, self._look)
        self._set_upkeep()
        if certainty.is_broken and any(self._needs):
            # Not all clients at the same time, if all were cut off.
            self._mend(self._rng.random() * certainty.least * _LOOK_EVERY)
        elif self._needs[0] and self._asking is None and self._is_at_rest(certainty):
            self._asking = self._run(self._ask_role(link))

    def _is_at_rest(self, certainty: Certainty) -> bool:
        return self._loop.time() >= self._needed_since + certainty.least * _ROLE_AFTER

    def _run(self, body: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(body, name="zkwire certainty")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _ask_role(self, link: Link) -> None:
        """Have the writes of other clients count if the server is a learner: see Certainty.follows."""
        try:
            if await self._is_at_learner(link):
                # Answered on this connection, which the server would have closed if it had changed its role before.
                await self._submit(SyncRequest("/"))
                if link is self._link and link.connection.certainty is not None:
                    link.connection.certainty.follows()
        except (ServerError, ConnectionLostError, SessionError):
            pass  # not known: only the client's own writes count

    async def _is_at_learner(self, link: Link) -> bool:
        """Return whether the present server is a follower or an observer, as far as can be known.

        It is asked on another connection, which a balancer may lead to another server.  So the address must be one that
        the ensemble lists as a server's own.
        """
        if link.peer is None or self._address is None:
            return False
        peer = Address(*link.peer)
        config = await self._submit(GetDataRequest(CONFIG, False))
        return is_listed(config.data or b"", peer.port, (peer.host, self._address.host)) and await probe.is_learner(
            self._open_link, peer, timing.connect_within(link.connection.timeout, 1)
        )

    def _mend(self, after: float = 0.0) -> asyncio.Task[None]:
        if self._mending is None or self._mending.done():
            self._mending = self._run(self._mend_chain(after))
        return self._mending

    async def _mend_chain(self, after: float) -> None:
        """Have the leader end a witness, then commit a write of this session: see Certainty.witnessed."""
        await asyncio.sleep(after)
        while self._link is not None and (certainty := self._link.connection.certainty) and certainty.is_broken:
            assert self._address is not None
            within = timing.connect_within(self._link.connection.timeout, 1)
            begun = self._loop.time()
            try:
                await Witness(self._open_link, self._address, self._sasl, self._credentials, within).run()
                certainty.witnessed(begun, self._loop.time())
                await self._submit(MultiRequest([CheckVersionRequest("/", -1)]))
            except (ZooKeeperError, OSError, ProtocolError) as error:
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
        if self._lifetime.certainty is not None and self._lifetime.until > self._loop.time() + self.enough:
            return
        self.need(later=False)  # the chain must not run out while it is mended
        try:
            await self._certify()
        finally:
            self.release(later=False)

    async def _certify(self) -> None:
        for tries in itertools.count(1):
            certainty, link, now = self._lifetime.certainty, self._link, self._loop.time()
            if certainty is None:
                raise ValueError(
                    "no lock can be certain in a session that was resumed by its id, unless the least timeout is known"
                    " that it was ever granted: give zkwire.connect the `least_timeout` of the client that had it"
                )
            if self._lifetime.until > now + self.enough:
                return
            if link is not None and certainty.is_broken and certainty.based < now:
                await asyncio.wait({self._mend()})
                continue
            # Without a connection: a sync, which waits for the next one.
            request = SyncRequest("/") if link is None else link.connection.proof(now)
            try:
                await self._submit(request)
            except ConnectionLostError:
                continue  # the next connection proves itself
            except ServerError as refusal:
                if not refusal.is_transient:
                    raise
            if tries >= _QUICK and link is not None:
                # There was no request half a tick before these; now there is one.
                await asyncio.sleep(certainty.least * _PAUSE)

    @property
    def enough(self) -> float:
        """How many seconds must be certain before a lock may be acquired."""
        certainty = self._lifetime.certainty
        return 0.0 if certainty is None else min(certainty.least, 3600.0) * _ENOUGH
