"""Sessions without a client, all of which a real server ends at one moment that is known in advance.

A server ends sessions at multiples of its tick, by the clock that is the event loop's on Linux, and those that are due
at the same moment it ends one after the other.  A session that comes back meanwhile is accepted, and its writes are
committed, until its turn comes; then it is ended anyway.
"""

import math
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from zkwire import OPEN_ACL
from zkwire.wire.records import ConnectRequest, ConnectResponse
from zkwire.wire.requests import CreateRequest

_AT_ONCE: Final = 20  # fewer than a server lets wait for it to accept them
_EPHEMERAL_SEQUENTIAL: Final = 3
_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ii")  # xid, opcode
_REPLY: Final = struct.Struct(">iqi")  # xid, zxid, error code
_LIMIT: Final = 30.0  # seconds
_APART: Final = 0.02  # seconds between two sessions that come back


@dataclass(frozen=True, slots=True)
class RawSession:
    """What it takes to resume a session."""

    id: int
    password: bytes


def next_end(tick: float, after: float) -> float:
    """Return the first moment not before `after` at which a server ends sessions; both in seconds."""
    return math.ceil(after / tick) * tick


def create_due(port: int, count: int, due: float, tick: float, until: float) -> list[RawSession]:
    """Create sessions that are due at `due`, `count` or as many as there is time for, and leave them to themselves.

    The server must grant what is left at `until`.
    """
    made: list[RawSession] = []
    while len(made) < count and time.monotonic() < until:
        # What a server is asked for it rounds up to a whole tick: half a tick is left on both sides.
        asked = round((due - tick / 2 - time.monotonic()) * 1000)
        hello = _framed(ConnectRequest(0, 0, asked, 0, bytes(16), False).encode())
        with ExitStack() as stack:
            sockets = [_connect(stack, port) for _ in range(_AT_ONCE)]
            for each in sockets:
                each.sendall(hello)
            for each in sockets:
                response, _ = ConnectResponse.decode(_frame(each), 0)
                if response.timeout == asked:  # a server grants more than is left on a very busy machine
                    made.append(RawSession(response.session_id, response.password))
    return made


def write_in(port: int, sessions: Sequence[RawSession], timeout: float, path: str) -> list[str]:
    """Resume the sessions, create an ephemeral node in each, whose path begins with `path`, and leave them again.

    Returns the paths of the nodes that were committed.  There may be twenty sessions at most.
    """
    request = CreateRequest(path, b"", OPEN_ACL, _EPHEMERAL_SEQUENTIAL)
    create = _framed(_HEADER.pack(1, CreateRequest.opcode) + request.encode())
    created = []
    with ExitStack() as stack:
        sockets = [_connect(stack, port) for _ in sessions]
        for each, session in zip(sockets, sessions, strict=True):
            hello = ConnectRequest(0, 0, round(timeout * 1000), session.id, session.password, False)
            each.sendall(_framed(hello.encode()) + create)
            time.sleep(_APART)
        for each in sockets:
            answer = _frame(each)  # none if the server ends the session just then
            is_resumed = answer and ConnectResponse.decode(answer, 0)[0].timeout > 0
            reply = _frame(each) if is_resumed else b""
            if reply and not _REPLY.unpack_from(reply)[2]:
                created.append(reply[_REPLY.size + _LENGTH.size :].decode())
    return created


def _connect(stack: ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), _LIMIT))


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _frame(connection: socket.socket) -> bytes:
    """Return the next frame; nothing if the connection ends before it."""
    head = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(_LENGTH.unpack(head)[0], socket.MSG_WAITALL) if len(head) == 4 else b""
