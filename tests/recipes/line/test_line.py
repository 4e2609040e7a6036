"""Tries whose session expires, by every kind of lock; and tickets that a task has passed on to another one."""

import asyncio
from typing import Any

import pytest

import zkwire
from recipes.line.line import Line
from recipes.line.ticket import Ticket
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.queues import Counting
from tests.support.recipes import make_uncertain, no_task_stays, outcome, until, until_line
from zkwire import Client

pytestmark = pytest.mark.limit(30)


# -- a ticket that a task has passed on -------------------------------------------------------------------------------


async def expire(stage: Scene, zk: Client) -> None:
    """End the session of `zk`, and wait until it has another one."""
    session = zk.session_id
    stage.server.expire(session)
    await until(lambda: zk.session_id != session)


async def passed_on(stage: Scene, zk: Client, owned: Line) -> Ticket:
    """Return a ticket that owns, and whose request to watch its own node is under way, for lack of an answer."""
    ticket = await owned.acquire()
    stage.server.hold_replies("getData", session=zk.session_id)
    asked: Any = zk.get_and_watch(ticket.node.path, into=ticket.watches)
    ticket.watch_request = asyncio.create_task(asked)
    return ticket


async def asking(stage: Scene, zk: Client, owned: Line, ticket: Ticket) -> "asyncio.Task[bool]":
    """Start to ask whether `ticket` still owns; return when the server has the question.  Its answer is lost."""
    make_uncertain(zk)
    with stage.server.drop_after("sync", session=zk.session_id) as asked:
        task = asyncio.create_task(owned.still_owns(ticket))
        await asked.until_hit()
    return task


async def test_a_try_whose_session_expires_is_made_again_in_the_next_session() -> None:
    async with scene() as stage:
        await stage.other.create(stage.path)
        with stage.server.hold_replies("create", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(Line(stage.zk, stage.path).try_acquire())
            await held.until_hit()
            await expire(stage, stage.zk)
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
    """Its request fails with the session: asyncio would report an error that no task reads, and fail the test."""
    async with scene() as stage, no_task_stays():
        owned = Line(stage.zk, stage.path)
        ticket = await passed_on(stage, stage.zk, owned)
        if expires == "before":
            await expire(stage, stage.zk)
            with stage.server.hold_replies("sync", session=stage.zk.session_id):  # the leader is not asked
                assert await owned.still_owns(ticket) is False
        else:
            task = await asking(stage, stage.zk, owned, ticket)
            stage.server.expire(stage.zk.session_id)
            assert await task is False
        assert ticket.watch_request is None
        stage.server.end_faults()
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
