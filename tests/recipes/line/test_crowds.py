"""Very many tasks of one client in one line: their lists are bounded, and all promises are kept."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore
from recipes.line.known import _MOST_LISTS
from recipes.line.locking import Locking
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.locks import release
from tests.support.recipes import no_task_stays, until, until_armed, until_line
from zkwire import Client, Observer

pytestmark = pytest.mark.limit(60)

MANY = 120

KINDS: dict[str, Callable[[Client, str], Locking[Any]]] = {
    "Lock": Lock,
    "Semaphore": lambda zk, path: Semaphore(zk, path, 2),
    "Election": Election,
    "read": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write": lambda zk, path: ReadWriteLock(zk, path).write(),
}


class Lists(Observer):
    """Counts the answers to lists, to reads, and to syncs: each look that tickets share is sent behind one."""

    count = 0
    reads = 0
    syncs = 0

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        self.count += operation.startswith("getChildren")
        self.reads += operation in ("getData", "exists")
        self.syncs += operation == "sync"


class Crowd:
    """Tasks that each acquire and release a lock by an object of its own; they enter at once, in the order of `tasks`.

    `served`, the numbers of the tasks in the order in which they acquired it; `most`, how many held it at a time.
    """

    def __init__(self, locks: list[Locking[Any]]) -> None:
        self.served: list[int] = []
        self.most = self._holders = 0
        self.tasks = [asyncio.create_task(self._take_turn(number, lock)) for number, lock in enumerate(locks)]

    async def _take_turn(self, number: int, lock: Locking[Any]) -> None:
        async with lock as lease:
            self.served.append(number)
            self._holders += 1
            self.most = max(self.most, self._holders)
            lease.check()
            await asyncio.sleep(0)
            self._holders -= 1


# How many watches a waiting ticket has: on its own node, on blockers, and a Semaphore's on the number of slots.
WATCHES = {"Lock": 3, "Semaphore": 5, "Election": 3, "read": 2, "write": 3}


@asynccontextmanager
async def behind_holders(kind: str) -> AsyncIterator[tuple[Scene, Client, Lists, list[Any]]]:
    """Have another client hold all slots of a lock; yield the scene, a client whose lists are counted, and the leases.

    At the end nothing may be left.
    """
    lists = Lists()
    async with scene() as stage, no_task_stays():
        make = KINDS["write" if kind == "read" else kind]
        leases = [await make(stage.other, stage.path).acquire() for _ in range(2 if kind == "Semaphore" else 1)]
        async with zkwire.connect(stage.server.hosts, observer=lists) as zk:
            yield stage, zk, lists, leases
        await nothing_stays(stage)


def crowd(zk: Client, path: str, kind: str = "Lock", count: int = MANY) -> Crowd:
    """Have `count` tasks enter the line at once, each with a lock of its own."""
    return Crowd([KINDS[kind](zk, path) for _ in range(count)])


async def until_all_wait(zk: Client, kind: str = "Lock", count: int = MANY) -> None:
    """Wait until each ticket has set all its watches; only the first waiter has a watch less."""
    await until_armed(count * WATCHES[kind] - (kind != "read"), zk)


# -- how many lists ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_however_many_enter_at_once_a_few_lists_serve_them_in_the_order_of_their_calls(kind: str) -> None:
    """Also in their turns: what one ticket is told of departures, all of them know."""
    async with behind_holders(kind) as (stage, zk, lists, leases):
        entering = crowd(zk, stage.path, kind)
        await until_all_wait(zk, kind)
        assert lists.count < MANY // 4
        assert lists.reads <= MANY * (WATCHES[kind] + 1)
        lists.count = 0
        await release(*leases)
        await asyncio.gather(*entering.tasks)
        # All readers own by the same event.
        assert (sorted(entering.served) if kind == "read" else entering.served) == list(range(MANY))
        assert entering.most == len(leases) or kind == "read"
        assert lists.count < 8


# -- faults -----------------------------------------------------------------------------------------------------------


async def test_each_task_of_a_crowd_gets_an_error_of_its_own_when_the_list_is_refused() -> None:
    async with scene() as stage, no_task_stays():
        await stage.other.create(stage.path)
        with stage.server.answering("getChildren", zkwire.NoAuthError, session=stage.zk.session_id):
            came = await asyncio.gather(
                *(Lock(stage.zk, stage.path).acquire() for _ in range(3 * _MOST_LISTS)), return_exceptions=True
            )
        assert {type(each) for each in came} == {zkwire.NoAuthError}
        assert len(set(map(id, came))) == 3 * _MOST_LISTS
        await nothing_stays(stage)


async def test_a_ticket_of_another_client_behind_each_of_a_crowd_costs_no_request() -> None:
    """Its departure is reported to one ticket only, by the fast path."""
    async with behind_holders("Lock") as (stage, zk, lists, leases):
        crowds = []
        for number in range(20):
            crowds.append(crowd((zk, stage.zk)[number % 2], stage.path, count=1))
            await until_line(stage.other, stage.path, 2 + number)
        await until_all_wait(zk, count=10)
        lists.count = lists.reads = 0
        await release(*leases)
        for each in crowds:
            await asyncio.gather(*each.tasks)
        assert lists.count + lists.reads < 5


async def test_after_a_waiting_ticket_has_listed_the_line_another_one_lists_by_itself() -> None:
    with patch("recipes.line.known._MOST_LISTS", 1):
        async with behind_holders("Lock") as (stage, zk, lists, leases):
            entering = crowd(zk, stage.path, count=3)
            await until_all_wait(zk, count=3)
            lists.count = 0
            entering.tasks[0].cancel()
            await until(lambda: lists.count > 0)  # the last ticket does not know whether the holder remains
            await until_all_wait(zk, count=2)
            lists.count = lists.syncs = 0
            late = crowd(zk, stage.path, count=1)
            await until_all_wait(zk, count=3)
            assert (lists.count, lists.syncs) == (1, 0)
            await release(*leases)
            await asyncio.gather(*entering.tasks[1:], *late.tasks)
            assert (entering.served, late.served) == ([1, 2], [0])
