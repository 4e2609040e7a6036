"""A scripted bad server: it speaks enough of ZooKeeper's protocol for a client to connect, then misbehaves.

Like the proxy it is an independent witness: struct, and nothing of zkwire.

    async with Rogue(silence, honest) as rogue:    # the first connection meets silence, all later ones honest
        client = ...connect(rogue.hosts)
        await rogue.connected(2)

A behaviour is a coroutine function that plays one connection through a Peer; options are given by `functools.partial`:
`Rogue(partial(eof_in_frame, keep=7))`. When it returns, the connection is closed by FIN. When the client disconnects,
the behaviour ends.
"""

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.relay import Listener

_INT = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">ii")
_REPLY_HEADER = struct.Struct(">iqi")
_CONNECT_REQUEST = struct.Struct(">iqiqi")
_CONNECT_RESPONSE = struct.Struct(">iiq")

GET_DATA, SYNC, PING, AUTH, SET_WATCHES, SET_WATCHES2, CLOSE_SESSION = 4, 9, 11, 100, 101, 105, -11
EVENT_XID, PING_XID = -1, -2
NO_NODE, UNIMPLEMENTED, NOT_READ_ONLY = -101, -6, -119

PASSWORD = bytes(range(16))
DATA = b"rogue"
STAT = struct.pack(">qqqqiiiqiiq", 1, 1, 0, 0, 0, 0, 0, 0, len(DATA), 0, 1)
GARBAGE = bytes([0xDE, 0xAD, 0xBE, 0xEF]) * 16  # as a length, a negative one


class Request(NamedTuple):
    """A request as it came; `body` is what follows the header."""

    xid: int
    opcode: int
    body: bytes


@dataclass(slots=True)
class Handshake:
    """A ConnectRequest; the timeout in milliseconds."""

    last_zxid: int
    timeout: int
    session_id: int
    password: bytes
    read_only: bool | None


class Peer:
    """One connection, as a behaviour sees it."""

    def __init__(self, rogue: "Rogue", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rogue = rogue
        self._reader = reader
        self._writer = writer
        self._start = b""

    async def start(self) -> bytes:
        """Read the first four bytes: a four-letter word, or a length, after which `handshake` follows."""
        self._start = await self._reader.readexactly(_INT.size)
        return self._start

    async def connect_request(self) -> Handshake:
        """Read the client's first frame."""
        payload = await self._frame()
        _, last_zxid, timeout, session_id, length = _CONNECT_REQUEST.unpack_from(payload)
        end = _CONNECT_REQUEST.size + max(length, 0)
        read_only = bool(payload[end]) if len(payload) > end else None
        handshake = Handshake(last_zxid, timeout, session_id, payload[_CONNECT_REQUEST.size : end], read_only)
        self.rogue.handshakes.append(handshake)
        self.rogue.changed()
        return handshake

    async def handshake(self) -> Handshake:
        """The proper handshake: the timeout that was asked for, the session that was asked for or a new one."""
        handshake = await self.connect_request()
        session_id = handshake.session_id or self.rogue.new_session_id()
        await self.send_frame(connect_response(handshake.timeout, session_id) + b"\0")
        return handshake

    async def request(self) -> Request:
        """Read and record the next request."""
        payload = await self._frame()
        xid, opcode = _REQUEST_HEADER.unpack_from(payload)
        self.rogue.requests.append((xid, opcode))
        self.rogue.changed()
        return Request(xid, opcode, payload[_REQUEST_HEADER.size :])

    async def first_request(self) -> Request:
        """The next request that is not a ping; pings are answered."""
        while (request := await self.request()).opcode == PING:
            await self.answer(request)
        return request

    async def answer(self, request: Request) -> None:
        """Answer correctly: getData with DATA, syncs, and requests without a reply body; others with Unimplemented."""
        if request.opcode == PING:
            await self.reply(PING_XID)
        elif request.opcode == GET_DATA:
            await self.reply(request.xid, _INT.pack(len(DATA)) + DATA + STAT)
        elif request.opcode == SYNC:
            await self.reply(request.xid, request.body)
        elif request.opcode in (AUTH, SET_WATCHES, SET_WATCHES2, CLOSE_SESSION):
            await self.reply(request.xid)
        else:
            await self.reply(request.xid, err=UNIMPLEMENTED)

    async def serve(self, body: "Body" = lambda _: None) -> None:
        """Answer properly, or by the `body` that a reply shall have, until the client closes its session or leaves."""
        while True:
            request = await self.request()
            if (given := body(request)) is not None:
                await self.reply(request.xid, given)
            else:
                await self.answer(request)
            if request.opcode == CLOSE_SESSION:
                return

    async def reply(self, xid: int, body: bytes = b"", *, err: int = 0, zxid: int = 1) -> None:
        await self.send_frame(_REPLY_HEADER.pack(xid, zxid, err) + body)

    async def event(self, kind: int, path: str, *, state: int = 3, zxid: int = -1) -> None:
        name = path.encode()
        await self.reply(EVENT_XID, struct.pack(">iii", kind, state, len(name)) + name, zxid=zxid)

    async def send_frame(self, payload: bytes) -> None:
        await self.send(_INT.pack(len(payload)) + payload)

    async def send(self, data: bytes) -> None:
        """Send bytes as they are; return when they have left the process, hence within the client's flow control."""
        self._writer.write(data)
        await self._writer.drain()

    async def ignore(self) -> None:
        """Read and drop bytes until the client leaves."""
        while await self._reader.read(65536):
            pass

    async def _frame(self) -> bytes:
        start, self._start = self._start, b""
        (length,) = _INT.unpack(start or await self._reader.readexactly(_INT.size))
        return await self._reader.readexactly(length)


Behaviour = Callable[[Peer], Awaitable[None]]
Body = Callable[[Request], bytes | None]


def connect_response(timeout: int, session_id: int, password: bytes = PASSWORD) -> bytes:
    """The 36 bytes of a ConnectResponse without its readOnly byte."""
    return _CONNECT_RESPONSE.pack(0, timeout, session_id) + _INT.pack(len(password)) + password


# In place of the handshake.


async def garbage_handshake(peer: Peer) -> None:
    """Garbage in place of the connect response; the connection stays open."""
    await peer.connect_request()
    await peer.send(GARBAGE)
    await peer.ignore()


async def eof_handshake(peer: Peer) -> None:
    """FIN in place of the connect response, as from a server that does not serve yet: the session lives."""
    await peer.connect_request()


async def silent_handshake(peer: Peer) -> None:
    """No answer to the connect request."""
    await peer.connect_request()
    await peer.ignore()


async def refused_session(peer: Peer) -> None:
    """Timeout 0: the session is gone."""
    await peer.connect_request()
    await peer.send_frame(connect_response(0, 0, bytes(16)) + b"\0")


# After the handshake.


async def honest(peer: Peer, *, body: Body = lambda _: None) -> None:
    """No fault: serves pings and getData, and what has a `body` to reply."""
    await peer.handshake()
    await peer.serve(body)


async def silence(peer: Peer) -> None:
    """Reads and records requests, pings too, and answers none."""
    await peer.handshake()
    while True:
        await peer.request()


async def garbage_after_handshake(peer: Peer) -> None:
    await peer.handshake()
    await peer.send(GARBAGE)
    await peer.ignore()


async def eof_in_frame(peer: Peer, *, keep: int = 10) -> None:
    """The first request is answered with the first `keep` bytes of a getData reply (its length included), then FIN."""
    await peer.handshake()
    request = await peer.first_request()
    payload = _REPLY_HEADER.pack(request.xid, 1, 0) + _INT.pack(len(DATA)) + DATA + STAT
    await peer.send((_INT.pack(len(payload)) + payload)[:keep])


class Rogue(Listener):
    """Listens on `hosts`; the n-th connection meets the n-th behaviour, those beyond meet the last.

    `ended` counts the connections that are over on both sides.  `handshakes` and
    `requests` (xid, opcode) are in order of arrival.  An error in a behaviour is raised on closing.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        super().__init__()
        self.ended = 0
        self.handshakes: list[Handshake] = []
        self.requests: list[tuple[int, int]] = []
        self._behaviours = behaviours
        self._session_ids = itertools.count(0x0F0E000000000001)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aexit__(self, *exc_info: object) -> None:
        await super().__aexit__(*exc_info)
        for task in self._tasks:
            if not task.cancelled():
                task.result()

    def accept(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accepted)

    async def end_connections(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def new_session_id(self) -> int:
        return next(self._session_ids)

    async def disconnected(self, count: int) -> None:
        """Wait until `count` connections are over: the client has closed its side."""
        await self.until(lambda: self.ended >= count)

    async def requested(self, opcode: int, count: int = 1) -> None:
        """Wait until `count` requests of this opcode have come."""
        await self.until(lambda: sum(code == opcode for _, code in self.requests) >= count)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behaviour = self._behaviours[min(self.connections, len(self._behaviours) - 1)]
        self.connections += 1
        play = self._play(behaviour, Peer(self, reader, writer), writer)
        self._tasks.append(asyncio.get_running_loop().create_task(play))
        self.changed()

    async def _play(self, behaviour: Behaviour, peer: Peer, writer: asyncio.StreamWriter) -> None:
        try:
            # The client may leave at any point of the script.
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await behaviour(peer)
            # Closing over unread bytes would send RST and destroy what is on its way: hence FIN, and read to the end.
            with contextlib.suppress(OSError):
                if not writer.transport.is_closing():
                    writer.write_eof()
                await peer.ignore()
        finally:
            writer.transport.abort()
            self.ended += 1
            self.changed()
