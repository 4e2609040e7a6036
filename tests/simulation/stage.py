"""The stage of a run: the world that a schedule describes, the players in it, and what has failed."""

import asyncio
import contextlib
import gc
import logging
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import zkwire
from recipes.common import this_process
from recipes.line import lease, waiting
from tests.simulation import faults
from tests.simulation.checks import Guard
from tests.simulation.ensemble.ensemble import Ensemble
from tests.simulation.links import Network
from tests.simulation.loop import LOOK_EVERY, ON_CALL, Machine, StuckError, World
from tests.simulation.rare import Rare
from tests.simulation.scenario import Scenario
from tests.simulation.schedule import Actor, Schedule, Step
from zkwire.session import keepalive

_MOMENT: Final = 0.2  # seconds


class Player:
    """One actor on its machine, while it plays.

    `rng` is where it takes its randomness from.  `zk` is its client, and `tool` what the scenario has equipped it with;
    both are set before its first step.  When its process dies, another one goes on with the next steps.  `held` is the
    path and the token of what it has acquired last, in whichever process.
    """

    def __init__(self, stage: "Stage", actor: Actor) -> None:
        self.stage = stage
        self.actor = actor
        self.zk: zkwire.Client
        self.tool: object = None
        self.held: tuple[str, int] | None = None
        self.has_played = False
        self._steps = [iter(steps) for steps in actor.tasks]
        machine = Machine(stage.world, actor.name, rate=actor.rate, offset=actor.offset)
        self.rng = random.Random(stage.world.rng.random())
        self._begin(machine, {})

    def _begin(self, machine: Machine, resumed: dict[str, Any]) -> None:
        """Begin to play; `resumed` says which session the client resumes."""
        self.machine = machine
        machine.slowness = self.actor.slowness
        self._may_close: asyncio.Future[None] = machine.create_future()
        self._main = machine.create_task(self._play(resumed), name=f"the player {self.actor.name}")
        self._main.add_done_callback(self._ended)

    def crash(self, *, resumes: float, with_host: bool) -> Callable[[], object] | None:
        """Let the process die; return what starts it again, None if it cannot die now.

        Arguments: `resumes`, with how many times its session timeout the new process resumes the session by its id, 0
        for a new session; `with_host`, whether the machine dies, so that servers do not hear of it.
        """
        machine, stage = self.machine, self.stage
        if machine.is_dead or machine.is_frozen or self.has_played or not hasattr(self, "zk"):
            return None
        stage.network.leave_all(machine, silently=with_host)
        machine.die()
        stage.clients.pop(self.actor.name, None)  # until the next process has one
        resumed = {
            "session_timeout": self.zk.session_timeout * resumes,
            "session_id": self.zk.session_id,
            "session_password": self.zk.session_password,
            "least_timeout": self.zk.least_timeout,
        }
        is_resumed = bool(resumes and self.zk.session_id)
        if is_resumed:
            stage.seen.add("a session is resumed by its id")

        def again() -> None:
            new = Machine(stage.world, machine.name, rate=self.actor.rate, offset=machine.time())
            stage.machines[machine.name] = new
            self._begin(new, resumed if is_resumed else {})

        return again

    def restart(self, machine: Machine) -> None:
        """Let the process on `machine` die, as soon as it can, and another one resume its session."""
        if self.machine is machine and not machine.is_dead:
            again = self.crash(resumes=1.0, with_host=False)
            (again or partial(self.stage.world.after, _MOMENT, self.restart, machine))()

    @property
    def is_over(self) -> bool:
        """Whether the player has closed its client."""
        return self._main.done()

    def close(self) -> None:
        """Let the player close its client."""
        self.machine.call_soon(self._may_close.set_result, None)

    async def _play(self, resumed: dict[str, Any]) -> None:
        stage, actor = self.stage, self.actor
        async with contextlib.AsyncExitStack() as stack:
            try:
                self.zk = await stack.enter_async_context(self._connecting(resumed))
            except zkwire.SessionExpiredError:
                if not resumed:
                    raise
                resumed = {}  # a new client's session: nothing of the former process is in it
                self.zk = await stack.enter_async_context(self._connecting(resumed))
            stage.clients[actor.name] = self.zk
            self.held = self.held if resumed else None  # a later session that is resumed has no lease of the former one
            if resumed:
                await stage.scenario.resume(self)
                await self._clear()
            self.tool = stage.scenario.equip(self)
            tasks = [self.machine.create_task(self._do_all(steps)) for steps in self._steps]
            for task in tasks:
                task.add_done_callback(self._steps_ended)
            if tasks:
                await asyncio.wait(tasks)
            await stage.scenario.finish(self)
            self.has_played = True
            stage.world.look()
            await self._may_close

    def _connecting(self, resumed: dict[str, Any]) -> AbstractAsyncContextManager[zkwire.Client]:
        stage, actor = self.stage, self.actor
        options: dict[str, Any] = {
            "session_timeout": actor.timeout,
            "rng": random.Random(stage.world.rng.random()),
            "open_link": stage.network.opener(self.machine),
            "within": None,
        }
        options |= stage.scenario.options() | resumed
        return zkwire.connect(stage.ensemble.hosts(actor.servers), **options)

    async def _clear(self) -> None:
        """Delete what the former process has left in the session."""
        while True:
            try:
                await self.zk.set("/", b"")  # what the former process has sent comes before it, or is refused
                for path in await self.zk.get_ephemerals():
                    await self.zk.delete(path)
                return
            except zkwire.ZooKeeperError:
                await asyncio.sleep(_MOMENT)

    async def _do_all(self, steps: Iterator[Step]) -> None:
        for step in steps:
            await self.stage.scenario.do(self, step)

    def _steps_ended(self, task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not self._main.cancelling():
            self._fail("a step", error)

    def _ended(self, main: asyncio.Task[None]) -> None:
        self.stage.world.look()
        if not main.cancelled() and (error := main.exception()) is not None:
            self._fail("the end of the play", error)

    def _fail(self, what: str, error: BaseException) -> None:
        where = traceback.extract_tb(error.__traceback__)
        lines = [f"{Path(each.filename).name}:{each.lineno}" for each in where[-4:]]
        self.stage.fail(f"{self.actor.name}: {what} raised {error!r} in {', '.join(lines)}")


class Stage:
    """What a schedule describes, ready to be played.

    `failures` are what went wrong; the first one ends the run.  `clients` are the players' clients by the players'
    names.  `ended_sessions` are the sessions that an operator has ended.  `seen` has what is rare and has happened;
    `guards`, all that were made.
    """

    def __init__(self, schedule: Schedule, kind: type[Scenario]) -> None:
        self.schedule = schedule
        self.world = World(schedule.seed)
        self.network = Network(self.world)
        self.network.backoff = schedule.backoff
        self.ensemble = Ensemble(self.network, schedule.shape)
        self.failures: list[str] = []
        self.clients: dict[str, zkwire.Client] = {}
        self.ended_sessions: set[int] = set()
        self.seen: set[str] = set()
        self.guards: list[Guard] = []
        self.scenario = kind(self)
        Rare(self, self.seen)
        self.ensemble.start()
        self.players = [Player(self, actor) for actor in schedule.actors]
        self.machines = {player.actor.name: player.machine for player in self.players}
        for fault in schedule.faults:
            self.world.at(fault.at, faults.begin, self, fault)

    def fail(self, what: str) -> None:
        """Record a failure."""
        self.failures.append(f"at {self.world.now:.4f} s: {what}")
        self.world.look()

    def play(self) -> None:
        """Play the schedule to its end, or to the first failure."""
        world, scenario = self.world, self.scenario
        # When all faults are over, sessions end and connections are found dead within some timeouts.
        longest, shape = self.schedule.longest, self.schedule.shape
        patience = scenario.patience + self.schedule.work + 6 * longest + shape.ending
        try:
            self._run(lambda: all(each.has_played for each in self.players), patience, "unserved", every=ON_CALL)
            # An idle connection, with its watches, is closed in one of the rounds of its server.
            within = 3 * longest + 2 * shape.idle + shape.ending
            self._run(lambda: not self._left_on_servers(), within, "something stays")
            for player in self.players:
                player.close()
            self._run(lambda: all(each.is_over for each in self.players), 2 * longest, "not closed", every=ON_CALL)
            # The sessions that clients began as witnesses, or to ask a server, end by themselves.
            within = 3 * longest + 8 * shape.tick + shape.ending + 10 * shape.stall
            self._run(lambda: not self.ensemble.sessions(), within, "sessions stay")
            self._run(self._is_at_rest, 5.0, "machines go on")
            is_calm = False
            while any(player.machine.left() for player in self.players) and not is_calm:
                is_calm = self.world.now >= self.schedule.calm  # otherwise a fault may stop a machine meanwhile
                self._let_pass(_MOMENT)
                self._run(self._is_at_rest, self.schedule.calm + 5.0, "machines go on")
        except _FailedError:
            return
        scenario.ended()
        for player in self.players:
            for what in player.machine.left():
                self.fail(f"left behind: {what}")
        for what in world.complaints:
            self.fail(what)

    def _run(self, until: Callable[[], bool], within: float, what: str, *, every: float = LOOK_EVERY) -> None:
        """Let things happen until `until()`, or a failure: at the latest `within` seconds after the last fault."""
        limit = max(self.world.now, self.schedule.calm) + within
        try:
            self.world.run(until=lambda: bool(self.failures) or until(), limit=limit, every=every)
        except StuckError as stuck:
            self.fail(f"{what}: {stuck}: {'; '.join(self._state())}")
        if self.failures:
            raise _FailedError

    def _let_pass(self, seconds: float) -> None:
        """Let so much time pass: a timer that many leases share may go off once more, shortly after they are over."""
        end = self.world.now + seconds
        self.world.at(end, self.world.look)
        self._run(lambda: self.world.now >= end, seconds + 1.0, "time does not pass")

    def _left_on_servers(self) -> list[str]:
        return [*self.scenario.left(), *self.ensemble.watches()]

    def _is_at_rest(self) -> bool:
        return all(player.machine.is_idle for player in self.players)

    def _state(self) -> list[str]:
        """Return what is known about a run that is stuck."""
        players = [f"{each.actor.name} plays on" for each in self.players if not each.has_played]
        return [*players, *self._left_on_servers()]

    def close(self) -> None:
        """Give everything up: a run that has failed still has its tasks."""
        for player in self.players:
            player.machine.cancel_all()
        with contextlib.suppress(StuckError):
            self.world.run(
                until=lambda: not any(each.machine.left() for each in self.players), limit=self.world.now + 60
            )
        for player in self.players:
            player.machine.close()


class _FailedError(Exception):
    """The run has failed."""


def _suspended() -> float:
    machine = asyncio.get_running_loop()
    assert isinstance(machine, Machine)
    return machine.suspended()


@contextlib.contextmanager
def _asyncio_lists_no_tasks() -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        for name in ("_all_tasks", "_scheduled_tasks"):  # of Python 3.11, and of later ones
            if (tasks := getattr(asyncio.tasks, name, None)) is not None:
                patches.enter_context(patch.object(tasks, "add", lambda task: None))
        yield


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Replace what the product asks of the computer: the time that it was suspended, to yield the processor, its name.

    The name of the process would make requests longer or shorter, and a cut would come in another place.
    The garbage collector is off: it would run at other moments in each run.  asyncio's own list of tasks, which nobody
    reads here, is not kept: to add each task and to take it out again took 4 % of the time.
    """
    was_enabled, disabled = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    logging.disable()
    try:
        with (
            _asyncio_lists_no_tasks(),
            patch.object(keepalive, "suspended", _suspended),
            patch.object(lease, "yield_processor", lambda: None),
            patch.object(waiting, "yield_processor", lambda: None),
            patch.object(this_process, "_describe", lambda pid, program: b""),
        ):
            yield
    finally:
        logging.disable(disabled)
        if was_enabled:
            gc.enable()
