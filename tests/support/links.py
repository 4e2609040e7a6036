"""Relays between processes of a test, and the faults of their links: cut, stalled in one direction, or delayed.

A link has two ends, which are named by anything hashable: a server's number, or a client's.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tests.support.relay import Listener, Pair, Wire

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

    def has(self, kind: Kind, *directions: Direction) -> bool:
        """Return whether a fault of this kind is active in one of `directions`."""
        return any(fault.kind == kind and not fault.directions.isdisjoint(directions) for fault in self._faults)

    def delay(self, direction: Direction) -> float:
        """Return how many seconds later bytes arrive."""
        return sum(fault.seconds for fault in self._faults if fault.kind == "delay" and direction in fault.directions)

    def relay(self, source: End, target: End, port: int) -> "Relay":
        """Return a relay, to be entered, for the connections that `source` opens to `port` of `target`."""
        relay = Relay(self, (source, target), port)
        self._relays.append(relay)
        return relay

    def forget(self, relays: Collection["Relay"]) -> None:
        """Drop relays that were left."""
        self._relays = [relay for relay in self._relays if relay not in relays]

    def _follow(self) -> None:
        for relay in self._relays:
            relay.follow()


class Relay(Listener):
    """A port that stands for another one, for the connections that one end opens to another one."""

    def __init__(self, links: Links, direction: Direction, to: int) -> None:
        super().__init__()
        self.links = links
        self.there = direction
        self.back = (direction[1], direction[0])
        self._to = to
        self._pairs: set[Pair] = set()

    def accept(self) -> Wire:
        pair = _Relayed(self, self._to, self._pairs.discard)
        self._pairs.add(pair)
        return pair.client

    async def end_connections(self) -> None:
        for pair in list(self._pairs):
            pair.destroy(reset=False)
        while self._pairs:
            await asyncio.sleep(0)
        self.links.forget([self])

    def follow(self) -> None:
        """Have all connections do what the links say now."""
        for pair in list(self._pairs):
            if self.links.has("cut", self.there, self.back):
                pair.destroy(reset=False)
            else:
                pair.adjust_reading()


class _Relayed(Pair):
    """A connection whose bytes pass as the links allow."""

    def __init__(self, relay: Relay, upstream: int, over: Callable[[Pair], object]) -> None:
        super().__init__(upstream, over)
        self._relay = relay
        self._directions = {self.client: relay.there, self.server: relay.back}
        # What has come and has not been passed on, with the moment at which it may; None is FIN.
        self._waiting: dict[Wire, deque[tuple[float, bytes | None]]] = {self.client: deque(), self.server: deque()}

    def opened(self, wire: Wire) -> None:
        if self._relay.links.has("cut", self._relay.there, self._relay.back):
            self.destroy(reset=False)
        else:
            super().opened(wire)

    def may_read(self, wire: Wire) -> bool:
        return not self._relay.links.has("stall", self._directions[wire])

    def received(self, wire: Wire, data: bytes | None) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._relay.links.delay(self._directions[wire])
        self._waiting[wire].append((due, data))
        if len(self._waiting[wire]) == 1:
            self._pass_on(wire)

    def pass_end(self, wire: Wire) -> None:
        self.received(wire, None)

    def _pass_on(self, wire: Wire) -> None:
        """Pass on what is due; come back for what is not."""
        loop, waiting = asyncio.get_running_loop(), self._waiting[wire]
        while waiting and not self.is_cut:
            due, data = waiting[0]
            if due > loop.time():
                loop.call_at(due, self._pass_on, wire)
                return
            waiting.popleft()
            if data is None:
                self.other(wire).finish()
            else:
                self.other(wire).write(data)
