"""bench/disturbance.py: the share of the processors' time that the host took."""

from bench.disturbance import stolen


def test_the_share_is_that_of_the_time_between() -> None:
    before = [100, 0, 50, 800, 0, 0, 0, 50]
    after = [130, 0, 60, 840, 0, 0, 0, 70]
    assert stolen(before, after) == 0.2


def test_without_counters_or_without_time_there_is_no_share() -> None:
    assert stolen([], []) is None
    assert stolen([1] * 8, [1] * 8) is None
