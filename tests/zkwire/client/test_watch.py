"""One-shot watches and sets of them under faults; which change fires which watch is tested for conformance."""

import asyncio
import gc
import time

import pytest

import zkwire
from tests.support.everywhere import scene
from tests.support.recipes import until
from zkwire import WatchEventType, WatchSet, four_letter_word


async def test_a_watch_set_is_ready_at_once_if_an_event_has_arrived_before() -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            await stage.zk.exists_and_watch("/a", into=watches)
            await stage.zk.create("/a")
            ready = watches.ready()
            assert ready.done()
            assert [event.type for event in watches.take()] == [WatchEventType.CREATED]


async def test_a_watch_set_shows_that_its_watches_were_set_again_after_a_reconnect() -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            await stage.zk.exists_and_watch("/a", into=watches)
            stage.server.drop_before(session=stage.zk.session_id, nth=1)
            await stage.zk.exists("/b")
            assert watches.was_rearmed
            await stage.other.create("/a")
            assert (await watches.next()).type is WatchEventType.CREATED


async def test_a_refused_read_leaves_no_watch_in_the_set() -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            for read in (stage.zk.get_and_watch, stage.zk.get_children_and_watch):
                with pytest.raises(zkwire.NoNodeError):
                    await read("/a", into=watches)
            results = await stage.zk.pipeline(
                [zkwire.GetData("/a", into=watches), zkwire.GetChildren("/a", into=watches)]
            )
            assert [type(result) for result in results] == [zkwire.NoNodeError] * 2
            assert not watches._watches


async def test_giving_up_many_watches_of_one_path_takes_time_in_proportion() -> None:
    async with scene() as stage:

        async def seconds(count: int) -> float:
            found = await asyncio.gather(*(stage.zk.get_and_watch("/") for _ in range(count)))
            start = time.process_time()
            for _, watch in reversed(found):
                watch.cancel()
            return time.process_time() - start

        few = min([await seconds(500) for _ in range(3)])
        assert await seconds(8_000) < 80 * few


async def test_a_dropped_watch_is_given_up_here_and_on_the_server() -> None:
    async with scene() as stage:
        for read in (stage.zk.get_and_watch, stage.zk.exists_and_watch, stage.zk.get_children_and_watch):
            for _ in range(3):
                await read("/")
            gc.collect()
            await until(lambda: not stage.zk._session.requests.watches)
            await stage.zk.exists("/")  # the request that removes the watch was sent before this one
            assert "/" not in await four_letter_word(stage.server.hosts, "wchp")


async def test_a_watch_that_is_dropped_in_another_thread_is_given_up_on_the_event_loop() -> None:
    async with scene() as stage:
        dropped = [(await stage.zk.get_and_watch("/"))[1]]
        asyncio.get_running_loop().set_debug(True)  # then asyncio checks the thread of each call
        await asyncio.to_thread(dropped.clear)
        await until(lambda: not stage.zk._session.requests.watches)


async def test_a_watch_that_a_task_awaits_is_kept_even_if_nothing_else_refers_to_the_task() -> None:
    async with scene() as stage:
        seen: list[WatchEventType] = []

        async def wait() -> None:
            _, watch = await stage.zk.exists_and_watch("/a")
            seen.append((await watch).type)

        asyncio.get_running_loop().create_task(wait())
        await until(lambda: bool(stage.zk._session.requests.watches))
        gc.collect()
        await stage.other.create("/a")
        await until(lambda: seen == [WatchEventType.CREATED])


async def test_a_watch_that_has_fired_can_be_dropped_after_the_loop_has_ended() -> None:
    async with scene() as stage:
        _, fired = await stage.zk.exists_and_watch("/a")
        _, dropped = await stage.zk.exists_and_watch("/b")
        await stage.zk.create("/a")
        assert (await fired).type is WatchEventType.CREATED
    del fired, dropped
    gc.collect()


async def test_a_watch_that_an_overloaded_server_kept_is_removed_later() -> None:
    async with scene() as stage:
        with stage.server.answering("removeWatches", zkwire.ThrottledError, session=stage.zk.session_id) as refused:
            _, watch = await stage.zk.exists_and_watch("/a")
            watch.cancel()
            await refused.until_hit()
        assert "/a" in await four_letter_word(stage.server.hosts, "wchp")
        while "/a" in await four_letter_word(stage.server.hosts, "wchp"):  # a failing test runs into its time limit
            await asyncio.sleep(0.01)


async def test_a_removal_that_comes_later_leaves_new_watches_alone() -> None:
    async with scene() as stage:
        with stage.server.answering("removeWatches", zkwire.ThrottledError, session=stage.zk.session_id) as refused:
            _, watch = await stage.zk.exists_and_watch("/a")
            watch.cancel()
            await refused.until_hit()
        _, wanted = await stage.zk.exists_and_watch("/a")
        await asyncio.sleep(0.3)  # longer than the pause before a removal would be repeated
        await stage.zk.ping()
        await stage.other.create("/a")
        assert (await wanted).type is WatchEventType.CREATED
