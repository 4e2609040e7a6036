"""A process that keeps trying for a lock, for a trial; a flock is the witness.

The kernel releases a flock when its process is killed.  A holder that finds the flock taken reports an overlap: the
lock has two holders at once.
"""

import asyncio
import fcntl
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zkwire
from recipes import LockLostError, TryLock
from tests.support.processes import report


@contextmanager
def witnessed(folder: str, names: Iterable[str]) -> Iterator[None]:
    """Hold the flock of each name; report an overlap for those that are taken."""
    with ExitStack() as stack:
        for name in names:
            file = stack.enter_context(open(Path(folder) / name, "ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("overlap", name=name)
        yield


async def keep_trying(hosts: str, path: str, folder: str, tasks: int, times: int, timeout: float) -> None:
    """Try for one lock until each of several tasks of one client has held it `times` times."""
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
