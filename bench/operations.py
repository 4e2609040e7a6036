"""Measure single operations: get, set, getChildren, many gets in flight, acquire and release of a free lock, the codec.

Run from the project's root::

    python bench/operations.py                  # on an in-memory server
    python bench/operations.py --real           # on a ZooKeeper that it starts, and fetches if necessary
    python bench/operations.py --hosts zk1:2181 --json figures.json

Each operation is done by zkwire, and by a raw blocking socket with hand-packed frames, in turn in one process: the
socket sends the same requests in the same writes and decodes as much of the answers.  Nothing in Python can be much
faster than that.  The contestants take turns in short rounds, so that a change of the machine's speed affects both;
only the ratios matter.  The codec's lines are without a connection: see codec.py.  ``CPU`` is the processor time of
this process for each operation, without the server's.
"""

import argparse
import asyncio
import collections
import gc
import os
import platform
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zkwire
from bench import codec, frames, rawline
from bench.figures import Figures, median
from bench.frames import RefusedError
from bench.rawline import RawSession
from bench.servers import add_server_options, kind_of, positive, say, scratch, serving, write_json
from bench.status import with_status
from bench.turns import SESSION_TIMEOUT
from recipes import Lock
from zkwire import Client
from zkwire.session.hosts import parse

DATA: Final = b"x" * 100
FEW, MANY = 10, 1000  # children of a node
KNOWN, NEW = "acquire, known path", "acquire, new path"


@dataclass(slots=True)
class Sample:
    """One contestant's results for one operation: nanoseconds for each, and processor time, by round."""

    rounds: list[list[int]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # microseconds

    def add(self, nanoseconds: list[int], cpu: float) -> None:
        """Add one round."""
        self.rounds.append(nanoseconds)
        self.cpu.append(cpu)

    def figures(self) -> Figures:
        """Return the figures of all rounds together."""
        return Figures.of([nanoseconds for one in self.rounds for nanoseconds in one])

    def medians(self) -> list[float]:
        """Return the median of each round, in microseconds."""
        return [Figures.of(one).median for one in self.rounds]


# Does one thing `count` times, and returns what each took in nanoseconds, for each name in the report.
Ours = Callable[[int], Awaitable[dict[str, list[int]]]]
Raw = Callable[[int], dict[str, list[int]]]


class OurOperations:
    """The operations as an application does them with zkwire, below the node `folder`."""

    def __init__(self, zk: Client, folder: str, in_flight: int) -> None:
        self._zk = zk
        self._folder = folder
        self._in_flight = in_flight
        self._lock = Lock(zk, f"{folder}/ours")
        self._locks = 0

    async def get(self, count: int) -> dict[str, list[int]]:
        """Get a node `count` times, one after the other."""
        return {"get": [await _timed(lambda: self._zk.get(f"{self._folder}/node")) for _ in range(count)]}

    async def set(self, count: int) -> dict[str, list[int]]:
        """Set a node `count` times, one after the other."""
        return {"set": [await _timed(lambda: self._zk.set(f"{self._folder}/node", DATA)) for _ in range(count)]}

    async def get_many(self, count: int) -> dict[str, list[int]]:
        """Get a node `count` times, with many requests in flight; each time is the batch's by its number."""
        path, size, took = f"{self._folder}/node", self._in_flight, []
        for _ in range(count // size):
            start = time.monotonic_ns()
            await asyncio.gather(*(self._zk.get(path) for _ in range(size)))
            took.append((time.monotonic_ns() - start) // size)
        return {f"get, {size} in flight": took}

    async def few_children(self, count: int) -> dict[str, list[int]]:
        """List a node with few children `count` times, one after the other."""
        return await self._children(FEW, count)

    async def many_children(self, count: int) -> dict[str, list[int]]:
        """List a node with many children `count` times, one after the other."""
        return await self._children(MANY, count)

    async def _children(self, size: int, count: int) -> dict[str, list[int]]:
        took = [await _timed(lambda: self._zk.get_children(f"{self._folder}/parent-{size}")) for _ in range(count)]
        return {f"get_children of {size:,}": took}

    async def lock_known(self, count: int) -> dict[str, list[int]]:
        """Acquire and release a free lock `count` times."""
        acquired, released = zip(*[await _acquire_and_release(self._lock) for _ in range(count)], strict=True)
        return {KNOWN: list(acquired), "release": list(released)}

    async def lock_new(self, count: int) -> dict[str, list[int]]:
        """Acquire and release `count` locks, each at a new path below a parent that exists."""
        took = []
        for _ in range(count):
            self._locks += 1
            took.append((await _acquire_and_release(Lock(self._zk, f"{self._folder}/ours-{self._locks}")))[0])
        return {NEW: took}

    async def codec(self, count: int) -> dict[str, list[int]]:
        """Encode a create, a get and a list, and decode their replies, `count` times each."""
        return codec.ours(count)


async def _timed(operation: Callable[[], Awaitable[object]]) -> int:
    start = time.monotonic_ns()
    await operation()
    return time.monotonic_ns() - start


async def _acquire_and_release(lock: Lock) -> tuple[int, int]:
    start = time.monotonic_ns()
    lease = await lock.acquire()
    acquired = time.monotonic_ns()
    await lease.release()
    return acquired - start, time.monotonic_ns() - acquired


class RawOperations:
    """The same operations on a raw blocking socket."""

    def __init__(self, session: RawSession, folder: str, in_flight: int) -> None:
        self._session = session
        self._folder = folder
        self._in_flight = in_flight
        self._locks = 0

    def get(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.get."""
        request, took = frames.get(f"{self._folder}/node"), []
        for _ in range(count):
            start = time.monotonic_ns()
            frames.node(self._session.call(request)[2])
            took.append(time.monotonic_ns() - start)
        return {"get": took}

    def set(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.set."""
        request, took = frames.set_data(f"{self._folder}/node", DATA), []
        for _ in range(count):
            start = time.monotonic_ns()
            self._session.call(request)
            took.append(time.monotonic_ns() - start)
        return {"set": took}

    def get_many(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.get_many."""
        request, size, took = frames.get(f"{self._folder}/node"), self._in_flight, []
        for _ in range(count // size):
            start = time.monotonic_ns()
            for body in self._session.call_all(request * size, size):
                frames.node(body)
            took.append((time.monotonic_ns() - start) // size)
        return {f"get, {size} in flight": took}

    def few_children(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.few_children."""
        return self._children(FEW, count)

    def many_children(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.many_children."""
        return self._children(MANY, count)

    def _children(self, size: int, count: int) -> dict[str, list[int]]:
        request, took = frames.children(f"{self._folder}/parent-{size}"), []
        for _ in range(count):
            start = time.monotonic_ns()
            found = [name.decode() for name in frames.names(self._session.call(request)[2])]
            took.append(time.monotonic_ns() - start)
            assert len(found) == size
        return {f"get_children of {size:,}": took}

    def lock_known(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.lock_known."""
        acquired, released = zip(*[self._acquire_and_release(f"{self._folder}/raw") for _ in range(count)], strict=True)
        return {KNOWN: list(acquired), "release": list(released)}

    def lock_new(self, count: int) -> dict[str, list[int]]:
        """As OurOperations.lock_new."""
        took = []
        for _ in range(count):
            self._locks += 1
            took.append(self._acquire_and_release(f"{self._folder}/raw-{self._locks}", is_new=True)[0])
        return {NEW: took}

    def _acquire_and_release(self, lock: str, *, is_new: bool = False) -> tuple[int, int]:
        start = time.monotonic_ns()
        requests = [frames.create(f"{lock}/n-", frames.EPHEMERAL_SEQUENTIAL), frames.children(lock)]
        if is_new:
            requests.insert(0, frames.create(lock, frames.CONTAINER))
        replies = [bytes(body) for body in self._session.call_all(b"".join(requests), len(requests))]
        ticket = replies[-2][4:]
        if len(frames.names(replies[-1])) != 1:
            raise RefusedError(f"{lock} is used by another client")
        acquired = time.monotonic_ns()
        self._session.call(frames.delete(ticket))
        return acquired - start, time.monotonic_ns() - acquired


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 if something could not be measured."""
    options = _options(arguments)
    with serving(options) as hosts:
        servers, chroot = parse(hosts)
        folder = f"{chroot}/zkwire-bench-{secrets.token_hex(6)}"
        version = rawline.server_version(*servers[0]) or "of unknown version"
        print(
            f"operations on ZooKeeper {version} at {servers[0]}{kind_of(options)}\n"
            f"Python {platform.python_version()}, {os.cpu_count()} cores;"
            f" {options.rounds} rounds of {options.count}",
            flush=True,
        )
        with scratch(servers[0], folder):
            results = _measure(str(servers[0]), folder, options)
        print(_report(results))
        report = {
            "zookeeper": version,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "rounds": options.rounds,
            "count": options.count,
            "operations": {name: _plain(*both) for name, both in results.items()},
        }
        write_json(options, report)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure single operations beside a raw blocking socket.")
    add = parser.add_argument
    add("--rounds", type=positive, default=10, metavar="N", help="rounds of each contestant (default: 10)")
    add("--count", type=positive, default=300, metavar="N", help="operations in each round (default: 300)")
    add("--in-flight", type=positive, default=1000, metavar="N", help="gets in flight (default: 1000)")
    add_server_options(parser)
    add("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    return parser.parse_args(arguments)


def _measure(server: str, folder: str, options: argparse.Namespace) -> dict[str, tuple[Sample, Sample]]:
    """Return the samples of zkwire and of the raw socket for each operation."""
    results: dict[str, tuple[Sample, Sample]] = {}
    host, _, port = server.rpartition(":")

    def add(contestant: int, took: dict[str, list[int]], cpu: float) -> None:
        # An acquire and its release are one thing with two names: the processor time is of both.
        for name, nanoseconds in took.items():
            results.setdefault(name, (Sample(), Sample()))[contestant].add(nanoseconds, cpu)

    # One event loop, which does nothing while the raw socket has its turn: for much less than the session timeout.
    with asyncio.Runner() as runner, RawSession(host, int(port)) as session:
        zk = runner.run(_connected(server))
        runner.run(zk.create(f"{folder}/node", DATA))
        rawline.make_path(session, f"{folder}/raw")
        for size in (FEW, MANY):
            parent = f"{folder}/parent-{size}"
            rawline.make_path(session, parent)
            creates = [frames.create(f"{parent}/child-{number:06}", frames.PERSISTENT) for number in range(size)]
            collections.deque(session.call_all(b"".join(creates), size), maxlen=0)
        ours = runner.run(_made(zk, folder, options.in_flight))
        raw = RawOperations(session, folder, options.in_flight)
        pairs: list[tuple[Ours, Raw, int]] = [
            (ours.get, raw.get, options.count),
            (ours.set, raw.set, options.count),
            (ours.get_many, raw.get_many, max(options.count // options.in_flight, 2) * options.in_flight),
            (ours.few_children, raw.few_children, options.count),
            (ours.many_children, raw.many_children, options.count),
            (ours.lock_known, raw.lock_known, options.count),
            (ours.lock_new, raw.lock_new, options.count),
            (ours.codec, codec.by_hand, options.count),
        ]
        for number in range(-1, options.rounds):  # the first one warms up the server, and does not count
            say("warming up" if number < 0 else f"round {number + 1} of {options.rounds}")
            for do_ours, do_raw, count in pairs:
                for contestant in (0, 1) if number % 2 else (1, 0):
                    gc.collect()
                    start = time.process_time_ns()
                    took = do_raw(count) if contestant else runner.run(_awaited(do_ours, count))
                    cpu = (time.process_time_ns() - start) / 1000 / count
                    if number >= 0:
                        add(contestant, took, cpu)
        runner.run(zk.close())
    return results


async def _connected(server: str) -> Client:
    return await zkwire.connect(server, session_timeout=SESSION_TIMEOUT)


async def _made(zk: Client, folder: str, in_flight: int) -> OurOperations:
    return OurOperations(zk, folder, in_flight)


async def _awaited(operation: Ours, count: int) -> dict[str, list[int]]:
    return await operation(count)


def _report(results: dict[str, tuple[Sample, Sample]]) -> str:
    lines = [
        "\nmicroseconds                    zkwire     p90   CPU        raw     p90   CPU   ratio of medians, by round"
    ]
    for name, (ours, raw) in results.items():
        cells = ""
        for sample in (ours, raw):
            figures = sample.figures()
            cells += f"{figures.median:9.1f}{figures.p90:8.1f}{median(sample.cpu):6.1f}  "
        ratios = _ratios(ours, raw)
        lines.append(f"  {name:<27}{cells} {median(ratios):5.2f}   {min(ratios):.2f} to {max(ratios):.2f}")
    new = _ratios(results[NEW][0], results[KNOWN][0])
    lines.append(f"  zkwire: new path / known path  {median(new):.2f}   {min(new):.2f} to {max(new):.2f}")
    lines.append("  The CPU of an acquire includes its release, and the CPU of a line of the codec all three lines.")
    return "\n".join(lines)


def _ratios(ours: Sample, other: Sample) -> list[float]:
    return [mine / theirs for mine, theirs in zip(ours.medians(), other.medians(), strict=True)]


def _plain(ours: Sample, raw: Sample) -> dict[str, object]:
    """Return the figures of both as plain data, times in microseconds."""
    ratios = _ratios(ours, raw)
    return {
        name: {**asdict(sample.figures()), "cpu": median(sample.cpu), "round_medians": sample.medians()}
        for name, sample in (("zkwire", ours), ("raw", raw))
    } | {"ratio": median(ratios), "round_ratios": ratios}


if __name__ == "__main__":
    sys.exit(main())
