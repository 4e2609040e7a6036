"""The fair lock, and what it shares with all scenarios in which something is held."""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, TypeAlias, cast

import zkwire
from recipes import Lock, LockLostError, ReentrantLock, TryLock
from recipes.line.locking import Locking
from recipes.try_lock import LockTakenError
from tests.simulation.checks import Guard
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import passing, refused
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH = "/locks/a"
_GUARDED = "/guarded"
_TIMES = {
    "hold": 1,
    "try": 1,
    "wait": 1,
    "terms": 2,
    "lead": 1,
    "plain": 1,
    "guard": 1,
    "steal": 1,
    "poll": 1,
}  # holds of a step
_FREE_WITHIN = 1.0  # seconds until a poller has found a free lock; longer after faults

# The kinds of steps, and how often each is drawn.
_KINDS: dict[str, float] = {"hold": 6, "wait": 1, "try": 1, "cancel": 1, "pause": 2, "plain": 1, "guard": 1, "look": 1}
_KINDS |= {"poll": 0.3, "steal": 0.3}

# What goes on beside a body.
Beside: TypeAlias = Callable[[Player, Any], Awaitable[object]]


class HeldScenario(Scenario):
    """A scenario in which something is held; see `do` for the steps.

    A subclass says what is acquired (`locking`) and which guards watch it (`watched`), and may give the holder more to
    do (`body`).  Where there is more than one thing to acquire, the kinds of steps begin with a word for it.
    """

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        return Step("hold", seconds)

    @classmethod
    def busy_step(cls, seconds: float, pause: float) -> Step | None:
        step = cls.long_step(seconds)
        return None if step is None else replace(step, other=pause)

    def holds(self) -> float:
        steps = [step for actor in self.stage.schedule.actors for steps in actor.tasks for step in steps]
        return sum(step.amount * _TIMES.get(step.kind.rpartition(" ")[2], 0) for step in steps)

    @abstractmethod
    def locking(self, player: Player, what: str) -> Locking[Any]:
        """Return what a step acquires; `what` is the word before its kind, "" if there is none."""

    @abstractmethod
    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        """Return the context in which a body runs."""

    async def do(self, player: Player, step: Step) -> None:
        """Do one of these: hold for so long; try, and hold if it was free; wait for so long; cancel; pause.

        Beside a hold, ask the leader each `step.other` seconds, unless that is 0.  "plain" holds by a plain `async
        with`; "guard" writes meanwhile while the lease stands; "steal" has another task release the lease; "poll" tries
        again and again, each `step.other` seconds; "look" lists the contenders.
        """
        what, _, kind = step.kind.rpartition(" ")
        match kind:
            case "pause":
                await asyncio.sleep(step.amount)
            case "hold":
                asking = asyncio.create_task(_ask_the_leader(player, step.other)) if step.other else None
                await self._hold(player, what, step.amount, None)
                if asking is not None:
                    asking.cancel()
                    await asyncio.wait([asking])
            case "wait":
                await self._hold(player, what, step.amount, step.other)
            case "plain":
                with contextlib.suppress(LockLostError, LockTakenError):
                    async with self.locking(player, what) as lease:
                        await self.body(player, lease, what, step.amount)
            case "guard":
                await self._hold(player, what, step.amount, None, self._write)
            case "steal":
                await self._hold(player, what, step.amount, None, _released_after(step.amount / 2))
            case "poll":
                await self._poll(player, what, step.amount, step.other)
            case "look":
                await self._look(player, what)
            case "try":
                await self._try(player, what, step.amount)
            case "cancel":
                await cancelled_after(int(step.amount), self._hold(player, what, 10.0, None))
            case _:
                raise ValueError(f"there is no step {step.kind!r}")

    async def _hold(
        self, player: Player, what: str, seconds: float, within: float | None, beside: Beside | None = None
    ) -> None:
        try:
            async with self.locking(player, what).hold(within=within) as lease:
                other = None if beside is None else asyncio.ensure_future(beside(player, lease))
                try:
                    await self.body(player, lease, what, seconds)
                finally:
                    if other is not None:
                        other.cancel()
                        await asyncio.wait([other])
        except (LockLostError, LockTakenError):
            pass
        except TimeoutError:
            if within is None:
                raise
        except RuntimeError:  # the body uses a lease that another task has released
            if beside is None:
                raise

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        """Do what a holder does."""
        with self.watched(player, lease, what):
            await asyncio.sleep(seconds)

    async def _write(self, player: Player, lease: Any) -> None:
        """Write while the lease stands; a write that its holder does not know to be made may be made anyway."""
        lease.check()
        await player.zk.ensure_path(_GUARDED)
        transaction = lease.transaction()
        transaction.create(f"{_GUARDED}/{lease.token if hasattr(lease, 'token') else 0}-", sequential=True)
        with contextlib.suppress(zkwire.ZooKeeperError):
            await transaction.commit()

    async def _look(self, player: Player, what: str) -> None:
        with passing():
            found = await self.locking(player, what).contenders()
            foreign = [each.path for each in found if each.path in self.stage.ensemble.strangers and each.session]
            if foreign:
                self.stage.fail(f"{player.actor.name} takes {foreign} for contenders")

    async def _poll(self, player: Player, what: str, seconds: float, pause: float) -> None:
        """Try until the lock was free; a lock that nobody holds or waits for must be found free within a bound."""
        world, guards, schedule = self.stage.world, self.stage.guards, self.stage.schedule
        shape = schedule.shape
        # A disk may stall, requests may wait for their order, a server may refuse some.
        patience = _FREE_WITHIN + 50 * (shape.flush + shape.ordering) + 2 * shape.stall
        # A client whose chain is broken waits until the leader has ended its witness, twice at most.
        if schedule.faults or shape.stall:
            patience += 9 * _FREE_WITHIN + 2 * schedule.longest + 2 * 5 * shape.tick + shape.ending
        held, since = -1, world.now
        while not await self._try(player, what, seconds):
            count = sum(guard.count for guard in guards)
            if count != held or any(guard.certainties() for guard in guards):
                held, since = count, world.now
            if world.now > max(since, schedule.calm) + patience:
                self.stage.fail(f"{player.actor.name} has not found the lock free for {world.now - since:.1f} s")
            await asyncio.sleep(pause)

    async def _try(self, player: Player, what: str, seconds: float) -> bool:
        lease = await self.locking(player, what).try_acquire()
        if lease is None:
            return False
        try:
            with self.watched(player, lease, what):
                await asyncio.wait([asyncio.ensure_future(lease.lost())], timeout=seconds)
        finally:
            await lease.release()
        return True


class GuardedScenario(HeldScenario):
    """One in which a single guard, which a subclass makes, watches all that is held."""

    path: ClassVar[str]

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.guard = self.make_guard()

    def make_guard(self) -> Guard:
        """Return what watches the leases."""
        return Guard(self.stage, self.path)

    def locking(self, player: Player, what: str) -> Locking[Any]:
        return cast(Locking[Any], player.tool)

    def lines(self) -> list[str]:
        return [self.path]

    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        return self.guard.held(player, lease)

    def deletable(self) -> list[str]:
        return self.guard.tickets()

    def deleted(self, path: str) -> None:
        self.guard.deleted(path)

    def left(self) -> list[str]:
        return self.guard.tickets()


async def _ask_the_leader(player: Player, pause: float) -> None:
    while True:
        with contextlib.suppress(zkwire.ZooKeeperError):
            await player.zk.sync("/")
        await asyncio.sleep(pause)


def _released_after(seconds: float) -> Beside:
    async def release(player: Player, lease: Any) -> None:
        await asyncio.sleep(seconds)
        await lease.release()

    return release


class LockScenario(GuardedScenario):
    """Several players, each with one or two tasks, at one path.

    The steps for "again" are those of a ReentrantLock, which is acquired again within the body.  Checked is, besides:
    what was written while leases stood is in the order of their tokens.
    """

    name = "lock"
    path = _PATH

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return random_tasks(rng, tick, ("", "", "", "again"))

    @staticmethod
    def poll_step(seconds: float, pause: float) -> Step | None:
        return Step("poll", seconds, pause)

    def equip(self, player: Player) -> object:
        passes = len(player.actor.tasks) - 1
        kinds: dict[str, type[Lock]] = {"": Lock, "again": ReentrantLock}
        return {what: kind(player.zk, _PATH, local_passes=passes) for what, kind in kinds.items()}

    def locking(self, player: Player, what: str) -> Locking[Any]:
        return cast(dict[str, Lock], player.tool)[what]

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        with self.watched(player, lease, what):
            if what == "again":
                async with self.locking(player, what) as same:
                    if same is not lease:
                        self.stage.fail(f"{player.actor.name} has acquired its own lock again, and got another lease")
                    await asyncio.sleep(seconds)
            else:
                await asyncio.sleep(seconds)

    def left(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_PATH)

    def ended(self) -> None:
        written = [path.rpartition("/")[2] for path in self.stage.ensemble.nodes_below(_GUARDED)]
        tokens = [int(name[:-11]) for name in sorted(written, key=lambda name: name[-10:])]
        if tokens != sorted(tokens):
            self.stage.fail(f"guarded writes were made in the order of the tokens {tokens}")


class TryLockScenario(LockScenario):
    """The lock that does not wait: who finds it taken does not get it, and most try again."""

    name = "try-lock"
    players = (2, 6)

    def make_guard(self) -> Guard:
        return Guard(self.stage, self.path, blocks=None)

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        pauses = rng.choice([(0.01, 0.05), (0.1, 1.0), (0.1, 1.0)])
        return [
            [
                step if step.kind in ("pause", "look") or rng.random() < 0.3 else Step("poll", step.amount / 2, pause)
                for step in steps
                for pause in [rng.uniform(*pauses)]
            ]
            for steps in random_tasks(rng, tick)
        ]

    def lines(self) -> list[str]:
        return []

    async def do(self, player: Player, step: Step) -> None:
        """Do one of those of HeldScenario; an overloaded server's refusal ends it."""
        with refused():
            await super().do(player, step)

    def equip(self, player: Player) -> TryLock:
        return TryLock(player.zk, _PATH)

    def locking(self, player: Player, what: str) -> Locking[Any]:
        return cast(TryLock, player.tool)

    def deletable(self) -> list[str]:
        return self.left()

    def left(self) -> list[str]:
        return [path for path in self.stage.ensemble.nodes_below("/locks") if path == _PATH]


def random_tasks(rng: Random, tick: float, whats: Sequence[str] = ()) -> list[list[Step]]:
    """Return the steps of one player, in one or two tasks.

    Arguments: `whats`, the words for what may be acquired; one that is chosen more often is listed more often.
    """
    tasks = [random_steps(rng, tick) for _ in range(2 if rng.random() < 0.2 else 1)]
    if not whats:
        return tasks
    return [
        [
            step if step.kind == "pause" else replace(step, kind=f"{rng.choice(whats)} {step.kind}".strip())
            for step in steps
        ]
        for steps in tasks
    ]


def random_steps(rng: Random, tick: float) -> list[Step]:
    """Return some steps; also for other scenarios in which something is held."""
    durations = rng.choice([(0.0, 0.01, 0.1, 0.5), (0.0, 0.5, 2.0), (2.0, 8.0)])  # in ticks
    count = rng.randrange(1, 3) if 8.0 in durations else rng.randrange(1, 5)
    steps = []
    for _ in range(count):
        seconds = rng.choice(durations) * tick * rng.uniform(0.5, 1.5)
        (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
        if kind == "cancel":
            steps.append(Step(kind, float(int(rng.expovariate(0.1)))))
        elif kind == "wait":
            steps.append(Step(kind, seconds, rng.choice([0.0, 0.001, 0.01, 1.0, 5.0])))
        elif kind == "poll":
            steps.append(Step(kind, seconds, rng.choice([0.05, 0.5])))
        else:
            steps.append(Step(kind, seconds))
    return steps


async def cancelled_after(turns: int, act: Coroutine[Any, Any, None]) -> None:
    """Run `act` in a task, and cancel it after so many turns of the event loop."""
    task = asyncio.create_task(act)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
