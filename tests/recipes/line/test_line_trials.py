"""Trials of the read/write lock, the semaphore and the lock with a time limit: several processes and a real server.

The kernel is the witness: a reader holds a shared flock on a file, a writer an exclusive one, and a holder of one of n
permits an exclusive one on one of n files.  A holder that finds the file locked has found too many holders at a time.
"""

import asyncio
import fcntl
import random
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import zkwire
from recipes import Lock, LockLostError, ReadWriteLock, Semaphore, TimedLock, WriteLease
from recipes.line.locking import Locking
from tests.support.processes import report, start
from tests.support.recipes import until_line, until_watches
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


@pytest.fixture
def witness(tmp_path: Path) -> str:
    file = tmp_path / "witness"
    file.touch()
    return str(file)


def holds(file: BinaryIO, operation: int) -> bool:
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- readers and writers ----------------------------------------------------------------------------------------------


async def read_and_write(hosts: str, path: str, witness: str, tasks: int, rounds: int, seed: int) -> None:
    """In a process: `tasks` tasks read, write and downgrade at random."""
    rng = random.Random(seed)
    async with zkwire.connect(hosts) as zk:
        rw = ReadWriteLock(zk, path)

        async def use() -> None:
            for _ in range(rounds):
                kind = rng.choice(("read", "read", "write", "downgrade"))
                locking: Locking[Any] = rw.read() if kind == "read" else rw.write()
                with open(witness, "rb") as file:
                    async with locking as lease:
                        if not holds(file, fcntl.LOCK_SH if kind == "read" else fcntl.LOCK_EX):
                            report("overlap", kind=kind, node=lease.path)
                        await asyncio.sleep(rng.uniform(0, 0.004))
                        lease.check()
                        if isinstance(lease, WriteLease) and kind == "downgrade":
                            holds(file, fcntl.LOCK_SH)
                            read = await lease.downgrade()
                            await asyncio.sleep(rng.uniform(0, 0.004))
                            read.check()
                        fcntl.flock(file, fcntl.LOCK_UN)
                    report("served", kind=kind)

        await asyncio.gather(*(use() for _ in range(tasks)))


async def test_twenty_readers_and_writers_are_served(zookeeper: RealServer, path: str, witness: str) -> None:
    """Pitfalls 4, 16 and 21: a writer holds alone, and every contender is served."""
    orders = {"hosts": zookeeper.hosts, "path": path, "witness": witness, "tasks": 5, "rounds": 5}
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        gate = await Lock(zk, path).acquire()
        workers = [await stack.enter_async_context(start(read_and_write, seed=seed, **orders)) for seed in range(4)]
        await until_line(zk, path, 21)
        await gate.release()
        for worker in workers:
            await worker.end()
        assert not [entry for worker in workers for entry in worker.all("overlap")]
        served = [entry["kind"] for worker in workers for entry in worker.all("served")]
        assert len(served) == 4 * 5 * 5
        assert set(served) == {"read", "write", "downgrade"}
        await until_line(zk, path, 0)
        await until_watches(zookeeper, 0)


# -- semaphores -------------------------------------------------------------------------------------------------------


@contextmanager
def one_of(files: list[str], node: str) -> Iterator[None]:
    """Hold one of the files; report when none is free."""
    for name in files:
        with open(name, "rb") as file:
            if holds(file, fcntl.LOCK_EX):
                yield
                return
    report("overlap", node=node)
    yield


async def hold_a_permit(hosts: str, path: str, files: list[str], permits: int, tasks: int, rounds: int) -> None:
    """In a process: `tasks` tasks hold a permit for a moment, `rounds` times."""
    async with zkwire.connect(hosts) as zk:
        semaphore = Semaphore(zk, path, permits)

        async def use() -> None:
            for _ in range(rounds):
                async with semaphore as lease:
                    with one_of(files, lease.path):
                        await asyncio.sleep(random.uniform(0, 0.005))
                        lease.check()
                report("served")

        await asyncio.gather(*(use() for _ in range(tasks)))


async def test_a_semaphore_never_has_more_holders_than_permits(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """Pitfall 21: it also shrinks and grows meanwhile, between 2 and 4 permits."""
    files = [str(tmp_path / f"permit-{number}") for number in range(4)]
    for name in files:
        Path(name).touch()
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        mine = Semaphore(zk, path, 4)
        gate = [await mine.acquire() for _ in range(4)]
        workers = [
            await stack.enter_async_context(
                start(hold_a_permit, hosts=zookeeper.hosts, path=path, files=files, permits=4, tasks=4, rounds=8)
            )
            for _ in range(3)
        ]
        await until_line(zk, path, 16)
        for lease in gate:
            await lease.release()
        for number, permits in enumerate((2, 3, 4, 2, 4)):
            await workers[0].until("served", 3 * (number + 1))
            await mine.resize(permits)
        for worker in workers:
            await worker.end()
            assert len(worker.all("served")) == 32
        assert not [entry for worker in workers for entry in worker.all("overlap")]
        await until_line(zk, path, 0)
        await until_watches(zookeeper, 0)


# -- time limits ------------------------------------------------------------------------------------------------------


async def hold_for_ever(hosts: str, path: str, limit: float) -> None:
    """In a process: promise to be done, and break the promise."""
    async with zkwire.connect(hosts, 30.0) as zk:
        try:
            async with TimedLock(zk, path, limit) as lease:
                await lease.extend(limit)  # returns when the promise is written
                report("acquired", token=lease.token, node=lease.path)
                await asyncio.Event().wait()
        except LockLostError as error:
            report("lost", why=error.why)


async def test_a_process_that_hangs_is_taken_over_before_its_session_ends(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14: and it warnings the loss once it goes on."""
    async with (
        zkwire.connect(zookeeper.hosts) as zk,
        start(hold_for_ever, hosts=zookeeper.hosts, path=path, limit=1.0) as worker,
    ):
        loop = asyncio.get_running_loop()
        held = await worker.until("acquired")
        worker.signal(signal.SIGSTOP)
        began = loop.time()
        lease = await Lock(zk, path).acquire(within=15)
        assert loop.time() - began >= 0.8  # it may have been stopped a little after its promise
        assert lease.token > held["token"]
        assert await zk.exists(held["node"]) is None
        worker.signal(signal.SIGCONT)
        await worker.until("lost")
        await worker.end()
        lease.check()
        await lease.release()
        await until_line(zk, path, 0)
        await until_watches(zookeeper, 0)
