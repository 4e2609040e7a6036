"""The barrier and the double barrier: players that hold one another back, and that meet."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

from recipes import Barrier, DoubleBarrier
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import passing, synced
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_BARRIER, _DOUBLE = "/barriers/a", "/barriers/b"


@dataclass(eq=False)
class _Try:
    """One `enter`: from when to when the member's node may have been at the barrier."""

    came: float
    went: float | None = None


class BarrierScenario(Scenario):
    """Steps: "create", "remove" and "wait" (at the barrier), "meet" (enter the double barrier and leave it), "inside"
    (the same by `async with`) and "pause"; at the end the barrier is removed, all wait for that, and all meet.

    Checked is: who enters finds that as many members as were agreed have come, and have not gone before it came; all
    meet in the end, and wait no longer when the barrier is removed.
    """

    name = "barrier"
    kinds = {"create": 2, "remove": 2, "wait": 2, "meet": 3, "inside": 2, "cancel meet": 1, "pause": 2}
    lists = (1,)
    count = (2, 7)
    durations = (0.05, 1.0, 5.0)
    others = dict.fromkeys(("meet", "inside"), (0.0, 0.1, 3.0))
    may_end = staticmethod(partial(passing, TimeoutError))

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._tries: list[_Try] = []
        self._arrived = 0
        self._is_meeting = False
        self._count = len(stage.schedule.actors)

    def equip(self, player: Player) -> Barrier:
        return Barrier(player.zk, _BARRIER)

    async def do_create(self, player: Player, step: Step) -> None:
        await cast(Barrier, player.tool).create()

    async def do_remove(self, player: Player, step: Step) -> None:
        await cast(Barrier, player.tool).remove()

    async def do_wait(self, player: Player, step: Step) -> None:
        await cast(Barrier, player.tool).wait(within=step.amount)

    async def do_meet(self, player: Player, step: Step) -> None:
        await self._meet(player, step.amount, step.other)

    async def do_inside(self, player: Player, step: Step) -> None:
        with self._trying(player) as attempt:
            async with asyncio.timeout(step.amount), self._double(player):
                self._check_entered(player, attempt)
                await asyncio.sleep(step.other)

    def _double(self, player: Player) -> DoubleBarrier:
        return DoubleBarrier(player.zk, _DOUBLE, self._count)

    @contextlib.contextmanager
    def _trying(self, player: Player) -> Iterator[_Try]:
        attempt = _Try(self.stage.world.now)
        self._tries.append(attempt)
        try:
            yield attempt
        except BaseException:
            # Its node goes when a server can be reached again, or with its session.
            attempt.went = max(self.stage.world.now, self.stage.schedule.calm) + 3 * player.actor.timeout
            raise
        attempt.went = self.stage.world.now

    async def _meet(self, player: Player, within: float | None, seconds: float) -> None:
        double = self._double(player)
        with self._trying(player) as attempt:
            await double.enter(within=within)
            self._check_entered(player, attempt)
            try:
                await asyncio.sleep(seconds)
            finally:
                await double.leave(within=within)  # a member that is cancelled here would stay

    def _check_entered(self, player: Player, attempt: _Try) -> None:
        together = [each for each in self._tries if each.went is None or each.went >= attempt.came]
        if len(together) < self._count:
            self.stage.fail(f"{player.actor.name} has entered with {len(together)} of {self._count} members")

    async def finish(self, player: Player) -> None:
        """Remove the barrier, or wait until it is removed; then meet all others."""
        barrier = cast(Barrier, player.tool)
        await self.settled(player)
        is_first = player.actor is self.stage.schedule.actors[0]
        await _until_done(barrier.remove if is_first else barrier.wait)
        # Only now is it sure that the session lives, and does not expire any more.
        await synced(player, _DOUBLE)
        # A member that has died meets the others as long as its node is there, and leaves another one out.
        self._arrived += 1
        while self._arrived < self._count or (self._members() and not self._is_meeting):
            await asyncio.sleep(0.5)
        self._is_meeting = True
        await _until_done(lambda: self._meet(player, None, 0.1))

    def _members(self) -> list[str]:
        # A round whose members have all died leaves `ready` to the next one that comes.
        return [path for path in self.left() if path != f"{_DOUBLE}/ready"]

    def left(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_DOUBLE)


async def _until_done(act: Callable[[], Awaitable[None]]) -> None:
    while True:
        with passing():
            return await act()
