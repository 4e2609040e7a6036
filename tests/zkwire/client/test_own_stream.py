"""A stream of one's own on `zkwire.ValueStream`: what a subclass need not think of."""

import asyncio
import gc

import pytest

import zkwire
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.recipes import until
from zkwire import NoNodeError, SessionExpiredError, SessionState


class Count(zkwire.ValueStream[int]):
    """How many children a node has."""

    def __init__(self, zk: zkwire.Client, path: str) -> None:
        super().__init__(path, lambda: zk.state is SessionState.EXPIRED)
        self._zk = zk

    async def _look(self) -> tuple[object, int]:
        names, _ = await self._zk.get_children_and_watch(self.path, into=self._watches)
        return len(names), len(names)


async def count_twice(stage: Scene) -> None:
    await stage.other.ensure_path(stage.path)
    async with Count(stage.zk, stage.path) as counts:
        assert await anext(counts) == 0
        node = await stage.other.create(f"{stage.path}/n")
        assert await anext(counts) == 1
    await stage.other.delete(node)


async def test_it_is_cut_at_every_step() -> None:
    await cut_at_every_step(count_twice, at_least=2)


async def test_it_is_cancelled_at_every_moment() -> None:
    async def again(stage: Scene) -> None:
        for name in await stage.other.get_children(stage.path):
            await stage.other.delete(f"{stage.path}/{name}")
        await count_twice(stage)

    async def prepare(stage: Scene) -> None:
        await stage.other.ensure_path(stage.path)

    await cancel_at_every_moment(count_twice, prepare=prepare, afterwards=again)


async def test_states_of_the_same_mark_are_given_once() -> None:
    async with scene() as stage, Count(stage.zk, "/a") as counts:
        for path in ("/a", "/a/1"):
            await stage.other.create(path)
        assert await anext(counts) == 1
        following = asyncio.ensure_future(anext(counts))
        await until(lambda: len(stage.zk._session.watches) == 1)
        async with stage.other.transaction() as transaction:
            transaction.delete("/a/1")
            transaction.create("/a/2")
        await stage.zk.ping()
        await stage.zk.ping()
        assert not following.done()
        await stage.other.create("/a/3")
        assert await following == 2


async def test_what_the_look_raises_is_raised_and_the_iteration_can_be_taken_up_again() -> None:
    async with scene() as stage, Count(stage.zk, "/a") as counts:
        with pytest.raises(NoNodeError):
            await anext(counts)
        await stage.other.create("/a")
        assert await anext(counts) == 0
        await stage.other.delete("/a")
        with pytest.raises(NoNodeError):
            await anext(counts)
        await no_watch_stays(stage.server.hosts)


@pytest.mark.parametrize("renew", [True, False])
async def test_it_goes_on_in_a_new_session_if_there_is_one(renew: bool) -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=renew) as zk, Count(zk, "/a") as counts:
        await stage.other.create("/a")
        assert await anext(counts) == 0
        stage.server.expire(zk.session_id)
        following = asyncio.ensure_future(anext(counts))
        if renew:
            await until(lambda: len(zk._session.watches) == 1)
            await stage.other.create("/a/1")
            assert await following == 1
        else:
            with pytest.raises(SessionExpiredError):
                await following


async def test_one_that_is_left_by_break_is_gone_at_once() -> None:
    gc.disable()  # it must go without
    try:
        async with scene() as stage:
            await stage.other.create("/a")
            async for count in Count(stage.zk, "/a"):
                assert count == 0
                break
            await no_watch_stays(stage.server.hosts)
    finally:
        gc.enable()


async def test_two_at_a_time_are_refused_and_close_ends_the_other() -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        counts = Count(stage.zk, "/a")
        await anext(counts)
        following = asyncio.ensure_future(anext(counts))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="next state of /a already"):
            await anext(counts)
        await counts.aclose()
        with pytest.raises(StopAsyncIteration):
            await following
        assert [count async for count in counts] == []
        await no_watch_stays(stage.server.hosts)
