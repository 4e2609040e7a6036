"""When a process lets others run first: one deletion wakes the next owner, and others that have time."""

import asyncio
import os
from typing import Any

import pytest

from recipes import Lease, Lock
from recipes.line.line import Line
from recipes.line.yielding import yield_processor
from tests.support.everywhere import scene
from tests.support.locks import start_waiting
from tests.support.recipes import until, until_armed
from zkwire import Client


class Steps(list[str]):
    """What a client does: "yield", and its requests by name."""

    def __init__(self, zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_yield", lambda: self.append("yield"), raising=False)
        pipeline = zk.pipeline

        async def recorded(operations: Any) -> Any:
            self.extend(type(operation).__name__ for operation in operations)
            return await pipeline(operations)

        monkeypatch.setattr(zk, "pipeline", recorded)


def test_where_the_system_cannot_yield_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_yield", raising=False)
    yield_processor()


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_a_release_lets_the_next_owner_run_first_where_there_may_be_one(
    is_awaited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene() as stage:
        steps = Steps(stage.zk, monkeypatch)
        for watches in (0, 1):
            ticket = await Line(stage.zk, stage.path).acquire()
            lease = Lease(stage.zk, ticket, is_awaited=is_awaited)
            await until_armed(watches, stage.zk)
            steps.clear()
            await lease.release()
            # If its own node is watched, the event of that arrives ahead of the answer to the delete.
            assert steps == ["yield"] * (1 + watches if is_awaited else 0)


async def test_a_ticket_that_looks_ahead_lets_the_next_owner_run_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as stage:
        first = await Lock(stage.other, stage.path).acquire()
        waiting: list[asyncio.Task[Any]] = []
        for zk in (stage.other, stage.other, stage.zk):
            waiting.append(await start_waiting(stage.other, Lock(zk, stage.path), 2 + len(waiting)))
        await until_armed(3, stage.zk)
        await first.release()
        second = await waiting[0]
        await until_armed(1 + 2, stage.other)  # the holder and the third ticket
        steps = Steps(stage.zk, monkeypatch)
        await second.release()
        third = await waiting[1]
        await until(lambda: "GetChildren" in steps)
        # Its release yields twice.  The last ticket yields at the event, and again before its list, which is not sent
        # together with anything urgent.
        assert steps == ["yield"] * 4 + ["GetChildren"]
        await until_armed(2, stage.zk)
        await stage.zk.ping()
        steps.clear()
        await asyncio.gather(third.release(), owning(waiting[2], steps))


async def owning(waiter: "asyncio.Task[Any]", steps: Steps) -> None:
    """Wait for the lease: its ticket is the next owner now, and yields to no other process."""
    lease = await waiter
    await lease.release()
    assert "GetChildren" not in steps
