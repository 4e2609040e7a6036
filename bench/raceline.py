"""What the command lines of the hand-over benchmarks have in common: options, and what a report says of the run."""

import argparse
import math
import os
import platform
from pathlib import Path

from bench import rawline
from bench.servers import positive
from bench.track import LONGEST_HOLD, Track


def add_race_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the races are run, and where the figures go."""
    add = parser.add_argument
    add("--workers", type=_counts, default=[2, 8, 32], metavar="N,...", help="processes in the line (default: 2,8,32)")
    add("--hold", type=_hold, default=0.002, metavar="S", help="seconds for which each owner holds (default: 0.002)")
    add("--handovers", type=positive, default=500, metavar="N", help="hand-overs in each race (default: 500)")
    add("--rounds", type=positive, default=3, metavar="N", help="races of each contestant (default: 3)")
    add("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    add("--svg", type=Path, metavar="FILE", help="draw the distributions into a file as well")


def chosen(text: str, among: list[str]) -> list[str]:
    """Return the names in `text`, separated by commas.

    Raises:
        ArgumentTypeError: if there is another one.
    """
    names = list(dict.fromkeys(text.split(",")))
    if not set(among) >= set(names):
        raise argparse.ArgumentTypeError(f"{text!r}: the contestants are {', '.join(among)}")
    return names


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


def title(options: argparse.Namespace, track: Track, kind: str) -> str:
    """Return the heading of a report; `kind` says what is special about the servers."""
    version = rawline.server_version(*track.servers[0]) or "of unknown version"
    servers = ", ".join(map(str, track.servers))
    return (
        f"lock hand-over on ZooKeeper {version} at {servers}{kind}\n"
        f"Python {platform.python_version()}, {os.cpu_count()} cores; "
        f"hold {options.hold * 1000:g} ms, {options.rounds} rounds of {options.handovers} hand-overs"
    )


def plain(
    options: argparse.Namespace, track: Track, server: str, results: list[dict[str, object]]
) -> dict[str, object]:
    """Return the whole report as plain data, `results` from `tally.plain`."""
    return {
        "zookeeper": rawline.server_version(*track.servers[0]),
        "server": server,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "hold": options.hold,
        "rounds": options.rounds,
        "handovers": options.handovers,
        "results": results,
    }
