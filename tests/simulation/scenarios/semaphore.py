"""The semaphore: several permits, whose number changes while players hold and wait."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, Final, cast

import zkwire
from recipes import PermitsError, Semaphore
from recipes.line.locking import Locking
from recipes.line.position import permits_of
from tests.simulation.checks import Guard
from tests.simulation.ensemble.history import Replica
from tests.simulation.scenarios.lock import HeldScenario, held
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH: Final = "/limits/a"
_FIRST: Final = 2
_MOMENT: Final = 0.1  # seconds
_AT_ONCE: Final = {"": 1, "two": 2, "three": 3}  # permits


class SemaphoreScenario(HeldScenario):
    """The steps of HeldScenario, for one to three permits, "resize", and "follow", which watches the number of permits.

    A ticket owns if it and those before it took no more than the number was, at some moment since it was created: this
    is checked.  It follows that no more permits are held than the number ever was since the youngest of their tickets
    was created, and this is checked, too.

    A player that follows the number may not own by one that it knows to be old: such a moment counts only if it is not
    before the last change that the player has heard of.
    """

    name = "semaphore"
    players = (3, 5)
    lines = (_PATH,)
    roles = held("hold", follow="follow", resize="resize")
    whats: ClassVar[Sequence[str]] = ("", "", "two", "three")

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._history = _History(stage)
        self._heard: dict[Player, list[tuple[float, int]]] = {}

    def make_guard(self) -> Guard:
        return Guard(self.stage, _PATH, fits=self._fits, blocks=None, grows=False)

    @classmethod
    def tasks(cls, rng: Random, tick: float) -> list[list[Step]]:
        def resize(turns: int = -1) -> Step:
            return Step("resize", float(rng.randint(1, 4)), turns=turns)

        tasks = super().tasks(rng, tick)
        if rng.random() < 0.5:
            for _ in range(rng.randrange(1, 4)):
                steps = rng.choice(tasks)
                turns = rng.choice([-1, -1, int(rng.expovariate(0.1))])
                steps.insert(rng.randrange(len(steps) + 1), resize(turns))
        elif rng.random() < 0.3:
            tasks.append([resize() for _ in range(rng.randrange(5, 20))])
        return tasks

    @classmethod
    def _with_what(cls, rng: Random, step: Step) -> str:
        return step.kind if step.kind in ("plain", "look") else super()._with_what(rng, step)

    def locking(self, player: Player, what: str) -> Locking[Any]:
        tool = cast(Semaphore, player.tool)
        if not what:
            return tool
        uses = {use.__name__: partial(use, permits=_AT_ONCE[what]) for use in (tool.hold, tool.try_acquire)}
        several = SimpleNamespace(**uses, contenders=tool.contenders)
        return cast(Locking[Any], several)

    def equip(self, player: Player) -> Semaphore:
        return Semaphore(player.zk, _PATH, _FIRST)

    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        if not self.guard.is_ended(player) and not self._history.has_owned(lease.path, self._heard_by(player)):
            self.stage.fail(f"{player.actor.name} owns by {lease.path}; numbers of permits: {self._history}")
        return self.guard.held(player, lease, f"{lease.token} {_AT_ONCE[what]}")

    def _heard_by(self, player: Player) -> int:
        """Return the zxid of the newest change of the number that the player has heard of, 0 if there is none.

        What it has heard in the last moment does not count: it may have owned before.
        """
        before = self.stage.world.now - _MOMENT
        return max((zxid for at, zxid in self._heard.get(player, ()) if at <= before), default=0)

    async def do_follow(self, player: Player, step: Step) -> None:
        """Watch the number of permits for so long; the connection may break meanwhile."""
        heard, until = self._heard.setdefault(player, []), self.stage.world.now + step.amount
        while self.stage.world.now < until:
            try:
                node, watch = await player.zk.get_and_watch(_PATH)
            except zkwire.ZooKeeperError:
                await asyncio.sleep(_MOMENT)  # it is not there yet, or the session was ended
                continue
            try:
                async with asyncio.timeout(max(0.0, until - self.stage.world.now)):
                    await watch
            except (zkwire.ZooKeeperError, TimeoutError):
                watch.cancel()
            else:
                # An event that a server makes up for a client that was away does not say when the change was made.
                heard.append((self.stage.world.now, self._history.change_after(node.stat.mzxid)))

    def _fits(self, kinds: Sequence[str]) -> bool:
        tickets = [[int(number) for number in kind.split()] for kind in kinds]
        return sum(permits for _, permits in tickets) <= max(self._history.numbers_since(max(tickets)[0]))

    async def act(self, player: Player, step: Step) -> None:
        try:
            await super().act(player, step)
        except PermitsError as error:
            if error.at_once is not None:
                if error.at_once <= int(error.stored or _FIRST):
                    raise
                return
            # Another player has set another number before this one knew the first.
            if not error.stored or int(error.stored) == _FIRST:
                raise
            player.tool = Semaphore(player.zk, _PATH, None)
            await self.act(player, step)

    async def do_resize(self, player: Player, step: Step) -> None:
        before, permits = self._history.zxid, int(step.amount)
        await cast(Semaphore, player.tool).resize(permits)
        if permits not in self._history.numbers_since(before):
            self.stage.fail(f"{player.actor.name} has set {permits} permits, but there were {self._history}")


class _History:
    """The history of the number of permits and of the tickets; `zxid` is the last one that a server has carried out."""

    def __init__(self, stage: Stage) -> None:
        self.zxid = 0
        self._strangers = stage.ensemble.strangers
        self._numbers: list[tuple[int, int]] = []  # zxids and numbers
        self._have_owned: dict[str, int] = {}  # tickets and the last changes after which they were entitled to own
        self._newest = (0, 0)  # the zxids of the last changes of the number and of the tickets
        stage.ensemble.frontier.listeners.append(self._applied)

    def __str__(self) -> str:
        return ", ".join(f"{number} from {zxid:#x} on" for zxid, number in self._numbers)

    def numbers_since(self, zxid: int) -> list[int]:
        """Return the numbers since `zxid`, the one at that time included."""
        first = max((index for index, (at, _) in enumerate(self._numbers) if at <= zxid), default=0)
        return [number for _, number in self._numbers[first:]]

    def change_after(self, zxid: int) -> int:
        """Return the zxid of the first change of the number after `zxid`, 0 if there is none."""
        return next((at for at, _ in self._numbers if at > zxid), 0)

    def has_owned(self, path: str, since: int) -> bool:
        """Return whether this ticket was entitled to own, at the change `since` of the number or later."""
        return self._have_owned.get(path.rpartition("/")[2], -1) >= since

    def _applied(self, replica: Replica) -> None:
        self.zxid = replica.last_zxid
        node = replica.tree.nodes.get(_PATH)
        if node is None or not node.data or self._newest == (node.mzxid, node.pzxid):
            return
        if self._newest[0] != node.mzxid:
            self._numbers.append((node.mzxid, int(node.data)))
        self._newest = node.mzxid, node.pzxid
        names = [name for name in node.children or () if f"{_PATH}/{name}" not in self._strangers]
        tickets = [(number, name) for name in names if (number := zkwire.sequence(name)) is not None]
        taken = 0
        for _, name in sorted(tickets):
            taken += permits_of(name)
            if taken <= self._numbers[-1][1]:
                self._have_owned[name] = self.zxid
