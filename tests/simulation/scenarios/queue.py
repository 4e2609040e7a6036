"""The queue: players that put items, take them for good, and claim them."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, cast

import zkwire
from recipes import FailedItem, Item, LockLostError, Queue
from tests.simulation.checks import Guard
from tests.simulation.loop import DiedError
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import is_passing, passing
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH: Final = "/queues/a"
_NAMES: Final = ("entries", "taken", "consumers", "producers", "room", "attempts", "failed", "delayed")
_NODES: Final = [f"{_PATH}/{name}" for name in _NAMES]
_MOST: Final = 4
_WITHIN: Final = 2.0  # seconds
_TAKES: Final = ("get", "iterate", "claim", "fail", "stop", "own")
_UNORDERED: Final = ("fail", "iterate", "stop")
_PUTS: Final = ("put", "put-many", "delay")
# Seconds: the clocks of clients run at rates of their own.
_TOLERANCE: Final = 0.02


@dataclass(eq=False)
class _Known:
    """What became of one item: `was_put` is what the producer knows; `guard` watches its claims."""

    guard: Guard
    series: tuple[object, object]  # the task that has put it, and its priority and delay
    number: int
    was_put: str = "unknown"
    due: float = 0.0  # not before this time
    gets: int = 0
    bodies: int = 0  # of claims, that have ended normally
    handled: int = 0  # of these, those that know that the item is deleted


@dataclass(eq=False)
class _Tool:
    queue: Queue
    cancelled_in: list[int] = field(default_factory=list)  # the session of each get that was cancelled


class _HandlingError(Exception):
    """The body of a claim fails."""


class QueueScenario(Scenario):
    """Steps: "put", "put-many", "delay" (put an item that is not to be taken for so long), "get", "claim", "fail" (a
    claim whose body fails), "stop" (a claim that is cancelled after so long), "own" (put and claim), "pause", "peek"
    (and the size, all claims, what has failed), "iterate" (for so long); in some schedules the queue is bounded
    ("bound"), or an item is claimed once or twice at most ("attempts").  The other number is the priority of what is
    put, and how long to wait for what is taken.

    At the end the players put back what has failed, and take what is left.  Checked is: an item whose put has returned
    is taken, once, and not before its time; an item whose put has failed for certain is not; of one item no two claims
    are certain; none is claimed too often, or after it moved to `failed`; what one task takes, if no other one takes
    anything, has the order in which each task has put it.
    """

    name = "queue"
    players = (1, 4)
    kinds = dict.fromkeys(("cancel put", "fail", "stop", "cancel get", "iterate", "peek"), 1.0)
    kinds |= {"pause": 3, "claim": 3, "put": 4, "put-many": 2, "get": 4, "delay": 0.5}
    count = (2, 9)
    durations = (0.0, 0.01, 0.3, 2.0)
    others = dict.fromkeys(_TAKES, (0.0, 0.1, 5.0)) | dict.fromkeys(_PUTS, (0.0, 100.0, 100.0))
    roles = {"hold": "own"}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._items: dict[bytes, _Known] = {}
        self._may_be_lost = 0  # sessions that have ended while an item may have been on its way
        self._taken: list[bytes] = []
        lists = [steps for actor in stage.schedule.actors for steps in actor.tasks]
        takers = [steps for steps in lists if any(step.kind in _TAKES for step in steps)]
        is_orderly = not any(step.kind in _UNORDERED or step.turns >= 0 for steps in takers for step in steps)
        self._is_ordered = len(takers) == 1 and is_orderly
        is_bound = any(step.kind == "bound" for steps in lists for step in steps)
        self._maxsize = _MOST if is_bound else None
        self._within = _WITHIN if is_bound else None
        most = [int(step.amount) for steps in lists for step in steps if step.kind == "attempts"]
        self._max_attempts = most[0] if most else None
        self._begun: Counter[str] = Counter()  # the bodies of claims, by the path of the item
        self._failed: set[str] = set()  # the former paths of the items that were seen in `failed`

    @classmethod
    def tasks(cls, rng: Random, tick: float) -> list[list[Step]]:
        role = rng.choice([(), (), _TAKES, _PUTS])
        tasks = [[step for step in steps if step.kind not in role] for steps in super().tasks(rng, tick)]
        if rng.random() < 0.1:
            tasks[0].insert(0, Step("bound"))  # for all players
        if rng.random() < 0.2:
            tasks[0].insert(0, Step("attempts", rng.choice((1.0, 2.0))))
        return tasks

    def equip(self, player: Player) -> _Tool:
        return _Tool(Queue(player.zk, _PATH, self._maxsize, max_attempts=self._max_attempts))

    async def do_bound(self, player: Player, step: Step) -> None:
        """Do nothing: see `_maxsize`."""

    async def do_attempts(self, player: Player, step: Step) -> None:
        """Do nothing: see `_max_attempts`."""

    async def do_put(self, player: Player, step: Step) -> None:
        await self._put(player, 1, int(step.other))

    async def do_put_many(self, player: Player, step: Step) -> None:
        await self._put(player, 3, int(step.other))

    async def do_delay(self, player: Player, step: Step) -> None:
        await self._put(player, 1, int(step.other), 0.0 if self._maxsize else step.amount)

    async def do_own(self, player: Player, step: Step) -> None:
        await self._put(player, 1, 0)
        await self._claim(player, replace(step, other=10.0))

    async def _put(self, player: Player, count: int, priority: int, delay: float = 0.0) -> None:
        items = {}
        for _ in range(count):
            number = next(self.numbers)
            guard = Guard(self.stage, f"{_PATH}/taken", blocks=None)
            # Delayed ones that come at the same time as others keep no order with them.
            series, due = (asyncio.current_task(), (priority, delay)), self.stage.world.now + delay - _TOLERANCE
            items[f"item {number}".encode()] = _Known(guard, series, number, due=due)
        self._items |= items
        queue = cast(_Tool, player.tool).queue
        try:
            if count == 1:
                await queue.put(next(iter(items)), priority, delay=delay, within=self._within)
            else:
                await queue.put_many(list(items), priority, within=self._within)
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

    async def do_peek(self, player: Player, step: Step) -> None:
        queue = cast(_Tool, player.tool).queue
        with passing():
            first, size, claims = await queue.peek(), await queue.size(), await queue.claims()
            if first is not None and (first not in self._items or self._items[first].was_put == "no"):
                self.stage.fail(f"{player.actor.name} sees {first!r}, which was not put")
            if size < 0 or len(claims) > len(self._items):
                self.stage.fail(f"{player.actor.name} sees {size} items and {len(claims)} claims")
            await self._see_failed(queue)

    async def _see_failed(self, queue: Queue) -> list[FailedItem]:
        found = await queue.failed()
        for item in found:
            former = f"{_PATH}/entries/{item.name}"
            if item.attempts != self._max_attempts or self._begun[former] > item.attempts:
                self.stage.fail(f"{item} has failed, after {self._begun[former]} bodies")
            self._failed.add(former)
        return found

    @contextlib.contextmanager
    def _taking(self, player: Player) -> Iterator[None]:
        """Count an item as one that may be lost if its session ends while it is on its way, or on its way back."""
        session_id, is_put_back = player.zk.session_id, False
        try:
            with passing():
                yield
        except DiedError:
            self._may_be_lost += 1
            raise
        except asyncio.CancelledError:
            is_put_back = True
            raise
        except TimeoutError:
            is_put_back = True
        finally:
            if player.zk.session_id != session_id:
                self._may_be_lost += 1
            elif is_put_back:  # and may be lost if the session ends meanwhile
                cast(_Tool, player.tool).cancelled_in.append(session_id)

    async def do_iterate(self, player: Player, step: Step) -> None:
        """Take what comes, one after the other, for so long."""
        with self._taking(player):
            async with asyncio.timeout(step.amount):
                async for data in cast(_Tool, player.tool).queue:
                    self._items[data].gets += 1
                    self._took(data)

    async def do_get(self, player: Player, step: Step) -> None:
        with self._taking(player):
            data = await cast(_Tool, player.tool).queue.get(within=step.other)
            self._items[data].gets += 1
            self._took(data)

    async def do_claim(self, player: Player, step: Step) -> None:
        await self._claim(player, step)

    async def do_fail(self, player: Player, step: Step) -> None:
        await self._claim(player, step)

    async def do_stop(self, player: Player, step: Step) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.amount):
                await self._claim(player, replace(step, amount=10.0))

    async def _claim(self, player: Player, step: Step) -> None:
        item: Item | None = None
        try:
            async with cast(_Tool, player.tool).queue.claim(within=step.other) as item:
                known = self._items[item.data]
                self._begun[item.entry] += 1
                too_often = self._begun[item.entry] > item.attempt and self._max_attempts
                if too_often or item.attempt > (self._max_attempts or 0) or item.entry in self._failed:
                    self.stage.fail(f"{player.actor.name} claims {item.data!r} once more: attempt {item.attempt}")
                with known.guard.held(player, item, "claim"):
                    if known.gets or known.handled:
                        self.stage.fail(f"{player.actor.name} has claimed {item.data!r}, which was taken before")
                    try:
                        await asyncio.sleep(step.amount)
                    except asyncio.CancelledError:
                        self._begun[item.entry] -= item.is_certain()  # handed back, it does not count
                        raise
                if step.kind == "fail":
                    raise _HandlingError
                known.bodies += 1
        except (TimeoutError, LockLostError, _HandlingError):
            # An item goes back to its place, also one that was claimed when the time was up.
            if item is not None or self.left():
                self._is_ordered = False
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            self._is_ordered = False
        else:
            known.handled += 1
            self._took(item.data)

    def _took(self, data: bytes) -> None:
        self._taken.append(data)
        known = self._items[data]
        if known.gets + known.handled > 1:
            self.stage.fail(f"{data!r} was got {known.gets} times, and {known.handled} claims of it have succeeded")
        if self.stage.world.now < known.due:
            self.stage.fail(f"{data!r} was taken {known.due - self.stage.world.now:.3f} s before its time")
        if known.was_put == "no":
            self.stage.fail(f"{data!r} was taken, and its producer knows that it was not put")

    async def finish(self, player: Player) -> None:
        """Take what is left, together with the other players."""
        await self.settled(player)
        if self._is_ordered:
            self._check_order()
            self._is_ordered = False
        # The removal of a watch is not repeated when an overloaded server refuses it: such a watch fires now.
        await self._put(player, 1, 100)
        tool = cast(_Tool, player.tool)
        # A put whose outcome is unknown may still be carried out until then.
        await self.settled(player, _PATH)
        # Not the lines: other players wait in them at this moment.
        lasting = tuple(f"{_PATH}/{name}/" for name in ("consumers", "producers", "attempts"))
        while any(not path.startswith(lasting) for path in self.left()):
            with (
                passing(),
                contextlib.suppress(zkwire.NoNodeError, TimeoutError),
            ):  # another player puts it back; no room
                for failed in await self._see_failed(tool.queue):
                    await tool.queue.retry(failed, within=0)
            # By a claim, which moves what a session has left after the last attempt.
            await (self.do_claim if self._max_attempts else self.do_get)(player, Step("claim", other=1.0))
        self._may_be_lost += sum(player.zk.session_id != session_id for session_id in tool.cancelled_in)

    def _check_order(self) -> None:
        last: dict[object, int] = {}
        for data in self._taken:
            known = self._items[data]
            if known.number < last.get(known.series, 0):
                self.stage.fail(f"{data!r} was taken after one that the same task has put later: {self._taken}")
            last[known.series] = known.number

    def deletable(self) -> list[str]:
        return [path for path in self.stage.ensemble.nodes_below(f"{_PATH}/taken") if "/_c_" in path]

    def left(self) -> list[str]:
        # An item that is lost with the session of its `get` leaves the number of its attempts.
        numbers = f"{_PATH}/attempts/" if self._may_be_lost else "none"
        below = self.stage.ensemble.nodes_below(_PATH)
        return [path for path in below if path not in _NODES and not path.startswith(numbers)]

    def ended(self) -> None:
        lost = [
            data
            for data, known in self._items.items()
            if known.was_put == "yes" and not known.gets and not known.bodies
        ]
        if len(lost) > self._may_be_lost:
            self.stage.fail(f"{lost} were never taken, and {self._may_be_lost} may be lost")
