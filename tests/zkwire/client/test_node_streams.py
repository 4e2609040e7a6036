"""Streams of a node's states under faults: nothing missed, nothing twice, nothing left behind."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from tests.conformance.test_streams import following
from tests.conformance.test_streams_state import STREAMS, disturb, stream
from tests.support.client import PATIENCE, cancelled, eventually, states_until, turns, watched
from tests.support.proxy import Proxy
from tests.zkwire.session.test_expiry import end_session
from zkwire import ChildrenStream, Client, DataStream, SessionState
from zkwire.testing import RealServer

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
READ = {"data": "getData", "children": "getChildren2"}


async def settled(zk: Client) -> None:
    """Let a stream read what it reads on its own accord: two requests at most, one behind the other."""
    for _ in range(3):
        await zk.ping()
        await turns()


def watches_left(proxy: Proxy, read: str) -> int:
    """How many watches of a read are neither fired nor removed (of child watches no four-letter word tells)."""
    replies = [frame for frame in proxy.log if frame.direction == "reply"]
    set_by = sum(frame.opcode == read for frame in replies)
    removed = sum(frame.opcode == "removeWatches" and frame.err == 0 for frame in replies)
    fired = sum(frame.direction == "event" for frame in proxy.log)
    return set_by - removed - fired


# What it costs


@pytest.mark.parametrize("kind", STREAMS)
async def test_each_change_costs_one_read_and_no_more(zookeeper: RealServer, path: str, kind: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(path)
        async with stream(zk, kind, path) as states:
            await following(states)
            for name in "123":
                await disturb(other, kind, path, name)
                await following(states)
            assert proxy.requests() == ["connect", *[READ[kind]] * 4]


# Reconnects


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("kind", STREAMS)
async def test_what_changed_while_away_is_given_and_nothing_twice(
    zookeeper: RealServer, path: str, kind: str, is_waiting: bool
) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(path, b"0")
        session = zk.states()
        async with stream(zk, kind, path) as states:
            first = await following(states)
            task = asyncio.ensure_future(anext(states)) if is_waiting else None
            await turns()
            proxy.cut()
            await states_until(session, SUSPENDED)
            await states_until(session, CONNECTED)
            await settled(zk)
            assert task is None or not task.done()
            proxy.refuse()
            proxy.cut()
            await states_until(session, SUSPENDED)
            await disturb(other, kind, path, "1")
            await disturb(other, kind, path, "2")
            proxy.accept()
            task = task or asyncio.ensure_future(anext(states))
            async with asyncio.timeout(PATIENCE):
                state = await task
            assert state == (await zk.get(path) if kind == "data" else await zk.get_children(path))
            assert state != first
            task = asyncio.ensure_future(anext(states))
            await settled(zk)
            await cancelled(task)


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_node_that_came_or_went_while_away_is_given(zookeeper: RealServer, path: str, kind: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
        stream(zk, kind, path) as states,
    ):
        session = zk.states()
        assert await following(states) is None
        for change in (other.create, other.delete):
            task = asyncio.ensure_future(anext(states))
            await settled(zk)
            proxy.refuse()
            proxy.cut()
            await states_until(session, SUSPENDED)
            await change(path)
            proxy.accept()
            async with asyncio.timeout(PATIENCE):
                assert (await task is None) == (change == other.delete)
            await states_until(session, CONNECTED)


@pytest.mark.parametrize("kind", STREAMS)
async def test_an_event_cut_off_behind_its_change_is_made_up_for(zookeeper: RealServer, path: str, kind: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(path)
        async with stream(zk, kind, path) as states:
            first = await following(states)
            task = asyncio.ensure_future(anext(states))
            await turns()
            proxy.hold_replies()
            await disturb(other, kind, path, "1")
            await proxy.seen(lambda frame: frame.path == path, direction="event")
            proxy.cut()
            proxy.release_replies()
            async with asyncio.timeout(PATIENCE):
                assert await task != first


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", STREAMS)
async def test_a_read_cut_off_is_repeated(zookeeper: RealServer, path: str, kind: str, when: str) -> None:
    """On an absent node the read for its creation too."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
        stream(zk, kind, path) as states,
    ):
        cut = proxy.cut_before if when == "before" else proxy.cut_after
        first, second = cut(READ[kind]), cut("exists")
        assert await following(states) is None
        await asyncio.gather(first, second)
        await other.create(path)
        third = cut(READ[kind])
        assert await following(states) is not None
        await third
        await disturb(other, kind, path, "1")
        assert await following(states)


@pytest.mark.parametrize("kind", STREAMS)
async def test_through_many_cuts_every_state_is_newer_and_the_last_comes(
    zookeeper: RealServer, path: str, kind: str
) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(path, b"0")
        seen: list[int] = []

        async def follow() -> None:
            async for state in stream(zk, kind, path):
                assert state is not None
                seen.append(int(state.data) if isinstance(state, zkwire.Node) else len(state))
                if seen[-1] == 60:
                    break

        task = asyncio.create_task(follow())
        for number in range(1, 61):
            await disturb(other, kind, path, str(number))
            if number % 10 == 0:
                proxy.cut(reset=number % 20 == 0)
                await proxy.connected(number // 10 + 1)
        async with asyncio.timeout(PATIENCE):
            await task
        assert seen == sorted(set(seen))


# The end of the session


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_goes_on_in_the_next_session(
    zookeeper: RealServer, path: str, kind: str, is_waiting: bool
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        await other.create(path, b"0")
        old, session = zk.session_id, zk.states()
        async with stream(zk, kind, path) as states:
            first = await following(states)
            task = asyncio.ensure_future(anext(states)) if is_waiting else None
            await turns()
            await end_session(zookeeper, zk)
            await states_until(session, EXPIRED)
            await states_until(session, CONNECTED)
            assert zk.session_id != old
            task = task or asyncio.ensure_future(anext(states))
            await settled(zk)
            assert not task.done()  # the state is the same
            await disturb(other, kind, path, "1")
            async with asyncio.timeout(PATIENCE):
                assert await task != first


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_session_that_expires_under_a_read_changes_nothing(zookeeper: RealServer, path: str, kind: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        session = zk.states()
        lost = proxy.cut_before(READ[kind])
        states = stream(zk, kind, path)
        task = asyncio.ensure_future(anext(states))
        await lost
        proxy.refuse()
        await end_session(zookeeper, zk)
        proxy.accept()
        await states_until(session, EXPIRED)
        async with asyncio.timeout(PATIENCE):
            assert await task is None
        states.close()


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_session_that_is_not_renewed_ends_the_iteration(zookeeper: RealServer, path: str, kind: str) -> None:
    async with zkwire.connect(zookeeper.hosts, renew=False) as zk:
        session, states = zk.states(), stream(zk, kind, path)
        assert await following(states) is None
        task = asyncio.ensure_future(anext(states))
        await turns()
        await end_session(zookeeper, zk)
        await states_until(session, EXPIRED)
        with pytest.raises(zkwire.SessionExpiredError, match=f"{zk.session_id:#x}"):
            await task
        for each in (states, stream(zk, kind, path)):
            with pytest.raises(zkwire.SessionExpiredError):
                await anext(each)


# Leaving


Leaving = Callable[[DataStream | ChildrenStream], Awaitable[None]]


async def by_break(states: DataStream | ChildrenStream) -> None:
    async for _ in states:
        break


async def by_error(states: DataStream | ChildrenStream) -> None:
    async def follow(states: DataStream | ChildrenStream) -> None:
        async for _ in states:
            raise LookupError

    with pytest.raises(LookupError):
        await follow(states)


async def by_close(states: DataStream | ChildrenStream) -> None:
    await anext(states)
    states.close()


async def by_aclose(states: DataStream | ChildrenStream) -> None:
    await anext(states)
    await states.aclose()


async def by_async_with(states: DataStream | ChildrenStream) -> None:
    async with states:
        async for _ in states:
            break


async def by_cancelling_the_wait(states: DataStream | ChildrenStream) -> None:
    await anext(states)
    task = asyncio.ensure_future(anext(states))
    await turns()
    await cancelled(task)


async def by_cancelling_the_body(states: DataStream | ChildrenStream) -> None:
    given = asyncio.Event()

    async def follow(states: DataStream | ChildrenStream) -> None:
        async for _ in states:
            given.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(follow(states))
    await given.wait()
    await cancelled(task)


WAYS: dict[str, Leaving] = {
    "break": by_break,
    "an error": by_error,
    "close": by_close,
    "aclose": by_aclose,
    "async with": by_async_with,
    "cancelled wait": by_cancelling_the_wait,
    "cancelled body": by_cancelling_the_body,
}


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STREAMS)
async def test_leaving_leaves_no_watch_on_the_server(
    zookeeper: RealServer, path: str, kind: str, way: str, is_there: bool
) -> None:
    gc.disable()  # it must go without
    try:
        async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
            if is_there:
                await zk.create(path)
            await WAYS[way](stream(zk, kind, path))
            await proxy.seen("removeWatches", direction="reply")
            assert not await watched(zookeeper, path)
            assert watches_left(proxy, READ[kind] if is_there else "exists") == 0
            assert proxy.connections == 1
    finally:
        gc.enable()


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize("kind", STREAMS)
async def test_a_wait_cancelled_at_any_turn_leaves_no_watch_and_misses_nothing(
    zookeeper: RealServer, path: str, kind: str, after: int
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        await other.create(path)
        states = stream(zk, kind, path)
        given = [await following(states)]
        task = asyncio.ensure_future(anext(states))
        await turns(2)
        changing = asyncio.ensure_future(disturb(other, kind, path, "1"))
        await turns(after)
        task.cancel()
        await asyncio.wait({task})
        await changing
        if task.cancelled():

            async def is_so() -> bool:
                return not await watched(zookeeper, path)

            await eventually(is_so)
        else:
            given.append(task.result())
        if len(given) == 1:
            given.append(await following(states))
        assert given[0] != given[1]
        states.close()


async def test_a_stream_dropped_behind_the_end_of_its_client_says_nothing(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        states = zk.data(path)
        await following(states)
    del states
    gc.collect()


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_closed_while_away_is_not_set_again(zookeeper: RealServer, path: str, kind: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        states = stream(zk, kind, path)
        await following(states)
        proxy.refuse()
        proxy.cut()
        await states_until(zk.states(), SUSPENDED)
        states.close()
        mark = proxy.mark()
        proxy.accept()
        await zk.ping()
        assert proxy.requests(mark) == ["connect"]


async def test_states_left_by_break_are_not_kept(zookeeper: RealServer) -> None:
    gc.disable()  # it must go without
    try:
        async with zkwire.connect(zookeeper.hosts) as zk:
            states = zk.states()
            left = weakref.ref(states)
            async for state in states:
                assert state is CONNECTED
                break
            del states
            assert left() is None
    finally:
        gc.enable()
