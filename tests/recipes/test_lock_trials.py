"""Trials of the fair lock: several processes and a real server, which are stopped, killed and restarted."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError
from tests.support.processes import Worker
from tests.support.recipes import expire, line, until, until_line, until_watches
from tests.support.workers.lock_worker import Orders, start
from zkwire import SessionState, sequence
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


@pytest.fixture
def witness(tmp_path: Path) -> str:
    file = tmp_path / "witness"
    file.touch()
    return str(file)


@asynccontextmanager
async def gate(server: RealServer, path: str) -> AsyncIterator[tuple[zkwire.Client, Lease]]:
    """A client, and a lease for which all workers wait until it is released."""
    async with zkwire.connect(server.hosts, session_timeout=10.0) as zk:
        yield zk, await Lock(zk, path).acquire()


def served(workers: list[Worker]) -> list[dict[str, Any]]:
    """Return the reports of acquiring, in the order of time; check that leases do not overlap and that tokens grow."""
    assert not [entry for worker in workers for entry in worker.all("overlap")]
    entries = sorted((e for w in workers for e in w.all("acquired")), key=lambda e: float(e["at"]))
    ends = sorted((e for w in workers for e in w.all("releasing")), key=lambda e: float(e["at"]))
    for begin, end, following in zip(entries, ends, entries[1:], strict=False):
        assert begin["node"] == end["node"]
        assert begin["task"] == end["task"]
        assert end["at"] <= following["at"]
    tokens = [entry["token"] for entry in entries]
    assert tokens == sorted(tokens)
    return entries


async def test_four_workers_with_a_bound_are_each_alone_in_turn(zookeeper: RealServer, path: str, witness: str) -> None:
    async with AsyncExitStack() as stack:
        orders = Orders(zookeeper.hosts, path, witness, within=10.0)
        workers = [await stack.enter_async_context(start(orders)) for _ in range(4)]
        for worker in workers:
            await worker.end()
        entries = served(workers)
        assert {entry["pid"] for entry in entries} == {worker.pid for worker in workers}
        assert len({entry["token"] for entry in entries}) == len(entries) == 4


@pytest.mark.limit(90)
async def test_fifty_contenders_are_served_once_in_the_order_of_their_tickets(
    zookeeper: RealServer, path: str, witness: str
) -> None:
    """Pitfall 21."""
    async with gate(zookeeper, path) as (zk, lease), AsyncExitStack() as stack:
        orders = Orders(zookeeper.hosts, path, witness, tasks=10)
        workers = [await stack.enter_async_context(start(orders)) for _ in range(5)]
        tickets = await until_line(zk, path, 51, limit=30)
        await lease.release()
        for worker in workers:
            await worker.end()
        entries = served(workers)
        assert [entry["node"] for entry in entries] == [f"{path}/{ticket}" for ticket in tickets[1:]]
        assert len({entry["token"] for entry in entries}) == 50
        assert await line(zk, path) == []


@pytest.mark.parametrize("passes", [0, 2])
async def test_tasks_that_share_a_lock_and_several_processes_at_once(
    zookeeper: RealServer, path: str, witness: str, passes: int
) -> None:
    async with gate(zookeeper, path) as (zk, lease), AsyncExitStack() as stack:
        counter = await zk.create(f"{path}-counter", b"0")
        orders = Orders(
            zookeeper.hosts,
            path,
            witness,
            hold=(0.0, 0.01),
            tasks=4,
            rounds=5,
            shared=True,
            local_passes=passes,
            counter=counter,
        )
        workers = [await stack.enter_async_context(start(orders)) for _ in range(3)]
        await until_line(zk, path, 4)  # one ticket for each process, however many tasks it has
        for worker in workers:
            await worker.until("connected")
        assert len(await line(zk, path)) == 4
        await lease.release()
        for worker in workers:
            await worker.end()
        entries = served(workers)
        assert len(entries) == 3 * 4 * 5
        for worker in workers:
            assert [sum(e["task"] == task for e in worker.all("acquired")) for task in range(4)] == [5] * 4
        assert (
            await zk.get(counter)
        ).data == b"60"  # each holder reads and writes it without a version, so an overlap would show
        runs = [len({entry["task"] for entry in entries if entry["token"] == e["token"]}) for e in entries]
        assert max(runs) == passes + 1
        assert await line(zk, path) == []


async def test_a_crash_of_the_holder_frees_the_lock_after_the_session_timeout(
    zookeeper: RealServer, path: str, witness: str
) -> None:
    loop = asyncio.get_running_loop()
    async with zkwire.connect(zookeeper.hosts) as zk:
        async with start(Orders(zookeeper.hosts, path, witness, hold=None, timeout=1.0)) as worker:
            held = await worker.until("acquired")
            waiter = asyncio.create_task(Lock(zk, path).acquire(within=20))
            await until_line(zk, path, 2)
            assert await Lock(zk, path).try_acquire() is None
            worker.signal(signal.SIGKILL)
            killed = loop.time()
            lease = await waiter
            # Not earlier: the last request of the holder may be a quarter of the timeout old; a tick is half a second.
            assert 0.5 <= loop.time() - killed <= 5.0
            assert lease.token > held["token"]
            await lease.release()
        await until_line(zk, path, 0)


async def test_a_crash_of_a_waiter_does_not_stop_the_line(zookeeper: RealServer, path: str, witness: str) -> None:
    async with gate(zookeeper, path) as (zk, lease):
        async with start(Orders(zookeeper.hosts, path, witness, timeout=1.0)) as worker:
            await until_line(zk, path, 2)
            behind = asyncio.create_task(Lock(zk, path).acquire(within=20))
            await until_line(zk, path, 3)
            worker.signal(signal.SIGKILL)
            await lease.release()  # the next ticket is that of a dead process
            await (await behind).release()
        await until_line(zk, path, 0)


async def test_a_holder_that_slept_past_its_session_notices_the_loss(
    zookeeper: RealServer, path: str, witness: str
) -> None:
    """Pitfalls 14 and 63: the process is stopped, its session expires, another client owns; then it goes on."""
    async with (
        zkwire.connect(zookeeper.hosts) as zk,
        start(Orders(zookeeper.hosts, path, witness, hold=None, timeout=1.0)) as worker,
    ):
        held = await worker.until("acquired")
        worker.signal(signal.SIGSTOP)
        lease = await Lock(zk, path).acquire(within=20)
        worker.signal(signal.SIGCONT)
        await worker.until("lost")
        await worker.end()
        lease.check()
        assert lease.token > held["token"]
        assert await line(zk, path) == [lease.path.rpartition("/")[2]]
        await lease.release()


async def test_a_waiter_that_slept_past_its_session_takes_a_new_ticket(
    zookeeper: RealServer, path: str, witness: str
) -> None:
    """Pitfalls 12, 13 and 17: it has slept through the hand-over, too, and must not own by its old ticket."""
    async with gate(zookeeper, path) as (zk, lease):
        async with start(Orders(zookeeper.hosts, path, witness, timeout=1.0)) as worker:
            old = (await until_line(zk, path, 2))[1]
            await until_watches(zookeeper, 3)
            worker.signal(signal.SIGSTOP)
            await until_line(zk, path, 1)  # its session is over
            await lease.release()
            other = await Lock(zk, path).acquire(within=10)
            worker.signal(signal.SIGCONT)
            new = (await until_line(zk, path, 2))[1]
            assert new != old
            assert not worker.all("acquired")
            await other.release()
            assert (await worker.until("acquired"))["node"] == f"{path}/{new}"
            await worker.end()
        assert await line(zk, path) == []


async def test_waiters_that_sleep_for_less_than_their_session_lose_nothing(
    zookeeper: RealServer, path: str, witness: str
) -> None:
    """Pitfall 17: the hand-over comes while they are stopped."""
    async with gate(zookeeper, path) as (zk, lease), AsyncExitStack() as stack:
        orders = Orders(zookeeper.hosts, path, witness, timeout=8.0)
        workers = []
        for number in range(3):
            workers.append(await stack.enter_async_context(start(orders)))
            await until_line(zk, path, number + 2)
        tickets = await line(zk, path)
        await until_watches(zookeeper, 9)
        for worker in workers:
            worker.signal(signal.SIGSTOP)
        await lease.release()
        for worker in reversed(workers):
            worker.signal(signal.SIGCONT)
        for worker in workers:
            await worker.end()
        assert [entry["node"] for entry in served(workers)] == [f"{path}/{ticket}" for ticket in tickets[1:]]
        assert not [worker for worker in workers if worker.all("lost")]


async def test_crashes_at_any_moment_do_not_stop_the_others(zookeeper: RealServer, path: str, witness: str) -> None:
    """Pitfalls 10, 17 and 20: holders and waiters are killed; the others are served, one at a time."""
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        orders = Orders(zookeeper.hosts, path, witness, hold=(0.0, 0.01), rounds=40, timeout=1.0)
        lasting = [await stack.enter_async_context(start(orders)) for _ in range(2)]
        doomed = [await stack.enter_async_context(start(orders)) for _ in range(3)]
        for number, worker in enumerate(doomed):
            await worker.until("acquired", 3 + 4 * number)
            worker.signal(signal.SIGKILL)
        for worker in lasting:
            await worker.end()
            assert len(worker.all("acquired")) == 40
        assert not [entry for worker in (*lasting, *doomed) for entry in worker.all("overlap")]
        await until_line(zk, path, 0)


async def test_a_restart_of_the_server_keeps_the_lease_and_the_order(zookeeper_own: RealServer, path: str) -> None:
    """Pitfalls 1 and 2."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(zkwire.connect(zookeeper_own.hosts, session_timeout=12.0)) for _ in range(5)
        ]
        zk = clients[0]
        lease = await Lock(zk, path).acquire()
        tasks: list[asyncio.Task[Lease]] = []
        for number, client in enumerate(clients[1:]):
            tasks.append(asyncio.create_task(Lock(client, path).acquire()))
            await until_line(zk, path, number + 2)
        tickets = await line(zk, path)
        await until_watches(zookeeper_own, 12)
        losing = asyncio.create_task(lease.lost())
        await asyncio.gather(*(client.ping() for client in clients))
        zookeeper_own.kill()
        await until(lambda: all(client.state is SessionState.SUSPENDED for client in clients))
        lease.check()
        await zookeeper_own.start()
        await asyncio.gather(*(client.ping() for client in clients))
        lease.check()
        assert not losing.done()
        assert await line(zk, path) == tickets
        assert not any(task.done() for task in tasks)
        await until_watches(zookeeper_own, 12)
        await lease.release()
        assert await losing is None
        for task, ticket in zip(tasks, tickets[1:], strict=True):
            following = await task
            assert following.path == f"{path}/{ticket}"
            assert following.is_certain()
            await following.release()
        assert await line(zk, path) == []


async def test_a_release_while_the_server_is_down_is_carried_out_later(zookeeper_own: RealServer, path: str) -> None:
    """Pitfalls 3, 10 and 22: release returns once it was carried out."""
    async with (
        zkwire.connect(zookeeper_own.hosts, session_timeout=4.0) as zk,
        zkwire.connect(zookeeper_own.hosts, session_timeout=4.0) as other,
    ):
        lease = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(other, path).acquire())
        await until_watches(zookeeper_own, 3)
        zookeeper_own.kill()
        releasing = asyncio.create_task(lease.release())
        await until(lambda: other.state is SessionState.SUSPENDED)
        assert not waiter.done()
        await zookeeper_own.start()
        await releasing
        await (await waiter).release()
        assert await line(zk, path) == []


async def test_expiry_while_waiting_and_while_holding(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 13 and 14."""
    async with (
        gate(zookeeper, path) as (zk, lease),
        zkwire.connect(zookeeper.hosts, session_timeout=1.0) as short,
    ):
        bodies: list[Lease] = []
        entered = asyncio.Event()

        async def use() -> None:
            async with Lock(short, path).hold(within=30) as mine:
                bodies.append(mine)
                entered.set()
                await asyncio.Event().wait()

        using = asyncio.create_task(use())
        old = (await until_line(zk, path, 2))[1]
        await until_watches(zookeeper, 3)
        await expire(zookeeper, short)
        new = (await until_line(zk, path, 2))[1]
        await until(lambda: short.state is SessionState.CONNECTED)
        assert new != old
        await lease.release()
        await entered.wait()
        assert bodies[0].path == f"{path}/{new}"
        await expire(zookeeper, short)
        with pytest.raises(LockLostError):
            await using
        assert len(bodies) == 1
        number = sequence(new)
        assert number is not None
        async with Lock(short, path).hold(within=30) as again:
            later = sequence(again.path)
            assert later is not None
            assert later > number
