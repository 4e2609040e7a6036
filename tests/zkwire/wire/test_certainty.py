"""The rule of certainty against a model of an ensemble: a leader that expires sessions, a follower that reports them.

The model is what real servers do: the follower answers pings by itself, notes which sessions it heard from, and sends
its notes in the answer to each of the leader's pings; the leader expires a session one timeout after the last notes.
The other servers may elect a new leader at any moment.  It gives the session a whole timeout, and the former one goes
on for ever: it answers all but writes.
"""

import heapq
import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import some_in_quick
from zkwire.wire import timing
from zkwire.wire.certainty import Certainty, Reach
from zkwire.wire.connection import Call, Connection
from zkwire.wire.records import ConnectRequest, ConnectResponse
from zkwire.wire.requests import DeleteRequest, PingRequest, Request, SyncReply, SyncRequest

TICK = 2000  # milliseconds, as all times of the model
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
class Ensemble:
    """A leader, a follower, and one client of the follower."""

    timeout: int
    phase: int  # when the leader pings first
    up: Stream  # from the follower to the leader
    down: Stream
    there: Stream  # from the client to the follower
    back: Stream
    deposed_at: float = NEVER  # when there is a new leader, which the follower never hears of
    certainty: Certainty = field(init=False)
    expired_at: float = NEVER
    untils: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._is_touched = False
        self._deadline = 0
        self._keep(0)
        # The handshake: the leader touches the session at the moment at which the client sends it, at the earliest.
        self.certainty = Certainty(self.timeout, 0, is_new=True)

    def play(self, requests: list[tuple[int, Reach]], horizon: int) -> None:
        for at in range(self.phase, horizon, TICK // 2):
            self._at(at, self._ping)
        for at, reach in requests:
            self._at(at, partial(self._send, reach))
        while self._events:
            now, _, event = heapq.heappop(self._events)
            self._expire(now)
            event(now)
        self._expire(NEVER)

    def _at(self, at: int, event: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, event))

    def _expire(self, now: float) -> None:
        """End the session if its time is up at the leader that the others follow by then."""
        deadline = self._deadline if self._deadline <= self.deposed_at else self.deposed_at + self.timeout
        if deadline <= now:
            self.expired_at = min(self.expired_at, deadline)

    @property
    def _has_ended(self) -> bool:
        """Whether the follower's leader has ended the session; what a new one does is not heard of here."""
        return self.expired_at < NEVER and self.expired_at <= self.deposed_at

    def _keep(self, now: int) -> None:
        self._deadline = now + self.timeout  # real servers round it up to a whole tick: never less than this

    def _ping(self, now: int) -> None:
        self._at(self.down.arrival(now), self._report)

    def _report(self, now: int) -> None:
        touched, self._is_touched = self._is_touched, False
        if touched:
            self._at(self.up.arrival(now), self._touch)

    def _touch(self, now: int) -> None:
        if not self._has_ended:
            self._keep(now)

    def _send(self, reach: Reach, now: int) -> None:
        self._at(self.there.arrival(now), lambda at: self._arrived(at, now, reach))

    def _arrived(self, now: int, sent: int, reach: Reach) -> None:
        self._is_touched = True
        if reach is Reach.SERVER:
            self._at(self.back.arrival(now), lambda at: self._answered(at, sent, reach))
        else:
            self._at(self.up.arrival(now), lambda at: self._led(at, sent, reach))

    def _led(self, now: int, sent: int, reach: Reach) -> None:
        if reach is Reach.QUORUM and now >= self.deposed_at:
            return  # it is never committed
        if not self._has_ended:  # else the session's end goes ahead of the answer
            self._at(
                self.down.arrival(now),
                lambda at: self._at(self.back.arrival(at), lambda end: self._answered(end, sent, reach)),
            )

    def _answered(self, now: int, sent: int, reach: Reach) -> None:
        self.certainty.answered(sent, now, reach)
        self.untils.append(self.certainty.until)


def random_stream(rng: random.Random, timeout: int) -> Stream:
    start = rng.randrange(0, 3 * timeout)
    stalls = [(start, start + rng.randrange(1, 3 * timeout))] if rng.random() < 0.6 else []
    return Stream(rng.choice([1, 1, 1, rng.randrange(1, 900)]), stalls)


def random_requests(rng: random.Random, timeout: int) -> list[tuple[int, Reach]]:
    """Pings all the time, and requests through the leader at random or soon behind one another."""
    every = rng.randrange(timeout // 16, timeout // 2)
    asked = [(at, Reach.SERVER) for at in range(every, 5 * timeout, every)]
    for _ in range(rng.randrange(1, 30)):
        at = rng.randrange(1, 5 * timeout)
        asked.append((at, rng.choice([Reach.LEADER, Reach.QUORUM])))
        asked.append((at + rng.choice([5, timeout // 64, timeout // 5, timeout // 4 + 5]), Reach.LEADER))
    return sorted(asked)


@pytest.mark.parametrize("seed", some_in_quick(range(4), 2))
def test_no_session_expires_while_it_is_certain(seed: int) -> None:
    """Pitfall 70: whatever waits on the way between client, follower and leader, and whenever there is a new one."""
    rng = random.Random(seed)
    expired = 0
    for _ in range(800):
        timeout = 2 * TICK if rng.random() < 0.7 else rng.randrange(2 * TICK, 5 * TICK)
        up, down, there, back = (random_stream(rng, timeout) for _ in range(4))
        deposed_at = rng.choice([NEVER, rng.randrange(4 * timeout)])
        ensemble = Ensemble(timeout, rng.randrange(TICK // 2), up, down, there, back, deposed_at)
        ensemble.play(random_requests(rng, timeout), horizon=7 * timeout)
        expired += ensemble.expired_at < 5 * timeout
        assert max(ensemble.untils, default=0) <= ensemble.expired_at
    assert expired > 100  # else nothing was shown


def steady(every: int, until: int, reach: Reach) -> list[tuple[int, Reach]]:
    return [(at, reach) for at in range(every, until, every)]


@pytest.mark.parametrize("timeout", [4_000, 7_000, 10_000])
def test_pings_alone_certify_nothing(timeout: int) -> None:
    quick = Stream(1, []), Stream(1, []), Stream(1, []), Stream(1, [])
    ensemble = Ensemble(timeout, 0, *quick)
    ensemble.play(steady(timeout // 8, 60_000, Reach.SERVER), horizon=61_000)
    assert set(ensemble.untils) == {timeout}


@pytest.mark.parametrize("timeout", [4.0, 7.0, 10.0])
def test_half_of_the_timeout_is_certain_while_one_proof_follows_the_other(timeout: float) -> None:
    certainty, now, ahead, writes = Certainty(timeout, 0.0, is_new=True), 0.0, [], []
    for _ in range(200):
        is_write = now >= certainty.written + timing.write_after(timeout)
        writes.append(is_write)
        certainty.answered(now, now + 0.01, Reach.QUORUM if is_write else Reach.LEADER)
        now += timing.prove_after(timeout, certainty.until - now)
        ahead.append(certainty.until - now - 0.01)  # as the next answer comes
    assert min(ahead) >= timeout / 2 - 0.05
    assert sum(writes) <= 200 / 4 + 1


def test_a_lock_taken_after_a_long_time_of_pings_needs_one_sync_more() -> None:
    certainty = Certainty(10.0, 0.0, is_new=True)
    for beat in range(1, 40):
        certainty.answered(beat * 2.5, beat * 2.5 + 0.01, Reach.SERVER)
    assert certainty.until == 10.0
    certainty.answered(98.0, 98.01, Reach.QUORUM)  # the create
    assert certainty.until == 10.0
    certainty.answered(98.02, 98.03, Reach.LEADER)  # the sync
    assert certainty.until == 105.0  # the last ping that was half a tick older than the create, and the timeout


def test_requests_sent_together_are_no_chain() -> None:
    certainty = Certainty(10.0, 0.0, is_new=True)
    certainty.answered(20.0, 20.01, Reach.SERVER)
    certainty.answered(30.0, 30.01, Reach.LEADER)
    certainty.answered(30.005, 30.02, Reach.LEADER)  # sent before the former was answered
    assert certainty.until == 10.0
    certainty.answered(30.02, 30.03, Reach.QUORUM)
    assert certainty.until == 30.0  # the touch's sending and the timeout


def test_a_resumed_session_is_certain_from_its_first_committed_write() -> None:
    certainty = Certainty(10.0, 100.0, is_new=False)
    assert certainty.until == -math.inf
    for at in range(101, 130):
        certainty.answered(at, at + 0.01, Reach.LEADER)
    assert certainty.until == -math.inf  # by a leader that was stopped, perhaps, and that has no followers any more
    certainty = Certainty(10.0, 100.0, is_new=False)
    certainty.answered(100.1, 100.2, Reach.QUORUM)
    assert certainty.until == 110.0


def test_nothing_is_certain_for_longer_than_a_timeout_from_the_last_committed_write() -> None:
    """A leader that has lost its followers, and does not know it, answers syncs for as long as it likes."""
    certainty = Certainty(10.0, 0.0, is_new=True)
    certainty.answered(3.0, 3.01, Reach.QUORUM)
    for at in range(4, 40):
        certainty.answered(at, at + 0.01, Reach.LEADER)
    assert certainty.until == 13.0
    assert len(certainty._waiting) < 5
    certainty.answered(40.0, 40.01, Reach.QUORUM)
    assert certainty.until == pytest.approx(46.0)  # the last touch that was half a tick older than a sync behind it


def test_the_memory_of_touches_is_bounded() -> None:
    certainty = Certainty(10.0, 0.0, is_new=True)
    for count in range(100_000):
        certainty.answered(count / 1000, count / 1000 + 0.0005, Reach.LEADER if count % 7 == 0 else Reach.SERVER)
    assert len(certainty._touches) + len(certainty._waiting) < 200


@pytest.mark.parametrize("every", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("latency", [0.005, 1.0])
def test_a_client_that_only_reads_does_not_keep_every_touch(every: float, latency: float) -> None:
    """Nothing goes through the leader for days: only the touches of about half a tick may be kept."""
    certainty = Certainty(10.0, 0.0, is_new=True)
    kept = []
    for count in range(1, 20_000):
        certainty.answered(count * every, count * every + latency, Reach.SERVER)
        kept.append(len(certainty._touches))
    assert max(kept) <= (10.0 / 4 + latency) / certainty.grain + 2
    last = count * every
    # What the rule needs of them is kept: the last touch that was answered half a tick before the request.
    certainty.answered(last + 0.001, last + latency + 0.001, Reach.QUORUM)
    certainty.answered(last + latency + 0.01, last + 2 * latency + 0.01, Reach.QUORUM)
    assert last - 2.5 - 3.0 - latency - certainty.grain <= certainty.until - 10.0 <= last - 2.5 - latency + 0.001


# -- the rule once more, in the words of the module's docstring ----------------------------------------------------


class Answer(NamedTuple):
    sent: int
    came: int
    reach: Reach


def proven(history: list[Answer], timeout: float, greeted: float, *, is_new: bool) -> tuple[float, float]:
    """Return when the last committed write was sent, and until when the session is certain."""
    led = [each for each in history if each.reach is not Reach.SERVER]
    touched: list[float] = [
        touch.sent
        for touch, x, y in product(history, led, led)
        if touch.came <= x.sent - timeout / 4 and x.came < y.sent
    ]
    written: list[float] = [each.sent for each in history if each.reach is Reach.QUORUM]
    if is_new:
        written.append(greeted)
    if written:
        touched.append(greeted)  # the leader touched the session for the handshake, which came before
    last = max(written, default=-math.inf)
    return last, min(max(touched, default=-math.inf), last) + timeout


# Touches that are a 64th of the timeout apart are told apart: here all that are not sent at the same time.
UNIT = 64
steps = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.sampled_from(Reach)), max_size=12)


def _answers(asked: list[tuple[int, int, Reach]], now: int = 0) -> list[Answer]:
    """Requests that are sent one after the other, and answered in that order."""
    answers: list[Answer] = []
    sent = came = now
    for gap, delay, reach in asked:
        sent += gap
        came = max(came, sent + delay)
        answers.append(Answer(sent, came, reach))
    return answers


@given(steps, st.booleans(), st.integers(0, 11))
def test_exactly_what_the_rule_proves_is_certain(
    asked: list[tuple[int, int, Reach]], is_new: bool, forgotten: int
) -> None:
    """Before and after all is forgotten; a suspended machine does not know how old its handshake is."""
    certainty = Certainty(UNIT, 100, is_new=is_new)
    greeted: float = 100
    history: list[Answer] = []
    assert (certainty.written, certainty.until) == proven(history, UNIT, greeted, is_new=is_new)
    for number, answer in enumerate(_answers(asked, 100)):
        certainty.answered(*answer)
        history.append(answer)
        assert (certainty.written, certainty.until) == proven(history, UNIT, greeted, is_new=is_new)
        if number == forgotten:
            certainty.forget()
            greeted, is_new = -math.inf, False
            history.clear()
            assert (certainty.written, certainty.until) == (-math.inf, -math.inf)


def test_a_request_that_is_sent_a_quarter_of_the_timeout_after_the_answer_to_another_covers_it() -> None:
    """Just at the bound, and a moment before it; and the last of several that it covers counts."""
    for late, until in [(0, 112 + UNIT), (-1, 111 + UNIT)]:
        certainty = Certainty(UNIT, 100, is_new=True)
        for sent, came in [(110, 114), (111, 115), (112, 116), (113, 140)]:
            certainty.answered(sent, came, Reach.SERVER)
        certainty.answered(132 + late, 141, Reach.LEADER)
        certainty.answered(142, 143, Reach.QUORUM)
        assert certainty.until == until
        assert certainty.written == 142


def test_a_request_completes_the_chains_whose_second_request_was_answered_before_it_was_sent() -> None:
    certainty = Certainty(UNIT, 100, is_new=True)
    certainty.answered(101, 102, Reach.SERVER)  # a touch for each of the next two
    certainty.answered(105, 106, Reach.SERVER)
    certainty.answered(120, 125, Reach.LEADER)
    certainty.answered(122, 140, Reach.LEADER)
    assert certainty.until == 100 + UNIT
    certainty.answered(130, 141, Reach.QUORUM)  # between the two answers
    assert certainty.until == 101 + UNIT
    certainty.answered(141, 142, Reach.LEADER)
    assert certainty.until == 105 + UNIT


REQUESTS: dict[Reach, tuple[Request[Any], bytes]] = {
    Reach.SERVER: (PingRequest(), b""),
    Reach.LEADER: (SyncRequest("/"), SyncReply("/").encode()),
    Reach.QUORUM: (DeleteRequest("/a", -1), b""),
}


@given(steps, st.booleans(), st.lists(st.booleans(), min_size=12, max_size=12), st.sets(st.integers(0, 11)))
def test_a_connection_proves_by_its_replies_exactly_what_the_rule_does(
    asked: list[tuple[int, int, Reach]], is_new: bool, waits: list[bool], refused: set[int]
) -> None:
    """A reply may share a read with those behind it.  A refusal may come from the server alone, so it is a touch."""
    session = 7
    wanted = ConnectRequest(0, 0, 1000 * UNIT, 0 if is_new else session, bytes(16), False)
    connection = Connection(wanted, 1000, 100)
    accepted = ConnectResponse(0, 1000 * UNIT, session, bytes(16)).encode() + b"\0"
    connection.receive(struct.pack(">i", len(accepted)) + accepted, 100)
    assert connection.certainty is not None
    answers = _answers(asked, 100)
    # Replies wait until the next one comes, or until a further request is sent.
    reads: list[list[int]] = []
    for number in range(len(answers)):
        if reads and waits[number]:
            reads[-1].append(number)
        else:
            reads.append([number])
    history: list[Answer] = []
    calls = [Call(REQUESTS[answer.reach][0]) for answer in answers]
    moments = [(answer.sent, 1, number) for number, answer in enumerate(answers)]
    moments += [(answers[read[-1]].came, 2, number) for number, read in enumerate(reads)]
    for now, what, number in sorted(moments, key=lambda each: (each[0], each[1])):
        if what == 1:
            connection.send(calls[number], now)
            continue
        data = b""
        for each in reads[number]:
            code = -101 if each in refused else 0
            body = b"" if code else REQUESTS[answers[each].reach][1]
            data += struct.pack(">iiqi", 16 + len(body), calls[each].xid, 5, code) + body
            history.append(Answer(answers[each].sent, now, Reach.SERVER if code else answers[each].reach))
        connection.receive(data, now)
        assert connection.error is None
        proof = connection.certainty.written, connection.certainty.until
        assert proof == proven(history, UNIT, 100, is_new=is_new)


def test_replies_to_requests_that_were_sent_a_64th_of_the_timeout_apart_are_told_apart() -> None:
    connection = Connection(ConnectRequest(0, 0, 1000 * UNIT, 0, bytes(16), False), 1000, 100)
    accepted = ConnectResponse(0, 1000 * UNIT, 7, bytes(16)).encode() + b"\0"
    connection.receive(struct.pack(">i", len(accepted)) + accepted, 100)
    assert connection.certainty is not None
    for sent, reach in [(101, Reach.SERVER), (102, Reach.SERVER), (118, Reach.LEADER), (119, Reach.QUORUM)]:
        request, body = REQUESTS[reach]
        call = Call(request)
        connection.send(call, sent)
        connection.receive(struct.pack(">iiqi", 16 + len(body), call.xid, 5, 0) + body, sent)
    assert connection.certainty.until == 102 + UNIT
