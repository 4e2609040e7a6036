"""Measure how long a lock takes to change hands: from the owner's call of release to the return of the next acquire.

Run from the project's root::

    python bench/handover.py                  # 2, 8 and 32 processes; on an in-memory server
    python bench/handover.py --real           # on a ZooKeeper that it starts, and fetches if necessary
    python bench/handover.py --workers 8 --hosts zk1:2181,zk2:2181

Worker processes, each with its own session, contend for one lock: acquire, hold, release, again. Besides zkwire's
Lock, the same line runs on a bare ``asyncio`` protocol, and on raw sockets as a ``floor`` (delete to event, no more)
and as the ``textbook`` recipe (event, then list again).  The contestants take turns in short rounds, so that a change
of the machine's speed affects all of them; only the ratios matter.  On request, other recipes of zkwire run as well.

A hand-over counts when the next owner was already waiting. The exit status is 1 if two owners ever overlapped or a
token did not grow, 2 if something could not be measured.

This module holds the command line and the report; track.py holds the order of the races, crew.py the processes, and
peers/ the same races against other clients.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import picture, raceline, tally
from bench.crew import CONTESTANTS, USUAL, Crew
from bench.disturbance import processor_times, stolen
from bench.figures import Figures, histogram, median
from bench.servers import add_server_options, kind_of, say, serving, write_json
from bench.status import with_status
from bench.tally import OURS, Tally
from bench.track import WARM_UP_TURNS, laid_out

WARM_UP_RACES: Final = 10  # before measuring on a fresh server: its JVM compiles at first
BEGIN: Final = "from the first turn on"
HISTOGRAM_ROWS: Final = 14
WIDEST: Final = 120
# What a reader of the report cannot know by the name.
LEGEND: Final = {
    "floor": "raw blocking sockets, from the delete to the event of the next in line: nothing can be faster",
    "textbook": "raw blocking sockets, and the next in line lists the children again before it owns",
    "asyncio": "our waiting line on a bare asyncio.Protocol: no client, no lease, no safety",
}


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _options(arguments)
    fresh = options.hosts is None
    names: list[str] = options.contestants
    tallies: list[Tally] = []
    with (
        serving(options) as hosts,
        laid_out(hosts, options.hold, options.handovers) as track,
        Crew(max(options.workers)) as crew,
    ):
        explained = [f"{name}: {LEGEND[name]}" for name in names if name in LEGEND]
        print("\n".join([raceline.title(options, track, kind_of(options)), *explained]), flush=True)
        if fresh:
            say("warming the server up")
            for _ in range(WARM_UP_RACES):
                track.race(crew.race, names[0], max(options.workers), hold=0.0)
        results = []
        for workers in options.workers:
            before = processor_times()
            races = track.rounds(crew.race, names, workers, options.rounds, needed=names)
            windows = (0, options.handovers), (WARM_UP_TURNS * workers, options.handovers)
            begin, found = tally.collected(races, names, *windows)
            taken = stolen(before, processor_times())
            print("\n".join([tally.heading(workers, taken), *_table(begin, found)]), flush=True)
            results.append(tally.plain(workers, found, taken, {BEGIN: begin}))
            tallies += found.values()
        report = raceline.plain(options, track, _server(options), results)
        write_json(options, report)
        if options.svg:
            options.svg.write_text(picture.drawn(report), encoding="utf-8")
    if any(one.overlaps or one.misordered for one in tallies):
        say("a lock had two owners at a time, or gave out tokens that did not grow")
        return 1
    return 0 if all(one.pooled() for one in tallies) else 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how long a lock takes to change hands.")
    raceline.add_race_options(parser)
    names = list(CONTESTANTS)
    which = f"which to run of {','.join(names)} (default: {','.join(USUAL)})"
    parser.add_argument(
        "--contestants",
        type=lambda text: raceline.chosen(text, names),
        default=list(USUAL),
        metavar="NAME,...",
        help=which,
    )
    add_server_options(parser)
    return parser.parse_args(arguments)


def _server(options: argparse.Namespace) -> str:
    if options.hosts:
        return "given"
    return "real" if options.real else "real, without fsync" if options.no_fsync else "memory"


def _rows(part: str, tallies: dict[str, Tally]) -> list[str]:
    lines = [f"  {part:<25}count      mean    median       p90       p99    release  turns/s   overlaps"]
    for name, one in tallies.items():
        figures = Figures.of(one.pooled())
        times = figures.mean, figures.median, figures.p90, figures.p99, Figures.of(one.releases).median
        cells = "".join(f"{value:7.0f} µs" for value in times) + f"{median(one.rates):9.0f}"
        wrong = f"  tokens out of order: {one.misordered}" if one.misordered else ""
        lines.append(f"  {name:<22}{figures.count:8}{cells}{one.overlaps:11}{wrong}")
    return lines


def _table(begin: dict[str, Tally], tallies: dict[str, Tally]) -> list[str]:
    lines = [*_rows(BEGIN, begin), *_rows("after 2 turns of each", tallies)]
    for name, ratio in tally.ratios(tallies).items():
        rounds = " ".join(f"{value:.2f}" for value in ratio.rounds)
        lines.append(f"  {OURS} / {name:<11}{ratio.pooled:6.2f}   by round {rounds}, median {ratio.rounds_median:.2f}")
    samples = {name: one.pooled() for name, one in tallies.items()}
    width = min(shutil.get_terminal_size().columns, WIDEST)
    return [*lines, "", *histogram(samples, rows=HISTOGRAM_ROWS, width=width)]


if __name__ == "__main__":
    sys.exit(main())
