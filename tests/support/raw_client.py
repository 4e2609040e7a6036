"""A client of a few lines of struct on a bare socket, for the tests of the proxy and of the scripted server."""

import asyncio
import itertools
import socket
import struct
from types import TracebackType
from typing import NamedTuple, Self

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, PING, AUTH, CLOSE_SESSION = 1, 2, 3, 4, 5, 11, 100, -11
NO_NODE = -101


class Reply(NamedTuple):
    xid: int
    err: int
    body: bytes


def string(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def create(path: str, data: bytes = b"") -> tuple[int, bytes]:
    acl = struct.pack(">ii", 1, 31) + string("world") + string("anyone")
    return CREATE, string(path) + struct.pack(">i", len(data)) + data + acl + struct.pack(">i", 0)


def exists(path: str, watch: bool = False) -> tuple[int, bytes]:
    return EXISTS, string(path) + bytes([watch])


def get_data(path: str) -> tuple[int, bytes]:
    return GET_DATA, string(path) + b"\0"


def delete(path: str) -> tuple[int, bytes]:
    return DELETE, string(path) + struct.pack(">i", -1)


class RawClient:
    """A session on a bare socket. Not on streams: after RST a StreamReader hides what came before."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.rpartition(":")
        self._address = (host, int(port))
        self._xids = itertools.count(1)
        self.socket = socket.socket()
        self.socket.setblocking(False)

    async def __aenter__(self) -> Self:
        await self.connect()
        await self.handshake()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    async def connect(self) -> None:
        await asyncio.get_running_loop().sock_connect(self.socket, self._address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def handshake(self, timeout: int = 10_000, session_id: int = 0) -> tuple[int, int]:
        """Return the granted timeout and the session's id."""
        await self.send_bytes(self.frame(struct.pack(">iqiqi", 0, 0, timeout, session_id, 16) + bytes(17)))
        _, granted, session_id = struct.unpack_from(">iiq", await self.payload())
        return granted, session_id

    @staticmethod
    def frame(payload: bytes) -> bytes:
        return struct.pack(">i", len(payload)) + payload

    def request(self, request: tuple[int, bytes], xid: int | None = None) -> bytes:
        opcode, body = request
        return self.frame(struct.pack(">ii", next(self._xids) if xid is None else xid, opcode) + body)

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def send(self, *requests: tuple[int, bytes]) -> None:
        """In one write."""
        await self.send_bytes(b"".join(map(self.request, requests)))

    async def call(self, request: tuple[int, bytes]) -> Reply:
        await self.send(request)
        return await self.reply()

    async def reply(self) -> Reply:
        payload = await self.payload()
        xid, _, err = struct.unpack_from(">iqi", payload)
        return Reply(xid, err, payload[16:])

    async def payload(self) -> bytes:
        (length,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(length)

    async def receive(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.socket, 65536)

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = await asyncio.get_running_loop().sock_recv(self.socket, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)
