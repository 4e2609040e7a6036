"""Figures of a sample of latencies, and its histogram as text.

Pure arithmetic; samples are in nanoseconds, figures in microseconds.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a sample, in microseconds but for ``count``; NaN when the sample is empty."""

    count: int
    mean: float
    median: float
    p90: float
    p99: float

    @classmethod
    def of(cls, sample: Sequence[int]) -> Self:
        ordered = sorted(sample)
        mean = sum(ordered) / len(ordered) / 1000 if ordered else math.nan
        return cls(len(ordered), mean, *(percentile(ordered, share) / 1000 for share in (0.5, 0.9, 0.99)))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of an ordered sample lies, interpolated; NaN for an empty one."""
    if not ordered:
        return math.nan
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """Return the median of the values that are numbers; NaN when none is."""
    return percentile(sorted(value for value in values if not math.isnan(value)), 0.5)


def histogram(samples: Mapping[str, Sequence[int]], *, rows: int, width: int) -> list[str]:
    """Return the lines of the samples' histograms side by side, on common bins of logarithmic size.

    The bins reach from the smallest value to the 99th percentile of all; the last one is open, so that one very
    late value does not press all others into one bin. Bars are to one scale, with shares of the sample beside them.
    """
    pooled = sorted(itertools.chain.from_iterable(samples.values()))
    if not pooled:
        return []
    low = max(pooled[0], 1)
    step = max(percentile(pooled, 0.99) / low, 1.01) ** (1 / (rows - 1))
    edges = [low * step**row for row in range(rows)]
    shares = {name: _shares(sample, edges) for name, sample in samples.items()}
    scale = max(itertools.chain.from_iterable(shares.values()))
    label = max(len(f"{edges[-1] / 1000:.0f}"), 3)
    bar = max(width // len(samples) - 10 - (label + 8) // len(samples), 5)
    lines = [" " * (label + 6) + "".join(f"{name:<{bar + 8}}" for name in samples).rstrip()]
    for row, edge in enumerate(edges):
        cells = "".join(f"{_bar(share[row] / scale, bar)} {share[row]:5.1%}  " for share in shares.values())
        lines.append(f" {'≥' if row == rows - 1 else ' '}{edge / 1000:{label}.0f} µs {cells}".rstrip())
    return lines


def _shares(sample: Sequence[int], edges: Sequence[float]) -> list[float]:
    counts = [0] * len(edges)
    for value in sample:
        counts[max(bisect_right(edges, value) - 1, 0)] += 1
    return [count / max(len(sample), 1) for count in counts]


def _bar(share: float, width: int) -> str:
    """A bar of ``share`` (0 to 1) of the width; any share above 0 shows at least an eighth of a character."""
    eighths = max(round(share * width * 8), 1 if share else 0)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)
