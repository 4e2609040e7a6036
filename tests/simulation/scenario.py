"""What a scenario is: what the players do, and what is checked besides what holds for all scenarios."""

import asyncio
import contextlib
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.simulation.scenarios.settling import Settling, synced
from tests.simulation.schedule import Step

if TYPE_CHECKING:
    from tests.simulation.stage import Player, Stage

CANCEL: Final = "cancel "  # drawn as the beginning of a kind: a step that is cancelled
_LONG: Final = 10.0  # seconds that a step may take that is cancelled
_NUMBER: Final = re.compile(r"\d{10}$")


class UnfitError(Exception):
    """A siege does not fit a scenario or a schedule."""


class Scenario(ABC):
    """One run of a scenario: a step of the kind "do it" is done by the method `do_it`.

    `name` is what it is called on the command line.  `players` is how many there are at the least and at the most.
    `patience` is how many seconds all steps may take when nothing goes wrong, beside what timeouts and the steps take.

    Steps are drawn by `kinds`, each with its weight: in one of `lists` lists, `count` in each, at the least and at the
    most.  The amount of a step is one of `durations`, in ticks, or a little more or less, and its other number one of
    `others` for its kind.

    `roles` are the kinds of steps that sieges need, see sieges.py: "hold", to hold something for so long, and "busy",
    to ask the leader meanwhile; "together", what tasks of one player can hold beside one another; "poll", to try until
    it is held; "create", a node whose answer is checked; "follow" and "resize", the number of permits.

    `lines` are the nodes below which tickets are.
    """

    name: ClassVar[str]
    players: ClassVar[tuple[int, int]] = (2, 4)
    patience: ClassVar[float] = 60.0
    kinds: ClassVar[Mapping[str, float]] = {}
    lists: ClassVar[Sequence[int]] = (1, 1, 2)
    count: ClassVar[tuple[int, int]] = (2, 13)
    durations: ClassVar[Sequence[float]] = (0.01, 0.2, 1.0)
    others: ClassVar[Mapping[str, Sequence[float]]] = {}
    roles: ClassVar[Mapping[str, str]] = {}
    lines: ClassVar[Sequence[str]] = ()

    def __init__(self, stage: "Stage") -> None:
        self.stage = stage
        self.numbers = itertools.count(1)
        self._settling = Settling(stage)

    def options(self) -> dict[str, Any]:
        """Return further arguments of zkwire.connect."""
        return {}

    @classmethod
    def tasks(cls, rng: Random, tick: float) -> list[list[Step]]:
        """Return what one player does: lists of steps that are done beside one another; `tick` is the servers'."""
        return [cls.steps(rng, tick) for _ in range(rng.choice(cls.lists))]

    @classmethod
    def steps(cls, rng: Random, tick: float, durations: Sequence[float] | None = None) -> list[Step]:
        """Return some steps."""
        steps = []
        for kind in rng.choices(list(cls.kinds), list(cls.kinds.values()), k=rng.randint(*cls.count)):
            turns = int(rng.expovariate(0.1)) if kind.startswith(CANCEL) else -1
            kind = kind.removeprefix(CANCEL)
            seconds = _LONG if turns >= 0 else rng.choice(durations or cls.durations) * tick * rng.uniform(0.5, 1.5)
            steps.append(Step(kind, seconds, rng.choice(cls.others.get(kind, (0.0,))), turns))
        return steps

    @classmethod
    def step(cls, role: str, amount: float = 0.0, other: float = 0.0) -> Step:
        """Return the step for a role in a siege.  Raises: UnfitError if there is none in this scenario."""
        if role not in cls.roles:
            raise UnfitError
        return Step(cls.roles[role], amount, other)

    @abstractmethod
    def equip(self, player: "Player") -> object:
        """Return what `player` needs for its steps, for example a Lock; called in its event loop."""

    async def resume(self, player: "Player") -> None:  # noqa: B027
        """Do what a new process does first that has resumed the session of the one before."""

    async def do(self, player: "Player", step: Step) -> None:
        """Do a step, and cancel it after `step.turns`; an exception is a failure."""
        act = self.act(player, step)
        await (act if step.turns < 0 else cancelled_after(step.turns, act))

    async def act(self, player: "Player", step: Step) -> None:
        """Do a step to its end."""
        method = getattr(self, f"do_{step.verb.replace('-', '_')}")
        with self.may_end():
            await method(player, step)

    @staticmethod
    def may_end() -> AbstractContextManager[None]:
        """Return the context for the errors with which a step may end."""
        return contextlib.nullcontext()

    async def do_pause(self, player: "Player", step: Step) -> None:
        await asyncio.sleep(step.amount)

    async def settled(self, player: "Player", path: str | None = None) -> None:
        """Wait, in `finish`, until all players have done their steps, all faults are over, and `path` is up to date."""
        await self._settling.wait(player)
        if path is not None:
            await synced(player, path)

    async def finish(self, player: "Player") -> None:  # noqa: B027
        """Do what each player does when all its steps are done; its client is still connected."""

    def tickets(self) -> list[str]:
        """Return the paths of all tickets, as the server that has come furthest shows them."""
        return [path for line in self.lines for path in self.stage.ensemble.nodes_below(line) if _NUMBER.search(path)]

    def deletable(self) -> list[str]:
        """Return the nodes that an operator may delete."""
        return self.tickets()

    def writable(self) -> list[str]:
        """Return the nodes that an operator may write into."""
        return self.deletable()

    def left(self) -> list[str]:
        """Return the nodes that are there and must not be, once all steps are done."""
        return self.tickets()

    def ended(self) -> None:  # noqa: B027
        """Check the whole run, once everything is closed."""


async def cancelled_after(turns: int, act: Coroutine[Any, Any, None]) -> None:
    """Run `act` in a task, and cancel it after so many turns of the event loop."""
    task = asyncio.create_task(act)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
