"""The floors: a waiting line on raw blocking sockets with hand-packed frames, and the few calls that set one up.

It knows as much of the wire as these calls need and nothing of zkwire, so that what it measures is the server, the
kernel and a bare Python loop. It is no lock to use: it takes for granted that nobody in the line dies.

``floor``     owns when the event says that its predecessor is gone: one way from a delete to an event, and nothing else
``textbook``  lists the children again after the event and owns when it is the lowest, as the recipe is written
"""

import socket
import struct
import time
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from bench.turns import SESSION_TIMEOUT, Order, Turn

_CREATE, _DELETE, _GET_DATA, _GET_CHILDREN, _PING, _CLOSE = 1, 2, 4, 8, 11, -11
_PERSISTENT, _EPHEMERAL_SEQUENTIAL = 0, 3
_OK, _NO_NODE, _NODE_EXISTS = 0, -101, -110
_EVENT_XID, _PING_XID = -1, -2
_NODE_DELETED = 2

_INT = struct.Struct(">i")
_REQUEST = struct.Struct(">iii")  # length, xid, opcode
_REPLY = struct.Struct(">iiqi")  # length, xid, zxid, err
_CONNECT = struct.Struct(">iiqiqi16s?")  # length, version, last zxid, timeout, session, password with length, read only
_CONNECT_REPLY = struct.Struct(">iii")  # length, version, timeout; the rest is of no use here
_TIMEVAL = struct.Struct("@ll")

_BUFFER_SIZE = 1 << 20
_CONNECT_TIME_LIMIT = 5.0


class RefusedError(RuntimeError):
    """The server answered with an error code that the line has no use for, or with something that nobody asked for."""


class RawSession:
    """One ZooKeeper session on one blocking socket, one request at a time.

    ``arrived`` is the time at which the bytes that hold the last reply or event came in.
    """

    def __init__(self, host: str, port: int) -> None:
        self._buffer = bytearray(_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self.arrived = 0
        self._socket = socket.create_connection((host, port), _CONNECT_TIME_LIMIT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of Python's would put a poll() before each recv(); the kernel's own costs nothing.
        self._socket.settimeout(None)
        seconds, part = divmod(SESSION_TIMEOUT / 3, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(int(seconds), int(part * 1e6)))
        hello = _CONNECT.pack(_CONNECT.size - 4, 0, 0, int(SESSION_TIMEOUT * 1000), 0, 16, bytes(16), False)
        self._socket.sendall(hello)
        if _CONNECT_REPLY.unpack_from(self._view, self._next_frame())[2] <= 0:
            raise RefusedError(f"{host}:{port} gave no session")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._socket:
            if error is None:
                self.call(_frame(_CLOSE))

    def call(self, request: bytes, *tolerated: int) -> tuple[int, int, memoryview]:
        """Send a frame and return its reply's zxid, error code and body, which is good until the next call.

        Raises RefusedError for an error code that is not tolerated.
        """
        self._socket.sendall(request)
        while True:
            xid, zxid, code, body = self._receive()
            if xid == _PING_XID:
                continue
            if xid == _EVENT_XID or code not in (_OK, *tolerated):
                raise RefusedError(f"request {request.hex(' ', 4)} was answered by xid {xid}, error {code}")
            return zxid, code, body

    def wait_until_gone(self, path: bytes) -> None:
        """Wait for the event that says that the node, which is watched, was deleted."""
        while True:
            xid, _, _, event = self._receive()
            if xid == _PING_XID:
                continue
            if xid != _EVENT_XID or _INT.unpack_from(event)[0] != _NODE_DELETED or event[12:] != path:
                raise RefusedError(f"waiting for {path!r} to go, got xid {xid}: {bytes(event)!r}")
            return

    def _receive(self) -> tuple[int, int, int, memoryview]:
        start = self._next_frame()
        _, xid, zxid, code = _REPLY.unpack_from(self._view, start)
        return xid, zxid, code, self._view[start + _REPLY.size : self._start]

    def _next_frame(self) -> int:
        """Receive until a whole frame is there, step over it, and return where it starts."""
        while True:
            have = self._end - self._start
            if have == 0:
                self._start = self._end = 0
            elif have >= 4:
                size = _INT.unpack_from(self._view, self._start)[0] + 4
                if have >= size:
                    start = self._start
                    self._start += size
                    return start
                if self._start + size > _BUFFER_SIZE:
                    raise RefusedError(f"a frame of {size} bytes does not fit")
            try:
                count = self._socket.recv_into(self._view[self._end :])
            except BlockingIOError:
                # Idle for a third of the session timeout: tell the server that we live.
                self._socket.sendall(_PING_FRAME)
                continue
            self.arrived = time.monotonic_ns()
            if count == 0:
                raise ConnectionError("the server closed the connection")
            self._end += count


def race(order: Order, starter: Connection) -> list[Turn]:
    """Run one worker's turns of either line: tell when connected, wait for the start, return the records."""
    confirm = order.contestant == "textbook"
    turns = []
    with RawSession(order.host, order.port) as session:
        starter.send("ready")
        starter.recv()
        place = _Place(session, order.lock)
        for _ in range(order.turns):
            acquire_called = time.monotonic_ns()
            acquired = place.acquire(confirm)
            if order.hold:
                time.sleep(order.hold)
            release_called = time.monotonic_ns()
            place.release()
            turns.append(Turn(acquire_called, acquired, release_called, time.monotonic_ns(), place.token))
    return turns


class _Place:
    """One worker's place in the line, taken and left again and again."""

    def __init__(self, session: RawSession, lock: str) -> None:
        self._session = session
        self._parent = lock.encode() + b"/"
        self._create = _create_frame(lock + "/n-", _EPHEMERAL_SEQUENTIAL)
        self._list = _list_frame(lock)
        self._delete = b""
        self.token = 0

    def acquire(self, confirm: bool) -> int:
        """Take a place, wait until it is the first, and return the time at which it was."""
        session = self._session
        self.token, _, body = session.call(self._create)
        path = bytes(body[4:])
        self._delete = _delete_frame(path)
        mine = path.removeprefix(self._parent)
        while True:
            # Sequence numbers have a fixed width and one prefix, so text order is line order.
            before = max((name for name in _names(session.call(self._list)[2]) if name < mine), default=None)
            if before is None:
                return time.monotonic_ns()
            watched = self._parent + before
            if session.call(_frame(_GET_DATA, _text(watched) + b"\1"), _NO_NODE)[1] == _OK:
                session.wait_until_gone(watched)
                if not confirm:
                    return session.arrived

    def release(self) -> None:
        """Leave the line; the server has done so when this returns."""
        self._session.call(self._delete)


def make_path(session: RawSession, path: str) -> None:
    """Create a persistent node and those above it, where they are missing."""
    names = path.strip("/").split("/")
    for depth in range(len(names)):
        session.call(_create_frame("/" + "/".join(names[: depth + 1]), _PERSISTENT), _NODE_EXISTS)


def remove_tree(session: RawSession, path: str) -> None:
    """Delete a node and all below it; the server may remove containers meanwhile."""
    code, body = session.call(_list_frame(path), _NO_NODE)[1:]
    if code == _OK:
        for name in _names(body):
            remove_tree(session, f"{path}/{name.decode()}")
        session.call(_delete_frame(path.encode()), _NO_NODE)


def server_version(host: str, port: int) -> str | None:
    """Return the version that a server reports of itself; None where it does not allow the question."""
    answer = bytearray()
    with socket.create_connection((host, port), _CONNECT_TIME_LIMIT) as connection:
        connection.sendall(b"srvr")
        while chunk := connection.recv(4096):
            answer += chunk
    title, _, rest = answer.decode(errors="replace").partition(": ")
    return rest.partition("-")[0] if title == "Zookeeper version" else None


def _frame(opcode: int, body: bytes = b"", xid: int = 1) -> bytes:
    # The server only echoes xids: a session that asks one thing at a time can use one for all and keep frames ready.
    return _REQUEST.pack(8 + len(body), xid, opcode) + body


def _text(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text


def _create_frame(path: str, flags: int) -> bytes:
    acl = _INT.pack(1) + _INT.pack(31) + _text(b"world") + _text(b"anyone")
    return _frame(_CREATE, _text(path.encode()) + _text(b"") + acl + _INT.pack(flags))


def _delete_frame(path: bytes) -> bytes:
    return _frame(_DELETE, _text(path) + _INT.pack(-1))


def _list_frame(path: str) -> bytes:
    return _frame(_GET_CHILDREN, _text(path.encode()) + b"\0")


def _names(body: memoryview) -> list[bytes]:
    """The names in a getChildren reply."""
    names = []
    at = 4
    for _ in range(_INT.unpack_from(body)[0]):
        end = at + 4 + _INT.unpack_from(body, at)[0]
        names.append(bytes(body[at + 4 : end]))
        at = end
    return names


_PING_FRAME = _frame(_PING, xid=_PING_XID)
