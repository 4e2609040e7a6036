"""Tries whose session expires, by every kind of lock; and tickets that a task has passed on to another one."""

import asyncio
from typing import Any

import pytest

import zkwire
from recipes.line.line import Line
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.queues import Counting
from tests.support.recipes import make_uncertain, no_task_stays, outcome, until, until_line

pytestmark = pytest.mark.limit(30)


# -- a ticket that a task has passed on -------------------------------------------------------------------------------


async def expire(stage: Scene) -> None:
    """End the session of `stage.zk`, and wait until it has another one."""
    session = stage.zk.session_id
    stage.server.expire(session)
    await until(lambda: stage.zk.session_id != session)


async def test_a_try_whose_session_expires_is_made_again_in_the_next_session_if_there_is_one() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as last:
        await stage.other.create(stage.path)
        with stage.server.hold_replies("create", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(Line(stage.zk, stage.path).try_acquire())
            await held.until_hit()
            await expire(stage)
        asyncio.get_running_loop().call_soon(stage.server.expire, last.session_id)
        with stage.server.drop_before("create", session=last.session_id), pytest.raises(zkwire.SessionExpiredError):
            await Line(last, stage.path).try_acquire()
        ticket = await trying
        assert ticket is not None
        assert ticket.node.session_id == stage.zk.session_id
        ticket.give_up()
        await nothing_stays(stage)


async def test_a_ticket_that_was_passed_on_owns_without_a_request_as_long_as_its_session_is_certain() -> None:
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        owned = Line(zk, stage.path)
        ticket = await owned.acquire()
        count.requests.clear()
        assert await owned.still_owns(ticket)
        assert count.requests == []
        make_uncertain(zk, 1.5)
        assert await owned.still_owns(ticket)
        assert count.requests == []
        make_uncertain(zk, 0.9)  # less than a tenth of the timeout, as if the event loop was blocked for long
        assert await owned.still_owns(ticket)
        assert set(count.requests) == {"sync", "getChildren2"}
        assert zk.certain_for(zk.session_id) > 0
        ticket.give_up()
        await nothing_stays(stage)


@pytest.mark.parametrize("expires", ["before", "while the leader is asked"])
async def test_a_ticket_whose_session_is_over_does_not_own_and_is_given_up(expires: str) -> None:
    async with scene() as stage, no_task_stays():
        owned = Line(stage.zk, stage.path)
        ticket = await owned.acquire()
        request: Any = asyncio.create_task(asyncio.Event().wait())  # to watch its own node
        ticket.watch_request = request
        if expires == "before":
            await expire(stage)
            with stage.server.hold_replies("sync", session=stage.zk.session_id):  # the leader is not asked
                assert await owned.still_owns(ticket) is False
        else:
            make_uncertain(stage.zk)
            with stage.server.drop_after("sync", session=stage.zk.session_id) as asked:
                task = asyncio.create_task(owned.still_owns(ticket))
                await asked.until_hit()
            stage.server.expire(stage.zk.session_id)
            assert await task is False
        assert ticket.watch_request is None
        await nothing_stays(stage)


async def test_a_task_that_is_cancelled_while_the_leader_is_asked_leaves_no_ticket() -> None:
    async with scene() as stage, no_task_stays():
        owned = Line(stage.zk, stage.path)
        ticket = await owned.acquire()
        make_uncertain(stage.zk)
        with stage.server.hold_replies("sync", session=stage.zk.session_id) as asked:
            task = asyncio.create_task(owned.still_owns(ticket))
            await asked.until_hit()
            task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
        await until_line(stage.other, stage.path, 0)
        await nothing_stays(stage)
