"""A soak: rounds of work on one real server, and between them samples of what should stay as it is."""

import asyncio
import contextlib
import gc
import math
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final

import zkwire
from tests.soak.leaks import leak
from tests.soak.measure import Sample, on_server, sample
from tests.soak.rounds import Work, disturb, prepare, read
from tests.support.links import Links
from zkwire.testing import RealServer

CLIENTS: Final = 3
TIMEOUT: Final = 6.0  # of sessions, in seconds
QUIET: Final = 30.0  # seconds in which the server must be rid of everything that a round has made


async def soak(
    server: RealServer,
    seed: str,
    *,
    seconds: float = math.inf,
    rounds: float = math.inf,
    every: float = 0.0,
    leaks: Sequence[str] = (),
    quiet: float = QUIET,
) -> AsyncIterator[Sample]:
    """Work for so many seconds or rounds, and yield samples.

    Args:
        server: The server.
        seed: Of the work.
        seconds: For how long.
        rounds: How many.
        every: How many seconds there are between two samples at least.
        leaks: What is left on purpose in each round.
        quiet: For how many seconds to wait before a sample until the server is rid of what a round has made.
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
        # It has no faults: what one connection keeps would be dropped with the connection.
        reader = await stack.enter_async_context(zkwire.connect(server.hosts, TIMEOUT))
        reading = asyncio.create_task(read(reader))
        stack.callback(reading.cancel)
        works = [Work(zk, random.Random(f"{seed}/{name}"), number) for number, (name, zk) in enumerate(clients.items())]
        await prepare(clients["client 0"])
        start = loop.time()
        done, due = 0, 0.0
        while loop.time() - start < seconds and done < rounds:
            await asyncio.gather(*(work.round() for work in works), disturb(clients, links, server.hosts, rng))
            if reading.done():
                reading.result()  # it has failed, and says how
            done += 1
            for name in leaks:
                await leak(clients["client 0"], name)
            if loop.time() - start >= due:
                await _quiet(server.hosts, quiet)
                now = loop.time() - start
                yield await sample(server.hosts, now, done)
                due = now + every


async def _quiet(hosts: str, within: float) -> None:
    """Wait until the server has no ephemeral node and no watch, and all clients are connected.

    When this does not come, the sample that follows shows it.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            while True:
                gc.collect()  # a watch may be in a cycle with the error that ended its task
                there = await on_server(hosts)
                is_quiet = not (there["watches"] or there["ephemerals"])
                if is_quiet and there["sessions"] == CLIENTS + 2:  # the reader, and this question
                    return
                await asyncio.sleep(0.2)
