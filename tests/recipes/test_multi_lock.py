"""Several locks as one: all or none, acquired in one order, lost as a whole; no deadlock, and no lock left over."""

import asyncio
import re
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
    TimedLock,
    TryLock,
    WriteLease,
)
from recipes.line.locking import Locking
from tests.support.everywhere import below, scene
from tests.support.locks import taken, watch_count
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, line, no_task_stays, outcome, this_task, until, until_line, until_watches
from zkwire import Client, TransactionError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(30)

P = "/recipe"
NAMES = ("c", "a", "b")


def multi(zk: Client, path: str, *names: str) -> MultiLock:
    return MultiLock([Lock(zk, f"{path}/{name}") for name in names or NAMES])


async def held(zk: Client, path: str) -> list[str]:
    """Return the names of the locks below `path` that have a ticket."""
    return sorted({node.removeprefix(f"{path}/").partition("/")[0] for node in await below(zk, path) if "_c_" in node})


# -- use --------------------------------------------------------------------------------------------------------------


async def test_all_locks_are_held_and_all_are_released(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        lock = multi(zk, path)
        async with lock.hold(within=5) as lease:
            assert isinstance(lease, MultiLease)
            assert list(lease.leases) == [f"{path}/a", f"{path}/b", f"{path}/c"]
            assert lease.tokens == {where: single.token for where, single in lease.leases.items()}
            assert list(lease.tokens.values()) == sorted(lease.tokens.values())
            lease.check()
            assert lease.certain_for() == pytest.approx(min(one.certain_for() for one in lease.leases.values()), abs=1)
            assert await held(zk, path) == ["a", "b", "c"]
            assert await multi(other, path).try_acquire() is None
            assert await multi(other, path, "b", "d").try_acquire() is None
            assert len(await line(zk, f"{path}/b")) == 1
        assert await held(zk, path) == []
        assert lease.is_released
        assert not lease.is_certain()
        assert await lease.lost() is None
        with pytest.raises(RuntimeError, match=f"{path}/a, {path}/b, {path}/c were released"):
            lease.check()
        await lease.release()
        async with lock as again:
            assert all(again.tokens[where] > token for where, token in lease.tokens.items())
        tried = await taken(multi(other, path))
        losing = asyncio.create_task(tried.lost())
        await asyncio.sleep(0)
        await tried.release()
        assert await losing is None
        assert await held(zk, path) == []


@pytest.mark.usefixtures("unwatched")
async def test_requests(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        async with multi(zk, path):
            pass
        mark = proxy.mark()
        lease = await multi(zk, path).acquire()
        assert proxy.requests(mark) == ["create2", "getChildren"] * 3
        assert [frame.path for frame in proxy.log[mark:] if frame.opcode == "getChildren"][::2] == [
            f"{path}/{name}" for name in "abc"
        ]
        mark = proxy.mark()
        await lease.release()
        assert proxy.requests(mark) == ["delete"] * 3
        deleted = [frame.path for frame in proxy.log[mark:] if frame.direction == "request"]
        assert deleted[::-1] == [single.path for single in lease.leases.values()]


async def test_a_set_is_certain_for_as_long_as_the_lock_that_ends_first() -> None:
    async with scene(P, session_timeout=40.0) as stage:
        for names in ("ab", "ba"):
            locks: list[Locking[Any]] = [Lock(stage.zk, f"{P}/{names[0]}"), TimedLock(stage.zk, f"{P}/{names[1]}", 5.0)]
            async with MultiLock(locks) as lease:
                assert 0 < lease.certain_for() <= 5.0 < lease.leases[f"{P}/{names[0]}"].certain_for()
                assert lease.is_certain()


async def test_a_transaction_checks_every_node(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        for name in NAMES:
            lease = await multi(zk, path).acquire()
            async with lease.transaction() as transaction:
                transaction.create(f"{path}/work")
            async with lease.transaction() as transaction:
                transaction.delete(f"{path}/work")
            await other.delete(lease.leases[f"{path}/{name}"].path)
            with pytest.raises(TransactionError) as error:
                async with lease.transaction() as transaction:
                    transaction.create(f"{path}/work")
            assert error.value.index == "abc".index(name)
            await lease.release()
        assert await zk.exists(f"{path}/work") is None


async def test_locks_of_all_kinds_can_be_combined(zookeeper: RealServer, path: str) -> None:
    """Pitfall 7: the inner release of a re-entrant lock does not release it."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        trying, again = TryLock(zk, f"{path}/try"), ReentrantLock(zk, f"{path}/reentrant")
        lock = MultiLock([trying, Election(zk, f"{path}/election"), again, Lock(zk, f"{path}/lock")])
        async with lock as lease:
            assert list(lease.tokens) == [f"{path}/{name}" for name in ("election", "lock", "reentrant", "try")]
            async with again as inner:  # in the same task
                inner.check()
            assert await Lock(zk, f"{path}/reentrant").try_acquire() is None
            lease.check()
            async with lease.transaction() as transaction:
                transaction.create(f"{path}/work")
            with pytest.raises(LockTakenError):
                await MultiLock([Lock(zk, f"{path}/another"), trying]).acquire()
            assert await line(zk, f"{path}/another") == []
        assert await held(zk, path) == []
        assert await zk.exists(f"{path}/try") is None


async def test_bad_arguments_are_refused(memory: Any) -> None:
    async with zkwire.connect(memory.hosts) as zk, zkwire.connect(memory.hosts) as other:
        with pytest.raises(ValueError, match="at least one lock"):
            MultiLock([])
        with pytest.raises(ValueError, match="/a is listed twice"):
            MultiLock([Lock(zk, "/a"), Lock(zk, "/b"), TryLock(zk, "/a")])
        with pytest.raises(ValueError, match="one client"):
            MultiLock([Lock(zk, "/a"), Lock(other, "/b")])
        wrong: Any
        for wrong in (Lock(zk, "/a"), ["/a", "/b"]):
            with pytest.raises(TypeError, match="a list of locks"):
                MultiLock(wrong)
        with pytest.raises(TypeError, match="within another MultiLock"):
            MultiLock([multi(zk, "/x"), Lock(zk, "/a")])
        with pytest.raises(ValueError, match="within"):
            await multi(zk, "/x").acquire(within=float("nan"))
        assert await zk.exists("/a") is None
        assert await zk.exists("/x") is None


# -- all or none ------------------------------------------------------------------------------------------------------


async def test_a_cancellation_during_the_release_after_a_failed_try_releases_each_lock_once() -> None:
    """Pitfall 7: a re-entrant lock that the task has acquired before stays held."""
    async with scene(P) as stage, no_task_stays():
        again = ReentrantLock(stage.zk, f"{P}/a")
        several = MultiLock([again, Lock(stage.zk, f"{P}/b"), Lock(stage.zk, f"{P}/c")])

        async def cancelled_inside() -> None:
            async with again as outer:
                assert isinstance(await outcome(several.try_acquire()), asyncio.CancelledError)
                await until_line(stage.other, f"{P}/b", 0)
                outer.check()
                assert await held(stage.other, P) == ["a", "c"]

        async with Lock(stage.other, f"{P}/c"):
            with stage.server.hold_replies("delete", session=stage.zk.session_id, path=re.compile(f"{P}/b/.*")) as back:
                trying = asyncio.create_task(cancelled_inside())
                await until(lambda: back.hits == 1)
                trying.cancel()
            await trying


async def test_the_loss_of_one_lock_while_a_later_one_is_awaited_starts_again() -> None:
    async with scene(P) as stage:
        c = await Lock(stage.other, f"{P}/c").acquire()
        waiting = asyncio.create_task(multi(stage.zk, P).acquire())
        # The two nodes that it holds, its ticket in /c and the ticket before.
        await until(lambda: watch_count(stage.zk) == 4)
        (ticket,) = await line(stage.other, f"{P}/a")
        await stage.other.delete(f"{P}/a/{ticket}")
        async with Lock(stage.other, f"{P}/a"):
            await c.release()
            await until_line(stage.other, f"{P}/a", 2)
            assert not waiting.done()
            assert await held(stage.other, P) == ["a"]
        lease = await waiting
        lease.check()
        await lease.release()


# -- losing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
async def test_the_first_loss_cancels_the_body(zookeeper: RealServer, path: str, name: str) -> None:
    """Pitfall 14."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        with body_raises(LockLostError, match="deleted") as error:
            async with multi(zk, path) as lease:
                losing = asyncio.create_task(lease.lost())
                await other.delete(lease.leases[f"{path}/{name}"].path)
                await asyncio.Event().wait()
        assert error.value.path == lease.leases[f"{path}/{name}"].path
        assert await losing is error.value
        assert await lease.lost() is error.value
        with pytest.raises(LockLostError) as checked:
            lease.check()
        assert checked.value is not error.value
        assert this_task().cancelling() == 0
        assert await held(other, path) == []
        await until_watches(zookeeper, 0)


# -- downgrade --------------------------------------------------------------------------------------------------------


async def test_a_write_lease_of_a_set_can_be_downgraded() -> None:
    async with scene(P) as stage, no_task_stays():
        lock = MultiLock([ReadWriteLock(stage.zk, f"{P}/a").write(), Lock(stage.zk, f"{P}/b")])
        async with lock as lease:
            written = lease.leases[f"{P}/a"]
            assert isinstance(written, WriteLease)
            read = await written.downgrade()
            assert lease.leases[f"{P}/a"] is read
            lease.check()
            assert lease.is_certain()
            async with ReadWriteLock(stage.other, f"{P}/a").read(), lease.transaction() as transaction:
                transaction.create(f"{P}/work")
            assert await ReadWriteLock(stage.other, f"{P}/a").write().try_acquire() is None
        assert lease.is_released
        assert read.is_released
        assert await held(stage.other, P) == []


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_set_is_uncertain_during_a_downgrade_and_still_notices_losses(is_lost: bool) -> None:
    async with scene(P) as stage, no_task_stays():
        lease = await MultiLock([ReadWriteLock(stage.zk, f"{P}/a").write(), Lock(stage.zk, f"{P}/b")]).acquire()
        written = lease.leases[f"{P}/a"]
        assert isinstance(written, WriteLease)
        with stage.server.hold_replies("setData", session=stage.zk.session_id) as marking:
            downgrading = asyncio.create_task(outcome(written.downgrade()))
            await until(lambda: marking.hits == 1)
            assert not lease.is_certain()
            for ask in (lease.check, lease.transaction):
                with pytest.raises(RuntimeError, match="was downgraded"):
                    ask()
            downgrading.cancel()
            await downgrading
        if is_lost:
            await stage.other.delete(lease.leases[f"{P}/b"].path)
            assert isinstance(await lease.lost(), LockLostError)
        await lease.release()
        assert await held(stage.other, P) == []
