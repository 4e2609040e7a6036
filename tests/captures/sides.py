"""Two servers with one interface: connections that take bytes and return frames.

A real server, or the in-memory one around its Machine, is reached by sockets; the Machine itself needs none, and no
clock.
"""

from __future__ import annotations

import contextlib
import socket

from zkwire.testing.memory.machine import Machine, ServerConnection, Settings
from zkwire.wire.frames import LENGTH, FrameReader
from zkwire.wire.records import PING_XID, RequestHeader
from zkwire.wire.requests import PingRequest

# How long to wait for the end of a connection before asking whether it is open; this happens only in a failing run.
END_LIMIT = 5.0
PATIENCE = 180.0  # seconds: a loaded machine may stop a test run for a minute
_PING_REPLY = PING_XID.to_bytes(4, "big", signed=True)
_PING_OPCODE = PingRequest.opcode.to_bytes(4, "big")

# Frames without their lengths, and whether the connection was closed.
Answers = tuple[list[bytes], bool]


def framed(payload: bytes) -> bytes:
    """Return a frame with its length."""
    return LENGTH.pack(len(payload)) + payload


PING = framed(RequestHeader(PING_XID, PingRequest.opcode).encode())


class RealLink:
    """A socket.  A ping follows what is sent; all that arrives before its reply was caused earlier.

    `greet` sends the first frame of the connection and returns its answer; `exchange` sends bytes (frames with their
    lengths, or bytes that are none) in one write, and returns all that they and other connections have caused here so
    far. `closing` is whether the server is expected to close the connection.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(1 << 26)
        self._pending: list[bytes] = []

    def greet(self, data: bytes, closing: bool) -> Answers:
        self._socket.sendall(data)
        first = self._next()
        if first is None:
            return [], True
        return ([first, *self._rest()], True) if closing else ([first], False)

    def exchange(self, data: bytes, closing: bool) -> Answers:
        pings = 1 + (data[8:12] == _PING_OPCODE)  # the first frame may be a ping as well
        try:
            self._socket.sendall(data if closing else data + PING)
        except ConnectionError:
            return self._rest(), True
        if closing:
            return self._until_end()
        frames: list[bytes] = []
        while (frame := self._next()) is not None:
            pings -= frame[:4] == _PING_REPLY
            if not pings:
                return frames, False
            frames.append(frame)
        return frames, True

    def _until_end(self) -> Answers:
        self._socket.settimeout(END_LIMIT)
        frames: list[bytes] = []
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except TimeoutError:
            self._socket.settimeout(PATIENCE)
            more, closed = self.exchange(b"", False)
            return frames + more, closed
        return frames, True

    def _rest(self) -> list[bytes]:
        return list(iter(self._next, None))

    def _next(self) -> bytes | None:
        """Return the next frame; None at the end of the stream, or after a reset because of unread bytes."""
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
        """Close the connection, and wait until the server has closed its end.

        If a real server noticed the end after the session was resumed, it would forget the session.
        """
        with contextlib.suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_WR)
        self._rest()
        self._socket.close()


class RealSide:
    """A server that listens on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self) -> RealLink:
        return RealLink(self._port)


class MachineLink:
    """A connection of a machine; it splits the bytes into frames, as the server around the machine does."""

    def __init__(self, side: MachineSide, connection: ServerConnection) -> None:
        self._side = side
        self._connection = connection
        self._reader = FrameReader(side.machine.settings.max_buffer)

    def greet(self, data: bytes, closing: bool) -> Answers:
        return self.exchange(data, closing)

    def exchange(self, data: bytes, closing: bool) -> Answers:
        connection = self._connection
        for payload in self._reader.feed(data):
            self._side.machine.receive(connection, payload, self._side.tick())
        connection.closing |= self._reader.error is not None
        frames = FrameReader(1 << 26).feed(b"".join(connection.outgoing))
        connection.outgoing.clear()
        if connection.closing:
            self.drop()
        return frames, connection.closing

    def drop(self) -> None:
        self._side.machine.lost(self._connection, self._side.tick())


class MachineSide:
    """A pure machine with a simulated clock."""

    def __init__(self, settings: Settings) -> None:
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


SideLink = RealLink | MachineLink
Side = RealSide | MachineSide
