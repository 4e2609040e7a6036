"""Trials of the fair lock: several processes and a real server, which are stopped, killed and restarted."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock
from tests.support.processes import Worker
from tests.support.recipes import line, until, until_line, until_watches
from tests.support.workers.lock_worker import Orders, start
from zkwire import SessionState
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


@pytest.fixture
def witness(tmp_path: Path) -> str:
    file = tmp_path / "witness"
    file.touch()
    return str(file)


def reports(workers: list[Worker], event: str) -> list[dict[str, Any]]:
    """Return their reports of an event, in the order of time."""
    return sorted((each for worker in workers for each in worker.all(event)), key=lambda each: float(each["at"]))


async def test_fifty_contenders_are_served_once_in_their_order(zookeeper: RealServer, path: str, witness: str) -> None:
    """Pitfall 21."""
    async with zkwire.connect(zookeeper.hosts) as zk, AsyncExitStack() as stack:
        lease = await Lock(zk, path).acquire()
        orders = Orders(zookeeper.hosts, path, witness, hold=(0.0, 0.01), tasks=10)
        workers = [await stack.enter_async_context(start(orders)) for _ in range(5)]
        tickets = await until_line(zk, path, 51, limit=30)
        await lease.release()
        for worker in workers:
            await worker.end()
        entries = reports(workers, "acquired")
        assert [entry["node"] for entry in entries] == [f"{path}/{ticket}" for ticket in tickets[1:]]
        assert [entry["token"] for entry in entries] == sorted({entry["token"] for entry in entries})
        for end, following in zip(reports(workers, "releasing"), entries[1:], strict=False):
            assert end["at"] <= following["at"]
        assert not reports(workers, "overlap")
        assert await line(zk, path) == []


async def test_a_holder_that_slept_too_long_notices_the_loss(zookeeper: RealServer, path: str, witness: str) -> None:
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


async def test_a_restart_of_the_server_keeps_the_lease_and_the_order(zookeeper_own: RealServer, path: str) -> None:
    """Pitfalls 1 and 2."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(zkwire.connect(zookeeper_own.hosts, session_timeout=20.0)) for _ in range(5)
        ]
        zk = clients[0]
        lease = await Lock(zk, path).acquire()
        tasks: list[asyncio.Task[Lease]] = []
        for number, client in enumerate(clients[1:]):
            tasks.append(asyncio.create_task(Lock(client, path).acquire()))
            await until_line(zk, path, number + 2)
        tickets = await line(zk, path)
        await until_watches(zookeeper_own, 12)
        await asyncio.gather(*(client.ping() for client in clients))
        zookeeper_own.kill()
        await until(lambda: all(client.state is SessionState.SUSPENDED for client in clients))
        lease.check()
        await zookeeper_own.start()
        await asyncio.gather(*(client.ping() for client in clients))
        lease.check()
        assert await line(zk, path) == tickets
        await until_watches(zookeeper_own, 12)
        await lease.release()
        for task, ticket in zip(tasks, tickets[1:], strict=True):
            following = await task
            assert following.path == f"{path}/{ticket}"
            assert following.is_certain()
            await following.release()
        assert await line(zk, path) == []
