"""The monitors of leases: which own nodes are watched, and when, although one timer serves all leases of a client."""

import asyncio
import re
from typing import Any

import pytest

import zkwire
from recipes import Lock, Semaphore, TryLock
from recipes.line import lease as module
from recipes.line.known import known_of
from tests.support.client import turns
from tests.support.everywhere import nothing_stays, scene
from tests.support.locks import start_waiting
from tests.support.recipes import make_uncertain, no_task_stays, until_armed

# -- what a monitor makes of the answer, and of events ----------------------------------------------------------------


@pytest.fixture
def watched_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNWATCHED", 0.01)


async def test_a_node_that_was_deleted_and_made_anew_is_a_loss_and_stays_as_it_is(watched_soon: None) -> None:
    """The node of a TryLock is the path itself."""
    async with scene() as stage:
        lease = await TryLock(stage.zk, stage.path).acquire()
        await stage.other.delete(stage.path)
        theirs = await TryLock(stage.other, stage.path).acquire()
        assert getattr(await lease.lost(), "why", "") == module.DELETED
        await lease.release()
        await stage.zk.ping()
        theirs.check()
        assert (await stage.other.get(stage.path)).stat.czxid == theirs.token
        await theirs.release()


@pytest.mark.parametrize(
    ("error", "why"),
    [(zkwire.NoNodeError, "^another client has deleted it$"), (zkwire.NoAuthError, "the ACL does not allow")],
)
async def test_an_unwatchable_node_is_a_loss(error: type[zkwire.ServerError], why: str, watched_soon: None) -> None:
    async with scene() as stage:
        with stage.server.answering("getData", error, session=stage.zk.session_id):
            lease = await Lock(stage.zk, stage.path).acquire()
            assert re.search(why, getattr(await lease.lost(), "why", ""))
        await lease.release()


async def test_a_request_that_the_end_of_the_program_cancels_reports_nothing(watched_soon: None) -> None:
    """As asyncio.run does with all tasks; an error in a callback would be reported, and fail the test."""
    async with scene() as stage:
        with stage.server.hold_replies("getData", session=stage.zk.session_id) as asked:
            lease = await Lock(stage.zk, stage.path).acquire()
            await asked.until_hit()
            request: Any = lease._ticket.watch_request
            request.cancel()
            await asyncio.wait([request])
        lease.check()
        lease._watch_own_node()
        lease._leave_node()
        assert lease._ticket.watch_request is None


async def test_the_departure_of_a_blocker_that_is_still_watched_is_no_loss(watched_soon: None) -> None:
    async with scene() as stage:
        holders = [await Semaphore(stage.other, stage.path, 2).acquire() for _ in range(2)]
        waiter = await start_waiting(stage.other, Semaphore(stage.zk, stage.path, 2), 3)
        await until_armed(4, stage.zk)
        await holders[0].release()
        lease = await waiter
        assert known_of(stage.zk).unwatched._due == {}  # it has brought its watch along
        await stage.other.set(holders[1].path, b"news")
        await holders[1].lost()
        await holders[1].release()
        await stage.zk.ping()
        lease.check()
        await stage.other.delete(lease.path)
        assert getattr(await lease.lost(), "why", "") == module.DELETED
        await lease.release()


async def test_certainty_that_comes_back_at_the_last_moment_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the leader arrives in the same turn of the loop in which certainty has ended."""
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        certainty: Any = stage.zk._session.lifetime.certainty
        proven = certainty.until
        for left in (5.0, 0.001):
            make_uncertain(stage.zk)
            await asyncio.sleep(0)  # the callbacks are scheduled
            with monkeypatch.context() as patch:
                patch.setattr(stage.zk, "certain_for", lambda _, left=left: left)
                await turns(3)
                lease.check()
            certainty.until = proven
            await turns(3)
        make_uncertain(stage.zk)
        assert "has not confirmed it for too long" in str(await lease.lost())
        await lease.release()
        await nothing_stays(stage)


async def test_a_deletion_between_two_leases_of_a_ticket_makes_the_second_take_a_new_ticket(
    watched_soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second task asks the leader first, and meanwhile the node is deleted."""
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path, local_passes=2)
        following = [asyncio.create_task(lock.acquire()) for _ in range(3)]
        first = await following[0]
        await until_armed(1, stage.zk)
        await first.release()
        await following[1]
        assert known_of(stage.zk).unwatched._due == {}  # the watch is passed on, too
        certify = stage.zk.certify

        async def deleted_meanwhile() -> None:
            await stage.other.delete(first.path)
            await certify()

        monkeypatch.setattr(stage.zk, "certify", deleted_meanwhile)
        await following[1].result().release()
        make_uncertain(stage.zk)
        lease = await following[2]
        assert lease.path != first.path
        await lease.release()


async def test_an_answer_that_is_not_for_this_lease_any_more_is_left_to_the_next() -> None:
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path, local_passes=1)
        lease = await lock.acquire()
        waiting = asyncio.create_task(lock.acquire())
        ticket: Any = lease._ticket
        lease._watch_own_node()
        request, ticket.watch_request = ticket.watch_request, None
        await request
        lease._watch_answered(request)  # it has asked again since
        assert not ticket.is_watched
        ticket.watch_request = request
        await lease.release()
        lease._watch_answered(request)
        assert ticket.watch_request is request
        after = await waiting
        await asyncio.sleep(0)
        assert ticket.is_watched
        await after.release()


async def test_an_event_between_two_leases_of_a_ticket_is_for_the_second(watched_soon: None) -> None:
    async with scene() as stage, no_task_stays():
        lock = Lock(stage.zk, stage.path, local_passes=1)
        first = await lock.acquire()
        await until_armed(1, stage.zk)
        following = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        await first.release()
        watches: Any = first._ticket.watches
        watches._fired(*watches._watches, zkwire.WatchEvent(zkwire.WatchEventType.DELETED, first.path, None))
        assert getattr(await (await following).lost(), "why", "") == module.DELETED
