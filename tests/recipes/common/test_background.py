"""The background task of a body: both end together, whichever fails or is cancelled."""

import asyncio
import contextlib

import pytest

from recipes.common.background import BackgroundTask
from tests.support.recipes import body_raises, outcome, this_task, until

pytestmark = pytest.mark.limit(10)


class Work:
    """Work that runs until it is cancelled, and then cleans up until `may_end` is set."""

    def __init__(self) -> None:
        self.is_cleaning_up = asyncio.Event()
        self.may_end = asyncio.Event()
        self.cancellations = 0

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.is_cleaning_up.set()
            while not self.may_end.is_set():
                try:
                    await self.may_end.wait()
                except asyncio.CancelledError:
                    self.cancellations += 1
            raise ValueError("at its end") from None


async def leave(work: Work) -> None:
    background = BackgroundTask(work.run())
    await asyncio.sleep(0)  # so that it has begun
    await background.leave(None)


async def fail() -> None:
    raise ValueError("at once")


async def test_an_error_of_the_work_is_raised_at_the_end() -> None:
    work = Work()
    leaving = asyncio.create_task(leave(work))
    await work.is_cleaning_up.wait()
    assert not leaving.done()
    work.may_end.set()
    with pytest.raises(ValueError, match="at its end"):
        await leaving
    assert work.cancellations == 0


async def test_an_error_of_the_work_takes_the_place_of_the_cancellation() -> None:
    """And of no other error of the body."""
    for kind in (asyncio.CancelledError, KeyError):
        background = BackgroundTask(fail())
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        assert isinstance(await outcome(background.leave(kind)), ValueError) is (kind is not KeyError)
        assert this_task().cancelling() == 0


async def test_work_that_has_failed_goes_on_until_the_body_has_ended() -> None:
    """A second failure meanwhile does not cancel the body again, nor take the place of the first."""
    background = BackgroundTask(fail())
    background.fail(KeyError("first"))
    for _ in range(2):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.001)
    with pytest.raises(KeyError, match="first"):
        await background.leave(asyncio.CancelledError)
    assert this_task().cancelling() == 0


async def test_a_body_that_is_cancelled_while_it_leaves_waits_for_the_work_to_end() -> None:
    work = Work()
    leaving = asyncio.create_task(leave(work))
    await work.is_cleaning_up.wait()
    try:
        leaving.cancel()
        await until(lambda: work.cancellations == 1, limit=3)
        leaving.cancel()
        await until(lambda: work.cancellations == 2, limit=3)
        assert not leaving.done()
    finally:
        work.may_end.set()
    came = await outcome(leaving)
    assert isinstance(came, asyncio.CancelledError)
    assert isinstance(came.__cause__, ValueError)


async def test_our_own_cancellation_is_withdrawn_even_if_another_one_comes_while_leaving() -> None:
    counts = []

    async def body() -> None:
        background = BackgroundTask(fail())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            this_task().cancel()
            try:
                await background.leave(asyncio.CancelledError)
            finally:
                counts.append(this_task().cancelling())
            raise

    assert isinstance(await outcome(asyncio.create_task(body())), asyncio.CancelledError)
    assert counts == [1]  # the other cancellation


async def test_a_cancellation_that_is_not_ours_goes_on() -> None:
    """As that of asyncio.timeout, which counts the cancellations of its task."""
    with body_raises(TimeoutError):
        async with asyncio.timeout(0):
            background = BackgroundTask(asyncio.sleep(60))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await background.leave(asyncio.CancelledError)
                assert this_task().cancelling() == 1
                raise
