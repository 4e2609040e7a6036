"""Relays obey the faults of their links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.support.links import Links


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but is not derived from it

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Serve connections that get back what they send; yields the port."""
    async with await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_bytes_pass() -> None:
    links = Links()
    async with echo() as port, links.relay("a", "b", port) as relay, connected(relay.port) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


@pytest.mark.parametrize("direction", [("a", "b"), ("b", "a")])
async def test_a_stalled_direction_holds_bytes_back_until_every_stall_has_ended(direction: tuple[str, str]) -> None:
    links = Links()
    async with echo() as port, links.relay("a", "b", port) as relay, connected(relay.port) as (reader, writer):
        writer.write(b"1")
        await reader.readexactly(1)
        one, other = links.begin("stall", [direction]), links.begin("stall", [direction, ("x", "y")])
        writer.write(b"2")
        links.end(one)
        reading = asyncio.create_task(reader.readexactly(1))
        # Another connection of the same loop makes a round trip meanwhile, through a relay without a fault.
        async with links.relay("c", "b", port) as free, connected(free.port) as (free_reader, free_writer):
            free_writer.write(b"x")
            await free_reader.readexactly(1)
        assert not reading.done()
        links.end(other)
        assert await reading == b"2"


@pytest.mark.parametrize("direction", [("a", "b"), ("b", "a")])
async def test_a_connection_that_is_opened_in_a_stall_is_stalled(direction: tuple[str, str]) -> None:
    links = Links()
    async with echo() as port, links.relay("a", "b", port) as relay, links.relay("c", "b", port) as free:
        stall = links.begin("stall", [direction])
        async with connected(relay.port) as (reader, writer), connected(free.port) as (free_reader, free_writer):
            writer.write(b"1")
            reading = asyncio.create_task(reader.readexactly(1))
            for _ in range(3):
                free_writer.write(b"x")
                await free_reader.readexactly(1)
            assert not reading.done()
            links.end(stall)
            assert await reading == b"1"


async def test_a_delay_keeps_the_order() -> None:
    links = Links()
    async with echo() as port, links.relay("a", "b", port) as relay, connected(relay.port) as (reader, writer):
        loop = asyncio.get_running_loop()
        start = loop.time()
        with links.during("delay", [("a", "b")], 0.05):
            writer.write(b"1")
            await reader.readexactly(1)
            assert loop.time() - start >= 0.05
            writer.write(b"2")
            await writer.drain()
        writer.write(b"3")
        assert await reader.readexactly(2) == b"23"


async def test_a_cut_closes_connections_and_refuses_new_ones() -> None:
    links = Links()
    async with echo() as port, links.relay("a", "b", port) as relay, connected(relay.port) as (reader, writer):
        writer.write(b"1")
        await reader.readexactly(1)
        with links.during("cut", [("b", "a")]):
            with pytest.raises(asyncio.IncompleteReadError):
                await reader.readexactly(1)
            async with connected(relay.port) as (refused, _):
                assert await read_to_end(refused) == b""
        async with connected(relay.port) as (again, sending):
            sending.write(b"2")
            assert await again.readexactly(1) == b"2"


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
