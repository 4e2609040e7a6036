"""Virtual time: clocks that differ, machines that stop, and runs that are stuck."""

import asyncio
from collections.abc import Callable

import pytest

from tests.simulation.loop import Machine, World


def run(machine: Machine, *tasks: asyncio.Task[object], limit: float = 1000.0) -> None:
    for task in tasks:
        task.add_done_callback(lambda _: machine.world.look())
    machine.world.run(until=lambda: all(task.done() for task in tasks), limit=limit)
    for task in tasks:
        task.result()


async def after(seconds: float) -> tuple[float, asyncio.AbstractEventLoop]:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time(), asyncio.get_running_loop()


def test_each_machine_has_its_own_clock_and_is_the_running_loop_of_its_tasks() -> None:
    world = World(1)
    fast, late = Machine(world, "fast", rate=2.0), Machine(world, "late", offset=100.0)
    one, two = fast.create_task(after(10.0)), late.create_task(after(10.0))
    run(fast, one)
    assert world.now == pytest.approx(5.0)
    run(late, two)
    assert world.now == pytest.approx(10.0)
    assert one.result()[0] == pytest.approx(10.0)
    assert two.result()[0] == pytest.approx(110.0)
    assert (one.result()[1], two.result()[1]) == (fast, late)


def test_a_machine_that_is_stopped_does_what_was_due_when_it_goes_on() -> None:
    world = World(1)
    machine = Machine(world, "m")
    task = machine.create_task(after(1.0))
    machine.stop_running()
    world.at(5.0, machine.go_on)
    run(machine, task)
    assert world.now == pytest.approx(6.0)  # it had not begun before it was stopped
    assert machine.suspended() == 0.0


def test_the_clock_of_a_suspended_machine_stands_still() -> None:
    world = World(1)
    machine = Machine(world, "m")
    task = machine.create_task(after(1.0))
    world.at(0.5, lambda: machine.stop_running(suspend=True))
    world.at(3.0, lambda: seen.append((machine.time(), machine.suspended())))
    world.at(5.0, machine.go_on)
    seen: list[tuple[float, float]] = []
    run(machine, task)
    assert seen[0] == pytest.approx((0.5, 2.5))
    assert task.result()[0] == pytest.approx(1.0)
    assert machine.suspended() == pytest.approx(4.5)
    assert world.now == pytest.approx(5.5)


def played(on: str, begin: Callable[[asyncio.AbstractEventLoop, list[str]], None]) -> list[str]:
    """Return what the callbacks of `begin` have noted, on a machine or in asyncio's own event loop."""
    notes: list[str] = []

    async def wait() -> None:
        begin(asyncio.get_running_loop(), notes)
        await asyncio.sleep(0.05)

    if on == "asyncio":
        asyncio.run(wait())
    else:
        machine = Machine(World(1), "m")
        run(machine, machine.create_task(wait()))
    return notes


def chain(loop: asyncio.AbstractEventLoop, notes: list[str], number: int = 0) -> None:
    """Note a number, and the next one in the next turn."""
    notes.append(str(number))
    if number < 3:
        loop.call_soon(chain, loop, notes, number + 1)


def two_timers(loop: asyncio.AbstractEventLoop, notes: list[str]) -> None:
    when = loop.time() + 0.01
    loop.call_at(when, chain, loop, notes)
    loop.call_at(when, notes.append, "two")


def a_timer_that_is_due(loop: asyncio.AbstractEventLoop, notes: list[str]) -> None:
    loop.call_soon(chain, loop, notes)
    loop.call_later(0, notes.append, "timer")


def a_blocked_loop(loop: asyncio.AbstractEventLoop, notes: list[str]) -> None:
    loop.call_later(10, notes.append, "timer")
    loop.call_later(20, notes.append, "timer")

    def block() -> None:
        later = loop.time() + 30
        if isinstance(loop, Machine):
            loop.world.now += 30
        else:
            vars(loop)["time"] = lambda: later  # as if this call had taken so long
        chain(loop, notes)

    loop.call_soon(block)


@pytest.mark.parametrize("on", ["asyncio", "a machine"])
@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (two_timers, ["0", "two", "1", "2", "3"]),
        (a_timer_that_is_due, ["0", "timer", "1", "2", "3"]),
        (a_blocked_loop, ["0", "1", "timer", "timer", "2", "3"]),
    ],
)
def test_callbacks_and_timers_have_the_order_of_asyncio(
    on: str, begin: Callable[[asyncio.AbstractEventLoop, list[str]], None], expected: list[str]
) -> None:
    assert played(on, begin) == expected
