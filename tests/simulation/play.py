"""Makes schedules from numbers, plays them, and shortens one that fails."""

import dataclasses
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from tests.simulation.ensemble.habits import random_habits
from tests.simulation.faults import random_faults, with_lags
from tests.simulation.scenarios.all import SCENARIOS
from tests.simulation.schedule import Actor, Schedule, random_actor, random_shape
from tests.simulation.sieges import besieged
from tests.simulation.stage import Stage

T = TypeVar("T")

_MOST_TRIES: Final = 400  # runs to shorten one schedule


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: the failure, None if there is none; the digest of its order; its length; what is rare."""

    failure: str | None
    digest: int
    turns: int
    seconds: float
    seen: frozenset[str]


def make(scenario: str, number: int) -> Schedule:
    """Return the schedule of that number."""
    rng = Random(f"{scenario} {number}")
    kind = SCENARIOS[scenario]
    shape = dataclasses.replace(random_shape(rng), **random_habits(rng))
    actors = tuple(
        random_actor(rng, f"c{index + 1}", shape, kind.tasks(rng, shape.tick))
        for index in range(rng.randint(*kind.players))
    )
    schedule = Schedule(scenario, number, shape, actors, random_faults(rng, shape, actors))
    return with_lags(rng, besieged(rng, schedule, kind))


def play(schedule: Schedule, *, collect: bool = False) -> Outcome:
    """Play a schedule; to be called within `simulated()`.

    Arguments: `collect`, whether to collect the garbage afterwards: a task whose exception was never retrieved reports
    it only then.
    """
    stage = Stage(schedule, SCENARIOS[schedule.scenario])
    stage.play()
    world, failures, seen = stage.world, stage.failures, stage.seen
    stage.close()
    if collect:
        complaints = len(world.complaints)
        del stage
        gc.collect(0)  # the collector is off: all that the run has made is young
        failures += world.complaints[complaints:]
    return Outcome(failures[0] if failures else None, world.digest, world.turns, world.now, frozenset(seen))


def shortened(schedule: Schedule, tries: int = _MOST_TRIES) -> Schedule:
    """Return a schedule with as few faults and steps as can be found that fails, too."""
    left = [tries]

    def fails(candidate: Schedule) -> bool:
        left[0] -= 1
        return left[0] >= 0 and play(candidate).failure is not None

    is_shorter = True
    while is_shorter and left[0] > 0:
        is_shorter = False
        for candidate in _candidates(schedule):
            if fails(candidate):
                schedule, is_shorter = candidate, True
                break
    return schedule


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Each schedule that is a little shorter, those that lack most first."""
    replace: Callable[..., Schedule] = dataclasses.replace
    actors, faults = schedule.actors, schedule.faults
    if len(faults) > 3:
        yield replace(schedule, faults=faults[: len(faults) // 2])
        yield replace(schedule, faults=faults[len(faults) // 2 :])
    for index in range(len(actors)):
        kept = tuple(fault for fault in faults if actors[index].name not in fault.targets)
        yield replace(schedule, actors=_without(actors, index), faults=kept)
    for index in range(len(faults)):
        yield replace(schedule, faults=_without(faults, index))
    for index, actor in enumerate(actors):
        for simpler in _simpler(actor):
            yield replace(schedule, actors=(*actors[:index], simpler, *actors[index + 1 :]))


def _simpler(actor: Actor) -> Iterator[Actor]:
    tasks = actor.tasks
    if len(tasks) > 1:
        for index in range(len(tasks)):
            yield dataclasses.replace(actor, tasks=_without(tasks, index))
    for number, steps in enumerate(tasks):
        for index in range(len(steps)):
            less = (*tasks[:number], _without(steps, index), *tasks[number + 1 :])
            yield dataclasses.replace(actor, tasks=less)
    if actor.slowness:
        yield dataclasses.replace(actor, slowness=0.0)


def _without(items: tuple[T, ...], index: int) -> tuple[T, ...]:
    return items[:index] + items[index + 1 :]
