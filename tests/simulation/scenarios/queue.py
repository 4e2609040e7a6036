"""The queue: players that put items, take them for good, and claim them."""

import asyncio
import itertools
from dataclasses import dataclass, field
from random import Random
from typing import cast

import zkwire
from recipes import Item, LockLostError, Queue
from tests.simulation.checks import Guard
from tests.simulation.loop import DiedError
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.lock import cancelled_after
from tests.simulation.scenarios.settling import Settling, is_passing, synced
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH = "/queues/a"
_ENTRIES = f"{_PATH}/entries"
_NODES = {_ENTRIES, *(f"{_PATH}/{name}" for name in ("taken", "consumers", "producers", "room"))}
_MOST = 4
_WITHIN = 2.0  # seconds
_TAKES = {"get", "iterate", "cancel get", "claim", "fail", "own"}


@dataclass(eq=False)
class _Known:
    """What became of one item: `was_put` is what the producer knows; `guard` watches its claims."""

    guard: Guard
    was_put: str = "unknown"
    gets: int = 0
    bodies: int = 0  # of claims, that have ended normally
    handled: int = 0  # of these, those that know that the item is deleted
    series: tuple[object, int] = (None, 0)  # the task that has put it, and its priority
    number: int = 0


@dataclass(eq=False)
class _Tool:
    queue: Queue
    cancelled_in: list[int] = field(default_factory=list)  # the session of each get that was cancelled


class HandlingError(Exception):
    """The body of a claim fails."""


class QueueScenario(Scenario):
    """Steps: "put", "put many", "get", "claim", "fail" (a claim whose body fails), "cancel put", "cancel get", "pause",
    "peek" (and the size, and all claims), "iterate" (for so long); in some schedules the queue is bounded.

    At the end the players take what is left.  Checked is: an item whose put has returned is taken, once; an item whose
    put has failed for certain is not; of one item no two claims are certain; what one task takes, if no other one takes
    anything, has the order in which each task has put it.
    """

    name = "queue"
    players = (1, 4)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._items: dict[bytes, _Known] = {}
        self._numbers = itertools.count(1)
        self._may_be_lost = 0  # sessions that have ended while an item may have been on its way
        self._taken: list[bytes] = []
        self._settling = Settling(stage)
        takers = [
            steps
            for actor in stage.schedule.actors
            for steps in actor.tasks
            if any(step.kind in _TAKES for step in steps)
        ]
        kinds = {step.kind for steps in takers for step in steps}
        self._is_ordered = len(takers) == 1 and not kinds & {"fail", "cancel get", "iterate"}
        steps = [step.kind for actor in stage.schedule.actors for each in actor.tasks for step in each]
        self._maxsize = _MOST if "bound" in steps else None

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        role = rng.choice(["both", "both", "producer", "consumer"])
        tasks = [_steps(rng, tick, role) for _ in range(rng.choice([1, 1, 2]))]
        if rng.random() < 0.1:
            tasks[0].insert(0, Step("bound"))  # for all players
        return tasks

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        return Step("own", seconds)

    def equip(self, player: Player) -> _Tool:
        return _Tool(Queue(player.zk, _PATH, self._maxsize))

    async def do(self, player: Player, step: Step) -> None:
        """Do one of these: put; put several; take within so long; claim for so long; the same cancelled; pause."""
        tool = cast(_Tool, player.tool)
        match step.kind:
            case "bound":
                pass  # see `_maxsize`
            case "pause":
                await asyncio.sleep(step.amount)
            case "peek":
                await self._peek(player, tool)
            case "iterate":
                await self._iterate(player, tool, step.amount)
            case "put":
                await self._put(tool, 1, int(step.other))
            case "put many":
                await self._put(tool, 3, int(step.other))
            case "cancel put":
                await cancelled_after(int(step.amount), self._put(tool, 1, int(step.other)))
            case "get":
                await self._get(player, tool, step.amount)
            case "cancel get":
                await cancelled_after(int(step.amount), self._get(player, tool, 10.0))
            case "claim":
                await self._claim(player, tool, step.amount, step.other)
            case "fail":
                await self._claim(player, tool, step.amount, step.other, fails=True)
            case "own":
                await self._put(tool, 1, 0)
                await self._claim(player, tool, 10.0, step.amount)

    async def _put(self, tool: _Tool, count: int, priority: int) -> None:
        series = asyncio.current_task(), priority
        items = {}
        for _ in range(count):
            number = next(self._numbers)
            guard = Guard(self.stage, f"{_PATH}/taken", blocks=None)
            items[f"item {number}".encode()] = _Known(guard, series=series, number=number)
        self._items |= items
        try:
            if count == 1:
                await tool.queue.put(next(iter(items)), priority, within=None if self._maxsize is None else _WITHIN)
            else:
                await tool.queue.put_many(list(items), priority, within=None if self._maxsize is None else _WITHIN)
        except TimeoutError:
            was_put = "no"
        except zkwire.ConnectionLostError as error:
            was_put = "unknown" if error.maybe_applied else "no"
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            was_put = "no"
        else:
            was_put = "yes"
        for known in items.values():
            known.was_put = was_put

    async def _peek(self, player: Player, tool: _Tool) -> None:
        try:
            first, size, claims = await tool.queue.peek(), await tool.queue.size(), await tool.queue.claims()
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            return
        if first is not None and (first not in self._items or self._items[first].was_put == "no"):
            self.stage.fail(f"{player.actor.name} sees {first!r}, which nobody has put")
        if size < 0 or len(claims) > len(self._items):
            self.stage.fail(f"{player.actor.name} sees {size} items and {len(claims)} claims")

    async def _iterate(self, player: Player, tool: _Tool, seconds: float) -> None:
        """Take what comes, one after the other, for so long."""
        session_id = player.zk.session_id
        try:
            async with asyncio.timeout(seconds):
                async for data in tool.queue:
                    self._took(data)
        except TimeoutError:
            tool.cancelled_in.append(session_id)
        except DiedError:
            self._may_be_lost += 1
            raise
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
        finally:
            self._may_be_lost += player.zk.session_id != session_id

    def _took(self, data: bytes) -> None:
        self._items[data].gets += 1
        self._taken.append(data)
        self._check(data)

    async def _get(self, player: Player, tool: _Tool, within: float) -> None:
        session_id = player.zk.session_id
        is_put_back = False
        try:
            data = await tool.queue.get(within=within)
        except DiedError:
            self._may_be_lost += 1
            raise
        except asyncio.CancelledError:
            is_put_back = True
            raise
        except TimeoutError:
            is_put_back = True
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
        else:
            self._took(data)
        finally:
            if player.zk.session_id != session_id:
                self._may_be_lost += 1
            elif is_put_back:  # and may be lost if the session ends meanwhile
                tool.cancelled_in.append(session_id)

    async def _claim(self, player: Player, tool: _Tool, within: float, seconds: float, *, fails: bool = False) -> None:
        item: Item | None = None
        try:
            async with tool.queue.claim(within=within) as item:
                known = self._items[item.data]
                with known.guard.held(player, item, "claim"):
                    if known.gets or known.handled:
                        self.stage.fail(f"{player.actor.name} has claimed {item.data!r}, which was taken before")
                    await asyncio.sleep(seconds)
                if fails:
                    raise HandlingError
                known.bodies += 1
        except (TimeoutError, LockLostError, HandlingError):
            # An item goes back to its place, also one that was claimed when the time was up.
            if item is not None or self.left():
                self._is_ordered = False
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            self._is_ordered = False
        else:
            self._items[item.data].handled += 1
            self._taken.append(item.data)
            self._check(item.data)

    def _check(self, data: bytes) -> None:
        known = self._items[data]
        if known.gets + known.handled > 1:
            self.stage.fail(f"{data!r} was got {known.gets} times, and {known.handled} claims of it have succeeded")
        if known.was_put == "no":
            self.stage.fail(f"{data!r} was taken, and its producer knows that it was not put")

    async def finish(self, player: Player) -> None:
        """Take what is left, together with the other players."""
        tool = cast(_Tool, player.tool)
        await self._settling.wait(player)
        if self._is_ordered:
            self._check_order()
            self._is_ordered = False
        # The removal of a watch is not repeated when an overloaded server refuses it: such a watch fires now.
        await self._put(tool, 1, 100)
        # A put whose outcome is unknown may still be carried out until then.
        await synced(player, _PATH)
        # Not the lines: other players wait in them at this moment.
        while any(not path.startswith((f"{_PATH}/consumers/", f"{_PATH}/producers/")) for path in self.left()):
            await self._get(player, tool, 1.0)
        self._may_be_lost += sum(player.zk.session_id != session_id for session_id in tool.cancelled_in)

    def _check_order(self) -> None:
        last: dict[object, int] = {}
        for data in self._taken:
            known = self._items[data]
            if known.number < last.get(known.series, 0):
                self.stage.fail(f"{data!r} was taken behind one that the same task has put later: {self._taken}")
            last[known.series] = known.number

    def deletable(self) -> list[str]:
        return [path for path in self.stage.ensemble.nodes_below(f"{_PATH}/taken") if "/_c_" in path]

    def deleted(self, path: str) -> None:
        for known in self._items.values():
            known.guard.deleted(path)

    def left(self) -> list[str]:
        return [path for path in self.stage.ensemble.nodes_below(_PATH) if path not in _NODES]

    def ended(self) -> None:
        lost = [
            data
            for data, known in self._items.items()
            if known.was_put == "yes" and not known.gets and not known.bodies
        ]
        if len(lost) > self._may_be_lost:
            self.stage.fail(f"nobody has got {lost}, and {self._may_be_lost} may be lost")


def _steps(rng: Random, tick: float, role: str) -> list[Step]:
    puts, takes = role != "consumer", role != "producer"
    kinds = {
        "put": 4 * puts,
        "put many": 2 * puts,
        "cancel put": puts,
        "get": 4 * takes,
        "claim": 3 * takes,
        "fail": takes,
        "cancel get": takes,
        "iterate": takes,
        "peek": 1,
        "pause": 3,
    }
    steps = []
    for _ in range(rng.randrange(2, 10)):
        (kind,) = rng.choices(list(kinds), list(kinds.values()))
        seconds = rng.choice([0.0, 0.01, 0.3, 2.0]) * tick * rng.uniform(0.5, 1.5)
        match kind:
            case "pause" | "iterate":
                steps.append(Step(kind, seconds))
            case "put" | "put many":
                steps.append(Step(kind, 0.0, float(rng.choice([0, 100, 100]))))
            case "get":
                steps.append(Step(kind, rng.choice([0.0, 0.1, 5.0])))
            case "claim" | "fail":
                steps.append(Step(kind, rng.choice([0.0, 0.1, 5.0]), seconds))
            case _:
                steps.append(Step(kind, float(int(rng.expovariate(0.1))), 100.0))
    return steps
