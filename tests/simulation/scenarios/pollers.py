"""The fair lock with players that never wait in its line: they try until they get it, and so does one that is alone."""

import asyncio
from random import Random
from typing import Final

from tests.simulation.scenarios.lock import LockScenario
from tests.simulation.schedule import Step
from tests.simulation.stage import Player

_PAUSES: Final = (0.0, 0.001, 0.01, 0.1)  # seconds between two tries


class PollersScenario(LockScenario):
    """Some players that try again and again; a free lock that no try finds free would keep them until the end."""

    name = "pollers"

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        seconds = rng.choice([0.0, 0.1, 1.0]) * tick
        return [[Step("try", seconds * rng.uniform(0.5, 1.5), rng.choice(_PAUSES)) for _ in range(rng.randrange(1, 5))]]

    async def do(self, player: Player, step: Step) -> None:
        """Do the steps of LockScenario; a try is made again after `step.other` seconds until it succeeds."""
        if step.kind != "try":
            await super().do(player, step)
            return
        while (lease := await self.locking(player, "").try_acquire()) is None:
            await asyncio.sleep(step.other)
        try:
            with self.watched(player, lease, ""):
                await asyncio.wait([asyncio.ensure_future(lease.lost())], timeout=step.amount)
        finally:
            await lease.release()
