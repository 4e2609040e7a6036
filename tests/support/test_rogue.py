"""The rogue, seen by a client of a few lines of struct on asyncio's streams; zkwire/session/test_rogue.py uses it."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from tests.support.rogue import (
    CLOSE_SESSION,
    DATA,
    GET_DATA,
    PASSWORD,
    PING,
    STAT,
    UNIMPLEMENTED,
    Behaviour,
    Handshake,
    Peer,
    Rogue,
    eof_handshake,
    eof_in_frame,
    honest,
    huge_length,
    refused_session,
    silence,
)

EXISTS = 3
GET_DATA_BODY = struct.pack(">i", len(DATA)) + DATA + STAT


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, payload: bytes) -> None:
        self.writer.write(struct.pack(">i", len(payload)) + payload)

    def connect(self, timeout: int = 10_000, session_id: int = 0, last_zxid: int = 0) -> None:
        self.send(struct.pack(">iqiqi", 0, last_zxid, timeout, session_id, 16) + bytes(16) + b"\0")

    async def handshake(self) -> None:
        self.connect()
        assert len(await self.payload()) == 37

    def request(self, xid: int, opcode: int, body: bytes = b"") -> None:
        self.send(struct.pack(">ii", xid, opcode) + body)

    async def payload(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def reply(self) -> tuple[int, int, bytes]:
        payload = await self.payload()
        xid, _, err = struct.unpack_from(">iqi", payload)
        return xid, err, payload[16:]

    async def call(self, xid: int, opcode: int, body: bytes = b"") -> tuple[int, int, bytes]:
        self.request(xid, opcode, body)
        return await self.reply()

    async def is_at_eof(self) -> bool:
        return await self.reader.read(1) == b""

    async def is_served(self) -> bool:
        return await self.call(99, GET_DATA) == (99, 0, GET_DATA_BODY)


@asynccontextmanager
async def connected(rogue: Rogue) -> AsyncIterator[RawClient]:
    host, _, port = rogue.hosts.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def facing(behaviour: Behaviour, *, handshake: bool = True) -> AsyncIterator[tuple[Rogue, RawClient]]:
    async with Rogue(behaviour) as rogue, connected(rogue) as client:
        if handshake:
            await client.handshake()
        yield rogue, client


# The house's manners.


async def test_the_handshake_grants_what_is_asked_for() -> None:
    async with Rogue(honest) as rogue:
        async with connected(rogue) as client:
            client.connect(timeout=7000, last_zxid=5)
            payload = await client.payload()
            _, timeout, first, length = struct.unpack_from(">iiqi", payload)
            assert (timeout, length, payload[20:36], payload[36:]) == (7000, 16, PASSWORD, b"\0")
        async with connected(rogue) as client:
            client.connect(session_id=first)
            assert struct.unpack_from(">q", await client.payload(), 8) == (first,)
        async with connected(rogue) as client:
            client.connect()
            assert struct.unpack_from(">q", await client.payload(), 8) not in {(0,), (first,)}
        assert rogue.handshakes[:2] == [
            Handshake(last_zxid=5, timeout=7000, session_id=0, password=bytes(16), read_only=False),
            Handshake(last_zxid=0, timeout=10_000, session_id=first, password=bytes(16), read_only=False),
        ]
        await rogue.disconnected(3)
        assert rogue.connections == 3


async def test_honest_serves() -> None:
    async with facing(honest) as (rogue, client):
        assert await client.call(-2, PING) == (-2, 0, b"")
        assert await client.call(1, GET_DATA) == (1, 0, GET_DATA_BODY)
        assert await client.call(2, EXISTS) == (2, UNIMPLEMENTED, b"")
        assert await client.call(3, CLOSE_SESSION) == (3, 0, b"")
        assert await client.is_at_eof()
        assert rogue.requests == [(-2, PING), (1, GET_DATA), (2, EXISTS), (3, CLOSE_SESSION)]


async def test_each_connection_meets_its_behaviour_and_the_rest_the_last() -> None:
    async with Rogue(eof_handshake, refused_session, honest) as rogue:
        async with connected(rogue) as client:
            client.connect()
            assert await client.is_at_eof()
        async with connected(rogue) as client:
            client.connect()
            assert struct.unpack_from(">i", await client.payload(), 4) == (0,)
        for _ in range(2):
            async with connected(rogue) as client:
                await client.handshake()
                assert await client.is_served()
        await rogue.connected(4)


# After the handshake.


async def test_silence() -> None:
    async with facing(silence) as (rogue, client):
        sent = rogue.sent
        client.request(-2, PING)
        client.request(1, GET_DATA)
        await rogue.requested(GET_DATA)
        assert rogue.requests == [(-2, PING), (1, GET_DATA)]
        assert rogue.sent == sent


async def test_huge_length_goes_on_while_the_client_takes_it() -> None:
    async with Rogue(partial(huge_length, interval=0.0)) as rogue:
        async with connected(rogue) as client:
            await client.handshake()
            assert await client.reader.readexactly(4) == b"\x7f\xff\xff\xff"
            await client.reader.readexactly(1_000_000)
        await rogue.disconnected(1)
        assert 1_000_000 < rogue.sent < 20_000_000


@pytest.mark.parametrize("keep", [0, 3, 4, 10, 19, 20, 30])
async def test_eof_in_frame(keep: int) -> None:
    async with facing(partial(eof_in_frame, keep=keep)) as (_, client):
        client.request(1, GET_DATA)
        client.request(2, GET_DATA)  # bytes that nobody reads do not turn the FIN into RST
        assert len(await client.reader.read()) == keep


# The end.


async def test_an_error_in_a_behaviour_is_raised_on_closing() -> None:
    async def broken(peer: Peer) -> None:
        await peer.handshake()
        raise ZeroDivisionError

    rogue = await Rogue(broken).__aenter__()
    async with connected(rogue) as client:
        await client.handshake()
        await rogue.disconnected(1)
    with pytest.raises(ZeroDivisionError):
        await rogue.__aexit__(None, None, None)


async def test_closing_ends_connections_and_waits_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with contextlib.AsyncExitStack() as stack:
        async with Rogue(silence) as rogue:
            client = await stack.enter_async_context(connected(rogue))
            await client.handshake()
            waiting = asyncio.create_task(rogue.disconnected(2))
        with pytest.raises(ConnectionAbortedError):
            await waiting
        assert await client.is_at_eof()
    assert asyncio.all_tasks() == before
