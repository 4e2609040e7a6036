"""The lock with a time limit: the holder stops when its limit has passed, and then others take the lock over."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkwire
from recipes import Lock, LockLostError, ReadWriteLock, Semaphore, TimedLock
from recipes.line import ticket_data
from recipes.line.locking import Locking
from recipes.line.ticket import ASKED
from tests.support import virtual_time
from tests.support.client import turns
from tests.support.clock import Clock
from tests.support.everywhere import scene
from tests.support.locks import hung, limit, two_clients, watch_count
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, line, make_known, no_task_stays, outcome, until, until_armed, until_line
from tests.support.virtual_time import in_virtual_time
from zkwire import Client
from zkwire.session import keepalive
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(30)


@asynccontextmanager
async def clients_in_virtual_time() -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of a server in virtual time, which have no watch at the end."""
    server = virtual_time.Server()
    async with (
        zkwire.connect("a", open_link=server.open_link) as zk,
        zkwire.connect("a", open_link=server.open_link) as other,
    ):
        yield zk, other
        await until_armed(0, zk, other)


# -- the holder -------------------------------------------------------------------------------------------------------


async def test_the_body_is_cancelled_when_the_limit_has_passed(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with body_raises(LockLostError, match="its time limit has passed"):
            async with TimedLock(zk, path, 0.2, data=b"host-7") as lease:
                assert 0 < lease.certain_for() <= 0.2
                waiter = asyncio.create_task(Lock(other, path).acquire())
                await asyncio.Event().wait()
        assert loop.time() - began >= 0.2
        await (await waiter).release()
        assert await line(zk, path) == []


async def test_the_time_of_a_suspension_counts_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's clock does not run meanwhile; the clocks of the waiting clients do."""
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    async with scene(session_timeout=40.0) as stage:
        lease = await TimedLock(stage.zk, "/locks/a", 5.0).acquire()
        slept += 2.0
        assert 0 < lease.certain_for() <= 3.0
        slept += 2.0
        await lease.extend(3.0)
        assert 1.0 < lease.certain_for() <= 3.0
        slept += 3.0
        assert stage.zk.certain_for(stage.zk.session_id) > 0
        assert not lease.is_certain()
        await lease.release()


async def test_a_lease_ends_within_a_second_after_a_suspended_machine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    async with scene(session_timeout=40.0) as stage:
        clock = Clock(monkeypatch)
        lease = await TimedLock(stage.zk, "/t", 5.0).acquire()
        losing = asyncio.create_task(lease.lost())
        await stage.zk.ping()
        slept += 5.0
        await turns()
        assert not losing.done()  # no timer is due yet
        await clock.passes(1.01)
        assert losing.done()
        assert "its time limit has passed" in str(await losing)


async def test_the_holder_writes_its_limit_ahead_of_its_data() -> None:
    async with two_clients() as (zk, other):
        async with TimedLock(zk, "/t", 30, data=b"host-7") as lease:
            await until_data(other, lease.path, lambda data: data.endswith(b"host-7") and len(data) > 6)
            written = ticket_data.parse(lease._ticket.node.name, (await other.get(lease.path)).data, 1)
            assert written is not None
            assert written.limit is not None
            assert 29 < written.limit <= 30.001
            lease.check()
        assert await line(other, "/t") == []


async def test_a_lease_whose_limit_does_not_fit_beside_its_data_is_lost() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, request_limit=4000) as zk:
        lease = await TimedLock(zk, "/t", 30, data=bytes(4000 - 150)).acquire()
        assert "store less" in str(await asyncio.wait_for(lease.lost(), 5))
        await lease.release()
        assert await line(zk, "/t") == []


async def test_a_lease_that_has_used_up_its_proofs_by_requests_to_give_way_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recipes.timed_lock.MOST_LINKS", 1)
    async with scene() as stage:
        async with TimedLock(stage.zk, "/t", 30) as lease:
            for _ in range(3):
                await until_data(stage.other, lease.path, lambda data: data.endswith(lease._data))
                await stage.other.set(lease.path, ASKED)
        (warned,) = caplog.messages
        assert "too many limits and requests to give way" in warned


async def until_data(zk: Client, path: str, condition: Callable[[bytes], bool]) -> None:
    async def fits() -> bool:
        return condition((await zk.get(path)).data)

    await until(fits)


@pytest.mark.usefixtures("unwatched")
async def test_requests(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await make_known(zk, path)
        mark = proxy.mark()
        async with TimedLock(zk, path, 5) as lease:
            assert proxy.segments(mark) == 1  # the body begins before the limit is written
            await proxy.until(lambda: proxy.requests(mark) == ["create2", "getChildren", "setData"])
            await lease.extend(5)
        assert proxy.requests(mark) == ["create2", "getChildren", "setData", "setData", "delete"]


@in_virtual_time
async def test_a_limit_can_be_extended_and_shortened() -> None:
    async with clients_in_virtual_time() as (zk, other):
        loop = asyncio.get_running_loop()
        lease = await TimedLock(zk, "/t", 0.7).acquire()
        end = loop.time() + 0.8
        while loop.time() < end:
            await lease.extend(0.7)
            await asyncio.sleep(0.05)
        lease.check()
        await lease.extend(60)
        assert lease.certain_for() > 2  # far beyond the former limit; the certainty of the session bounds it now
        await lease.extend(0.05)  # and shorter
        assert lease.certain_for() <= 0.051  # the difference of two readings of the clock
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()
        await until_line(other, "/t", 0)


async def test_the_old_limit_applies_until_the_server_has_answered_an_extension() -> None:
    """The waiting clients may have read the old limit only."""
    async with scene() as stage:
        lease = await TimedLock(stage.zk, "/t", 0.5).acquire()
        await until_data(stage.other, lease.path, bool)
        with stage.server.hold_replies("setData", session=stage.zk.session_id):
            tasks = [asyncio.create_task(lease.extend(60)) for _ in range(2)]
            lost = await lease.lost()
            assert isinstance(lost, LockLostError)
            async with asyncio.timeout(3):  # although no answer has come and the connection is still open
                errors = [await outcome(task) for task in tasks]
            assert [str(error) for error in errors] == [str(lost)] * 2
            assert len({id(error) for error in errors}) == 2  # each caller has an error of its own
        await lease.release()


async def test_a_release_ends_an_extension_that_is_under_way() -> None:
    async with scene() as stage, no_task_stays():
        lease = await TimedLock(stage.zk, "/t", 5).acquire()
        await until_data(stage.other, lease.path, bool)
        with stage.server.hold_replies("setData", session=stage.zk.session_id) as extending:
            task = asyncio.create_task(lease.extend(60))
            await until(lambda: extending.hits == 1)
            releasing = asyncio.create_task(lease.release())
            with pytest.raises(RuntimeError, match="was released"):
                async with asyncio.timeout(3):
                    await task
        await releasing


@pytest.mark.parametrize("cancelled", [True, False])
async def test_the_answer_to_an_older_extension_does_not_move_an_earlier_end(cancelled: bool) -> None:
    """The waiting clients may have read the earlier end by then."""
    async with scene() as stage, no_task_stays():
        lease = await TimedLock(stage.zk, "/t", 5).acquire()
        await until_data(stage.other, lease.path, bool)
        with stage.server.hold_replies("setData", session=stage.zk.session_id, nth=2) as later:
            with stage.server.hold_replies("setData", session=stage.zk.session_id, times=1) as earlier:
                older = asyncio.create_task(lease.extend(9))
                await until(lambda: earlier.hits == 1)
                newer = asyncio.create_task(lease.extend(2))
                await until(lambda: lease.certain_for() <= 2)
                if cancelled:
                    newer.cancel()
            await older
            assert lease.certain_for() <= 2
            if not cancelled:
                await until(lambda: later.hits == 1)
                assert lease.certain_for() <= 2
        assert isinstance(await outcome(newer), asyncio.CancelledError) is cancelled
        assert lease.certain_for() <= 2
        await lease.extend(5)
        assert lease.certain_for() > 2
        await lease.release()


async def test_a_released_lease_cannot_be_extended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(session_timeout=40.0) as stage:
        clock = Clock(monkeypatch)
        lease = await TimedLock(stage.zk, "/t", 5).acquire()
        await lease.release()
        for limit in (5, 0.5):
            with pytest.raises(RuntimeError, match="was released"):
                await lease.extend(limit)
        await clock.passes(1.0)
        assert await lease.lost() is None
        assert not [text for text in caplog.messages if "lost" in text]


@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (float("nan"), ValueError), ("5", TypeError)])
async def test_a_bad_limit_is_refused(bad: Any, error: type[Exception]) -> None:
    async with two_clients() as (zk, other):
        with pytest.raises(error, match="limit"):
            TimedLock(zk, "/t", bad)
        async with TimedLock(other, "/t", 5) as lease:
            with pytest.raises(error, match="limit"):
                await lease.extend(bad)


async def test_an_extension_answered_after_the_old_limit_revives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was suspended, so no timer was due meanwhile; the waiting clients may know only the old limit."""
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    async with scene(session_timeout=40.0) as stage, no_task_stays():
        lease = await TimedLock(stage.zk, "/t", 5.0).acquire()
        await until_data(stage.other, lease.path, bool)
        with stage.server.hold_replies("setData", session=stage.zk.session_id) as extending:
            task = asyncio.create_task(lease.extend(60))
            await extending.until_hit()
            slept += 6.0
        with pytest.raises(LockLostError, match="its time limit has passed"):
            await task
        assert lease.certain_for() == 0
        await lease.release()


@in_virtual_time
async def test_an_extension_is_not_repeated_after_the_old_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is suspended while the first try is refused."""
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    async with virtual_time.a_client() as (server, zk):
        lease = await TimedLock(zk, "/t", 20.0).acquire()
        await server.until("setData")  # it has written its limit
        server.names()

        def strike(wire: virtual_time.Wire, sent: virtual_time.Sent) -> int | None:
            nonlocal slept
            if sent.name != "setData":
                return None
            slept += 30.5
            return zkwire.ThrottledError.code

        server.strike = strike
        with pytest.raises(LockLostError, match="its time limit has passed"):
            await lease.extend(30.0)
        assert server.names().count("setData") == 1
        await lease.release()


async def test_a_limit_that_the_server_refuses_is_a_loss() -> None:
    async with two_clients() as (zk, other):
        perms = zkwire.Perms.READ | zkwire.Perms.CREATE | zkwire.Perms.DELETE
        lease = await TimedLock(zk, "/t", 5, acl=[zkwire.ACL(perms, "world", "anyone")]).acquire()
        assert "the ACL does not allow the operation" in str(await lease.lost())
        await lease.release()
        await until_line(other, "/t", 0)


# -- waiting clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        lambda zk: Lock(zk, "/t"),
        lambda zk: TimedLock(zk, "/t", 5),
        lambda zk: ReadWriteLock(zk, "/t").read(),
        lambda zk: ReadWriteLock(zk, "/t").write(),
        lambda zk: Semaphore(zk, "/t", 1),
    ],
)
@in_virtual_time
async def test_every_recipe_takes_the_lock_over_after_the_limit(kind: Callable[[Client], Locking[Any]]) -> None:
    async with clients_in_virtual_time() as (zk, other):
        loop = asyncio.get_running_loop()
        began = loop.time()
        node = await hung(other, "/t", 0.2)
        if isinstance(kind(zk), Semaphore):
            await other.set("/t", b"1")
        lease = await kind(zk).acquire(within=10)
        assert loop.time() - began >= 0.2
        assert await other.exists(node) is None
        await lease.release()


async def test_a_ticket_with_a_newer_limit_is_not_deleted_although_the_limit_was_not_read() -> None:
    """The delete names the version that was read."""
    async with scene() as stage:
        node = await hung(stage.other, "/t", 0.1)
        await stage.other.set(node, limit(2, 0.5))
        waiter = asyncio.create_task(Lock(stage.zk, "/t").acquire())
        await until(lambda: watch_count(stage.zk) == 2)
        with stage.server.hold_replies(session=stage.zk.session_id) as blind:
            await stage.other.set(node, limit(3, 60))
            await blind.until_hit()
            with stage.server.delay_replies(0.0, "delete", session=stage.zk.session_id) as deleting:
                await deleting.until_hit()  # the limit that the waiter has read is over
        await stage.zk.ping()
        await until(lambda: watch_count(stage.zk) == 2)
        assert await stage.other.exists(node) is not None
        assert not waiter.done()
        await stage.other.delete(node)
        await (await waiter).release()


async def test_a_waiter_that_may_not_delete_the_holders_node_waits_and_another_refusal_is_raised() -> None:
    acl = [*zkwire.READ_ONLY_ACL, zkwire.ACL(zkwire.Perms.CREATE, "world", "anyone"), zkwire.digest_acl("u", "p")]
    async with scene() as stage:
        await stage.other.add_auth("digest", b"u:p")
        await stage.other.create("/t", acl=acl)
        node = await hung(stage.other, "/t", 0.05)
        with stage.server.delay_replies(0.0, "delete", session=stage.zk.session_id) as deleting:
            waiter = asyncio.create_task(Lock(stage.zk, "/t").acquire())
            await deleting.until_hit()
        await stage.zk.ping()
        assert not waiter.done()
        refusing = stage.server.answering("delete", zkwire.QuotaExceededError, path=node, session=stage.zk.session_id)
        with refusing, pytest.raises(zkwire.QuotaExceededError):
            await Lock(stage.zk, "/t").acquire()
        await stage.other.delete(node)
        (await waiter).check()
