"""zkwire's Queue as a program: `python -m bench.peers.programs.queue_ours get`; see bench/peers/queues.py."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import zkwire
from bench.peers.lines import READY
from bench.peers.worker import serve
from bench.racing import Starter
from bench.turns import ITEM, ITEMS_AT_ONCE, SESSION_TIMEOUT, Order, Turn
from recipes import Queue


async def _claim(queue: Queue) -> None:
    async with queue.claim():
        pass


OPERATIONS: Final[dict[str, Callable[[Queue], Awaitable[object]]]] = {
    "fill": lambda queue: queue.put_many([ITEM] * ITEMS_AT_ONCE),
    "put": lambda queue: queue.put(ITEM),
    "get": lambda queue: queue.get(),
    "claim": _claim,
}


async def _race(order: Order, starter: Starter) -> list[Turn]:
    operation, turns = OPERATIONS[order.contestant], []
    async with zkwire.connect(f"{order.host}:{order.port}", SESSION_TIMEOUT) as zk:
        queue = Queue(zk, order.lock)
        starter.send(READY)
        starter.recv()
        for _ in range(order.turns):
            called = time.monotonic_ns()
            await operation(queue)
            done = time.monotonic_ns()
            turns.append(Turn(called, done, done, done, 0))
    return turns


if __name__ == "__main__":
    serve(sys.argv[1], lambda order, starter: asyncio.run(_race(order, starter)))
