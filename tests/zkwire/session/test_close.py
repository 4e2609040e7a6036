"""Closing a client, at any moment, and the states that an iteration over them shows."""

import asyncio
import struct

import pytest

import zkwire
from tests.support.client import cancelled, eventually, states_until, turns
from tests.support.proxy import Proxy
from tests.support.virtual_time import a_client, in_virtual_time
from tests.zkwire.session.verbs import every_call
from zkwire import SessionState
from zkwire.testing import RealServer

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


async def gone(server: RealServer, path: str) -> None:
    """Wait until there is no node at `path`."""
    async with zkwire.connect(server.hosts) as zk:
        stat, watch = await zk.exists_and_watch(path)
        if stat is not None:
            await watch
        else:
            watch.cancel()


async def test_closing_ends_the_session_and_its_ephemeral_nodes_at_once(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as other:
        zk = await zkwire.connect(proxy.hosts)
        await zk.create(path, ephemeral=True)
        await zk.close()
        assert proxy.requests()[-1] == "closeSession"
        await other.sync(path)
        assert await other.exists(path) is None
        assert zk.state is CLOSED
        assert zk.certain_until == float("-inf")
        await proxy.until(lambda: proxy.open == 0)


async def test_closing_without_waiting_asks_for_the_end_of_the_session_all_the_same(
    zookeeper: RealServer, path: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts)
        await zk.create(path, ephemeral=True)
        writing = asyncio.ensure_future(zk.set(path, b"x"))
        await turns(1)
        await zk.close(within=0)
        with pytest.raises(zkwire.SessionClosedError):
            await writing
        await gone(zookeeper, path)
        await proxy.until(lambda: proxy.requests()[-2:] == ["setData", "closeSession"])


async def test_calls_after_close_say_that_the_client_is_closed_pitfall_6(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts)
        tx = zk.transaction()
        tx.create(path)
        await zk.close()
        mark = proxy.mark()
        for call in [*every_call(zk, path), tx.commit()]:
            with pytest.raises(zkwire.SessionClosedError, match="closed"):
                await call
        await zk.discard(path)
        assert [state async for state in zk.states()] == [CLOSED]
        assert proxy.requests(mark) == []


@in_virtual_time
@pytest.mark.parametrize(("keep_session", "within"), [(False, None), (True, None), (False, 60.0)])
async def test_closing_ends_within_a_session_timeout_whatever_the_server_does_pitfall_83(
    keep_session: bool, within: float | None
) -> None:
    """The server is never silent, and makes so much progress with its frame that the connection is not dead."""

    async def trickle() -> None:
        server.wire.send(struct.pack(">i", 1 << 20))
        while True:
            server.wire.send(bytes(5000))
            await asyncio.sleep(0.1)

    async with a_client(timeout=6.0) as (server, zk):
        server.is_silent = True
        trickling = asyncio.create_task(trickle())
        start = server.loop.time()
        await zk.close(keep_session=keep_session, within=within)
        assert server.loop.time() - start == pytest.approx(6.0, abs=0.01)
        assert zk.state is CLOSED
        await cancelled(trickling)


async def test_a_cancelled_body_closes_the_client(zookeeper: RealServer, path: str) -> None:
    async def body() -> None:
        async with zkwire.connect(zookeeper.hosts) as zk:
            await zk.create(path, ephemeral=True)
            _, watch = await zk.get_and_watch(path)
            await watch

    running = asyncio.create_task(body())
    async with zkwire.connect(zookeeper.hosts) as other:

        async def there() -> bool:
            return await other.exists(path) is not None

        await eventually(there)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        await other.sync(path)
        assert await other.exists(path) is None


# -- states --------------------------------------------------------------------------------------------------------


async def test_an_iteration_over_states_begins_with_the_present_state_and_omits_none(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts)
        early = zk.states()
        proxy.drop()
        await states_until(zk.states(), SUSPENDED)
        await zk.ping()
        late = zk.states()
        await zk.close()
        assert [state async for state in early] == [CONNECTED, SUSPENDED, CONNECTED, CLOSED]
        assert [state async for state in early] == []
        assert [state async for state in late] == [CONNECTED, CLOSED]


async def test_calls_work_inside_an_iteration_over_states_pitfall_50(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts)
        made = []
        async for state in zk.states():
            if state is CONNECTED:
                made.append(await zk.create(f"{path}-", sequential=True))
                if len(made) == 3:
                    await zk.close()
                else:
                    proxy.drop()
        assert len(set(made)) == 3
