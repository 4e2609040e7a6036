"""A lease that another task than the body's gives back: the body is stopped first, and the node goes at its end."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from recipes import Election, Lock, MultiLock, ReadWriteLock, ReentrantLock, Semaphore, TimedLock, TryLock
from recipes.line.lease import LockLostError
from recipes.line.locking import Locking
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import no_task_stays, outcome, until
from zkwire import Client

pytestmark = pytest.mark.limit(20)

P = "/recipe"
BY_OTHER = "another task has released it"

ALL: dict[str, Callable[[Client], Locking[Any]]] = {
    "lock": lambda zk: Lock(zk, P),
    "re-entrant lock": lambda zk: ReentrantLock(zk, P),
    "lock that is passed on": lambda zk: Lock(zk, P, local_passes=1),
    "read lock": lambda zk: ReadWriteLock(zk, P).read(),
    "write lock": lambda zk: ReadWriteLock(zk, P).write(),
    "semaphore": lambda zk: Semaphore(zk, P, 1),
    "timed lock": lambda zk: TimedLock(zk, P, 20),
    "try lock": lambda zk: TryLock(zk, f"{P}/job"),
    "set of locks": lambda zk: MultiLock([Lock(zk, P), Lock(zk, f"{P}-2")]),
    "election": lambda zk: Election(zk, P),
}
every_kind = pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())


class Body:
    """A task that runs a body under `locking`, and when it is cancelled takes as long to end as the test lets it."""

    def __init__(self, locking: Any) -> None:
        self.lease: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.may_end = asyncio.Event()
        self.is_stopping = self.has_ended = False
        self.task = asyncio.create_task(self._run(locking))

    async def _run(self, locking: Any) -> None:
        async with locking as lease:
            self.lease.set_result(lease)
            try:
                await asyncio.Event().wait()
            finally:
                self.is_stopping = True
                lease.check()  # it is held as long as the body runs
                await self.may_end.wait()
                self.has_ended = True


async def _still_held(stage: Scene, make: Callable[[Client], Locking[Any]]) -> bool:
    other = make(stage.other)
    if make is ALL["read lock"]:
        other = ALL["write lock"](stage.other)
    lease = await other.try_acquire()
    if lease is not None:
        await lease.release()
    return lease is None


@every_kind
async def test_the_body_is_stopped_and_the_node_deleted_when_it_ends(make: Callable[[Client], Locking[Any]]) -> None:
    """Pitfall 90: two bodies at once, without an error."""
    async with scene(P) as stage, no_task_stays():
        body = Body(make(stage.zk))
        lease = await body.lease
        releasing = asyncio.create_task(lease.release())
        await until(lambda: body.is_stopping)
        assert await _still_held(stage, make)
        assert not releasing.done()
        assert not lease.is_released
        with stage.server.hold_replies(session=stage.zk.session_id) as held:
            body.may_end.set()
            await held.until_hit()
            assert not releasing.done()
        came = await outcome(body.task)
        assert isinstance(came, LockLostError)
        assert came.why == BY_OTHER
        assert P in came.path
        assert body.task.cancelling() == 0
        await releasing
        assert lease.is_released
        assert not await _still_held(stage, make)
        await nothing_stays(stage)


async def test_all_nested_bodies_are_stopped_and_a_count_of_its_own_is_only_given_back() -> None:
    """Pitfall 90."""
    async with scene(P) as stage, no_task_stays():
        lock = ReentrantLock(stage.zk, P)
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        inner_caught = asyncio.Event()

        async def nested() -> None:
            await lock.acquire()  # a count that belongs to no body
            async with lock as lease:
                with suppress(LockLostError):
                    async with lock:
                        ready.set_result(lease)
                        await asyncio.Event().wait()
                inner_caught.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(nested())
        lease = await ready
        await lease.release()
        await stage.zk.ping()
        assert not inner_caught.is_set()
        lease.check()
        await lease.release()
        assert inner_caught.is_set()
        assert isinstance(await outcome(task), LockLostError)
        await nothing_stays(stage)


async def test_a_body_that_has_released_its_lease_goes_on_and_one_whose_task_has_ended_keeps_no_lock() -> None:
    async with scene(P) as stage, no_task_stays():
        async with Lock(stage.zk, P) as lease:
            await lease.release()
            await asyncio.create_task(lease.release())
            await stage.zk.ping()
        hold = Lock(stage.zk, P).hold()
        lease = await asyncio.create_task(hold.__aenter__())
        await lease.release()
        assert lease.is_released
        await hold.__aexit__(None, None, None)
        await nothing_stays(stage)


async def test_a_release_does_not_wait_for_a_body_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lock stays held until the body has ended."""
    monkeypatch.setattr("recipes.line.lease.LEAVES_WITHIN", 0.05)
    caplog.set_level(logging.WARNING, "recipes.line.lease")
    async with scene(P) as stage, no_task_stays():
        for make in (ALL["lock"], ALL["set of locks"]):
            caplog.clear()
            body = Body(make(stage.zk))
            lease = await body.lease
            await lease.release()
            assert len(caplog.messages) == 1
            assert "stays held" in caplog.messages[0]
            assert await _still_held(stage, make)
            again = asyncio.create_task(lease.release())  # does not disturb the body that is ending
            losing = asyncio.create_task(lease.lost())
            await asyncio.sleep(0)
            body.may_end.set()
            assert isinstance(await outcome(body.task), LockLostError)
            assert body.has_ended
            assert await losing is None
            await again
        await nothing_stays(stage)
