"""The verbs for faults do the same on the in-memory server and on a proxy in front of a server."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import zkwire
from tests.support.faults import FaultyServer
from tests.support.proxy import Proxy
from zkwire import Client, ConnectionLostError
from zkwire.testing import Server

pytestmark = pytest.mark.parametrize("kind", ["memory", "proxy"])


@asynccontextmanager
async def faulty(kind: str) -> AsyncIterator[FaultyServer]:
    """A server that a test can disturb; the one behind the proxy is in memory, too, because the proxy does not care."""
    async with Server() as server:
        if kind == "memory":
            yield server
        else:
            async with Proxy(server.hosts) as proxy:
                yield proxy


@asynccontextmanager
async def stage(kind: str) -> AsyncIterator[tuple[FaultyServer, Client, Client]]:
    """A server and two clients of it."""
    async with faulty(kind) as server, zkwire.connect(server.hosts) as one, zkwire.connect(server.hosts) as other:
        yield server, one, other


async def test_a_request_that_is_dropped_before_is_not_carried_out(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        async with server.drop_before("create", path="/a") as fault:
            with pytest.raises(ConnectionLostError):
                await zk.create("/a")
            assert fault.hits == 1
        assert fault.is_over
        assert await other.exists("/a") is None


async def test_a_request_that_is_dropped_after_is_carried_out(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        fault = server.drop_after("create", path=re.compile("/a+"))
        await zk.create("/b")
        assert fault.hits == 0
        with pytest.raises(ConnectionLostError):
            await zk.create("/aa")
        await fault.until_hit()
        assert await other.exists("/aa") is not None


async def test_a_fault_counts_the_requests_of_its_session(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        fault = server.drop_before("setData", session=zk.session_id, nth=2, times=2)
        await other.set("/", b"1")
        await other.set("/", b"2")
        await zk.set("/", b"3")
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                await zk.set("/", b"4")
        await zk.set("/", b"5")
        await fault.until_hit(2)
        assert fault.hits == 2


async def test_held_replies_wait_for_the_release_and_what_follows_waits_behind(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        hold = server.hold_replies("create", session=zk.session_id, times=1)
        creating = asyncio.create_task(zk.create("/a"))
        reading = asyncio.create_task(zk.get_children("/"))
        await hold.until_hit()
        assert "a" in await other.get_children("/")
        await zk_is_silent(creating, reading)
        hold.release()
        assert await creating == "/a"
        assert "a" in await reading


async def test_everything_that_goes_out_to_a_session_is_held(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        with server.hold_replies(session=zk.session_id) as hold:
            reading = asyncio.create_task(zk.get_children("/"))
            await hold.until_hit()
            await other.get_children("/")
            await zk_is_silent(reading)
        await reading


async def test_delayed_replies_come_after_their_time(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        loop = asyncio.get_running_loop()
        with server.delay_replies(0.05, "exists", session=zk.session_id) as fault:
            started = loop.time()
            await other.exists("/")
            await zk.exists("/")
            assert loop.time() - started >= 0.05
            assert fault.hits == 1


async def test_new_connections_are_refused_until_the_fault_ends(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        with server.refuse_connections() as fault:
            assert server.drop(zk.session_id) == 1
            await fault.until_hit()
            await other.exists("/")
            assert zk.state is zkwire.SessionState.SUSPENDED
        await zk.exists("/")


async def test_all_connections_can_be_dropped_and_all_faults_ended(kind: str) -> None:
    async with stage(kind) as (server, zk, other):
        faults = [server.drop_before("exists"), server.hold_replies()]
        server.pause()
        server.end_faults()
        assert all(fault.is_over for fault in faults)
        assert server.drop() == 2
        await zk.exists("/")
        await other.exists("/")
        with server.paused():
            reading = asyncio.create_task(zk.exists("/"))
            await zk_is_silent(reading)
        await reading


def test_a_request_that_does_not_exist_is_refused(kind: str) -> None:
    server: FaultyServer = Server() if kind == "memory" else Proxy("127.0.0.1:1")
    with pytest.raises(ValueError, match="no request is called 'nonsense'"):
        server.drop_before("nonsense")
    with pytest.raises(ValueError, match="count from 1"):
        server.drop_after(nth=0)


async def zk_is_silent(*tasks: asyncio.Task[object]) -> None:
    """See that none of the tasks ends while a reply would have had the time to arrive."""
    done, _ = await asyncio.wait(tasks, timeout=0.05)
    assert not done
