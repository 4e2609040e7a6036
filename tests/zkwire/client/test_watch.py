"""One-shot watches and sets of them under faults; which change fires which watch is tested for conformance."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from tests.support.client import begun, no_collector, turns
from tests.support.everywhere import Scene, scene
from tests.support.recipes import until
from zkwire import SessionExpiredError, Watch, WatchEvent, WatchEventType, WatchSet, four_letter_word
from zkwire.wire.watch_table import Notification


async def test_a_refused_read_leaves_no_watch_in_the_set() -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            for read in (stage.zk.get_and_watch, stage.zk.get_children_and_watch):
                with pytest.raises(zkwire.NoNodeError):
                    await read("/a", into=watches)
            throttled = stage.server.answering("exists", zkwire.ThrottledError, session=stage.zk.session_id)
            with throttled, pytest.raises(zkwire.ThrottledError):
                await stage.zk.exists_and_watch("/a", into=watches)
            results = await stage.zk.pipeline(
                [zkwire.GetData("/a", into=watches), zkwire.GetChildren("/a", into=watches)]
            )
            assert [type(result) for result in results] == [zkwire.NoNodeError] * 2
            assert not watches._watches


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


async def test_a_watch_that_outlives_its_event_loop_is_dropped_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as stage:
        dropped = [(await stage.zk.get_and_watch("/"))[1]]
        monkeypatch.setattr(stage.zk._session.requests, "loop", asyncio.new_event_loop())
        stage.zk._session.requests.loop.close()
        dropped.clear()
        monkeypatch.undo()


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


async def test_a_watch_that_another_task_gives_up_cancels_the_task_that_awaits_it() -> None:
    async with scene() as stage:
        _, watch = await stage.zk.exists_and_watch("/a")

        async def wait() -> None:
            await watch

        waiting = await begun(wait())
        stat, given_up = await stage.zk.exists_and_watch("/")
        assert stat == await stage.zk.exists("/")
        given_up.cancel()
        for each in (watch, given_up):
            with pytest.raises(RuntimeError, match=f"the watch on {each.path} is awaited already, or was given up"):
                await each
        assert not watch.done()
        watch.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        with pytest.raises(RuntimeError, match="the watch on /a is awaited already, or was given up"):
            await watch


async def test_a_watch_set_may_be_waited_for_before_it_has_a_watch() -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            ready = watches.ready()
            await stage.zk.exists_and_watch("/a", into=watches)
            await stage.zk.create("/a")
            assert await ready is None
            assert watches.take() == [WatchEvent(WatchEventType.CREATED, "/a", stage.zk.last_zxid)]


async def test_an_urgent_future_that_no_task_awaits_yet_has_the_path_of_the_first_deletion() -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            for path in ("/a", "/b"):
                await stage.other.create(path)
                await stage.zk.get_and_watch(path, into=watches)
            ready = watches.ready(urgent=["/a", "/b"])
            for path in ("/b", "/a"):
                await stage.other.delete(path)
                await stage.zk.ping()  # so that each event arrives by itself
            assert ready.result() == "/b"
            assert [event.path for event in watches.take()] == ["/b", "/a"]


@pytest.mark.parametrize(("sent", "shown"), [(-1, None), (0, None), (1, 1), (2**62, 2**62)])
async def test_an_event_has_the_zxid_that_the_server_sends(sent: int, shown: int | None) -> None:
    """Servers before 3.9 send -1."""
    async with scene() as stage, stage.zk.events("/a") as events:
        _, watch = await stage.zk.exists_and_watch("/a")
        for watcher in (watch._watcher, events):
            watcher._fire(WatchEventType.CREATED, Notification(1, "/a", sent))
        event = WatchEvent(WatchEventType.CREATED, "/a", shown)
        assert (await watch, await anext(events)) == (event, event)


async def _watch(stage: Scene) -> Callable[[], bool]:
    _, watch = await stage.zk.exists_and_watch("/a")

    def leave() -> bool:
        watch.cancel()
        return watch._outcome is None

    return leave


async def _watch_set(stage: Scene) -> Callable[[], bool]:
    watches = WatchSet()
    await stage.zk.exists_and_watch("/a", into=watches)

    def leave() -> bool:
        watches.cancel()
        return watches.take() == []

    return leave


async def _events(stage: Scene) -> Callable[[], bool]:
    events = await stage.zk.events("/a").__aenter__()

    def leave() -> bool:
        # In one step, as a task of asyncio's eager task factory does it.
        with contextlib.suppress(StopIteration):
            events.__aexit__(None, None, None).send(None)
        with contextlib.suppress(StopAsyncIteration):
            events.__anext__().send(None)
            return False
        return True

    return leave


@pytest.mark.parametrize("left", [_watch, _watch_set, _events])
async def test_what_is_left_by_the_callback_for_an_event_does_not_get_that_event(
    left: Callable[[Scene], Awaitable[Callable[[], bool]]],
) -> None:
    async with scene() as stage:
        with WatchSet() as watches:
            await stage.zk.exists_and_watch("/a", into=watches)
            leave = await left(stage)
            calls: list[bool] = []
            watches.set_callback(lambda: calls.append(leave()))
            await stage.zk.create("/a")
            assert calls == [True]
            assert leave()


async def test_a_wait_that_is_cancelled_when_the_event_has_come_is_cancelled() -> None:
    async with scene() as stage:
        _, watch = await stage.zk.exists_and_watch("/a")
        waiting = await begun(watch)
        watch._fire(WatchEventType.CREATED, Notification(1, "/a", 3))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_callback_that_fails_is_reported_and_the_event_stays() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    def failing() -> None:
        raise ValueError

    async with scene() as stage:
        with WatchSet() as watches:
            await stage.zk.exists_and_watch("/a", into=watches)
            watches.set_callback(failing)
            await stage.zk.create("/a")
            assert [event.path for event in watches.take()] == ["/a"]
    assert [type(each) for each in reported] == [ValueError]


async def test_the_end_of_the_session_is_one_call_of_the_callback_whatever_fails_first() -> None:
    error = SessionExpiredError("the session has expired")
    calls: list[str] = []
    before, after, without = WatchSet(), WatchSet(), WatchSet()
    before.set_callback(lambda: calls.append("before"))
    without.set_callback(lambda: calls.append("without"))
    for watches in (before, after, without):
        for _ in range(2):  # two of its watches
            watches._failed(error)
    after.set_callback(lambda: calls.append("after"))
    without.set_callback(None)
    assert calls == []
    await turns()
    assert calls == ["before", "after"]
    for watches in (before, after, without):
        with pytest.raises(SessionExpiredError):
            watches.take()
        with pytest.raises(SessionExpiredError):
            await watches.next()


@pytest.mark.parametrize("end", ["fired", "failed", "given up"])
async def test_a_watch_that_is_over_and_dropped_leaves_an_urgent_wait_for_its_node_alone(end: str) -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        _, watch = await stage.zk.get_and_watch("/a")
        if end == "fired":
            await stage.zk.set("/a", b"1")
        elif end == "failed":
            first = stage.zk.session_id
            stage.server.expire(first)
            await until(lambda: stage.zk.session_id not in (0, first))
        else:
            watch.cancel()
        await stage.zk.ping()
        assert watch.done()
        with WatchSet() as watches:
            await stage.zk.get_and_watch("/a", into=watches)
            ready = watches.ready(urgent=["/a"])
            del watch
            await turns()
            await stage.other.delete("/a")
            assert await ready == "/a"
            await turns()
            assert [event.type for event in watches.take()] == [WatchEventType.DELETED]
            assert not watches._watches


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_watch_that_was_awaited_needs_no_garbage_collector(is_cancelled: bool) -> None:
    with no_collector():
        async with scene() as stage:
            await stage.other.create("/a")
            _, watch = await stage.zk.get_and_watch("/a")

            async def wait(watch: Watch) -> None:
                await watch

            waiting = await begun(wait(watch))
            if is_cancelled:
                waiting.cancel()
            else:
                await stage.other.set("/a", b"1")
            await asyncio.wait({waiting})
            assert waiting.cancelled() is is_cancelled
            left = weakref.ref(watch)
            del watch, waiting
            await turns()
            assert left() is None
