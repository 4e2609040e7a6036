"""An ensemble of real servers whose links to one another can be stalled: bytes wait, and nothing is closed.

Each server is told to find each other one behind a relay of its own, so that every direction between any two can be
stalled apart.  The defaults are those of ZooKeeper's sample configuration: tickTime 2000, syncLimit 5.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from zkwire.testing import EnsembleServer, RealEnsemble


class _Way(asyncio.Protocol):
    """One of the two connections of a relay; what it receives goes to its counterpart, unless that way is stalled."""

    def __init__(self, relay: "Relay", source: int, target: int) -> None:
        self._relay = relay
        self.source = source
        self.target = target
        self.transport: asyncio.Transport | None = None
        self.other: _Way | None = None
        self._waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._relay.ways.add(self)
        self.follow_stall()
        if self.other is None:
            self._relay.dial(self)
        else:
            self.other.pass_on()

    def data_received(self, data: bytes) -> None:
        self._waiting.append(data)
        self.pass_on()

    def pass_on(self) -> None:
        """Hand on what has arrived, once there is a connection to hand it on to."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.writelines(self._waiting)
            self._waiting.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.ways.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def follow_stall(self) -> None:
        """Read, or leave what comes in the kernel's buffers, as it is stalled now."""
        if self.transport is None or self.transport.is_closing():
            return
        if (self.source, self.target) in self._relay.stalled:
            self.transport.pause_reading()
        elif not self.transport.is_reading():
            self.transport.resume_reading()


class Relay:
    """A port that stands for another one, for the connections that one server opens to another one."""

    def __init__(self, source: int, target: int, port: int, stalled: set[tuple[int, int]]) -> None:
        self._source = source
        self._target = target
        self._to = port
        self.stalled = stalled
        self.ways: set[_Way] = set()
        self._server: asyncio.Server | None = None
        self._dialling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Way(self, self._source, self._target), "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        for way in list(self.ways):
            if way.transport is not None:
                way.transport.abort()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def dial(self, way: _Way) -> None:
        """Open the counterpart of `way`."""
        task = asyncio.get_running_loop().create_task(self._dial(way))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, way: _Way) -> None:
        counterpart = _Way(self, way.target, way.source)
        counterpart.other = way
        try:
            await asyncio.get_running_loop().create_connection(lambda: counterpart, "127.0.0.1", self._to)
        except OSError:
            if way.transport is not None:
                way.transport.abort()  # that server listens there only while it leads, or does not run
            return
        way.other = counterpart
        way.pass_on()

    def follow_stalls(self) -> None:
        for way in self.ways:
            way.follow_stall()


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
        self._stalled: set[tuple[int, int]] = set()
        self._relays: list[Relay] = []
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
            await asyncio.gather(*(server.start() for server in self.servers))
            await self._ensemble.settled()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        targets = list(targets)
        self._stalled |= {(a.number, b.number) for a in sources for b in targets if a is not b}
        self._follow()

    def cut_off(self, server: EnsembleServer) -> None:
        """Stall both directions between `server` and all others."""
        self.stall([server], self.servers)
        self.stall(self.servers, [server])

    def heal(self) -> None:
        """Let all bytes flow, those that have waited first."""
        self._stalled.clear()
        self._follow()

    def _follow(self) -> None:
        for relay in self._relays:
            relay.follow_stalls()

    async def _behind_relays(
        self, stack: contextlib.AsyncExitStack, server: EnsembleServer, other: EnsembleServer
    ) -> str:
        """What to tell `server` of `other`, so that it is sought behind relays."""
        name, _, rest = other.spec.partition("=")
        host, quorum, election, tail = rest.split(":", 3)
        ports = []
        for port in (quorum, election):
            relay = Relay(server.number, other.number, int(port), self._stalled)
            self._relays.append(await stack.enter_async_context(relay))
            ports.append(str(relay.port))
        return f"{name}={host}:{ports[0]}:{ports[1]}:{tail}"
