"""Closing a client, at any moment, and the states that an iteration over them shows."""

import asyncio
import struct
from collections.abc import Awaitable, Coroutine
from typing import Any

import pytest

import zkwire
from tests.support.client import eventually, states_until, turns
from tests.support.proxy import Proxy
from tests.support.rogue import Peer, Rogue, silent_handshake
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


async def test_closing_several_times_closes_once(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts)
        await asyncio.gather(zk.close(), zk.close(), zk.close(keep_session=True))
        await zk.close()
        async with zk:
            pass
        assert proxy.requests().count("closeSession") == 1


@pytest.mark.parametrize("max_in_flight", [1000, 2])
async def test_calls_made_before_close_are_answered_first(zookeeper: RealServer, path: str, max_in_flight: int) -> None:
    zk = await zkwire.connect(zookeeper.hosts, max_in_flight=max_in_flight)
    calls = [asyncio.create_task(zk.create(f"{path}-{number}")) for number in range(50)]
    await turns(1)
    await zk.close()
    assert [call.result() for call in calls] == [f"{path}-{number}" for number in range(50)]


async def test_closing_while_disconnected_fails_the_calls_that_wait_and_returns(
    zookeeper: RealServer, path: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts, 1.0)
        await zk.create(path, ephemeral=True)
        _, watch = await zk.get_and_watch(path)
        states = zk.states()
        proxy.refuse_connections()
        proxy.drop()
        await states_until(states, SUSPENDED)
        calls: list[Coroutine[Any, Any, Any]] = [zk.set(path, b""), zk.get(path)]
        waiting = [asyncio.create_task(call) for call in calls]
        await turns(1)
        await zk.close()
        ended: list[Awaitable[Any]] = [*waiting, watch]
        for end in ended:
            with pytest.raises(zkwire.SessionClosedError):
                await end
        assert [state async for state in states] == [CLOSED]
        await gone(zookeeper, path)  # by expiry


async def test_closing_while_the_server_is_silent_ends_with_the_link(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts, 1.0)
        proxy.pause()
        writing = asyncio.create_task(zk.create(path))
        reading = asyncio.create_task(zk.get(path))
        await turns(1)
        await zk.close()
        with pytest.raises(zkwire.ConnectionLostError):
            await writing
        with pytest.raises(zkwire.SessionClosedError):
            await reading
        assert zk.state is CLOSED
        proxy.resume()


async def trickle(peer: Peer) -> None:
    """Send the bytes of one frame, a few at a time, and answer nothing."""
    await peer.handshake()
    await peer.send(struct.pack(">i", 1 << 20))
    while True:
        await peer.send(bytes(5000))
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("keep_session", [False, True])
@pytest.mark.limit(10)
async def test_closing_ends_within_a_session_timeout_whatever_the_server_does_pitfall_83(keep_session: bool) -> None:
    """The server is never silent, and makes so much progress with its frame that the connection is not dead."""
    loop = asyncio.get_running_loop()
    async with Rogue(trickle) as rogue:
        zk = await zkwire.connect(rogue.hosts, 2.0)
        start = loop.time()
        await zk.close(keep_session=keep_session)
        assert loop.time() - start < 2.5
        assert zk.state is CLOSED


@pytest.mark.parametrize("keep_session", [False, True])
async def test_a_connection_lost_while_closing_ends_the_close(zookeeper: RealServer, keep_session: bool) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts, 4.0)
        mark = proxy.mark()
        proxy.hold_replies()
        closing = asyncio.create_task(zk.close(keep_session=keep_session))
        await proxy.seen("ping" if keep_session else "closeSession", mark)
        proxy.refuse_connections()
        proxy.drop()
        await closing
        assert zk.state is CLOSED


async def test_connecting_can_be_given_up_where_no_server_answers() -> None:
    for hosts in ("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await zkwire.connect(hosts)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), zkwire.connect(hosts):
                pytest.fail("there is no server")


async def test_connecting_can_be_given_up_while_a_server_is_silent() -> None:
    async with Rogue(silent_handshake) as rogue:
        connecting = asyncio.ensure_future(zkwire.connect(rogue.hosts)._connect())
        await rogue.until(lambda: len(rogue.handshakes) == 1)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await rogue.disconnected(1)


@pytest.mark.parametrize("after", range(8))
async def test_connecting_can_be_given_up_at_every_turn(zookeeper: RealServer, after: int) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        connecting = asyncio.ensure_future(zkwire.connect(proxy.hosts)._connect())
        await turns(after)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await proxy.until(lambda: proxy.open == 0)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_cancelled_close_closes_all_the_same(zookeeper: RealServer, path: str, times: int) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts, 1.0)
        await zk.create(path, ephemeral=True)
        proxy.hold_replies()
        closing = asyncio.create_task(zk.close())
        second = asyncio.create_task(zk.close())
        await proxy.seen("closeSession")
        for _ in range(times):
            closing.cancel()
            await turns(1)
        with pytest.raises(asyncio.CancelledError):
            await closing
        await second
        assert zk.state is CLOSED
        with pytest.raises(zkwire.SessionClosedError):
            await zk.ping()


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


async def test_cancelling_an_iteration_over_states_loses_no_state(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        states = zk.states()
        assert await anext(states) is CONNECTED
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(states)
        proxy.drop()
        assert await states_until(states, CONNECTED) == [SUSPENDED, CONNECTED]
        states.close()
        states.close()


async def test_a_second_task_that_waits_for_the_same_stream_of_states_is_told_so(zookeeper: RealServer) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        states = zk.states()
        assert await anext(states) is CONNECTED
        first = asyncio.ensure_future(anext(states))
        await turns()
        with pytest.raises(RuntimeError, match="another task waits"):
            await anext(states)
        await zk.close()
        assert await first is CLOSED


async def test_a_discard_is_finished_before_the_client_closes(zookeeper: RealServer, path: str) -> None:
    zk = await zkwire.connect(zookeeper.hosts)
    await zk.create(path)
    removed = zk.discard(path)
    await zk.close()
    assert removed.done()
    async with zkwire.connect(zookeeper.hosts) as other:
        assert await other.exists(path) is None


async def test_cancelling_the_wait_for_a_discard_leaves_other_discards_alone(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        hold = proxy.hold_replies()
        first, second = zk.discard(path), zk.discard(path)
        first.cancel()
        third = zk.discard(path)
        hold.release()
        await second
        await third
        assert await zk.exists(path) is None
