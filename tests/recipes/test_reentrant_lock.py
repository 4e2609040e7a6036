"""The re-entrant lock: its owner is a task, and its acquires are counted."""

import asyncio

import pytest

import zkwire
from recipes import LockLostError, ReentrantLock
from tests.support.everywhere import scene
from tests.support.recipes import body_raises, line, make_known, proxied, this_task, two_clients, until_line
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(20)


@pytest.mark.usefixtures("unwatched")
async def test_it_is_free_once_it_was_released_as_often_as_acquired(zookeeper: RealServer, path: str) -> None:
    """Pitfall 7."""
    async with proxied(zookeeper) as (proxy, zk2, zk):
        await make_known(zk, path)
        lock, other = ReentrantLock(zk, path), ReentrantLock(zk2, path)
        mark = proxy.mark()
        async with lock as outer:
            async with lock as middle:
                async with lock.hold(within=1) as inner:
                    assert outer is middle is inner
                    again = await lock.acquire(within=0)
                    tried = await lock.try_acquire()
                    assert tried is again is outer
                    await again.release()
                    await again.release()
                    assert await other.try_acquire() is None
                assert await other.try_acquire() is None
            outer.check()
            assert await other.try_acquire() is None
        assert outer.is_released
        assert proxy.requests(mark) == ["create2", "getChildren", "delete"]
        tried = await other.try_acquire()
        assert tried is not None
        await tried.release()
        assert await line(zk, path) == []


async def test_a_release_by_hand_inside_of_nested_bodies_counts() -> None:
    async with scene() as stage:
        lock, other = ReentrantLock(stage.zk, "/l"), ReentrantLock(stage.other, "/l")
        async with lock as lease:
            async with lock:
                await lease.release()
                assert await other.try_acquire() is None
            assert lease.is_released
            async with other:
                with pytest.raises(RuntimeError, match="was released"):
                    lease.check()


async def test_a_child_task_is_not_the_owner(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = ReentrantLock(zk, path)
        async with lock:
            with pytest.raises(TimeoutError, match=path):
                await asyncio.create_task(lock.acquire(within=0.1))
            assert await asyncio.create_task(lock.try_acquire()) is None
        await until_line(zk, path, 0)


async def test_a_lost_lease_cannot_be_entered_again(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        lock = ReentrantLock(zk, path)
        lease = await lock.acquire()
        await other.delete(lease.path)
        assert isinstance(await lease.lost(), LockLostError)
        for verb in (lock.acquire, lock.try_acquire):
            with pytest.raises(LockLostError, match=lease.path):
                await verb()
        with pytest.raises(LockLostError):
            async with lock:
                raise AssertionError("the body must not run")
        await lease.release()
        async with lock.hold(within=10) as again, lock:
            assert again.token > lease.token
        await until_line(other, path, 0)


async def test_a_loss_cancels_the_innermost_body_and_is_raised_by_all(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        lock = ReentrantLock(zk, path)
        left: list[str] = []
        with body_raises(LockLostError):
            async with lock as lease:
                try:
                    async with lock:
                        await other.delete(lease.path)
                        await asyncio.Event().wait()
                except LockLostError:
                    left.append("inner")
        assert left == ["inner"]  # the outer one raised, although its body came to its end
        assert this_task().cancelling() == 0
        async with lock.hold(within=5):
            pass
