"""Hand-packed frames, without zkwire: as much of the protocol as the benchmark's own contestants need."""

import struct
from typing import Final

from bench.turns import SESSION_TIMEOUT

OK, NO_NODE, NODE_EXISTS = 0, -101, -110
EVENT_XID, PING_XID = -1, -2
PERSISTENT, EPHEMERAL_SEQUENTIAL, CONTAINER = 0, 3, 4
NODE_DELETED: Final = 2

INT: Final = struct.Struct(">i")
REPLY: Final = struct.Struct(">iiqi")  # length, xid, zxid, err
CONNECT_REPLY: Final = struct.Struct(">iii")  # length, version, timeout; the rest is not used here

_CREATE, _DELETE, _GET_DATA, _SET_DATA, _GET_CHILDREN, _PING, _CLOSE = 1, 2, 4, 5, 8, 11, -11
_CREATE_CONTAINER = 19
_REQUEST = struct.Struct(">iii")  # length, xid, opcode
_CONNECT = struct.Struct(">iiqiqi16s?")  # length, version, last zxid, timeout, session, password with length, read only
_STAT = struct.Struct(">qqqqiiiqiiq")
_EVENT_HEAD = 12  # bytes of an event's body before its path: type, state, the path's length


class RefusedError(RuntimeError):
    """The server answered with an error code that the line cannot handle, or with something unexpected."""


def create(path: str, flags: int) -> bytes:
    """Return the frame that creates a node without data."""
    acl = INT.pack(1) + INT.pack(31) + _text(b"world") + _text(b"anyone")
    return _frame(
        _CREATE_CONTAINER if flags == CONTAINER else _CREATE, _text(path.encode()) + _text(b"") + acl + INT.pack(flags)
    )


def delete(path: bytes) -> bytes:
    """Return the frame that deletes a node of any version."""
    return _frame(_DELETE, _text(path) + INT.pack(-1))


def get(path: str) -> bytes:
    """Return the frame that reads a node."""
    return _frame(_GET_DATA, _text(path.encode()) + b"\0")


def set_data(path: str, data: bytes) -> bytes:
    """Return the frame that replaces a node's data, of any version."""
    return _frame(_SET_DATA, _text(path.encode()) + _text(data) + INT.pack(-1))


def node(body: bytes | memoryview) -> tuple[bytes, tuple[int, ...]]:
    """Return the data and the numbers of the Stat in the body of a reply to `get`."""
    end = 4 + INT.unpack_from(body)[0]
    return bytes(body[4:end]), _STAT.unpack_from(body, end)


def watch(path: bytes) -> bytes:
    """Return the frame that reads a node and watches it."""
    return _frame(_GET_DATA, _text(path) + b"\1")


def children(path: str) -> bytes:
    """Return the frame that lists a node's children."""
    return _frame(_GET_CHILDREN, _text(path.encode()) + b"\0")


def names(body: bytes | memoryview) -> list[bytes]:
    """Return the names in the body of a reply to `children`."""
    found = []
    at = 4
    for _ in range(INT.unpack_from(body)[0]):
        end = at + 4 + INT.unpack_from(body, at)[0]
        found.append(bytes(body[at + 4 : end]))
        at = end
    return found


def departed(event: bytes | memoryview) -> bytes:
    """Return the path of the deleted node from the body of an event.

    Raises:
        RefusedError: if the server refuses it.
    """
    if INT.unpack_from(event)[0] != NODE_DELETED:
        raise RefusedError(f"an event that reports no deletion: {bytes(event)!r}")
    return bytes(event[_EVENT_HEAD:])


def _frame(opcode: int, body: bytes = b"", xid: int = 1) -> bytes:
    # The server only echoes xids: a session that waits for one reply at a time can use one xid, and prepare frames.
    return _REQUEST.pack(8 + len(body), xid, opcode) + body


def _text(text: bytes) -> bytes:
    return INT.pack(len(text)) + text


HELLO: Final = _CONNECT.pack(_CONNECT.size - 4, 0, 0, int(SESSION_TIMEOUT * 1000), 0, 16, bytes(16), False)
PING: Final = _frame(_PING, xid=PING_XID)
CLOSE: Final = _frame(_CLOSE)
