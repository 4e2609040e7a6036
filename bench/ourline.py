"""The contestant `zkwire`, our Lock, and our other recipes that change hands, used as an application would use them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import zkwire
from bench.racing import Starter
from bench.turns import SESSION_TIMEOUT, Order, Turn
from recipes import Election, Lease, Lock, ReadWriteLock, Semaphore

# How each recipe is acquired by the worker with this place; each gives way to one holder at a time.  So only one worker
# reads: with two workers each hand-over is one from a writer to a reader, or back.
ACQUIRE: Final[dict[str, Callable[[zkwire.Client, str, int], Callable[[], Awaitable[Lease]]]]] = {
    "zkwire": lambda zk, path, place: Lock(zk, path).acquire,
    "write-lock": lambda zk, path, place: ReadWriteLock(zk, path).write().acquire,
    "read-lock": lambda zk, path, place: (
        ReadWriteLock(zk, path).write().acquire if place else ReadWriteLock(zk, path).read().acquire
    ),
    "semaphore": lambda zk, path, place: Semaphore(zk, path, 1).acquire,
    "election": lambda zk, path, place: Election(zk, path).acquire,
}


def race(order: Order, starter: Starter) -> list[Turn]:
    """Run one worker's turns of a recipe: report when connected, wait for the start, return the records."""
    return asyncio.run(_race(order, starter))


async def _race(order: Order, starter: Starter) -> list[Turn]:
    turns = []
    async with zkwire.connect(f"{order.host}:{order.port}", session_timeout=SESSION_TIMEOUT) as zk:
        starter.send("ready")
        await readable(starter.fileno())
        starter.recv()
        acquire = ACQUIRE[order.contestant](zk, order.lock, order.place)
        for _ in range(order.turns):
            acquire_called = time.monotonic_ns()
            lease = await acquire()
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
