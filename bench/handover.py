"""Measure how long a lock takes to change hands: from the owner's call of release to the return of the next acquire.

Run from the project's root::

    python bench/handover.py                  # 2, 8 and 32 processes; on an in-memory server
    python bench/handover.py --real           # on a ZooKeeper that it starts, and fetches if necessary
    python bench/handover.py --workers 8 --hosts zk1:2181,zk2:2181

Worker processes, each with its own session, contend for one lock: acquire, hold, release, again. Besides zkwire's
Lock, the same line runs on a bare ``asyncio`` protocol, and on raw sockets as a ``floor`` (delete to event, no more)
and as the ``textbook`` recipe (event, then list again).  The contestants take turns in short rounds, so that a change
of the machine's speed affects all of them; only the ratios matter.

A hand-over counts when the next owner was already waiting. The exit status is 1 if two owners ever overlapped or a
token did not grow, 2 if something could not be measured.

This module holds the command line, the order of the races and the report; crew.py holds the processes.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import rawline
from bench.crew import CONTESTANTS, Crew, WorkerFailedError
from bench.disturbance import processor_times, stolen
from bench.figures import Figures, histogram, median
from bench.frames import RefusedError
from bench.servers import add_server_options, kind_of, positive, say, scratch, serving
from bench.turns import SESSION_TIMEOUT, Order, Turn, hand_overs, misordered, overlaps
from zkwire.session.hosts import Address, parse
from zkwire.testing import ServerFailedError, ZooKeeperMissingError

OURS: Final = "zkwire"
WARM_UP_RACES: Final = 10  # before measuring on a fresh server: its JVM compiles at first
WARM_UP_TURNS: Final = 2  # of each worker, at the start of each race
LONGEST_HOLD: Final = SESSION_TIMEOUT / 3  # a raw worker sends nothing while it holds
HISTOGRAM_ROWS: Final = 14
WIDEST: Final = 120


@dataclass(slots=True)
class Track:
    """The servers and the settings of the races."""

    servers: list[Address]
    folder: str
    hold: float
    hand_overs: int
    races: int = 0


@dataclass(slots=True)
class Tally:
    """The results of one contestant with one number of workers: hand-overs in nanoseconds by round, and violations."""

    rounds: list[list[int]] = field(default_factory=list)
    overlaps: int = 0
    misordered: int = 0

    def add(self, turns: Sequence[Turn], first: int, count: int) -> None:
        self.rounds.append(hand_overs(turns, first, count))
        # Exclusion must hold during the warm-up too.
        self.overlaps += overlaps(turns)
        self.misordered += misordered(turns)

    def pooled(self) -> list[int]:
        return [nanoseconds for sample in self.rounds for nanoseconds in sample]

    def medians(self) -> list[float]:
        return [Figures.of(sample).median for sample in self.rounds]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our median divided by another's: of the pooled samples, of each round, and the median of the rounds."""

    pooled: float
    rounds: list[float]
    rounds_median: float

    @classmethod
    def of(cls, ours: Tally, other: Tally) -> Self:
        rounds = [mine / theirs for mine, theirs in zip(ours.medians(), other.medians(), strict=True)]
        return cls(Figures.of(ours.pooled()).median / Figures.of(other.pooled()).median, rounds, median(rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _options(arguments)
    fresh = options.hosts is None
    try:
        with serving(options) as hosts, _track(options, hosts) as track, Crew(max(options.workers)) as crew:
            print(_heading(options, track), flush=True)
            if fresh:
                say("warming the server up")
                for _ in range(WARM_UP_RACES):
                    _race(crew, track, options.contestants[0], max(options.workers), hold=0.0)
            results = {}
            for workers in options.workers:
                before = processor_times()
                results[workers] = _measure(crew, track, options, workers)
                print(_report(workers, results[workers], stolen(before, processor_times())), flush=True)
            if options.json:
                report = _json(options, track, results)
                options.json.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except (WorkerFailedError, ServerFailedError, ZooKeeperMissingError, RefusedError, OSError) as error:
        say(f"{Path(__file__).name}: {error}")
        return 2
    except subprocess.CalledProcessError:
        return 2  # the command has printed the reason
    except KeyboardInterrupt:
        return 130
    tallies = [tally for contestants in results.values() for tally in contestants.values()]
    if any(tally.overlaps or tally.misordered for tally in tallies):
        say("a lock had two owners at a time, or gave out tokens that did not grow")
        return 1
    return 0 if all(tally.pooled() for tally in tallies) else 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how long a lock takes to change hands.")
    add = parser.add_argument
    add("--workers", type=_counts, default=[2, 8, 32], metavar="N,...", help="processes in the line (default: 2,8,32)")
    add("--hold", type=_hold, default=0.002, metavar="S", help="seconds for which each owner holds (default: 0.002)")
    add("--handovers", type=positive, default=500, metavar="N", help="hand-overs in each race (default: 500)")
    add("--rounds", type=positive, default=3, metavar="N", help="races of each contestant (default: 3)")
    names = list(CONTESTANTS)
    which = f"which to run (default: {','.join(names)})"
    add("--contestants", type=_contestants, default=names, metavar="NAME,...", help=which)
    add_server_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    return parser.parse_args(arguments)


def _counts(text: str) -> list[int]:
    counts = [positive(count) for count in text.split(",")]
    if min(counts) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: a lock needs at least two workers to change hands")
    return list(dict.fromkeys(counts))


def _hold(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_HOLD:
        raise argparse.ArgumentTypeError(f"{text!r}: an owner holds for 0 to {LONGEST_HOLD:.1f} seconds")
    return seconds


def _contestants(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    if not CONTESTANTS.keys() >= set(names):
        raise argparse.ArgumentTypeError(f"{text!r}: the contestants are {', '.join(CONTESTANTS)}")
    return names


@contextlib.contextmanager
def _track(options: argparse.Namespace, hosts: str) -> Iterator[Track]:
    """Create a node of its own for this run's locks, and remove it at the end."""
    servers, chroot = parse(hosts)
    track = Track(servers, f"{chroot}/zkwire-bench-{secrets.token_hex(6)}", options.hold, options.handovers)
    with scratch(servers[0], track.folder):
        yield track


def _measure(crew: Crew, track: Track, options: argparse.Namespace, workers: int) -> dict[str, Tally]:
    """Run all rounds with one number of workers and return the results."""
    contestants: list[str] = options.contestants
    tallies = {name: Tally() for name in contestants}
    for number in range(options.rounds):
        # Each round starts with another contestant, so that none always follows the same one.
        first = number % len(contestants)
        for name in contestants[first:] + contestants[:first]:
            say(f"{workers} workers, round {number + 1} of {options.rounds}: {name}")
            turns = _race(crew, track, name, workers, hold=track.hold)
            tallies[name].add(turns, WARM_UP_TURNS * workers, track.hand_overs)
    return tallies


def _race(crew: Crew, track: Track, contestant: str, workers: int, *, hold: float) -> list[Turn]:
    """Run one race on a new lock."""
    # The counted turns, the warm-up, and one more each for the end, when the line grows shorter.
    turns = math.ceil(track.hand_overs / workers) + WARM_UP_TURNS + 1
    lock = f"{track.folder}/{track.races}-{contestant}"
    track.races += 1
    with rawline.RawSession(*track.servers[0]) as session:
        rawline.make_path(session, lock)
    # On an ensemble each worker has one server, the same for every contestant.
    servers = [track.servers[number % len(track.servers)] for number in range(workers)]
    return crew.race([Order(contestant, server.host, server.port, lock, turns, hold) for server in servers])


def _heading(options: argparse.Namespace, track: Track) -> str:
    version = rawline.server_version(*track.servers[0]) or "of unknown version"
    servers = ", ".join(map(str, track.servers))
    return (
        f"lock hand-over on ZooKeeper {version} at {servers}{kind_of(options)}\n"
        f"Python {platform.python_version()}, {os.cpu_count()} cores; "
        f"hold {options.hold * 1000:g} ms, {options.rounds} rounds of {options.handovers} hand-overs"
    )


def _report(workers: int, tallies: dict[str, Tally], taken: float | None) -> str:
    # On a virtual machine, the host's other guests are the greatest disturbance.
    disturbed = "" if taken is None else f"; {taken:.1%} of the processors' time was taken by the host"
    lines = [f"\n{workers} workers{disturbed}", "              count    median       p90       p99   overlaps"]
    for name, tally in tallies.items():
        figures = Figures.of(tally.pooled())
        cells = "".join(f"{value:7.0f} µs" for value in (figures.median, figures.p90, figures.p99))
        wrong = f"  tokens out of order: {tally.misordered}" if tally.misordered else ""
        lines.append(f"  {name:<9}{figures.count:8}{cells}{tally.overlaps:11}{wrong}")
    for name, ratio in _ratios(tallies).items():
        rounds = " ".join(f"{value:.2f}" for value in ratio.rounds)
        lines.append(f"  {OURS} / {name:<9}{ratio.pooled:6.2f}   by round {rounds}, median {ratio.rounds_median:.2f}")
    samples = {name: tally.pooled() for name, tally in tallies.items()}
    width = min(shutil.get_terminal_size().columns, WIDEST)
    return "\n".join([*lines, "", *histogram(samples, rows=HISTOGRAM_ROWS, width=width)])


def _ratios(tallies: dict[str, Tally]) -> dict[str, Ratio]:
    if OURS not in tallies:
        return {}
    return {name: Ratio.of(tallies[OURS], tally) for name, tally in tallies.items() if name != OURS}


def _json(options: argparse.Namespace, track: Track, results: dict[int, dict[str, Tally]]) -> dict[str, object]:
    """Return the figures as plain data; times in microseconds, null where there is none."""
    return {
        "zookeeper": rawline.server_version(*track.servers[0]),
        "server": "given" if options.hosts else "real" if options.real or options.no_fsync else "memory",
        "fsync": options.real or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "hold": options.hold,
        "rounds": options.rounds,
        "handovers": options.handovers,
        "results": [
            {
                "workers": workers,
                "contestants": {
                    name: {
                        **_plain(Figures.of(tally.pooled())),
                        "overlaps": tally.overlaps,
                        "misordered": tally.misordered,
                        "round_medians": _numbers(tally.medians()),
                    }
                    for name, tally in tallies.items()
                },
                "ratios": {name: _plain(ratio) for name, ratio in _ratios(tallies).items()},
            }
            for workers, tallies in results.items()
        ],
    }


def _plain(record: Figures | Ratio) -> dict[str, object]:
    return {
        name: _numbers(value) if isinstance(value, list) else _numbers([value])[0]
        for name, value in dataclasses.asdict(record).items()
    }


def _numbers(values: Sequence[float]) -> list[float | None]:
    """Return `values` with None for each NaN, which JSON does not have."""
    return [None if math.isnan(value) else value for value in values]


if __name__ == "__main__":
    sys.exit(main())
