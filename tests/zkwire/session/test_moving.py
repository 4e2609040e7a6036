"""Leaving a server for another one of a new list, and closing meanwhile, in virtual time; a defect inside."""

import asyncio
from typing import Any

import pytest

import zkwire
from tests.support.client import InOrder, begun, given_up, turns
from tests.support.recipes import outcome, until
from tests.support.virtual_time import Server as VirtualServer
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import SessionState
from zkwire.testing import Server

CONNECTED, SUSPENDED, CLOSED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CLOSED


async def leaving(server: VirtualServer, zk: zkwire.Client) -> "asyncio.Task[str]":
    """Have the client leave its server a for b with a create in flight, whose answer is held back."""
    server.is_holding = True
    creating = await begun(zk.create("/a"))
    zk.set_hosts("b")
    await turns()
    return creating


@in_virtual_time
async def test_what_is_in_flight_is_answered_before_the_server_is_left_and_what_comes_then_goes_to_the_next() -> None:
    async with a_client("a") as (server, zk):
        session, states = zk.session_id, zk.states()
        creating = await leaving(server, zk)
        reading = await begun(zk.get("/a"), 20)
        assert server.names() == ["create", "ping"]
        assert zk.state is CONNECTED  # the create is not cut off
        server.release()
        assert await creating == "/a"
        assert (await reading).data == b""
        assert (zk.server, zk.session_id) == ("b:2181", session)
        await zk.close()
        assert [state async for state in states] == [CONNECTED, SUSPENDED, CONNECTED, CLOSED]


@in_virtual_time
@pytest.mark.parametrize("refused", [False, True])
async def test_a_server_is_left_at_once_with_nothing_in_flight(refused: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Also if it refuses the last ping; the next ordinary one would be due after more than a minute."""
    async with a_client("a", 600.0) as (server, zk):
        server.strike = lambda wire, sent: zkwire.ThrottledError.code if refused and sent.name == "ping" else None
        zk.set_hosts("b")
        await turns(20)
        assert server.names()[:2] == ["ping", "connect"]
        assert (zk.server, zk.state) == ("b:2181", CONNECTED)
    assert "lost the connection to a:2181: the list of servers has changed" in caplog.messages


@in_virtual_time
async def test_a_connection_lost_while_its_server_is_left_does_not_keep_the_client_at_the_next_one() -> None:
    async with a_client("a") as (server, zk):
        zk.need_certainty()
        creating = await leaving(server, zk)
        server.drop_held()
        assert isinstance(await outcome(creating), zkwire.ConnectionLostError)
        await zk.ping()
        assert zk.server == "b:2181"
        assert server.names() == ["create", "ping", "connect", "multi", "ping"]  # the last one is the caller's
        zk.set_hosts("a")
        await turns(20)
        assert (zk.server, zk.state) == ("a:2181", CONNECTED)


@in_virtual_time
async def test_a_close_while_the_server_is_being_left_ends_the_session_on_the_connection_that_is_there() -> None:
    async with a_client("a") as (server, zk):
        states = zk.states()
        creating = await leaving(server, zk)
        server.is_silent = True
        ending = await begun(zk.close())
        server.release()
        assert await creating == "/a"
        await turns()  # the answer to the last ping has arrived as well
        server.go_on()
        await ending
        assert server.names() == ["create", "ping", "closeSession"]
        assert [state async for state in states] == [CONNECTED, CLOSED]
        assert len(server.machine.sessions.by_id) == 0


# -- closing with the session kept ------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("keep_session", [True, False])
async def test_the_node_of_a_cancelled_create_does_not_stay_in_a_session_that_is_kept(keep_session: bool) -> None:
    async with a_client() as (server, zk), zkwire.connect("c", open_link=server.open_link) as other:
        _, watch = await zk.exists_and_watch("/e")
        server.is_holding = True
        watch.cancel()  # no caller waits for the answer
        await given_up(zk.create("/e", ephemeral=True))
        ending = await begun(zk.close(keep_session=keep_session))
        assert not ending.done()
        server.release()
        await ending
        assert (zk.session_id in server.machine.sessions.by_id) == keep_session
        assert await other.exists("/e") is None


@in_virtual_time
async def test_a_server_that_falls_silent_ends_the_wait_for_the_clean_up_of_a_kept_session() -> None:
    """Otherwise it would last for half of the session timeout."""
    async with a_client(timeout=600.0) as (server, zk):
        server.is_silent = True
        await given_up(zk.create("/e", ephemeral=True))
        start = server.loop.time()
        await zk.close(keep_session=True)
        assert server.loop.time() - start == pytest.approx(2.5, abs=0.1)  # the clean-up, and then the last ping
        server.is_silent = False


# -- failures inside --------------------------------------------------------------------------------------------------


async def test_a_defect_in_a_session_is_reported_and_leaves_no_caller_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[dict[str, Any]] = []
    async with Server() as server:
        zk = await zkwire.connect(server.hosts, rng=InOrder())
        _, watch = await zk.exists_and_watch("/a")
        held = server.hold_replies("getData", session=zk.session_id)
        reading = asyncio.create_task(zk.get("/a"))
        await held.until_hit()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        monkeypatch.setattr(zk._session._hosts, "next", lambda: 1 / 0)
        server.drop()
        for waiting in (reading, watch):
            error = await outcome(waiting)
            assert isinstance(error, zkwire.SessionClosedError)
            assert "the client has failed inside: ZeroDivisionError" in str(error)
        await until(lambda: bool(complaints))
        (complaint,) = complaints
        assert isinstance(complaint["exception"], ZeroDivisionError)
        assert zk.state is SessionState.CLOSED
        await zk.close()
