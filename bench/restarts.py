"""Count the leases that are lost while the servers of an ensemble are restarted, and while each is killed in turn.

Run from the project's root::

    python bench/restarts.py                              # 100 leases, sessions of 10 s, three servers
    python bench/restarts.py --leases 20 --timeout 4 --json figures.json

Each client holds a lock of its own and knows all servers.  A server is stopped or killed, left out for a while, and
started again; the next one follows when all servers serve again and all clients are connected.  For each way:

``lost``         how many leases were lost
``least``        the least certainty of any lease meanwhile, as a share of the timeout
``reconnects``   how many connections were made
``seconds``      how long it took
"""

import argparse
import asyncio
import logging
import math
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zkwire
from bench.crew import START_TIME_LIMIT
from bench.servers import fetch_zookeeper, positive, say, write_json
from bench.status import with_status
from recipes import Lease, Lock
from zkwire import Client, SessionState
from zkwire.testing import RealEnsemble

SERVERS: Final = 3
TICK: Final = 2.0  # seconds, as in ZooKeeper's sample configuration
RESTARTED: Final = "restarted"
KILLED: Final = "killed"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one way has cost; see the top of this file."""

    lost: int
    least: float
    reconnects: int
    seconds: float


class Connections(zkwire.Observer):
    """How many connections all clients have made."""

    def __init__(self) -> None:
        self.made = 0

    def state_changed(self, state: SessionState, server: str) -> None:
        self.made += state is SessionState.CONNECTED


async def watch_least(leases: Sequence[Lease], every: float, least: list[float]) -> None:
    """Put the least certainty of the leases that last into `least`, until cancelled."""
    while True:
        least[0] = min([least[0], *(lease.certain_for() for lease in leases if not lease.is_over)])
        await asyncio.sleep(every)


async def play(way: str, ensemble: RealEnsemble, connections: Connections, options: argparse.Namespace) -> Figures:
    """Do it to each server in turn, under new leases, and return the figures."""
    timeout: float = options.timeout
    async with AsyncExitStack() as stack:

        async def held(number: int) -> tuple[Client, Lease]:
            connecting = zkwire.connect(ensemble.hosts, timeout, observer=connections, within=START_TIME_LIMIT)
            zk = await stack.enter_async_context(connecting)
            return zk, await Lock(zk, f"/restarts/{way}-{number}").acquire()

        clients, leases = zip(*await asyncio.gather(*(held(number) for number in range(options.leases))), strict=True)
        await asyncio.sleep(timeout)  # then they are at rest
        made, begun, least = connections.made, time.monotonic(), [math.inf]
        looking = asyncio.create_task(watch_least(leases, timeout / 200, least))
        for server in ensemble.servers:
            say(f"{server.hosts} is {way}")
            if way == KILLED:
                server.kill()
            else:
                await server.stop()
            await asyncio.sleep(options.out)
            await server.start()
            await ensemble.leader()
            for zk in clients:
                await zk.sync("/")
        looking.cancel()
        await asyncio.wait([looking])
        lost = sum(lease.is_over for lease in leases)
        figures = Figures(lost, least[0] / timeout, connections.made - made, time.monotonic() - begun)
        await asyncio.gather(*(lease.release() for lease in leases))
        return figures


async def measure(options: argparse.Namespace) -> dict[str, Figures]:
    """Return the figures of each way, on an ensemble that lives for this one call."""
    connections = Connections()
    async with RealEnsemble(SERVERS, tick_time=min(TICK, options.timeout / 2), jvm=()) as ensemble:
        await ensemble.leader()
        return {way: await play(way, ensemble, connections, options) for way in (RESTARTED, KILLED)}


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 1 if a lease was lost."""
    parser = argparse.ArgumentParser(description="Count the leases that are lost while servers are restarted.")
    add = parser.add_argument
    add("--leases", type=positive, default=100, metavar="N", help="how many leases (default: 100)")
    add("--timeout", type=positive, default=10, metavar="SECONDS", help="session timeout (default: 10)")
    add("--out", type=positive, default=5, metavar="SECONDS", help="for how long each server is out (default: 5)")
    add("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    options = parser.parse_args(arguments)
    fetch_zookeeper()
    found = asyncio.run(measure(options))
    print(f"{options.leases} leases, sessions of {options.timeout:g} s, {SERVERS} servers, one after the other")
    for way, figures in found.items():
        print(
            f"{way:9}  lost {figures.lost}, least certainty {figures.least:.2f} of the timeout,"
            f" {figures.reconnects} reconnects, {figures.seconds:.0f} s"
        )
    write_json(options, {way: asdict(figures) for way, figures in found.items()})
    return 1 if any(figures.lost for figures in found.values()) else 0


if __name__ == "__main__":
    logging.getLogger("zkwire").setLevel(logging.ERROR)  # each lost connection is a warning
    sys.exit(main())
