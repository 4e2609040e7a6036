"""Refusals that say nothing about the lock: an overloaded server makes a client wait, and takes no place away."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from recipes import Lock, MultiLock, ReadWriteLock, Semaphore, TimedLock
from recipes.line import ticket_data
from recipes.line.locking import Locking
from recipes.line.ticket_data import HashChain
from tests.support.everywhere import nothing_stays, scene
from tests.support.locks import watch_count
from tests.support.recipes import make_known, no_task_stays, outcome, until, until_armed, until_line
from zkwire import Client, NoAuthError, ThrottledError

pytestmark = pytest.mark.limit(20)

P = "/recipe"
KINDS: dict[str, Callable[[Client], Locking[Any]]] = {
    "lock": lambda zk: Lock(zk, P),
    "read lock": lambda zk: ReadWriteLock(zk, P).read(),
    "read lock that lets writers pass": lambda zk: ReadWriteLock(zk, P, prefer="writers").read(),
    "write lock that lets readers pass": lambda zk: ReadWriteLock(zk, P, prefer="readers").write(),
    "semaphore": lambda zk: Semaphore(zk, P, 1),
    "set of locks": lambda zk: MultiLock([Lock(zk, P)]),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())


def holder_of(make: Callable[[Client], Locking[Any]], zk: Client) -> Locking[Any]:
    """Return a lock that blocks those of this kind."""
    return Semaphore(zk, P, 1) if isinstance(make(zk), Semaphore) else Lock(zk, P)


def is_under_way(zk: Client, waiter: asyncio.Task[Any]) -> bool:
    """Return whether the waiter watches something, or has ended."""
    return waiter.done() or watch_count(zk) > 0


@every_kind
@pytest.mark.parametrize("operation", ["create", "getData", "getChildren", "sync"])
async def test_every_acquire_goes_on_after_a_transient_refusal(
    make: Callable[[Client], Locking[Any]], operation: str
) -> None:
    """Pitfall 79: the first request of this kind is refused, in the next run the second, and so on."""
    for nth in range(1, 20):
        async with scene(P) as stage, no_task_stays():
            held = await holder_of(make, stage.other).acquire()
            session = stage.zk.session_id
            refused = stage.server.answering(operation, ThrottledError, session=session, nth=nth, times=2)
            waiter = asyncio.create_task(make(stage.zk).acquire())
            await until(partial(is_under_way, stage.zk, waiter))
            await held.release()
            lease = await asyncio.wait_for(waiter, 5)
            lease.check()
            await lease.release()
            hits = refused.hits
            refused.end()
            await nothing_stays(stage, stays=["writers"])
        if not hits:
            return
    raise AssertionError("there is no end of requests")


@every_kind
@pytest.mark.parametrize("operation", ["create", "getData", "getChildren"])
async def test_every_try_goes_on_after_a_transient_refusal(
    make: Callable[[Client], Locking[Any]], operation: str
) -> None:
    """Pitfall 79: as for those that wait."""
    for nth in range(1, 20):
        async with scene(P) as stage, no_task_stays():
            held = await holder_of(make, stage.other).acquire()
            session = stage.zk.session_id
            refused = stage.server.answering(operation, ThrottledError, session=session, nth=nth, times=2)
            assert await asyncio.wait_for(make(stage.zk).try_acquire(), 5) is None
            hits = refused.hits
            refused.end()
            await held.release()
            await nothing_stays(stage, stays=["writers"])
        if not hits:
            return
    raise AssertionError("there is no end of requests")


@pytest.mark.parametrize("operation", ["getData", "getChildren"])
async def test_a_waiter_keeps_its_place(operation: str) -> None:
    """Pitfall 79: it is refused when it looks at the line again, and a later ticket does not overtake it."""
    async with scene(P) as stage, no_task_stays():
        held = [await Lock(stage.other, P).acquire()]
        ahead = [asyncio.create_task(Lock(stage.other, P).acquire()) for _ in range(2)]
        await until_line(stage.other, P, 3)
        waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
        names = await until_line(stage.other, P, 4)
        await until_armed(3, stage.zk)
        later = asyncio.create_task(Lock(stage.other, P).acquire())
        await until_line(stage.other, P, 5)
        with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id, times=2) as refused:
            ahead[0].cancel()  # the waiter looks ahead
            await refused.until_hit(2)
        await held[0].release()
        await (await ahead[1]).release()
        lease = await asyncio.wait_for(waiter, 5)
        assert lease.path == f"{P}/{names[3]}"
        assert not later.done()
        await lease.release()
        await (await later).release()
        await outcome(ahead[0])
        await nothing_stays(stage)


async def test_a_waiter_whose_own_watch_was_refused_does_not_own_without_its_node() -> None:
    """Pitfall 79: the server has set the watch on the blocker only, and the waiter's node is deleted unheard."""
    async with scene(P) as stage, no_task_stays():
        held = await Lock(stage.other, P).acquire()
        own = re.compile(rf"{P}/.*0000000001")
        with stage.server.answering("getData", ThrottledError, path=own, times=1) as refused:
            waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
            names = await until_line(stage.other, P, 2)
            await refused.until_hit()
            await stage.zk.ping()
            await stage.other.delete(f"{P}/{names[1]}")
            await held.release()
            lease = await asyncio.wait_for(waiter, 5)
        assert lease.path != f"{P}/{names[1]}"
        lease.check()
        await lease.release()
        await nothing_stays(stage)


@pytest.mark.parametrize("operation", ["create", "getChildren"])
async def test_a_try_finds_out_all_the_same_when_it_is_refused_while_it_enters(operation: str) -> None:
    """Pitfall 79."""
    async with scene(P) as stage, no_task_stays():
        lock = Lock(stage.zk, P)
        for is_free in (True, False):
            with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id, times=2) as refused:
                lease = await (lock if is_free else Lock(stage.zk, P)).try_acquire()
                assert refused.hits == 2
            assert (lease is not None) == is_free
            if is_free:
                held = lease
        assert held is not None
        await held.release()
        await nothing_stays(stage)


async def test_a_waiter_that_may_not_delete_a_broken_promise_for_now_tries_again() -> None:
    """Pitfall 79: the holder's time limit has passed, and the server is overloaded."""
    async with scene(P) as stage, no_task_stays():
        held = await TimedLock(stage.other, P, 0.2).acquire()
        waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
        await until_line(stage.zk, P, 2)
        held._alarm.cancel()  # the holder hangs
        with stage.server.answering("delete", ThrottledError, session=stage.zk.session_id, times=2) as refused:
            lease = await asyncio.wait_for(waiter, 5)
            assert refused.hits == 2
        lease.check()
        await lease.release()
        assert await held.lost() is not None


async def test_another_refusal_is_raised_and_leaves_no_ticket() -> None:
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        held = await Lock(stage.other, P).acquire()
        for operation in ("create", "getData", "getChildren"):
            with stage.server.answering(operation, NoAuthError, session=stage.zk.session_id, times=1):
                assert isinstance(await outcome(Lock(stage.zk, P).acquire()), NoAuthError)
            await until_line(stage.other, P, 1)
        await held.release()
        await nothing_stays(stage)


async def test_a_cancelled_pause_leaves_no_ticket() -> None:
    """Pitfalls 9 and 79."""
    async with scene(P) as stage, no_task_stays():
        for operation in ("create", "getData", "getChildren"):
            held = await Lock(stage.other, P).acquire()
            with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id) as refused:
                waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
                await refused.until_hit()
                await stage.zk.ping()
                waiter.cancel()
                assert isinstance(await outcome(waiter), asyncio.CancelledError)
            await held.release()
            await nothing_stays(stage)


@pytest.mark.parametrize("operation", ["create", "getChildren", "getData", "delete"])
async def test_after_a_transient_refusal_nothing_is_asked_before_the_end_of_a_pause(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recipes.common.retrying._PAUSE", 3600.0)
    async with scene(P) as stage, no_task_stays():
        proofs = HashChain("a secret", 1)
        name = f"{P}/_c_{proofs.id}-lock-"
        holder = await stage.other.create(name, ephemeral=True, sequential=True, make_parents=True)
        limit = 0.01 if operation == "delete" else 60.0
        await stage.other.set(holder, ticket_data.limited(limit, proofs.link(1) or "", b""))
        with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id) as refused:
            waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
            await refused.until_hit()
            for _ in range(5):
                await stage.zk.ping()
            hits = refused.hits  # of several watches in one write; a refused list is asked for once more at once
            for _ in range(20):
                await stage.zk.ping()
            assert refused.hits == hits
            assert not waiter.done()
        waiter.cancel()
        assert isinstance(await outcome(waiter), asyncio.CancelledError)
        await stage.other.delete(holder)
        await nothing_stays(stage)


async def test_a_limit_that_is_refused_for_the_time_being_is_written_later() -> None:
    """Both the first limit, for which the caller does not wait, and a new one: the lease is not lost."""
    async with scene() as stage:
        with stage.server.answering("setData", ThrottledError, session=stage.zk.session_id, times=2) as refused:
            lease = await TimedLock(stage.zk, P, 60).acquire()
            await refused.until_hit()
            await lease.extend(60)
            assert refused.hits == 2
        lease.check()
        assert (await stage.other.get(lease.path)).data.startswith(b"zkwire limit ")
        await lease.release()


async def test_a_downgrade_that_is_refused_for_the_time_being_goes_on() -> None:
    async with scene() as stage:
        lease = await ReadWriteLock(stage.zk, P).write().acquire()
        with stage.server.answering("setData", ThrottledError, session=stage.zk.session_id, times=2) as refused:
            read = await lease.downgrade()
            assert refused.hits == 2
        async with ReadWriteLock(stage.other, P).read().hold(within=10):
            read.check()
        await read.release()
