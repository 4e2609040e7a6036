"""The results of races: hand-overs by contestant and round, their figures and ratios, as text and as plain data.

Pure: no process, no socket, no clock.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from bench.figures import Figures, median, percentile
from bench.turns import Turn, hand_overs, misordered, overlaps, releases, turn_rate

OURS: Final = "zkwire"
FLOOR: Final = "floor"


@dataclass(slots=True)
class Tally:
    """The results of one contestant with one number of workers, and violations.

    The hand-overs and the turns in a second are by round, the releases of all; times are in nanoseconds.
    """

    rounds: list[list[int]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    overlaps: int = 0
    misordered: int = 0

    def add(self, turns: Sequence[Turn], first: int, count: int) -> None:
        """Add a race, of which `count` turns from number `first` on are measured."""
        self.rounds.append(hand_overs(turns, first, count))
        self.rates.append(turn_rate(turns, first, count))
        self.releases += releases(turns, first, count)
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


def collected(
    races: Iterable[tuple[str, Sequence[Turn]]], contestants: Sequence[str], *windows: tuple[int, int]
) -> list[dict[str, Tally]]:
    """Return the tallies of races, by contestant, of each window: its first turn, and how many are measured.

    `contestants` may lose names while the races run: those have no tally.
    """
    found: list[dict[str, Tally]] = [{name: Tally() for name in contestants} for _ in windows]
    for name, turns in races:
        for tallies, (first, count) in zip(found, windows, strict=True):
            tallies[name].add(turns, first, count)
    return [{name: tallies[name] for name in contestants} for tallies in found]


def ratios(tallies: Mapping[str, Tally]) -> dict[str, Ratio]:
    """Return the ratio of ours to each of the others; none if ours did not run."""
    if OURS not in tallies:
        return {}
    return {name: Ratio.of(tallies[OURS], tally) for name, tally in tallies.items() if name != OURS}


def plain(
    workers: int, tallies: Mapping[str, Tally], taken: float | None, begin: Mapping[str, Mapping[str, Tally]]
) -> dict[str, object]:
    """Return the figures of one number of workers as plain data.

    Times are in microseconds, and None where there is no figure.  `taken` is the share of the processors' time
    that the host took, `begin` the tallies of parts of the races that say how the contestants begin.
    """
    return {
        "workers": workers,
        "taken": taken,
        **_plain_part(tallies),
        "begin": {part: _plain_part(those) for part, those in begin.items()},
    }


def _plain_part(tallies: Mapping[str, Tally]) -> dict[str, object]:
    return {
        "contestants": {
            name: {
                **_plain(Figures.of(tally.pooled())),
                "overlaps": tally.overlaps,
                "misordered": tally.misordered,
                "release": _numbers([Figures.of(tally.releases).median])[0],
                "turns_per_second": _numbers([median(tally.rates)])[0],
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


def peers_table(part: str, tallies: Mapping[str, Tally]) -> list[str]:
    """Return the lines of the table that compares ours with other clients, `part` being the races' part that it shows.

    Times are in microseconds: of all hand-overs, and the median of a release.  Turns in a second are the median of the
    rounds'.  ``x floor`` is a
    contestant's median, and its p90, divided by the floor's.  ``zkwire / it`` is our median divided by the
    contestant's, of all hand-overs, after it the median of the rounds' ratios, and last our mean divided by its.
    """
    lines = [
        f"  {part}",
        f"  {'':<9}   count    mean  median     p90     p99  release  turns/s  overlaps  "
        "x floor: median   p90   zkwire / it: median  by round   mean",
    ]
    figures = {name: Figures.of(tally.pooled()) for name, tally in tallies.items()}
    none = Figures.of([])
    ours, floor, by_round = figures.get(OURS, none), figures.get(FLOOR, none), ratios(tallies)
    for name, its in figures.items():
        cells = f"{its.count:8}" + "".join(f"{time:8.0f}" for time in (its.mean, its.median, its.p90, its.p99))
        release, rate = Figures.of(tallies[name].releases).median, median(tallies[name].rates)
        cells += f"{release:9.0f}{rate:9.0f}{tallies[name].overlaps:10}"
        cells += f"{its.median / floor.median:17.2f}{its.p90 / floor.p90:6.2f}"
        if name in by_round:
            ratio = by_round[name]
            cells += f"{ratio.pooled:22.2f}{ratio.rounds_median:10.2f}{ours.mean / its.mean:7.2f}"
        lines.append(f"  {name:<9}{cells}")
    return lines
