"""An answer that is larger than the client accepts must not be asked for again and again."""

import asyncio
import struct

import pytest

import zkwire
from tests.support import rogue
from tests.support.rogue import Peer, Rogue
from zkwire import GetData
from zkwire.testing import ServerProcess

MULTI_READ, TOO_LARGE = 22, 64 * 1024 * 1024 + 1


async def too_large(peer: Peer) -> None:
    """What is read many at a time is answered with more than anybody takes."""
    await peer.handshake()
    while True:
        request = await peer.request()
        if request.opcode == MULTI_READ:
            await peer.send(struct.pack(">i", TOO_LARGE) + bytes(1000))
            await peer.ignore()
        await peer.answer(request)
        if request.opcode == rogue.CLOSE_SESSION:
            return


async def test_an_answer_that_is_always_too_large_fails_its_own_call_alone() -> None:
    async with Rogue(too_large) as server, zkwire.connect(server.hosts) as zk:
        reading = asyncio.ensure_future(zk.get_many([GetData("/a")]))
        other = asyncio.create_task(zk.get("/a"))
        with pytest.raises(zkwire.ProtocolError, match=rf"multiRead: .*{TOO_LARGE}.*ask for less at a time"):
            await reading
        assert (await other).data == rogue.DATA
        assert [code for _, code in server.requests].count(MULTI_READ) == 2
        assert server.connections == 3


async def test_a_server_that_goes_mad_once_is_forgiven() -> None:
    async with Rogue(rogue.huge_length, rogue.honest) as server, zkwire.connect(server.hosts) as zk:
        assert (await zk.get("/a")).data == rogue.DATA


async def test_seventy_megabytes_in_one_answer_are_refused_and_sixty_are_not(path: str) -> None:
    with ServerProcess() as server:
        async with zkwire.connect(server.hosts) as zk:
            await zk.create(path, bytes(1_000_000))
            assert len(await zk.get_many([GetData(path)] * 60)) == 60
            with pytest.raises(zkwire.ProtocolError, match="ask for less at a time"):
                await zk.get_many([GetData(path)] * 70)
            assert (await zk.get(path)).stat.data_length == 1_000_000
