"""The lock with a time limit: bodies that are longer than it, extended limits, and holders that hang."""

import asyncio
from typing import Any, Final

from recipes import TimedLock
from tests.simulation.scenarios.lock import HeldScenario, held
from tests.simulation.stage import Player

_PATH: Final = "/locks/timed"


class TimedLockScenario(HeldScenario):
    """The steps of HeldScenario, each for "once" or "extend": to set a new limit again and again while holding."""

    name = "timed-lock"
    lines = (_PATH,)
    whats = ("once", "once", "extend")
    roles = held("extend hold")

    def equip(self, player: Player) -> TimedLock:
        limit = player.rng.choice([0.2, 0.5, 1.0, 3.0, 20.0]) * self.stage.schedule.shape.tick
        return TimedLock(player.zk, _PATH, limit)

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        with self.watched(player, lease, what):
            limit = min(lease.certain_for(), seconds)
            loop = asyncio.get_running_loop()
            end = loop.time() + seconds
            while what == "extend" and limit > 0.01 and loop.time() < end:
                await asyncio.sleep(limit * player.rng.choice([0.0, 0.5, 0.9]))
                limit = player.rng.choice([0.2, 0.5, 2.0]) * self.stage.schedule.shape.tick
                await lease.extend(limit)
            await asyncio.sleep(max(0.0, end - loop.time()))
