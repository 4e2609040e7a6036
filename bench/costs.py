"""Measure what zkwire costs before it does anything: the time of its import, and the memory of what it keeps.

Run from the project's root::

    python bench/costs.py                     # on an in-memory server
    python bench/costs.py --real              # on a ZooKeeper that it starts, and fetches if necessary
    python bench/costs.py --hosts zk1:2181 --json figures.json

An import is timed in a new process each time, after a first one that writes the compiled files.  Its floor is the
import of asyncio alone.  Memory is what `tracemalloc` counts for many of a kind, divided by their number; the buffers
of the kernel are not in it.  Its floors are the least that any program on asyncio would keep: a connection with a
protocol that does nothing for a client, a future in a dict for a watch, a task that waits for a future for a request
under way.
"""

import argparse
import asyncio
import gc
import os
import platform
import secrets
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zkwire
from bench import rows
from bench.rawline import server_version
from bench.rows import Row
from bench.servers import ROOT, add_server_options, kind_of, positive, say, scratch, serving, write_json
from bench.status import with_status
from recipes import Lease, Lock
from zkwire import Client
from zkwire.session.hosts import parse

IMPORT: Final = "import time; began = time.perf_counter(); import {0}; print((time.perf_counter() - began) * 1000)"
CLIENTS: Final = 50
HELD: Final = 500
MANY: Final = 5000
SESSION_TIMEOUT: Final = 30.0  # seconds; tracemalloc slows everything down


def import_time(module: str) -> float:
    """Return how many milliseconds the import of a module takes in a new process."""
    writing = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", IMPORT.format(module)]
    done = subprocess.run(command, cwd=ROOT, env=writing, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


async def memory_of(count: int, make: Callable[[], Awaitable[object]]) -> float:
    """Return how many bytes each of `count` things takes that `make` makes, and which live until it returns."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = await make()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        assert kept is not None
        return grown / count
    finally:
        tracemalloc.stop()


async def client(server: str) -> float:
    """Bytes of a connected client."""
    async with AsyncExitStack() as stack:

        async def make() -> list[Client]:
            return [
                await stack.enter_async_context(zkwire.connect(server, session_timeout=SESSION_TIMEOUT))
                for _ in range(CLIENTS)
            ]

        return await memory_of(CLIENTS, make)


async def connection(server: str) -> float:
    """Bytes of an asyncio connection whose protocol does nothing."""
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    transports: list[asyncio.BaseTransport] = []

    async def make() -> list[asyncio.BaseTransport]:
        transports.extend(
            [(await loop.create_connection(asyncio.Protocol, host, int(port)))[0] for _ in range(CLIENTS)]
        )
        return transports

    try:
        return await memory_of(CLIENTS, make)
    finally:
        for transport in transports:
            transport.close()


async def locks(zk: Client, folder: str) -> float:
    """Bytes of a Lock that is not in use."""

    async def make() -> list[Lock]:
        return [Lock(zk, f"{folder}/lock-{number}") for number in range(MANY)]

    return await memory_of(MANY, make)


async def held_locks(zk: Client, folder: str) -> float:
    """Bytes of a Lock and its Lease while it is held."""
    leases: list[Lease] = []

    async def make() -> list[Lease]:
        taken = [Lock(zk, f"{folder}/held-{number}") for number in range(HELD)]
        leases.extend(await asyncio.gather(*(lock.acquire() for lock in taken)))
        return leases

    try:
        return await memory_of(HELD, make)
    finally:
        await asyncio.gather(*(lease.release() for lease in leases))


async def watches(zk: Client, folder: str) -> float:
    """Bytes of a one-shot watch that waits."""

    async def make() -> list[object]:
        paths = (f"{folder}/watched-{number}" for number in range(MANY))
        return [(await zk.exists_and_watch(path))[1] for path in paths]

    return await memory_of(MANY, make)


async def futures() -> float:
    """Bytes of a future in a dict under a path."""
    loop = asyncio.get_running_loop()

    async def make() -> dict[str, asyncio.Future[None]]:
        return {f"/zkwire-bench-000000000000/watched-{number}": loop.create_future() for number in range(MANY)}

    return await memory_of(MANY, make)


async def calls(zk: Client, folder: str) -> float:
    """Bytes of a task that waits for the answer to a get: written or queued, and not answered."""
    tasks: list[asyncio.Task[object]] = []

    async def make() -> list[asyncio.Task[object]]:
        tasks.extend(asyncio.create_task(_get(zk, folder)) for _ in range(MANY))
        await asyncio.sleep(0)  # one turn of the loop: every request is made, and no answer is read
        return tasks

    try:
        return await memory_of(MANY, make)
    finally:
        await asyncio.gather(*tasks)


async def _get(zk: Client, path: str) -> object:
    return await zk.get(path)


async def waiting_tasks() -> float:
    """Bytes of a task that waits for a future."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    awaited: list[asyncio.Future[None]] = []

    async def wait() -> None:
        future = loop.create_future()
        awaited.append(future)
        await future

    async def make() -> list[asyncio.Task[None]]:
        tasks.extend(asyncio.create_task(wait()) for _ in range(MANY))
        await asyncio.sleep(0)
        return tasks

    try:
        return await memory_of(MANY, make)
    finally:
        for future in awaited:
            future.set_result(None)
        await asyncio.gather(*tasks)


async def measure_memory(server: str, folder: str, found: dict[str, Row]) -> None:
    """Measure one round of memory."""

    def add(name: str, figure: float, floor: float | None = None) -> None:
        row = found.setdefault(name, Row(name, "bytes"))
        row.rounds.append(figure)
        if floor is not None:
            row.floor.append(floor)

    add("a connected client", await client(server), await connection(server))
    for name, one, floor in (
        ("a lock, not in use", locks, None),
        ("a lock that is held", held_locks, None),
        ("a watch", watches, futures),
        ("a request under way, with its task", calls, waiting_tasks),
    ):
        # A client of its own for each: what one leaves would be counted with the next.
        async with zkwire.connect(server, session_timeout=SESSION_TIMEOUT) as zk:
            add(name, await one(zk, folder), await floor() if floor else None)


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 if something could not be measured."""
    parser = argparse.ArgumentParser(description="Measure the time of an import, and memory.")
    add = parser.add_argument
    add("--rounds", type=positive, default=5, metavar="N", help="rounds (default: 5)")
    add("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    found: dict[str, Row] = {}
    with serving(options) as hosts:
        (server, *_), chroot = parse(hosts)
        print(f"costs on ZooKeeper {server_version(*server)}{kind_of(options)}, Python {platform.python_version()}")
        for number in range(-1, options.rounds):
            say("warming up" if number < 0 else f"round {number + 1} of {options.rounds}")
            for module in ("zkwire", "recipes"):
                floor, figure = import_time("asyncio"), import_time(module)
                if number >= 0:
                    row = found.setdefault(module, Row(f"import {module}", "ms"))
                    row.rounds.append(figure)
                    row.floor.append(floor)
            if number >= 0:
                folder = f"{chroot}/zkwire-bench-{secrets.token_hex(6)}"
                with scratch(server, folder):
                    asyncio.run(measure_memory(str(server), folder, found))
    print("\n".join(rows.table(list(found.values()))))
    write_json(options, rows.plain(list(found.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
