"""Targets on the wire: frames, records, the connection machine, and the server in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

from tests.captures.meaning import REQUESTS
from tests.captures.recording import THEMES, load
from tests.captures.sides import framed
from tests.fuzz.engine import Target
from zkwire.errors import ProtocolError
from zkwire.testing.memory.machine import Machine, Settings
from zkwire.wire import multi, records, requests
from zkwire.wire.connection import AuthenticationDemand, Call, Connection
from zkwire.wire.frames import LENGTH, FrameReader
from zkwire.wire.jute import Record
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import ConnectRequest, ConnectResponse, RequestHeader
from zkwire.wire.watch_table import Notification

_LIMIT: Final = 1000  # bytes of a frame


@cache
def _captured() -> tuple[list[bytes], list[bytes]]:
    """Return what clients have sent and what servers have sent in the recordings, without lengths."""
    sent, received = [], []
    for theme in THEMES:
        for exchange in load(theme).exchanges:
            if len(exchange.sent) > 4:
                sent.append(exchange.sent[4:])
            received += [frame for _, frame in exchange.received]
    return sent, received


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield the bytes as reads of a socket, none of them empty."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


def frames() -> Target:
    """The same frames come out, and the same error, however the stream is cut; no more is kept than one frame."""

    def run(data: bytes) -> None:
        size, stream = (data[0] % 16 + 1 if data else 1), data[1:]
        assert read(stream, len(stream) or 1) == read(stream, size)

    def read(stream: bytes, size: int) -> tuple[list[bytes], str]:
        reader = FrameReader(_LIMIT)
        found: list[bytes] = []
        for piece in _pieces(stream, size):
            found += reader.feed(piece)
            if reader.error is not None:
                return found, str(reader.error)
            assert reader.held < _LIMIT + 4
        assert sum(map(len, found)) + 4 * len(found) + reader.held == len(stream)
        return found, ""

    _, received = _captured()
    seeds = [b"\x03" + b"".join(map(framed, received[at : at + 3])) for at in range(0, 60, 3)]
    return Target("frames", run, seeds, (b"\0\0\0\0", LENGTH.pack(_LIMIT), LENGTH.pack(_LIMIT + 1)))


def record_types() -> Target:
    """A decoder raises DecodeError or gives a record that is encoded and decoded again without a change.

    The first byte chooses the record.
    """
    found = {
        value.__name__: value
        for module in (records, requests, multi)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Record) and value not in (Record, requests.Request)
    }
    kinds = [kind for _, kind in sorted(found.items())]

    def run(data: bytes) -> None:
        kind, body = kinds[data[0] % len(kinds) if data else 0], data[1:]
        try:
            record, end = kind.decode(body, 0)
        except DecodeError:
            return
        assert end <= len(body)
        encoded = record.encode()
        # A byte that is not UTF-8 becomes U+FFFD, which has three.
        assert len(encoded) <= 3 * len(body) + 16
        again, end = kind.decode(encoded, 0)
        assert end == len(encoded)
        assert again.encode() == encoded

    sent, received = _captured()
    seeds: list[bytes] = []
    for payload in sent:
        kind = REQUESTS.get(int.from_bytes(payload[4:8], "big", signed=True))
        if kind is not None:
            seeds.append(bytes([kinds.index(kind)]) + payload[8:])
            seeds += [bytes([kinds.index(kind.reply)]) + frame[16:] for frame in received[:2]]
    words = (b"\xff\xff\xff\xff", "\U0001f600".encode(), b"\xed\xa0\xbd\xed\xb8\x80", b"\0\0\0\1a")
    return Target("records", run, seeds, words)


class _Waiter:
    """The result of a call, which is not read here."""

    def done(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        """Do nothing."""

    def set_exception(self, exception: BaseException) -> None:
        """Do nothing."""


_ASKED: Final[list[requests.Request[Any]]] = [
    requests.GetDataRequest("/a", True),
    requests.GetChildrenRequest("/a", False),
    multi.MultiRequest([requests.CheckVersionRequest("/", -1)]),
    requests.SyncRequest("/"),
    requests.AuthRequest(0, "digest", b"a:b"),
    requests.GetACLRequest("/a"),
    requests.Create2Request("/a", b"", [], 0),
]


def replies() -> Target:
    """The connection machine never raises: bytes that break the protocol end the connection, with a ProtocolError.

    What it takes for arrived does not depend on how the stream is cut.  The first byte says how it is cut, the second
    one whether the handshake is in the input.
    """
    handshake = framed(ConnectResponse(0, 10_000, 7, bytes(range(16))).encode() + b"\0")

    def run(data: bytes) -> None:
        size = data[0] % 16 + 1 if data else 1
        stream = data[2:] if data[1:2] == b"\0" else handshake + data[2:]
        assert play(stream, len(stream) or 1) == play(stream, size)

    def play(stream: bytes, size: int) -> tuple[list[object], str, int]:
        connection = Connection(ConnectRequest(0, 0, 10_000, 0, bytes(16), False), _LIMIT, 0.0)
        for request in _ASKED:
            connection.send(Call(request, _Waiter()), 0.0)
        connection.data_to_send()
        connection.add_urgent("/a", lambda: None)
        arrived: list[object] = []
        for piece in _pieces(stream, size):
            connection.take_urgent(piece)
            before = connection.error
            items = connection.receive(piece, 1.0)
            assert before is None or not items
            arrived += map(_shown, items)
        connection.tick(1.0)
        error = connection.error
        assert error is None or isinstance(error, ProtocolError)
        assert len(arrived) <= len(stream) // 4
        return arrived, str(error), connection.last_zxid

    _, received = _captured()
    answers = b"".join(_reply(place + 1, 0, body) for place, body in enumerate(_bodies(received)))
    errors = b"".join(_reply(place + 1, -101) for place in range(len(_ASKED)))
    event = _reply(-1, 0, records.WatcherEvent(2, 3, "/a").encode())
    streams = [event + errors, answers + event, *map(framed, received[:40])]
    seeds = [b"\x07\0" + handshake + event + errors, *(b"\x07\1" + stream for stream in streams)]
    return Target("connection", run, seeds, (event, handshake, _reply(1, -101)))


def _reply(xid: int, err: int, body: bytes = b"") -> bytes:
    return framed(struct.pack(">iqi", xid, 50 + xid, err) + body)


def _shown(item: object) -> object:
    if isinstance(item, Call):
        return item.xid, item.code, item.zxid, None if item.reply is None else item.reply.encode()
    assert isinstance(item, Notification | ConnectResponse | AuthenticationDemand)
    return str(item)


def _bodies(received: Sequence[bytes]) -> Iterator[bytes]:
    """Yield for each request a body of a recorded reply that fits."""
    for request in _ASKED:
        for frame in received:
            with suppress(DecodeError, struct.error):
                request.reply.decode(frame, 16)
                yield frame[16:]
                break


def server() -> Target:
    """The server in memory answers or closes the connection, whatever comes, and all that it sends is well formed.

    The input is a stream of frames, played after a handshake to a server of its own.
    """

    def run(data: bytes) -> None:
        machine = Machine(Settings(), now=0.0, wall=1.7e9)
        connection = machine.open("127.0.0.1", 40_000, 0.0)
        machine.receive(connection, ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode(), 0.0)
        for frame in FrameReader(4096).feed(data)[:40]:
            machine.receive(connection, frame, 1.0)
        for frame in connection.outgoing:
            assert LENGTH.unpack_from(frame)[0] == len(frame) - 4
        machine.advance(100.0)  # every session has expired by then
        assert not machine.sessions.by_id

    sent, _ = _captured()
    create = RequestHeader(1, 1).encode() + requests.CreateRequest("/a", b"data", list(records.OPEN_ACL), 0).encode()
    read = RequestHeader(2, 4).encode() + requests.GetDataRequest("/a", True).encode()
    start = framed(create) + framed(read)
    seeds = [b"".join(map(framed, sent[at : at + 4])) for at in range(0, len(sent), 4)]
    seeds += [start + framed(payload) for payload in sent[::3]]
    return Target("server", run, seeds, (start, b"\0\0\0\1/", b"\0\0\0\2/a"))


TARGETS: Final = {"frames": frames, "records": record_types, "connection": replies, "server": server}
