"""The rule of certainty against a model of an ensemble: leaders that end sessions, followers that report them.

The model is what real servers do, and the worst of it:

- A follower answers pings by itself, notes which sessions it heard from, and sends its notes in the answer to each of
  the leader's pings.
- A leader takes a session that is due, and ends it some time later.  Until then it accepts its touches and its writes,
  and they change nothing.  It answers a sync even of a session that it has ended.
- The others may elect a new leader at any moment.  It gives the session a whole timeout.  The former one goes on for
  ever: it answers all but writes.
- The client moves to another server, which follows either leader.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import some_in_quick
from zkwire.wire.certainty import AckLevel, Certainty, Upkeep

TICK = 2000  # milliseconds, as all times of the model
SHORTEST = 2 * TICK  # the least timeout that servers grant
NEVER = math.inf


@dataclass
class Stream:
    """One direction of a TCP connection: in order, with a delay, and stalled at times (bytes wait, none is lost)."""

    delay: int
    stalls: list[tuple[int, int]]
    last: int = 0

    def arrival(self, now: int) -> int:
        at = now + self.delay
        for start, end in self.stalls:
            if start <= at < end:
                at = end
        self.last = max(self.last, at)
        return self.last


@dataclass
class Leader:
    """A leader from `start` on, which commits until `deposed`; it takes `slow` to end a session that is due."""

    epoch: int
    timeout: int
    start: int
    deposed: float
    slow: int
    others: list[int]  # when other clients write
    before: "Leader | None" = None
    ended: float = NEVER

    def __post_init__(self) -> None:
        self._deadline: float = self.start + self.timeout
        self._taken: float = NEVER

    def catch_up(self, now: float) -> None:
        if self.before is not None and self._taken == NEVER:
            self.before.catch_up(self.start)
            if self.before.ended < self.before.deposed:
                self._taken = self.ended = self.before.ended
        if self._taken == NEVER and self._deadline <= now:
            self._taken = self._deadline
            self.ended = self._taken + self.slow

    def touch(self, now: int) -> bool:
        """Touch the session; return False if it was ended."""
        self.catch_up(now)
        self._deadline = now + self.timeout  # real servers round it up to a whole tick: never less than this
        return now < self.ended

    def ends_witness(self, due: int) -> float:
        """Return when a session that is due is ended: the session that was taken before has its turn first."""
        self.catch_up(due)
        return max(due, self.ended if self._taken <= due else 0)

    def zxid(self, now: int) -> int:
        """Return the zxid of the newest transaction; there is one of another client at each of `others`."""
        return (self.epoch << 32) + sum(self.start <= at <= min(now, self.deposed) for at in self.others) + 1

    def answers_sync(self, now: int) -> bool:
        """Return whether all is committed that was proposed by now: a sync is answered after that."""
        return not any(self.deposed < at <= now for at in self.others)


class Ensemble:
    """One client of a session, the leaders, and the servers that it is connected to, one after the other."""

    def __init__(self, rng: random.Random, timeout: int) -> None:
        self.rng = rng
        self.timeout = timeout
        others = sorted(rng.randrange(6 * timeout) for _ in range(rng.choice([0, 0, 3, 40])))
        deposed = rng.choice([NEVER, rng.randrange(4 * timeout)])
        slow = rng.choice([0, 0, rng.randrange(1, 3 * timeout)])
        self.leaders = [Leader(1, timeout, 0, deposed, slow, others)]
        if deposed < NEVER:
            self.leaders.append(Leader(2, timeout, int(deposed), NEVER, slow, others, self.leaders[0]))
        self.certainty = Certainty()
        self.untils: list[tuple[int, float]] = []
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._connection = 0

    @property
    def ended(self) -> float:
        """When the leader that the others followed ended the session."""
        for leader in self.leaders:
            leader.catch_up(NEVER)
        return min(each.ended for each in self.leaders if each.ended < each.deposed)

    def play(self, horizon: int) -> None:
        self._connect(0)
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            self.at(self.rng.randrange(1, 4 * self.timeout), self._connect)
        for _ in range(self.rng.choice([0, 1])):
            self.at(self.rng.randrange(1, 4 * self.timeout), self._begin_witness)
        while self._events:
            now, _, event = heapq.heappop(self._events)
            if now < horizon:
                event(now)

    def at(self, at: int, event: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, event))

    def _connect(self, now: int) -> None:
        self._connection += 1
        Server(self, self.rng.choice([each for each in self.leaders if each.start <= now]), self._connection, now)

    def is_current(self, connection: int) -> bool:
        return connection == self._connection

    def _begin_witness(self, now: int) -> None:
        leader = self.leaders[-1] if now >= self.leaders[-1].start else self.leaders[0]
        self.at(now + SHORTEST, lambda due: self._end_witness(leader, now, due))

    def _end_witness(self, leader: Leader, begun: int, due: int) -> None:
        ended = int(leader.ends_witness(due)) + 1
        if ended < leader.deposed:
            self.at(ended, lambda now: self.certainty.witnessed(begun, now))


class Server:
    """One connection of the client: a follower of `leader`."""

    def __init__(self, ensemble: Ensemble, leader: Leader, number: int, now: int) -> None:
        self.ensemble, self.leader, self.number = ensemble, leader, number
        rng, timeout = ensemble.rng, ensemble.timeout
        self.up, self.down, self.there, self.back = (self._stream(rng, timeout, now) for _ in range(4))
        self.is_touched = False
        ensemble.at(self.there.arrival(now), lambda at: self._greet(at, now))
        for at in range(now + rng.randrange(TICK // 2), now + 6 * timeout, TICK // 2):
            ensemble.at(at, self._ping)
        for at, level in self._requests(rng, timeout):
            ensemble.at(now + at, lambda sent, level=level: self._send(sent, level))  # type: ignore[misc]
        if rng.random() < 0.5:
            ensemble.at(now + rng.randrange(timeout), lambda at: self._follows())

    @staticmethod
    def _stream(rng: random.Random, timeout: int, now: int) -> Stream:
        start = now + rng.randrange(0, 3 * timeout)
        stalls = [(start, start + rng.randrange(1, 3 * timeout))] if rng.random() < 0.5 else []
        return Stream(rng.choice([1, 1, 1, rng.randrange(1, 900)]), stalls, now)

    @staticmethod
    def _requests(rng: random.Random, timeout: int) -> Iterator[tuple[int, AckLevel]]:
        """Pings all the time, and requests through the leader at random or soon one after the other."""
        every = rng.randrange(timeout // 16, timeout // 2)
        yield from ((at, AckLevel.SERVER) for at in range(every, 5 * timeout, every))
        for _ in range(rng.randrange(1, 40)):
            at = rng.randrange(1, 5 * timeout)
            yield at, rng.choice([AckLevel.LEADER, AckLevel.QUORUM])
            yield at + rng.choice([5, timeout // 64, timeout // 5, timeout * 3 // 10 + 5]), AckLevel.LEADER

    def _greet(self, now: int, sent: int) -> None:
        """Have the leader say whether it knows the session: that is a touch."""
        if self.number == 1:
            self.ensemble.at(self.back.arrival(now), lambda at: self._greeted(at, sent))
            return
        # A learner may complete the handshake by the leader's answer to one that the client has given up.
        is_mixed_up = self.ensemble.rng.random() < 0.2
        if is_mixed_up:
            self.ensemble.at(self.back.arrival(now), lambda at: self._greeted(at, sent))
        self.ensemble.at(self.up.arrival(now), lambda at: self._revalidate(at, sent, is_mixed_up))

    def _revalidate(self, now: int, sent: int, is_mixed_up: bool) -> None:
        if self.leader.touch(now) and not is_mixed_up:
            self.ensemble.at(
                self.down.arrival(now),
                lambda at: self.ensemble.at(self.back.arrival(at), lambda end: self._greeted(end, sent)),
            )

    def _greeted(self, now: int, sent: int) -> None:
        if self.ensemble.is_current(self.number):
            if self.number == 1:
                self.ensemble.certainty.begun(sent, now, self.ensemble.timeout)
            else:
                self.ensemble.certainty.resumed(sent, self.ensemble.timeout)
            self.is_greeted = True
            self._note(now)

    def _follows(self) -> None:
        if self._is_in_use:
            self.ensemble.certainty.follows()

    @property
    def _is_in_use(self) -> bool:
        return self.ensemble.is_current(self.number) and hasattr(self, "is_greeted")

    def _ping(self, now: int) -> None:
        self.ensemble.at(self.down.arrival(now), self._report)

    def _report(self, now: int) -> None:
        if self.is_touched:
            self.is_touched = False
            self.ensemble.at(self.up.arrival(now), self._touch)

    def _touch(self, now: int) -> None:
        self.leader.touch(now)

    def _send(self, now: int, level: AckLevel) -> None:
        if self._is_in_use:
            self.ensemble.at(self.there.arrival(now), lambda at: self._arrived(at, now, level))

    def _arrived(self, now: int, sent: int, level: AckLevel) -> None:
        self.is_touched = True
        if level is AckLevel.SERVER:
            self.ensemble.at(self.back.arrival(now), lambda at: self._answered(at, sent, level, 0))
        else:
            self.ensemble.at(self.up.arrival(now), lambda at: self._led(at, sent, level))

    def _led(self, now: int, sent: int, level: AckLevel) -> None:
        leader = self.leader
        leader.catch_up(now)
        if (now >= leader.deposed or now >= leader.ended) if level is AckLevel.QUORUM else not leader.answers_sync(now):
            return
        zxid = leader.zxid(now)
        self.ensemble.at(
            self.down.arrival(now),
            lambda at: self.ensemble.at(self.back.arrival(at), lambda end: self._answered(end, sent, level, zxid)),
        )

    def _answered(self, now: int, sent: int, level: AckLevel, zxid: int) -> None:
        if self._is_in_use:
            self.ensemble.certainty.answered(sent, now, level, zxid)
            self._note(now)

    def _note(self, now: int) -> None:
        self.ensemble.untils.append((now, self.ensemble.certainty.until))


@pytest.mark.parametrize("seed", some_in_quick(range(4), 1))
def test_no_session_ends_while_it_is_certain(seed: int) -> None:
    """Pitfalls 70, 85, 86: whatever waits on the way, whichever server leads, however slowly a leader ends sessions."""
    rng = random.Random(seed)
    ended = certain = linked = 0
    for _ in range(600):
        timeout = SHORTEST if rng.random() < 0.7 else rng.randrange(SHORTEST, 5 * TICK)
        ensemble = Ensemble(rng, timeout)
        ensemble.play(horizon=7 * timeout)
        ended += ensemble.ended < 5 * timeout
        certain += max((until for _, until in ensemble.untils), default=0) > timeout
        linked += ensemble.certainty.is_linked
        assert all(until <= ensemble.ended for _, until in ensemble.untils)
    assert min(ended, certain, linked) > 60  # else nothing was shown


# -- a client at rest ---------------------------------------------------------------------------------------------


class Rest(NamedTuple):
    """What a client at rest has sent in each timeout, and what was certain at the least, as a part of the timeout."""

    requests: float
    writes: float
    least: float


def rest(upkeep: Upkeep, *, writes_of_others: bool = False, phase: float = 0.5, delay: float = 0.002) -> Rest:
    timeout, periods = 10.0, 60
    certainty, now, zxid = Certainty(), 0.0, 1 << 32
    certainty.begun(0.0, delay, timeout, phase)
    if writes_of_others:
        certainty.follows()
    requests, least = [], timeout
    while now < periods * timeout:
        now = max(now, certainty.due(upkeep))
        level = AckLevel.QUORUM if certainty.wants_write(now, upkeep) else AckLevel.LEADER
        certainty.asked(now)
        zxid += writes_of_others or level is AckLevel.QUORUM
        if now > timeout:
            requests.append(level)
            least = min(least, certainty.until - now - delay)
        certainty.answered(now, now + delay, level, zxid)
        now += delay
    return Rest(len(requests) / (periods - 1), requests.count(AckLevel.QUORUM) / (periods - 1), least / timeout)


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.99])
def test_a_holder_at_rest_sends_seven_requests_and_is_certain_for_two_fifths_of_the_timeout(phase: float) -> None:
    alone, among_others = rest(Upkeep.CERTAIN, phase=phase), rest(Upkeep.CERTAIN, writes_of_others=True, phase=phase)
    assert 6.5 < alone.requests < 7
    assert alone.writes < 1.8
    assert alone.least > 0.398
    assert 6.5 < among_others.requests < 7
    assert among_others.writes == 0
    assert among_others.least > 0.398


@pytest.mark.parametrize(("delay", "most", "least"), [(0.002, 3.4, 0.09), (0.3, 4.8, 0.09), (0.6, 5.8, 0.12)])
def test_an_idle_client_sends_as_much_as_pings_and_no_write(delay: float, most: float, least: float) -> None:
    idle = rest(Upkeep.READY, writes_of_others=True, delay=delay)
    assert idle.requests < most
    assert idle.writes == 0
    assert idle.least > least


def test_clients_that_begin_together_spread_their_requests() -> None:
    dues = set()
    for phase in (0.0, 0.25, 0.5, 0.75):
        certainty = Certainty()
        certainty.begun(0.0, 0.01, 10.0, phase)
        for _ in range(4):
            now = certainty.due(Upkeep.CERTAIN)
            level = AckLevel.QUORUM if certainty.wants_write(now, Upkeep.CERTAIN) else AckLevel.LEADER
            certainty.answered(now, now + 0.001, level, 1)
        dues.add(round(certainty.due(Upkeep.CERTAIN), 1))
    assert len(dues) == 4


def test_clients_that_acquire_together_do_not_all_write_in_the_same_part_of_each_period() -> None:
    """Clients on learners write when no client has written for long."""
    rng, writes = random.Random(1), []
    for _ in range(60):
        certainty, now, upkeep = Certainty(), 0.0, Upkeep.READY
        certainty.begun(0.0, 0.001, 10.0, rng.random())
        while now < 80.0:
            now = max(now + 0.002, certainty.due(upkeep))
            if upkeep is Upkeep.READY and now > 30.0:
                now, upkeep = 30.0, Upkeep.CERTAIN
                certainty.needed(now)
                certainty.answered(now, now + 0.001, AckLevel.QUORUM, 1)
                continue
            level = AckLevel.QUORUM if certainty.wants_write(now, upkeep) else AckLevel.LEADER
            certainty.asked(now)
            certainty.answered(now, now + 0.001, level, 1)
            if level is AckLevel.QUORUM and now > 60.0:
                writes.append(now)
    assert max(later - earlier for earlier, later in itertools.pairwise(sorted(writes))) < 2.0


# -- single rules -------------------------------------------------------------------------------------------------

T = 64.0  # touches that are a 64th of the timeout apart are distinguished: here at a distance of 1


def a_session(sent: float = 100.0, answered: float | None = None) -> Certainty:
    certainty = Certainty()
    certainty.begun(sent, sent if answered is None else answered, T)
    return certainty


def test_a_new_session_is_certain_from_its_handshake_if_it_was_answered_within_the_timeout() -> None:
    assert a_session().until == 164.0
    assert a_session(100.0, 163.9).until == 164.0
    late = a_session(100.0, 164.0)
    assert late.until == -math.inf
    assert late.is_broken


def test_three_answers_prove_a_touch_and_less_do_not() -> None:
    for gap, late, until in [(19.2, 0.1, 174.0), (19.19, 0.1, 164.0), (19.2, 0.0, 164.0)]:
        certainty = a_session()
        certainty.answered(110.0, 112.0, AckLevel.SERVER)
        certainty.answered(
            112.0 + gap + 1e-9, 133.0, AckLevel.QUORUM
        )  # x: 0.3 of the timeout after the touch was answered
        assert certainty.until == 164.0
        certainty.answered(133.0 + late, 134.0, AckLevel.LEADER)  # y: after x was answered
        assert certainty.until == until


def test_nothing_is_certain_for_longer_than_a_timeout_from_the_last_committed_write() -> None:
    """A leader that has lost its followers, and does not know it, answers syncs for as long as it likes."""
    certainty = a_session()
    for at in range(110, 300):
        certainty.answered(at, at + 0.1, AckLevel.LEADER)
    assert certainty.until == 164.0
    certainty.answered(301.0, 301.1, AckLevel.QUORUM)
    assert 300.0 - 22 + T < certainty.until <= 301.0 - 19.2 + T


def test_a_touch_that_is_proven_after_the_one_before_it_has_run_out_counts_for_nothing_pitfall_86() -> None:
    for late, is_linked in [(163.9, True), (164.0, False)]:
        certainty = a_session()
        certainty.answered(110.0, 112.0, AckLevel.SERVER)
        certainty.answered(140.0, 141.0, AckLevel.QUORUM)
        certainty.answered(142.0, late, AckLevel.QUORUM)
        assert certainty.is_linked is is_linked
        assert certainty.is_broken is not is_linked


def test_a_witness_that_began_after_a_touch_had_reached_the_leader_mends_the_chain_with_the_next_write() -> None:
    certainty = a_session(100.0, 164.0)
    certainty.witnessed(164.0, 180.0)  # may have begun before the handshake was answered
    assert certainty.is_broken
    certainty.answered(165.0, 166.0, AckLevel.SERVER)
    certainty.answered(185.3, 186.0, AckLevel.QUORUM)
    certainty.answered(186.1, 187.0, AckLevel.QUORUM)
    assert certainty.based == 187.0
    certainty.witnessed(187.1, 200.0)
    assert not certainty.is_broken
    assert certainty.wants_write(200.1, Upkeep.READY)
    certainty.answered(200.0, 200.5, AckLevel.QUORUM)  # sent before the witness had ended, as far as the clock shows
    assert certainty.until == -math.inf
    certainty.answered(200.1, 201.0, AckLevel.QUORUM)
    assert certainty.until == 165.0 + T


def test_a_resumed_session_is_certain_from_its_first_committed_write() -> None:
    certainty = a_session()
    certainty.resumed(120.0, T)
    assert certainty.until == 164.0
    assert not certainty.is_broken
    assert certainty.wants_write(121.0, Upkeep.READY)
    for at in range(122, 150):
        certainty.answered(at, at + 0.1, AckLevel.LEADER, 1 << 40)
    assert certainty.until == 164.0  # by a leader that was stopped, perhaps, and that has no followers any more
    certainty.answered(150.0, 150.1, AckLevel.QUORUM, 2 << 40)
    assert certainty.until > 120.0 + T


@pytest.mark.parametrize(
    ("answered", "epoch", "is_linked"), [(163.9, 9, True), (175.0, 7, True), (175.0, 8, False), (185.0, 7, False)]
)
def test_a_session_that_is_resumed_too_late_is_in_the_chain_only_under_the_same_leader(
    answered: float, epoch: int, is_linked: bool
) -> None:
    """The last write ran out at 164, the last touch at 184."""
    certainty = a_session()
    certainty.answered(120.0, 120.1, AckLevel.SERVER)
    certainty.answered(140.0, 140.1, AckLevel.LEADER, (7 << 32) + 5)
    certainty.answered(141.0, 141.1, AckLevel.LEADER, (7 << 32) + 5)
    certainty.resumed(answered - 1, T)
    certainty.answered(answered - 0.5, answered, AckLevel.LEADER, (7 << 32) + 6)
    certainty.answered(answered + 1, answered + 2, AckLevel.QUORUM, (epoch << 32) + 6)
    assert certainty.is_linked is is_linked


def test_the_least_timeout_that_was_ever_granted_counts_pitfall_85() -> None:
    certainty = a_session()
    certainty.resumed(110.0, T / 2)
    assert certainty.until == 142.0
    certainty.answered(112.0, 113.0, AckLevel.QUORUM, 1)
    certainty.resumed(120.0, 2 * T)
    certainty.answered(122.0, 123.0, AckLevel.QUORUM, 1)
    assert certainty.least == T / 2
    assert certainty.until == 152.0


def test_a_session_of_an_unknown_past_begins_with_a_broken_chain() -> None:
    certainty = Certainty(T / 4)
    certainty.resumed(100.0, T)
    certainty.answered(101.0, 102.0, AckLevel.QUORUM, 1)
    assert certainty.is_broken
    assert certainty.least == T / 4
    assert certainty.until == -math.inf


def test_the_write_of_another_client_counts_for_the_sync_before_it_at_a_learner_only() -> None:
    for is_learner, until in [(True, 141.0 + T), (False, 164.0)]:
        certainty = a_session()
        if is_learner:
            certainty.follows()
        for at in (120.0, 140.0, 141.0):
            certainty.answered(at, at + 0.1, AckLevel.LEADER, 5)
        assert certainty.until == 164.0  # a greater zxid than the one of the syncs was not seen
        certainty.answered(160.1, 160.2, AckLevel.LEADER, 6)
        certainty.answered(160.3, 160.4, AckLevel.LEADER, -1)
        assert certainty.until == min(until, 140.0 + T)
    certainty.follows()  # known later, for the whole connection
    assert certainty.until == 140.0 + T


def test_a_suspension_breaks_the_chain_if_anything_was_proven_since() -> None:
    for is_new, until in [(True, 154.0), (False, 154.0)]:
        certainty = a_session()
        seen = certainty.proven
        if is_new:
            certainty.answered(120.0, 121.0, AckLevel.SERVER)
            certainty.answered(141.0, 142.0, AckLevel.QUORUM)
            certainty.answered(143.0, 144.0, AckLevel.QUORUM)
            assert certainty.until == 120.0 + T
        certainty.missed(10.0, 144.0, seen)
        assert certainty.until == until
        assert certainty.is_broken is is_new
        certainty.answered(143.9, 145.0, AckLevel.QUORUM)  # sent before: it is not known when
        assert certainty.until == until


def test_a_refused_proof_is_repeated_after_a_pause() -> None:
    certainty = a_session()
    due = certainty.due(Upkeep.CERTAIN)
    certainty.asked(due)
    assert certainty.due(Upkeep.CERTAIN) == math.inf
    certainty.refused(due, due + 1)
    assert certainty.due(Upkeep.CERTAIN) == due + 1 + T / 40
    certainty.refused(due + 2, due + 9)  # a request of the caller
    assert certainty.due(Upkeep.CERTAIN) == due + 1 + T / 40


def test_a_client_whose_last_write_is_old_writes_soon_when_a_lock_needs_it() -> None:
    certainty = a_session()
    for at in (115.0, 135.0, 135.5):
        certainty.answered(at, at + 0.1, AckLevel.LEADER)
    assert certainty.due(Upkeep.READY) > 150.0
    assert certainty.due(Upkeep.CERTAIN) == 100.0 + T * 0.65
    assert certainty.wants_write(100.0 + T * 0.65 + 0.1, Upkeep.CERTAIN)
    assert not certainty.wants_write(100.0 + T * 0.65 + 0.1, Upkeep.READY)
    certainty.needed(150.0)  # clients that come to it together do not all write together
    assert certainty.due(Upkeep.CERTAIN) == 150.0


@pytest.mark.parametrize("every", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("latency", [0.005, 1.0])
def test_a_client_that_only_reads_does_not_keep_every_touch(every: float, latency: float) -> None:
    """Nothing goes through the leader for days: only the touches of about half a tick may be kept."""
    certainty = Certainty()
    certainty.begun(0.0, 0.0, 10.0)
    kept = []
    for count in range(1, 20_000):
        certainty.answered(count * every, count * every + latency, AckLevel.SERVER)
        kept.append(len(certainty._touches))
    assert max(kept) <= (10.0 * 0.3 + latency) / certainty.resolution + 2


# -- the rule once more, in the words of the module's docstring ----------------------------------------------------


class Answer(NamedTuple):
    sent: int
    came: int
    level: AckLevel


def proven(history: list[Answer], timeout: float, greeted: float) -> tuple[bool, float]:
    """Return whether the chain is unbroken, and until when the session is certain."""
    led = [each for each in history if each.level is not AckLevel.SERVER]
    # When each touch is known to have reached the leader: at the answer to the first y.
    reached: dict[int, int] = {}
    for touch, x, y in product(history, led, led):
        if touch.came <= x.sent - timeout * 0.3 and x.came < y.sent:
            reached[touch.sent] = min(reached.get(touch.sent, y.came), y.came)
    last, written = greeted, greeted
    until = min(last, written) + timeout
    moments = sorted({each.came for each in history})
    for now in moments:
        written = max([written, *(each.sent for each in history if each.came <= now and each.level is AckLevel.QUORUM)])
        known = [sent for sent, at in reached.items() if at <= now]
        if known and max(known) > last:
            if now >= last + timeout:
                return False, until
            last = max(known)
        until = max(until, min(last, written) + timeout)
    return True, until


steps = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 12), st.sampled_from(AckLevel)), max_size=12)


@given(steps)
def test_exactly_what_the_rule_proves_is_certain(asked: list[tuple[int, int, AckLevel]]) -> None:
    certainty = a_session()
    history: list[Answer] = []
    sent = came = 100
    for gap, delay, level in asked:
        sent += gap
        came = max(came + 1, sent + delay)
        certainty.answered(sent, came, level)
        history.append(Answer(sent, came, level))
        is_linked, until = proven(history, T, 100)
        assert (certainty.is_linked, certainty.until) == (is_linked, until)
        if not is_linked:
            return
