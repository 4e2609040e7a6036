"""Leaving a server for another one of a new list, and closing meanwhile; the server in memory has two addresses."""

import asyncio

import pytest

import zkwire
from tests.support.client import InOrder, cancelled, states_until, turns
from tests.support.everywhere import scene
from tests.support.recipes import no_task_stays, outcome, until
from zkwire import SessionState
from zkwire.session import closing
from zkwire.testing import Server

pytestmark = pytest.mark.limit(30)

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
PING = 11


def elsewhere(server: Server) -> str:
    """Return another address of the server."""
    return server.hosts.replace("127.0.0.1", "localhost")


async def test_what_is_in_flight_is_answered_before_the_server_is_left_and_what_comes_then_goes_to_the_next() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, no_task_stays():
        session, states = zk.session_id, zk.states()
        with server.hold_replies("create", session=session) as held, server.delay_replies(0, "getData") as asked:
            creating = asyncio.create_task(zk.create("/a"))
            await held.until_hit()
            zk.set_hosts(elsewhere(server))
            await turns(3)
            reading = asyncio.create_task(zk.get("/a"))
            await turns(20)
            assert zk.state is CONNECTED  # the create is not cut off
            assert not asked.hits  # the read waits for the next server
            held.release()
            assert await creating == "/a"
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            assert await states_until(states, CONNECTED) == [CONNECTED]
            assert (await reading).data == b""
        assert zk.server == elsewhere(server)
        assert zk.session_id == session


@pytest.mark.parametrize("refused", [False, True])
async def test_a_server_is_left_at_once_if_nothing_is_in_flight(
    refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it refuses the last ping; the next ordinary one would be due after more than a minute."""
    async with Server(max_session_timeout=600.0) as server, zkwire.connect(server.hosts, 600.0) as zk:
        left, states = server.hosts, zk.states()
        with server.answering(PING, zkwire.ThrottledError) if refused else server.delay_replies(0, PING) as pinged:
            zk.set_hosts(elsewhere(server))
            await states_until(states, SUSPENDED)
            assert pinged.hits == 1
        await states_until(states, CONNECTED)
        assert zk.server == elsewhere(server)
    assert f"lost the connection to {left}: the list of servers has changed" in caplog.messages


async def test_a_connection_that_is_lost_while_its_server_is_being_left_does_not_keep_the_client_at_the_next_one() -> (
    None
):
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        first, states = server.hosts, zk.states()
        with server.hold_replies("create", session=zk.session_id) as held:
            creating = asyncio.create_task(zk.create("/a"))
            await held.until_hit()
            zk.set_hosts(elsewhere(server))
            await turns(3)
            server.drop()
            assert isinstance(await outcome(creating), zkwire.ConnectionLostError)
        await states_until(states, SUSPENDED)
        await states_until(states, CONNECTED)
        assert zk.server == elsewhere(server)
        zk.set_hosts(first)
        await states_until(states, SUSPENDED)
        await states_until(states, CONNECTED)
        assert zk.server == first


async def test_a_close_while_the_server_is_being_left_ends_the_session_on_the_connection_that_is_there() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as other:
        zk = await zkwire.connect(server.hosts)
        session, states = zk.session_id, zk.states()
        await zk.create("/e", ephemeral=True)
        with (
            server.hold_replies("create", session=session) as held,
            server.hold_replies("closeSession", session=session) as last,
        ):
            creating = asyncio.create_task(zk.create("/a"))
            await held.until_hit()
            zk.set_hosts(elsewhere(server))
            await turns(3)
            ending = asyncio.create_task(zk.close())
            await last.until_hit()  # on the same connection
            held.release()
            assert await creating == "/a"
            for _ in range(3):  # the answer to the last ping has arrived as well
                await other.ping()
        await ending
        assert [state async for state in states] == [CONNECTED, SessionState.CLOSED]
        assert session not in server.sessions
        assert await other.exists("/e") is None


# -- closing with the session kept ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_session", [True, False])
async def test_the_node_of_a_cancelled_create_does_not_stay_in_a_session_that_is_kept(keep_session: bool) -> None:
    async with scene() as stage:
        session = stage.zk.session_id
        with stage.server.hold_replies("create", session=session) as held:
            task = asyncio.create_task(stage.zk.create("/e", ephemeral=True))
            await held.until_hit()
            await cancelled(task)
            ending = asyncio.create_task(stage.zk.close(keep_session=keep_session))
            await turns(5)
            assert not ending.done()
        await ending
        assert (session in stage.server.sessions) == keep_session
        assert await stage.other.exists("/e") is None


async def test_a_server_that_falls_silent_ends_the_wait_for_the_clean_up_of_a_kept_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would last for half of the session timeout, here for five minutes."""
    monkeypatch.setattr(closing, "_SILENCE", 0.05)
    monkeypatch.setattr(closing, "_LAST_TRY", 0.05)
    async with Server(max_session_timeout=600.0) as server:
        zk = await zkwire.connect(server.hosts, 600.0)
        with server.hold_replies("create", session=zk.session_id) as held:
            task = asyncio.create_task(zk.create("/e", ephemeral=True))
            await held.until_hit()
            await cancelled(task)
            with server.paused():
                await zk.close(keep_session=True)
        assert zk.session_id in server.sessions


# -- failures inside --------------------------------------------------------------------------------------------------


async def test_a_defect_in_the_session_is_reported_and_leaves_no_caller_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    handler, complaints = loop.get_exception_handler(), []
    async with Server() as server:
        zk = await zkwire.connect(server.hosts, rng=InOrder())
        _, watch = await zk.exists_and_watch("/a")
        held = server.hold_replies("getData", session=zk.session_id)
        waiting = [asyncio.create_task(call) for call in (zk.get("/a"), watch_for(watch))]
        await held.until_hit()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        try:
            monkeypatch.setattr(zk._session._hosts, "next", lambda: 1 / 0)
            server.drop()
            for task in waiting:
                error = await outcome(task)
                assert isinstance(error, zkwire.SessionClosedError)
                assert "the client has failed inside: ZeroDivisionError" in str(error)
            await until(lambda: bool(complaints))
        finally:
            loop.set_exception_handler(handler)
        (complaint,) = complaints
        assert isinstance(complaint["exception"], ZeroDivisionError)
        assert zk.state is SessionState.CLOSED
        await zk.close()


async def watch_for(watch: zkwire.Watch) -> zkwire.WatchEvent:
    return await watch


# -- searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sequential", "operation"), [(True, "getChildren"), (True, "exists"), (False, "exists")])
async def test_a_search_that_is_refused_for_good_is_reported(
    sequential: bool, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene() as stage, no_task_stays():
        await stage.other.create("/a")
        with stage.server.answering(operation, zkwire.NoAuthError, session=stage.zk.session_id):
            with stage.server.drop_after("create", session=stage.zk.session_id) as lost:
                task = asyncio.create_task(stage.zk.create("/a/n-", ephemeral=True, sequential=sequential))
                await turns(2)
                task.cancel()
                await lost.until_hit()

            def reports() -> list[str]:
                return [text for text in map(str, caplog.messages) if "cannot look for the node" in text]

            await until(lambda: bool(reports()))
        (report,) = reports()
        assert "that a cancelled create of /a/n- left: " in report
        assert len(await stage.other.get_children("/a")) == 1
