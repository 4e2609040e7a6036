"""A counter and a shared value: every write is carried out exactly once, although its answer may be lost."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import zkwire
from recipes import Counter, SharedValue
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import is_passing, passing, refused
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_COUNTER: Final = "/counters/a"
_VALUE: Final = "/values/a"


@dataclass(eq=False)
class _Tool:
    counter: Counter
    value: SharedValue


@dataclass(eq=False)
class _Count:
    """How many writes were carried out, and how many perhaps; `seen`, what they have returned or replaced."""

    certain: int = 0
    perhaps: int = 0
    seen: set[int] = field(default_factory=set)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Count a write."""
        self.perhaps += 1
        try:
            yield
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            if not (isinstance(error, zkwire.ConnectionLostError) and error.maybe_applied):
                self.perhaps -= 1
        else:
            self.perhaps -= 1
            self.certain += 1


class CounterScenario(Scenario):
    """Steps: "add", "increase" (an add by compare_and_set), "set", "replace" (compare_and_set), "watch" and
    "watch-value" (for so long), "pause".

    Checked is: no two adds have returned the same number; the counter has in the end what was added, where each add
    whose outcome its caller does not know counts or does not; a later add returns more; the version of the value is the
    number of its writes, and a write that has succeeded on a version is the only one of that version; what a stream
    shows only grows.
    """

    name = "counter"
    kinds = {"add": 5, "set": 2, "replace": 3, "cancel add": 1, "pause": 3, "watch": 1, "watch-value": 1, "increase": 2}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._added, self._written = _Count(), _Count()

    def equip(self, player: Player) -> _Tool:
        return _Tool(Counter(player.zk, _COUNTER), SharedValue(player.zk, _VALUE))

    async def do_add(self, player: Player, step: Step) -> None:
        count, before = self._added, max(self._added.seen, default=0)
        with count.writing():
            self._has_added(player, await cast(_Tool, player.tool).counter.add(1), before)

    async def do_increase(self, player: Player, step: Step) -> None:
        counter, count = cast(_Tool, player.tool).counter, self._added
        with passing():
            value, before = await counter.get(), max(count.seen, default=0)
            with count.writing():
                if await counter.compare_and_set(value + 1, expected=value):
                    self._has_added(player, value + 1, before)
                else:
                    count.certain -= 1  # that is added when it has returned

    def _has_added(self, player: Player, value: int, before: int) -> None:
        if value in self._added.seen or value <= before:
            self.stage.fail(f"{player.actor.name}: an add has made {value}, and {before} was made before")
        self._added.seen.add(value)

    async def do_watch(self, player: Player, step: Step) -> None:
        await self._watch(player, cast(_Tool, player.tool).counter.watch(), step.amount, lambda value: value)

    async def do_watch_value(self, player: Player, step: Step) -> None:
        await self._watch(player, cast(_Tool, player.tool).value.watch(), step.amount, lambda value: value[1])

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

    async def do_set(self, player: Player, step: Step) -> None:
        with self._written.writing():
            await cast(_Tool, player.tool).value.set(str(next(self.numbers)).encode())

    async def do_replace(self, player: Player, step: Step) -> None:
        """Write a new value in place of the one that is read."""
        value, data, count = cast(_Tool, player.tool).value, str(next(self.numbers)).encode(), self._written
        with passing():
            _, version = await value.get()
            with count.writing():
                if not await value.compare_and_set(data, version=version):
                    count.certain -= 1  # that is added when it has returned
                    return
                if version in count.seen:
                    self.stage.fail(f"{player.actor.name}: two writes have replaced version {version}")
                count.seen.add(version)

    async def finish(self, player: Player) -> None:
        """Read both when all others are done, too."""
        tool = cast(_Tool, player.tool)
        await self.settled(player, _COUNTER)
        while True:
            with contextlib.suppress(zkwire.SessionExpiredError):
                total = await tool.counter.get()
                _, version = await tool.value.get()
                break
        self._check("added", total, self._added)
        self._check("written", version, self._written)

    def _check(self, what: str, found: int, count: _Count) -> None:
        if not count.certain <= found <= count.certain + count.perhaps:
            self.stage.fail(f"{what} {found} times, and the callers know of {count}")

    def left(self) -> list[str]:
        return [*self.stage.ensemble.nodes_below(_COUNTER), *self.stage.ensemble.nodes_below(_VALUE)]
