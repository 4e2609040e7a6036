"""The contestants `floor` and `textbook`: a waiting line on raw blocking sockets with hand-packed frames.

They use nothing of zkwire, so they measure the server, the kernel and a bare Python loop.  This is no lock to use: it
assumes that no contender dies.

``floor``     owns when the event reports that its predecessor is gone: the way from a delete to an event, and no more
``textbook``  lists the children again after the event and owns when it is the lowest, as the recipe is written
"""

import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from bench import frames
from bench.frames import RefusedError
from bench.racing import Starter
from bench.turns import SESSION_TIMEOUT, Order, Turn

_TIMEVAL = struct.Struct("@ll")

BUFFER_SIZE = 1 << 20
_CONNECT_TIME_LIMIT = 5.0


class RawSession:
    """One ZooKeeper session on one blocking socket, one request at a time.

    ``arrived`` is the time at which the bytes of the last reply or event came in.
    """

    def __init__(self, host: str, port: int) -> None:
        self._buffer = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self.arrived = 0
        self._socket = socket.create_connection((host, port), _CONNECT_TIME_LIMIT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout set in Python would add a poll() before each recv(); the kernel's own timeout costs nothing.
        self._socket.settimeout(None)
        seconds, part = divmod(SESSION_TIMEOUT / 3, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(int(seconds), int(part * 1e6)))
        self._socket.sendall(frames.HELLO)
        if frames.CONNECT_REPLY.unpack_from(self._view, self._next_frame())[2] <= 0:
            raise RefusedError(f"{host}:{port} gave no session")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._socket:
            if error is None:
                self.call(frames.CLOSE)

    def call(self, request: bytes, *tolerated: int) -> tuple[int, int, memoryview]:
        """Send a frame and return its reply's zxid, error code and body; the body is valid until the next call.

        Raises:
            RefusedError: for an error code that is not tolerated.
        """
        self._socket.sendall(request)
        while True:
            xid, zxid, code, body = self._receive()
            if xid == frames.PING_XID:
                continue
            if xid == frames.EVENT_XID or code not in (frames.OK, *tolerated):
                raise RefusedError(f"request {request.hex(' ', 4)} was answered by xid {xid}, error {code}")
            return zxid, code, body

    def call_all(self, requests: bytes, count: int, *tolerated: int) -> Iterator[memoryview]:
        """Send `count` frames in one write, and give the body of each reply as it comes; see `call`."""
        self._socket.sendall(requests)
        while count:
            xid, _, code, body = self._receive()
            if xid == frames.PING_XID:
                continue
            if xid == frames.EVENT_XID or code not in (frames.OK, *tolerated):
                raise RefusedError(f"one of several requests was answered by xid {xid}, error {code}")
            count -= 1
            yield body

    def wait_until_gone(self, path: bytes) -> None:
        """Wait for the event that reports the deletion of the watched node."""
        while True:
            xid, _, _, event = self._receive()
            if xid == frames.PING_XID:
                continue
            if xid != frames.EVENT_XID or frames.departed(event) != path:
                raise RefusedError(f"waiting for {path!r} to go, got xid {xid}: {bytes(event)!r}")
            return

    def _receive(self) -> tuple[int, int, int, memoryview]:
        start = self._next_frame()
        _, xid, zxid, code = frames.REPLY.unpack_from(self._view, start)
        return xid, zxid, code, self._view[start + frames.REPLY.size : self._start]

    def _next_frame(self) -> int:
        """Receive until a whole frame is in the buffer, step over it, and return where it starts."""
        while True:
            have = self._end - self._start
            if have == 0:
                self._start = self._end = 0
            elif have >= 4:
                size = frames.INT.unpack_from(self._view, self._start)[0] + 4
                if have >= size:
                    start = self._start
                    self._start += size
                    return start
                if size > BUFFER_SIZE:
                    raise RefusedError(f"a frame of {size} bytes does not fit")
                if self._start + size > BUFFER_SIZE:
                    self._move_to_front()
            elif self._start + 4 > BUFFER_SIZE:
                self._move_to_front()
            try:
                count = self._socket.recv_into(self._view[self._end :])
            except BlockingIOError:
                # Idle for a third of the session timeout: keep the session alive.
                self._socket.sendall(frames.PING)
                continue
            self.arrived = time.monotonic_ns()
            if count == 0:
                raise ConnectionError("the server closed the connection")
            self._end += count

    def _move_to_front(self) -> None:
        """Make room after what is not read yet; this happens only when large answers come one after the other."""
        have = self._end - self._start
        self._buffer[:have] = self._buffer[self._start : self._end]
        self._start, self._end = 0, have


def race(order: Order, starter: Starter) -> list[Turn]:
    """Run one worker's turns of either line: report when connected, wait for the start, return the records."""
    confirm = order.contestant == "textbook"
    turns = []
    with RawSession(order.host, order.port) as session:
        starter.send("ready")
        starter.recv()
        ticket = _Ticket(session, order.lock)
        for _ in range(order.turns):
            acquire_called = time.monotonic_ns()
            acquired = ticket.acquire(confirm)
            if order.hold:
                time.sleep(order.hold)
            release_called = time.monotonic_ns()
            ticket.release()
            turns.append(Turn(acquire_called, acquired, release_called, time.monotonic_ns(), ticket.token))
    return turns


class _Ticket:
    """One worker's ticket in the line, created and deleted in each turn."""

    def __init__(self, session: RawSession, lock: str) -> None:
        self._session = session
        self._parent = lock.encode() + b"/"
        self._create = frames.create(lock + "/n-", frames.EPHEMERAL_SEQUENTIAL)
        self._list = frames.children(lock)
        self._delete = b""
        self.token = 0

    def acquire(self, confirm: bool) -> int:
        """Create a ticket, wait until it is the first, and return the time at which it was."""
        session = self._session
        self.token, _, body = session.call(self._create)
        path = bytes(body[4:])
        self._delete = frames.delete(path)
        mine = path.removeprefix(self._parent)
        while True:
            # Sequence numbers have a fixed width and one prefix, so text order is line order.
            before = max((name for name in frames.names(session.call(self._list)[2]) if name < mine), default=None)
            if before is None:
                return time.monotonic_ns()
            watched = self._parent + before
            if session.call(frames.watch(watched), frames.NO_NODE)[1] == frames.OK:
                session.wait_until_gone(watched)
                if not confirm:
                    return session.arrived

    def release(self) -> None:
        """Delete the ticket; the server has done so when this returns."""
        self._session.call(self._delete)


def make_path(session: RawSession, path: str) -> None:
    """Create a persistent node and the missing nodes above it."""
    names = path.strip("/").split("/")
    for depth in range(len(names)):
        session.call(frames.create("/" + "/".join(names[: depth + 1]), frames.PERSISTENT), frames.NODE_EXISTS)


def remove_tree(session: RawSession, path: str) -> None:
    """Delete a node and everything below it; the server may remove containers meanwhile."""
    code, body = session.call(frames.children(path), frames.NO_NODE)[1:]
    if code == frames.OK:
        for name in frames.names(body):
            remove_tree(session, f"{path}/{name.decode()}")
        session.call(frames.delete(path.encode()), frames.NO_NODE)


def server_version(host: str, port: int) -> str | None:
    """Return the version that a server reports; None if it does not allow the question."""
    answer = bytearray()
    with socket.create_connection((host, port), _CONNECT_TIME_LIMIT) as connection:
        connection.sendall(b"srvr")
        while chunk := connection.recv(4096):
            answer += chunk
    title, _, rest = answer.decode(errors="replace").partition(": ")
    return rest.partition("-")[0] if title == "Zookeeper version" else None
