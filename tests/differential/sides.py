"""The two servers that are compared, behind one interface: connections that take requests and return frames."""

import contextlib
import itertools
import socket
from typing import Protocol

from tests.captures import build
from zkwire.testing.memory.machine import Machine, ServerConnection, Settings
from zkwire.wire.frames import FrameReader

MAX_TIMEOUT = 3600.0  # seconds: no session may expire in a run, also when it is stopped for a while
PING = build.i32(-2) + build.opcode(11)
PING_REPLY = build.i32(-2)
# How long to wait for the end of a connection before asking whether it is open; this happens only in a failing run.
END_LIMIT = 5.0
PATIENCE = 180.0


class Link(Protocol):
    """A connection to one of the two servers."""

    def exchange(self, payloads: list[bytes], closing: bool | None) -> tuple[list[bytes], bool]:
        """Send frames in one write; return what came, up to the answer of a ping that is sent behind them.

        `closing`: whether the server is expected to close the connection; then no ping is sent. None: find out.
        Returns the frames without their lengths, and whether the connection was closed.
        """
        ...

    def drop(self) -> None:
        """Close the connection."""
        ...


class RealLink:
    """A socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(1 << 26)
        self._pending: list[bytes] = []

    def greet(self, payload: bytes, closing: bool) -> tuple[list[bytes], bool]:
        """Do the handshake; return its frames, one or none, and whether the server has closed the connection."""
        self._socket.sendall(build.frame(payload))
        first = self._next()
        if first is None:
            return [], True
        return ([first, *self._rest()], True) if closing else ([first], False)

    def exchange(self, payloads: list[bytes], closing: bool | None) -> tuple[list[bytes], bool]:
        if not closing:
            payloads = [*payloads, PING]
        frames: list[bytes] = []
        try:
            self._socket.sendall(b"".join(map(build.frame, payloads)))
        except ConnectionError:
            return [*frames, *self._rest()], True
        if closing:
            return self._until_end()
        while (frame := self._next()) is not None:
            if frame[:4] == PING_REPLY:
                return frames, False
            frames.append(frame)
        return frames, True

    def _until_end(self) -> tuple[list[bytes], bool]:
        frames: list[bytes] = []
        self._socket.settimeout(END_LIMIT)
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except TimeoutError:
            self._socket.settimeout(PATIENCE)
            more, closed = self.exchange([], False)
            return frames + more, closed
        return frames, True

    def _rest(self) -> list[bytes]:
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> bytes | None:
        while not self._pending:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._pending = self._reader.feed(data)
        return self._pending.pop(0)

    def drop(self) -> None:
        """Close the connection, and wait until the server has closed its end: README.md says why."""
        with contextlib.suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_WR)
        while self._next() is not None:
            pass
        self._socket.close()


class RealSide:
    """A real server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._roots = itertools.count(1)

    def next_root(self) -> str:
        """Return a new path, below which one script works."""
        return f"/d{next(self._roots)}"

    def open(self) -> RealLink:
        return RealLink(self._port)


class MachineLink:
    """A connection of a machine."""

    def __init__(self, side: "MachineSide", connection: ServerConnection) -> None:
        self._side = side
        self._connection = connection

    def greet(self, payload: bytes, closing: bool) -> tuple[list[bytes], bool]:
        self._side.machine.receive(self._connection, payload, self._side.tick())
        return self._take()

    def exchange(self, payloads: list[bytes], closing: bool | None) -> tuple[list[bytes], bool]:
        for payload in payloads:
            if not self._connection.closing:
                self._side.machine.receive(self._connection, payload, self._side.tick())
        return self._take()

    def _take(self) -> tuple[list[bytes], bool]:
        frames = FrameReader(1 << 26).feed(b"".join(self._connection.outgoing))
        self._connection.outgoing.clear()
        if self._connection.closing:
            self.drop()
        return frames, self._connection.closing

    def drop(self) -> None:
        self._side.machine.lost(self._connection, self._side.tick())


class MachineSide:
    """A pure machine with a simulated clock."""

    def __init__(self) -> None:
        settings = Settings(tick_time=2.0, max_session_timeout=MAX_TIMEOUT, container_interval=1e9)
        self.machine = Machine(settings, now=0.0, wall=1_700_000_000.0)
        self._now = 0.0
        self._port = 40_000

    def open(self) -> MachineLink:
        self._port += 1
        return MachineLink(self, self.machine.open("127.0.0.1", self._port, self.tick()))

    def tick(self) -> float:
        """Advance the clock a little, and return the time."""
        self._now += 0.001
        return self._now
