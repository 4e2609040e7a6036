"""Relays between processes of a test, and the faults of their links: cut, stalled in one direction, or delayed.

A link has two ends, which are named by anything hashable: a server's number, or a client's.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, TypeAlias, cast

End: TypeAlias = Hashable
# From one end to another one.
Direction: TypeAlias = tuple[End, End]
# cut: connections are closed, and new ones too; stall: bytes wait, and nothing is closed; delay: they come later.
Kind = Literal["cut", "stall", "delay"]


@dataclass(frozen=True, eq=False)
class LinkFault:
    """One fault of some directions; `seconds` is the delay of a "delay"."""

    kind: Kind
    directions: frozenset[Direction]
    seconds: float = 0.0


class Links:
    """The faults of all links between the ends of one trial, and the relays that obey them.

    Faults may overlap: a direction is stalled as long as one fault stalls it, and delays add up.
    """

    def __init__(self) -> None:
        self._faults: list[LinkFault] = []
        self._relays: list[Relay] = []

    def begin(self, kind: Kind, directions: Iterable[Direction], seconds: float = 0.0) -> LinkFault:
        """Begin a fault, which lasts until `end`."""
        fault = LinkFault(kind, frozenset(directions), seconds)
        self._faults.append(fault)
        self._follow()
        return fault

    def end(self, fault: LinkFault) -> None:
        """End a fault: what has waited goes on first.  A fault that has ended is ignored."""
        if fault in self._faults:
            self._faults.remove(fault)
            self._follow()

    @contextlib.contextmanager
    def during(self, kind: Kind, directions: Iterable[Direction], seconds: float = 0.0) -> Iterator[LinkFault]:
        """Do `begin`, and at the end of the block `end`."""
        fault = self.begin(kind, directions, seconds)
        try:
            yield fault
        finally:
            self.end(fault)

    def heal(self) -> None:
        """End all faults."""
        self._faults.clear()
        self._follow()

    def is_stalled(self, source: End, target: End) -> bool:
        """Return whether bytes from `source` to `target` wait."""
        return any(fault.kind == "stall" and (source, target) in fault.directions for fault in self._faults)

    def is_cut(self, one: End, other: End) -> bool:
        """Return whether there can be no connection between two ends."""
        return any(
            fault.kind == "cut" and not fault.directions.isdisjoint({(one, other), (other, one)})
            for fault in self._faults
        )

    def delay(self, source: End, target: End) -> float:
        """Return how many seconds later bytes from `source` arrive at `target`."""
        return sum(
            fault.seconds for fault in self._faults if fault.kind == "delay" and (source, target) in fault.directions
        )

    def relay(self, source: End, target: End, port: int) -> "Relay":
        """Return a relay, to be entered, for the connections that `source` opens to `port` of `target`."""
        relay = Relay(self, source, target, port)
        self._relays.append(relay)
        return relay

    def forget(self, relays: Collection["Relay"]) -> None:
        """Drop relays that were left."""
        self._relays = [relay for relay in self._relays if relay not in relays]

    def _follow(self) -> None:
        for relay in self._relays:
            relay.follow()


class _Way(asyncio.Protocol):
    """One of the two connections of a relay; what it receives goes to its counterpart, when the links allow it."""

    def __init__(self, relay: "Relay", source: End, target: End) -> None:
        self._relay = relay
        self.source = source
        self.target = target
        self.transport: asyncio.Transport | None = None
        self.other: _Way | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()  # with the moment at which the bytes may go on
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but is not derived from it
        self._relay.ways.add(self)
        if self._relay.links.is_cut(self.source, self.target):
            self.transport.abort()
            return
        # Not now: Python 3.11.2 and uvloop begin to read when connection_made has returned, even after a pause in it.
        asyncio.get_running_loop().call_soon(self.follow)
        if self.other is None:
            self._relay.dial(self)
        else:
            self.other.pass_on()

    def data_received(self, data: bytes) -> None:
        delay = self._relay.links.delay(self.source, self.target)
        self._waiting.append((asyncio.get_running_loop().time() + delay, data))
        self.pass_on()

    def pass_on(self) -> None:
        """Hand on what has arrived and is due, once there is a connection to hand it on to."""
        if self.other is None or self.other.transport is None or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        while self._waiting:
            due, data = self._waiting[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self._due)
                return
            self._waiting.popleft()
            self.other.transport.write(data)

    def _due(self) -> None:
        self._timer = None
        self.pass_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.ways.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def follow(self) -> None:
        """Read, or leave what comes in the kernel's buffers, or break, as the links say now."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._relay.links.is_cut(self.source, self.target):
            self.transport.abort()
        elif self._relay.links.is_stalled(self.source, self.target):
            self.transport.pause_reading()
        elif not self.transport.is_reading():
            self.transport.resume_reading()


class Relay:
    """A port that stands for another one, for the connections that one end opens to another one."""

    def __init__(self, links: Links, source: End, target: End, port: int) -> None:
        self.links = links
        self._source = source
        self._target = target
        self._to = port
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
        self.links.forget([self])

    @property
    def port(self) -> int:
        """The relay's own port."""
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
                way.transport.abort()  # a server listens there only while it leads, or does not run
            return
        way.other = counterpart
        way.pass_on()

    def follow(self) -> None:
        """Have all connections do what the links say now."""
        for way in list(self.ways):
            way.follow()
