"""The fair lock with several tickets of each client in the line: they share what their connection has shown."""

from random import Random
from typing import Final

from recipes import Lock
from tests.simulation.scenarios.lock import LockScenario, random_steps
from tests.simulation.schedule import Step
from tests.simulation.stage import Player

_PATH: Final = "/locks/a"


class CrowdScenario(LockScenario):
    """Few players, each with several tasks; each task has a lock of its own."""

    name = "crowd"
    players = (1, 3)

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return [random_steps(rng, tick) for _ in range(rng.randrange(3, 7))]

    def locking(self, player: Player, what: str) -> Lock:
        return Lock(player.zk, _PATH)
