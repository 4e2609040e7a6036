"""Pitfall 88: a stranger's node with an odd number does not make two own, and does not change which one is said to."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from recipes import Election, Lock, ReadWriteLock, Semaphore
from recipes.line.locking import Locking
from tests.support.locks import two_clients
from tests.support.recipes import until, until_line
from zkwire import Client

P = "/recipe"
WAITERS = 10

# What is held, and what waits for it.
PAIRS: dict[str, tuple[Callable[[Client], Locking[Any]], Callable[[Client], Locking[Any]]]] = {
    "lock": (lambda zk: Lock(zk, P), lambda zk: Lock(zk, P)),
    "semaphore": (lambda zk: Semaphore(zk, P, 1), lambda zk: Semaphore(zk, P, 1)),
    "readers": (lambda zk: ReadWriteLock(zk, P).write(), lambda zk: ReadWriteLock(zk, P).read()),
    "election": (lambda zk: Election(zk, P, b"leader"), lambda zk: Election(zk, P, b"candidate")),
}


@pytest.mark.parametrize("foreign", ["x90143--2147483639", "x-2147483647"])
@pytest.mark.parametrize(("held", "waits"), PAIRS.values(), ids=PAIRS.keys())
async def test_nobody_owns_beside_the_holder_and_contenders_name_the_holder_pitfall_88(
    held: Callable[[Client], Locking[Any]], waits: Callable[[Client], Locking[Any]], foreign: str
) -> None:
    async with two_clients() as (zk, other):
        lease = await held(other).acquire()
        await other.create(f"{P}/{foreign}")
        waiting = [asyncio.create_task(waits(zk).acquire()) for _ in range(WAITERS)]
        await until_line(other, P, WAITERS + 2)
        await zk.sync(P)  # behind all that the waiters ask for before they wait
        await zk.sync(P)
        assert not any(task.done() for task in waiting)
        assert await waits(zk).try_acquire() is None
        found = await held(zk).contenders()
        assert (len(found), [each.path for each in found if each.owns]) == (WAITERS + 1, [lease.path])
        if isinstance(held(zk), Election):
            async with Election(zk, P).observe() as leaders:
                assert await anext(leaders) == b"leader"
        await lease.release()
        while waiting:
            await until(lambda: any(task.done() for task in waiting))
            owners = [task for task in waiting if task.done()]
            assert len(owners) == 1 or waits is PAIRS["readers"][1]
            waiting = [task for task in waiting if task not in owners]
            for owner in owners:
                await (await owner).release()
