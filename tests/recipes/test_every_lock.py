"""What all kinds of locks have in common: timeouts, the loss of a lease, closed clients, and what they leave behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import zkwire
from recipes import (
    Election,
    Lock,
    LockLostError,
    LockTakenError,
    MultiLease,
    MultiLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    TimedLock,
    TryLock,
)
from recipes.line.locking import Locking
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import body_raises, line, no_task_stays, outcome, this_task, until_line, until_state
from zkwire import Client, SessionClosedError, SessionState
from zkwire.testing import Server

pytestmark = pytest.mark.limit(30)

P = "/recipe"
Make = Callable[[Client], Locking[Any]]

# By the noun of the error messages.
WAITING: dict[str, Make] = {
    "lock": lambda zk: Lock(zk, P),
    "read lock": lambda zk: ReadWriteLock(zk, P).read(),
    "write lock": lambda zk: ReadWriteLock(zk, P).write(),
    "semaphore": lambda zk: Semaphore(zk, P, 1),
    "leadership of": lambda zk: Election(zk, P),
    "set of locks": lambda zk: MultiLock([Lock(zk, P)]),
}
ALL: dict[str, Make] = WAITING | {
    "re-entrant lock": lambda zk: ReentrantLock(zk, P),
    "timed lock": lambda zk: TimedLock(zk, P, 20),
    "try lock": lambda zk: TryLock(zk, f"{P}/job"),
}
every_kind = pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())


@every_kind
async def test_a_closed_client_is_an_error(make: Make) -> None:
    """Pitfall 6."""
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        lock = make(zk)
        with pytest.raises(AttributeError, match="no attribute 'release': release the lease that"):
            await lock.release()  # type: ignore[attr-defined]
        await zk.close()
        for attempt in (lock.acquire(), lock.try_acquire(), lock.hold().__aenter__()):
            assert isinstance(await outcome(attempt), SessionClosedError)


@pytest.mark.parametrize(("noun", "make"), WAITING.items(), ids=WAITING.keys())
async def test_a_timeout_names_the_lock_and_leaves_no_ticket(noun: str, make: Make) -> None:
    """Pitfall 8."""
    async with scene(P) as stage, no_task_stays():
        holder = WAITING["write lock" if noun == "read lock" else noun](stage.other)
        async with holder:
            for attempt in (make(stage.zk).acquire(within=0.01), make(stage.zk).hold(within=0.01).__aenter__()):
                with pytest.raises(TimeoutError, match=rf"the {noun} {P} .* within 0\.01 s"):
                    await attempt
            await until_line(stage.other, P, 1)
        await nothing_stays(stage)


@every_kind
async def test_a_timeout_works_while_no_server_answers(make: Make) -> None:
    """Pitfall 8: what the requests create in the end is deleted."""
    async with scene(P) as stage, no_task_stays():
        with stage.server.paused(), pytest.raises(TimeoutError, match=P):
            await make(stage.zk).acquire(within=0.05)
        await nothing_stays(stage)


@every_kind
async def test_a_wait_that_ends_without_a_connection_says_so(make: Make) -> None:
    async with scene(P) as stage, no_task_stays():
        lock = make(stage.zk)
        with stage.server.refuse_connections():
            stage.server.drop()
            await until_state(stage.zk, SessionState.SUSPENDED)
            with pytest.raises(
                TimeoutError, match=r"free within 0.05 s; the state of the client: the connection is lost"
            ):
                await lock.acquire(within=0.05)


@every_kind
async def test_the_deletion_of_its_node_cancels_the_body(make: Make) -> None:
    """Pitfall 14."""
    async with scene(P) as stage, no_task_stays():
        with body_raises(LockLostError, match="deleted") as error:
            async with make(stage.zk) as lease:
                single = lease.leases[P] if isinstance(lease, MultiLease) else lease
                await stage.other.delete(single.path)
                await asyncio.Event().wait()
        assert error.value.path == single.path
        assert this_task().cancelling() == 0
        assert not lease.is_certain()
        await nothing_stays(stage)


def _in_another_loop(make: Callable[[], Coroutine[Any, Any, Any]]) -> object:
    """Return what the coroutine returns or raises in an event loop of its own; it fails if that takes long."""

    async def bounded() -> Any:
        async with asyncio.timeout(2):
            return await make()

    async def main() -> object:
        return await outcome(bounded())

    return asyncio.run(main())


@every_kind
async def test_a_transaction_of_a_lease_is_carried_out_only_while_its_node_exists(make: Make) -> None:
    async with scene(P) as stage, no_task_stays():
        lease = await make(stage.zk).acquire()
        async with lease.transaction() as transaction:
            transaction.create("/in-time")
        late = lease.transaction()
        late.create("/late")
        single = lease.leases[P] if isinstance(lease, MultiLease) else lease
        await stage.other.delete(single.path)
        with pytest.raises(zkwire.TransactionError):
            await late.commit()
        assert await stage.other.exists("/in-time") is not None
        assert await stage.other.exists("/late") is None
        for _ in range(2):
            await lease.release()
            assert single.is_released


@every_kind
async def test_another_event_loop_gets_an_error_at_once_and_does_no_harm(make: Make) -> None:
    """Pitfall 78."""
    async with scene(P) as stage, no_task_stays():
        lock = make(stage.zk)
        lease = await lock.acquire()
        uses: list[Callable[[], Coroutine[Any, Any, Any]]] = [lock.acquire, lock.try_acquire, lock.hold().__aenter__]
        for use in [*uses, lease.release, lease.lost]:
            error = await asyncio.to_thread(_in_another_loop, use)
            assert isinstance(error, RuntimeError), repr(error)
            assert "belongs to another event loop" in str(error)
            assert P in str(error)
        lease.check()
        await lease.release()
        async with lock.hold(within=5):
            pass
        await nothing_stays(stage)


async def test_another_event_loop_cannot_resize_a_semaphore_or_wait_for_a_term() -> None:
    """Pitfall 78."""
    async with scene(P) as stage:
        semaphore, terms = Semaphore(stage.zk, P, 2), Election(stage.zk, P).terms()
        for use in (lambda: semaphore.resize(2), lambda: semaphore.acquire(permits=2), terms.__anext__):
            error = await asyncio.to_thread(_in_another_loop, use)
            assert "belongs to another event loop" in str(error)
            assert P in str(error)
        assert await stage.other.exists(P) is None


@every_kind
async def test_a_limit_of_no_seconds_allows_one_look(make: Make) -> None:
    """Pitfall 8: a free lock is taken, however long the server takes to answer; a lock that is held is not awaited."""
    async with scene(P) as stage, no_task_stays():
        lock = make(stage.zk)
        with stage.server.delay_replies(0.05, session=stage.zk.session_id):
            lease = await lock.acquire(within=0)
        lease.check()
        await lease.release()
        async with lock.hold(within=0):
            pass
        async with make(stage.other) if make is not WAITING["read lock"] else WAITING["write lock"](stage.other):
            with pytest.raises(LockTakenError if isinstance(lock, TryLock) else TimeoutError, match=P):
                await lock.acquire(within=0)
            assert len(await line(stage.other, P)) <= 1
        await nothing_stays(stage)
