"""The lock with a time limit: bodies that are longer than it, extended limits, and holders that hang."""

import asyncio
from random import Random
from typing import Any, Final

from recipes import TimedLock
from tests.simulation.scenarios.lock import GuardedScenario, random_tasks
from tests.simulation.schedule import Step
from tests.simulation.stage import Player

_PATH: Final = "/locks/timed"


class TimedLockScenario(GuardedScenario):
    """The steps of HeldScenario, each for "once" or "extend": to set a new limit again and again while holding."""

    name = "timed-lock"
    path = _PATH

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return random_tasks(rng, tick, ("once", "once", "extend"))

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        return Step("extend hold", seconds)

    def equip(self, player: Player) -> TimedLock:
        limit = player.rng.choice([0.2, 0.5, 1.0, 3.0, 20.0]) * self.stage.schedule.shape.tick
        return TimedLock(player.zk, _PATH, limit)

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        with self.watched(player, lease, what):
            limit = min(lease.certain_for(), seconds)
            end = self._now() + seconds
            while what == "extend" and limit > 0.01 and self._now() < end:
                await asyncio.sleep(limit * player.rng.choice([0.0, 0.5, 0.9]))
                limit = player.rng.choice([0.2, 0.5, 2.0]) * self.stage.schedule.shape.tick
                await lease.extend(limit)
            await asyncio.sleep(max(0.0, end - self._now()))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
