"""The fair lock, and what it shares with all scenarios in which something is held."""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from typing import Any, cast

import zkwire
from recipes import Lock, LockLostError
from recipes.line.locking import Locking
from tests.simulation.checks import Guard
from tests.simulation.scenario import Scenario
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH = "/locks/a"
_TIMES = {"hold": 1, "try": 1, "wait": 1, "terms": 2}  # how often a step of a kind holds for its time


class HeldScenario(Scenario):
    """A scenario in which something is held; see `do` for the steps.

    A subclass says what is acquired (`locking`) and which guards watch it (`watched`), and may give the holder more to
    do (`body`).  Where there is more than one thing to acquire, the kinds of steps begin with a word for it.
    """

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        return Step("hold", seconds)

    @classmethod
    def busy_step(cls, seconds: float, pause: float) -> Step | None:
        step = cls.long_step(seconds)
        return None if step is None else replace(step, other=pause)

    def holds(self) -> float:
        steps = [step for actor in self.stage.schedule.actors for steps in actor.tasks for step in steps]
        return sum(step.amount * _TIMES.get(step.kind.rpartition(" ")[2], 0) for step in steps)

    @abstractmethod
    def locking(self, player: Player, what: str) -> Locking[Any]:
        """Return what a step acquires; `what` is the word before its kind, "" if there is none."""

    @abstractmethod
    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        """Return the context in which a body runs."""

    async def do(self, player: Player, step: Step) -> None:
        """Do one of these: hold for so long; try, and hold if it was free; wait for so long; cancel; pause.

        Beside a hold, ask the leader each `step.other` seconds, unless that is 0.
        """
        what, _, kind = step.kind.rpartition(" ")
        match kind:
            case "pause":
                await asyncio.sleep(step.amount)
            case "hold":
                asking = asyncio.create_task(_ask_the_leader(player, step.other)) if step.other else None
                await self._hold(player, what, step.amount, None)
                if asking is not None:
                    asking.cancel()
                    await asyncio.wait([asking])
            case "wait":
                await self._hold(player, what, step.amount, step.other)
            case "try":
                await self._try(player, what, step.amount)
            case "cancel":
                await cancelled_after(int(step.amount), self._hold(player, what, 10.0, None))
            case _:
                raise ValueError(f"there is no step {step.kind!r}")

    async def _hold(self, player: Player, what: str, seconds: float, within: float | None) -> None:
        try:
            async with self.locking(player, what).hold(within=within) as lease:
                await self.body(player, lease, what, seconds)
        except LockLostError:
            pass
        except TimeoutError:
            if within is None:
                raise

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        """Do what a holder does."""
        with self.watched(player, lease, what):
            await asyncio.sleep(seconds)

    async def _try(self, player: Player, what: str, seconds: float) -> None:
        lease = await self.locking(player, what).try_acquire()
        if lease is None:
            return
        try:
            with self.watched(player, lease, what):
                await asyncio.wait([asyncio.ensure_future(lease.lost())], timeout=seconds)
        finally:
            await lease.release()


class GuardedScenario(HeldScenario):
    """One in which a single guard, which a subclass makes, watches all that is held."""

    guard: Guard
    line = ""

    def lines(self) -> list[str]:
        return [self.line]

    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        return self.guard.held(player, lease)

    def deletable(self) -> list[str]:
        return self.guard.tickets()

    def deleted(self, path: str) -> None:
        self.guard.deleted(path)

    def left(self) -> list[str]:
        return self.guard.tickets()


async def _ask_the_leader(player: Player, pause: float) -> None:
    while True:
        with contextlib.suppress(zkwire.ZooKeeperError):
            await player.zk.sync("/")
        await asyncio.sleep(pause)


class LockScenario(GuardedScenario):
    """Several players, each with one or two tasks, at one path."""

    name = "lock"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.line = _PATH
        self.guard = Guard(stage, _PATH)

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return random_tasks(rng, tick)

    def equip(self, player: Player) -> Lock:
        return Lock(player.zk, _PATH, local_passes=len(player.actor.tasks) - 1)

    def locking(self, player: Player, what: str) -> Lock:
        return cast(Lock, player.tool)

    def left(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_PATH)


def random_tasks(rng: Random, tick: float, whats: Sequence[str] = ()) -> list[list[Step]]:
    """Return the steps of one player, in one or two tasks.

    Arguments: `whats`, the words for what may be acquired; one that is chosen more often is listed more often.
    """
    tasks = [random_steps(rng, tick) for _ in range(2 if rng.random() < 0.2 else 1)]
    if not whats:
        return tasks
    return [
        [step if step.kind == "pause" else replace(step, kind=f"{rng.choice(whats)} {step.kind}") for step in steps]
        for steps in tasks
    ]


def random_steps(rng: Random, tick: float) -> list[Step]:
    """Return some steps; also for other scenarios in which something is held."""
    durations = rng.choice([(0.0, 0.01, 0.1, 0.5), (0.0, 0.5, 2.0), (2.0, 8.0)])  # in ticks
    count = rng.randrange(1, 3) if 8.0 in durations else rng.randrange(1, 5)
    steps = []
    for _ in range(count):
        seconds = rng.choice(durations) * tick * rng.uniform(0.5, 1.5)
        (kind,) = rng.choices(["hold", "wait", "try", "cancel", "pause"], [6, 1, 1, 1, 2])
        if kind == "cancel":
            steps.append(Step(kind, float(int(rng.expovariate(0.1)))))
        elif kind == "wait":
            steps.append(Step(kind, seconds, rng.choice([0.0, 0.001, 0.01, 1.0, 5.0])))
        else:
            steps.append(Step(kind, seconds))
    return steps


async def cancelled_after(turns: int, act: Coroutine[Any, Any, None]) -> None:
    """Run `act` in a task, and cancel it after so many turns of the event loop."""
    task = asyncio.create_task(act)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
