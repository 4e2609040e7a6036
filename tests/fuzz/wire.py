"""Targets on the wire: frames, records, the connection machine, and the server in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from tests.captures.recording import THEMES, load
from zkwire.errors import ProtocolError
from zkwire.testing.memory.machine import Machine, ServerConnection
from zkwire.wire import multi, records, requests
from zkwire.wire.connection import AuthenticationDemand, Call, Connection
from zkwire.wire.frames import FrameReader
from zkwire.wire.jute import Record
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import ConnectRequest, ConnectResponse, RequestHeader
from zkwire.wire.watch_table import Notification

_LENGTH: Final = struct.Struct(">i")
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


def _framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield the bytes as reads of a socket, none of them empty."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


class Frames:
    """The same frames come out, and the same error, however the stream is cut; no more is kept than one frame."""

    name = "frames"
    words: Sequence[bytes] = (b"\0\0\0\0", _LENGTH.pack(_LIMIT), _LENGTH.pack(_LIMIT + 1))

    def __init__(self) -> None:
        _, received = _captured()
        self.seeds = [b"\x03" + b"".join(map(_framed, received[at : at + 3])) for at in range(0, 60, 3)]

    def run(self, data: bytes) -> None:
        size, stream = (data[0] % 16 + 1 if data else 1), data[1:]
        whole, cut = self._read(stream, len(stream) or 1), self._read(stream, size)
        assert whole == cut, (whole, cut)

    def _read(self, stream: bytes, size: int) -> tuple[list[bytes], str]:
        reader = FrameReader(_LIMIT)
        frames: list[bytes] = []
        for piece in _pieces(stream, size):
            frames += reader.feed(piece)
            if reader.error is not None:
                return frames, str(reader.error)
            assert reader.held < _LIMIT + 4
        used = sum(map(len, frames)) + 4 * len(frames)
        assert used + reader.held == len(stream)
        return frames, ""


def _kinds() -> list[type[Record]]:
    found = [
        value
        for module in (records, requests, multi)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Record) and value not in (Record, requests.Request)
    ]
    return sorted(set(found), key=lambda kind: kind.__name__)


class Records:
    """A decoder raises DecodeError or gives a record that is encoded and decoded again without a change.

    The first byte chooses the record.
    """

    name = "records"
    words: Sequence[bytes] = (b"\xff\xff\xff\xff", "\U0001f600".encode(), b"\xed\xa0\xbd\xed\xb8\x80", b"\0\0\0\1a")

    def __init__(self) -> None:
        self._kinds = _kinds()
        sent, received = _captured()
        places = {kind: place for place, kind in enumerate(self._kinds)}
        by_opcode = {kind.opcode: kind for kind in self._kinds if issubclass(kind, requests.Request)}
        self.seeds: list[bytes] = []
        for payload in sent:
            kind = by_opcode.get(int.from_bytes(payload[4:8], "big", signed=True))
            if kind is not None:
                self.seeds.append(bytes([places[kind]]) + payload[8:])
                self.seeds += [bytes([places[kind.reply]]) + frame[16:] for frame in received[:2]]

    def run(self, data: bytes) -> None:
        kind, body = self._kinds[data[0] % len(self._kinds) if data else 0], data[1:]
        try:
            record, end = kind.decode(body, 0)
        except DecodeError:
            return
        assert end <= len(body)
        encoded = record.encode()
        # A byte that is no UTF-8 becomes U+FFFD, which has three.
        assert len(encoded) <= 3 * len(body) + 16
        again, end = kind.decode(encoded, 0)
        assert end == len(encoded)
        assert again.encode() == encoded


class _Waiter:
    """The result of a call, which nobody reads here."""

    def done(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        """Do nothing."""

    def set_exception(self, exception: BaseException) -> None:
        """Do nothing."""


class Replies:
    """The connection machine never raises: bytes that break the protocol end the connection, with a ProtocolError.

    What it takes for arrived does not depend on how the stream is cut.  The first byte says how it is cut, the second
    one whether the handshake is in the input.
    """

    name = "connection"

    def __init__(self) -> None:
        self._handshake = _framed(ConnectResponse(0, 10_000, 7, bytes(range(16))).encode() + b"\0")
        _, received = _captured()
        asked = self._requests()
        replies = [
            b"".join(
                _framed(struct.pack(">iqi", place + 1, 50 + place, 0) + body)
                for place, body in enumerate(_bodies(asked, received))
            )
        ]
        errors = b"".join(_framed(struct.pack(">iqi", place + 1, 9, -101)) for place in range(len(asked)))
        event = _framed(struct.pack(">iqi", -1, 60, 0) + records.WatcherEvent(2, 3, "/a").encode())
        self.seeds: Sequence[bytes] = [
            b"\x07\0" + self._handshake + event + errors,
            b"\x07\1" + event + errors,
            *(b"\x07\1" + stream + event for stream in replies),
            *(b"\x07\1" + _framed(frame) for frame in received[:40]),
        ]
        self.words: Sequence[bytes] = (event, self._handshake, _framed(struct.pack(">iqi", 1, 9, -101)))

    @staticmethod
    def _requests() -> list[requests.Request[Any]]:
        return [
            requests.GetDataRequest("/a", True),
            requests.GetChildrenRequest("/a", False),
            multi.MultiRequest([requests.CheckVersionRequest("/", -1)]),
            requests.SyncRequest("/"),
            requests.AuthRequest(0, "digest", b"a:b"),
            requests.GetACLRequest("/a"),
            requests.Create2Request("/a", b"", [], 0),
        ]

    def run(self, data: bytes) -> None:
        size = data[0] % 16 + 1 if data else 1
        stream = data[2:] if data[1:2] == b"\0" else self._handshake + data[2:]
        whole, cut = self._play(stream, len(stream) or 1), self._play(stream, size)
        assert whole == cut, (whole, cut)

    def _play(self, stream: bytes, size: int) -> tuple[list[object], str, int]:
        connection = Connection(ConnectRequest(0, 0, 10_000, 0, bytes(16), False), _LIMIT, 0.0)
        for request in self._requests():
            connection.send(Call(request, _Waiter()), 0.0)
        connection.data_to_send()
        connection.add_urgent("/a", lambda: None)
        arrived: list[object] = []
        now = 1.0
        for piece in _pieces(stream, size):
            connection.take_urgent(piece)
            before = connection.error
            items = connection.receive(piece, now)
            assert before is None or not items
            arrived += [_shown(item) for item in items]
        connection.receive_eof()
        connection.tick(now)
        error = connection.error
        assert error is None or isinstance(error, ProtocolError)
        assert len(arrived) <= len(stream) // 4
        return arrived, str(error), connection.last_zxid


def _shown(item: object) -> object:
    if isinstance(item, Call):
        return item.xid, item.code, item.zxid, None if item.reply is None else item.reply.encode()
    assert isinstance(item, Notification | ConnectResponse | AuthenticationDemand)
    return str(item)


def _bodies(asked: Sequence[requests.Request[Any]], received: Sequence[bytes]) -> Iterator[bytes]:
    """Yield for each request a body of a recorded reply that fits."""
    for request in asked:
        for frame in received:
            try:
                request.reply.decode(frame, 16)
            except (DecodeError, struct.error):
                continue
            yield frame[16:]
            break


class Requests:
    """The server in memory answers or closes the connection, whatever comes, and all that it sends is well formed.

    The input is a stream of frames, played behind a handshake to a server of its own.
    """

    name = "server"

    def __init__(self) -> None:
        self._hello = ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode()
        sent, _ = _captured()
        opening = [
            RequestHeader(1, 1).encode() + requests.CreateRequest("/a", b"data", list(records.OPEN_ACL), 0).encode(),
            RequestHeader(2, 4).encode() + requests.GetDataRequest("/a", True).encode(),
        ]
        start = b"".join(map(_framed, opening))
        self.seeds: Sequence[bytes] = [
            *(b"".join(map(_framed, sent[at : at + 4])) for at in range(0, len(sent), 4)),
            *(start + _framed(payload) for payload in sent[::3]),
        ]
        self.words: Sequence[bytes] = (start, b"\0\0\0\1/", b"\0\0\0\2/a")

    def run(self, data: bytes) -> None:
        machine = Machine(now=0.0, wall=1.7e9)
        connection = machine.open("127.0.0.1", 40_000, 0.0)
        machine.receive(connection, self._hello, 0.0)
        for frame in FrameReader(4096).feed(data)[:40]:
            machine.receive(connection, frame, 1.0)
        _check_sent(connection)
        machine.advance(100.0)  # every session has expired by then
        assert not machine.sessions.by_id


def _check_sent(connection: ServerConnection) -> None:
    for frame in connection.outgoing:
        assert _LENGTH.unpack_from(frame)[0] == len(frame) - 4
