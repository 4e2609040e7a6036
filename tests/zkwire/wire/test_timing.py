"""The order and the distances of the times that follow from the session timeout."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.wire import timing

# For a timeout of 120 s, in seconds, as the pages of the documentation say.
TIMES: dict[str, tuple[Callable[[], float], float]] = {
    "a ping": (partial(timing.ping_after, 120), 30),
    "a dead link": (partial(timing.dead_after, 120), 60),
    "a dead link while the session must be certain": (partial(timing.dead_after, 120, keeps_certain=True), 40),
    "a request without an answer": (partial(timing.unanswered_after, 120), 24),
    "a request without an answer while the session must be certain": (
        partial(timing.unanswered_after, 120, keeps_certain=True),
        20,
    ),
    "a late event loop": (partial(timing.late_after, 120), 15),
    "an attempt to reach the only host": (partial(timing.connect_within, 120, 1), 60),
    "an attempt to reach one of three hosts": (partial(timing.connect_within, 120, 3), 40),
    "an attempt to reach one of many hosts": (partial(timing.connect_within, 120, 100), 6),
    "giving up": (partial(timing.give_up_after, 120), 160),
    "the least timeout to accept": (partial(timing.least_granted, 120), 0.05),
    "the least timeout to accept where less was asked for": (partial(timing.least_granted, 0.02), 0.02),
    "the first pause": (partial(timing.ask_again_after, 0, 120), 0.1),
    "the fourth pause": (partial(timing.ask_again_after, 3, 120), 0.8),
}


@pytest.mark.parametrize(("seconds", "expected"), TIMES.values(), ids=TIMES)
def test_each_time_is_the_documented_part_of_the_timeout(seconds: Callable[[], float], expected: float) -> None:
    assert seconds() == pytest.approx(expected)


timeouts = st.floats(0.001, 2**31 / 1000)


@given(timeouts)
def test_a_ping_a_dead_link_expiry_and_giving_up_come_in_this_order(timeout: float) -> None:
    ping, dead, give_up = timing.ping_after(timeout), timing.dead_after(timeout), timing.give_up_after(timeout)
    assert 0 < ping < dead < timeout < give_up


@given(timeouts)
def test_a_ping_is_sent_within_a_third_of_the_timeout_and_a_dead_link_dropped_within_two_thirds(timeout: float) -> None:
    """Pitfall 51"""
    assert timing.ping_after(timeout) <= timeout / 3
    assert timing.dead_after(timeout) <= timeout * 2 / 3


@given(timeouts)
def test_a_ping_has_as_long_to_be_answered_as_the_link_was_idle(timeout: float) -> None:
    """Pitfall 51"""
    assert timing.dead_after(timeout) - timing.ping_after(timeout) >= timing.ping_after(timeout) * 0.999


@given(timeouts, timeouts)
def test_all_times_grow_with_the_timeout(one: float, other: float) -> None:
    short, long = sorted((one, other))
    for after in (timing.ping_after, timing.dead_after, timing.give_up_after):
        assert after(short) <= after(long)
    for hosts in (1, 3, 7, 100):
        assert timing.connect_within(short, hosts) <= timing.connect_within(long, hosts)


@given(timeouts, st.integers(1, 1000))
def test_an_attempt_to_connect_may_take_less_time_with_more_hosts_but_at_least_a_twentieth(
    timeout: float, hosts: int
) -> None:
    limit = timing.connect_within(timeout, hosts)
    assert timeout / 20 <= limit <= timing.dead_after(timeout)
    assert timing.connect_within(timeout, hosts + 1) <= limit


@given(timeouts, st.integers(2, 20))
def test_each_host_of_a_list_can_be_tried_before_the_session_is_given_up(timeout: float, hosts: int) -> None:
    assert timing.connect_within(timeout, hosts) * hosts <= timeout * 1.000001 < timing.give_up_after(timeout)


@given(timeouts)
def test_the_client_gives_up_after_four_thirds_of_the_timeout(timeout: float) -> None:
    """Pitfall 63: like the Java client since 3.9.3"""
    assert timing.give_up_after(timeout) == pytest.approx(timeout * 4 / 3)


@given(st.integers(0, 10_000), st.floats(0.001, 1e6))
def test_the_pauses_between_searches_for_a_writable_server_grow_up_to_the_timeout(rounds: int, timeout: float) -> None:
    now, next_time = timing.ask_again_after(rounds, timeout), timing.ask_again_after(rounds + 1, timeout)
    assert 0 < now <= next_time <= timeout
    assert timing.ask_again_after(0, 10.0) == 0.1
    assert timing.ask_again_after(10_000, 10.0) == 10.0
