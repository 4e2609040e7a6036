"""A soak: rounds of work on one real server, and between them samples of what should stay as it is."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import zkwire
from tests.soak.measure import Sample, on_server, sample
from tests.soak.rounds import Work, disturb
from tests.support.links import Links
from zkwire.testing import RealServer

CLIENTS: Final = 3
TIMEOUT: Final = 6.0  # of sessions, in seconds
QUIET: Final = 30.0  # seconds in which the server must be rid of everything that a round has made
SHORTEST: Final = 1.0  # seconds between two samples
SAMPLES: Final = 30

Leak = Callable[[zkwire.Client], Awaitable[None]]


async def soak(server: RealServer, seconds: float, seed: str, leak: Leak | None = None) -> AsyncIterator[Sample]:
    """Work for so many seconds, and yield SAMPLES samples or somewhat fewer.

    Arguments: `leak`, called in each round: it leaves something behind on purpose.
    """
    loop = asyncio.get_running_loop()
    rng = random.Random(seed)
    links = Links()
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[str, zkwire.Client] = {}
        for number in range(CLIENTS):
            name = f"client {number}"
            relay = await stack.enter_async_context(links.relay(name, "server", server.port))
            clients[name] = await stack.enter_async_context(zkwire.connect(f"127.0.0.1:{relay.port}", TIMEOUT))
        works = [Work(zk, random.Random(f"{seed}/{name}"), number) for number, (name, zk) in enumerate(clients.items())]
        start = loop.time()
        rounds, due = 0, 0.0
        while (now := loop.time() - start) < seconds:
            await asyncio.gather(*(work.round() for work in works), disturb(clients, links, server.hosts, rng))
            rounds += 1
            if leak is not None:
                await leak(clients["client 0"])
            if loop.time() - start >= due:
                await _quiet(server.hosts)
                yield await sample(server.hosts, loop.time() - start, rounds)
                due = now + max(SHORTEST, seconds / SAMPLES)


async def _quiet(hosts: str) -> None:
    """Wait until the server has no ephemeral node and no watch, and all clients are connected.

    When this does not come, the sample that follows shows it.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET):
            while True:
                there = await on_server(hosts)
                is_quiet = not (there["zk_watch_count"] or there["zk_ephemerals_count"])
                if is_quiet and there["zk_num_alive_connections"] == CLIENTS + 1:  # and the one that asks
                    return
                await asyncio.sleep(0.05)
