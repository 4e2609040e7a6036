"""Decodes bytes from a server into zkwire's records, and masks the fields that differ from server to server.

Masking follows the structure: a frame is decoded, fields are replaced in its records, and the records are encoded
again.  A session's id becomes its number in the order of appearance, so that equal ids stay equal.  A zxid is counted
from the last one before the play.  A time is replaced by the zxid of its transaction, after a check that the same
transaction always has the same time.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from tests.captures.recording import Exchange
from zkwire.wire import requests as wire
from zkwire.wire.jute import Record, record
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.primitives import DecodeError, Int, Long
from zkwire.wire.records import ACL, EVENT_XID, ConnectRequest, ConnectResponse, Stat, WatcherEvent
from zkwire.wire.requests import Nothing


@record
class ReplyHeader(Record):
    """The header of every reply and event; the handshake's reply has none."""

    xid: Int
    zxid: Long
    err: Int


def _request_types() -> dict[int, type[wire.Request[Any]]]:
    kinds = [kind for kind in vars(wire).values() if isinstance(kind, type) and issubclass(kind, wire.Request)]
    return {kind.opcode: kind for kind in (*kinds, MultiRequest, MultiReadRequest) if hasattr(kind, "opcode")}


REQUESTS: Final = _request_types()
MULTI_READ: Final = 22
SASL: Final = 102


def is_event(frame: bytes) -> bool:
    """Return whether the frame is an event and not a reply."""
    return int.from_bytes(frame[:4], "big", signed=True) == EVENT_XID


def decode_connect_response(frame: bytes) -> tuple[ConnectResponse, bool | None]:
    """Return the handshake's response and its readOnly byte, None if the byte is absent."""
    response, at = ConnectResponse.decode(frame, 0)
    rest = frame[at:]
    if len(rest) > 1:
        raise ValueError(f"{len(rest)} bytes follow a handshake's answer")
    return response, bool(rest[0]) if rest else None


def decode_event(frame: bytes) -> tuple[ReplyHeader, WatcherEvent]:
    """Return the header and the body of an event."""
    header, at = ReplyHeader.decode(frame, 0)
    event, at = WatcherEvent.decode(frame, at)
    _no_more(frame, at)
    return header, event


def decode_reply(opcode: int, frame: bytes) -> tuple[ReplyHeader, Record | None]:
    """Return a reply's header and its body, None if it has none.

    A refusal has no body, except that the server may append one to a refusal of sasl or multiRead.
    """
    header, at = ReplyHeader.decode(frame, 0)
    body: Record | None = None
    if header.err == 0 or (opcode in (SASL, MULTI_READ) and at < len(frame)):
        kind = REQUESTS[opcode].reply
        if kind is not Nothing:
            body, at = kind.decode(frame, at)
    _no_more(frame, at)
    return header, body


def _no_more(frame: bytes, at: int) -> None:
    if at != len(frame):
        raise ValueError(f"{len(frame) - at} bytes follow a frame's last field")


def names_of(value: Record) -> list[str]:
    """Return the names of a record's fields."""
    return [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]


def described(value: Any) -> str:
    """Return a record as text in ASCII, with the names of its fields."""
    if isinstance(value, Record):
        fields = (f"{name}={described(getattr(value, name))}" for name in names_of(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(described, value))}]"
    return ascii(value)


def meanings(exchange: Exchange) -> list[str]:
    """Return what the request of an exchange means, and each frame received."""
    return [
        *([_request_meaning(exchange)] if exchange.sent else []),
        *(_frame_meaning(exchange, connection, frame) for connection, frame in exchange.received),
    ]


def _request_meaning(exchange: Exchange) -> str:
    kind: Any = ConnectRequest if exchange.action == "open" else REQUESTS.get(exchange.opcode)
    if kind is None or (exchange.action == "send" and len(exchange.sent) < 12):
        return "unknown"
    try:
        return described(kind.decode(exchange.sent, 4 if exchange.action == "open" else 12)[0])
    except DecodeError:
        return "unreadable"


def _frame_meaning(exchange: Exchange, connection: str, frame: bytes) -> str:
    if exchange.is_handshake(connection):
        return described(decode_connect_response(frame)[0])
    header, body = decode_event(frame) if is_event(frame) else decode_reply(exchange.opcode, frame)
    return described(header) if body is None else f"{described(header)} {described(body)}"


def in_order(value: Record) -> Record:
    """Return a copy in which the lists are sorted that the server sends in the order of a hash table."""
    value = copy.copy(value)
    if isinstance(value, wire.GetChildrenReply | wire.GetChildren2Reply):
        value.children = sorted(value.children)
    elif isinstance(value, wire.GetEphemeralsReply):
        value.ephemerals = sorted(value.ephemerals)
    elif isinstance(value, wire.WhoAmIReply):
        value.identities = sorted(value.identities, key=described)
    return value


class Masker:
    """Replaces what differs from one server to another; the same value always gets the same replacement."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self._sessions = {0: 0}
        self._times = {0: 0}
        self._passwords: dict[bytes | None, bytes] = {}

    def session(self, session_id: int) -> int:
        """Return the number of a session, counted from 1 in the order of appearance."""
        return self._sessions.setdefault(session_id, len(self._sessions))

    def zxid(self, zxid: int) -> int:
        """Return a zxid counted from the play's start, negative if earlier; 0 and -1, which mean "none", stay."""
        return zxid if zxid in (0, -1) else zxid - self.base

    def _stat(self, stat: Stat) -> Stat:
        for zxid, time in ((stat.czxid, stat.ctime), (stat.mzxid, stat.mtime)):
            if self._times.setdefault(zxid, time) != time:
                raise ValueError(f"the transaction {zxid} was at {self._times[zxid]} ms before, and here at {time} ms")
        czxid, mzxid = self.zxid(stat.czxid), self.zxid(stat.mzxid)
        return Stat(
            czxid,
            mzxid,
            czxid,
            mzxid,
            stat.version,
            stat.cversion,
            stat.aversion,
            self.session(stat.ephemeral_owner),
            stat.data_length,
            stat.num_children,
            self.zxid(stat.pzxid),
        )

    def record(self, value: Any) -> Any:
        """Return a record, or a list of records, with every zxid, time and session id masked."""
        if isinstance(value, Stat):
            return self._stat(value)
        if isinstance(value, list):
            return [self.record(item) for item in value]
        if isinstance(value, ACL):
            return value
        if isinstance(value, Record):
            masked = in_order(value)
            for name in names_of(value):
                setattr(masked, name, self.record(getattr(masked, name)))
            if isinstance(masked, ReplyHeader):
                masked.zxid = self.zxid(masked.zxid)
            return masked
        return value

    def reply(self, opcode: int, frame: bytes) -> bytes:
        """Return the frame of a reply, masked."""
        header, body = decode_reply(opcode, frame)
        start = len(header.encode())
        if body is None or body.encode() != frame[start:]:
            # The record decodes null as empty (sync echoes a null path), so it would not be encoded to the same bytes.
            # The body stays as it is; it has no times in it.
            return bytes(self.record(header).encode()) + frame[start:]
        return bytes(self.record(header).encode() + self.record(body).encode())

    def event(self, frame: bytes) -> bytes:
        """Return the frame of an event, masked."""
        header, event = decode_event(frame)
        return bytes(self.record(header).encode()) + event.encode()

    def connect_request(self, frame: bytes) -> bytes:
        """Return the payload of a connection's first frame, masked; raise DecodeError if it is none."""
        whole = frame + b"\0" * (len(frame) == 44)  # clients before 3.4 send no readOnly byte
        request, at = ConnectRequest.decode(whole, 0)
        known = self.session(request.session_id)
        request.session_id = known
        request.password = self._passwords.get(request.password, request.password)
        request.last_zxid_seen = self.zxid(request.last_zxid_seen)
        return bytes(request.encode()) + whole[at:]

    def connect_response(self, frame: bytes) -> bytes:
        """Return the payload of the handshake's response, masked."""
        response, _ = decode_connect_response(frame)
        rest = frame[len(response.encode()) :]
        known = self.session(response.session_id)
        response.session_id = known
        if known:
            response.password = self._passwords.setdefault(response.password, b"password of %4d" % known)
        return bytes(response.encode()) + rest
