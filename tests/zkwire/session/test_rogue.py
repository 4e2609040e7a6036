"""Servers that send nonsense: the connection is dropped, the session goes to the next server."""

import asyncio
import struct
from functools import partial

import pytest

import zkwire
from tests.support import rogue
from tests.support.client import InOrder, cancelled
from tests.support.rogue import Behaviour, Peer, Rogue
from tests.zkwire.session.test_xids import OneToken
from zkwire import SessionState
from zkwire.testing import Server

SASL = 102


@pytest.mark.parametrize("nonsense", [rogue.garbage_handshake, rogue.refused_session])
async def test_after_nonsense_in_place_of_a_handshake_the_next_server_is_tried(
    nonsense: Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    async with Rogue(nonsense) as bad, Server() as server:
        async with zkwire.connect(f"{bad.hosts},{server.hosts}", rng=InOrder()) as zk:
            assert zk.server == server.hosts
            assert (await zk.get("/")).data == b""
        await bad.disconnected(1)
        assert bad.connections == 1
    assert "ProtocolError" in caplog.text


@pytest.mark.limit(20)
@pytest.mark.parametrize("step", [0, 1])
async def test_a_sasl_token_that_is_too_large_is_refused_unprinted(step: int, caplog: pytest.LogCaptureFixture) -> None:
    """The next server is tried: this one talks nonsense, which says nothing about the password."""
    size = 64 * 1024 + 1
    challenge = b'nonce="abc",algorithm=md5-sess,realm="'

    async def talkative(peer: Peer) -> None:
        await peer.handshake()
        for _ in range(step):
            token = challenge.ljust(size - 2, b"a") + b'"'  # the largest that is accepted
            await peer.reply((await peer.first_request()).xid, struct.pack(">i", len(token)) + token)
        token = challenge + b"a" * (size - len(challenge) - 1) + b'"'
        await peer.reply((await peer.first_request()).xid, struct.pack(">i", len(token)) + token)
        await peer.ignore()

    async with Rogue(talkative) as bad:
        connecting = asyncio.ensure_future(zkwire.connect(bad.hosts, sasl=zkwire.DigestMD5("bob", "hidden")))
        await bad.connected(2)
        await cancelled(connecting)
    assert f"a SASL token of {size} bytes" in caplog.text
    assert len(caplog.text) < 10_000


@pytest.mark.parametrize("is_cut", [False, True])
async def test_nonsense_on_a_connection_drops_it_and_the_read_is_repeated_on_the_next(
    is_cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A cut inside a frame is a loss like others, and no fault of the server.  Pitfall 59"""
    async with (
        Rogue(rogue.eof_in_frame if is_cut else rogue.garbage_after_handshake) as bad,
        Rogue(rogue.honest) as good,
    ):
        hosts = bad.hosts
        async with zkwire.connect(f"{bad.hosts},{good.hosts}", 4.0, rng=InOrder()) as zk:
            states, session_id = zk.states(), zk.session_id
            node = await zk.get("/a")
            assert node.data == rogue.DATA
            assert zk.session_id == session_id
            assert zk.server == good.hosts
            await bad.disconnected(1)
        seen = [state async for state in states]
        if seen[0] is SessionState.CONNECTED:  # some nonsense arrives before the first state is read
            seen.pop(0)
        assert seen == [SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.CLOSED]
        assert [each.session_id for each in good.handshakes] == [0, session_id]  # what does it grant?
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert all(text.startswith(f"dropped {hosts}: ProtocolError: ") for text in errors)
    assert len(errors) == (not is_cut)
    assert f"lost the connection to {hosts}: {'the server closed the connection inside a frame' if is_cut else ''}" in (
        caplog.text
    )


async def test_nonsense_after_the_last_sasl_token_is_not_a_connection() -> None:
    async def talk(peer: Peer, *, after: bytes) -> None:
        await peer.handshake()
        while True:
            request = await peer.request()
            if request.opcode == SASL:
                payload = struct.pack(">iqii", request.xid, 0, 0, 2) + b"ok"
                await peer.send(struct.pack(">i", len(payload)) + payload + after)
            else:
                await peer.answer(request)

    async with Rogue(partial(talk, after=b"\xff" * 8), partial(talk, after=b"")) as server:
        async with zkwire.connect(server.hosts, 4.0, sasl=OneToken()) as zk:
            assert server.connections == 2
            states = zk.states()
            await zk.get("/a")
            assert zk.state is SessionState.CONNECTED
        assert [state async for state in states] == [SessionState.CONNECTED, SessionState.CLOSED]
