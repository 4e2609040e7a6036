"""The results of races: hand-overs by contestant and round, their figures and ratios, as text and as plain data.

Pure: no process, no socket, no clock.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from bench.figures import Figures, median, percentile
from bench.turns import Turn, hand_overs, misordered, overlaps

OURS: Final = "zkwire"
FLOOR: Final = "floor"


@dataclass(slots=True)
class Tally:
    """The results of one contestant with one number of workers: hand-overs in nanoseconds by round, and violations."""

    rounds: list[list[int]] = field(default_factory=list)
    overlaps: int = 0
    misordered: int = 0

    def add(self, turns: Sequence[Turn], first: int, count: int) -> None:
        """Add a race, of which `count` turns from number `first` on are measured."""
        self.rounds.append(hand_overs(turns, first, count))
        # Exclusion must hold during the warm-up too.
        self.overlaps += overlaps(turns)
        self.misordered += misordered(turns)

    def pooled(self) -> list[int]:
        """Return the hand-overs of all rounds."""
        return [nanoseconds for sample in self.rounds for nanoseconds in sample]

    def medians(self) -> list[float]:
        """Return the median of each round, in microseconds."""
        return [Figures.of(sample).median for sample in self.rounds]

    def percentiles(self) -> list[float]:
        """Return the 0th to the 100th percentile of all rounds, in microseconds."""
        ordered = sorted(self.pooled())
        return [percentile(ordered, share / 100) / 1000 for share in range(101)]


@dataclass(frozen=True, slots=True)
class Ratio:
    """One median divided by another: of the pooled samples, of each round, and the median of the rounds."""

    pooled: float
    rounds: list[float]
    rounds_median: float

    @classmethod
    def of(cls, one: Tally, other: Tally) -> Self:
        rounds = [mine / theirs for mine, theirs in zip(one.medians(), other.medians(), strict=True)]
        return cls(Figures.of(one.pooled()).median / Figures.of(other.pooled()).median, rounds, median(rounds))


def ratios(tallies: Mapping[str, Tally]) -> dict[str, Ratio]:
    """Return the ratio of ours to each of the others; none if ours did not run."""
    if OURS not in tallies:
        return {}
    return {name: Ratio.of(tallies[OURS], tally) for name, tally in tallies.items() if name != OURS}


def plain(workers: int, tallies: Mapping[str, Tally], taken: float | None) -> dict[str, object]:
    """Return the figures of one number of workers as plain data.

    Times are in microseconds, and None where there is no figure.  `taken` is the share of the processors' time
    that the host took.
    """
    return {
        "workers": workers,
        "taken": taken,
        "contestants": {
            name: {
                **_plain(Figures.of(tally.pooled())),
                "overlaps": tally.overlaps,
                "misordered": tally.misordered,
                "round_medians": _numbers(tally.medians()),
                "percentiles": _numbers(tally.percentiles()),
            }
            for name, tally in tallies.items()
        },
        "ratios": {name: _plain(ratio) for name, ratio in ratios(tallies).items()},
    }


def _plain(record: Figures | Ratio) -> dict[str, object]:
    return {
        name: _numbers(value) if isinstance(value, list) else _numbers([value])[0]
        for name, value in dataclasses.asdict(record).items()
    }


def _numbers(values: Sequence[float]) -> list[float | None]:
    """Return `values` with None for each NaN, which JSON does not have."""
    return [None if math.isnan(value) else value for value in values]


def heading(workers: int, taken: float | None) -> str:
    """Return the line above the figures of one number of workers."""
    # On a virtual machine, the host's other guests are the greatest disturbance.
    disturbed = "" if taken is None else f"; {taken:.1%} of the processors' time was taken by the host"
    return f"\n{workers} workers{disturbed}"


def peers_table(tallies: Mapping[str, Tally]) -> list[str]:
    """Return the lines of the table that compares ours with other clients.

    ``x floor`` is a contestant's median divided by the floor's, and ``zkwire / it`` ours divided by the
    contestant's: of all hand-overs, and after it the median of the rounds' ratios.
    """
    lines = ["              count    median       p99   overlaps      x floor   by round   zkwire / it   by round"]
    ours = ratios(tallies)
    for name, tally in tallies.items():
        figures = Figures.of(tally.pooled())
        cells = f"{figures.median:7.0f} µs{figures.p99:7.0f} µs{tally.overlaps:11}"
        floor = Ratio.of(tally, tallies[FLOOR]) if FLOOR in tallies else None
        for ratio, width in ((floor, 13), (ours.get(name), 14)):
            cells += " " * (width + 11) if ratio is None else f"{ratio.pooled:{width}.2f}{ratio.rounds_median:11.2f}"
        lines.append(f"  {name:<9}{figures.count:8}{cells}".rstrip())
    return lines
