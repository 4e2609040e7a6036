"""Several locks held as one, of several kinds, and single ones beside them."""

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import zkwire
from recipes import Lock, MultiLock, ReadWriteLock
from recipes.line.locking import Locking
from recipes.line.ticket import WRITE_PREFIX
from tests.simulation.checks import Guard
from tests.simulation.scenarios.lock import HeldScenario, held
from tests.simulation.scenarios.read_write_lock import fits
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_A, _B, _C = _LINES = ("/multi/a", "/multi/b", "/multi/c")


class MultiLockScenario(HeldScenario):
    """The steps of HeldScenario, each for some locks: "a" and "b" are Locks, "r" and "w" read and write "c"."""

    name = "multi-lock"
    lines = _LINES
    whats = ("ab", "ba", "aw", "wa", "ra", "bw", "abr", "wba", "a", "w", "r")
    roles = held("abw hold")

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        shared = Guard(
            stage, _C, fits=fits, blocks=lambda name, kind: kind == "write" or WRITE_PREFIX in name, grows=False
        )
        self._guards = {_A: self.guard, _B: Guard(stage, _B), _C: shared}

    def equip(self, player: Player) -> dict[str, Locking[Any]]:
        zk, shared = player.zk, ReadWriteLock(player.zk, _C)
        passes = len(player.actor.tasks) - 1
        return {"a": Lock(zk, _A, local_passes=passes), "b": Lock(zk, _B), "r": shared.read(), "w": shared.write()}

    def locking(self, player: Player, what: str) -> Locking[Any]:
        locks = cast(dict[str, Locking[Any]], player.tool)
        return locks[what] if len(what) == 1 else MultiLock([locks[each] for each in what])

    @contextlib.contextmanager
    def watched(self, player: Player, lease: Any, what: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for each in [lease] if len(what) == 1 else lease.leases.values():
                guard = self._guards[each.path.rpartition("/")[0]]
                stack.enter_context(guard.held(player, each, "read" if "r" in what else "write"))
            yield

    async def act(self, player: Player, step: Step) -> None:
        """Do one of those of HeldScenario; a reader that tries may be refused because of overload."""
        try:
            await super().act(player, step)
        except zkwire.ServerError as error:
            if step.verb != "try" or "r" not in step.what or not error.is_transient:
                raise
