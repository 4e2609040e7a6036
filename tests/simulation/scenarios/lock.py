"""The fair lock, and what it shares with all scenarios in which something is held."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, Final, TypeAlias, cast

import zkwire
from recipes import Lock, LockLostError, ReentrantLock, TryLock
from recipes.line.lease import WRITTEN_OVER
from recipes.line.locking import Locking
from recipes.try_lock import LockTakenError
from tests.simulation.checks import Guard
from tests.simulation.ensemble.disk import LONGEST
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import passing, refused
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH: Final = "/locks/a"
_GUARDED: Final = "/guarded"
_FREE_WITHIN: Final = 1.0  # seconds until a poller has found a free lock; longer after faults

# What goes on beside a body.
Beside: TypeAlias = Callable[[Player, Any], Awaitable[object]]


def held(kind: str, **more: str) -> dict[str, str]:
    """Return the roles of a step that holds something, and `more` roles."""
    return {"hold": kind, "busy": kind, **more}


class HeldScenario(Scenario):
    """A scenario in which something is held.

    Steps: "hold" for so long, and ask the leader each `other` seconds meanwhile, unless that is 0; "try", and hold if
    it was free; "wait" for so long; "plain" holds by a plain `async with`; "guard" writes meanwhile while the lease
    stands; "steal" has another task release the lease; "poll" tries again and again, each `other` seconds, until it
    holds; "look" lists the contenders; "remove" removes the first of them, "ask" asks
    them to give way, which ends no lease.  Where there is more than one thing to acquire, a word for it, one of
    `whats`, comes first.

    A subclass says what is acquired (`locking`) and which guards watch it (`watched`), and may give the holder more to
    do (`body`).
    """

    kinds = dict.fromkeys(("wait", "try", "cancel hold", "plain", "guard", "look"), 1.0) | {"hold": 6, "pause": 2}
    kinds |= {"poll": 0.3, "steal": 0.3, "remove": 0.3, "ask": 1}
    count = (1, 4)
    lists: ClassVar[Sequence[int]] = (1, 1, 1, 1, 2)
    others = {"wait": (0.0, 0.001, 0.01, 1.0, 5.0), "poll": (0.05, 0.5)}
    roles = held("hold")
    scales: ClassVar[Sequence[Sequence[float]]] = ((0.0, 0.01, 0.1, 0.5), (0.0, 0.5, 2.0), (2.0, 8.0))
    whats: ClassVar[Sequence[str]] = ()

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.guard = self.make_guard()

    def make_guard(self) -> Guard:
        """Return what watches the leases."""
        return Guard(self.stage, self.lines[0])

    @classmethod
    def steps(cls, rng: Random, tick: float, durations: Sequence[float] | None = None) -> list[Step]:
        durations = rng.choice(cls.scales)
        steps = super().steps(rng, tick, durations)[: 2 if durations[0] >= 1 else 4]
        return [replace(step, kind=cls._with_what(rng, step)) for step in steps]

    @classmethod
    def _with_what(cls, rng: Random, step: Step) -> str:
        return f"{rng.choice(cls.whats)} {step.kind}".strip() if cls.whats and step.kind != "pause" else step.kind

    def locking(self, player: Player, what: str) -> Locking[Any]:
        """Return what a step acquires; `what` is the word before its kind, "" if there is none."""
        return cast(Locking[Any], player.tool)

    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        """Return the context in which a body runs."""
        return self.guard.held(player, lease)

    async def do_hold(self, player: Player, step: Step) -> None:
        asking = asyncio.create_task(_ask_the_leader(player, step.other)) if step.other else None
        await self._hold(player, step, None)
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])

    async def do_wait(self, player: Player, step: Step) -> None:
        with suppress(TimeoutError):
            await self._hold(player, step, step.other)

    async def do_plain(self, player: Player, step: Step) -> None:
        with suppress(LockLostError, LockTakenError):
            async with self.locking(player, step.what) as lease:
                await self.body(player, lease, step.what, step.amount)

    async def do_guard(self, player: Player, step: Step) -> None:
        await self._hold(player, step, None, _write)

    async def do_steal(self, player: Player, step: Step) -> None:
        async def release(player: Player, lease: Any) -> None:
            await asyncio.sleep(step.amount / 2)
            await lease.release()

        with suppress(RuntimeError):  # the body uses a lease that another task has released
            await self._hold(player, step, None, release)

    async def _hold(self, player: Player, step: Step, within: float | None, beside: Beside | None = None) -> None:
        try:
            async with self.locking(player, step.what).hold(within=within) as lease:
                other = None if beside is None else asyncio.ensure_future(beside(player, lease))
                try:
                    await self.body(player, lease, step.what, step.amount)
                finally:
                    if other is not None:
                        other.cancel()
                        await asyncio.wait([other])
        except LockTakenError:
            pass
        except LockLostError as error:
            if error.why == WRITTEN_OVER and not any(each.kind == "write" for each in self.stage.schedule.faults):
                self.stage.fail(f"{player.actor.name}: only requests to give way were written into {error.path}")

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        """Do what a holder does."""
        with self.watched(player, lease, what):
            await asyncio.sleep(seconds)

    async def do_look(self, player: Player, step: Step) -> None:
        with passing():
            found = await self.locking(player, step.what).contenders()
            foreign = [each.path for each in found if each.path in self.stage.ensemble.strangers and each.session]
            if foreign:
                self.stage.fail(f"{player.actor.name} takes {foreign} for contenders")

    async def do_remove(self, player: Player, step: Step) -> None:
        with passing():
            # A stranger's node may be unreadable.
            for holder in [each for each in await self.locking(player, step.what).contenders() if each.token][:1]:
                for guard in self.stage.guards:
                    guard.deleted(holder.path)
                await holder.remove()

    async def do_ask(self, player: Player, step: Step) -> None:
        with passing():
            for each in await self.locking(player, step.what).contenders():
                if each.token:  # a stranger's node may be unreadable
                    await each.ask()

    async def do_poll(self, player: Player, step: Step) -> None:
        """Try until the lock was free; a lock that nobody holds or waits for must be found free within a bound."""
        world, guards, schedule = self.stage.world, self.stage.guards, self.stage.schedule
        shape = schedule.shape
        # A disk may stall, requests may wait for their order, a server may refuse some.
        patience = _FREE_WITHIN + 50 * (shape.flush + shape.ordering) + 2 * shape.stall
        # A client whose chain is broken, by a restart too, waits until the leader has ended its witness, twice at most.
        # When the disks of a quorum stall at a time, nothing is committed: sessions end, and their nodes stay until the
        # leader ends them.
        restarts = any("restart" in each.kind for actor in schedule.actors for task in actor.tasks for each in task)
        if schedule.faults or restarts or shape.stall or LONGEST * shape.flush > shape.tick:
            patience += 9 * _FREE_WITHIN + 2 * schedule.longest + 2 * 5 * shape.tick + shape.ending
        seen, since = -1, world.now
        while not await self.do_try(player, step):
            count = sum(guard.count for guard in guards)
            if count != seen or any(guard.certainties() for guard in guards):
                seen, since = count, world.now
            if world.now > max(since, schedule.calm) + patience:
                self.stage.fail(f"{player.actor.name} has not found the lock free for {world.now - since:.1f} s")
            await asyncio.sleep(step.other)

    async def do_try(self, player: Player, step: Step) -> bool:
        """Return whether it was free."""
        lease = await self.locking(player, step.what).try_acquire()
        if lease is None:
            return False
        try:
            with self.watched(player, lease, step.what):
                await asyncio.wait([asyncio.ensure_future(lease.lost())], timeout=step.amount)
        finally:
            await lease.release()
        return True


async def _write(player: Player, lease: Any) -> None:
    """Write while the lease stands; a write that its holder does not know to be made may be made anyway."""
    lease.check()
    await player.zk.ensure_path(_GUARDED)
    transaction = lease.transaction()
    transaction.create(f"{_GUARDED}/{lease.token if hasattr(lease, 'token') else 0}-", sequential=True)
    with suppress(zkwire.ZooKeeperError):
        await transaction.commit()


async def _ask_the_leader(player: Player, pause: float) -> None:
    while True:
        with suppress(zkwire.ZooKeeperError):
            await player.zk.sync("/")
        await asyncio.sleep(pause)


class LockScenario(HeldScenario):
    """Several players, each with one or two tasks, at one path.

    The steps for "again" are those of a ReentrantLock, which is acquired again within the body.  "restart" closes the
    client in the body, and keeps its session: the next process takes the lease up, as after each crash.  Checked is,
    besides: what was written while leases stood is in the order of their tokens.
    """

    name = "lock"
    kinds = {**HeldScenario.kinds, "restart": 1}
    lines: ClassVar[Sequence[str]] = (_PATH,)
    whats: ClassVar[Sequence[str]] = ("", "", "", "again")
    roles = held("hold", poll="poll")

    def equip(self, player: Player) -> object:
        passes = len(player.actor.tasks) - 1
        kinds: dict[str, type[Lock]] = {"": Lock, "again": ReentrantLock}
        return {what: kind(player.zk, _PATH, local_passes=passes) for what, kind in kinds.items()}

    def locking(self, player: Player, what: str) -> Locking[Any]:
        return cast(dict[str, Lock], player.tool)[what]

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        with self.watched(player, lease, what):
            again = self.locking(player, what) if what == "again" else contextlib.nullcontext(lease)
            player.held = lease.path, lease.token
            async with again as same:
                if same is not lease:
                    self.stage.fail(f"{player.actor.name} has acquired its own lock again, and got another lease")
                await asyncio.sleep(seconds)

    async def do_restart(self, player: Player, step: Step) -> None:
        if len(player.actor.tasks) > 1:
            return  # the others would find the client closed
        with suppress(LockLostError):
            async with self.locking(player, step.what) as lease:
                player.held = lease.path, lease.token
                with self.watched(player, lease, step.what):
                    await asyncio.sleep(step.amount)
                    await player.zk.close(keep_session=True)
        if player.zk.on_closed.error is not None:
            self.stage.world.after(0.0, player.restart, player.machine)
            await asyncio.Event().wait()

    async def resume(self, player: Player) -> None:
        """Hold again what was held last, if it was not lost or released, and is no TryLock's."""
        if player.held is None or isinstance(self, TryLockScenario):
            return
        try:
            lease = await Lock(player.zk, _PATH).adopt(*player.held)
        except LockLostError:
            return
        self.stage.seen.add("a lease is adopted")
        with self.watched(player, lease, ""):
            await asyncio.wait([asyncio.ensure_future(lease.lost())], timeout=player.rng.choice((0.0, 0.5, 3.0)))
        await lease.release()

    def left(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_PATH)

    def ended(self) -> None:
        written = [path.rpartition("/")[2] for path in self.stage.ensemble.nodes_below(_GUARDED)]
        tokens = [int(name[:-11]) for name in sorted(written, key=lambda name: name[-10:])]
        if tokens != sorted(tokens):
            self.stage.fail(f"guarded writes were made in the order of the tokens {tokens}")


class CrowdScenario(LockScenario):
    """Few players, each with several tickets in the line, of locks of their own: they share what a connection shows."""

    name = "crowd"
    kinds = HeldScenario.kinds
    players = (1, 3)
    lists = (3, 4, 5, 6)
    whats = ()

    def locking(self, player: Player, what: str) -> Lock:
        return Lock(player.zk, _PATH)


class PollersScenario(LockScenario):
    """Some players that try again and again; a free lock that no try finds free would keep them until the end."""

    name = "pollers"
    kinds = {"poll": 1}
    lists = (1,)
    scales = ((0.0,), (0.1,), (0.5,))
    others = {"poll": (0.0, 0.001, 0.01, 0.1)}
    whats = ()


class TryLockScenario(LockScenario):
    """The lock that does not wait: who finds it taken does not get it, and most try again."""

    name = "try-lock"
    players = (2, 6)
    kinds = {**HeldScenario.kinds, "poll": 16}
    scales = ((0.0, 0.01, 0.1, 0.3), (0.0, 0.3, 1.0), (1.0, 4.0))
    others = {**HeldScenario.others, "poll": (0.02, 0.03, 0.05, 0.1, 0.3, 1.0)}
    lines = ()
    whats = ()
    may_end = staticmethod(refused)  # an overloaded server's refusal ends a step

    def make_guard(self) -> Guard:
        return Guard(self.stage, _PATH, blocks=None)

    def equip(self, player: Player) -> TryLock:
        return TryLock(player.zk, _PATH)

    def locking(self, player: Player, what: str) -> Locking[Any]:
        return cast(TryLock, player.tool)

    def deletable(self) -> list[str]:
        return self.left()

    def left(self) -> list[str]:
        return [path for path in self.stage.ensemble.nodes_below("/locks") if path == _PATH]
