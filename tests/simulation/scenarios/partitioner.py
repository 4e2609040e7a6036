"""The partitioner: players that come and go, and divide some partitions."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, cast

from recipes import Lease, Partitioner
from tests.simulation.checks import Guard
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import refused
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH = "/jobs/a"
_PARTITIONS = range(4)
_SETTLE = 0.1  # seconds
_LOOK_EVERY = 0.5  # seconds
_ROUNDING = 0.001
_WEIGHTS = 3
# What wrong functions for `divide` take: everything, or nothing.
_TAKEN: Final = {_WEIGHTS: list(_PARTITIONS), _WEIGHTS + 1: []}


@dataclass(eq=False)
class _Tool:
    """What a player has at this moment: `works` are its partitions, each with the body that serves it."""

    works: dict[int, asyncio.Task[None]]


class PartitionerScenario(Scenario):
    """Steps: "serve" for so long, and "pause"; at the end all players serve until all partitions are served.

    Members have different weights, and some a function that takes everything or nothing.

    Checked is: no two certain leases of one partition, and no body that runs on when the next one begins; all
    partitions are served in the end.
    """

    name = "partitioner"
    players = (1, 4)
    lines = tuple(f"{_PATH}/locks/{number}" for number in _PARTITIONS)
    kinds = {"serve": 2, "pause": 1}
    lists = (1,)
    count = (1, 5)
    durations = (0.0, 0.1, 0.5, 2.0, 8.0)
    others = {"serve": range(_WEIGHTS + len(_TAKEN))}
    roles = {"hold": "serve"}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._guards = [Guard(stage, line) for line in self.lines]
        self._tools: dict[Player, _Tool] = {}
        self._is_served = False

    def equip(self, player: Player) -> _Tool:
        tool = self._tools[player] = _Tool({})  # of its present process
        return tool

    async def do_serve(self, player: Player, step: Step) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.amount):
                await self._serve(player, int(step.other))

    async def _serve(self, player: Player, other: int) -> None:
        taken, weight = _TAKEN.get(other), other % _WEIGHTS + 1
        divide = None if taken is None else lambda *_: taken
        works = cast(_Tool, player.tool).works
        async with contextlib.AsyncExitStack() as stack:
            while True:
                with refused():
                    partitioner = Partitioner(
                        player.zk, _PATH, _PARTITIONS, settle=_SETTLE, weight=weight, divide=divide, within=None
                    )
                    mine = await stack.enter_async_context(partitioner)
                    break
            try:
                async for partitions in mine:
                    if uncertain := [each for each in partitions if not mine.lease(each).is_certain()]:
                        self.stage.fail(f"{player.actor.name} is given {uncertain} without a certain lease")
                    await _stop(works, works.keys() - partitions)
                    for partition in partitions - works.keys():
                        with contextlib.suppress(LookupError):  # lost meanwhile: the next set is without it
                            lease = mine.lease(partition)
                            works[partition] = asyncio.create_task(self._work(player, partition, lease))
            finally:
                await _stop(works, set(works))

    async def _work(self, player: Player, partition: int, lease: Lease) -> None:
        if lease.is_certain():  # time has passed since the partition was given
            with self._guards[partition].held(player, lease):
                await lease.lost()

    async def finish(self, player: Player) -> None:
        """Serve until all partitions are served at one moment."""
        await self.settled(player)
        serving = asyncio.create_task(self._serve(player, int(player.actor.name[1:]) % _WEIGHTS))
        while not self._is_served:
            if serving.done():
                await serving
            works = [work for tool in self._tools.values() for work in tool.works.items()]
            served = [partition for partition, work in works if not work.done()]
            self._is_served = sorted(served) == list(_PARTITIONS)
            # All look at the same moments: one that leaves first would make the others divide again.
            now = self.stage.world.now
            await asyncio.sleep((int(now / _LOOK_EVERY + _ROUNDING) + 1) * _LOOK_EVERY - now)
        serving.cancel()
        await asyncio.wait([serving])

    def deletable(self) -> list[str]:
        return [*self.stage.ensemble.nodes_below(f"{_PATH}/members"), *self.tickets()]

    def left(self) -> list[str]:
        return self.deletable()


async def _stop(works: dict[int, asyncio.Task[None]], partitions: set[int]) -> None:
    stopped = [works.pop(partition) for partition in partitions]
    for work in stopped:
        work.cancel()
    if stopped:
        await asyncio.wait(stopped)
