"""The queue of the tasks of one process that share a lock."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recipes import Lock, LockLostError
from recipes.line.ticket import Ticket
from recipes.lock import LocalQueue
from tests.support.client import turns
from tests.support.everywhere import scene
from tests.support.recipes import line, no_task_stays, outcome, proxied, until_armed, until_line
from zkwire import NoNodeError, SessionClosedError, SessionError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(20)


# -- the queue alone, against a plain model ---------------------------------------------------------------------------


class Ending:
    """Stands for the client: its own end, and the callbacks that wait for it."""

    def __init__(self) -> None:
        self.callbacks: set[Callable[[], None]] = set()
        self.add = self.callbacks.add
        self.discard = self.callbacks.discard
        self.error: SessionError | None = None

    @property
    def on_closed(self) -> "Ending":
        return self


STEPS = ["wait", "wait", "wait", "pass turn", "pass ticket", "cancel", "pass turn and cancel", "cancel and pass turn"]
STEPS += ["pass ticket and cancel", "cancel and pass ticket", "cancel and end", "end"]


@given(st.integers(0, 3), st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=20))
@example(0, [("wait", 0), ("wait", 0), ("cancel and end", 0)])
@example(2, [(step, 0) for step in ["wait", "wait", "pass ticket", "pass ticket", "wait", "wait", "pass ticket"]])
def test_the_turn_goes_to_the_first_task_that_still_waits_and_is_never_lost(
    passes: int, steps: list[tuple[str, int]]
) -> None:
    asyncio.run(play(passes, steps))


async def play(passes: int, steps: list[tuple[str, int]]) -> None:
    zk, dropped = Ending(), list[object]()
    queue = LocalQueue(cast(Any, zk), passes, dropped.append)
    waiting: list[asyncio.Task[Ticket | None]] = []
    is_taken, left, given_away = False, passes, list[object]()

    def pass_on(step: str) -> object:
        """Pass the turn on, as the task that has it."""
        nonlocal left
        if "ticket" not in step:
            queue.pass_turn()
            left = passes
            return None
        ticket: Any = SimpleNamespace(is_asked=True)
        assert not queue.wants_ticket(ticket)
        ticket.is_asked = False
        assert queue.wants_ticket(ticket) == (left > 0 and any(not task.cancelling() for task in waiting))
        queue.pass_ticket(ticket)
        left -= 1
        return ticket

    for step, number in steps:
        assert queue.is_free is not is_taken
        if step == "wait":
            task = asyncio.create_task(queue.wait())
            await asyncio.sleep(0)
            assert task.done() is not is_taken
            if is_taken:
                waiting.append(task)
            else:
                assert await task is None
            is_taken = True
        elif "end" in step:
            cancelled = [waiting.pop(number % len(waiting))] if "cancel" in step and waiting else []
            for task in cancelled:
                task.cancel()
            zk.error = SessionClosedError("closed")
            for callback in list(zk.callbacks):
                callback()
            for task in waiting:
                assert await outcome(task) is zk.error
            for task in cancelled:
                assert isinstance(await outcome(task), asyncio.CancelledError)
            waiting.clear()
        else:
            victim = None
            if "cancel" in step and waiting:
                # Together with a turn, the one that gets it is cancelled; else any of them.
                victim = waiting[0 if "pass" in step else number % len(waiting)]
            if step.startswith("cancel") and victim is not None:
                victim.cancel()
            passes_on = "pass" in step and is_taken
            ticket = pass_on(step) if passes_on else None
            if not step.startswith("cancel") and victim is not None:
                victim.cancel()
            await turns(3)
            if victim is not None:
                waiting.remove(victim)
                assert victim.cancelled()
            if passes_on and waiting:
                assert waiting.pop(0).result() is ticket
            elif passes_on:
                is_taken = False
                given_away += [] if ticket is None else [ticket]
        assert dropped == given_away
        assert not any(task.done() for task in waiting)
        assert bool(zk.callbacks) == bool(waiting)  # a program that makes ever new locks must not fill the memory
    for task in waiting:
        task.cancel()
        await outcome(task)


# -- locks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [0, 1, 2, 5])
async def test_a_ticket_is_passed_on_as_often_as_it_may_be(zookeeper: RealServer, path: str, passes: int) -> None:
    async with proxied(zookeeper) as (proxy, zk2, zk):
        options: dict[str, Any] = {"local_passes": passes} if passes else {}
        lock, other = Lock(zk, path, **options), Lock(zk2, path)
        served: list[tuple[str, int]] = []

        async def worker(lock: Lock, name: str) -> None:
            async with lock as lease:
                lease.check()
                served.append((name, lease.token))

        lease = await lock.acquire()
        local = [asyncio.create_task(worker(lock, "local")) for _ in range(4)]
        remote = asyncio.create_task(worker(other, "remote"))
        await until_line(zk2, path, 2)
        mark = proxy.mark()
        await lease.release()
        assert proxy.requests(mark).count("delete") == (not passes)
        await asyncio.gather(*local, remote)
        first = min(passes, 4)
        assert [name for name, _ in served] == ["local"] * first + ["remote"] + ["local"] * (4 - first)
        assert [token for _, token in served[:first]] == [lease.token] * first
        assert await line(zk, path) == []


@pytest.mark.parametrize("how", ["deleted later", "deleted before", "written over"])
async def test_a_ticket_that_is_passed_on_all_the_time_is_watched_in_the_end(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time after which it is watched is longer here, so that no single lease lasts for so long."""
    monkeypatch.setattr("recipes.line.lease._UNWATCHED", 0.6)
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path, local_passes=10**6)
        tokens: set[int] = set()

        async def user() -> None:
            while True:
                async with lock as lease:
                    tokens.add(lease.token)
                    await stage.zk.ping()

        if how == "deleted before":
            asked = stage.server.answering("getData", NoNodeError, session=stage.zk.session_id, times=1)
        users = [asyncio.create_task(user()) for _ in range(3)]
        await (asked.until_hit() if how == "deleted before" else until_armed(1, stage.zk))
        ticket, *_ = await line(stage.other, stage.path)
        assert len(tokens) == 1
        if how == "written over":
            await stage.other.set(f"{stage.path}/{ticket}", b"forged")
        else:
            await stage.other.delete(f"{stage.path}/{ticket}")
        _, others = await asyncio.wait(users, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        came = [await outcome(one) for one in users]
        assert [one for one in came if isinstance(one, LockLostError)], came
        await until_line(stage.other, stage.path, 0)
