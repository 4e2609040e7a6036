"""Nodes in a line that are no tickets, or that a client must not read: the line goes round them, and reports them."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore, TimedLock
from recipes.line.locking import Locking
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, scene
from tests.support.locks import start_waiting, watch_count
from tests.support.recipes import line, no_task_stays, proxied, two_clients, until, until_line
from zkwire import ACL, Client, Perms
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(40)

Make = Callable[[Client, str], Locking[Any]]

KINDS: dict[str, Make] = {
    "lock": lambda zk, path: Lock(zk, path),
    "read lock": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write lock": lambda zk, path: ReadWriteLock(zk, path).write(),
    "read lock that yields": lambda zk, path: ReadWriteLock(zk, path, prefer="writers").read(),
    "write lock that yields": lambda zk, path: ReadWriteLock(zk, path, prefer="readers").write(),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1),
    "election": lambda zk, path: Election(zk, path),
    "timed lock": lambda zk, path: TimedLock(zk, path, 60),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())

UNREADABLE = [ACL(Perms.ALL & ~Perms.READ, "world", "anyone")]


async def stranger(zk: Client, path: str, **options: Any) -> str:
    """Create a node that looks like a ticket, and is not ephemeral unless `options` say so; return its path."""
    await zk.ensure_path(path)
    if (await zk.get(path)).data != b"1":
        await zk.set(path, b"1")  # the number of permits, for a semaphore
    return await zk.create(f"{path}/_c_x-lock-", sequential=True, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that recipes have logged."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and record.name.startswith("recipes")
    ]


# -- not ephemeral ----------------------------------------------------------------------------------------------------


@every_kind
async def test_a_node_that_is_not_ephemeral_does_not_keep_a_lock(
    zookeeper: RealServer, path: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_clients(zookeeper) as (zk, other), no_task_stays():
        nodes = [await stranger(other, path), await stranger(other, path, data=b"x")]
        for _ in range(2):
            async with make(zk, path).hold(within=10) as lease:
                lease.check()
        assert {*await line(other, path)} - {"writers"} == {node.rpartition("/")[2] for node in nodes}
        for node in nodes:
            (warned,) = [text for text in warnings(caplog) if node in text]  # once
            assert "is not ephemeral" in warned


@every_kind
async def test_callers_that_do_not_wait_get_the_lock_at_the_second_try(
    zookeeper: RealServer, path: str, make: Make
) -> None:
    """The first try must not pay for a read: in general a holder is what it meets."""
    async with two_clients(zookeeper) as (zk, other):
        await stranger(other, path)
        for is_first in (True, False):
            lease = await make(zk, path).try_acquire()
            assert is_first or lease is not None
            if lease is not None:
                await lease.release()
        async with make(zk, path).hold(within=0):
            pass


async def test_tries_of_a_held_lock_read_its_holder_once(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, zk, trying):
        holder = await Lock(zk, path).acquire()
        mark = proxy.mark()
        for _ in range(4):
            assert await Lock(trying, path).try_acquire() is None
        assert proxy.requests(mark).count("getData") == 1
        await holder.release()


async def test_a_try_of_a_semaphore_does_not_count_such_a_node_behind_a_holder(
    zookeeper: RealServer, path: str
) -> None:
    """The first blocker is a ticket all the while; the second one only looks like one."""
    async with two_clients(zookeeper) as (zk, other):
        holder = await Semaphore(other, path, 2).acquire()
        await zk.create(f"{path}/stranger-", sequential=True)
        assert await Semaphore(zk, path, 2).try_acquire() is None
        for _ in range(2):
            lease = await Semaphore(zk, path, 2).try_acquire()
            assert lease is not None
            assert await Semaphore(zk, path, 2).try_acquire() is None
            await lease.release()
        await holder.release()


async def test_tries_of_a_held_semaphore_read_each_holder_once(
    zookeeper: RealServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(zookeeper) as (proxy, zk, trying):
        monkeypatch.setattr(trying, "unique_id", lambda: "g")  # comes after all names of others
        holders = [await Semaphore(zk, path, 2).acquire() for _ in range(2)]
        mark = proxy.mark()
        for _ in range(4):
            assert await Semaphore(trying, path, 2).try_acquire() is None
        assert proxy.requests(mark).count("getData") == 4 + 2  # the number of permits in each try
        for holder in holders:
            await holder.release()


async def test_the_hand_over_behind_such_a_node_sends_nothing(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, zk, behind):
        node = await stranger(zk, path)
        holder = await Lock(zk, path).acquire()
        waiter = await start_waiting(behind, Lock(behind, path), 3)
        await until(lambda: watch_count(behind) == 3)
        mark = proxy.mark()
        await holder.release()
        lease = await waiter
        assert proxy.requests(mark) == []
        lease.check()
        assert await zk.exists(node) is not None
        await lease.release()


async def test_such_nodes_that_come_and_go_in_the_line_change_nothing() -> None:
    async with scene() as stage:
        holder = await Lock(stage.other, stage.path).acquire()
        nodes = [await stranger(stage.other, stage.path) for _ in range(3)]
        waiter = await start_waiting(stage.zk, Lock(stage.zk, stage.path), 5)
        await stage.other.set(nodes[2], b"changed")
        await stage.other.delete(nodes[1])
        await stage.zk.ping()
        assert not waiter.done()
        await holder.release()
        lease = await waiter
        lease.check()
        await lease.release()


async def test_a_semaphore_does_not_count_such_nodes(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other), no_task_stays():
        first = await Semaphore(zk, path, 2).acquire()
        await zk.create(f"{path}/stranger-", sequential=True)
        second = await Semaphore(other, path, 2).acquire(within=10)
        third = await start_waiting(other, Semaphore(other, path, 2), 4)
        await other.ping()
        assert not third.done()
        await first.release()
        await (await third).release()
        await second.release()


async def test_a_ticket_with_the_name_of_such_a_node_counts(zookeeper: RealServer, path: str) -> None:
    """When the lock's node is deleted and made anew, its numbers begin again."""
    async with two_clients(zookeeper) as (zk, other):
        node = await stranger(other, path)
        for _ in range(2):
            async with Lock(zk, path).hold(within=10):
                pass
        assert await Lock(zk, path).try_acquire() is not None
        await other.delete_tree(path)
        await other.create(path)
        assert await other.create(f"{path}/_c_x-lock-", sequential=True, ephemeral=True) == node
        for _ in range(3):
            assert await Lock(zk, path).try_acquire() is None
        waiter = await start_waiting(zk, Lock(zk, path), 2)
        await zk.ping()
        assert not waiter.done()
        await other.delete(node)
        await (await waiter).release()


async def test_going_round_survives_a_cut_and_a_cancellation_at_every_step() -> None:
    """Pitfalls 9, 10 and 13."""

    async def prepare(stage: Scene) -> None:
        await stranger(stage.other, stage.path)

    async def act(stage: Scene) -> None:
        assert await Lock(stage.zk, stage.path).try_acquire() is None
        async with Lock(stage.zk, stage.path).hold(within=0):
            pass
        async with Lock(stage.zk, stage.path):
            pass

    async def play(stage: Scene) -> None:
        await prepare(stage)
        await act(stage)

    stays = ["_c_x-lock-0000000000"]
    await cut_at_every_step(play, stays=stays, at_least=7)
    await cancel_at_every_moment(act, prepare=prepare, stays=stays)


async def test_an_election_shows_no_such_nodes(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        await stranger(other, path, data=b"false")
        term = await Election(zk, path, b"true").acquire(within=10)
        assert await Election(other, path).candidates() == [b"true"]
        async with Election(other, path).observe() as leaders:
            assert await anext(leaders) == b"true"
            await term.set(b"truer")
            assert await anext(leaders) == b"truer"
            await term.resign()
            assert await anext(leaders) is None


# -- not to be read ---------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("is_ephemeral", [True, False])
async def test_a_node_that_must_not_be_read_is_waited_for(
    zookeeper: RealServer, path: str, make: Make, is_ephemeral: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a ticket, so no client owns before it is gone; the servers report its departure to no client."""
    async with two_clients(zookeeper) as (zk, other), no_task_stays():
        node = await stranger(other, path, acl=UNREADABLE, ephemeral=is_ephemeral)
        lock = make(zk, path)
        assert await lock.try_acquire() is None
        waiters = [asyncio.create_task(make(zk, path).acquire(within=30)) for _ in range(3)]
        await until(lambda: any(node in text for text in warnings(caplog)))
        await zk.ping()
        assert not any(waiter.done() for waiter in waiters)
        await other.delete(node)
        await release_all(waiters)
        assert len([text for text in warnings(caplog) if node in text]) == 1


async def release_all(waiters: Collection[asyncio.Task[Any]]) -> None:
    """Release the leases of all waiters, in the order in which they get them."""
    pending = set(waiters)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for waiter in done:
            waiter.result().check()
            await waiter.result().release()


async def test_a_hand_over_in_a_line_with_such_a_node_is_noticed(zookeeper: RealServer, path: str) -> None:
    """The departures of the others are events as always, and those that look ahead list the line."""
    async with two_clients(zookeeper) as (zk, other), no_task_stays():
        first = await Lock(other, path).acquire()
        node = await stranger(other, path, acl=UNREADABLE, ephemeral=True)
        waiters = [await start_waiting(zk, Lock(zk, path), number) for number in (3, 4, 5)]
        await first.release()
        await until_line(other, path, 4)
        await zk.ping()
        assert not any(waiter.done() for waiter in waiters)
        last = await start_waiting(zk, Lock(zk, path), 5)
        await other.delete(node)
        await release_all([*waiters, last])
        assert await line(other, path) == []


async def test_waiting_for_such_a_node_survives_a_cut_and_a_cancellation_at_every_step() -> None:
    """Pitfalls 9, 10, 12 and 13."""

    async def prepare(stage: Scene) -> None:
        await stranger(stage.other, stage.path, acl=UNREADABLE, ephemeral=True)

    async def act(stage: Scene) -> None:
        await (await Lock(stage.zk, stage.path).acquire()).release()

    async def afterwards(stage: Scene) -> None:
        await stage.other.delete(f"{stage.path}/_c_x-lock-0000000000")
        await act(stage)

    async def play(stage: Scene) -> None:
        await prepare(stage)
        waiter = asyncio.create_task(act(stage))
        await until_line(stage.other, stage.path, 2)
        await until(lambda: watch_count(stage.zk) == 2)  # its own node and the children
        await stage.other.delete(f"{stage.path}/_c_x-lock-0000000000")
        await waiter

    await cut_at_every_step(play, at_least=6)
    await cancel_at_every_moment(act, prepare=prepare, afterwards=afterwards, most=60)


async def test_a_line_whose_children_must_not_be_listed_is_an_error(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        await other.create(path, acl=UNREADABLE)
        with pytest.raises(zkwire.NoAuthError):
            await Lock(zk, path).acquire()


async def test_a_candidate_that_must_not_be_read_is_an_error_for_observers(zookeeper: RealServer, path: str) -> None:
    """Its data is what they ask for."""
    async with two_clients(zookeeper) as (zk, other):
        await stranger(other, path, acl=UNREADABLE, ephemeral=True)
        with pytest.raises(zkwire.NoAuthError):
            await Election(zk, path).candidates()
        async with Election(zk, path).observe() as leaders:
            with pytest.raises(zkwire.NoAuthError):
                await anext(leaders)
