"""Data in tickets that their own client has not written: it is not believed, and it ends the lease."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from recipes import Election, Lease, Lock, LockLostError, ReadWriteLock, Semaphore, TimedLock, TryLock, WriteLease
from recipes.line.locking import Locking
from tests.support.everywhere import scene
from tests.support.locks import start_waiting
from tests.support.recipes import line, no_task_stays, outcome, two_clients, until, until_armed, until_line
from zkwire import Client, TransactionError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(40)

Make = Callable[[Client, str], Locking[Any]]

KINDS: dict[str, Make] = {
    "lock": lambda zk, path: Lock(zk, path),
    "read lock": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write lock": lambda zk, path: ReadWriteLock(zk, path).write(),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1),
    "election": lambda zk, path: Election(zk, path),
    "timed lock": lambda zk, path: TimedLock(zk, path, 60),
    "try lock": lambda zk, path: TryLock(zk, path),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())

FORGED_DOWNGRADES = [b"zkwire shared\n", b"zkwire shared " + b"0" * 64 + b"\n"]
FORGED_LIMITS = [b"zkwire limit 0.000\n", b"zkwire limit 0.000 " + b"0" * 64 + b"\n"]


async def ended(lease: Any) -> LockLostError:
    """Return the error of a lease that must be lost."""
    error = await lease.lost()
    assert isinstance(error, LockLostError)
    return error


# -- the holder -------------------------------------------------------------------------------------------------------


@every_kind
async def test_what_another_client_writes_into_the_holders_node_ends_the_lease(
    zookeeper: RealServer, path: str, make: Make
) -> None:
    async with two_clients(zookeeper) as (zk, other):
        lease = await make(zk, path).acquire()
        await other.set(lease.path, b"forged")
        error = await ended(lease)
        assert error.why == "another client has written into it"
        assert lease.path in str(error)

        async def is_gone() -> bool:
            return await other.exists(lease.path) is None

        await until(is_gone)
        await lease.release()


async def test_a_write_that_was_cancelled_or_cut_off_is_not_taken_for_another_clients() -> None:
    async with scene() as stage:
        term = await Election(stage.zk, stage.path).acquire()
        await until_armed(1, stage.zk)
        with stage.server.hold_replies("setData", session=stage.zk.session_id) as held:
            writing = asyncio.create_task(term.set(b"cancelled"))
            await held.until_hit()
            writing.cancel()
            assert isinstance(await outcome(writing), asyncio.CancelledError)
        await until_armed(1, stage.zk)
        await stage.zk.ping()
        term.check()
        for cut in (stage.server.drop_after, stage.server.drop_before):
            with cut("setData", session=stage.zk.session_id):
                assert isinstance(await outcome(term.set(b"cut")), zkwire.ConnectionLostError)
            await until_armed(1, stage.zk)
            term.check()
        await term.set(b"last")
        assert await Election(stage.other, stage.path).candidates() == [b"last"]
        term.check()
        await term.resign()


# -- waiting clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forged", FORGED_DOWNGRADES)
async def test_a_forged_downgrade_lets_no_reader_in_beside_a_writer(
    zookeeper: RealServer, path: str, forged: bytes
) -> None:
    """The guarded transactions of that writer would be carried out, while the reader reads."""
    async with two_clients(zookeeper) as (zk, other), no_task_stays():
        writer = await ReadWriteLock(zk, path).write().acquire()
        were_together: list[bool] = []

        async def read(reader: Locking[Lease]) -> None:
            lease = await reader.acquire()
            were_together.append(writer.is_certain())
            await lease.release()

        readers = [asyncio.create_task(read(ReadWriteLock(other, path).read())) for _ in range(3)]
        await until_line(zk, path, 4)
        await until_armed(6, other)
        await other.set(writer.path, forged)
        assert (await ended(writer)).why == "another client has written into it"
        await asyncio.gather(*readers)
        assert were_together == [False, False, False]
        transaction = writer.transaction()
        transaction.create(f"{path}/guarded")
        assert isinstance(await outcome(transaction.commit()), TransactionError)
        await writer.release()


@pytest.mark.parametrize("make", [KINDS["lock"], KINDS["write lock"], KINDS["semaphore"], KINDS["election"]])
@pytest.mark.parametrize("forged", FORGED_LIMITS)
async def test_a_forged_limit_does_not_have_a_living_holder_deleted(make: Make, forged: bytes) -> None:
    async with scene() as stage:
        lease = await make(stage.zk, stage.path).acquire()
        waiter = await start_waiting(stage.other, make(stage.other, stage.path), 2)
        watched = len(stage.other._session.requests.watches)
        async with stage.server.hold_replies(session=stage.zk.session_id):
            await stage.other.set(lease.path, forged)
            await until_armed(watched, stage.other)  # it has read the node again
            await stage.other.ping()
            assert await stage.other.exists(lease.path) is not None
            assert lease.is_certain()
            assert not waiter.done()
        await ended(lease)
        await (await waiter).release()


async def test_a_limit_that_the_holder_has_replaced_does_not_count_when_another_client_writes_it_again() -> None:
    """It has a proof, but of a version that has passed."""
    async with scene() as stage:
        lease = await TimedLock(stage.zk, stage.path, 0.5).acquire()

        async def has_limit() -> bool:
            return b"limit" in (await stage.other.get(lease.path)).data

        await until(has_limit)
        replaced = (await stage.other.get(lease.path)).data
        await lease.extend(60)
        waiter = await start_waiting(stage.other, Lock(stage.other, stage.path), 2)
        async with stage.server.hold_replies(session=stage.zk.session_id):
            await stage.other.set(lease.path, replaced)
            await until_armed(2, stage.other)
            assert isinstance(await outcome(asyncio.wait_for(asyncio.shield(waiter), 1.0)), TimeoutError)
            assert await stage.other.exists(lease.path) is not None
            assert lease.is_certain()
        await ended(lease)
        await (await waiter).release()


async def test_a_waiter_whose_node_another_client_has_written_into_never_owns_with_it(
    zookeeper: RealServer, path: str
) -> None:
    async with two_clients(zookeeper) as (zk, other):
        first = await Lock(other, path).acquire()
        waiter = await start_waiting(zk, ReadWriteLock(zk, path).write(), 2)
        _, name = await line(other, path)
        await other.set(f"{path}/{name}", FORGED_DOWNGRADES[0])

        async def is_new() -> bool:
            names = await line(other, path)
            return len(names) == 2 and name not in names

        await until(is_new)
        await first.release()
        lease = await waiter
        assert isinstance(lease, WriteLease)
        lease.check()
        await lease.release()
