"""The order and the distances of the times that follow from the session timeout."""

from collections.abc import Callable
from functools import partial

import pytest

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
    "the last pause": (partial(timing.ask_again_after, 10_000, 120), 120),
    "a refusal": (partial(timing.refused_within, 120), 2.4),
}


@pytest.mark.parametrize(("seconds", "expected"), TIMES.values(), ids=TIMES)
def test_each_time_is_the_documented_part_of_the_timeout(seconds: Callable[[], float], expected: float) -> None:
    """Pitfall 63, for one: four thirds of it until the client gives up, like the Java client since 3.9.3."""
    assert seconds() == pytest.approx(expected)


# -- progress --------------------------------------------------------------------------------------------------------

TIMEOUT = 10.0


def test_a_request_is_stuck_after_a_whole_timeout_at_its_first_tick() -> None:
    progress, call = timing.Progress(), object()
    assert not progress.is_stuck(None, 0, 100.0, TIMEOUT)
    assert not progress.is_stuck(call, 0, 101.0, TIMEOUT)  # the count begins here
    assert not progress.is_stuck(call, 0, 110.9, TIMEOUT)
    assert progress.is_stuck(call, 0, 111.0, TIMEOUT)
    assert progress.is_stuck(call, 0, 112.0, TIMEOUT)


def test_a_frame_that_grows_by_enough_begins_the_count_again() -> None:
    progress, call = timing.Progress(), object()
    assert not progress.is_stuck(call, 100, 0.0, TIMEOUT)
    assert not progress.is_stuck(call, 100 + 4096, 9.0, TIMEOUT)
    assert not progress.is_stuck(call, 100 + 4096 + 4095, 18.9, TIMEOUT)
    assert progress.is_stuck(call, 100 + 4096 + 4095, 19.0, TIMEOUT)  # it has grown by too little
    assert not progress.is_stuck(call, 100 + 2 * 4096, 19.0, TIMEOUT)


def test_the_growth_of_another_frame_counts_from_its_own_beginning() -> None:
    """A smaller frame is another one: that itself is no progress, but from there on it may grow."""
    progress, call = timing.Progress(), object()
    assert not progress.is_stuck(call, 50_000, 0.0, TIMEOUT)
    assert progress.is_stuck(call, 10, 10.0, TIMEOUT)
    assert not progress.is_stuck(call, 10 + 4096, 11.0, TIMEOUT)


def test_the_time_in_which_a_large_reply_is_decoded_does_not_count() -> None:
    progress, call = timing.Progress(), object()
    assert not progress.is_stuck(call, 0, 0.0, TIMEOUT)
    progress.restart(9.0)
    assert not progress.is_stuck(call, 0, 18.9, TIMEOUT)
    assert progress.is_stuck(call, 0, 19.0, TIMEOUT)
