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
    """`tasks` tasks acquire the lock `rounds` times each and hold it for `hold` seconds (from, to); None: until a loss.

    `shared`: the tasks share one Lock object; `counter`: a node whose number each holder increments, without a version.
    """

    hosts: str
    path: str
    witness: str
    hold: tuple[float, float] | None = (0.1, 0.2)
    tasks: int = 1
    rounds: int = 1
    shared: bool = False
    local_passes: int = 0
    within: float | None = None
    timeout: float = 10.0
    counter: str | None = None


async def work(**given: Any) -> None:
    """Contend for the lock, according to Orders."""
    orders = Orders(**given)
    async with zkwire.connect(orders.hosts, orders.timeout) as zk:
        shared = Lock(zk, orders.path, local_passes=orders.local_passes)

        async def contend(number: int) -> None:
            lock = shared if orders.shared else Lock(zk, orders.path)
            for _ in range(orders.rounds):
                try:
                    async with lock.hold(within=orders.within) as lease:
                        with open(orders.witness, "rb") as witness:
                            try:
                                fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            except BlockingIOError:
                                report("overlap", task=number, node=lease.path)
                            report("acquired", task=number, node=lease.path, token=lease.token)
                            if orders.hold is None:
                                await asyncio.Event().wait()
                            else:
                                count = await read(zk, orders.counter)
                                await asyncio.sleep(random.uniform(*orders.hold))
                                if orders.counter is not None:
                                    await zk.set(orders.counter, b"%d" % (count + 1))
                            lease.check()
                            report("releasing", task=number, node=lease.path, token=lease.token)
                except LockLostError as error:
                    report("lost", task=number, why=error.why)
                except TimeoutError:
                    report("timeout", task=number)

        report("connected", session=zk.session_id)
        await asyncio.gather(*(contend(number) for number in range(orders.tasks)))


async def read(zk: zkwire.Client, counter: str | None) -> int:
    return 0 if counter is None else int((await zk.get(counter)).data)


def start(orders: Orders) -> AbstractAsyncContextManager[Worker]:
    """Run a worker; it is killed at the end, whatever happens."""
    return processes.start(work, **asdict(orders))
