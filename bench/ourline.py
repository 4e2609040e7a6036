"""The contestant `zkwire`: our Lock, used as an application would use it."""

import asyncio
import time

import zkwire
from bench.racing import Starter
from bench.turns import SESSION_TIMEOUT, Order, Turn
from recipes import Lock


def race(order: Order, starter: Starter) -> list[Turn]:
    """Run one worker's turns of ``zkwire``: report when connected, wait for the start, return the records."""
    return asyncio.run(_race(order, starter))


async def _race(order: Order, starter: Starter) -> list[Turn]:
    turns = []
    async with zkwire.connect(f"{order.host}:{order.port}", session_timeout=SESSION_TIMEOUT) as zk:
        starter.send("ready")
        await readable(starter.fileno())
        starter.recv()
        lock = Lock(zk, order.lock)
        for _ in range(order.turns):
            acquire_called = time.monotonic_ns()
            lease = await lock.acquire()
            acquired = time.monotonic_ns()
            if order.hold:
                await asyncio.sleep(order.hold)
            release_called = time.monotonic_ns()
            await lease.release()
            turns.append(Turn(acquire_called, acquired, release_called, time.monotonic_ns(), lease.token))
    return turns


async def readable(descriptor: int) -> None:
    """Wait until there is something to read from `descriptor`."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    await ready.wait()
    loop.remove_reader(descriptor)
