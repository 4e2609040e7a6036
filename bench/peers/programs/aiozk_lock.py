"""aiozk's Lock as a program, run with the Python of an environment that has aiozk."""

import asyncio
import time
from importlib import import_module
from typing import Any

from bench.peers.lines import READY
from bench.peers.worker import serve
from bench.racing import Starter
from bench.turns import SESSION_TIMEOUT, Order, Turn

# Imported by name, because the type checker has no aiozk.
aiozk: Any = import_module("aiozk")


def race(order: Order, starter: Starter) -> list[Turn]:
    """Run one worker's turns of ``aiozk``."""
    return asyncio.run(_race(order, starter))


async def _race(order: Order, starter: Starter) -> list[Turn]:
    turns = []
    zk = aiozk.ZKClient(f"{order.host}:{order.port}", session_timeout=SESSION_TIMEOUT)
    await zk.start()
    starter.send(READY)
    await asyncio.get_running_loop().run_in_executor(None, starter.recv)
    lock = zk.recipes.Lock(order.lock)
    for _ in range(order.turns):
        acquire_called = time.monotonic_ns()
        await lock.acquire()
        acquired = time.monotonic_ns()
        if order.hold:
            await asyncio.sleep(order.hold)
        release_called = time.monotonic_ns()
        await lock.release()
        turns.append(Turn(acquire_called, acquired, release_called, time.monotonic_ns(), 0))
    await zk.close()
    return turns


if __name__ == "__main__":
    serve("aiozk", race)
