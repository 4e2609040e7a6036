"""Clients that try for a lock again and again (Pitfall 91), in virtual time: a free lock is soon taken."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import zkwire
from recipes import Election, Lock, MultiLock, ReadWriteLock, Semaphore, TryLock
from recipes.line.known import line_of
from recipes.line.locking import Locking
from tests.support.examples import some_in_quick
from tests.support.virtual_time import Server, in_virtual_time
from zkwire import Client

P = "/lock"
SECONDS = 0.5
SOON = 0.1  # seconds: a few round trips

KINDS: dict[str, Callable[[Client], Locking[Any]]] = {
    "lock": lambda zk: Lock(zk, P),
    "write lock": lambda zk: ReadWriteLock(zk, P).write(),
    "semaphore": lambda zk: Semaphore(zk, P, 2),
    "election": lambda zk: Election(zk, P),
    "set of locks": lambda zk: MultiLock([Lock(zk, P), Lock(zk, "/lock-2")]),
    "try lock": lambda zk: TryLock(zk, P),
}


async def _try_for_ever(locking: Locking[Any], taken: list[float], *, is_new_client: bool) -> None:
    loop = asyncio.get_running_loop()
    while True:
        if is_new_client:
            for path in (P, "/lock-2"):
                line_of(locking.client, path).blocked_by = {}
        lease = await locking.try_acquire()
        if lease is not None:
            taken.append(loop.time())
            await asyncio.sleep(0.005)
            await lease.release()


@pytest.mark.parametrize("kind", some_in_quick(KINDS, 2))
@pytest.mark.parametrize("is_new_client", [False, True], ids=["again", "each-for-the-first-time"])
@in_virtual_time
async def test_a_lock_that_is_released_is_soon_taken_by_one_of_many_that_try(kind: str, is_new_client: bool) -> None:
    """Pitfall 91: 20 clients, 2 to 10 ms each way; before, none of them got in within seconds."""
    rng, taken, server = random.Random(kind), list[float](), Server(max_session_timeout=60)
    server.latency = lambda: rng.uniform(0.002, 0.01)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(zkwire.connect("a", 60.0, open_link=server.open_link)) for _ in range(21)
        ]
        holders = [await KINDS[kind](clients[0]).acquire() for _ in range(2 if kind == "semaphore" else 1)]
        async with asyncio.TaskGroup() as group:
            trying = [
                group.create_task(_try_for_ever(KINDS[kind](zk), taken, is_new_client=is_new_client))
                for zk in clients[1:]
            ]
            await asyncio.sleep(0.25)
            assert taken == []
            began = loop.time()
            for lease in holders:
                await lease.release()
            await asyncio.sleep(SECONDS)
            for each in trying:
                each.cancel()
    assert taken[0] - began < SOON
    # A free lock is found free all the time: a turn is the hold, its release, and the tries of the others.
    assert len(taken) > SECONDS / SOON
