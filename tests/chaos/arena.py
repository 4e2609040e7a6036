"""What a run is played on: a real ensemble whose links can be broken, or one server in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.support.links import Links
from tests.support.split import SplitEnsemble
from zkwire.testing import Server

# The shortest session timeout is two ticks, so the tightest case for certainty is a timeout of 4 s.
TICK: Final = 2.0
POLL: Final = 0.1
TIMEOUTS: Final = (4.0, 5.0, 6.0)  # of sessions, in seconds
SYNC_LIMITS: Final = (3, 5, 8)  # ticks after which a server that hears nothing gives its leader up


@dataclass
class Arena:
    """The servers of a run.

    Args:
        hosts: A connect string past all relays.
        servers: The number and the port of each.
        ensemble: None for a server in memory.
        links: Between the servers, and between them and clients.
    """

    hosts: str
    servers: Sequence[tuple[int, int]]
    ensemble: SplitEnsemble | None = None
    links: Links = field(default_factory=Links)

    async def settled(self, within: float) -> None:
        """Wait until every server serves.

        Raises:
            TimeoutError: after `within` seconds.
        """
        if self.ensemble is not None:
            async with asyncio.timeout(within):
                while {await server.mode() for server in self.ensemble.servers} - {"leader", "follower", "observer"}:
                    await asyncio.sleep(POLL)


@asynccontextmanager
async def real_ensemble(sync_limit: int) -> AsyncIterator[Arena]:
    """Run three servers with a vote and an observer."""
    async with SplitEnsemble(3, observers=1, tick_time=TICK, sync_limit=sync_limit) as ensemble:
        servers = [(server.number, server.port) for server in ensemble.servers]
        yield Arena(ensemble.hosts, servers, ensemble, ensemble.links)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Arena]:
    """Run one server in memory: for tests of the run itself."""
    async with Server(tick_time=TICK) as server:
        yield Arena(server.hosts, [(1, int(server.hosts.rpartition(":")[2]))])
