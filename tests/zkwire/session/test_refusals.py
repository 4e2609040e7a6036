"""Refusals of a server, failures and cancellations of callers, and changes of the list of servers."""

import asyncio

import pytest

import zkwire
from tests.support import rogue
from tests.support.client import InOrder, cancelled, turns
from tests.support.recipes import until_state
from tests.support.rogue import CLOSE_SESSION, Peer, Rogue
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import SessionState
from zkwire.session import attempt

# -- refusals -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_answer_that_the_session_has_expired_ends_certainty() -> None:
    """The next handshake shows whether the session has expired: here it has not."""
    async with a_client() as (server, zk):
        seen: list[float] = []
        zk.on_uncertain.add(lambda: seen.append(zk.certain_for(zk.session_id)))
        session_id = zk.session_id
        server.strike = lambda wire, sent: -112 if sent.name == "setData" else None
        with pytest.raises(zkwire.ConnectionLostError):
            await zk.set("/a", b"")
        await turns()
        assert seen == [0.0]
        await zk.certify()
        assert zk.certain_for(session_id) > 0


# -- callers ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_giving_up_the_resumption_of_a_session_does_not_end_it() -> None:
    async with a_client() as (server, zk):
        session_id, password = zk.session_id, zk.session_password
        await zk.close(keep_session=True)
        server.strike = lambda wire, sent: False if sent.name == "auth" else None
        server.names()
        resuming = zkwire.connect(
            "a", session_id=session_id, session_password=password, auth=[("digest", b"a:b")], open_link=server.open_link
        )
        task = asyncio.ensure_future(resuming._connect())
        await server.until("auth")
        await cancelled(task)
        assert "closeSession" not in server.names()
        assert session_id in server.machine.sessions.by_id


# -- hosts --------------------------------------------------------------------------------------------------------


async def test_a_lost_read_only_connection_does_not_wait_for_the_answer_of_another_server() -> None:
    asked, done = asyncio.Event(), asyncio.Event()

    async def reading_only(peer: Peer) -> None:
        handshake = await peer.connect_request()
        await peer.send_frame(rogue.connect_response(handshake.timeout, 0x77) + b"\1")
        await asked.wait()

    async def unanswering(peer: Peer) -> None:
        asked.set()
        await done.wait()

    async with Rogue(reading_only) as there, Rogue(unanswering, rogue.honest) as other:
        hosts = f"{there.hosts},{other.hosts}"
        async with zkwire.connect(hosts, 40.0, read_only=True, rng=InOrder()) as zk:
            assert zk.state is SessionState.READ_ONLY
            await until_state(zk, SessionState.CONNECTED)  # long before the question would have timed out
            assert zk.server == other.hosts
        done.set()


# -- a client that gives up before a server has answered ---------------------------------------------------------------


@pytest.mark.limit(20)
async def test_a_cancelled_connect_asks_the_server_to_end_the_session_and_waits_until_it_has_closed_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "FAREWELL", 60.0)
    begun, seen = asyncio.Event(), list[tuple[int, bool]]()

    async def slow(peer: Peer) -> None:
        await peer.connect_request()
        begun.set()
        request = await peer.request()
        await turns(20)
        seen.append((request.opcode, connecting.done()))

    async with Rogue(slow) as rogue:
        connecting = asyncio.ensure_future(zkwire.connect(rogue.hosts)._connect())
        await begun.wait()
        await cancelled(connecting)
    assert seen == [(CLOSE_SESSION, False)]
