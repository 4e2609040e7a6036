"""Tests in virtual time, with a server in memory and no socket: they do not wait, and each run is the same.

    @in_virtual_time
    async def test_...() -> None:
        async with a_client() as (server, zk): ...

`asyncio.sleep` and all timers take no real time.  The event loop is a machine of the simulation (see
tests/simulation/loop.py); the server is the in-memory one without its sockets.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, ParamSpec

import zkwire
from tests.simulation.loop import Machine, World
from tests.support.client import InOrder, turns
from zkwire.session.transport import Link
from zkwire.testing.memory import machine as memory
from zkwire.wire.frames import FrameReader
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.requests import Request

P = ParamSpec("P")

_LIMIT: Final = 120.0  # seconds of virtual time
_LARGEST: Final = 64 * 1024 * 1024  # bytes
_KNOWN: Final[dict[int, type[Request[Any]]]] = {
    each.opcode: each for each in [*Request.__subclasses__(), MultiRequest, MultiReadRequest] if hasattr(each, "opcode")
}


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in virtual time; it fails if it leaves a task, or anything is reported to its event loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        world = World(seed=1)
        machine = Machine(world, "test")
        task = machine.create_task(test(*args, **kwargs))
        task.add_done_callback(lambda _: world.look())
        try:
            world.run(until=task.done, limit=_LIMIT)
            task.result()
            left = [line for line in machine.left() if "the task" in line] + machine.unseen()
            assert not world.complaints + left, world.complaints + left
        finally:
            machine.cancel_all()
            machine.close()

    # pytest looks at the signature only; without the mark of a coroutine function it calls the test itself.
    return run


def block(seconds: float) -> None:
    """Let time pass in which the event loop does not run, as code does that should be in a thread."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Machine)
    loop.world.now += seconds


def now() -> float:
    """Return the time of the running event loop."""
    return asyncio.get_running_loop().time()


async def cleaned_up(zk: zkwire.Client) -> None:
    """Wait until the client looks for no node of a cancelled create, and removes none."""
    while zk._session.requests.is_cleaning_up:
        await asyncio.sleep(0.01)


def tasks(name: str) -> list[asyncio.Task[Any]]:
    """Return the tasks of this name that have not ended."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name and not task.done()]


class Sent(NamedTuple):
    """A request that has reached the server: when, by which host, its name in ZooKeeper's terms, its path and xid."""

    at: float
    host: str
    name: str
    path: str | None
    xid: int = 0


class Wire(asyncio.Transport):
    """The connection of one link to the server; `host` is the address that the client has asked for."""

    def __init__(self, server: Server, link: Link, host: str) -> None:
        super().__init__()
        self.host = host
        self.is_open, self._is_paused = True, False
        self._server = server
        self._link = link
        self._frames = FrameReader(_LARGEST)
        self.connection = server.machine.open(host, 1, server.loop.time())
        self.unread = b""
        self._arrivals = {"request": 0.0, "answer": 0.0}  # of the last one that was sent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        # Without a name of the peer, as of a closed TLS transport, each address that was asked for is a server.
        return default if self._server.are_several or name != "peername" else ("one server", 2181)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, Link)
        self._link = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._link.closed.done(), "uvloop raises an error here"
        if self.is_open:
            self._server.writes.append(len(data))
            for frame in self._frames.feed(bytes(data)):
                self._travel("request", self._server.received, self, frame)

    def _travel(self, what: str, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` made when a request or an answer has arrived; each arrives after the one before."""
        loop, latency = self._server.loop, self._server.latency
        if latency is None:
            loop.call_soon(call, *args)
        else:
            self._arrivals[what] = due = max(self._arrivals[what], loop.time() + latency())
            loop.call_at(due, call, *args)

    def abort(self) -> None:
        self.lose(None)

    def close(self) -> None:
        self.lose(None)

    def is_closing(self) -> bool:
        return not self.is_open

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.read()

    def lose(self, error: Exception | None) -> None:
        """Close the connection, with `error` as the socket reports it."""
        if self.is_open:
            self.is_open = False
            self._server.machine.lost(self.connection, self._server.loop.time())
            self._server.loop.call_soon(lambda: self._link.connection_lost(error))

    def send(self, data: bytes) -> None:
        """Have the link read `data`; without latency, what is sent in one turn of the event loop is read at once."""
        if self._server.latency is not None:
            self._travel("answer", self._arrive, data)
        else:
            if not self.unread:
                self._server.loop.call_soon(self.read)
            self.unread += data

    def end(self) -> None:
        """Close the connection after the answers that are under way."""
        self._travel("answer", self.lose, None)

    def _arrive(self, data: bytes) -> None:
        self.unread += data
        self.read()

    def read(self) -> None:
        """Let the link read what has come, unless it has paused reading."""
        while self.unread and self.is_open and not self._is_paused:
            buffer = self._link.get_buffer(-1)
            size = min(len(buffer), len(self.unread))
            buffer[:size] = self.unread[:size]
            self.unread = self.unread[size:]
            self._link.buffer_updated(size)

    def fill(self) -> None:
        """Let the socket's buffer be full."""
        self._link.pause_writing()

    def drain(self) -> None:
        """Let the socket take bytes again."""
        self._link.resume_writing()


class Server:
    """The in-memory server, reached by `open_link`; a client can give it any names of hosts.

    Arguments: `are_several`, whether each name stands for a server of its own; otherwise all are names of one server.

    `requests` are those that have come, `writes` the sizes of the client's writes, `wires` the connections, the newest
    last.  A test sets: `is_silent`, nothing is carried out until `go_on`; `is_holding`, nothing is sent until
    `release`; `refused`, hosts that refuse connections; `strike`, called with each request: it may drop the connection,
    and returns None, an error code to answer with, or False to carry out nothing and answer nothing; `latency`, returns
    the seconds that a request or an answer takes.
    """

    def __init__(self, *, are_several: bool = False, **settings: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.are_several = are_several
        self.machine = memory.Machine(memory.Settings(**settings), now=self.loop.time())
        self.requests: list[Sent] = []
        self.writes: list[int] = []
        self.wires: list[Wire] = []
        self.refused: set[str] = set()
        self.is_silent = self.is_holding = False
        self.strike: Callable[[Wire, Sent], int | bool | None] = lambda wire, sent: None
        self.latency: Callable[[], float] | None = None
        self._waiting: list[tuple[Wire, bytes]] = []

    async def open_link(self, make: Callable[[], Link], host: str, port: int) -> Link:
        """Open a connection; the `open_link` of zkwire.connect."""
        await asyncio.sleep(0)
        link = make()
        if host in self.refused:  # too late for a loop that makes the link first, as for TLS
            raise ConnectionRefusedError(f"{host} refuses connections")
        wire = Wire(self, link, host)
        self.wires.append(wire)
        link.connection_made(wire)
        return link

    @property
    def wire(self) -> Wire:
        """The newest connection."""
        return self.wires[-1]

    def names(self, *left_out: str) -> list[str]:
        """Return the names of the requests since the last call, but for those left out."""
        names = [sent.name for sent in self.requests if sent.name not in left_out]
        self.requests.clear()
        return names

    def received(self, wire: Wire, frame: bytes) -> None:
        """Carry out a request, and send what there is to send."""
        if not wire.is_open:
            return
        if self.is_silent:
            self._waiting.append((wire, frame))
            return
        now = self.loop.time()
        if self.machine.next_deadline() <= now:
            self.machine.advance(now)
        answer: int | bool | None = None
        if wire.connection.session is not None:
            xid, opcode = (int.from_bytes(frame[at : at + 4], "big", signed=True) for at in (0, 4))
            kind = _KNOWN[opcode]
            request, _ = kind.decode(frame, 8)
            self.requests.append(sent := Sent(now, wire.host, kind.operation, request.subject, xid))
            answer = self.strike(wire, sent)
        else:
            self.requests.append(Sent(now, wire.host, "connect", None))
        if answer is None:
            self.machine.receive(wire.connection, frame, now)
        elif answer is not False:
            xid = int.from_bytes(frame[:4], "big", signed=True)
            self.machine.reply(wire.connection, xid, self.machine.last_zxid, int(answer))
        self._send()

    def _send(self) -> None:
        if self.is_holding:
            return
        for wire in self.wires:
            if wire.is_open and wire.connection.outgoing:
                wire.send(b"".join(wire.connection.outgoing))
                wire.connection.outgoing.clear()
            if wire.is_open and wire.connection.closing:
                wire.end()
        self.machine.take_dirty()

    def go_on(self) -> None:
        """Carry out what has come while the server was silent."""
        self.is_silent = False
        waiting, self._waiting = self._waiting, []
        for wire, frame in waiting:
            self.received(wire, frame)

    def hold_from(self, name: str) -> None:
        """Hold back the answers, from the next request of this name on."""

        def strike(wire: Wire, sent: Sent) -> None:
            self.is_holding |= sent.name == name

        self.strike = strike

    def release(self) -> None:
        """Send what was held back."""
        self.is_holding = False
        self._send()

    async def until(self, name: str, count: int = 1) -> None:
        """Wait until so many requests of this name have come since the last call of `names`."""
        while [sent.name for sent in self.requests].count(name) < count:
            await asyncio.sleep(0.001)

    def drop(self, error: Exception | None = None) -> None:
        """Lose the newest connection, with `error` as the socket reports it."""
        self.wire.lose(error)

    def drop_held(self) -> None:
        """Lose the newest connection, and with it what was held back; the next one is answered."""
        self.drop()
        self.is_holding = False

    async def reconnect(self, zk: zkwire.Client) -> None:
        """Lose the newest connection, and wait until the client has another one."""
        self.drop()
        await turns()
        while zk.state is not zkwire.SessionState.CONNECTED:
            await asyncio.sleep(0.01)

    async def cut_off(self, zk: zkwire.Client) -> None:
        """Lose the newest connection and refuse any other one, and return when the client knows."""
        self.refused = {"a", "b"}
        self.drop()
        while zk.state is not zkwire.SessionState.SUSPENDED:
            await asyncio.sleep(0)


@asynccontextmanager
async def a_client(
    hosts: str = "a,b", timeout: float = 10.0, *, server: Server | None = None, **options: Any
) -> AsyncIterator[tuple[Server, zkwire.Client]]:
    """Start a server and a client of it, which tries its hosts in the order in which they are named."""
    server = server or Server()
    options.setdefault("rng", InOrder(1))
    async with zkwire.connect(hosts, timeout, open_link=server.open_link, **options) as zk:
        server.requests.clear()
        server.writes.clear()
        yield server, zk
