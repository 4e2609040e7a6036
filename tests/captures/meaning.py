"""What bytes from a server mean, in zkwire's records; and how two plays are compared in spite of times and ids.

Masked is by structure: a frame is decoded, the fields that differ from server to server are renamed in its records,
and the records are encoded again. A session's id becomes its number in order of appearance, so that equal ids stay
equal; a zxid is counted from the last one before the play; a time is replaced by the zxid of its transaction, after it
was checked that one transaction shows one time wherever it is seen.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from zkwire.wire import requests as wire
from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReadRequest, MultiReply, MultiRequest
from zkwire.wire.records import ConnectRequest, ConnectResponse, ReplyHeader, Stat, WatcherEvent
from zkwire.wire.requests import Nothing

EVENT_TYPES: Final = {1: "created", 2: "deleted", 3: "changed", 4: "children"}


def _request_types() -> dict[int, type[wire.Request[Any]]]:
    kinds = [kind for kind in vars(wire).values() if isinstance(kind, type) and issubclass(kind, wire.Request)]
    return {kind.opcode: kind for kind in (*kinds, MultiRequest, MultiReadRequest) if hasattr(kind, "opcode")}


REQUESTS: Final = _request_types()
MULTI_READ: Final = 22
SASL: Final = 102


def decode_connect_response(frame: bytes) -> tuple[ConnectResponse, bool | None]:
    """The handshake's answer, and its readOnly byte, None where it is absent."""
    response, at = ConnectResponse.decode(frame, 0)
    rest = frame[at:]
    if len(rest) > 1:
        raise ValueError(f"{len(rest)} bytes follow a handshake's answer")
    return response, bool(rest[0]) if rest else None


def decode_event(frame: bytes) -> tuple[ReplyHeader, WatcherEvent]:
    """A notification's header and body."""
    header, at = ReplyHeader.decode(frame, 0)
    event, at = WatcherEvent.decode(frame, at)
    _no_more(frame, at)
    return header, event


def decode_reply(opcode: int, frame: bytes) -> tuple[ReplyHeader, Record | None]:
    """A reply's header, and its body where it has one: none when refused, two oddities of the server aside."""
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


def names_of(value: Record) -> tuple[str, ...]:
    """The names of a record's fields."""
    return tuple(type(value).__slots__)


def plain(value: Any) -> Any:
    """A record as nested tuples that can be compared and read, with its type's name in front."""
    if isinstance(value, MultiReply):
        return ("MultiReply", *zip(value.types, map(plain, value.results), strict=True))
    if isinstance(value, Record):
        return (type(value).__name__, *(plain(getattr(value, name)) for name in names_of(value)))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def in_order(value: Record) -> Record:
    """A copy in which a list is sorted where the server gives it in the order of a hash table."""
    value = copy.copy(value)
    if isinstance(value, wire.GetChildrenReply | wire.GetChildren2Reply):
        value.children = sorted(value.children)
    elif isinstance(value, wire.GetEphemeralsReply):
        value.ephemerals = sorted(value.ephemerals)
    elif isinstance(value, wire.WhoAmIReply):
        value.identities = sorted(value.identities, key=plain)
    return value


class Masker:
    """Renames in records what differs from one server to the next; keeps what it renamed, to rename it alike."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self._sessions = {0: 0}
        self._times = {0: 0}
        self._passwords: dict[bytes | None, bytes] = {}

    def session(self, session_id: int) -> int:
        """The number of a session, from 1 in order of appearance."""
        return self._sessions.setdefault(session_id, len(self._sessions))

    def zxid(self, zxid: int) -> int:
        """A zxid counted from the play's start, negative if before; 0 and -1, which say "none", stay."""
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

    @staticmethod
    def without_times(value: Any) -> Any:
        """A record with the times of every Stat in it set to 0, in the form that `plain` gives."""
        if isinstance(value, Stat):
            value = copy.copy(value)
            value.ctime = value.mtime = 0
        elif isinstance(value, MultiReply):
            return ("MultiReply", *zip(value.types, map(Masker.without_times, value.results), strict=True))
        elif isinstance(value, Record):
            value = in_order(value)
            return (type(value).__name__, *(Masker.without_times(getattr(value, name)) for name in names_of(value)))
        elif isinstance(value, list | tuple):
            return [Masker.without_times(item) for item in value]
        return plain(value)

    def record(self, value: Any) -> Any:
        """A record, or list of records, with every zxid, time and session id in it renamed."""
        if isinstance(value, Stat):
            return self._stat(value)
        if isinstance(value, list):
            return [self.record(item) for item in value]
        if isinstance(value, Record):
            masked = in_order(value)
            for name in names_of(value):
                setattr(masked, name, self.record(getattr(masked, name)))
            if isinstance(masked, ReplyHeader):
                masked.zxid = self.zxid(masked.zxid)
            return masked
        return value

    def reply(self, opcode: int, frame: bytes) -> bytes:
        """The frame of a reply, renamed."""
        header, body = decode_reply(opcode, frame)
        start = len(header.encode())
        if body is None or body.encode() != frame[start:]:
            # What its record cannot tell apart (a null path echoed by sync) is left as it is: no times are in it.
            return bytes(self.record(header).encode()) + frame[start:]
        return bytes(self.record(header).encode() + self.record(body).encode())

    def event(self, frame: bytes) -> bytes:
        """The frame of a notification, renamed."""
        header, event = decode_event(frame)
        return bytes(self.record(header).encode()) + event.encode()

    def connect_request(self, frame: bytes) -> bytes:
        """The payload of a connection's first frame, renamed; what cannot be decoded stays as it is."""
        whole = frame + b"\0" * (len(frame) == 44)  # without the readOnly byte, which came later
        request, at = ConnectRequest.decode(whole, 0)
        known = self.session(request.session_id)
        request.session_id = known
        request.password = self._passwords.get(request.password, request.password)
        request.last_zxid_seen = self.zxid(request.last_zxid_seen)
        return bytes(request.encode()) + whole[at:]

    def connect_response(self, frame: bytes) -> bytes:
        """The payload of the handshake's answer, renamed."""
        response, _ = decode_connect_response(frame)
        rest = frame[len(response.encode()) :]
        known = self.session(response.session_id)
        response.session_id = known
        if known:
            response.password = self._passwords.setdefault(response.password, b"password of %4d" % known)
        return bytes(response.encode()) + rest
