"""The monitors of leases: which own nodes are watched, and when, although one timer serves all leases of a client."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from recipes import Lock, LockLostError
from recipes.line import loss_monitor
from tests.support.everywhere import scene
from tests.support.recipes import body_raises, line, until_armed, until_line


async def test_every_lease_that_lasts_is_watched_whichever_others_have_ended_meanwhile() -> None:
    async with scene() as stage:
        leases = [await Lock(stage.zk, f"{stage.path}-{number}").acquire() for number in range(6)]
        for lease in leases[::2]:  # the first one among them: the timer was set for it
            await lease.release()
        await until_armed(3, stage.zk)
        late = await Lock(stage.zk, f"{stage.path}-late").acquire()
        await until_armed(4, stage.zk)
        for lease in [*leases, late]:
            await lease.release()
        await until_armed(0, stage.zk)


async def test_a_lease_whose_time_comes_first_is_watched_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a ticket that was passed on: its time counts from the first lease."""
    async with scene() as stage:
        monkeypatch.setattr(loss_monitor, "_UNWATCHED", 60.0)
        slow = await Lock(stage.zk, f"{stage.path}-slow").acquire()
        monkeypatch.setattr(loss_monitor, "_UNWATCHED", 0.01)
        lock = Lock(stage.zk, stage.path)
        with body_raises(LockLostError, match="somebody else has deleted it"):
            async with lock:
                await until_armed(1, stage.zk)
                (ticket,) = await line(stage.other, stage.path)
                await stage.other.delete(f"{stage.path}/{ticket}")
                await asyncio.Event().wait()
        await slow.release()


async def begun_outside_of_a_task(entering: Coroutine[Any, Any, object]) -> None:
    """Run `entering` to its first wait, in a callback of the event loop, and raise its error."""
    tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin() -> None:
        try:
            entering.send(None)
        except RuntimeError as error:
            tried.set_exception(error)
        else:
            tried.set_result(None)

    asyncio.get_running_loop().call_soon(begin)
    await tried


async def test_a_hold_outside_of_a_task_fails_before_it_acquires_the_lock() -> None:
    async with scene() as stage:
        lock = Lock(stage.zk, stage.path)
        await (await lock.acquire()).release()
        for entered in (lock.__aenter__(), lock.hold().__aenter__()):
            with pytest.raises(RuntimeError, match="held by a task"):
                await begun_outside_of_a_task(entered)
        await until_line(stage.other, stage.path, 0)
        assert await lock.try_acquire() is not None
