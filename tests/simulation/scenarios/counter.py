"""A counter and a shared value: every write is carried out exactly once, although its answer may be lost."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import zkwire
from recipes import Counter, SharedValue
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.lock import cancelled_after
from tests.simulation.scenarios.settling import Settling, is_passing, refused, synced
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_COUNTER, _VALUE = "/counters/a", "/values/a"

# The kinds of steps, and how often each is drawn.
_KINDS = {"add": 5, "set": 2, "replace": 3, "cancel add": 1, "pause": 3, "watch": 1, "watch value": 1}


@dataclass(eq=False)
class _Tool:
    counter: Counter
    value: SharedValue


class CounterScenario(Scenario):
    """Steps: "add", "set", "replace" (compare_and_set), "cancel add", "watch" and "watch value" (for so long), "pause".

    Checked is: no two adds have returned the same number; the counter has in the end what was added, where each add
    whose outcome its caller does not know counts or does not; a later add returns more; the version of the value is the
    number of its writes, and a write that has succeeded on a version is the only one of that version; what a stream
    shows only grows.
    """

    name = "counter"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._numbers = itertools.count(1)
        self._sums: set[int] = set()
        self._greatest = 0
        # How many adds, and how many writes of the value, were carried out, and how many perhaps.
        self._added = self._perhaps_added = self._written = self._perhaps_written = 0
        self._replaced: set[int] = set()
        self._settling = Settling(stage)

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return [_steps(rng, tick) for _ in range(rng.choice([1, 1, 2]))]

    def equip(self, player: Player) -> _Tool:
        return _Tool(Counter(player.zk, _COUNTER), SharedValue(player.zk, _VALUE))

    async def do(self, player: Player, step: Step) -> None:
        tool = cast(_Tool, player.tool)
        match step.kind:
            case "pause":
                await asyncio.sleep(step.amount)
            case "add":
                await self._add(player, tool)
            case "watch":
                await self._watch(player, tool.counter.watch(), step.amount, lambda value: value)
            case "watch value":
                await self._watch(player, tool.value.watch(), step.amount, lambda value: value[1])
            case "cancel add":
                await cancelled_after(int(step.amount), self._add(player, tool))
            case "set":
                await self._write(tool, None)
            case "replace":
                await self._write(tool, player)

    async def _add(self, player: Player, tool: _Tool) -> None:
        before = self._greatest
        self._perhaps_added += 1
        try:
            value = await tool.counter.add(1)
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            if not (isinstance(error, zkwire.ConnectionLostError) and error.maybe_applied):
                self._perhaps_added -= 1
            return
        self._perhaps_added -= 1
        self._added += 1
        if value in self._sums or value <= before:
            self.stage.fail(f"{player.actor.name}: add has returned {value}, and {before} was returned before")
        self._sums.add(value)
        self._greatest = max(self._greatest, value)

    async def _watch(self, player: Player, stream: Any, seconds: float, order: Callable[[Any], int]) -> None:
        newest = -1
        with contextlib.suppress(TimeoutError, zkwire.SessionExpiredError):
            async with asyncio.timeout(seconds), stream:
                while True:
                    with refused():
                        async for value in stream:
                            if order(value) < newest:
                                self.stage.fail(f"{player.actor.name} is shown {value} after {newest}")
                            newest = order(value)

    async def _write(self, tool: _Tool, replacer: Player | None) -> None:
        """Write a new value: whatever the present one is, or, for `replacer`, in place of the one that it reads."""
        value, version, sent = str(next(self._numbers)).encode(), -1, False
        try:
            if replacer is not None:
                _, version = await tool.value.get()
            self._perhaps_written += 1
            sent = True
            if replacer is None:
                await tool.value.set(value)
            elif not await tool.value.compare_and_set(value, version=version):
                self._perhaps_written -= 1
                return
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            if sent and not (isinstance(error, zkwire.ConnectionLostError) and error.maybe_applied):
                self._perhaps_written -= 1
            return
        self._perhaps_written -= 1
        self._written += 1
        if replacer is not None:
            if version in self._replaced:
                self.stage.fail(f"{replacer.actor.name}: two writes have replaced version {version}")
            self._replaced.add(version)

    async def finish(self, player: Player) -> None:
        """Read both when all others are done, too."""
        tool = cast(_Tool, player.tool)
        await self._settling.wait(player)
        await synced(player, _COUNTER)
        while True:
            try:
                total = await tool.counter.get()
                _, version = await tool.value.get()
                break
            except zkwire.SessionExpiredError:
                continue
        self._check("added", total, self._added, self._perhaps_added)
        self._check("written", version, self._written, self._perhaps_written)

    def _check(self, what: str, found: int, certain: int, perhaps: int) -> None:
        if not certain <= found <= certain + perhaps:
            self.stage.fail(f"{what} {found} times, and the callers know of {certain}, and perhaps {perhaps} more")

    def left(self) -> list[str]:
        return [*self.stage.ensemble.nodes_below(_COUNTER), *self.stage.ensemble.nodes_below(_VALUE)]


def _steps(rng: Random, tick: float) -> list[Step]:
    steps = []
    for _ in range(rng.randrange(2, 14)):
        (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
        if kind == "cancel add":
            steps.append(Step(kind, float(int(rng.expovariate(0.1)))))
        else:
            steps.append(Step(kind, rng.choice([0.01, 0.2, 1.0]) * tick * rng.uniform(0.5, 1.5)))
    return steps
