"""Nested holds of one task: a loss stops every body, also when the code between two bodies catches what it raises."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from recipes import Lock, LockLostError, MultiLease, MultiLock, ReadWriteLock, ReentrantLock
from recipes.line.locking import _ENTERED, Locking
from tests.recipes.line.test_locking import lost_body
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import body_raises, no_task_stays, this_task
from zkwire import Client

pytestmark = pytest.mark.limit(20)

P = "/recipe"
Nesting = Callable[[Client], list[Callable[[], Any]]]


def _reentrant(depth: int) -> Nesting:
    def make(zk: Client) -> list[Callable[[], Any]]:
        lock = ReentrantLock(zk, P)
        return [lambda: lock] * depth

    return make


def _of(locking: Locking[Any], *, last: Locking[Any] | None = None) -> list[Callable[[], Any]]:
    return [locking.hold, (last or locking).hold]


def _multi_within_single(zk: Client) -> list[Callable[[], Any]]:
    lock = ReentrantLock(zk, P)
    return _of(lock, last=MultiLock([lock, Lock(zk, f"{P}-2")]))


NESTINGS: dict[str, Nesting] = {
    "re-entrant, 2": _reentrant(2),
    "re-entrant, 3": _reentrant(3),
    "re-entrant, hold()": lambda zk: _of(ReentrantLock(zk, P)),
    "readers": lambda zk: _of(ReadWriteLock(zk, P).read()),
    "multi within single": _multi_within_single,
}
every_nesting = pytest.mark.parametrize("nesting", NESTINGS.values(), ids=NESTINGS.keys())


@asynccontextmanager
async def stage_of_locks() -> AsyncIterator[Scene]:
    """A scene; at the end no node, no task, no cancellation and no entered hold may be left."""
    async with scene(P) as stage, no_task_stays():
        yield stage
        assert this_task().cancelling() == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert this_task() not in _ENTERED
        await nothing_stays(stage)


def node_of(lease: Any) -> str:
    """Return the node of the lock at P."""
    path: str = lease.leases[P].path if isinstance(lease, MultiLease) else lease.path
    return path


async def _forever() -> None:
    await asyncio.Event().wait()


async def _lose_in_innermost(stage: Scene, holds: list[Callable[[], Any]], *, swallows: bool) -> None:
    """Enter `holds`, one in the other; lose the lease in the innermost body.

    The innermost body swallows its cancellation, or else the code around each inner body catches LockLostError.
    """
    async with holds[0]() as lease:
        try:
            if len(holds) > 1:
                await _lose_in_innermost(stage, holds[1:], swallows=swallows)
            else:
                await stage.other.delete(node_of(lease))
                await _forever()
        except LockLostError:
            await _forever()  # an outer body that goes on
        except asyncio.CancelledError:
            if len(holds) > 1 or not swallows:
                raise


@every_nesting
@pytest.mark.parametrize("swallows", [False, True])
async def test_every_body_is_stopped(nesting: Nesting, swallows: bool) -> None:
    """Pitfall 73."""
    async with stage_of_locks() as stage:
        with body_raises(LockLostError, match="deleted"):
            async with asyncio.timeout(5):
                await _lose_in_innermost(stage, nesting(stage.zk), swallows=swallows)


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("caught", [KeyError, asyncio.CancelledError])
async def test_a_loss_stops_each_body_once_and_a_cancellation_from_elsewhere_wins(
    caught: type[BaseException], is_cancelled: bool
) -> None:
    """If the code between two bodies catches it, the outer body is stopped."""
    async with stage_of_locks() as stage:
        lock = ReentrantLock(stage.zk, P)

        async def hold() -> None:
            async with lock:
                with suppress(caught):
                    async with lock as lease:
                        loop = asyncio.get_running_loop()
                        loop.call_soon(lease._lose, "deleted")
                        if is_cancelled:
                            loop.call_soon(this_task().cancel)
                        await _forever()
                await asyncio.wait_for(_forever(), 5)

        with body_raises(asyncio.CancelledError if is_cancelled else LockLostError):
            await (asyncio.create_task(hold()) if is_cancelled else hold())


async def test_the_loss_that_the_inner_hold_finds_on_entering_stops_the_outer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 73: the lease is not certain any more, and the task itself is the first to see it."""
    async with stage_of_locks() as stage:
        lock = ReentrantLock(stage.zk, P)
        with body_raises(LockLostError, match="confirmed"):
            async with lock:
                with monkeypatch.context() as patch, body_raises(LockLostError):
                    patch.setattr(stage.zk, "certain_for", lambda _: 0.0)
                    async with lock:
                        raise AssertionError("the body must not run")
                await asyncio.wait_for(_forever(), 5)


async def test_a_lost_outer_lease_stops_its_body_although_the_inner_body_swallows_the_cancellation() -> None:
    """Pitfall 73: the leases are two, and only the outer one is lost."""
    async with stage_of_locks() as stage:
        with body_raises(LockLostError, match="deleted"):
            async with Lock(stage.zk, P) as lease:
                async with Lock(stage.zk, f"{P}-2"):
                    await stage.other.delete(lease.path)
                    with pytest.raises(asyncio.CancelledError):
                        await _forever()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(_forever(), 5)
                await lost_body(Lock(stage.zk, f"{P}-3").hold())
                await asyncio.wait_for(_forever(), 5)


async def test_a_cancelled_error_of_the_body_itself_is_not_taken_for_the_loss() -> None:
    async with stage_of_locks() as stage:
        with body_raises(asyncio.CancelledError):
            async with Lock(stage.zk, P) as lease:
                lease._lose("deleted")
                raise asyncio.CancelledError


async def test_clean_up_between_two_bodies_is_not_disturbed_if_the_release_of_the_inner_one_was_stopped() -> None:
    """The loss cancels the task while it waits for the answer to the inner release."""
    async with stage_of_locks() as stage:
        cleaned_up = False
        with body_raises(LockLostError, match="for a test"):
            async with Lock(stage.zk, P) as lease:

                async def lose_during_release() -> None:
                    await held.until_hit()
                    lease._lose("for a test")

                try:
                    with stage.server.hold_replies("delete", session=stage.zk.session_id) as held:
                        losing = asyncio.create_task(lose_during_release())
                        async with Lock(stage.zk, f"{P}-2"):
                            pass
                        await _forever()
                finally:
                    await losing
                    await stage.zk.ping()
                    cleaned_up = True
        assert cleaned_up


async def test_of_several_leases_that_are_lost_together_the_outermost_raises_and_each_says_how() -> None:
    """As with nested asyncio.timeout blocks, the code between two bodies gets a CancelledError."""
    async with stage_of_locks() as stage:
        seen: list[type[BaseException]] = []
        with body_raises(LockLostError, match=f"{P}/"):
            async with Lock(stage.zk, P) as outer:
                try:
                    async with Lock(stage.zk, f"{P}-2") as inner:
                        stage.server.expire(stage.zk.session_id)
                        await _forever()
                except BaseException as error:
                    seen.append(type(error))
                    raise
        assert seen == [asyncio.CancelledError]
        for lease in (outer, inner):
            with pytest.raises(LockLostError, match=lease.path):
                lease.check()
