"""bench/figures.py: percentiles, medians and the histogram."""

import math

import pytest

from bench.figures import Figures, histogram, median, percentile


@pytest.mark.parametrize(("share", "value"), [(0, 1.0), (0.5, 2.5), (1, 4.0), (0.25, 1.75)])
def test_a_percentile_lies_between_its_neighbours(share: float, value: float) -> None:
    assert percentile([1, 2, 3, 4], share) == value


def test_figures_are_microseconds_of_those_that_are_numbers() -> None:
    assert Figures.of([]).count == 0
    assert Figures.of([3000, 1000, 2000]) == Figures(3, 2.0, 2.8, 2.98)
    assert median([3.0, math.nan, 1.0]) == 2.0
    assert math.isnan(median([]))
    assert histogram({"a": []}, rows=4, width=80) == []


def test_the_histogram_has_a_line_for_each_bin_and_names_the_samples() -> None:
    head, *lines = histogram({"one": [1000, 2000], "two": [4000]}, rows=5, width=80)
    assert head.split() == ["one", "two"]
    assert len(lines) == 5
    assert "50.0%" in lines[0]
    assert "100.0%" in lines[-1]
