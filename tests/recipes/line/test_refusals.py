"""Refusals that say nothing about the lock: an overloaded server makes a client wait, and takes no place away."""

import asyncio
import re

import pytest

from recipes import Lock, TimedLock
from recipes.line import ticket_data
from recipes.line.ticket_data import HashChain
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import no_task_stays, outcome, until_armed, until_line
from zkwire import ThrottledError

pytestmark = pytest.mark.limit(20)

P = "/recipe"


@pytest.mark.parametrize("operation", ["getData", "getChildren"])
async def test_a_waiter_keeps_its_place(operation: str) -> None:
    """Pitfall 79: it is refused when it looks at the line again, and a later ticket does not overtake it."""
    async with scene(P) as stage, no_task_stays():
        held = [await Lock(stage.other, P).acquire()]
        ahead = [asyncio.create_task(Lock(stage.other, P).acquire()) for _ in range(2)]
        await until_line(stage.other, P, 3)
        waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
        names = await until_line(stage.other, P, 4)
        await until_armed(3, stage.zk)
        later = asyncio.create_task(Lock(stage.other, P).acquire())
        await until_line(stage.other, P, 5)
        with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id, times=2) as refused:
            ahead[0].cancel()  # the waiter looks ahead
            await refused.until_hit(2)
        await held[0].release()
        await (await ahead[1]).release()
        lease = await asyncio.wait_for(waiter, 5)
        assert lease.path == f"{P}/{names[3]}"
        assert not later.done()
        await lease.release()
        await (await later).release()
        await outcome(ahead[0])
        await nothing_stays(stage)


async def test_a_waiter_whose_own_watch_was_refused_does_not_own_without_its_node() -> None:
    """Pitfall 79: the server has set the watch on the blocker only, and the waiter's node is deleted unheard."""
    async with scene(P) as stage, no_task_stays():
        held = await Lock(stage.other, P).acquire()
        own = re.compile(rf"{P}/.*0000000001")
        with stage.server.answering("getData", ThrottledError, path=own, times=1) as refused:
            waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
            names = await until_line(stage.other, P, 2)
            await refused.until_hit()
            await stage.zk.ping()
            await stage.other.delete(f"{P}/{names[1]}")
            await held.release()
            lease = await asyncio.wait_for(waiter, 5)
        assert lease.path != f"{P}/{names[1]}"
        lease.check()
        await lease.release()
        await nothing_stays(stage)


async def test_a_waiter_that_may_not_delete_a_broken_promise_for_now_tries_again() -> None:
    """Pitfall 79: the holder's time limit has passed, and the server is overloaded."""
    async with scene(P) as stage, no_task_stays():
        held = await TimedLock(stage.other, P, 0.2).acquire()
        waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
        await until_line(stage.zk, P, 2)
        held._alarm.cancel()  # the holder hangs
        with stage.server.answering("delete", ThrottledError, session=stage.zk.session_id, times=2) as refused:
            lease = await asyncio.wait_for(waiter, 5)
            assert refused.hits == 2
        lease.check()
        await lease.release()
        assert await held.lost() is not None


@pytest.mark.parametrize("operation", ["create", "getChildren", "getData", "delete"])
async def test_after_a_transient_refusal_nothing_is_asked_before_the_end_of_a_pause(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recipes.common.retrying._PAUSE", 3600.0)
    async with scene(P) as stage, no_task_stays():
        proofs = HashChain("a secret", 1)
        name = f"{P}/_c_{proofs.id}-lock-"
        holder = await stage.other.create(name, ephemeral=True, sequential=True, make_parents=True)
        limit = 0.01 if operation == "delete" else 60.0
        await stage.other.set(holder, ticket_data.limited(limit, proofs.link(1) or "", b""))
        with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id) as refused:
            waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
            await refused.until_hit()
            for _ in range(5):
                await stage.zk.ping()
            hits = refused.hits  # of several watches in one write; a refused list is asked for once more at once
            for _ in range(20):
                await stage.zk.ping()
            assert refused.hits == hits
            assert not waiter.done()
        waiter.cancel()
        assert isinstance(await outcome(waiter), asyncio.CancelledError)
        await stage.other.delete(holder)
        await nothing_stays(stage)
