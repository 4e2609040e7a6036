"""What a holder is told, and when: asking, losing, bodies that are interrupted, and a silent server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError, ReentrantLock, Semaphore
from recipes.line.locking import Hold, Locking
from tests.support.everywhere import scene
from tests.support.proxy import Proxy
from tests.support.recipes import (
    all_watches,
    body_raises,
    expire,
    line,
    no_task_stays,
    outcome,
    this_task,
    until,
    until_armed,
    until_line,
    until_watches,
)
from zkwire import ACL, Client, Perms, SessionExpiredError, ThrottledError, TransactionError
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)

DELETED = "somebody else has deleted it"


@asynccontextmanager
async def two(server: RealServer) -> AsyncIterator[tuple[Client, Client]]:
    async with zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        yield zk, other


# -- asking -----------------------------------------------------------------------------------------------------------


async def test_a_lease_that_is_held(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts, session_timeout=4.0) as zk:
        lease = await Lock(zk, path).acquire()
        lease.check()
        assert lease.is_certain()
        assert 2.0 < lease.certain_for() <= 3.0  # three quarters of the timeout
        assert not lease.is_released
        losing = asyncio.create_task(lease.lost())
        await lease.release()
        assert await losing is None
        assert await lease.lost() is None
        assert lease.is_released
        assert not lease.is_certain()
        assert lease.certain_for() == 0
        with pytest.raises(RuntimeError, match=lease.path):
            lease.check()
        await lease.release()  # once more is no harm
        assert await line(zk, path) == []


async def test_releasing_again_does_not_free_the_next_holder(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        first = await lock.acquire()
        await first.release()
        second = await lock.acquire()
        await first.release()
        assert await lock.try_acquire() is None
        second.check()
        await second.release()


async def test_a_transaction_that_commits_only_while_the_lock_is_held(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        lease = await Lock(zk, path).acquire()
        async with lease.transaction() as transaction:
            transaction.create(f"{path}-order", b"1")
        assert await zk.exists(f"{path}-order") is not None
        await other.delete(lease.path)
        with pytest.raises(TransactionError) as error:
            async with lease.transaction() as transaction:
                transaction.set(f"{path}-order", b"2")
        assert error.value.index == 0
        assert (await zk.get(f"{path}-order")).data == b"1"
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()


async def test_a_transaction_of_a_released_lease_is_refused(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lease = await Lock(zk, path).acquire()
        await lease.release()
        with pytest.raises(TransactionError):
            async with lease.transaction() as transaction:
                transaction.create(f"{path}-order")
        assert await zk.exists(f"{path}-order") is None


# -- losing -----------------------------------------------------------------------------------------------------------


async def test_deletion_by_somebody_else_is_told(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14."""
    async with two(zookeeper) as (zk, other):
        lock = Lock(zk, path)
        lease = await lock.acquire()
        await other.delete(lease.path)
        error = await lease.lost()
        assert isinstance(error, LockLostError)
        assert error.path == lease.path
        assert error.why == DELETED
        assert lease.path in str(error)
        assert not lease.is_certain()
        assert lease.certain_for() == 0
        with pytest.raises(LockLostError, match=DELETED):
            lease.check()
        await lease.release()
        assert await lease.lost() is error
        async with lock:  # the lock is as good as before
            pass


async def test_deletion_is_told_after_a_change_of_data_as_well(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        lease = await Lock(zk, path).acquire()
        for note in (b"1", b"2"):
            await until_watches(zookeeper, 1)
            await other.set(lease.path, note)
        await until_watches(zookeeper, 1)
        lease.check()
        await other.delete(lease.path)
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()


async def test_a_change_that_comes_together_with_the_answer_to_the_watch_does_not_blind_the_holder() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        lease = await Lock(zk, "/lock").acquire()
        await until_armed(1, zk)
        with server.hold_replies("getData", session=zk.session_id, times=1) as held:
            await other.set(lease.path, b"1")
            await held.until_hit()
            await other.set(lease.path, b"2")
        await other.delete(lease.path)
        error = await lease.lost()
        assert error is not None
        assert error.why == DELETED
        await lease.release()


async def test_deletion_of_a_lease_that_came_by_a_hand_over_is_told(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        first = await Lock(other, path).acquire()
        waiter = asyncio.create_task(Lock(zk, path).acquire())
        await until_watches(zookeeper, 3)
        await first.release()
        lease = await waiter
        await other.delete(lease.path)
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()


async def test_a_node_that_the_holder_may_not_read_is_no_lease(zookeeper: RealServer, path: str) -> None:
    """Its deletion by somebody else could not be told."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path, acl=[ACL(Perms.ALL & ~Perms.READ, "world", "anyone")])
        await zk.create(path)
        with pytest.raises(LockLostError, match=f"{path}.*the ACL does not allow it"):
            async with lock:
                await asyncio.get_running_loop().create_future()
        assert await line(zk, path) == []


async def test_a_server_that_throttles_is_asked_for_the_watch_again() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with server.answering("getData", ThrottledError, times=2) as throttled:
            lease = await Lock(zk, "/lock").acquire()
            await throttled.until_hit(2)
        await until_armed(1, zk)
        lease.check()
        await zk.delete(lease.path)
        assert str(await lease.lost()).count(DELETED) == 1


async def test_expiry_is_told(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        lease = await lock.acquire()
        session = zk.session_id
        await expire(zookeeper, zk)
        assert isinstance(await lease.lost(), LockLostError)
        with pytest.raises(LockLostError):
            lease.check()
        await lease.release()
        async with lock.hold(within=10) as again:  # in a new session
            assert again.token > lease.token
        assert zk.session_id != session


async def test_expiry_without_renewal_is_told(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts, renew=False) as zk:
        with body_raises(LockLostError):
            async with Lock(zk, path):
                await expire(zookeeper, zk)
                await asyncio.Event().wait()


async def test_closing_the_client_ends_the_lease(zookeeper: RealServer, path: str) -> None:
    """Pitfall 6."""
    zk = await zkwire.connect(zookeeper.hosts)
    with body_raises(LockLostError):
        async with Lock(zk, path):
            await until_watches(zookeeper, 1)
            closing = asyncio.create_task(zk.close())
            await asyncio.Event().wait()
    await closing


async def test_a_local_waiter_goes_on_when_the_holder_has_lost_its_lease(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14: and not before the former holder's body has ended."""
    async with two(zookeeper) as (zk, other):
        lock = Lock(zk, path)
        ended = False

        async def first() -> None:
            nonlocal ended
            async with lock as lease:
                holding.set_result(lease)
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.05)
                    ended = True

        async def second() -> None:
            async with lock:
                assert ended

        holding: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        one, two_ = asyncio.create_task(first()), asyncio.create_task(second())
        await other.delete((await holding).path)
        assert isinstance(await outcome(one), LockLostError)
        await two_
        assert await line(zk, path) == []


# -- bodies -----------------------------------------------------------------------------------------------------------


async def test_the_body_is_cancelled_and_the_loss_raised(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
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
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0  # and the task is as good as before
        await asyncio.sleep(0)


async def test_a_body_that_swallows_the_cancellation(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        with body_raises(LockLostError, match=DELETED):
            async with Lock(zk, path) as lease:
                await other.delete(lease.path)
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                await asyncio.sleep(0)  # it goes on to its end
        assert this_task().cancelling() == 0


async def test_a_body_that_ends_without_having_noticed(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
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


async def test_a_body_that_raises_an_error_of_its_own(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        for lost in (False, True):
            with body_raises(KeyError, match="mine"):
                async with Lock(zk, path) as lease:
                    if lost:
                        await other.delete(lease.path)
                        assert await lost_in_body(lease)
                    raise KeyError("mine")
            assert await line(zk, path) == []
            assert this_task().cancelling() == 0


async def lost_in_body(lease: Lease) -> bool:
    """Wait in a body, in spite of the cancellation, until the lease is lost."""
    with suppress(asyncio.CancelledError):
        await lease.lost()
    return not lease.is_certain()


async def test_an_error_of_the_session_becomes_the_loss(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        with body_raises(LockLostError) as error:
            async with Lock(zk, path) as lease:
                await expire(zookeeper, zk)
                await lost_in_body(lease)
                raise SessionExpiredError("as a verb in the body would")
        assert isinstance(error.value.__cause__, SessionExpiredError)


@pytest.mark.parametrize("turns", range(-1, 5))
async def test_a_cancellation_from_outside_at_the_same_time_as_the_loss(
    zookeeper: RealServer, path: str, turns: int
) -> None:
    """The task that was cancelled from outside ends cancelled, whichever came first."""
    async with two(zookeeper) as (zk, other), no_task_stays():
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


async def test_both_in_one_step_in_either_order(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        for loss_first in (True, False):
            entered: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()

            async def body(entered: asyncio.Future[Lease]) -> None:
                async with Lock(zk, path) as lease:
                    entered.set_result(lease)
                    await asyncio.Event().wait()

            task = asyncio.create_task(body(entered))
            lease = await entered
            if not loss_first:
                task.cancel()
            lease._lose("a test")
            if loss_first:
                task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
            await until_line(zk, path, 0)


async def test_a_timeout_around_a_hold(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), Lock(zk, path):
                await asyncio.Event().wait()
        assert await line(zk, path) == []
        with body_raises(LockLostError):
            async with asyncio.timeout(20), Lock(zk, path) as lease:
                await other.delete(lease.path)
                await asyncio.Event().wait()
        with body_raises(LockLostError):  # and one within
            async with Lock(zk, path) as lease, asyncio.timeout(20):
                await other.delete(lease.path)
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with Lock(zk, path) as lease, asyncio.timeout(0.1):
                await asyncio.Event().wait()
        assert await line(zk, path) == []


async def test_both_timeout_and_loss(zookeeper: RealServer, path: str) -> None:
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


@pytest.mark.parametrize("which", ["outer", "inner", "both"])
async def test_nested_holds(zookeeper: RealServer, path: str, which: str) -> None:
    async with two(zookeeper) as (zk, other):
        with body_raises(LockLostError) as error:
            async with (
                Lock(zk, f"{path}-outer") as outer,
                Lock(zk, f"{path}-inner") as inner,
            ):
                async with other.transaction() as transaction:
                    if which != "inner":
                        transaction.delete(outer.path)
                    if which != "outer":
                        transaction.delete(inner.path)
                await asyncio.Event().wait()
        assert error.value.path == (inner.path if which == "inner" else outer.path)
        assert this_task().cancelling() == 0
        for at in ("outer", "inner"):
            assert await line(zk, f"{path}-{at}") == []


async def test_a_hold_in_a_task_group(zookeeper: RealServer, path: str) -> None:
    async with two(zookeeper) as (zk, other):
        async with asyncio.TaskGroup() as group:

            async def body() -> None:
                async with Lock(zk, path) as lease, asyncio.TaskGroup() as inner:
                    inner.create_task(asyncio.Event().wait())
                    await other.delete(lease.path)

            task = group.create_task(outcome(body()))
        assert isinstance(task.result(), LockLostError)


async def test_a_body_that_finds_out_by_itself(zookeeper: RealServer, path: str) -> None:
    """check() in the body raises in place; nothing is cancelled behind its back."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        with body_raises(LockLostError):
            async with Lock(zk, path) as lease:
                zk._session.certainty.end()
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


async def entered(lock: Locking[Any] | Hold[Any]) -> AsyncExitStack:
    """A stack that holds the lock, entered by a task of its own, which has come to its end."""

    async def enter() -> AsyncExitStack:
        stack = AsyncExitStack()
        await stack.enter_async_context(lock)
        return stack

    return await asyncio.create_task(enter())


async def test_a_lock_that_another_task_leaves_is_let_go_of() -> None:
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path)
        for what in (lock, lock.hold(), ReentrantLock(stage.zk, stage.path)):
            await (await entered(what)).aclose()
            assert await line(stage.other, stage.path) == []
        async with AsyncExitStack() as ours:  # by a task that is not at its end
            await ours.enter_async_context(lock)
            await asyncio.create_task(ours.aclose())
            assert await line(stage.other, stage.path) == []


async def test_whoever_leaves_in_place_of_another_task_is_told_of_the_loss() -> None:
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path)
        stack = await entered(lock)
        await until_armed(1, stage.zk)
        (ticket,) = await line(stage.other, stage.path)
        await stage.other.delete(f"{stage.path}/{ticket}")
        with pytest.raises(LockLostError):
            await stack.aclose()
        async with AsyncExitStack() as ours:
            await ours.enter_async_context(lock)
            await until_armed(1, stage.zk)
            (ticket,) = await line(stage.other, stage.path)
            with body_raises(asyncio.CancelledError):
                await stage.other.delete(f"{stage.path}/{ticket}")
                await asyncio.Event().wait()
            assert isinstance(await asyncio.create_task(outcome(ours.aclose())), LockLostError)
            assert this_task().uncancel() == 0  # nobody else has: it has not left by itself


async def test_of_several_that_are_inside_one_that_cannot_leave_by_itself_is_left() -> None:
    async with scene() as stage, no_task_stays():
        semaphore = Semaphore(stage.zk, stage.path, 3)
        async with semaphore as inside:
            stacks = [await entered(semaphore) for _ in range(2)]
            for left, stack in enumerate(stacks):
                assert len(await line(stage.other, stage.path)) == 3 - left
                await asyncio.create_task(stack.aclose())
            inside.check()
        assert await line(stage.other, stage.path) == []


async def test_of_several_that_run_nobody_is_left_by_another_task() -> None:
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


# -- a release that is cancelled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_release_lets_go_all_the_same(zookeeper: RealServer, path: str, turns: int) -> None:
    """Pitfall 11: the clean-up is not interruptible."""
    async with two(zookeeper) as (zk, other), no_task_stays():
        lease = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(other, path).acquire())
        await until_watches(zookeeper, 3)
        releasing = asyncio.create_task(lease.release())
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns:
            releasing.cancel()
        await outcome(releasing)
        await (await waiter).release()
        await until_line(zk, path, 0)
        await until_watches(zookeeper, 0)


# -- a silent server --------------------------------------------------------------------------------------------------


async def test_the_body_is_cancelled_before_the_session_can_expire(zookeeper_own: RealServer, path: str) -> None:
    """Pitfalls 14, 37 and 63: the server is paused, nobody says anything; the loss is told within the timeout."""
    timeout = 2.0
    loop = asyncio.get_running_loop()
    async with zkwire.connect(zookeeper_own.hosts, session_timeout=timeout) as zk:
        lock = Lock(zk, path)
        waiters: list[asyncio.Task[Lease]] = []
        with body_raises(LockLostError, match="no server has answered"):
            async with lock as lease:
                waiters.append(asyncio.create_task(Lock(zk, path).acquire()))
                await until_armed(all_watches(2), zk)
                zookeeper_own.pause()
                paused = loop.time()
                await asyncio.Event().wait()
        told = loop.time()
        # Certain means three quarters from the last request that was answered; none was sent after the pause.
        assert told - paused <= timeout * 0.75 + 0.25
        assert not lease.is_certain()
        assert not waiters[0].done()
        zookeeper_own.resume()
        again = await waiters[0]
        again.check()
        assert again.token > lease.token
        await again.release()
        await until_line(zk, path, 0)


async def test_who_closes_the_client_is_certain_of_nothing_from_then_on(zookeeper: RealServer, path: str) -> None:
    """The server gives the lock away before it answers."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as other:
        for watched in (True, False):
            zk = await zkwire.connect(proxy.hosts)
            lease = await Lock(zk, path).acquire()
            if watched:
                await until_armed(1, zk)
            waiter = asyncio.create_task(Lock(other, path).acquire())
            await until_armed(2, other)
            losing = asyncio.create_task(lease.lost())
            await asyncio.sleep(0)
            proxy.hold_replies()
            closing = asyncio.create_task(zk.close())
            await (await waiter).release()
            assert not closing.done()
            assert not lease.is_certain()
            assert ("the client is closed" if watched else "its session is over") in str(await losing)
            proxy.release_replies()
            await closing


async def test_a_server_that_grants_less_ends_certainty_sooner(zookeeper_own: RealServer, path: str) -> None:
    """The timeout is negotiated anew with each connection, and the session ends by the new one."""
    loop = asyncio.get_running_loop()
    async with zkwire.connect(zookeeper_own.hosts, session_timeout=8.0) as zk:
        paused = loop.time() + 60
        with body_raises(LockLostError, match="may have expired"):
            async with Lock(zk, path) as lease:
                await until_watches(zookeeper_own, 1)
                zookeeper_own.kill()
                settings = zookeeper_own.folder / "zoo.cfg"
                settings.write_text(settings.read_text().replace("maxSessionTimeout=60000", "maxSessionTimeout=1000"))
                await zookeeper_own.start()
                await until(lambda: zk.session_timeout == 1.0)
                assert lease.certain_for() <= 0.75
                zookeeper_own.pause()
                paused = loop.time()
                await asyncio.Event().wait()
        assert loop.time() - paused <= 0.75 + 0.25
        zookeeper_own.resume()


async def test_a_short_silence_is_no_loss(zookeeper_own: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper_own.hosts, session_timeout=6.0) as zk:
        async with Lock(zk, path) as lease:
            zookeeper_own.pause()
            await asyncio.sleep(0.5)
            zookeeper_own.resume()
            await zk.ping()
            lease.check()
        assert await line(zk, path) == []


async def test_nobody_believes_an_event_of_long_ago(zookeeper_own: RealServer, path: str) -> None:
    """Pitfall 17: a waiter whose loop was blocked past its certainty asks before it believes that it owns."""
    async with (
        two(zookeeper_own) as (_, other),
        zkwire.connect(zookeeper_own.hosts, session_timeout=2.0) as zk,
    ):
        first = await Lock(other, path).acquire()

        async def wait() -> bool:
            async with Lock(zk, path) as lease:
                return lease.is_certain()

        waiter = asyncio.create_task(wait())
        await until_watches(zookeeper_own, 3)
        await zk.ping()
        asked = asyncio.create_task(first.release())
        await asyncio.sleep(0)  # the delete is written; its event comes while the loop is blocked
        asyncio.get_running_loop().call_soon(time.sleep, 1.6)
        assert await waiter
        await asked
