"""The rule of certainty: what a client at rest asks for, and what each answer proves.

tests/model plays the rule against a model of an ensemble, in every order of what happens.
"""

import itertools
import math
import random
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkwire.wire.certainty import AckLevel, Certainty, Upkeep

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
    assert late.has_run_out(100.0)


def test_three_answers_prove_a_touch_and_less_do_not() -> None:
    """Pitfall 70: an answered ping alone, which a follower sends by itself, proves nothing."""
    for gap, late, until in [(19.2, 0.1, 174.0), (19.19, 0.1, 164.0), (19.2, 0.0, 164.0)]:
        certainty = a_session()
        certainty.answered(110.0, 112.0, AckLevel.SERVER)
        # x: 0.3 of the timeout after the touch was answered
        certainty.answered(112.0 + gap + 1e-9, 133.0, AckLevel.QUORUM)
        assert certainty.until == 164.0
        certainty.answered(133.0 + late, 134.0, AckLevel.LEADER)  # y: after x was answered
        assert certainty.until == until


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
    assert [certainty.has_run_out(at) for at in (160.7, 160.9)] == [False, True]  # a twentieth of T before the end
    certainty.follows()  # on the former connection
    certainty.resumed(120.0, T)
    assert certainty.until == 164.0
    assert not certainty.is_broken
    assert not certainty.has_run_out(120.0 + T)
    assert certainty.wants_write(121.0, Upkeep.READY)
    for at in range(122, 150):
        certainty.answered(at, at + 0.1, AckLevel.LEADER, 1 << 40)
    assert certainty.until == 164.0  # by a leader that was stopped, perhaps, and that has no followers any more
    assert (certainty.is_broken, certainty.wants_write(150.0, Upkeep.READY)) == (False, True)
    certainty.answered(150.0, 150.1, AckLevel.QUORUM, 2 << 40)
    assert certainty.until > 120.0 + T
    for at in range(151, 200):
        certainty.answered(at, at + 0.1, AckLevel.LEADER, (2 << 40) + at)
    assert certainty.until == 150.0 + T


@pytest.mark.parametrize(
    ("answered", "epoch", "is_linked"), [(163.9, 9, True), (164.0, 9, False), (183.9, 7, True), (184.0, 7, False)]
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
    for is_new in (True, False):
        certainty = a_session()
        certainty.follows()
        seen = certainty.proven
        certainty.answered(101.0, 101.1, AckLevel.SERVER)
        certainty.answered(121.0, 121.1, AckLevel.LEADER, 5)
        if is_new:
            certainty.answered(121.5, 121.6, AckLevel.QUORUM, 5)
            assert certainty.until == 101.0 + T
        certainty.missed(10.0, 122.0, seen)
        assert (certainty.is_broken, certainty.based) == ((True, 122.0) if is_new else (False, 100.0))
        certainty.answered(121.9, 123.0, AckLevel.QUORUM, 6)  # sent before: it is not known when
        certainty.answered(124.0, 125.0, AckLevel.LEADER, 6)  # nor is it of the touch that this would prove
        assert certainty.proven == (154.0, 91.0 if is_new else 90.0)
        for at in (144.5, 146.0):  # nor of the sync before, and of the last write
            certainty.answered(at, at + 1, AckLevel.LEADER, 6)
        assert certainty.proven == (154.0, 124.0)


def test_a_resumed_session_that_runs_out_before_its_first_write_is_not_in_the_chain() -> None:
    certainty = a_session()
    certainty.resumed(120.0, T)
    for sent, answered in ((121.0, 122.0), (150.0, 151.0), (152.0, 120.0 + T)):
        certainty.answered(sent, answered, AckLevel.LEADER)
    certainty.answered(185.0, 186.0, AckLevel.QUORUM)
    assert certainty.is_broken


def test_a_proof_is_due_as_soon_as_it_proves_something_and_as_late_as_it_may_be() -> None:
    certainty = a_session()
    assert certainty.due(Upkeep.CERTAIN) == pytest.approx(119.2)
    for sent, answered, due in (
        (110.0, 110.1, 129.3064),  # the first pair is sent early
        (111.0, 111.1, 130.3064),
        (130.0, 131.0, 131.0064),
        (130.5, 132.0, 132.0064),
        (133.0, 133.1, 161.8),
        (151.0, 151.1, 151.1064),
    ):
        certainty.answered(sent, answered, AckLevel.LEADER)
        assert certainty.due(Upkeep.READY) == pytest.approx(due)


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


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 12), st.sampled_from(AckLevel)), max_size=12))
@example([(gap, delay, AckLevel.QUORUM) for gap, delay in ((1, 1), (2, 1), (19, 6), (2, 6), (5, 0))])
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
