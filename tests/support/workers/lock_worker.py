"""A process that contends for a lock, for tests that need several or one to kill.

While it holds the lock it also holds a flock on a witness file; the kernel releases the flock of a process that is
killed.  A holder that finds the file locked has found two holders at a time.
"""

import asyncio
import fcntl
import random
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Any

import zkwire
from recipes import Lock, LockLostError
from tests.support import processes
from tests.support.processes import Worker, report


@dataclass
class Orders:
    """`tasks` tasks acquire the lock once each and hold it for `hold` seconds (from, to); None: until a loss."""

    hosts: str
    path: str
    witness: str
    hold: tuple[float, float] | None = (0.1, 0.2)
    tasks: int = 1
    timeout: float = 10.0


async def work(**given: Any) -> None:
    """Contend for the lock, according to Orders."""
    orders = Orders(**given)
    async with zkwire.connect(orders.hosts, orders.timeout) as zk:

        async def contend(number: int) -> None:
            try:
                async with Lock(zk, orders.path) as lease:
                    with open(orders.witness, "rb") as witness:
                        try:
                            fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        except BlockingIOError:
                            report("overlap", task=number, node=lease.path)
                        report("acquired", task=number, node=lease.path, token=lease.token)
                        if orders.hold is None:
                            await asyncio.Event().wait()
                        else:
                            await asyncio.sleep(random.uniform(*orders.hold))
                        lease.check()
                        report("releasing", task=number, node=lease.path, token=lease.token)
            except LockLostError as error:
                report("lost", task=number, why=error.why)

        await asyncio.gather(*(contend(number) for number in range(orders.tasks)))


def start(orders: Orders) -> AbstractAsyncContextManager[Worker]:
    """Run a worker; it is killed at the end, whatever happens."""
    return processes.start(work, **asdict(orders))
