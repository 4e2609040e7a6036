"""Processes for trials: an async function that runs in a process of its own and reports in lines of JSON.

They are forked from a server process that has imported the common modules already: to start an interpreter and import
them in each process would cost half a second of processor time.
"""

import asyncio
import importlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["hypothesis", "pytest", "recipes", __name__])


def report(event: str, **what: Any) -> None:
    """Send a report to the test; called in the process."""
    print(json.dumps({"event": event, "pid": os.getpid(), "at": time.monotonic(), **what}), flush=True)


@dataclass
class Worker:
    """A process, as the test sees it, with its reports so far."""

    process: ForkServerProcess
    reports: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    ended: bool = False

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    async def listen(self, output: asyncio.StreamReader) -> None:
        while text := await output.readline():
            async with self.changed:
                self.reports.append(json.loads(text))
                self.changed.notify_all()
        self.process.join()  # its output is closed: it is ending
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    def all(self, event: str) -> list[dict[str, Any]]:
        """Return all reports of `event` so far."""
        return [entry for entry in self.reports if entry["event"] == event]

    async def until(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait for the `count`th report of `event`, and return it."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.all(event)) >= count or self.ended)
        assert len(self.all(event)) >= count, f"the worker has ended without {event}: {self.reports}"
        return self.all(event)[count - 1]

    async def gone(self) -> None:
        """Wait for its end."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.ended)

    async def end(self) -> None:
        """Wait for its end, and check that it succeeded."""
        await self.until("done")
        await self.gone()
        assert self.process.exitcode == 0

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, number)


@asynccontextmanager
async def start(function: Callable[..., Awaitable[None]], **orders: Any) -> AsyncIterator[Worker]:
    """Run `function(**orders)` in a process, which is killed at the end, whatever happens.

    The function must be at the top level of its module.  When it returns, "done" is reported.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    receiving, sending = FORKING.Pipe(duplex=False)
    with receiving, sending:
        process = FORKING.Process(target=_work, args=(name, orders, sending), daemon=True)
        process.start()
        output = asyncio.StreamReader()
        pipe = os.fdopen(os.dup(receiving.fileno()), "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), pipe
    )
    worker = Worker(process)
    listening = asyncio.create_task(worker.listen(output))
    try:
        yield worker
    finally:
        worker.signal(signal.SIGKILL)
        await listening
        transport.close()
        process.close()


def _work(name: str, orders: dict[str, Any], output: Connection) -> None:
    os.dup2(output.fileno(), 1)
    output.close()
    asyncio.run(_run(name, orders))


async def _run(name: str, orders: dict[str, Any]) -> None:
    module, _, function = name.partition(":")
    await getattr(importlib.import_module(module), function)(**orders)
    report("done")
