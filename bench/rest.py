"""Measure what clients cost an ensemble while they do nothing: without a lock, waiting for one, and holding one.

Run from the project's root::

    python bench/rest.py                          # starts three servers, and fetches them and kazoo if necessary
    python bench/rest.py --without-kazoo --clients 60 --json figures.json

Each client is pinned to one of the three servers, which have as many clients each.  All figures but the least certainty
are for each client and each session timeout:

``requests``    that a client has sent, its own pings among them, and how many of them were pings, syncs and writes
``packets``     that the servers have received: requests, and what is sent on connections beside the client's own
``committed``   transactions of the whole ensemble; and the writes of the clients on followers, and on the leader
``least``       the least certainty of any lease, at looks that are a 200th of the timeout apart, as a share of the
                timeout
``processor``   milliseconds of the servers' processor time, less what they take without any client

``idle`` are clients without a lock, ``waiters`` wait for one holder of one lock, ``holders`` have a lock each, and
so have ``kazoo``'s clients, in a process of their own.  Each is left alone for two timeouts before it is measured.
"""

import argparse
import asyncio
import collections
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zkwire
from bench.crew import START_TIME_LIMIT, WorkerFailedError
from bench.disturbance import processor_times, stolen
from bench.peers import builds
from bench.servers import ROOT, fetch_zookeeper, positive, say, write_json
from bench.status import with_status
from recipes import Lease, Lock
from zkwire import Client
from zkwire.testing import EnsembleServer, RealEnsemble
from zkwire.testing.real.server import QUICK_START

SERVERS: Final = 3
TICK: Final = 2.0  # seconds, as in ZooKeeper's sample configuration
# The servers look for empty containers once a day and not once a minute: the locks of one phase must not be deleted in
# the next one.
JVM: Final = (*QUICK_START, "-Dznode.container.checkIntervalMs=86400000")
LINE: Final = "/rest/line"
KAZOO: Final = "kazoo"
NOTHING: Final = "no client"
READS: Final = {"exists", "getData", "getChildren", "getChildren2", "multiRead", "setWatches", "setWatches2"}
_PROCESSOR: Final = os.sysconf("SC_CLK_TCK")


class Counts(zkwire.Observer):
    """The requests of one client, by their kinds."""

    def __init__(self) -> None:
        self.done = collections.Counter[str]()

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        kind = operation if operation in ("ping", "sync") else "read" if operation in READS else "write"
        self.done[kind] += 1


@dataclass(frozen=True, slots=True)
class Resting:
    """One client: what it has sent, and whether it is pinned to the leader."""

    zk: Client
    counts: Counts
    is_on_leader: bool


@dataclass(frozen=True, slots=True)
class Meters:
    """What the servers have counted up to a moment; `processor` is in seconds."""

    at: float
    zxid: int
    packets: int
    processor: float


@dataclass(slots=True)
class Phase:
    """The figures of one kind of clients, as the top of this file says; NaN where there is none.

    `processor` is in milliseconds for all clients and one timeout, and what the servers take without any is in it.
    """

    clients: int
    requests: float = math.nan
    kinds: dict[str, float] = field(default_factory=dict)
    packets: float = math.nan
    committed: float = math.nan
    committed_on_followers: float = math.nan
    committed_on_leader: float = math.nan
    least: float = math.nan
    processor: float = math.nan


@dataclass(frozen=True, slots=True)
class Site:
    """An ensemble that runs, its leader, and what the command line says: `timeout` and `seconds` are in seconds."""

    ensemble: RealEnsemble
    leader: EnsembleServer
    clients: int
    timeout: float
    seconds: float

    async def meters(self) -> Meters:
        """Read all counters."""
        servers = self.ensemble.servers
        words = [await server.four_letter_word("mntr") for server in servers]
        status = await self.leader.four_letter_word("srvr")
        return Meters(
            time.monotonic(),
            int(_number(r"^Zxid: 0x([0-9a-f]+)$", status), 16),
            sum(int(_number(r"^zk_packets_received\t(\d+)$", said)) for said in words),
            sum(processor_time(server.pid) for server in servers),
        )

    @asynccontextmanager
    async def pinned(self) -> AsyncIterator[list[Resting]]:
        """Give clients without a lock."""
        servers = self.ensemble.servers
        async with AsyncExitStack() as stack:

            async def one(number: int) -> Resting:
                server, counts = servers[number % len(servers)], Counts()
                connecting = zkwire.connect(server.hosts, self.timeout, observer=counts, within=START_TIME_LIMIT)
                return Resting(await stack.enter_async_context(connecting), counts, server is self.leader)

            yield list(await asyncio.gather(*(one(number) for number in range(self.clients))))

    async def measure(self, resting: Sequence[Resting] = (), leases: Sequence[Lease] = ()) -> Phase:
        """Leave everything alone for a while, and then measure."""
        await asyncio.sleep(2 * self.timeout)
        before, sent = await self.meters(), [collections.Counter(one.counts.done) for one in resting]
        least, end = math.inf, before.at + self.seconds
        while time.monotonic() < end:
            least = min([least, *(lease.certain_for() for lease in leases)])
            await asyncio.sleep(self.timeout / 200)
        after = await self.meters()
        for one, earlier in zip(resting, sent, strict=True):
            earlier.update({kind: -2 * count for kind, count in earlier.items()})
            earlier.update(one.counts.done)
        timeouts = (after.at - before.at) / self.timeout
        each = self.clients * timeouts
        phase = Phase(
            self.clients,
            packets=(after.packets - before.packets) / each,
            committed=(after.zxid - before.zxid) / each,
            least=least / self.timeout if leases else math.nan,
            processor=(after.processor - before.processor) * 1e3 / timeouts,
        )
        if resting:
            total = sum(sent, collections.Counter[str]())
            phase.kinds = {kind: total[kind] / each for kind in ("ping", "sync", "write", "read")}
            phase.requests = sum(phase.kinds.values())
            for on_leader in (False, True):
                writes = [
                    counts["write"] for one, counts in zip(resting, sent, strict=True) if one.is_on_leader == on_leader
                ]
                figure = sum(writes) / len(writes) / timeouts if writes else math.nan
                if on_leader:
                    phase.committed_on_leader = figure
                else:
                    phase.committed_on_followers = figure
        return phase


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise WorkerFailedError(f"a server does not say what is looked for by {pattern!r}: {text!r}")
    return found[1]


def processor_time(pid: int) -> float:
    """Return how many seconds of processor time a process has taken; on Linux only.

    Raises:
        OSError: if the process has ended.
    """
    # The name of the command is in parentheses and may contain spaces.
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _PROCESSOR


async def idle(site: Site) -> Phase:
    """Clients without a lock."""
    async with site.pinned() as resting:
        return await site.measure(resting)


async def waiters(site: Site) -> Phase:
    """Clients that wait for one holder of one lock."""
    async with zkwire.connect(site.leader.hosts, site.timeout) as first, site.pinned() as resting:
        lease = await Lock(first, LINE).acquire()
        waiting = [asyncio.create_task(Lock(one.zk, LINE).acquire()) for one in resting]
        try:
            while len(await first.get_children(LINE)) <= len(resting):
                await asyncio.sleep(0)
            return await site.measure(resting, [lease])
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            await lease.release()


async def holders(site: Site) -> Phase:
    """Clients that hold a lock each."""
    async with site.pinned() as resting:
        locks = [Lock(one.zk, f"/rest/held-{number}") for number, one in enumerate(resting)]
        leases = await asyncio.gather(*(lock.acquire() for lock in locks))
        try:
            return await site.measure(resting, leases)
        finally:
            await asyncio.gather(*(lease.release() for lease in leases))


async def kazoo(site: Site, python: Path) -> Phase:
    """Clients of kazoo that hold a lock each."""
    program = ("-m", "bench.peers.programs.rest_kazoo", str(site.timeout), str(site.clients))
    hosts = [server.hosts for server in site.ensemble.servers]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(python, *program, *hosts, stdin=pipe, stdout=pipe, cwd=ROOT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIME_LIMIT + site.clients):
            if await process.stdout.readline() != b"ready\n":
                raise WorkerFailedError("the clients of kazoo did not get their locks")
        phase = await site.measure()
        process.stdin.close()
        async with asyncio.timeout(START_TIME_LIMIT + site.clients):
            await process.wait()
        return phase
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def measure(options: argparse.Namespace, python: Path | None) -> dict[str, Phase]:
    """Return the figures of each phase, on an ensemble that lives for this one call."""
    timeout: float = options.timeout
    found: dict[str, Phase] = {}
    async with RealEnsemble(SERVERS, tick_time=min(TICK, timeout / 2), jvm=JVM) as ensemble:
        seconds = options.seconds or 3 * timeout
        site = Site(ensemble, await ensemble.leader(), options.clients, timeout, seconds)
        # What the servers compile while they run for the first time belongs to none: so the two that are compared
        # come after others, one after the other, and the servers alone come last.
        for phase in (idle, waiters, holders):
            say(phase.__name__)
            found[phase.__name__] = await phase(site)
        if python is not None:
            say(KAZOO)
            found[KAZOO] = await kazoo(site, python)
        say(NOTHING)
        found[NOTHING] = await site.measure()
    return found


def table(found: dict[str, Phase], timeout: float) -> list[str]:
    """Return the lines of a table, and the ratio of our holders to those of kazoo."""
    alone = found[NOTHING].processor
    lines = [
        f"for each client and {timeout:g} s:",
        "           requests   ping   sync  write   read | packets | committed  followers  leader | least | processor",
    ]
    for name, phase in found.items():
        if name == NOTHING:
            continue
        kinds = "".join(_cell(phase.kinds.get(kind, math.nan), 7) for kind in ("ping", "sync", "write", "read"))
        roles = _cell(phase.committed_on_followers, 11) + _cell(phase.committed_on_leader, 8)
        processor = (phase.processor - alone) / phase.clients
        lines.append(
            f"{name:10}{_cell(phase.requests, 9)}{kinds} |{_cell(phase.packets, 8)}"
            f" |{_cell(phase.committed, 10)}{roles} |{_cell(phase.least, 6)} |{processor:7.2f} ms"
        )
    lines.append(f"the servers without any client: {alone:.0f} ms of processor time in each {timeout:g} s")
    if KAZOO in found:
        ours, theirs = found[holders.__name__].processor, found[KAZOO].processor
        less = (ours - alone) / (theirs - alone) if theirs > alone else math.nan
        lines.append(
            f"processor time of the servers, holders / kazoo: {less:.2f} less what they take without any client,"
            f" {ours / theirs:.2f} with it"
        )
    return lines


def _cell(figure: float, width: int) -> str:
    return f"{'-':>{width}}" if math.isnan(figure) else f"{figure:{width}.2f}"


def plain(phase: Phase) -> dict[str, object]:
    """Return it as plain data; None where there is no figure."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value for name, value in asdict(phase).items()
    }


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 if something could not be measured."""
    parser = argparse.ArgumentParser(description="Measure what clients cost an ensemble while they do nothing.")
    add = parser.add_argument
    add("--clients", type=positive, default=200, metavar="N", help="how many clients (default: 200)")
    add("--timeout", type=positive, default=10, metavar="SECONDS", help="session timeout (default: 10)")
    add("--seconds", type=positive, metavar="SECONDS", help="for how long to measure each (default: three timeouts)")
    add("--without-kazoo", action="store_true", help="measure zkwire only")
    add("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    add("--folder", type=Path, metavar="FOLDER", help="keep here what is fetched, for the next time")
    options = parser.parse_args(arguments)
    fetch_zookeeper()
    with tempfile.TemporaryDirectory(prefix="zkwire-peers-") as thrown_away:
        python = None
        if not options.without_kazoo:
            folder = (options.folder or Path(thrown_away)).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            try:
                python = builds.python_with(KAZOO, folder)
            except builds.MissingError as error:
                say(f"kazoo is left out: {error}")
        before = processor_times()
        found = asyncio.run(measure(options, python))
        taken = stolen(before, processor_times())
    share = "" if taken is None else f"; the host took {taken:.1%} of the processors' time"
    print(f"{options.clients} clients at rest on {SERVERS} servers{share}")
    print("\n".join(table(found, options.timeout)))
    write_json(options, {name: plain(phase) for name, phase in found.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
