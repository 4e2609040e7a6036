"""A try, by every kind of lock, is repeated when its session expires; only a lock that is held ends it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, ReentrantLock, Semaphore, TimedLock, TryLock
from recipes.line.locking import Locking
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import no_task_stays, until
from zkwire import Client, SessionExpiredError

pytestmark = pytest.mark.limit(30)

KINDS: dict[str, Callable[[Client, str], Locking[Any]]] = {
    "Lock": Lock,
    "ReentrantLock": ReentrantLock,
    "Semaphore": lambda zk, path: Semaphore(zk, path, 2),
    "Election": Election,
    "TimedLock": lambda zk, path: TimedLock(zk, path, 5.0),
    "read": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write": lambda zk, path: ReadWriteLock(zk, path).write(),
    "read, writers first": lambda zk, path: ReadWriteLock(zk, path, prefer="writers").read(),
    "write, readers first": lambda zk, path: ReadWriteLock(zk, path, prefer="readers").write(),
    "TryLock": TryLock,
}


async def expired_during(operation: str, stage: Scene, trying: Callable[[], Any], zk: Client) -> Any:
    """Try, and expire the session when `operation` was carried out and its answer is still under way."""
    with stage.server.hold_replies(operation, session=zk.session_id) as held:
        task = asyncio.create_task(trying())
        await held.until_hit()
        old = zk.session_id
        stage.server.expire(old)
        stage.server.drop()
        await until(lambda: zk.session_id != old or task.done())
    return await task


@pytest.mark.parametrize("kind", KINDS)
async def test_a_try_whose_session_expires_is_repeated(kind: str) -> None:
    """Pitfall 17."""
    async with scene() as stage, no_task_stays():
        await stage.other.create(stage.path)
        path = f"{stage.path}/at" if kind == "TryLock" else stage.path
        lock = KINDS[kind](stage.zk, path)
        lease = await expired_during("create", stage, lock.try_acquire, stage.zk)
        assert lease is not None
        lease.check()
        await lease.release()
        await nothing_stays(stage)


@pytest.mark.parametrize("kind", ["read, writers first", "write, readers first"])
async def test_a_check_for_preferred_tickets_whose_session_expires_is_repeated(kind: str) -> None:
    """Pitfall 17."""
    async with scene() as stage, no_task_stays():
        await stage.other.create(stage.path)
        lock = KINDS[kind](stage.zk, stage.path)
        lease = await expired_during("getChildren", stage, lock.try_acquire, stage.zk)
        assert lease is not None
        await lease.release()
        await nothing_stays(stage)


async def test_without_renewal_a_try_raises_the_expiry() -> None:
    async with scene() as stage, no_task_stays():
        await stage.other.create(stage.path)
        async with zkwire.connect(stage.server.hosts, renew=False) as zk:
            with pytest.raises(SessionExpiredError):
                await expired_during("create", stage, Lock(zk, stage.path).try_acquire, zk)
            with pytest.raises(SessionExpiredError):
                await ReadWriteLock(zk, stage.path, prefer="readers").write().try_acquire()
