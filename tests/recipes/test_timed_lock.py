"""The lock with a time limit: the holder is done by then, or others take over."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes import Lease, Lock, LockLostError, ReadWriteLock, Semaphore, TimedLock
from recipes.line import ticket_data
from recipes.line.locking import Locking
from recipes.line.position import Promises
from recipes.line.ticket_data import TicketData
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, line, no_task_stays, outcome, this_task, until, until_line
from zkwire import Client
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of one server in memory, which keeps no watch at the end."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        yield zk, other
        await no_watch_stays(server.hosts)


async def hung(zk: Client, path: str, seconds: float, prefix: str = "lock-") -> str:
    """The ticket of a holder that has promised, and whose process hangs while its session lives."""
    node = await zk.create(f"{path}/_c_x-{prefix}", ephemeral=True, sequential=True, make_parents=True)
    await zk.set(node, ticket_data.limited(seconds, b"host-7"))
    return node


# -- marks and promises -----------------------------------------------------------------------------------------------


@given(st.floats(0.0001, ticket_data.LONGEST_LIMIT), st.binary(max_size=20))
def test_a_limit_is_read_back_and_never_shorter(seconds: float, data: bytes) -> None:
    written = ticket_data.limited(seconds, data)
    mark = ticket_data.parse(written, 1)
    assert mark is not None
    assert mark.limit is not None
    assert seconds <= mark.limit <= seconds + 0.002
    assert not mark.is_shared
    assert written.endswith(data)


@given(
    st.binary(max_size=60)
    | st.binary().map(ticket_data.shared)
    | st.binary().map(lambda data: ticket_data.limited(1, data))
)
def test_what_a_ticket_was_made_with_is_never_a_mark(data: bytes) -> None:
    assert ticket_data.parse(data, 0) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"zkwire",
        b"zkwire shared",
        b"zkwire limit 1\n",
        b"zkwire limit 1.5\n",
        b"zkwire limit -1.000\n",
        b"zkwire limit nan\n",
        b"zkwire limit 99999999999.000\n",
        b" zkwire shared\n",
        b"host-7\nzkwire shared\n",
    ],
)
def test_other_data_is_no_mark(data: bytes) -> None:
    assert ticket_data.parse(data, 1) is None


@given(
    st.binary(max_size=60)
    | st.binary().map(ticket_data.shared)
    | st.binary().map(lambda data: ticket_data.limited(1, data))
)
def test_what_may_be_written_later_is_never_a_mark(data: bytes) -> None:
    if ticket_data.parse(data, 1) is None:
        assert ticket_data.checked_plain(data) is data
    else:
        with pytest.raises(ValueError, match="zkwire"):
            ticket_data.checked_plain(data)


def test_marks() -> None:
    assert ticket_data.parse(ticket_data.shared(b"x"), 3) == TicketData(is_shared=True)
    assert ticket_data.parse(ticket_data.limited(2.5, b"x"), 3) == TicketData(limit=2.5)


def test_a_promise_counts_from_when_it_was_first_seen() -> None:
    promises = Promises()
    assert promises.next_end is None
    promises.seen("a", 1, 10.0)
    promises.seen("a", 1, 20.0)  # the same, read again after a reconnect
    promises.seen("b", 1, 15.0)
    assert promises.next_end == 10.0
    assert promises.broken(9.9) == []
    assert promises.broken(10.0) == [("a", 1)]
    promises.seen("a", 2, 30.0)
    assert promises.next_end == 15.0
    promises.forget("b")
    promises.forget("b")
    assert promises.broken(30.0) == [("a", 2)]


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


async def test_a_lease_without_a_body_is_told() -> None:
    async with two() as (zk, other):
        lease = await TimedLock(zk, "/t", 0.1).acquire()
        error = await lease.lost()
        assert isinstance(error, LockLostError)
        assert error.why == "its time limit has passed"
        with pytest.raises(LockLostError):
            lease.check()
        with pytest.raises(LockLostError):
            await lease.extend(5)
        await lease.release()
        await until_line(other, "/t", 0)


async def test_a_body_that_is_done_in_time_costs_one_write_more() -> None:
    async with two() as (zk, other):
        async with TimedLock(zk, "/t", 30, data=b"host-7") as lease:
            await until_data(other, lease.path, lambda data: data.endswith(b"host-7") and len(data) > 6)
            mark = ticket_data.parse((await other.get(lease.path)).data, 1)
            assert mark is not None
            assert mark.limit is not None
            assert 29 < mark.limit <= 30.001
            lease.check()
        assert await line(other, "/t") == []


async def until_data(zk: Client, path: str, condition: Callable[[bytes], bool]) -> None:
    async def fits() -> bool:
        return condition((await zk.get(path)).data)

    await until(fits)


async def test_what_it_costs(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path, container=True)
        mark = proxy.mark()
        async with TimedLock(zk, path, 5) as lease:
            assert proxy.segments(mark) == 1  # it does not wait for its promise
            await proxy.until(lambda: proxy.requests(mark) == ["create2", "getChildren", "setData"])
            await lease.extend(5)
        assert proxy.requests(mark) == ["create2", "getChildren", "setData", "setData", "delete"]


async def test_extending_a_limit() -> None:
    async with two() as (zk, other):
        loop = asyncio.get_running_loop()
        lease = await TimedLock(zk, "/t", 0.7).acquire()
        end = loop.time() + 0.8
        while loop.time() < end:
            await lease.extend(0.7)
            await asyncio.sleep(0.05)
        lease.check()
        await lease.extend(60)
        assert lease.certain_for() > 5  # as long as the session is certain
        await lease.extend(0.05)  # and shorter
        assert lease.certain_for() <= 0.05
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()
        await until_line(other, "/t", 0)


async def test_until_an_extension_is_known_the_old_limit_counts() -> None:
    """Whoever waits may have seen the old one only, and may be quicker."""
    async with scene() as stage:
        lease = await TimedLock(stage.zk, "/t", 0.5).acquire()
        await until_data(stage.other, lease.path, bool)
        with stage.server.hold_replies("setData", session=stage.zk.session_id):
            tasks = [asyncio.create_task(lease.extend(60)) for _ in range(2)]
            lost = await lease.lost()
            assert isinstance(lost, LockLostError)
            async with asyncio.timeout(3):  # although no answer has come, nor has the connection been given up
                assert [await outcome(task) for task in tasks] == [lost, lost]
        await lease.release()


async def test_an_extension_of_what_is_released_meanwhile() -> None:
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


async def test_a_body_that_extends_in_vain_is_cancelled_once() -> None:
    """What ends the extension and what ends the body come in one step."""
    async with scene() as stage, no_task_stays():
        with body_raises(LockLostError, match="its time limit has passed"):
            async with TimedLock(stage.zk, "/t", 0.5) as lease:
                await until_data(stage.other, lease.path, bool)
                stage.server.pause()
                await lease.extend(60)
        assert this_task().cancelling() == 0
        stage.server.resume()


@pytest.mark.parametrize("cancelled", [True, False])
async def test_an_earlier_end_is_not_put_off_by_the_answer_to_an_older_extension(cancelled: bool) -> None:
    """Whoever waits may have seen the earlier one by then."""
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


async def test_an_extension_of_what_is_released() -> None:
    async with two() as (zk, _):
        lease = await TimedLock(zk, "/t", 5).acquire()
        await lease.release()
        with pytest.raises(RuntimeError, match="was released"):
            await lease.extend(5)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), 1e10])
async def test_a_limit_out_of_range(bad: float) -> None:
    async with two() as (zk, other):
        with pytest.raises(ValueError, match="a limit is more than 0"):
            TimedLock(zk, "/t", bad)
        async with TimedLock(other, "/t", 5) as lease:
            with pytest.raises(ValueError, match="a limit is more than 0"):
                await lease.extend(bad)


@pytest.mark.parametrize("bad", [True, "5", None])
async def test_a_limit_of_a_wrong_type(bad: Any) -> None:
    async with two() as (zk, _):
        with pytest.raises(TypeError, match="a limit is a number of seconds"):
            TimedLock(zk, "/t", bad)


async def test_a_promise_that_is_refused_is_a_loss() -> None:
    async with two() as (zk, other):
        perms = zkwire.Perms.READ | zkwire.Perms.CREATE | zkwire.Perms.DELETE
        lease = await TimedLock(zk, "/t", 5, acl=[zkwire.ACL(perms, "world", "anyone")]).acquire()
        error = await lease.lost()
        assert isinstance(error, LockLostError)
        assert "the ACL does not allow it" in error.why
        await lease.release()
        await until_line(other, "/t", 0)


# -- those who wait ---------------------------------------------------------------------------------------------------


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
async def test_whoever_waits_takes_over_after_the_limit(kind: Callable[[Client], Locking[Any]]) -> None:
    async with two() as (zk, other):
        loop = asyncio.get_running_loop()
        began = loop.time()
        node = await hung(other, "/t", 0.2)
        if isinstance(kind(zk), Semaphore):
            await other.set("/t", b"1")
        lease = await kind(zk).acquire(within=10)
        assert loop.time() - began >= 0.2
        assert await other.exists(node) is None
        await lease.release()


async def test_who_promises_anew_is_waited_for(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        loop = asyncio.get_running_loop()
        node = await hung(other, path, 0.5)
        waiter = asyncio.create_task(Lock(zk, path).acquire())
        for _ in range(7):
            await asyncio.sleep(0.1)
            await other.set(node, ticket_data.limited(0.5, b""))
        assert not waiter.done()
        last = loop.time()
        lease = await waiter
        assert loop.time() - last >= 0.5
        await lease.release()


async def test_a_promise_that_is_taken_back_is_none() -> None:
    async with two() as (zk, other):
        node = await hung(other, "/t", 0.5)
        waiter = asyncio.create_task(Lock(zk, "/t").acquire(within=0.8))
        await other.set(node, b"")
        assert isinstance(await outcome(waiter), TimeoutError)
        assert await other.exists(node) is not None


async def test_a_newer_version_is_not_removed_though_it_was_not_seen() -> None:
    """The holder is quicker by an instant: the version tells."""
    async with scene() as stage:
        node = await hung(stage.other, "/t", 0.1)
        await stage.other.set(node, ticket_data.limited(0.5, b""))
        waiter = asyncio.create_task(Lock(stage.zk, "/t").acquire())
        await until(lambda: len(stage.zk._session.watches) == 2)
        with stage.server.hold_replies(session=stage.zk.session_id) as blind:
            await stage.other.set(node, ticket_data.limited(60, b""))
            await blind.until_hit()  # it asks for the removal of what it has seen
        await stage.zk.ping()
        await until(lambda: len(stage.zk._session.watches) == 2)
        assert not waiter.done()
        await stage.other.delete(node)
        await (await waiter).release()


async def test_a_takeover_over_a_new_session() -> None:
    """Pitfall 17."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        node = await hung(other, "/t", 0.3)
        waiter = asyncio.create_task(Lock(zk, "/t").acquire(within=10))
        await until_line(other, "/t", 2)
        server.expire(zk.session_id)
        await (await waiter).release()
        assert await other.exists(node) is None


async def test_no_more_than_two_take_over() -> None:
    """No herd: those who stand further behind do not look at the holder."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        clients = [await stack.enter_async_context(zkwire.connect(server.hosts)) for _ in range(4)]
        node = await hung(clients[0], "/t", 0.3)
        tasks = []
        for number, zk in enumerate(clients[1:]):
            tasks.append(asyncio.create_task(Lock(zk, "/t").acquire()))
            await until_line(clients[0], "/t", number + 2)
        with server.delay_replies(0.0, "delete") as deletes:
            await (await tasks[0]).release()
            assert deletes.hits <= 3  # two at the most of the holder's node, and the release
        assert await clients[0].exists(node) is None
        for task in tasks[1:]:
            await (await task).release()


# -- cuts and cancellations -------------------------------------------------------------------------------------------


async def hold(stage: Scene) -> None:
    async with TimedLock(stage.zk, stage.path, 20) as lease:
        await lease.extend(10)
        lease.check()


async def hand_over(stage: Scene) -> None:
    first = await Lock(stage.other, stage.path).acquire()
    task = asyncio.create_task(TimedLock(stage.zk, stage.path, 20).acquire())
    await until_line(stage.other, stage.path, 2)
    await first.release()
    lease = await task
    await lease.extend(10)
    await lease.release()


async def pass_ticket(stage: Scene) -> None:
    node = await hung(stage.other, stage.path, 0.02)
    lease = await Lock(stage.zk, stage.path).acquire()
    lease.check()
    assert await stage.other.exists(node) is None
    await lease.release()


@pytest.mark.parametrize("play", [hold, hand_over, pass_ticket])
async def test_it_is_cut_at_every_step(play: Any) -> None:
    """Pitfalls 1, 10, 13 and 20: the promise whose answer was lost is made again."""
    await cut_at_every_step(play, at_least=4)


async def test_it_is_cancelled_at_every_moment() -> None:
    """Pitfalls 9, 10 and 11."""
    await cancel_at_every_moment(hold, afterwards=hold)


async def test_a_takeover_is_cancelled_at_every_moment() -> None:
    """Pitfalls 10 and 11."""
    nodes: list[str] = []

    async def prepare(stage: Scene) -> None:
        nodes[:] = [await hung(stage.other, stage.path, 0.0005)]

    async def acquire(stage: Scene) -> None:
        await (await Lock(stage.zk, stage.path).acquire()).release()

    async def clear(stage: Scene) -> None:
        if await stage.other.exists(nodes[0]) is not None:
            await stage.other.delete(nodes[0])
        await acquire(stage)

    await cancel_at_every_moment(acquire, prepare=prepare, afterwards=clear, most=60)


async def test_an_extension_is_cancelled_at_every_moment() -> None:
    """Pitfall 11: the earlier of the two ends counts, and the lease is let go as ever."""
    held: list[Any] = []

    async def prepare(stage: Scene) -> None:
        held[:] = [await TimedLock(stage.zk, stage.path, 20).acquire()]

    async def extend(stage: Scene) -> None:
        await held[0].extend(30)

    async def see(stage: Scene) -> None:
        lease: Lease = held[0]
        lease.check()
        await lease.release()
        await hold(stage)

    async with no_task_stays():
        await cancel_at_every_moment(extend, prepare=prepare, afterwards=see)
