"""Measure how many items the queues of kazoo put and take in a second, beside ours.

Run from the project's root::

    python -m bench.peers.queues                    # on a ZooKeeper that it starts
    python -m bench.peers.queues --no-fsync --rounds 9 --json figures.json

The contestants are zkwire's Queue, by `get` and by `claim`, and kazoo's Queue and LockingQueue, which is fetched into a
folder that is thrown away at the end.  `get` of either Queue takes an item at most once, `claim` and LockingQueue (its
`get` and `consume`) at least once.  They take turns in short rounds on one server; each round begins with a new queue.
A figure is the number of items divided by the time from the first call to the last return, of all processes.

A contestant's program gets its orders as the program of a lock does, see lines.py: the order's lock is the path of the
queue, and a turn is an item put or taken, or a number of items put at once.
"""

import argparse
import asyncio
import itertools
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import zkwire
from bench.disturbance import processor_times, stolen
from bench.figures import median
from bench.peers import builds
from bench.peers.builds import Command
from bench.peers.teams import Teams
from bench.servers import add_server_options, kind_of, positive, say, serving, write_json
from bench.status import with_status
from bench.turns import ITEMS_AT_ONCE, Order
from zkwire.session.hosts import Address, parse

OURS: Final = "zkwire"
ITEMS: Final = 400  # that are put or taken in one measurement
_FOLDER: Final = f"/bench-peer-queues-{secrets.token_hex(8)}"


class Shape(NamedTuple):
    """What is measured: puts or gets, by how many processes, in a queue of how many items at the beginning."""

    verb: str
    processes: int
    depth: int

    def __str__(self) -> str:
        several = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"{self.verb}, {several}" + (f", {self.depth:,} deep" if self.depth > ITEMS else "")


SHAPES: Final = (
    Shape("put", 1, 0),
    Shape("put", 4, 0),
    Shape("get", 1, ITEMS),
    Shape("get", 4, ITEMS),
    Shape("get", 1, 10_000),
)
# Of each contestant: the words by which its program is asked to put many items, to put one, and to take one.
VERBS: Final[dict[str, dict[str, list[str]]]] = {
    OURS: {"fill": ["fill"], "put": ["put"], "get": ["get"]},
    "zkwire, claim": {"fill": ["fill"], "get": ["claim"]},
    "kazoo Queue": {verb: ["Queue", verb] for verb in ("fill", "put", "get")},
    "kazoo LockingQueue": {verb: ["LockingQueue", verb] for verb in ("fill", "put", "get")},
}


def rate(teams: Teams, name: str, server: Address, path: str, shape: Shape) -> float:
    """Return how many items a contestant puts or takes in a second."""

    def orders(verb: str, processes: int, turns: int) -> list[Order]:
        return [Order(f"{name}: {verb}", *server, path, turns, 0.0)] * processes

    if shape.depth:
        teams.race(orders("fill", 1, shape.depth // ITEMS_AT_ONCE))
    turns = teams.race(orders(shape.verb, shape.processes, ITEMS // shape.processes))
    return ITEMS * 1e9 / (max(turn.released for turn in turns) - min(turn.acquire_called for turn in turns))


async def _remove(hosts: str) -> None:
    async with zkwire.connect(hosts) as zk:
        if await zk.exists(_FOLDER) is not None:
            await zk.delete_tree(_FOLDER)


def measure(hosts: str, commands: Mapping[str, Command], rounds: int) -> dict[Shape, dict[str, list[float]]]:
    """Return the figures of each shape and contestant, one for each round."""
    server = parse(hosts)[0][0]
    found: dict[Shape, dict[str, list[float]]] = {
        shape: {name: [] for name, verbs in VERBS.items() if shape.verb in verbs} for shape in SHAPES
    }
    numbers = itertools.count()
    with Teams(commands) as teams:
        for played in range(rounds + 1):
            say(f"round {played} of {rounds}" if played else "all warm up")
            try:
                for shape, rates in found.items():
                    for name in rates:
                        figure = rate(teams, name, server, f"{_FOLDER}/{next(numbers)}", shape)
                        if played:
                            rates[name].append(figure)
            finally:  # the server may be one that others use
                asyncio.run(_remove(hosts))
    return found


def table(found: Mapping[Shape, Mapping[str, Sequence[float]]]) -> list[str]:
    """Return the lines of a table: the medians of the rounds, and how many times as fast ours is in the same round."""
    lines = [" " * 30 + "".join(f"{name:>24}" for name in VERBS)]
    for shape, rates in found.items():
        cells = []
        for name in VERBS:
            if name not in rates:
                cells.append("")
            elif name == OURS:
                cells.append(f"{median(rates[name]):.0f}")
            else:
                times = median([ours / theirs for ours, theirs in zip(rates[OURS], rates[name], strict=True)])
                cells.append(f"{median(rates[name]):.0f} ({times:.2f} x)")
        lines.append(f"{shape!s:30}" + "".join(f"{cell:>24}" for cell in cells))
    return lines


def _commands(folder: Path) -> dict[str, Command]:
    """Return the command of each contestant for each of its verbs.

    Raises:
        MissingError: if something that is needed is missing.
    """
    programs = "bench.peers.programs"
    ours = [sys.executable, "-m", f"{programs}.queue_ours"]
    theirs = [builds.python_with("kazoo", folder), "-m", f"{programs}.queue_kazoo"]
    return {
        f"{name}: {verb}": [*(theirs if name.startswith("kazoo") else ours), *words]
        for name, verbs in VERBS.items()
        for verb, words in verbs.items()
    }


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.queues", description="Measure the queues of kazoo beside ours."
    )
    add = parser.add_argument
    add("--rounds", type=positive, default=5, metavar="N", help="how many rounds (default: 5)")
    add("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    add("--folder", type=Path, metavar="FOLDER", help="keep here what is fetched, for the next time")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    options.real = not (options.hosts or options.no_fsync)
    with tempfile.TemporaryDirectory(prefix="zkwire-peers-") as thrown_away:
        folder = (options.folder or Path(thrown_away)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            commands = _commands(folder)
        except builds.MissingError as error:
            say(f"kazoo cannot be measured: {error}")
            return 2
        with serving(options) as hosts:
            before = processor_times()
            found = measure(hosts, commands, options.rounds)
            taken = stolen(before, processor_times())
    share = "" if taken is None else f"; the host took {taken:.1%} of the processors' time"
    print(f"items in a second, medians of {options.rounds} rounds of {ITEMS}{kind_of(options)}{share}")
    print("\n".join(table(found)))
    write_json(options, {str(shape): rates for shape, rates in found.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
