"""Measure what happens with many at a time: waiters of a lock, watches of a node and of a client, nodes of a cache.

Run from the project's root::

    python bench/crowds.py                    # on an in-memory server
    python bench/crowds.py --real             # on a ZooKeeper that it starts, and fetches if necessary
    python bench/crowds.py --real --only waiters --waiters 1000,10000 --rounds 1 --json figures.json

Everything runs in one process and one event loop.  The lines and their floors, all on raw blocking sockets:

``N waiters enter``           N locks of one client are acquired while one is held, all at once: a create and a list of
                              the line for each, 100 at a time
``N waiters have their turn`` they acquire and release one after the other, for each: the deletes alone
``fan-out``                   one delete, until each of 100 clients that watch the node has its event: 100 sockets
``reconnect``                 a client with N watches moves to another connection, until its first answer there, which
                              comes when all watches are set again.  In place of the floor is one without watches
``cache``                     until a cache of 10,000 nodes is complete: a read of each node, 100 in flight, whose paths
                              are known; the cache asks for many nodes in one request, and can be faster
"""

import argparse
import asyncio
import collections
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zkwire
from bench import frames, rawline, rows
from bench.frames import RefusedError
from bench.rawline import RawSession
from bench.rows import Row
from bench.servers import add_server_options, kind_of, positive, say, scratch, serving, write_json
from bench.status import with_status
from recipes import Cache, Lock
from zkwire import Client, SessionState
from zkwire.session.hosts import Address, parse

WATCHERS: Final = 100
WATCHES: Final = 10_000
NODES: Final = 10_000
WARM_UP_WAITERS: Final = 100
IN_FLIGHT: Final = 100  # of the raw socket: a server reads no more requests while very many wait
SESSION_TIMEOUT: Final = 60.0  # seconds; the raw sockets block the loop while they have their turn


@dataclass(frozen=True, slots=True)
class Place:
    """The server, a node for this round, and the sizes."""

    server: Address
    folder: str
    waiters: Sequence[int]

    def connect(self) -> AbstractAsyncContextManager[Client]:
        """Return a client that is not yet connected."""
        return zkwire.connect(str(self.server), session_timeout=SESSION_TIMEOUT)


# Measures something in one round: adds figures and floors by name and unit.
Add = Callable[[str, str, float, float], None]


async def waiters(place: Place, add: Add) -> None:
    """Very many waiters of one lock."""
    for count in place.waiters:
        enter_floor, turn_floor = raw_line(place, f"{place.folder}/raw-{count}", count)
        path = f"{place.folder}/lock-{count}"
        async with place.connect() as zk:
            lease = await Lock(zk, path).acquire()

            async def turn(lock: Lock) -> None:
                await (await lock.acquire()).release()

            began = time.perf_counter()
            tasks = [asyncio.create_task(turn(Lock(zk, path))) for _ in range(count)]
            # Answers come in the order of the requests: with this one, those that made the tickets have come.
            while (await children_count(zk, path)) <= count:
                pass
            lease.check()
            add(f"{count:,} waiters enter", "µs each", (time.perf_counter() - began) * 1e6 / count, enter_floor)
            # What is left of looking ahead and of setting watches belongs to the turns.
            began = time.perf_counter()
            await lease.release()
            await asyncio.gather(*tasks)
            took = (time.perf_counter() - began) * 1e6 / count
            add(f"{count:,} waiters have their turn", "µs each", took, turn_floor)


async def children_count(zk: Client, path: str) -> int:
    """Return how many children a node has."""
    stat = await zk.exists(path)
    return stat.num_children if stat is not None else 0


def raw_line(place: Place, lock: str, count: int) -> tuple[float, float]:
    """Return the microseconds for each of as many creates and lists, and for each delete."""
    with RawSession(*place.server) as session:
        rawline.make_path(session, lock)
        enter = frames.create(f"{lock}/n-", frames.EPHEMERAL_SEQUENTIAL) + frames.children(lock)
        tickets: list[bytes] = []
        began = time.perf_counter()
        for size in chunks(count, IN_FLIGHT):
            for number, body in enumerate(session.call_all(enter * size, 2 * size)):
                if number % 2:
                    frames.names(body)
                else:
                    tickets.append(bytes(body[4:]))
        entered = time.perf_counter()
        for ticket in tickets:
            session.call(frames.delete(ticket))
        return (entered - began) * 1e6 / count, (time.perf_counter() - entered) * 1e6 / count


def chunks(count: int, size: int) -> Iterator[int]:
    """Return how large each part is when `count` are split into parts of at most `size`."""
    for first in range(0, count, size):
        yield min(size, count - first)


async def fan_out(place: Place, add: Add) -> None:
    """One deletion that many clients watch."""
    node = f"{place.folder}/watched"
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(place.connect()) for _ in range(WATCHERS)]
        await clients[0].create(node)
        watches = [(await zk.get_and_watch(node))[1] for zk in clients]
        began = time.perf_counter()
        deleted = asyncio.create_task(clients[0].delete(node))
        await asyncio.gather(*watches)
        took = (time.perf_counter() - began) * 1e3
        await deleted
    with ExitStack() as raw:
        sessions = [raw.enter_context(RawSession(*place.server)) for _ in range(WATCHERS)]
        with RawSession(*place.server) as session:
            rawline.make_path(session, node)
            for watcher in sessions:
                watcher.call(frames.watch(node.encode()))
            began = time.perf_counter()
            session.call(frames.delete(node.encode()))
            for watcher in sessions:
                watcher.wait_until_gone(node.encode())
            floor = (time.perf_counter() - began) * 1e3
    add(f"fan-out to {WATCHERS} clients", "ms", took, floor)


async def reconnect(place: Place, add: Add) -> None:
    """A client that moves to another connection, with and without watches."""
    bare = await _moved(place, 0)
    add(f"reconnect with {WATCHES:,} watches", "ms", await _moved(place, WATCHES), bare)


async def _moved(place: Place, count: int) -> float:
    async with place.connect() as zk:
        paths = [f"{place.folder}/absent-{number:06}" for number in range(count)]
        found = [
            await asyncio.gather(*(zk.exists_and_watch(path) for path in paths[i : i + 1000]))
            for i in range(0, count, 1000)
        ]
        states = zk.states()
        # The same server under another name: the client leaves the first one, because it is no longer listed.
        began = time.perf_counter()
        zk.set_hosts(f"{other_name(place.server.host)}:{place.server.port}")
        async for state in states:
            if state is SessionState.SUSPENDED:
                break
        await zk.exists(place.folder)
        took = (time.perf_counter() - began) * 1e3
        assert sum(map(len, found)) == count
        return took


def other_name(host: str) -> str:
    """Return another name of a host that is this machine.

    Raises:
        RefusedError: if the server refuses it.
    """
    names = {"127.0.0.1": "localhost", "localhost": "127.0.0.1"}
    if host not in names:
        raise RefusedError(f"reconnecting is measured on this machine only, and the server is at {host}")
    return names[host]


async def cache(place: Place, add: Add) -> None:
    """A cache of many nodes."""
    root = f"{place.folder}/cached"
    paths = [f"{root}/node-{number:06}" for number in range(NODES)]
    with RawSession(*place.server) as session:
        rawline.make_path(session, root)
        _call(session, [frames.create(path, frames.PERSISTENT) for path in paths])
    async with place.connect() as zk:
        began = time.perf_counter()
        async with Cache(zk, root) as cached:
            took = (time.perf_counter() - began) * 1e3
            assert len(cached.children(root) or ()) == NODES
    with RawSession(*place.server) as session:
        began = time.perf_counter()
        _call(session, [frames.get(path) for path in paths])
        floor = (time.perf_counter() - began) * 1e3
    add(f"cache of {NODES:,} nodes", "ms", took, floor)


def _call(session: RawSession, requests: Sequence[bytes]) -> None:
    """Send the frames, a part of them at a time, and read the answers."""
    for first in range(0, len(requests), IN_FLIGHT):
        part = requests[first : first + IN_FLIGHT]
        collections.deque(session.call_all(b"".join(part), len(part)), maxlen=0)


MEASURES: Final[dict[str, Callable[[Place, Add], Awaitable[None]]]] = {
    "waiters": waiters,
    "fan-out": fan_out,
    "reconnect": reconnect,
    "cache": cache,
}


def measure(server: Address, chroot: str, options: argparse.Namespace) -> list[Row]:
    """Return the figures of all rounds, after one that warms the server up."""
    found: dict[str, Row] = {}
    for number in range(-1, options.rounds):
        for name in options.only:
            say(f"{'warming up' if number < 0 else f'round {number + 1} of {options.rounds}'}: {name}")

            def add(title: str, unit: str, figure: float, floor: float, number: int = number) -> None:
                if number >= 0:
                    row = found.setdefault(title, Row(title, unit))
                    row.rounds.append(figure)
                    row.floor.append(floor)

            folder = f"{chroot}/zkwire-bench-{secrets.token_hex(6)}"
            with scratch(server, folder):
                sizes = [min(*options.waiters, WARM_UP_WAITERS)] if number < 0 else options.waiters
                asyncio.run(_awaited(MEASURES[name](Place(server, folder, sizes), add)))
    return list(found.values())


async def _awaited(measuring: Awaitable[None]) -> None:
    await measuring


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 if something could not be measured."""
    parser = argparse.ArgumentParser(description="Measure many waiters, watches and nodes.")
    add = parser.add_argument
    add("--rounds", type=positive, default=3, metavar="N", help="rounds (default: 3)")
    add("--waiters", type=_sizes, default=[1000], metavar="N,...", help="waiters (default: 1000)")
    names = list(MEASURES)
    add("--only", choices=names, nargs="+", default=names, help="what to measure (default: all)")
    add("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    with serving(options) as hosts:
        (server, *_), chroot = parse(hosts)
        print(f"crowds on ZooKeeper {rawline.server_version(*server)}{kind_of(options)}", flush=True)
        found = measure(server, chroot, options)
    print("\n".join(rows.table(found)))
    write_json(options, rows.plain(found))
    return 0


def _sizes(text: str) -> list[int]:
    return [positive(size) for size in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
