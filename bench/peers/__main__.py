"""Measure how long the locks of other clients take to change hands, beside ours and the floor.

Run from the project's root::

    python -m bench.peers                        # 2, 8 and 32 processes, on a ZooKeeper that it starts
    python -m bench.peers --hosts zk1:2181 --json figures.json --svg picture.svg
    python -m bench.peers --contestants zkwire,floor,kazoo,go-zk

The contestants are zkwire's Lock, the ``floor`` of raw sockets (see rawline.py), and the locks of kazoo, aiozk, go-zk,
kezhuw's Rust client (``rust``) and Curator.  They are fetched and built in a folder that is thrown away at the end, and
take turns in short rounds on one server with the same number of processes and the same hold.  A client whose tools are
missing, or that fails, is named in a line and left out.  None of them is a dependency of zkwire.

A hand-over is the time from the owner's call of release to the return of the next owner's acquire; it counts when the
next owner was already waiting.  Three tables say what was measured: in races of processes that have just started and
are connected, the first turn of each process, and all turns; then turns of processes that are warm.

The exit status is 1 if zkwire's lock had two owners at a time, 2 if something could not be measured.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

# So that this folder runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import picture, raceline, tally
from bench.crew import WorkerFailedError
from bench.disturbance import processor_times, stolen
from bench.peers import builds
from bench.peers.builds import MANIFESTS, Command, MissingError
from bench.peers.teams import Teams
from bench.servers import add_server_options, kind_of, say, serving, write_json
from bench.status import with_status
from bench.tally import FLOOR, OURS
from bench.track import WARM_UP_TURNS, laid_out

BEGINS: Final = 3  # races of each contestant with processes that have just started
WARM_UP_RACES: Final = 3  # of each contestant afterwards, on whatever server: some of them run on a JVM, too


def _ours(name: str) -> Command:
    return [sys.executable, "-m", "bench.peers.programs.ours", name]


def _python(package: str, folder: Path) -> Command:
    return [builds.python_with(package, folder), "-m", f"bench.peers.programs.{package}_lock"]


PREPARE: Final[dict[str, Callable[[Path], Command]]] = {
    OURS: lambda _: _ours(OURS),
    FLOOR: lambda _: _ours(FLOOR),
    "kazoo": lambda folder: _python("kazoo", folder),
    "aiozk": lambda folder: _python("aiozk", folder),
    "go-zk": lambda folder: builds.with_go_zk(MANIFESTS / "go" / "main.go", folder),
    "rust": lambda folder: builds.with_rust_client(MANIFESTS / "rust" / "main.rs", folder),
    "curator": lambda folder: builds.with_curator(MANIFESTS / "curator" / "Contestant.java", folder),
}
NEEDED: Final = (OURS, FLOOR)
PARTS: Final = ("the first turn of each process", "from the first turn on", "warm")


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _options(arguments)
    options.real = not (options.hosts or options.no_fsync)
    with tempfile.TemporaryDirectory(prefix="zkwire-peers-") as folder:
        commands = prepared(options.contestants, options.folder or Path(folder))
        return _measure(options, commands)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Measure how long other clients' locks take to change hands."
    )
    raceline.add_race_options(parser)
    add, names = parser.add_argument, list(PREPARE)
    add(
        "--contestants",
        type=lambda text: raceline.chosen(f"{','.join(NEEDED)},{text}", names),
        default=names,
        metavar="NAME,...",
        help=f"which to run beside {' and '.join(NEEDED)} (default: all of {','.join(names)})",
    )
    add("--folder", type=Path, metavar="FOLDER", help="keep here what is fetched and built, for the next time")
    add_server_options(parser)
    return parser.parse_args(arguments)


def prepared(names: Sequence[str], folder: Path) -> dict[str, Command]:
    """Fetch and build what there is, and return the command of each."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = {}
    for name in names:
        say(f"{name}: fetch and build")
        try:
            commands[name] = PREPARE[name](folder.resolve())
        except MissingError as error:
            say(f"{name} is left out: {error}")
    return commands


def _measure(options: argparse.Namespace, commands: dict[str, Command]) -> int:
    names = list(commands)
    results, wrong = [], 0
    with (
        serving(options) as hosts,
        laid_out(hosts, options.hold, options.handovers) as track,
        Teams(commands) as teams,
    ):
        print(raceline.title(options, track, kind_of(options)), flush=True)
        # The server's own JVM is warm before the first contestant begins.
        for _ in range(WARM_UP_RACES):
            track.race(teams.race, FLOOR, max(options.workers), hold=0.0)
        for workers in options.workers:
            before = processor_times()
            begins = track.rounds(teams.race_anew, names, workers, min(BEGINS, options.rounds), NEEDED)
            begin = tally.collected(begins, names, (0, workers), (0, options.handovers))
            for name in list(names):
                say(f"{workers} workers: {name} warms up")
                try:
                    for _ in range(WARM_UP_RACES):
                        track.race(teams.race, name, workers, hold=0.0)
                except WorkerFailedError as error:
                    if name in NEEDED:
                        raise
                    say(f"{name} is left out: {error}")
                    names.remove(name)
            races = track.rounds(teams.race, names, workers, options.rounds, NEEDED)
            (found,) = tally.collected(races, names, (WARM_UP_TURNS * workers, options.handovers))
            taken = stolen(before, processor_times())
            parts = dict(zip(PARTS, (*begin, found), strict=True))
            print(tally.heading(workers, taken))
            for part, tallies in parts.items():
                print("\n".join(tally.peers_table(part, tallies)), flush=True)
                wrong += tallies[OURS].overlaps
            results.append(tally.plain(workers, found, taken, {part: parts[part] for part in PARTS[:2]}))
        report = raceline.plain(options, track, "given" if options.hosts else f"real{kind_of(options)}", results)
    write_json(options, report)
    if options.svg:
        options.svg.write_text(picture.drawn(report), encoding="utf-8")
    if wrong:
        say("zkwire's lock had two owners at a time")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
