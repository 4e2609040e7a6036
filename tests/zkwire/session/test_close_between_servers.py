"""Closing a client that has no connection at the moment: it connects once more, and the session ends there."""

import asyncio
import logging

import pytest

import zkwire
from recipes import Lock
from tests.support.client import states_until, turns
from tests.support.proxy import Proxy
from zkwire import SessionState
from zkwire.testing import RealServer, Server

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState

LONG = 30.0  # seconds, the session timeout: a session that is left to expire is still there at the end of a test


async def dropped(proxy: Proxy, zk: zkwire.Client) -> None:
    """Cut the connection, and wait until the client knows."""
    proxy.drop()
    await states_until(zk.states(), SUSPENDED)


async def test_a_server_that_comes_back_in_time_ends_the_session() -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts, LONG)
        await zk.create("/a", ephemeral=True)
        async with server.stopped():
            await states_until(zk.states(), SUSPENDED)
            closing = asyncio.create_task(zk.close())
            await turns(20)
            assert not closing.done()
        await closing
        assert server.sessions == []


@pytest.mark.parametrize("reaches", [False, True])
async def test_a_connection_lost_while_closing_is_followed_by_another(
    zookeeper: RealServer, path: str, reaches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """If the server has ended the session before the connection was lost, the next server says so: no error then."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as other:
        zk = await zkwire.connect(proxy.hosts, LONG)
        await zk.create(path, ephemeral=True)
        states, mark = zk.states(), proxy.mark()
        cut = proxy.drop_after("closeSession") if reaches else proxy.drop_before("closeSession")
        await zk.close()
        assert cut.hits == 1
        assert await other.exists(path) is None
        wanted = ["closeSession", "connect"] if reaches else ["closeSession", "connect", "closeSession"]
        assert proxy.requests(mark) == wanted
        seen = [CONNECTED, SUSPENDED, CLOSED] if reaches else [CONNECTED, SUSPENDED, CONNECTED, CLOSED]
        assert [state async for state in states] == seen
        assert [record.levelname for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_session_that_expires_meanwhile_is_followed_by_no_other() -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts, LONG)
        session_id = zk.session_id
        with server.refuse_connections() as refusing:
            server.drop()
            await states_until(zk.states(), SUSPENDED)
            reading = asyncio.create_task(zk.get("/"))
            await turns(1)
            closing = asyncio.create_task(zk.close())
            await refusing.until_hit()
            server.expire(session_id)
        await closing
        with pytest.raises(zkwire.SessionError):
            await reading
        assert server.sessions == []
        assert zk.state is CLOSED


async def test_nothing_is_accepted_and_nothing_is_certain_while_the_client_closes() -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts, LONG)
        lease = await Lock(zk, "/lock").acquire()
        _, watch = await zk.exists_and_watch("/a")
        with server.refuse_connections() as refusing:
            server.drop()
            await states_until(zk.states(), SUSPENDED)
            writing = asyncio.create_task(zk.set("/lock", b""))  # its answer would make the session certain again
            await turns(1)
            closing = asyncio.create_task(zk.close())
            await refusing.until_hit()
            for call in (zk.get("/"), zk.ping(), zk.add_auth("digest", b"bob:secret")):
                with pytest.raises(zkwire.SessionClosedError):
                    await call
            with pytest.raises(zkwire.SessionClosedError):
                await watch
            assert not lease.is_certain()
            assert zk.certain_until == float("-inf")
        async with server.hold_replies("closeSession") as held:
            await held.until_hit()
            await writing
            assert zk.state is CONNECTED
            assert zk.certain_until == float("-inf")
            zk.set_hosts("127.0.0.1:1")  # a client that closes does not move
        await closing
        assert server.sessions == []
