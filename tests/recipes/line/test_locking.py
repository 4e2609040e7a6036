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
from tests.support.recipes import (
    body_raises,
    line,
    no_task_stays,
    outcome,
    this_task,
    two_clients,
    until_line,
    until_watches,
)
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(30)

DELETED = "another client has deleted it"


# -- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_loss_cancels_the_body_and_raises_the_loss(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        cancelled = False
        with body_raises(LockLostError, match=DELETED):
            async with Lock(zk, path) as lease:
                await other.delete(lease.path)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled = True
                    raise
        assert cancelled
        assert this_task().cancelling() == 0
        await asyncio.sleep(0)


async def test_a_loss_is_raised_from_a_body_that_ends_without_noticing(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        with body_raises(LockLostError, match=DELETED):
            async with Lock(zk, path) as lease:
                await until_watches(zookeeper, 1)
                helper = asyncio.create_task(other.delete(lease.path))
                while lease.is_certain():
                    try:
                        await asyncio.sleep(0.005)
                    except asyncio.CancelledError:
                        continue
        await helper
        assert this_task().cancelling() == 0


async def lost_in_body(lease: Lease) -> bool:
    """Wait in a body, in spite of the cancellation, until the lease is lost."""
    with suppress(asyncio.CancelledError):
        await lease.lost()
    return not lease.is_certain()


async def test_an_error_of_the_body_is_raised_in_place_of_the_loss(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        for lost in (False, True):
            with body_raises(KeyError, match="mine"):
                async with Lock(zk, path) as lease:
                    if lost:
                        await other.delete(lease.path)
                        assert await lost_in_body(lease)
                    raise KeyError("mine")
            assert await line(zk, path) == []
            assert this_task().cancelling() == 0


@pytest.mark.parametrize("turns", range(-1, 5))
async def test_a_cancellation_from_outside_wins_over_a_loss_at_the_same_time(
    zookeeper: RealServer, path: str, turns: int
) -> None:
    """Whichever came first."""
    async with two_clients(zookeeper) as (zk, other), no_task_stays():
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[Lease] = loop.create_future()

        async def body() -> None:
            async with Lock(zk, path) as lease:
                entered.set_result(lease)
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        lease = await entered
        await until_watches(zookeeper, 1)
        if turns < 0:
            task.cancel()  # first
        deleting = asyncio.create_task(outcome(other.delete(lease.path)))
        if turns >= 0:
            await lease.lost()
            for _ in range(turns):
                await asyncio.sleep(0)
            was_over = task.done()
            task.cancel()
        came = await outcome(task)
        await deleting
        if turns >= 0 and was_over:
            assert isinstance(came, LockLostError)
        elif turns <= 0:
            assert isinstance(came, asyncio.CancelledError)
        else:
            assert isinstance(came, asyncio.CancelledError | LockLostError)
        await until_line(other, path, 0)


async def test_a_timeout_wins_over_a_loss_at_the_same_time(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        for loss_first in (True, False):
            with body_raises(TimeoutError):
                async with asyncio.timeout(None) as bound, Lock(zk, path) as lease:
                    loop = asyncio.get_running_loop()
                    if loss_first:
                        loop.call_soon(loop.call_soon, lease._lose, "a test")
                    loop.call_soon(bound.reschedule, 0)  # which takes one turn of the loop more
                    if not loss_first:
                        loop.call_soon(loop.call_soon, lease._lose, "a test")
                    await asyncio.Event().wait()
            assert this_task().cancelling() == 0
            await until_line(zk, path, 0)


async def test_check_in_the_body_raises_in_place(zookeeper: RealServer, path: str) -> None:
    """The task is not cancelled in addition."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        with body_raises(LockLostError):
            async with Lock(zk, path) as lease:
                zk._session.lifetime.doubt()
                lease.check()
        assert this_task().cancelling() == 0
        await zk.ping()
        await until_line(zk, path, 0)


async def test_a_hold_is_entered_once(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        hold = Lock(zk, path).hold()
        async with hold:
            with pytest.raises(RuntimeError, match="hold"):
                async with hold:
                    raise AssertionError("the body must not run")
        with pytest.raises(RuntimeError):
            await Lock(zk, path).__aexit__(None, None, None)


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
        async with AsyncExitStack() as ours:  # entered by a task that still runs
            await ours.enter_async_context(lock)
            await asyncio.create_task(ours.aclose())
            assert await line(stage.other, stage.path) == []


async def test_another_task_cannot_leave_one_of_several_holds_of_running_tasks() -> None:
    async with scene() as stage, no_task_stays():
        semaphore = Semaphore(stage.zk, stage.path, 2)
        is_inside, may_leave = asyncio.Event(), asyncio.Event()

        async def run() -> None:
            async with semaphore as lease:
                is_inside.set()
                await may_leave.wait()
                lease.check()

        running = asyncio.create_task(run())
        await is_inside.wait()
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


async def test_a_hold_that_was_not_entered_cannot_be_left() -> None:
    async with scene() as stage:
        hold = Lock(stage.zk, stage.path).hold()
        with pytest.raises(RuntimeError, match="left without having been entered"):
            await hold.__aexit__(None, None, None)
        async with hold:
            pass
        with pytest.raises(RuntimeError, match="left without having been entered"):
            await hold.__aexit__(None, None, None)
        await nothing_stays(stage)


async def test_only_a_late_acquire_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "recipes.line.locking")
    async with scene() as stage:
        for late, expected in ((10.0, []), (-1.0, [f"acquired the lock {stage.path} after 0 s"])):
            monkeypatch.setattr("recipes.line.locking._LATE", late)
            caplog.clear()
            await (await Lock(stage.zk, stage.path).acquire()).release()
            assert caplog.messages == expected


async def test_a_bad_bound_is_refused_before_the_hold_is_entered() -> None:
    async with scene() as stage:
        lock = Lock(stage.zk, stage.path)
        with pytest.raises(ValueError, match="within"):
            lock.hold(within=-1.0)
        with pytest.raises(ValueError, match="within"):
            await lock.acquire(within=-1.0)
        assert await line(stage.other, stage.path) == []
