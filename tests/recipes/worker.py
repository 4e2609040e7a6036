"""A process that contends for a lock, for tests that need several or one to kill: `python -m tests.recipes.worker`.

Its orders come as JSON in the first argument; it reports in lines of JSON on stdout. While it holds the lock it also
holds a flock on a witness file, which the kernel takes back from a process that is killed: to find it taken is to have
seen two owners at a time.
"""

import asyncio
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import zkwire
from recipes import Lock, LockLostError

PROJECT = Path(__file__).parents[2]


@dataclass
class Orders:
    """`tasks` tasks each acquire `rounds` times, for `hold` seconds (from, to); `hold` None: until they are lost."""

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


def report(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), "at": time.monotonic(), **what}), flush=True)


async def work(orders: Orders) -> None:
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
        report("done")


async def read(zk: zkwire.Client, counter: str | None) -> int:
    return 0 if counter is None else int((await zk.get(counter)).data)


@dataclass
class Worker:
    """A worker process, seen from the test: what it has reported so far."""

    process: asyncio.subprocess.Process
    reports: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    ended: bool = False

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while text := await self.process.stdout.readline():
            async with self.changed:
                self.reports.append(json.loads(text))
                self.changed.notify_all()
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    def all(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.reports if entry["event"] == event]

    async def until(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait for the `count`th report of `event`, and return it."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.all(event)) >= count or self.ended)
        assert len(self.all(event)) >= count, f"the worker has ended without {event}: {self.reports}"
        return self.all(event)[count - 1]

    async def end(self) -> None:
        """Wait for its end, and see that it was a good one."""
        await self.until("done")
        assert await self.process.wait() == 0

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def start(orders: Orders) -> AsyncIterator[Worker]:
    """Run a worker; it is killed at the end, whatever happens."""
    arguments = [sys.executable, "-m", "tests.recipes.worker", json.dumps(asdict(orders))]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, cwd=PROJECT)
    worker = Worker(process)
    listening = asyncio.create_task(worker.listen())
    try:
        yield worker
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        await listening


if __name__ == "__main__":
    asyncio.run(work(Orders(**json.loads(sys.argv[1]))))
