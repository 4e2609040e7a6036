"""The `async with` around a lease: bodies that are interrupted, and blocks that another task leaves."""

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError, ReentrantLock, Semaphore
from recipes.line.locking import Hold, Locking
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import body_raises, line, no_task_stays, outcome, this_task, until

pytestmark = pytest.mark.limit(30)

DELETED = "another client has deleted it"


# -- bodies -----------------------------------------------------------------------------------------------------------


async def lost_in_body(lease: Lease) -> bool:
    """Wait in a body, in spite of the cancellation, until the lease is lost."""
    with suppress(asyncio.CancelledError):
        await lease.lost()
    return not lease.is_certain()


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("error", [None, KeyError("mine"), zkwire.SessionExpiredError("over")], ids=repr)
async def test_a_body_that_has_not_noticed_the_loss_raises_it_unless_it_has_an_error_of_its_own(
    error: Exception | None, is_lost: bool
) -> None:
    async with scene() as stage:

        async def body() -> None:
            async with Lock(stage.zk, stage.path) as lease:
                if is_lost:
                    await stage.other.delete(lease.path)
                    assert await lost_in_body(lease)
                if error is not None:
                    raise error

        came = await outcome(body())
        if is_lost and not isinstance(error, KeyError):
            assert isinstance(came, LockLostError)
        else:
            assert came is error
        assert this_task().cancelling() == 0
        await nothing_stays(stage)


@pytest.mark.parametrize("turns", range(-1, 5))
async def test_a_cancellation_from_outside_wins_over_a_loss_at_the_same_time(turns: int) -> None:
    """Whichever came first."""
    async with scene() as stage, no_task_stays():
        entered: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()

        async def body() -> None:
            async with Lock(stage.zk, stage.path) as lease:
                entered.set_result(lease)
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        lease = await entered
        if turns < 0:
            task.cancel()
        lease._lose("a test")
        for _ in range(turns):
            await asyncio.sleep(0)
        was_over = task.done()
        task.cancel()
        came = await outcome(task)
        assert isinstance(came, LockLostError if was_over else asyncio.CancelledError | LockLostError)
        assert turns > 0 or isinstance(came, asyncio.CancelledError)
        await nothing_stays(stage)


async def test_check_in_the_body_raises_in_place() -> None:
    """The task is not cancelled in addition."""
    async with scene() as stage:
        with body_raises(LockLostError):
            async with Lock(stage.zk, stage.path) as lease:
                stage.zk._session.lifetime.doubt()
                lease.check()
        assert this_task().cancelling() == 0
        await nothing_stays(stage)


# -- blocks that another task leaves ----------------------------------------------------------------------------------


async def entered(lock: Locking[Any] | Hold[Any]) -> AsyncExitStack:
    """Return a stack that holds the lock, entered by a task that has finished."""

    async def enter() -> AsyncExitStack:
        stack = AsyncExitStack()
        await stack.enter_async_context(lock)
        return stack

    return await asyncio.create_task(enter())


async def test_a_block_may_be_left_by_another_task() -> None:
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path)
        for what in (lock, lock.hold(), ReentrantLock(stage.zk, stage.path)):
            await (await entered(what)).aclose()
            assert await line(stage.other, stage.path) == []
        stack = await entered(lock)
        (held,) = await lock.contenders()
        assert await held.remove()
        await until(lambda: ", lost: " in repr(lock))
        assert not await stack.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        async with AsyncExitStack() as ours:  # entered by a task that still runs
            await ours.enter_async_context(lock)
            await asyncio.create_task(ours.aclose())
            assert await line(stage.other, stage.path) == []


async def test_another_task_cannot_leave_one_of_several_holds_of_running_tasks() -> None:
    async with scene() as stage, no_task_stays():
        semaphore = Semaphore(stage.zk, stage.path, 3)
        is_inside, may_leave = asyncio.Event(), asyncio.Event()

        async def run() -> None:
            async with semaphore as lease:
                is_inside.set()
                await may_leave.wait()
                lease.check()

        running = asyncio.create_task(run())
        await is_inside.wait()
        for stack in [await entered(semaphore) for _ in range(2)]:
            await stack.aclose()  # their tasks cannot leave by themselves
        stack = AsyncExitStack()
        lease = await stack.enter_async_context(semaphore)
        with pytest.raises(RuntimeError, match=r"call hold\(\)"):
            await asyncio.create_task(stack.aclose())
        lease.check()
        may_leave.set()
        await running
        await asyncio.create_task(semaphore.__aexit__(None, None, None))
        assert await line(stage.other, stage.path) == []


# -- a hold that is used again ----------------------------------------------------------------------------------------


async def lost_body(hold: Hold[Lease]) -> None:
    """Lose the lease inside of its body, which is cancelled."""
    with body_raises(LockLostError, match="a test"):
        async with hold as lease:
            asyncio.get_running_loop().call_soon(lease._lose, "a test")
            await asyncio.Event().wait()


async def test_a_cancellation_of_a_hold_that_was_lost_before_is_passed_on() -> None:
    async with scene() as stage, no_task_stays():
        hold = Lock(stage.zk, stage.path).hold()
        entered: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()

        async def use_twice() -> None:
            await lost_body(hold)
            async with hold as lease:
                entered.set_result(lease)
                await asyncio.Event().wait()

        task = asyncio.create_task(use_twice())
        await entered
        task.cancel()
        assert isinstance(await outcome(task), asyncio.CancelledError)
        assert task.cancelling() == 1
        await nothing_stays(stage)


async def test_a_hold_is_entered_once_and_left_only_then() -> None:
    async with scene() as stage:
        hold = Lock(stage.zk, stage.path).hold()
        with pytest.raises(RuntimeError, match="left without having been entered"):
            await hold.__aexit__(None, None, None)
        async with hold:
            waits = Lock(stage.zk, stage.path).hold()
            entering = asyncio.create_task(waits.__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="left without having been entered"):
                await waits.__aexit__(None, None, None)
            entering.cancel()
            with pytest.raises(RuntimeError, match="hold"):
                async with hold:
                    raise AssertionError("the body must not run")
        async with waits:
            pass
        for locking in (hold, Lock(stage.zk, stage.path)):
            with pytest.raises(RuntimeError, match="left without having been entered"):
                await locking.__aexit__(None, None, None)
        await nothing_stays(stage)


async def test_only_a_late_acquire_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "recipes.line.locking")
    async with scene() as stage:
        for late, expected in ((10.0, []), (-1.0, [f"acquired the lock {stage.path} after 0 s"])):
            monkeypatch.setattr("recipes.line.locking._LATE", late)
            caplog.clear()
            await (await Lock(stage.zk, stage.path).acquire()).release()
            assert caplog.messages == expected
