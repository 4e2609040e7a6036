"""A figure beside its floor, as a line of text and as plain data.

Pure: no process, no socket, no clock.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.figures import median


@dataclass(slots=True)
class Row:
    """What one thing costs: a figure for each round, and the floor's figure for the same round where there is one.

    ``unit`` is the unit of both; less is better.
    """

    name: str
    unit: str
    rounds: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        """Return the median of the rounds' ratios of the figure to its floor; NaN where there is no floor."""
        if not self.floor:
            return math.nan
        return median([mine / theirs for mine, theirs in zip(self.rounds, self.floor, strict=True) if theirs])


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table: the medians of the rounds."""
    width = max((len(row.name) for row in rows), default=0)
    lines = [f"  {'':<{width}}      zkwire       floor  zkwire / floor"]
    for row in rows:
        floor = f"{median(row.floor):12.1f}{row.ratio():10.2f}" if row.floor else " " * 22
        lines.append(f"  {row.name:<{width}}{median(row.rounds):12.1f}{floor}   {row.unit}")
    return lines


def plain(rows: Sequence[Row]) -> dict[str, object]:
    """Return the rows as plain data; None where there is no figure."""
    return {
        row.name: {
            **{name: value for name, value in dataclasses.asdict(row).items() if name != "name"},
            "median": _number(median(row.rounds)),
            "floor_median": _number(median(row.floor)),
            "ratio": _number(row.ratio()),
        }
        for row in rows
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
