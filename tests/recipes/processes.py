"""Processes for trials: an async function that runs in a process of its own and reports in lines of JSON.

`python -m tests.recipes.processes MODULE:FUNCTION ORDERS` runs it; ORDERS are its keyword arguments, as JSON.
"""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]


def report(event: str, **what: Any) -> None:
    """Say something to the test: in the process, not in the test."""
    print(json.dumps({"event": event, "pid": os.getpid(), "at": time.monotonic(), **what}), flush=True)


@dataclass
class Worker:
    """A process, seen from the test: what it has reported so far."""

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
        """All reports of `event` so far."""
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
async def start(function: Callable[..., Awaitable[None]], **orders: Any) -> AsyncIterator[Worker]:
    """Run `function(**orders)`, of the top level of its module, in a process, which is killed at the end, whatever
    happens.  When it returns, "done" is reported."""
    name = f"{function.__module__}:{function.__qualname__}"
    arguments = [sys.executable, "-m", "tests.recipes.processes", name, json.dumps(orders)]
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


async def _run(name: str, orders: dict[str, Any]) -> None:
    module, _, function = name.partition(":")
    await getattr(importlib.import_module(module), function)(**orders)
    report("done")


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], json.loads(sys.argv[2])))
