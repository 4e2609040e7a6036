"""One-shot watches and sets of them under faults; which change fires which watch is tested for conformance."""

import pytest

import zkwire
from tests.support.everywhere import scene
from zkwire import WatchEventType, WatchSet


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
