"""Processes that take several locks at once, or try for one, for trials; while they hold, they hold a flock for each.

The kernel takes a flock back from a process that is killed: to find it taken is to have seen two holders at a time.
"""

import asyncio
import fcntl
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zkwire
from recipes import Lock, LockLostError, MultiLock, TryLock
from tests.support.processes import report


@contextmanager
def witnessed(folder: str, names: Iterable[str]) -> Iterator[None]:
    """Hold the witness of each name; report those that are taken."""
    with ExitStack() as stack:
        for name in names:
            file = stack.enter_context(open(Path(folder) / name, "ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("overlap", name=name)
        yield


async def take_many(hosts: str, path: str, folder: str, tasks: int, rounds: int) -> None:
    """In a process: take random sets of locks in random orders, as several tasks of one client."""
    async with zkwire.connect(hosts, 10.0) as zk:

        async def play() -> None:
            for _ in range(rounds):
                names = random.sample("abcdef", random.randint(2, 4))
                async with MultiLock([Lock(zk, f"{path}/{name}") for name in names]).hold(within=30) as lease:
                    with witnessed(folder, names):
                        await asyncio.sleep(0.001)
                        lease.check()
                        report("held", tokens=lease.tokens)

        await asyncio.gather(*(play() for _ in range(tasks)))


async def keep_trying(hosts: str, path: str, folder: str, tasks: int, times: int, timeout: float) -> None:
    """In a process: try until it was held so many times by each of several tasks of one client."""
    async with zkwire.connect(hosts, timeout) as zk:

        async def play() -> None:
            held = 0
            while held < times:
                try:
                    lease = await TryLock(zk, path).try_acquire()
                    if lease is None:
                        await asyncio.sleep(random.uniform(0, 0.01))
                        continue
                    with witnessed(folder, ["the-one"]):
                        report("held", tokens={path: lease.token})
                        await asyncio.sleep(0.001)
                        lease.check()
                    held += 1
                    await lease.release()
                except LockLostError:
                    report("lost")

        await asyncio.gather(*(play() for _ in range(tasks)))
