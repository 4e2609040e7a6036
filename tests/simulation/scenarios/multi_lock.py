"""Several locks held as one, of several kinds, and single ones beside them."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Final, cast

import zkwire
from recipes import Lock, MultiLock, ReadWriteLock
from recipes.line.locking import Locking
from recipes.line.ticket import WRITE_PREFIX
from tests.simulation.checks import Guard
from tests.simulation.scenarios.lock import HeldScenario, random_tasks
from tests.simulation.scenarios.read_write_lock import fits
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_ROOT: Final = "/multi"


class MultiLockScenario(HeldScenario):
    """The steps of HeldScenario, each for some locks: "a" and "b" are Locks, "r" and "w" read and write "c"."""

    name = "multi-lock"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._guards = {
            "a": Guard(stage, f"{_ROOT}/a"),
            "b": Guard(stage, f"{_ROOT}/b"),
            "c": Guard(stage, f"{_ROOT}/c", fits=fits, blocks=_blocks, grows=False),
        }

    @staticmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        return random_tasks(rng, tick, ("ab", "ba", "aw", "wa", "ra", "bw", "abr", "wba", "a", "w", "r"))

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        return Step("abw hold", seconds)

    def equip(self, player: Player) -> dict[str, Locking[Any]]:
        zk, passes = player.zk, len(player.actor.tasks) - 1
        shared = ReadWriteLock(zk, f"{_ROOT}/c")
        return {
            "a": Lock(zk, f"{_ROOT}/a", local_passes=passes),
            "b": Lock(zk, f"{_ROOT}/b"),
            "r": shared.read(),
            "w": shared.write(),
        }

    def locking(self, player: Player, what: str) -> Locking[Any]:
        locks = cast(dict[str, Locking[Any]], player.tool)
        return locks[what] if len(what) == 1 else MultiLock([locks[each] for each in what])

    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        return self._all_watched(player, [lease] if len(what) == 1 else list(lease.leases.values()), what)

    @contextlib.contextmanager
    def _all_watched(self, player: Player, leases: list[Any], what: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for lease in leases:
                kind = "read" if "r" in what else "write"
                stack.enter_context(self._guards[lease.path.split("/")[2]].held(player, lease, kind))
            yield

    async def do(self, player: Player, step: Step) -> None:
        """Do one of those of HeldScenario; a reader that tries may be refused because of overload."""
        try:
            await super().do(player, step)
        except zkwire.ServerError as error:
            what, _, kind = step.kind.partition(" ")
            if kind != "try" or "r" not in what or not error.is_transient:
                raise

    def lines(self) -> list[str]:
        return [f"{_ROOT}/{name}" for name in self._guards]

    def deletable(self) -> list[str]:
        return [path for guard in self._guards.values() for path in guard.tickets()]

    def deleted(self, path: str) -> None:
        self._guards[path.split("/")[2]].deleted(path)

    def left(self) -> list[str]:
        return self.deletable()


def _blocks(name: str, kind: str) -> bool:
    return kind == "write" or WRITE_PREFIX in name
