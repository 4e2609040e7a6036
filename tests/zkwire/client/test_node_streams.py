"""Streams of values under faults: no change is missed, no value comes twice, and no watch stays."""

import asyncio
import contextlib
import gc

import pytest

import zkwire
from tests.conformance.test_streams import following
from tests.conformance.test_streams_state import STREAMS, disturb, stream
from tests.support.client import begun, cancelled, no_collector
from tests.support.everywhere import Play, Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.recipes import until
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import Client, SessionState

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
READ = {"data": "getData", "children": "getChildren2"}


class Count(zkwire.ValueStream[int]):
    """A stream of a user's own: how many children a node has."""

    def __init__(self, zk: Client, path: str) -> None:
        super().__init__(path, lambda: zk.state is EXPIRED)
        self._zk = zk

    async def _look(self) -> tuple[object, int]:
        names, _ = await self._zk.get_children_and_watch(self.path, into=self._watches)
        return len(names), len(names)


# Faults at every request and at every turn of the event loop


def follow_a_node(kind: str) -> Play:
    """Return a play that follows a node through its creation and a change."""

    async def play(stage: Scene) -> None:
        values = Count(stage.zk, stage.path) if kind == "own" else stream(stage.zk, kind, stage.path)
        async with values:
            if kind != "own":
                assert await anext(values) is None
            await stage.other.create(stage.path)
            first = await anext(values)
            assert first is not None
            await disturb(stage.other, kind, stage.path, "1")
            assert await anext(values) != first
        await stage.other.delete_tree(stage.path)

    return play


@pytest.mark.parametrize("kind", [*STREAMS, "own"])
async def test_a_stream_is_cut_at_every_request_and_misses_nothing(kind: str) -> None:
    await cut_at_every_step(follow_a_node(kind), at_least=2 if kind == "own" else 4)


@pytest.mark.parametrize("kind", [*STREAMS, "own"])
async def test_a_stream_is_cancelled_at_every_turn_and_leaves_no_watch(kind: str) -> None:
    async def again(stage: Scene) -> None:
        with contextlib.suppress(zkwire.NoNodeError):
            await stage.other.delete_tree(stage.path)
        await follow_a_node(kind)(stage)

    await cancel_at_every_moment(follow_a_node(kind), afterwards=again)


# What it costs


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("kind", STREAMS)
async def test_each_change_causes_one_read(kind: str, expires: bool) -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        with stage.server.delay_replies(0, READ[kind].removesuffix("2"), path="/a") as requests:
            async with stream(stage.zk, kind, "/a") as values:
                await following(values)
                if expires:
                    stage.server.expire(stage.zk.session_id)
                for name in "123":
                    await disturb(stage.other, kind, "/a", name)
                    await following(values)
                waiting = await begun(anext(values))
                await stage.zk.ping()
                await cancelled(waiting)
            assert requests.hits == 4


# Leaving


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_that_is_left_gives_its_watch_up_without_the_garbage_collector(
    kind: str, closes: bool, is_there: bool
) -> None:
    with no_collector():
        async with scene() as stage:
            if is_there:
                await stage.zk.create(stage.path)
            async for _ in (values := stream(stage.zk, kind, stage.path)):
                break
            if closes:
                values.close()
            else:
                del values
            await no_watch_stays(stage.server.hosts)


@pytest.mark.parametrize("kind", [*STREAMS, "own"])
async def test_a_stream_closed_while_a_task_waits_for_it_reads_no_more(kind: str) -> None:
    async with scene() as stage:
        await stage.zk.create(stage.path)
        values = Count(stage.zk, stage.path) if kind == "own" else stream(stage.zk, kind, stage.path)
        await anext(values)
        waiting = await begun(anext(values))
        with stage.server.delay_replies(0, session=stage.zk.session_id, path=stage.path) as requests:
            values.close()
            with pytest.raises(StopAsyncIteration):
                await waiting
            with pytest.raises(StopAsyncIteration):
                await anext(values)
            await stage.zk.exists(stage.path)
            assert requests.hits == 2  # this one, and the removal of the watch
        await no_watch_stays(stage.server.hosts)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("kind", STREAMS)
async def test_a_value_that_comes_after_its_stream_was_closed_is_not_given(kind: str, is_there: bool) -> None:
    async with scene() as stage:
        if is_there:
            await stage.zk.create(stage.path)
        values = stream(stage.zk, kind, stage.path)
        with stage.server.hold_replies(READ[kind].removesuffix("2"), session=stage.zk.session_id) as reading:
            waiting = asyncio.ensure_future(anext(values))
            await reading.until_hit()
            values.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        await no_watch_stays(stage.server.hosts)


async def test_a_stream_dropped_after_the_end_of_its_client_logs_nothing() -> None:
    async with scene() as stage:
        states = stage.zk.data("/a")
        await following(states)
    del states
    gc.collect()


@in_virtual_time
async def test_a_node_created_between_the_two_reads_of_a_stream_is_read_again_only_for_what_is_shown() -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        missing = iter([zkwire.NoNodeError.code])
        server.strike = lambda wire, sent: next(missing, None) if sent.name == "getChildren2" else None
        async with zk.children("/a") as names:
            assert await anext(names) == []
            following = asyncio.ensure_future(anext(names))
            await zk.ping()
            server.names()
            await zk.set("/a", b"changed")
            await zk.ping()
            assert server.names("ping") == ["setData"]
            await cancelled(following)


# A stream of a user's own


async def test_values_with_equal_keys_are_given_once() -> None:
    async with scene() as stage, Count(stage.zk, "/a") as counts:
        for path in ("/a", "/a/1"):
            await stage.other.create(path)
        assert await anext(counts) == 1
        following = asyncio.ensure_future(anext(counts))
        await until(lambda: len(stage.zk._session.requests.watches) == 1)
        async with stage.other.transaction() as transaction:
            transaction.delete("/a/1")
            transaction.create("/a/2")
        await stage.zk.ping()
        await stage.zk.ping()
        assert not following.done()
        await stage.other.create("/a/3")
        assert await following == 2


async def test_an_error_of_the_read_is_raised_and_the_iteration_can_be_continued() -> None:
    async with scene() as stage, Count(stage.zk, "/a") as counts:
        with pytest.raises(zkwire.NoNodeError):
            await anext(counts)
        await stage.other.create("/a")
        assert await anext(counts) == 0
        await stage.other.delete("/a")
        with pytest.raises(zkwire.NoNodeError):
            await anext(counts)
        await no_watch_stays(stage.server.hosts)


@pytest.mark.parametrize("kind", [*STREAMS, "own"])
async def test_a_session_that_is_not_renewed_ends_the_iteration(kind: str) -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as zk:
        await stage.other.create("/a")
        values = Count(zk, "/a") if kind == "own" else stream(zk, kind, "/a")
        await anext(values)
        stage.server.expire(zk.session_id)
        for _ in range(2):
            with pytest.raises(zkwire.SessionExpiredError, match=f"{zk.session_id:#x}"):
                await anext(values)


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_goes_on_in_the_next_session_with_the_value_that_is_there_then(kind: str) -> None:
    async with scene() as stage, stream(stage.zk, kind, "/a") as values:
        assert await anext(values) is None
        waiting = await begun(anext(values))
        stage.server.expire(stage.zk.session_id)
        await stage.other.create("/a", None)
        assert await waiting == (await stage.zk.get("/a") if kind == "data" else [])
