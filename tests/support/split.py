"""An ensemble of real servers whose links to one another can be stalled: bytes wait, and nothing is closed.

Each server is told to find each other one behind a relay of its own, so that every direction between any two can be
stalled apart.  The defaults are those of ZooKeeper's sample configuration: tickTime 2000, syncLimit 5.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from tests.support.links import Direction, Links
from zkwire.testing import EnsembleServer, RealEnsemble

# Seconds: four servers that start at once on a busy machine find each other late.
START_TIME_LIMIT: Final = 150.0


class SplitEnsemble:
    """Servers 1 to `size`, all of which vote, and `observers` more that do not.

    Arguments: `tick_time`, in seconds; `sync_limit`, in ticks; `properties`, as for RealServer.
    """

    def __init__(
        self, size: int = 3, *, observers: int = 0, tick_time: float = 2.0, sync_limit: int = 5, **options: Any
    ) -> None:
        properties = {"initLimit": "10", "syncLimit": str(sync_limit), **options.pop("properties", {})}
        self._ensemble = RealEnsemble(
            size, observers=observers, tick_time=tick_time, properties=properties, fsync=False, **options
        )
        self.links = Links()
        self._stack = contextlib.AsyncExitStack()

    @property
    def servers(self) -> Sequence[EnsembleServer]:
        return self._ensemble.servers

    @property
    def hosts(self) -> str:
        return self._ensemble.hosts

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for server in self.servers:
                others = [other for other in self.servers if other is not server]
                server.join([await self._behind_relays(stack, server, other) for other in others])
            stack.push_async_exit(self._ensemble)
            await asyncio.gather(*(server.start(within=START_TIME_LIMIT) for server in self.servers))
            await self._ensemble.settled()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def settled(self) -> None:
        """Wait until every server leads, follows or observes."""
        await self._ensemble.settled()

    async def leader(self) -> EnsembleServer:
        """The server that leads."""
        return await self._ensemble.leader()

    async def follower(self) -> EnsembleServer:
        """A server that follows, with a vote."""
        leader = await self.leader()
        return next(each for each in self.servers if each is not leader and not each.is_observer)

    def observer(self) -> EnsembleServer:
        return next(server for server in self.servers if server.is_observer)

    def stall(self, sources: Iterable[EnsembleServer], targets: Iterable[EnsembleServer]) -> None:
        """Have the bytes from each of `sources` to each of `targets` wait."""
        self.links.begin("stall", directions(sources, targets))

    def cut_off(self, server: EnsembleServer) -> None:
        """Stall both directions between `server` and all others."""
        self.stall([server], self.servers)
        self.stall(self.servers, [server])

    def heal(self) -> None:
        """Let all bytes flow, those that have waited first."""
        self.links.heal()

    async def _behind_relays(
        self, stack: contextlib.AsyncExitStack, server: EnsembleServer, other: EnsembleServer
    ) -> str:
        """What to tell `server` of `other`, so that it is sought behind relays."""
        name, _, rest = other.spec.partition("=")
        host, quorum, election, tail = rest.split(":", 3)
        ports = []
        for port in (quorum, election):
            relay = await stack.enter_async_context(self.links.relay(server.number, other.number, int(port)))
            ports.append(str(relay.port))
        return f"{name}={host}:{ports[0]}:{ports[1]}:{tail}"


def directions(sources: Iterable[EnsembleServer], targets: Iterable[EnsembleServer]) -> list[Direction]:
    """Return the directions from each of `sources` to each of `targets`, by the numbers of the servers."""
    targets = list(targets)
    return [(a.number, b.number) for a in sources for b in targets if a is not b]
