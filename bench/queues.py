"""Measure how many items a queue and additions a counter get through in a second, and how long a division takes.

Run from the project's root::

    python bench/queues.py                    # on an in-memory server
    python bench/queues.py --no-fsync         # on a ZooKeeper that it starts
    python bench/queues.py --hosts zk1:2181 --rounds 9 --json figures.json

One process, whose clients and tasks share an event loop.  Beside each line is its floor: the bare requests that
the operation cannot do without, sent one after the other by one client.  The lines take turns in short rounds, so that
a change of the machine's speed affects all of them; of the rounds, the medians are printed.
"""

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zkwire
from bench.figures import median
from bench.servers import add_server_options, positive, serving, write_json
from bench.status import with_status
from recipes import Counter, Queue
from recipes.partitioner import division
from zkwire import Client

WORK: Final = 0.01  # seconds that a claimed item takes
DATA: Final = b"x" * 100
PARTITIONS, MEMBERS = 10_000, 100

Operation = Callable[[], Awaitable[object]]


class Track:
    """The server, a client of it, and for how many seconds each line is measured in a round."""

    def __init__(self, hosts: str, zk: Client, seconds: float) -> None:
        self.hosts = hosts
        self.zk = zk
        self.seconds = seconds

    def path(self) -> str:
        """Return a path that nothing has used."""
        return f"/bench-queues-{secrets.token_hex(8)}"

    async def rate(self, operations: Sequence[Operation]) -> float:
        """Do each of the operations again and again, in a task for each; return how many are done in a second."""
        done = 0
        began = time.perf_counter()

        async def repeat(operation: Operation) -> None:
            nonlocal done
            while time.perf_counter() - began < self.seconds:
                await operation()
                done += 1

        await asyncio.gather(*(repeat(operation) for operation in operations))
        return done / (time.perf_counter() - began)

    async def filled(self, depth: int) -> Queue:
        """Return a queue of `depth` items."""
        queue = Queue(self.zk, self.path())
        for first in range(0, depth, 1000):
            await queue.put_many([DATA] * min(1000, depth - first))
        return queue


async def puts(track: Track) -> float:
    queue = Queue(track.zk, track.path())
    return await track.rate([lambda: queue.put(DATA)])


async def puts_floor(track: Track) -> float:
    """A create alone: a put whose answer is lost would be lost or doubled."""
    path = track.path()
    await track.zk.create(path)
    return await track.rate([lambda: track.zk.create(f"{path}/entry-100-", DATA, sequential=True)])


async def gets(track: Track, tasks: int, depth: int) -> float:
    queue = await track.filled(depth)
    return await track.rate([lambda: queue.get(within=0)] * tasks)


async def gets_floor(track: Track) -> float:
    """A read of an item, and the transaction that takes it: which items there are is known."""
    queue = await track.filled(4000)
    await track.zk.ensure_path(f"{queue.path}/taken")
    names = iter(sorted(await track.zk.get_children(f"{queue.path}/entries")))

    async def take() -> None:
        name = next(names)
        await track.zk.get(f"{queue.path}/entries/{name}")
        async with track.zk.transaction() as transaction:
            transaction.create(f"{queue.path}/taken/{name}", ephemeral=True)
            transaction.delete(f"{queue.path}/entries/{name}")

    return await track.rate([take])


async def claims(track: Track, tasks: int) -> float:
    queue = await track.filled(5_000)

    async def handle() -> None:
        async with queue.claim(within=0):
            await asyncio.sleep(WORK)

    return await track.rate([handle] * tasks)


async def additions(track: Track, clients: int, tasks: int = 1) -> float:
    path = track.path()
    async with AsyncExitStack() as stack:
        zks = [await stack.enter_async_context(zkwire.connect(track.hosts)) for _ in range(clients)]
        counters = [Counter(zk, path) for zk in zks]
        await counters[0].add(0)
        return await track.rate([counter.add for counter in counters] * tasks)


async def additions_floor(track: Track) -> float:
    """A setData alone: two clients would overwrite each other's additions."""
    path = track.path()
    await track.zk.create(path)
    return await track.rate([lambda: track.zk.set(path, bytes(8))])


async def divisions(track: Track) -> float:
    """Divisions in a second of processor time; the event loop does nothing else meanwhile."""
    partitions = [str(number) for number in range(PARTITIONS)]
    members = {f"host-{number}": 1 for number in range(MEMBERS)}
    began = time.process_time()
    division(partitions, members)
    return 1 / (time.process_time() - began)


LINES: Final[dict[str, Callable[[Track], Awaitable[float]]]] = {
    "put": puts,
    "put, floor": puts_floor,
    "get, 1 task": lambda track: gets(track, 1, 5_000),
    "get, 8 tasks": lambda track: gets(track, 8, 10_000),
    "get, 32 tasks": lambda track: gets(track, 32, 20_000),
    "get, 1 task, 10,000 deep": lambda track: gets(track, 1, 10_000),
    "get, floor": gets_floor,
    "claim with 10 ms of work, 1 task": lambda track: claims(track, 1),
    "claim with 10 ms of work, 32 tasks": lambda track: claims(track, 32),
    "add, 1 client": lambda track: additions(track, 1),
    "add, 16 clients": lambda track: additions(track, 16),
    "add, 1 client, 32 tasks": lambda track: additions(track, 1, 32),
    "add, floor": additions_floor,
    "division of 10,000 by 100": divisions,
}


async def measure(hosts: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the figures of each line, one for each round."""
    rates: dict[str, list[float]] = {name: [] for name in LINES if not options.only or options.only in name}
    async with zkwire.connect(hosts, session_timeout=30.0) as zk:
        track = Track(hosts, zk, options.seconds)
        for number in range(options.rounds + 1):
            for name, figures in rates.items():
                rate = await LINES[name](track)
                if number:  # the first round warms the server up
                    figures.append(rate)
            for child in await zk.get_children("/"):
                if child.startswith("bench-queues-"):
                    await zk.delete_tree(f"/{child}")
    return rates


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Measure queues, counters and divisions.")
    add = parser.add_argument
    add("--rounds", type=positive, default=5, metavar="N", help="how many rounds (default: 5)")
    add("--seconds", type=float, default=1.0, help="for how long each line is measured in a round (default: 1)")
    add("--only", default="", metavar="TEXT", help="the lines whose names contain the text")
    add("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    with serving(options) as hosts:
        rates = asyncio.run(measure(hosts, options))
    for name, figures in rates.items():
        print(f"{name:36} {median(figures):8.0f} in a second    {' '.join(f'{rate:.0f}' for rate in figures)}")
    write_json(options, {name: {"median": median(figures), "rounds": figures} for name, figures in rates.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
