"""The fair lock: several players, each with one or two tasks, at one path."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, cast

from recipes import Lock, LockLostError
from tests.simulation.checks import Guard
from tests.simulation.scenario import Scenario
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH = "/locks/a"


class LockScenario(Scenario):
    """Steps: "hold", "try", "wait", "cancel" and "pause"; see `do`."""

    name = "lock"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.guard = Guard(stage, _PATH)

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return [random_steps(rng, tick) for _ in range(2 if rng.random() < 0.2 else 1)]

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        return Step("hold", seconds)

    def equip(self, player: Player) -> Lock:
        return Lock(player.zk, _PATH, local_passes=len(player.actor.tasks) - 1)

    async def do(self, player: Player, step: Step) -> None:
        """Do one of these: hold for so long; try, and hold if it was free; wait for so long; cancel; pause."""
        lock = cast(Lock, player.tool)
        match step.kind:
            case "pause":
                await asyncio.sleep(step.amount)
            case "hold":
                await self._hold(player, lock, step.amount, None)
            case "wait":
                await self._hold(player, lock, step.amount, step.other)
            case "try":
                await self._try(player, lock, step.amount)
            case "cancel":
                await cancelled_after(int(step.amount), self._hold(player, lock, 10.0, None))

    async def _hold(self, player: Player, lock: Lock, seconds: float, within: float | None) -> None:
        try:
            async with lock.hold(within=within) as lease:
                with self.guard.held(player, lease):
                    await asyncio.sleep(seconds)
        except (LockLostError, TimeoutError):
            pass

    async def _try(self, player: Player, lock: Lock, seconds: float) -> None:
        lease = await lock.try_acquire()
        if lease is None:
            return
        try:
            with self.guard.held(player, lease):
                await asyncio.wait([asyncio.ensure_future(lease.lost())], timeout=seconds)
        finally:
            await lease.release()

    def deletable(self) -> list[str]:
        return self.guard.tickets()

    def deleted(self, path: str) -> None:
        self.guard.deleted(path)

    def left(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_PATH)


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
