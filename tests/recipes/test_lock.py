"""The fair lock against a real server: every form of use, and the frames that it costs, as a proxy sees them."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError, ReentrantLock
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.waiting_ticket import Rules, WaitingTicket
from tests.support.everywhere import scene
from tests.support.proxy import Proxy
from tests.support.recipes import (
    all_watches,
    expire,
    line,
    no_task_stays,
    outcome,
    until,
    until_armed,
    until_line,
    until_watches,
)
from zkwire import AuthFailedError, SessionClosedError, SessionError, SessionExpiredError, SessionState
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(20)


def asked(proxy: Proxy, path: str, since: int, direction: str = "request") -> list[str]:
    """What was asked from `since` on: to "list" the line, to "watch" one of its nodes, or else by its name."""
    kinds = []
    for frame in proxy.log[since:]:
        if frame.direction == direction and frame.opcode in ("getData", "getChildren"):
            kinds.append("list" if frame.path == path else "watch")
        elif frame.direction == direction and frame.opcode != "ping":
            kinds.append(frame.opcode)
    return kinds


# -- every form of use ------------------------------------------------------------------------------------------------


async def test_a_lock_as_context(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        async with lock as lease:
            assert lock.path == path
            assert await line(zk, path) == [lease.path.rpartition("/")[2]]
            stat = await zk.exists(lease.path)
            assert stat is not None
            assert stat.ephemeral_owner == zk.session_id
            assert lease.token == stat.czxid
            assert lease.is_certain()
        assert await line(zk, path) == []
        async with lock:  # and again
            assert len(await line(zk, path)) == 1
        assert await line(zk, path) == []


async def test_hold_acquire_and_try_acquire(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock, other = Lock(zk, path), Lock(zk, path)
        async with lock.hold(within=5) as lease:
            assert lease.is_certain()
            assert await other.try_acquire() is None
        lease = await lock.acquire(within=5)
        assert await other.try_acquire() is None
        await lease.release()
        tried = await other.try_acquire()
        assert tried is not None
        assert tried.is_certain()
        assert await lock.try_acquire() is None
        await tried.release()
        assert await line(zk, path) == []


async def test_a_lock_below_a_chroot_and_below_the_root(zookeeper: RealServer, path: str) -> None:
    async with (
        zkwire.connect(zookeeper.hosts) as whole,
        zkwire.connect(f"{zookeeper.hosts}{path}") as zk,
        zkwire.connect(f"{zookeeper.hosts}{path}") as zk2,
    ):
        lease = await Lock(zk, "/").acquire()
        waiter = asyncio.create_task(Lock(zk2, "/").acquire())
        await until_line(whole, path, 2)
        assert lease.path.startswith("/_c_")
        await lease.release()
        await (await waiter).release()
        async with Lock(zk, "/deep/er/lock") as lease:
            assert lease.path.startswith("/deep/er/lock/_c_")
            assert await line(whole, f"{path}/deep/er/lock") == [lease.path.rpartition("/")[2]]


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_chroot_is_made_over_lost_connections(is_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 20: whichever of the creates it is that is cut off."""
    monkeypatch.setattr("zkwire.session.hosts._FIRST_PAUSE", 0.001)
    for nth in itertools.count(1):
        async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app/x") as zk:
            drop = stage.server.drop_before if is_before else stage.server.drop_after
            with drop("create", session=zk.session_id, nth=nth) as cut:
                lease = await Lock(zk, "/l").acquire()
                lease.check()
            assert await line(stage.other, "/app/x/l") == [lease.path.rpartition("/")[2]]
            await lease.release()
        if not cut.hits:
            assert nth > 6
            break


async def test_data_and_names_are_as_other_clients_expect(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, Lock(zk, path, data=b"host-7:4711") as lease:
        data, _ = await zk.get(lease.path)
        assert data == b"host-7:4711"
        prefix, unique, number = lease.path.rpartition("/")[2].partition("_c_")[2].partition("-lock-")
        assert (len(prefix), unique, len(number)) == (36, "-lock-", 10)


@pytest.mark.parametrize("foreign", ["lock-", "7f__lock__", "__READ__", ""])
async def test_any_sequential_child_is_a_contender_and_nothing_else_is(
    zookeeper: RealServer, path: str, foreign: str
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        await zk.create(path)
        await zk.create(f"{path}/config")
        node = await other.create(f"{path}/{foreign}", ephemeral=True, sequential=True)
        assert await Lock(zk, path).try_acquire() is None
        waiter = asyncio.create_task(Lock(zk, path).acquire())
        await until_watches(zookeeper, 2)
        await other.delete(node)
        await (await waiter).release()
        assert await zk.get_children(path) == ["config"]


async def test_the_parent_is_a_container_below_persistent_ones(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, Lock(zk, f"{path}/a/b"):
        made = [f for f in proxy.log if f.direction == "reply" and f.opcode.startswith("create") and not f.err]
        assert [frame.path for frame in made[:-1]] == [path, f"{path}/a", f"{path}/a/b"]
        assert [frame.opcode == "createContainer" for frame in made] == [False, False, True, False]


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", ["", "locks", "/a//b", "/a/../b", "/a/./b", "/a/", "/a\x00b", "/a\ud800", "/a\x07", "//", "/.."]
)
async def test_bad_paths_are_refused_and_nothing_is_sent(zookeeper: RealServer, bad: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        for kind in (Lock, ReentrantLock):
            with pytest.raises(ValueError) as error:  # noqa: PT011
                kind(zk, bad)
            assert repr(bad) in str(error.value)
        await zk.ping()
        assert proxy.requests(mark) == []


@pytest.mark.parametrize("bad", [-1, -0.001, float("nan"), float("-inf")])
async def test_bad_bounds_are_refused_and_nothing_is_sent(zookeeper: RealServer, path: str, bad: float) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        for lock in (Lock(zk, path), ReentrantLock(zk, path)):
            with pytest.raises(ValueError, match=f"not {bad!r}"):
                await lock.acquire(within=bad)
            with pytest.raises(ValueError, match=f"not {bad!r}"):
                lock.hold(within=bad)
        await zk.ping()
        assert proxy.requests(mark) == []


@pytest.mark.parametrize("bad", ["5", True, b"1"])
async def test_bounds_of_a_wrong_type(zookeeper: RealServer, path: str, bad: Any) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        with pytest.raises(TypeError, match="within"):
            await Lock(zk, path).acquire(within=bad)


async def test_bad_local_passes(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        with pytest.raises(ValueError, match="-1"):
            Lock(zk, path, local_passes=-1)


async def test_a_path_that_is_no_str(zookeeper: RealServer) -> None:
    wrong: Any = b"/locks"
    async with zkwire.connect(zookeeper.hosts) as zk:
        with pytest.raises(TypeError, match="bytes"):
            Lock(zk, wrong)


# -- frames -----------------------------------------------------------------------------------------------------------


async def test_uncontended_acquire_and_release_are_two_writes(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path, container=True)
        mark = proxy.mark()
        lease = await Lock(zk, path).acquire()
        assert proxy.requests(mark) == ["create2", "getChildren"]
        assert proxy.segments(mark) == 1
        await lease.release()
        assert proxy.requests(mark) == ["create2", "getChildren", "delete"]
        assert proxy.segments(mark) == 2
        assert proxy.events(mark) == []


async def test_the_same_as_context_and_by_trying(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path, container=True)
        for lock in (Lock(zk, path), ReentrantLock(zk, path)):
            mark = proxy.mark()
            async with lock:
                pass
            async with lock.hold(within=5):
                pass
            lease = await lock.try_acquire()
            assert lease is not None
            await lease.release()
            assert proxy.requests(mark) == ["create2", "getChildren", "delete"] * 3
            assert proxy.segments(mark) == 6


async def test_a_missing_parent_costs_one_round_trip_more(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        async with Lock(zk, f"{path}/lock"):
            paths = [frame.path for frame in proxy.log[mark:] if frame.direction == "request"]
            ticket = paths[0]
            assert paths == [ticket, f"{path}/lock", path, f"{path}/lock", ticket, f"{path}/lock"]
            assert proxy.segments(mark) == 2


async def test_a_waiter_watches_itself_first_and_all_in_one_write(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        first = await Lock(zk, path).acquire()
        second = asyncio.create_task(Lock(zk, path).acquire())
        nodes = await until_line(zk, path, 2)
        mark = proxy.mark()
        third = asyncio.create_task(Lock(zk2, path).acquire())
        nodes = await until_line(zk, path, 3)
        await proxy.until(lambda: len(proxy.requests(mark)) >= 5)
        assert asked(proxy, path, mark) == ["create2", "list", "watch", "watch", "watch"]
        frames = [frame for frame in proxy.log[mark:] if frame.direction == "request"]
        assert [frame.path.rpartition("/")[2] for frame in frames[2:]] == [nodes[2], nodes[0], nodes[1]]
        assert len({frame.write for frame in frames[2:]}) == 1
        assert proxy.segments(mark) == 2
        await first.release()
        await (await second).release()
        await (await third).release()


async def test_the_hand_over_to_an_armed_waiter_sends_nothing(zookeeper: RealServer, path: str) -> None:
    """Pitfall 19: the watches are not set with exists."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        first = await Lock(zk, path).acquire()
        mark = proxy.mark()
        waiter = asyncio.create_task(Lock(zk2, path).acquire())
        await proxy.until(lambda: asked(proxy, path, mark, "reply").count("watch") == 2)
        mark = proxy.mark()
        await first.release()
        lease = await waiter
        assert proxy.requests(mark) == []
        assert proxy.events(mark) == [("NodeDeleted", first.path)]
        await lease.release()
        assert proxy.requests(mark) == ["delete"]
        assert "exists" not in proxy.requests()


async def test_a_departure_is_heard_by_at_most_two_waiters(zookeeper: RealServer, path: str) -> None:
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(zookeeper.hosts)) for _ in range(6)]
        clients = [await stack.enter_async_context(zkwire.connect(proxy.hosts)) for proxy in proxies]
        watching = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        waiting: list[asyncio.Task[Lease]] = []
        for number, zk in enumerate(clients):
            waiting.append(asyncio.create_task(Lock(zk, path).acquire()))
            await until_line(watching, path, number + 1)
        # One in the middle goes, and one that was next; then the line moves to its end.
        for number in (3, 1):
            await until_watches(zookeeper, all_watches(len(waiting)))
            gone = (await line(watching, path))[number]
            marks = [proxy.mark() for proxy in proxies]
            waiting.pop(number).cancel()
            await until_line(watching, path, len(waiting))
            await asyncio.gather(*(zk.ping() for zk in clients))
            heard = [
                event
                for proxy, mark in zip(proxies, marks, strict=True)
                for event in proxy.events(mark)
                if event == ("NodeDeleted", f"{path}/{gone}")
            ]
            assert 1 <= len(heard) <= 3  # two waiters, and perhaps the one that left
        while waiting:
            # The holder's own node is not watched yet or already, its look-ahead may be under way: settle.
            await asyncio.gather(*(zk.ping() for zk in clients))
            marks = [proxy.mark() for proxy in proxies]
            holder = waiting.pop(0)
            lease = await holder
            own = clients.index(lease._zk)
            await lease.release()
            if waiting:
                await asyncio.wait([waiting[0]])
            await asyncio.gather(*(zk.ping() for zk in clients))
            told = {
                number
                for number, (proxy, mark) in enumerate(zip(proxies, marks, strict=True))
                if number != own and ("NodeDeleted", lease.path) in proxy.events(mark)
            }
            assert len(told) <= 2
            assert not waiting or told


async def test_the_next_owner_goes_on_ahead_of_all_that_its_client_has_to_do(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        order = []
        lease = await Lock(zk, path).acquire()
        _, watch = await zk2.get_and_watch(lease.path)

        async def plainly() -> None:
            await watch
            order.append("watch")

        async def owning() -> None:
            next_lease = await Lock(zk2, path).acquire()
            order.append("owner")
            await next_lease.release()
            order.append("released")

        async with asyncio.TaskGroup() as group:
            group.create_task(plainly())
            group.create_task(owning())
            await until_armed(3, zk2)
            await lease.release()
        assert order == ["owner", "watch", "released"]
        assert await line(zk, path) == []
        assert len(zk2._session.watches) == 0


async def test_waiters_look_ahead_at_their_leisure(zookeeper: RealServer, path: str) -> None:
    """When the one before the one before goes, the list is read then, and not at the hand-over."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        leases = [await Lock(zk, path).acquire()]
        tasks = [asyncio.create_task(Lock(zk, path).acquire())]
        await until_line(zk, path, 2)
        tasks.append(asyncio.create_task(Lock(zk, path).acquire()))
        await until_line(zk, path, 3)
        waiter = asyncio.create_task(Lock(zk2, path).acquire())
        await until_armed(all_watches(4), zk, zk2)
        mark = proxy.mark()
        tasks[0].cancel()  # second of four: the fourth learns of it and looks
        await proxy.until(lambda: "watch" in asked(proxy, path, mark, "reply"))
        assert asked(proxy, path, mark) == ["list", "watch"]
        mark = proxy.mark()
        await leases[0].release()
        third = await tasks[1]
        await zk2.ping()
        assert proxy.requests(mark) == []  # it watched those two already, and is armed without a look
        await third.release()
        await (await waiter).release()
        assert proxy.requests(mark) == ["delete"]
        assert isinstance(await outcome(tasks[0]), asyncio.CancelledError)


# -- fencing tokens ---------------------------------------------------------------------------------------------------


async def test_tokens_grow_also_across_deletion_of_the_parent(zookeeper: RealServer, path: str) -> None:
    """Pitfall 18: that the parent is removed is nothing special."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        tokens = []
        for number in range(6):
            async with Lock((zk, other)[number % 2], path) as lease:
                tokens.append(lease.token)
            if number % 2:
                await zk.delete(path)
        assert tokens == sorted(set(tokens))


# -- bounds -----------------------------------------------------------------------------------------------------------


async def test_within_names_path_and_bound_and_leaves_nothing(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 8 and 10."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        async with Lock(zk, path) as lease:
            own = lease.path.rpartition("/")[2]
            await until_watches(zookeeper, 1)  # the holder's guard is up
            for within in (0.15, 0.0, 0):
                async with no_task_stays():
                    with pytest.raises(TimeoutError, match=f"{path} was not free within {within} s"):
                        await Lock(zk2, path).acquire(within=within)
                assert await until_line(zk, path, 1) == [own]
                with pytest.raises(TimeoutError, match=f"{path} was not free within {within} s"):
                    async with Lock(zk2, path).hold(within=within):
                        raise AssertionError("the body must not run")
            await until_line(zk, path, 1)
        await until_watches(zookeeper, 0)


async def test_the_whole_wait_is_counted_once(zookeeper: RealServer, path: str) -> None:
    """Pitfall 8: neither a wake-up, nor the turn in the local queue, nor a lost session begins the count anew."""
    loop = asyncio.get_running_loop()
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        first = await Lock(zk, path).acquire()
        shared = Lock(zk2, path)
        head = asyncio.create_task(shared.acquire())
        await until_line(zk, path, 2)
        start = loop.time()
        waiter = asyncio.create_task(shared.acquire(within=0.6))
        # Someone before it leaves every now and then, which wakes it; and it moves from one queue to the other.
        between = [asyncio.create_task(Lock(zk, path).acquire()) for _ in range(3)]
        await until_line(zk, path, 5)
        head.cancel()
        await until_line(zk, path, 5)
        for task in between:
            await asyncio.sleep(0.1)
            task.cancel()
        with pytest.raises(TimeoutError, match=r"within 0\.6 s"):
            await waiter
        assert 0.59 <= loop.time() - start < 3
        await until_line(zk, path, 1)
        await first.release()
        await asyncio.wait([head, *between])


async def test_within_does_not_bound_the_body(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        async with Lock(zk, path).hold(within=0.1) as lease:
            await asyncio.sleep(0.2)
            lease.check()
        assert await line(zk, path) == []


async def test_a_timeout_around_and_one_within(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2, Lock(zk, path):
        with pytest.raises(TimeoutError) as error:
            async with asyncio.timeout(0.1):
                await Lock(zk2, path).acquire(within=30)
        assert "was not free" not in str(error.value)
        await until_line(zk, path, 1)


# -- trying -----------------------------------------------------------------------------------------------------------


async def test_trying_leaves_no_node_and_does_not_wait(zookeeper: RealServer, path: str) -> None:
    """Pitfall 3."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        lease = await Lock(zk, path).acquire()
        mark = proxy.mark()
        assert await Lock(zk2, path).try_acquire() is None
        assert proxy.requests(mark) == ["create2", "getChildren", "delete"]
        assert await line(zk, path) == [lease.path.rpartition("/")[2]]
        await lease.release()


async def test_trying_while_a_task_of_ours_holds_or_waits_sends_nothing(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        shared = Lock(zk2, path)
        lease = await shared.acquire()
        mark = proxy.mark()
        assert await shared.try_acquire() is None
        assert proxy.requests(mark) == []
        await lease.release()
        other = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(shared.acquire())
        await until_line(zk, path, 2)
        await until_watches(zookeeper, 3)
        mark = proxy.mark()
        assert await shared.try_acquire() is None
        assert proxy.requests(mark) == []
        await other.release()
        await (await waiter).release()


async def test_trying_over_a_cut_connection_leaves_no_node(zookeeper: RealServer, path: str) -> None:
    """Pitfall 3: the clean-up's connection is lost, and the node goes all the same."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        lease = await Lock(zk, path).acquire()
        cut = proxy.cut_before("delete")
        assert await Lock(zk2, path).try_acquire() is None
        assert cut.done()
        assert await line(zk, path) == [lease.path.rpartition("/")[2]]
        await lease.release()


# -- the local queue --------------------------------------------------------------------------------------------------


async def test_tasks_that_share_a_lock_queue_in_order_with_one_node(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        served: list[int] = []
        inside = 0

        async def worker(number: int) -> None:
            nonlocal inside
            async with lock:
                inside += 1
                served.append(number)
                assert inside == 1
                assert len(await line(zk, path)) == 1
                inside -= 1

        await asyncio.gather(*(worker(number) for number in range(12)))
        assert served == list(range(12))
        assert await line(zk, path) == []


async def test_release_gives_the_other_processes_their_turn_first(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        lock, other = Lock(zk, path), Lock(zk2, path)
        served: list[str] = []

        async def worker(lock: Lock, name: str) -> None:
            async with lock:
                served.append(name)

        lease = await lock.acquire()
        local = [asyncio.create_task(worker(lock, "local")) for _ in range(2)]
        remote = asyncio.create_task(worker(other, "remote"))
        await until_line(zk, path, 2)
        await lease.release()
        await asyncio.gather(*local, remote)
        assert served == ["remote", "local", "local"]


@pytest.mark.parametrize("passes", [1, 2, 5])
async def test_local_passes(zookeeper: RealServer, path: str, passes: int) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as zk2,
    ):
        lock, other = Lock(zk, path, local_passes=passes), Lock(zk2, path)
        served: list[tuple[str, int]] = []

        async def worker(lock: Lock, name: str) -> None:
            async with lock as lease:
                lease.check()
                served.append((name, lease.token))

        lease = await lock.acquire()
        local = [asyncio.create_task(worker(lock, "local")) for _ in range(4)]
        remote = asyncio.create_task(worker(other, "remote"))
        await until_line(zk2, path, 2)
        mark = proxy.mark()
        await lease.release()
        assert proxy.requests(mark).count("delete") == 0
        await asyncio.gather(*local, remote)
        first = min(passes, 4)
        assert [name for name, _ in served] == ["local"] * first + ["remote"] + ["local"] * (4 - first)
        assert [token for _, token in served[:first]] == [lease.token] * first
        assert await line(zk, path) == []


async def test_a_lease_that_was_passed_on_is_guarded(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        lock = Lock(zk, path, local_passes=3)
        lease = await lock.acquire()
        bodies = 0

        async def worker() -> None:
            nonlocal bodies
            async with lock as passed:
                bodies += 1
                assert passed.token == lease.token
                await other.delete(passed.path)
                await asyncio.Event().wait()

        task = asyncio.create_task(worker())
        await until_watches(zookeeper, 1)  # the first lease is guarded by now
        await lease.release()
        with pytest.raises(LockLostError, match="somebody else has deleted it"):
            await task
        assert bodies == 1
        await (await lock.acquire(within=5)).release()


async def test_a_place_that_is_passed_on_all_the_time_is_watched_a_tenth_of_a_second_after_it_was_taken() -> None:
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path, local_passes=10**6)
        tokens: set[int] = set()

        async def user() -> None:
            while True:
                async with lock as lease:
                    tokens.add(lease.token)
                    await stage.zk.ping()

        users = [asyncio.create_task(user()) for _ in range(3)]
        await until_armed(1, stage.zk)
        (ticket,) = await line(stage.other, stage.path)
        assert len(tokens) == 1
        await stage.other.delete(f"{stage.path}/{ticket}")
        _, others = await asyncio.wait(users, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        came = [await outcome(one) for one in users]
        assert [one for one in came if isinstance(one, LockLostError)], came
        await until_line(stage.other, stage.path, 0)


async def test_local_waiters_may_be_cancelled(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        for victim in range(4):
            lease = await lock.acquire()
            waiters = [asyncio.create_task(lock.acquire()) for _ in range(4)]
            await until(lambda: len(lock._local_queue._waiting) == 4)
            waiters[victim].cancel()
            await lease.release()  # in the same turn of the loop, before the waiter knows of it
            for number, waiter in enumerate(waiters):
                got = await outcome(waiter)
                if number == victim:
                    assert isinstance(got, asyncio.CancelledError), repr(got)
                else:
                    assert isinstance(got, Lease), repr(got)
                    await got.release()
            assert await line(zk, path) == []


@pytest.mark.parametrize("passes", [0, 3])
async def test_a_turn_that_comes_together_with_a_cancellation_is_passed_on(
    zookeeper: RealServer, path: str, passes: int
) -> None:
    """Pitfall 9: the lock is as good as before."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path, local_passes=passes)
        lease = await lock.acquire()
        waiters = [asyncio.create_task(lock.acquire()) for _ in range(3)]
        await until(lambda: len(lock._local_queue._waiting) == 3)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0)  # the turn is given to the first, who does not know yet
        waiters[0].cancel()
        await releasing
        assert isinstance(await outcome(waiters[0]), asyncio.CancelledError)
        for waiter in waiters[1:]:
            await (await waiter).release()
        await until_line(zk, path, 0)
        async with lock:
            pass


async def test_a_standing_that_nobody_takes_is_dropped(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path, local_passes=3)
        lease = await lock.acquire()
        waiter = asyncio.create_task(lock.acquire())
        await until(lambda: len(lock._local_queue._waiting) == 1)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0)
        waiter.cancel()
        await releasing
        assert isinstance(await outcome(waiter), asyncio.CancelledError)
        await until_line(zk, path, 0)
        async with lock.hold(within=5):
            pass


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_closed_client_refuses_at_once(zookeeper: RealServer, path: str) -> None:
    """Pitfall 6."""
    zk = await zkwire.connect(zookeeper.hosts)
    lock, reentrant = Lock(zk, path), ReentrantLock(zk, path)
    await zk.close()
    for verb in (lock.acquire, lock.try_acquire, reentrant.acquire, reentrant.try_acquire):
        with pytest.raises(SessionClosedError):
            await verb()
    with pytest.raises(SessionClosedError):
        async with lock:
            raise AssertionError("the body must not run")


async def test_closing_the_client_ends_every_wait(zookeeper: RealServer, path: str) -> None:
    """Pitfall 6: also for those who wait already, in either queue."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2, Lock(zk, path):
        shared = Lock(zk2, path)
        waiters = [asyncio.create_task(shared.acquire()) for _ in range(3)]
        await until_line(zk, path, 2)
        await until_watches(zookeeper, 3)
        await zk2.close()
        for waiter in waiters:
            with pytest.raises(SessionClosedError):
                await waiter
        await until_line(zk, path, 1)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [("close", SessionClosedError), ("expire", SessionExpiredError), ("refuse", AuthFailedError)],
)
async def test_the_end_of_the_session_ends_the_waits_for_a_lease_that_nobody_releases(
    ends: str, expected: type[SessionError]
) -> None:
    """Pitfall 6: it is lost, but its owner has not released it."""
    async with Server() as server, no_task_stays():
        zk = await zkwire.connect(server.hosts, renew=False)
        lock = Lock(zk, "/l")
        lease = await lock.acquire()
        waiters = [asyncio.create_task(lock.acquire(within=5)) for _ in range(3)]
        await until(lambda: len(lock._local_queue._waiting) == 3)
        if ends == "close":
            await zk.close()
        elif ends == "expire":
            server.expire(zk.session_id)
        else:
            await outcome(zk.add_auth("nonsense", b""))
        waiters[1].cancel()
        came = [await outcome(waiter) for waiter in waiters]
        assert {type(error) for error in came} <= {expected, asyncio.CancelledError}, came
        assert type(came[0]) is type(came[2]) is expected
        assert came[0] is not came[2]
        for verb in (lock.acquire, lock.try_acquire):
            with pytest.raises(expected):
                await verb()
        await lease.release()
        assert lock._local_queue.is_free
        await zk.close()


async def test_a_session_that_expires_while_waiting_enters_anew(zookeeper: RealServer, path: str) -> None:
    """Pitfall 17."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        holder = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(zk2, path).acquire(within=30))
        old = (await until_line(zk, path, 2))[1]
        await until_watches(zookeeper, 3)
        session = zk2.session_id
        await expire(zookeeper, zk2)
        await until(lambda: zk2.session_id not in (0, session))
        new = (await until_line(zk, path, 2))[1]
        assert new != old
        await holder.release()
        lease = await waiter
        assert lease.path == f"{path}/{new}"
        await lease.release()


async def test_a_session_that_expires_while_waiting_is_bounded(zookeeper: RealServer, path: str) -> None:
    """Pitfall 8: entering anew does not begin the count anew."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        async with Lock(zk, path):
            waiter = asyncio.create_task(Lock(zk2, path).acquire(within=0.8))
            await until_line(zk, path, 2)
            proxy.refuse()
            await expire(zookeeper, zk2)
            with pytest.raises(TimeoutError, match=r"within 0\.8 s"):
                await waiter
            await until_line(zk, path, 1)
            proxy.accept()
        async with Lock(zk2, path).hold(within=15):
            assert len(await line(zk, path)) == 1


async def test_without_renewal_an_expired_session_ends_the_wait(zookeeper: RealServer, path: str) -> None:
    async with (
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(zookeeper.hosts, renew=False) as zk2,
        Lock(zk, path),
    ):
        shared = Lock(zk2, path)
        waiters = [asyncio.create_task(shared.acquire()) for _ in range(2)]
        await until_line(zk, path, 2)
        await until_watches(zookeeper, 3)
        await expire(zookeeper, zk2)
        for waiter in waiters:
            with pytest.raises(SessionExpiredError):
                await waiter
        assert zk2.state is SessionState.EXPIRED
        with pytest.raises(SessionExpiredError):
            await shared.acquire()
        with pytest.raises(SessionExpiredError):
            await shared.try_acquire()
        await until_line(zk, path, 1)


async def test_a_place_of_a_former_session_is_no_place(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 12, 13 and 17: the node of another session than the present one makes no owner, and nobody waits
    for ever to become certain of it."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path)
        node, stat = await zk.create_and_stat(f"{path}/lock-", ephemeral=True, sequential=True)
        name = node.rpartition("/")[2]
        former = TicketNode(node, name, stat.czxid, zk.session_id ^ 1)
        waiting = WaitingTicket(zk, Rules(path), Ticket(former, zk.removal(node)), [[name]])
        came = await outcome(asyncio.wait_for(waiting.wait(), 3))
        assert isinstance(came, Exception)
        assert not isinstance(came, TimeoutError)


# -- what others do to our nodes --------------------------------------------------------------------------------------


async def test_a_waiter_that_somebody_deletes_enters_anew(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        holder = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(zk2, path).acquire(within=30))
        old = (await until_line(zk, path, 2))[1]
        await zk.delete(f"{path}/{old}")
        await until_line(zk, path, 2)
        await holder.release()
        lease = await waiter
        assert not lease.path.endswith(old)
        assert (await line(zk, path)) == [lease.path.rpartition("/")[2]]
        await lease.release()


async def test_a_change_of_data_does_not_blind_a_waiter_to_its_own_loss(zookeeper: RealServer, path: str) -> None:
    """A change of its data uses up the watch on its own node; it is deleted then; then its predecessor goes."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        holder = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(zk2, path).acquire(within=30))
        old = (await until_line(zk, path, 2))[1]
        await until_watches(zookeeper, 3)
        await zk.set(f"{path}/{old}", b"a note")
        await until_watches(zookeeper, 3)
        await zk.delete(f"{path}/{old}")
        await until_line(zk, path, 2)
        await holder.release()
        lease = await waiter
        assert not lease.path.endswith(old)
        await lease.release()


async def test_nor_if_it_hears_of_all_that_at_once() -> None:
    """The watch on its own node is not set again before its predecessor is told to have gone."""
    async with scene() as stage:
        server, other = stage.server, stage.other
        holder = await Lock(other, stage.path).acquire()
        waiter = asyncio.create_task(Lock(stage.zk, stage.path).acquire(within=30))
        old = (await until_line(other, stage.path, 2))[1]
        await until_armed(2, stage.zk)
        third = asyncio.create_task(Lock(other, stage.path).acquire(within=30))
        await until_line(other, stage.path, 3)
        with server.hold_replies(session=stage.zk.session_id):
            await other.set(f"{stage.path}/{old}", b"a note")
            await other.delete(f"{stage.path}/{old}")
            await holder.release()
            lease = await third
        await until_line(other, stage.path, 2)  # it has entered anew
        assert not waiter.done()
        lease.check()
        await lease.release()
        following = await waiter
        assert not following.path.endswith(old)
        await following.release()


async def test_a_change_of_data_of_a_blocker_does_not_blind_a_waiter(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        holder = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(zk2, path).acquire(within=30))
        await until_line(zk, path, 2)
        for note in (b"a", b"b", b"c"):
            await until_watches(zookeeper, 3)
            await zk.set(holder.path, note)
        await holder.release()
        await (await waiter).release()


async def test_the_whole_line_is_deleted(zookeeper: RealServer, path: str) -> None:
    """Pitfall 18: nodes and parent go while some hold and wait; the parent is made anew."""
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        clients = [await stack.enter_async_context(zkwire.connect(zookeeper.hosts)) for _ in range(4)]
        holder = await Lock(clients[0], path).acquire()
        waiters = [asyncio.create_task(Lock(zk_, path).acquire(within=30)) for zk_ in clients[1:]]
        await until_line(zk, path, 4)
        async with zk.transaction() as transaction:
            for name in await zk.get_children(path):
                transaction.delete(f"{path}/{name}")
            transaction.delete(path)
        assert isinstance(await holder.lost(), LockLostError)
        pending = set(waiters)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            leases = [waiter.result() for waiter in done]
            # Who hears of the holder's end before its own, of the same transaction, owns for that moment and no longer.
            assert sum(lease.is_certain() for lease in leases) <= 1
            for lease in leases:
                await lease.release()
        await until_line(zk, path, 0)


async def test_no_permission_is_told_and_leaves_nothing(zookeeper: RealServer, path: str) -> None:
    """Pitfall 9: a lock whose acquire failed is as good as before."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path, acl=zkwire.READ_ONLY_ACL)
        lock = Lock(zk, path)
        for _ in range(2):
            with pytest.raises(zkwire.NoAuthError):
                await lock.acquire(within=5)
            with pytest.raises(zkwire.NoAuthError):
                await lock.try_acquire()
        with pytest.raises(zkwire.NoAuthError):
            await Lock(zk, f"{path}/below").acquire(within=5)
        assert await line(zk, path) == []


async def test_a_parent_that_is_ephemeral_is_told_of(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path, ephemeral=True)
        with pytest.raises(zkwire.NoChildrenForEphemeralsError, match=path):
            await Lock(zk, path).acquire(within=5)
        with pytest.raises(zkwire.NoChildrenForEphemeralsError, match=path):
            await Lock(zk, f"{path}/a/b").acquire(within=5)
