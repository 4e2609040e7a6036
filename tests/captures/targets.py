"""Targets of the script: a server behind sockets, and a recording of an earlier play."""

import contextlib
import socket
from collections.abc import Collection

from tests.captures import build
from tests.captures.play import PING, Exchange, Recording, Unexpected

# Seconds.  Only a broken server makes a test wait so long; a loaded machine may stop a test run for a minute.
PATIENCE = 180.0
BARRIER = build.frame(build.i32(-2) + build.opcode(PING))
BARRIER_XID = build.i32(-2)
EVENT_XID = build.i32(-1)


class SocketTarget:
    """A server on a loopback port.

    After every step, each connection with a session sends a ping that is not part of the script.  Everything that
    arrives before its reply was caused by the step.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: dict[str, socket.socket] = {}
        self._greeted: set[str] = set()

    def __enter__(self) -> "SocketTarget":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name in list(self._sockets):
            self.drop(name)

    def open(self, connection: str) -> None:
        opened = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[connection] = opened

    def send(self, connection: str, data: bytes) -> None:
        self._sockets[connection].sendall(data)

    def drop(self, connection: str) -> None:
        """Close the connection, and wait until the server has closed its end.

        If a real server noticed the end after the session was resumed, it would forget the session.
        """
        with contextlib.suppress(OSError):  # it is closed already
            self._sockets[connection].shutdown(socket.SHUT_WR)
        while self._read(connection) is not None:
            pass
        self._sockets.pop(connection).close()
        self._greeted.discard(connection)

    def gather(self, connection: str | None, closing: Collection[str]) -> tuple[list[tuple[str, bytes]], list[str]]:
        received: list[tuple[str, bytes]] = []
        closed = set()
        if connection is not None:
            while (frame := self._read(connection)) is not None:
                received.append((connection, frame))
                if frame[:4] != EVENT_XID:
                    break
            else:
                closed.add(connection)
            self._greeted.add(connection)
        for name in sorted((self._greeted | set(closing)) - closed):
            if name not in closing:
                try:
                    self.send(name, BARRIER)
                except OSError:
                    closed.add(name)
                    continue
            while (frame := self._read(name)) is not None:
                if frame[:4] == BARRIER_XID and name not in closing:
                    break
                received.append((name, frame))
            else:
                closed.add(name)
        for name in closed:
            self.drop(name)
        return received, sorted(closed)

    def _read(self, connection: str) -> bytes | None:
        """Return the next frame; None at the end of the stream, or after a reset because of unread bytes."""
        try:
            head = self._exactly(connection, 4)
            return None if head is None else self._exactly(connection, int.from_bytes(head, "big"))
        except ConnectionError:
            return None

    def _exactly(self, connection: str, count: int) -> bytes | None:
        found = b""
        while len(found) < count:
            chunk = self._sockets[connection].recv(count - len(found))
            if not chunk:
                return None
            found += chunk
        return found


class RecordedTarget:
    """A recording: returns what was received then, and fails unless the same bytes are sent."""

    def __init__(self, recording: Recording) -> None:
        self._left = list(recording.exchanges)

    def open(self, connection: str) -> None:
        self._next(connection, "open")

    def send(self, connection: str, data: bytes) -> None:
        recorded = self._next(connection, "open", "send")
        if recorded.sent != data:
            raise Unexpected(f"{recorded.name} was recorded with other bytes: record again")

    def drop(self, connection: str) -> None:
        self._next(connection, "drop")

    def gather(self, connection: str | None, closing: Collection[str]) -> tuple[list[tuple[str, bytes]], list[str]]:
        recorded = self._left.pop(0)
        return recorded.received, recorded.closed

    def _next(self, connection: str, *actions: str) -> Exchange:
        if not self._left or self._left[0].connection != connection or self._left[0].action not in actions:
            raise Unexpected(f"the recording has no step of {connection} here: record again")
        return self._left[0]
