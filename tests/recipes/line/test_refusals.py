"""Refusals that say nothing about the lock: an overloaded server makes a client wait, and takes no place away."""

import asyncio
import re

import pytest

from recipes import Lock
from recipes.line import ticket_data
from recipes.line.ticket_data import HashChain
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import no_task_stays, outcome, until_line
from zkwire import ThrottledError

pytestmark = pytest.mark.limit(20)

P = "/recipe"


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
