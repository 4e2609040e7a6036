"""The re-entrant lock: its owner is a task, and its acquires are counted."""

import asyncio

import pytest

from recipes import LockLostError, ReentrantLock
from tests.support.everywhere import scene
from tests.support.locks import taken
from tests.support.recipes import line, make_known, proxied, two_clients, until_line
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
        await (await taken(other)).release()
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


@pytest.mark.usefixtures("unwatched")
async def test_a_child_task_is_not_the_owner_and_its_try_sends_nothing() -> None:
    async with scene() as stage:
        lock = ReentrantLock(stage.zk, "/l")
        async with lock:
            with stage.server.delay_replies(0, session=stage.zk.session_id) as sent:
                assert await asyncio.create_task(lock.try_acquire()) is None
            assert sent.hits == 0
            with pytest.raises(TimeoutError, match="/l"):
                await asyncio.create_task(lock.acquire(within=0.1))


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
