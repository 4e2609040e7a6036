"""Nodes of other clients in a line: odd numbers do not make two own (pitfall 88), and many of them cost little."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore
from recipes.line.locking import Locking
from tests.support.locks import two_clients
from tests.support.queues import Counting
from tests.support.recipes import until_line
from zkwire import Client, Create
from zkwire.testing import Server

P = "/recipe"
WAITERS = 10

# What is held, and what waits for it.
PAIRS: dict[str, tuple[Callable[[Client], Locking[Any]], Callable[[Client], Locking[Any]]]] = {
    "lock": (lambda zk: Lock(zk, P), lambda zk: Lock(zk, P)),
    "semaphore": (lambda zk: Semaphore(zk, P, 1), lambda zk: Semaphore(zk, P, 1)),
    "readers": (lambda zk: ReadWriteLock(zk, P).write(), lambda zk: ReadWriteLock(zk, P).read()),
    "election": (lambda zk: Election(zk, P, b"leader"), lambda zk: Election(zk, P, b"candidate")),
}


@pytest.mark.parametrize(("held", "waits"), PAIRS.values(), ids=PAIRS.keys())
async def test_nobody_owns_beside_the_holder_and_contenders_name_the_holder_pitfall_88(
    held: Callable[[Client], Locking[Any]], waits: Callable[[Client], Locking[Any]]
) -> None:
    async with two_clients() as (zk, other):
        lease = await held(other).acquire()
        await other.create(f"{P}/x90143--2147483639")
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
            owners, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert len(owners) == 1 or waits is PAIRS["readers"][1]
            waiting = list(rest)
            for owner in owners:
                await (await owner).release()


@pytest.mark.parametrize("make", [lambda zk: Lock(zk, P), lambda zk: ReadWriteLock(zk, P, prefer="readers").write()])
async def test_hundreds_of_persistent_nodes_are_passed_with_few_lists(make: Callable[[Client], Locking[Any]]) -> None:
    counting = Counting()
    async with Server() as server, zkwire.connect(server.hosts, observer=counting) as zk:
        lock = make(zk)
        below = (P, f"{P}/readers")
        for parent in below:
            await zk.ensure_path(parent)
            await zk.pipeline([Create(f"{parent}/__READ__{number:010d}") for number in range(-300, 0)])
        counting.requests.clear()
        await (await lock.acquire()).release()
        lists = [name for name in counting.requests if name.startswith("getChildren")]
        assert len(lists) <= 5
        assert len(counting.requests) < 2 * 300 + 50
