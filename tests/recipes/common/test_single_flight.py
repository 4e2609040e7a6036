"""Looks that tasks share: when they are sent, in which order they return, and what becomes of a failure."""

import asyncio
from collections.abc import Callable

import pytest

from recipes.common.single_flight import SingleFlight
from tests.support.client import turns


class Looking:
    """Looks whose ends the test chooses: each waits for `ends`, and has the number of its beginning as its result."""

    def __init__(self) -> None:
        self.looks: SingleFlight[int] = SingleFlight()
        self.tasks: list[int] = []  # for how many tasks each look was made
        self.ends: list[asyncio.Future[None]] = []
        self.returned: list[str] = []

    async def look(self, tasks: int) -> int:
        """Wait until the test ends this look."""
        number = len(self.tasks)
        self.tasks.append(tasks)
        self.ends.append(asyncio.get_running_loop().create_future())
        await self.ends[number]
        return number

    def ask(self, name: str) -> asyncio.Task[int]:
        """Ask for a look in a task."""

        async def asking() -> int:
            found = await self.looks.share(self.look)
            self.returned.append(name)
            return found

        return asyncio.create_task(asking())


async def begun(count: int = 3) -> tuple[Looking, list[asyncio.Task[int]]]:
    """The first task looks, the others wait for the next look."""
    looking = Looking()
    tasks = [looking.ask(str(number)) for number in range(count)]
    await turns(1)
    assert looking.tasks == [1]
    return looking, tasks


async def test_tasks_that_ask_while_a_look_is_under_way_share_the_next_one() -> None:
    looking, tasks = await begun(4)
    looking.ends[0].set_result(None)
    await turns(3)
    assert looking.tasks == [1, 3]
    late = looking.ask("late")
    await turns(2)
    looking.ends[1].set_result(None)
    await turns(3)
    assert looking.tasks == [1, 3, 1]
    assert not late.done()
    looking.ends[2].set_result(None)
    assert await asyncio.gather(*tasks, late) == [0, 1, 1, 1, 2]
    assert looking.returned == ["0", "1", "2", "3", "late"]


def cancel(looking: Looking, task: asyncio.Task[int]) -> None:
    task.cancel()


def fail(looking: Looking, task: asyncio.Task[int]) -> None:
    looking.ends[-1].set_exception(OSError("refused"))


@pytest.mark.parametrize("end", [cancel, fail])
async def test_a_look_that_fails_is_made_by_the_next_task(end: Callable[[Looking, asyncio.Task[int]], None]) -> None:
    looking, (first, second, *others) = await begun(4)
    looking.ends[0].set_result(None)
    await turns(3)
    end(looking, second)
    await turns(3)
    assert looking.tasks == [1, 3, 2]
    looking.ends[2].set_result(None)
    assert await asyncio.gather(first, *others) == [0, 2, 2]
    with pytest.raises((asyncio.CancelledError, OSError)):
        await second


async def test_a_task_that_is_cancelled_when_it_has_to_look_leaves_it_to_the_next_one() -> None:
    looking, (first, second, third) = await begun(3)
    looking.ends[0].set_result(None)
    await turns(1)  # in this turn `second` was asked to look, and has not run yet
    assert looking.tasks == [1]
    second.cancel()
    await turns(3)
    assert looking.tasks == [1, 1]
    looking.ends[1].set_result(None)
    assert [await first, await third] == [0, 1]


async def test_when_all_that_wait_are_cancelled_the_next_look_is_made_at_once() -> None:
    looking, (first, *others) = await begun(3)
    for task in others:
        task.cancel()
    looking.ends[0].set_result(None)
    await asyncio.wait([first, *others])
    late = looking.ask("late")
    await turns(1)
    assert looking.tasks == [1, 1]
    looking.ends[1].set_result(None)
    assert await late == 1


async def test_a_task_that_is_cancelled_when_its_look_has_ended_does_not_start_a_second_look() -> None:
    """The next look is about to be made, and the tasks that have asked since share it."""
    looking, tasks = await begun(3)
    looking.ends[0].set_result(None)
    await turns(3)
    late = [looking.ask(name) for name in ("late", "later")]
    await turns(1)
    looking.ends[1].set_result(None)
    await turns(1)
    tasks[2].cancel()  # its look has ended, but it has not gone on
    await turns(3)
    assert tasks[2].cancelled()
    assert looking.tasks == [1, 2, 2]
    looking.ends[2].set_result(None)
    assert await asyncio.gather(*late) == [2, 2]
