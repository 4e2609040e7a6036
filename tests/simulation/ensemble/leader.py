"""The leader: orders transactions, has a quorum commit them, keeps the sessions, and pings its learners.

After LearnerHandler, Leader, SessionTrackerImpl, PrepRequestProcessor and ContainerManager of the real server.  Left
out: the discovery of the epoch and the comparison of histories, which the election does (see election.py), and
snapshots.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.ensemble.disk import Disk
from tests.simulation.ensemble.history import (
    CLOSE_SESSION,
    CREATE_SESSION,
    DELETE_CONTAINER,
    SYNC,
    WRITES,
    ClientConnection,
    Pending,
)
from tests.simulation.ensemble.history import Transaction as Entry
from tests.simulation.ensemble.peers import Message, PeerLink
from tests.simulation.ensemble.server import SimulatedServer
from tests.simulation.ensemble.tracker import SessionTracker

SYNC_LIMIT: Final = 5  # ticks
INIT_LIMIT: Final = 10
_SHORTEST: Final = 1e-6  # seconds: a timer that is set again must go off later


class _Learner:
    """The leader's side of a learner: its link, whether it votes, and until which tick it counts as in sync."""

    def __init__(self, link: PeerLink, *, is_voter: bool, deadline: int, now: float) -> None:
        self.link = link
        self.is_voter = is_voter
        self.deadline = deadline
        self.heard = now
        self.has_history = False
        self.unacknowledged: deque[tuple[int, float]] = deque()


class Leader:
    """The role of a leader.

    Arguments: `server`; `epoch`; `quorum`, how many voters it takes.

    Its own clients' syncs are answered at once, also while transactions are outstanding: they are not in `forwards`
    (ProposalRequestProcessor and CommitProcessor without matchSyncs, LeaderZooKeeperServer.setupRequestProcessors).
    """

    name = "leader"
    forwards = WRITES

    def __init__(self, server: SimulatedServer, epoch: int, quorum: int) -> None:
        self.server = server
        self.epoch = epoch
        self.is_serving = False
        self._quorum = quorum
        self._tick_time = server.settings.tick_time
        self._tick = 0
        self._is_half = False
        self._zxid = epoch << 32
        self._learners: dict[PeerLink, _Learner] = {}
        self._outstanding: deque[tuple[Entry, set[str]]] = deque()
        self._syncs: dict[int, list[tuple[PeerLink, Pending]]] = {}
        self._acknowledged: set[str] = {server.name}  # voters that have the history
        self._clock_base = server.world.rng.uniform(0.0, self._tick_time)
        self.tracker = SessionTracker(self._tick_time, self._clock())
        self._disk = Disk(server, server.habits.flush, self._flushed)
        self._unordered: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def begin(self) -> None:
        """Wait for a quorum of learners."""
        self.server.current_epoch = self.epoch
        self.server.after(INIT_LIMIT * self._tick_time, self._give_up_waiting)
        self._start_if_quorum()

    def resign(self) -> None:
        self.is_serving = False
        for learner in list(self._learners.values()):
            learner.link.close_by_leader()
        self._learners.clear()

    def catch_up(self) -> None:
        """Do nothing: in the simulation the leader never lags."""

    def _clock(self) -> float:
        """Return the time by which sessions expire: its whole ticks have nothing to do with those of the pings."""
        return self._clock_base + self.server.clock()

    def _is_current(self) -> bool:
        return self.server.role is self

    def _give_up_waiting(self) -> None:
        if self._is_current() and not self.is_serving:
            self.server.take_role(None)

    def _start_if_quorum(self) -> None:
        if self.is_serving or len(self._acknowledged) < self._quorum:
            return
        server = self.server
        while server.applied < len(server.log):
            server.apply_next()
        now = self._clock()
        self.tracker = SessionTracker(self._tick_time, now)
        for session in server.replica.sessions.by_id.values():
            # Each gets its full timeout again: that of the transaction that has created it (SessionTrackerImpl).
            self.tracker.track(session.id, session.timeout_ms, now)
        server.replica.last_zxid = self.epoch << 32  # Leader.startZkServer; its learners keep what they have
        self.is_serving = True
        for learner in self._learners.values():
            if learner.has_history:
                learner.link.to_learner(("up to date", server.last_zxid))
        server.after(self._tick_time / 2, self._half_tick)
        self._expire_later()
        if server.habits.containers:
            server.after(server.habits.containers, self._check_containers)

    # -- learners -------------------------------------------------------------------------------------------------

    def received(self, link: PeerLink, message: Message) -> None:
        """Take a message of a learner."""
        name, *args = message
        if name == "join":
            self._join(link, *args)
            return
        learner = self._learners.get(link)
        if learner is None:
            return
        learner.deadline = self._tick + SYNC_LIMIT
        learner.heard = self.server.world.now
        match name:  # the most frequent first
            case "ack":
                self._ack(link.name, learner, args[0])
            case "request":
                self.in_order(self._request, args[0], learner)
            case "ping":
                now = self._clock()
                for session_id, timeout_ms in args[0].items():
                    self.tracker.touch(session_id, timeout_ms, now)
            case "closed":
                del self._learners[link]
                self._acknowledged.discard(link.name)
            case "has history":
                learner.has_history = True
                if learner.is_voter:
                    self._acknowledged.add(link.name)
                if self.is_serving:
                    link.to_learner(("up to date", self._committed_zxid()))
                self._start_if_quorum()
            case "revalidate":
                client, session_id, timeout_ms = args
                is_valid = self.tracker.touch(session_id, timeout_ms, self._clock())
                self.tracker.set_owner(session_id, learner)
                link.to_learner(("revalidated", client, is_valid))

    def _join(self, link: PeerLink, is_voter: bool) -> None:
        now = self.server.world.now
        learner = _Learner(link, is_voter=is_voter, deadline=self._tick + INIT_LIMIT + SYNC_LIMIT, now=now)
        self._learners[link] = learner
        log = self.server.log
        history = log[: self.server.applied] if self.is_serving else list(log)
        link.to_learner(("history", history, self.epoch))
        if is_voter:
            for entry, _ in self._outstanding:
                self._propose_to(learner, entry)
        link.to_learner(("new leader",))

    def _half_tick(self) -> None:
        """Twice a tick: see whether there is a quorum, and ping all learners."""
        if not self._is_current():
            return
        now, limit = self.server.world.now, SYNC_LIMIT * self._tick_time
        for learner in list(self._learners.values()):
            oldest = learner.unacknowledged[0][1] if learner.unacknowledged else now
            if now - learner.heard > limit or now - oldest > limit:
                learner.link.close_by_leader()
                del self._learners[learner.link]
                self._acknowledged.discard(learner.link.name)
        if self._is_half:
            self._tick += 1
            synced = [each for each in self._learners.values() if each.is_voter and self._tick <= each.deadline]
            if 1 + len(synced) < self._quorum:
                self.server.take_role(None)
                return
        self._is_half = not self._is_half
        for learner in self._learners.values():
            learner.link.to_learner(("ping",))
        self.server.after(self._tick_time / 2, self._half_tick)

    # -- sessions -------------------------------------------------------------------------------------------------

    def touch(self, session_id: int, timeout_ms: int) -> bool:
        return self.tracker.touch(session_id, timeout_ms, self._clock())

    def revalidate(self, client: ClientConnection) -> None:
        is_valid = self.touch(client.session_id, client.timeout_ms)
        self.tracker.set_owner(client.session_id, self)
        self.server.admit(client, is_valid=is_valid)

    def _expire_later(self) -> None:
        self.server.after(max(self.tracker.next_expiry - self._clock(), _SHORTEST), self._expire, [])

    def _expire(self, bucket: list[int]) -> None:
        """End the first session of `bucket`, and so on (SessionTrackerImpl.run).

        The sessions that are due together are taken at once, and ended one by one: each is marked, and its end is
        given to the thread of RequestThrottler (ZooKeeperServer.expire and close).  All else goes on between two of
        them, and the sessions of other clients, which the simulation does not have, come between ours.
        """
        server, longest = self.server, self.server.habits.bucket
        while self._is_current():
            if bucket:
                session_id = bucket.pop()
                self.tracker.close(session_id)
                server.through_throttler(min(server.habits.handover, self._tick_time / 2), self._close, session_id)
            while not bucket:
                polled = self.tracker.poll(self._clock())
                if polled is None:
                    self._expire_later()
                    return
                bucket = polled
            if longest:
                server.world.rng.shuffle(bucket)  # they are in a hash table
                server.after(longest * server.world.rng.random(), self._expire, bucket)
                return

    def _close(self, session_id: int) -> None:
        self.in_order(self._end, session_id)

    def _end(self, session_id: int) -> None:
        if self._is_current():
            self._propose(self._entry(session_id, CLOSE_SESSION))

    def _check_containers(self) -> None:
        """Delete the containers that are empty and had a child (ContainerManager.checkContainers, getCandidates)."""
        if self._is_current():
            server = self.server
            for path in server.replica.tree.expired(0):
                self.act(DELETE_CONTAINER, path.encode())
            server.after(server.habits.containers, self._check_containers)

    def claim(self, transaction: Entry) -> Pending | None:
        return transaction.pending  # all requests pass the leader in the order of their transactions

    # -- transactions -----------------------------------------------------------------------------------------------

    def submit(self, pending: Pending) -> None:
        self._request(pending, None)

    def act(self, opcode: int, payload: bytes) -> None:
        """Carry out a request of an operator, who has no session in the simulation."""
        entry = self._entry(0, opcode)
        entry.payload = payload
        self._propose(entry)

    def end_session(self, session_id: int) -> None:
        """End a session at once, as an operator does who closes it from another connection."""
        self.tracker.close(session_id)
        self._propose(self._entry(session_id, CLOSE_SESSION))

    def in_order(self, call: Callable[..., None], *args: Any) -> None:
        """Have the thread that orders requests make a call, after all that wait for it (PrepRequestProcessor).

        Handshakes pass other threads (LearnerHandler), so that one that comes after a write can be answered before it.
        """
        longest = self.server.habits.ordering
        if not longest:
            call(*args)
            return
        self._unordered.append((call, args))
        if len(self._unordered) == 1:
            self.server.after(longest * self.server.world.rng.random(), self._order)

    def _order(self) -> None:
        while self._unordered and self._is_current():
            call, args = self._unordered.popleft()
            call(*args)
        self.server.flush()

    def _request(self, pending: Pending, learner: _Learner | None) -> None:
        """Order a request; `learner` is where it came from, None for a client of the leader's own."""
        if pending.opcode == SYNC:
            assert learner is not None
            self._sync(learner.link, pending)
            return
        client = pending.client
        session_id, owner = client.session_id, learner or self
        if learner is not None:
            self.server.enqueue(pending)
        entry = self._entry(session_id, pending.opcode)
        entry.payload, entry.pending = pending.payload, pending
        if pending.opcode == CREATE_SESSION:
            entry.timeout_ms = client.timeout_ms
            self.tracker.track(session_id, client.timeout_ms, self._clock())
            self.tracker.set_owner(session_id, owner)
        elif pending.opcode == CLOSE_SESSION:
            self.tracker.close(session_id)  # without a look at the owner, as the real leader
        else:
            entry.refusal = self.tracker.refusal(session_id, owner)
        self._propose(entry)

    def _sync(self, link: PeerLink, pending: Pending) -> None:
        """Answer a sync behind all that is proposed by now."""
        if self._outstanding:
            self._syncs.setdefault(self._outstanding[-1][0].zxid, []).append((link, pending))
        else:
            link.to_learner(("synced", pending))

    def _entry(self, session_id: int, opcode: int) -> Entry:
        self._zxid += 1
        return Entry(self._zxid, int(self.server.world.now * 1000), session_id, opcode)

    def _committed_zxid(self) -> int:
        server = self.server
        return server.log[server.applied - 1].zxid if server.applied else 0

    def _propose(self, entry: Entry) -> None:
        server = self.server
        server.log.append(entry)
        self._outstanding.append((entry, set()))
        for learner in self._learners.values():
            if learner.is_voter:
                self._propose_to(learner, entry)
        self._disk.write(entry.zxid)

    def _flushed(self, zxid: int) -> None:
        """Count the leader's own acknowledgement, which may come after those of a quorum (AckRequestProcessor)."""
        if self._is_current():
            self._count_ack(self.server.name, zxid)

    def _propose_to(self, learner: _Learner, entry: Entry) -> None:
        learner.unacknowledged.append((entry.zxid, self.server.world.now))
        learner.link.to_learner(("proposal", entry))

    def _ack(self, name: str, learner: _Learner, zxid: int) -> None:
        waiting = learner.unacknowledged
        while waiting and waiting[0][0] <= zxid:
            waiting.popleft()
        self._count_ack(name, zxid)

    def _count_ack(self, name: str, zxid: int) -> None:
        for entry, voters in self._outstanding:
            if entry.zxid == zxid:
                voters.add(name)
        self._commit_acknowledged()

    def _commit_acknowledged(self) -> None:
        """Commit what a quorum has, in order."""
        while self._outstanding and len(self._outstanding[0][1]) >= self._quorum:
            entry, _ = self._outstanding.popleft()
            for learner in self._learners.values():
                if learner.is_voter:
                    learner.link.to_learner(("commit", entry.zxid))
                else:
                    learner.link.to_learner(("inform", entry))
            if entry.opcode == CLOSE_SESSION:
                self.tracker.remove(entry.session_id)
            self.server.apply_next()
            for link, pending in self._syncs.pop(entry.zxid, ()):
                if link in self._learners:
                    link.to_learner(("synced", pending))
