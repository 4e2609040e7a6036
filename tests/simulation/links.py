"""The network of a world: streams with latency, in order, that can be blocked, delayed, cut, or go silent for ever.

    network = Network(world)
    zkwire.connect(..., open_link=network.opener(machine))

Hosts are named.  Each direction between two hosts is blocked and delayed on its own.  What is sent in a blocked
direction waits, as TCP repeats it until it arrives: more and more seldom, so each stream may need some time of its own
to go on (`backoff`).  A stream that has gone silent loses it (the router in between has forgotten the connection).
This module knows nothing of ZooKeeper.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from tests.simulation.loop import Machine, World

T = TypeVar("T")

_READ_SIZE: Final = 64 * 1024
_SHORTEST: Final = 0.0002  # seconds
_LONGEST: Final = 0.002
_SPREAD: Final = _LONGEST - _SHORTEST
_SPLIT: Final = 0.1  # how often one write arrives in two pieces


class _Signal(enum.Enum):
    """What a connection carries beside bytes."""

    CONNECT = enum.auto()
    ACCEPTED = enum.auto()
    REFUSED = enum.auto()
    END = enum.auto()
    RESET = enum.auto()


_CONNECT, _ACCEPTED, _REFUSED, _END, _RESET = _Signal


class Listener(Protocol):
    """A host that connections can be opened to."""

    def accept(self, connection: "Connection") -> bool:
        """Take a new connection; return False to refuse it."""

    def received(self, connection: "Connection", data: bytes) -> None:
        """Take bytes."""

    def lost(self, connection: "Connection") -> None:
        """Record that the client has closed the connection, or that it was cut."""


class Network:
    """All links of a world.

    `connections` are the open ones between clients and servers, in the order of opening.  `trips` says, by the name of
    a machine, after how many pieces at the most each of its connections breaks that is opened from now on.  `delays`
    are the seconds that each direction needs beside its usual latency.  `windows` says, by the name of a machine, how
    many bytes its kernel takes that the server has not got yet.  `backoff` is how long a stream that has something to
    repeat stays blocked at the most when the way is free again, as a share of the time that it was blocked.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[str, Listener] = {}
        self.connections: dict[Connection, None] = {}
        self.trips: dict[str, int] = {}
        self.delays: dict[tuple[str, str], float] = {}
        self.windows: dict[str, int] = {}
        self.backoff = 0.0
        self._since: dict[tuple[str, str], float] = {}
        self._blocks: dict[tuple[str, str], int] = {}
        self._streams: dict[tuple[str, str], dict[Stream[Any], None]] = {}

    def is_blocked(self, source: str, target: str) -> bool:
        """Return whether nothing gets from `source` to `target`."""
        return (source, target) in self._blocks

    def block(self, source: str, target: str) -> None:
        """Let nothing get from `source` to `target` until `unblock` is called as often."""
        self._blocks[source, target] = self._blocks.get((source, target), 0) + 1
        self._since.setdefault((source, target), self.world.now)
        for stream in self._streams.get((source, target), ()):
            stream.is_blocked = True

    def unblock(self, source: str, target: str) -> None:
        """Undo one `block`: what was sent meanwhile arrives."""
        left = self._blocks.pop((source, target)) - 1
        if left:
            self._blocks[source, target] = left
            return
        longest = (self.world.now - self._since.pop((source, target))) * self.backoff
        for stream in self._streams.get((source, target), ()):
            if longest and stream.repeats:
                self.world.after(self.world.rng.uniform(0.0, longest), self._let_through, stream)
            else:
                self._let_through(stream)

    def _let_through(self, stream: "Stream[Any]") -> None:
        if not self.is_blocked(stream.source, stream.target):
            stream.is_blocked = False
            stream.go_on()

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Add `seconds` to the latency from `source` to `target`; a negative number takes them away again."""
        self.delays[source, target] = self.delays.get((source, target), 0.0) + seconds

    def enter(self, stream: "Stream[Any]") -> None:
        """Record an open stream."""
        self._streams.setdefault((stream.source, stream.target), {})[stream] = None
        stream.is_blocked = self.is_blocked(stream.source, stream.target)

    def leave(self, stream: "Stream[Any]") -> None:
        """Record that `stream` is closed."""
        self._streams[stream.source, stream.target].pop(stream, None)

    def leave_all(self, machine: Machine, *, silently: bool = False) -> None:
        """Close the client's end of all connections of a machine; `silently`, without a sign to the servers."""
        for connection in list(self.connections):
            if connection.machine is machine:
                if silently:
                    connection.go_silent(up=True, down=True)
                connection.close_client()

    def opener(self, machine: Machine) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return what `machine` opens connections with: the `open_link` of zkwire.connect."""

        async def open_link(make: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> object:
            return await Connection(self, machine, host).open(make)

        return open_link


class Stream(Generic[T]):
    """One direction of a connection.

    Arguments: `source` and `target`, names of hosts; `deliver`, called with each item when it arrives.

    `is_blocked` is set by the network: whether nothing gets through.
    """

    def __init__(self, network: Network, source: str, target: str, deliver: Callable[[T], None]) -> None:
        self.source, self.target = source, target
        self._network, self._world = network, network.world
        self._delays, self._random = network.delays, network.world.rng.random
        self._deliver = deliver
        self._items: deque[tuple[float, T]] = deque()
        self._last = 0.0
        self.is_blocked = self._takes_nothing = False
        network.enter(self)

    @property
    def repeats(self) -> bool:
        """Whether something is on its way."""
        return bool(self._items)

    def send(self, item: T) -> None:
        """Send an item."""
        if self._takes_nothing:
            return
        world, items, delays = self._world, self._items, self._delays
        seconds = _SHORTEST + _SPREAD * self._random()
        if delays:
            seconds += delays.get((self.source, self.target), 0.0)
        when = world.now + seconds
        if when <= self._last:
            when = self._last
            if items:
                items.append((when, item))  # it arrives together with the item before
                return
        self._last = when
        items.append((when, item))
        world.at(when, self._pump)

    def end(self, item: T) -> None:
        """Send a last item: nothing can be sent behind it."""
        self.send(item)
        self._takes_nothing = True

    def go_on(self) -> None:
        """Deliver what has waited in a blocked direction."""
        seconds = _SHORTEST + _SPREAD * self._random() + self._delays.get((self.source, self.target), 0.0)
        self._world.after(seconds, self._pump)

    def go_silent(self) -> None:
        """Lose all that is on its way, and all that is sent from now on."""
        self._takes_nothing = True
        self._items.clear()

    def cut(self, *, at_once: bool = False) -> T | None:
        """Drop the end of what is on its way, from an item chosen at random on; return that item, None without one.

        Arguments: `at_once`, whether to drop all of it.
        """
        kept = 0 if at_once else self._world.rng.randrange(len(self._items) + 1)
        torn = self._items[kept][1] if kept < len(self._items) else None
        while len(self._items) > kept:
            self._items.pop()
        return torn

    def close(self) -> None:
        """Deliver nothing more."""
        self._takes_nothing = True
        self._items.clear()
        self._network.leave(self)

    def _pump(self) -> None:
        items, now = self._items, self._world.now
        while items and items[0][0] <= now and not self.is_blocked:
            self._deliver(items.popleft()[1])


class Connection:
    """A TCP connection from a machine to a server.

    `machine` and `host` are its ends.  A server calls `send` and `close`.  `pieces_left` is after how many more pieces
    of bytes, in either direction, it breaks; None: never.
    """

    def __init__(self, network: Network, machine: Machine, host: str) -> None:
        self.network = network
        self.machine = machine
        self.host = host
        self._up: Stream[bytes | _Signal] = Stream(network, machine.name, host, self._at_server)
        self._down: Stream[bytes | _Signal] = Stream(network, host, machine.name, self._at_client)
        self._opened: asyncio.Future[None] = machine.create_future()
        self._transport: _Transport | None = None
        self._is_accepted = self._is_client_closed = False
        self._in_flight = 0  # bytes to the server
        most = network.trips.get(machine.name)
        self.pieces_left = None if most is None else network.world.rng.randrange(most + 1)
        self._up.send(_CONNECT)

    # -- the client's side ----------------------------------------------------------------------------------------

    async def open(self, make: Callable[[], asyncio.BufferedProtocol]) -> asyncio.BufferedProtocol:
        """Return the protocol that `make` has made, once the server has accepted the connection.

        Raises: ConnectionRefusedError, ConnectionResetError.
        Cancellation: closes the connection.
        """
        try:
            await self._opened
            protocol = make()
            self._transport = _Transport(self, protocol)
            made = self.machine.create_future()
            self.machine.call_soon(self._transport.made)
            self.machine.call_soon(_settle, made)
            await made
        except BaseException:
            self.close_client()
            raise
        return protocol

    def write(self, data: bytes) -> None:
        """Send bytes to the server."""
        windows = self.network.windows
        self._in_flight += len(data)
        if windows and self._in_flight > windows.get(self.machine.name, self._in_flight):
            assert self._transport is not None
            self._transport.pause()
        self._send(self._up, data)

    def drained(self) -> None:
        """Let the client write again, if the kernel has taken enough."""
        most = self.network.windows.get(self.machine.name, self._in_flight)
        if self._transport is not None and self._in_flight <= most:
            self._transport.resume()

    def close_client(self) -> None:
        """Close the client's end."""
        if not self._is_client_closed:
            self._is_client_closed = True
            self._up.end(_END)
            self._down.close()

    def _at_client(self, item: bytes | _Signal) -> None:
        """Take what has come to the client's machine: its kernel keeps it until the event loop runs."""
        if isinstance(item, bytes):
            if self._transport is not None:
                self._transport.arrived(item if self.pieces_left is None else self._counted(item, self._down))
        elif item is _ACCEPTED:
            self.machine.call_soon(_settle, self._opened)
        else:
            error = None if item is _END else ConnectionResetError("the connection was reset")
            if self._transport is not None:
                self._transport.ended(error)
            else:
                refusal = ConnectionRefusedError("nothing listens there") if item is _REFUSED else error
                self.machine.call_soon(_settle, self._opened, refusal or ConnectionResetError("closed at once"))

    # -- the server's side ----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        self._send(self._down, data)

    def _send(self, stream: "Stream[bytes | _Signal]", data: bytes) -> None:
        rng = self.network.world.rng
        if len(data) > 1 and rng.random() < _SPLIT:
            at = rng.randrange(1, len(data))
            stream.send(data[:at])
            data = data[at:]
        stream.send(data)

    def close(self, *, reset: bool = False) -> None:
        """Close the server's end; `reset`, as the kernel does for a process that has died."""
        if self._is_accepted:
            self._is_accepted = False
            self.network.connections.pop(self, None)
            self._down.end(_RESET if reset else _END)

    def _at_server(self, item: bytes | _Signal) -> None:
        listener = self.network.listeners[self.host]
        if item is _CONNECT:
            self._is_accepted = listener.accept(self)
            if self._is_accepted:
                self.network.connections[self] = None
                self._down.send(_ACCEPTED)
            else:
                self._down.end(_REFUSED)
        elif not isinstance(item, bytes):
            was_open = self._is_accepted
            self.close()
            self._up.close()
            if was_open:
                listener.lost(self)
        elif self._is_accepted:
            self._in_flight -= len(item)
            if self._transport is not None and self._transport.is_paused:
                self.drained()
            listener.received(self, item if self.pieces_left is None else self._counted(item, self._up))
        else:
            self._down.end(_RESET)  # this end is closed: the kernel answers

    # -- faults ---------------------------------------------------------------------------------------------------

    def cut(self, lost: Stream[bytes | _Signal] | None = None) -> None:
        """Break the connection at a random byte of what is on its way in each direction; both ends learn of it.

        Arguments: `lost`, a direction of which nothing more arrives.
        """
        for stream in (self._up, self._down):
            torn = stream.cut(at_once=stream is lost)
            # Of a piece that was torn before, nothing may be left.
            if isinstance(torn, bytes) and torn and stream is not lost:
                stream.send(torn[: self.network.world.rng.randrange(len(torn))])
            stream.end(_RESET)

    def _counted(self, piece: bytes, stream: Stream[bytes | _Signal]) -> bytes:
        """Count a piece that arrives by `stream`; if it is one too many, cut the connection within it.

        Returns what arrives of it.
        """
        assert self.pieces_left is not None
        self.pieces_left -= 1
        if self.pieces_left >= 0:
            return piece
        self.pieces_left = None
        self.cut(stream)
        return piece[: self.network.world.rng.randrange(len(piece))]

    def go_silent(self, *, up: bool, down: bool) -> None:
        """Lose all bytes in these directions from now on, without any sign."""
        if up:
            self._up.go_silent()
        if down:
            self._down.go_silent()


class _Transport(asyncio.Transport):
    """What the client's protocol writes to, and the kernel's buffer of what it has not read yet."""

    def __init__(self, connection: Connection, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._connection = connection
        self._protocol = protocol
        self._unread = bytearray()
        self._is_ended = self._is_closing = self._will_read = self._is_reading_paused = self.is_paused = False
        self._error: Exception | None = None

    def made(self) -> None:
        """Call `connection_made`, and read from then on."""
        self._protocol.connection_made(self)
        self._read_soon()

    def arrived(self, data: bytes) -> None:
        """Keep bytes until the event loop reads."""
        self._unread += data
        self._read_soon()

    def ended(self, error: Exception | None) -> None:
        """Record the end of the stream, behind the unread bytes."""
        self._is_ended, self._error = True, error
        self._read_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._connection.write(bytes(data))

    def pause(self) -> None:
        """Have the protocol write no more: as asyncio, at once."""
        if not self.is_paused and not self._is_closing:
            self.is_paused = True
            self._protocol.pause_writing()

    def resume(self) -> None:
        """Have the protocol write again."""
        if self.is_paused:
            self.is_paused = False
            self._connection.machine.call_soon(self._resume)

    def _resume(self) -> None:
        if not self.is_paused and not self._is_closing:
            self._protocol.resume_writing()

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._read_soon()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._close(None)

    abort = close

    def _close(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.close_client()
            self._connection.machine.call_soon(lambda: self._protocol.connection_lost(error))

    def _read_soon(self) -> None:
        if not self._will_read and not self._is_reading_paused and (self._unread or self._is_ended):
            self._will_read = True
            self._connection.machine.call_soon(self._read)

    def _read(self) -> None:
        """Pass on what is there, in one read: bytes that came while the machine did not run come together."""
        self._will_read = False
        if self._is_closing or self._is_reading_paused:
            return
        if self._unread:
            buffer = cast(memoryview, self._protocol.get_buffer(-1))
            size = min(len(self._unread), len(buffer), _READ_SIZE)
            buffer[:size] = self._unread[:size]
            del self._unread[:size]
            self._protocol.buffer_updated(size)
            if self._unread or self._is_ended:
                self._read_soon()
        elif self._is_ended:
            if self._error is None:
                self._protocol.eof_received()
            self._close(self._error)


def _settle(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
