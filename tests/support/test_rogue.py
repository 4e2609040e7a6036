"""The manners of the scripted server; what it does wrong is seen by tests/zkwire/session/test_rogue.py."""

import asyncio

import pytest

from tests.support.raw_client import CLOSE_SESSION, EXISTS, PING, RawClient, get_data
from tests.support.rogue import (
    DATA,
    GET_DATA,
    UNIMPLEMENTED,
    Peer,
    Rogue,
    eof_handshake,
    honest,
    refused_session,
    silence,
)


async def test_the_handshake_grants_what_is_asked_for() -> None:
    async with Rogue(honest) as rogue:
        ids = []
        for timeout, session_id in [(7000, 0), (10_000, 77), (10_000, 0)]:
            client = RawClient(rogue.hosts)
            await client.connect()
            granted, found = await client.handshake(timeout, session_id)
            assert granted == timeout
            ids.append(found)
            client.socket.close()
        assert ids[1] == 77
        assert len(set(ids)) == 3
        assert [(each.timeout, each.session_id) for each in rogue.handshakes] == [(7000, 0), (10_000, 77), (10_000, 0)]
        await rogue.disconnected(3)
        assert rogue.connections == 3


async def test_honest_serves_and_records() -> None:
    async with Rogue(honest) as rogue, RawClient(rogue.hosts) as client:
        await client.send_bytes(client.request((PING, b""), xid=-2))
        assert (await client.reply()).xid == -2
        assert (await client.call(get_data("/"))).body[4 : 4 + len(DATA)] == DATA
        assert (await client.call((EXISTS, b""))).err == UNIMPLEMENTED
        assert (await client.call((CLOSE_SESSION, b""))).err == 0
        assert await client.receive() == b""
        assert rogue.requests == [(-2, PING), (1, GET_DATA), (2, EXISTS), (3, CLOSE_SESSION)]


async def test_each_connection_meets_its_behaviour_and_the_rest_the_last() -> None:
    async with Rogue(eof_handshake, refused_session, honest) as rogue:
        client = RawClient(rogue.hosts)
        await client.connect()
        with pytest.raises(EOFError):
            await client.handshake()
        client.socket.close()
        async with RawClient(rogue.hosts) as client:
            assert await client.receive() == b""
        for _ in range(2):
            async with RawClient(rogue.hosts) as client:
                assert (await client.call(get_data("/"))).err == 0
        await rogue.connected(4)


async def test_an_error_in_a_behaviour_is_raised_on_closing() -> None:
    async def broken(peer: Peer) -> None:
        await peer.handshake()
        raise ZeroDivisionError

    rogue = await Rogue(broken).__aenter__()
    async with RawClient(rogue.hosts):
        await rogue.disconnected(0)
    await rogue.disconnected(1)
    with pytest.raises(ZeroDivisionError):
        await rogue.__aexit__(None, None, None)


async def test_closing_ends_connections_and_waits_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with Rogue(silence) as rogue:
        client = await RawClient(rogue.hosts).__aenter__()
        waiting = asyncio.create_task(rogue.disconnected(2))
    with pytest.raises(ConnectionAbortedError):
        await waiting
    assert await client.receive() == b""
    client.socket.close()
    assert asyncio.all_tasks() == before
