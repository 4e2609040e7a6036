"""The monitors of leases: which own nodes are watched, and when, although one timer serves all leases of a client."""

import asyncio
import gc
import re
from collections.abc import Coroutine
from typing import Any

import pytest

import zkwire
from recipes import Lock, Semaphore, TryLock
from recipes.line import lease as module
from tests.support.everywhere import nothing_stays, scene
from tests.support.locks import start_waiting
from tests.support.queues import Counting
from tests.support.recipes import make_uncertain, no_task_stays, until, until_armed, until_line


async def begun_outside_of_a_task(entering: Coroutine[Any, Any, object]) -> None:
    """Run `entering` to its first wait, in a callback of the event loop, and raise its error."""
    tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin() -> None:
        try:
            entering.send(None)
        except RuntimeError as error:
            tried.set_exception(error)
        else:
            tried.set_result(None)

    asyncio.get_running_loop().call_soon(begin)
    await tried


async def test_a_hold_outside_of_a_task_fails_before_it_acquires_the_lock() -> None:
    async with scene() as stage:
        lock = Lock(stage.zk, stage.path)
        await (await lock.acquire()).release()
        for entered in (lock.__aenter__(), lock.hold().__aenter__()):
            with pytest.raises(RuntimeError, match="held by a task"):
                await begun_outside_of_a_task(entered)
        await until_line(stage.other, stage.path, 0)
        assert await lock.try_acquire() is not None


# -- what a monitor makes of the answer, and of events ----------------------------------------------------------------


@pytest.fixture
def watched_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNWATCHED", 0.01)


async def test_a_lease_that_is_released_before_its_node_is_watched_sends_nothing(watched_soon: None) -> None:
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        for number in range(3):
            await (await Lock(zk, f"{stage.path}-{number}").acquire()).release()
        async with Lock(zk, stage.path):
            await until_armed(1, zk)
        assert count.requests.count("getData") == 1


async def test_a_node_that_was_deleted_and_made_anew_is_a_loss_and_stays_as_it_is(watched_soon: None) -> None:
    """The node of a TryLock is the path itself."""
    async with scene() as stage:
        lease = await TryLock(stage.zk, stage.path).acquire()
        await stage.other.delete(stage.path)
        theirs = await TryLock(stage.other, stage.path).acquire()
        error = await lease.lost()
        assert error is not None
        assert error.why == module.DELETED
        await lease.release()
        await stage.zk.ping()
        theirs.check()
        assert (await stage.other.get(stage.path)).stat.czxid == theirs.token
        await theirs.release()


@pytest.mark.parametrize(
    ("error", "why"),
    [(zkwire.NoNodeError, "^another client has deleted it$"), (zkwire.NoAuthError, "the ACL does not allow")],
)
async def test_a_node_that_cannot_be_watched_is_a_loss(
    error: type[zkwire.ServerError], why: str, watched_soon: None
) -> None:
    async with scene() as stage:
        with stage.server.answering("getData", error, session=stage.zk.session_id):
            lease = await Lock(stage.zk, stage.path).acquire()
            loss = await lease.lost()
        assert loss is not None
        assert re.search(why, loss.why)
        await lease.release()


async def test_a_session_that_ends_while_the_watch_is_asked_for_is_a_loss(watched_soon: None) -> None:
    async with scene() as stage, no_task_stays():
        with stage.server.drop_after("getData", session=stage.zk.session_id) as asked:
            lease = await Lock(stage.zk, stage.path).acquire()
            await asked.until_hit()
        stage.server.expire(stage.zk.session_id)
        assert await lease.lost() is not None
        await lease.release()
        await nothing_stays(stage)


async def test_a_request_that_the_end_of_the_program_cancels_reports_nothing(watched_soon: None) -> None:
    """As asyncio.run does with all tasks; an error in a callback would be reported, and fail the test."""
    async with scene() as stage:
        with stage.server.hold_replies("getData", session=stage.zk.session_id) as asked:
            lease = await Lock(stage.zk, stage.path).acquire()
            await asked.until_hit()
            request = lease.ticket.watch_request
            assert request is not None
            request.cancel()
            await asyncio.wait([request])
        lease.check()
        await lease.release()


async def test_the_departure_of_a_blocker_that_is_still_watched_is_no_loss(watched_soon: None) -> None:
    async with scene() as stage:
        holders = [await Semaphore(stage.other, stage.path, 2).acquire() for _ in range(2)]
        waiter = await start_waiting(stage.other, Semaphore(stage.zk, stage.path, 2), 3)
        await until_armed(4, stage.zk)
        await holders[0].release()
        lease = await waiter
        await stage.other.set(holders[1].path, b"news")
        await holders[1].lost()
        await holders[1].release()
        await stage.zk.ping()
        lease.check()
        await stage.other.delete(lease.path)
        error = await lease.lost()
        assert error is not None
        assert error.why == module.DELETED
        await lease.release()


async def test_certainty_that_comes_back_at_the_last_moment_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the leader arrives in the same turn of the loop in which certainty has ended."""
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        certainty = stage.zk._session.lifetime.certainty
        assert certainty is not None
        proven = certainty.until
        for left in (5.0, 0.001):
            make_uncertain(stage.zk)
            await asyncio.sleep(0)  # the callbacks are scheduled
            with monkeypatch.context() as patch:
                patch.setattr(stage.zk, "certain_for", lambda _, left=left: left)
                for _ in range(3):
                    await asyncio.sleep(0)
                lease.check()
            certainty.until = proven
            for _ in range(3):
                await asyncio.sleep(0)
        make_uncertain(stage.zk)
        error = await lease.lost()
        assert error is not None
        assert "has not confirmed it for too long" in error.why
        await lease.release()
        await nothing_stays(stage)


@pytest.mark.parametrize("when", ["before the watch", "while the watch is asked for", "after that"])
async def test_the_loss_of_a_ticket_that_was_passed_on_is_noticed_by_the_last_lease(
    when: str, watched_soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene() as stage, no_task_stays():
        if when == "before the watch":
            monkeypatch.setattr(module, "_UNWATCHED", 0.1)
        lock = Lock(stage.zk, stage.path, local_passes=100)
        with stage.server.hold_replies("getData", session=stage.zk.session_id) as asked:
            lease = first = await lock.acquire()
            if when == "while the watch is asked for":
                await asked.until_hit()
            elif when == "after that":
                asked.end()
                await until_armed(1, stage.zk)
            for _ in range(20):
                following = asyncio.create_task(lock.acquire())
                await asyncio.sleep(0)
                await lease.release()
                lease = await following
            assert lease.path == first.path
            # A ticket that is passed on for ever must not fill the memory with what belonged to former leases.
            monitors = [each for each in gc.get_objects() if isinstance(each, module.LossMonitor)]
            assert len([each for each in monitors if each._ticket is lease.ticket]) <= 2
            del monitors
        await until_armed(1, stage.zk)
        lease.check()
        await stage.other.delete(lease.path)
        error = await lease.lost()
        assert error is not None
        assert error.why == module.DELETED
        assert first.find_loss() is None
        await lease.release()
        await nothing_stays(stage)


@pytest.mark.parametrize("error", [None, zkwire.ThrottledError])
async def test_a_ticket_that_is_passed_on_in_the_turn_in_which_the_watch_is_answered_is_watched_once(
    error: type[zkwire.ServerError] | None, watched_soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the former lease makes of the answer must not take the next one's place."""
    async with scene() as stage, no_task_stays():
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        get_and_watch = stage.zk.get_and_watch
        asked: list[str] = []

        async def late(path: str, *, into: zkwire.WatchSet) -> Any:
            asked.append(path)
            if error is not None:
                await answered
            found = await get_and_watch(path, into=into)
            await answered
            return found

        monkeypatch.setattr(stage.zk, "get_and_watch", late)
        lock = Lock(stage.zk, stage.path, local_passes=1)
        first = await lock.acquire()
        await until(lambda: bool(asked))
        await until_armed(1 if error is None else 0, stage.zk)
        await stage.zk.ping()
        following = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        if error is None:
            answered.set_result(None)
        else:
            answered.set_exception(error(error.code, first.path))
        release = asyncio.create_task(first.release())
        await release
        if error is not None:
            answered = asyncio.get_running_loop().create_future()
            answered.set_result(None)
        lease = await following
        assert lease.path == first.path
        await until_armed(1, stage.zk)
        async with Lock(stage.zk, f"{stage.path}-later"):  # whatever is due by now is sent ahead of its request
            await until_armed(2, stage.zk)
        assert asked.count(lease.path) == (1 if error is None else 2)
        await stage.other.delete(lease.path)
        loss = await lease.lost()
        assert loss is not None
        assert loss.why == module.DELETED
        await lease.release()


async def test_a_deletion_between_two_leases_of_a_ticket_makes_the_second_take_a_new_ticket(
    watched_soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second task asks the leader first, and meanwhile the node is deleted."""
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path, local_passes=1)
        first = await lock.acquire()
        await until_armed(1, stage.zk)
        certify = stage.zk.certify

        async def deleted_meanwhile() -> None:
            await stage.other.delete(first.path)
            await certify()

        monkeypatch.setattr(stage.zk, "certify", deleted_meanwhile)
        following = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        await first.release()
        make_uncertain(stage.zk)
        lease = await following
        assert lease.path != first.path
        await lease.release()
