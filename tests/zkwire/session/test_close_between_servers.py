"""Closing a client that has no connection at the moment: it connects once more, and the session ends there."""

import asyncio
import logging

import pytest

import zkwire
from recipes import Lock
from tests.support.client import begun, turns
from tests.support.recipes import outcome
from tests.support.virtual_time import Server, a_client, in_virtual_time, now
from zkwire import SessionState

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


@in_virtual_time
@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_server_that_comes_back_in_time_ends_the_session_and_no_other_one_follows(is_expired: bool) -> None:
    async with a_client() as (server, zk):
        await server.cut_off(zk)
        reading = await begun(zk.get("/"), 1)
        closing = await begun(zk.close(), 20)
        assert not closing.done()
        if is_expired:
            server.machine.expire(zk.session_id)
        server.refused = set()
        await closing
        assert isinstance(await outcome(reading), zkwire.SessionError) == is_expired
        assert len(server.machine.sessions.by_id) == 0
        assert zk.state is CLOSED


@in_virtual_time
@pytest.mark.parametrize("reaches", [False, True])
async def test_a_connection_lost_while_closing_is_replaced(reaches: bool, caplog: pytest.LogCaptureFixture) -> None:
    """If the server has ended the session before the connection was lost, the next server says so: no error then."""
    async with a_client(server=Server(are_several=True)) as (server, zk):
        states = zk.states()
        server.is_holding = True
        server.strike = lambda wire, sent: None if reaches else False
        closing = await begun(zk.close())
        server.drop()
        server.is_holding, server.strike = False, lambda wire, sent: None
        await closing
        assert len(server.machine.sessions.by_id) == 0
        assert server.names() == ["closeSession", "connect", *["closeSession"] * (not reaches)]
        seen = [CONNECTED, SUSPENDED, CLOSED] if reaches else [CONNECTED, SUSPENDED, CONNECTED, CLOSED]
        assert [state async for state in states] == seen
        assert [record.levelname for record in caplog.records if record.levelno >= logging.ERROR] == []


@in_virtual_time
@pytest.mark.parametrize(("is_kept", "is_early"), [(False, False), (True, False), (True, True)])
async def test_no_server_is_looked_for_to_end_a_session_that_is_kept_or_that_a_server_without_a_quorum_has_granted(
    is_kept: bool, is_early: bool
) -> None:
    async with a_client() as (server, zk):
        server.is_silent = is_kept
        closing = await begun(zk.close(keep_session=True)) if is_early else None
        server.refused = {"a", "b"}
        server.drop()
        await turns(1)
        zk._session.key.is_resumable = is_kept
        start = now()
        await (closing or zk.close(keep_session=is_kept))
        assert now() == start


@in_virtual_time
async def test_nothing_is_accepted_and_nothing_is_certain_while_the_client_closes() -> None:
    async with a_client() as (server, zk):
        lease = await Lock(zk, "/lock").acquire()
        _, watch = await zk.exists_and_watch("/a")
        await server.cut_off(zk)
        writing = asyncio.ensure_future(zk.set("/lock", b""))  # its answer would make the session certain again
        await turns(1)
        closing = await begun(zk.close())
        for call in (zk.get("/"), zk.ping(), zk.add_auth("digest", b"bob:secret")):
            with pytest.raises(zkwire.SessionClosedError):
                await call
        with pytest.raises(zkwire.SessionClosedError):
            await watch
        assert not lease.is_certain()
        assert zk.certain_until == float("-inf")

        server.hold_from("closeSession")
        server.refused = set()
        await server.until("closeSession")
        await writing
        assert (zk.state, zk.certain_until) == (CONNECTED, float("-inf"))
        zk.set_hosts("c")
        await turns()
        assert server.names()[-1] == "closeSession"  # and no ping: a client that closes does not move
        server.release()
        await closing
        assert len(server.machine.sessions.by_id) == 0
