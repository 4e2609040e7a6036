"""The read/write lock: readers together, a writer alone, and writers that become readers."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, cast

from recipes import Lease, ReadWriteLock, WriteLease
from recipes.line.locking import Locking
from recipes.line.ticket import READ_PREFIX, WRITE_PREFIX
from tests.simulation.checks import Guard
from tests.simulation.scenarios.lock import HeldScenario, held
from tests.simulation.scenarios.settling import refused
from tests.simulation.stage import Player, Stage

_PATH: Final = "/locks/rw"
_PAUSE: Final = 0.1  # seconds


class ReadWriteLockScenario(HeldScenario):
    """The steps of HeldScenario, each for "read", "write" or "downgrade": to write, and then to go on as a reader.

    A writer's token is greater than those of all before; a reader's is greater than those of all writers before.
    """

    name = "read-write-lock"
    lines = (_PATH,)
    whats = ("read", "read", "read", "write", "write", "downgrade")
    roles = held("write hold", together="read hold")

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._downgraded: set[str] = set()  # names of tickets
        self._former: list[tuple[Player, WriteLease]] = []  # that were downgraded
        self._greatest = {"read": 0, "write": 0}

    def make_guard(self) -> Guard:
        # Readers hold in any order, so the guard cannot compare all tokens.
        return Guard(self.stage, _PATH, fits=fits, blocks=self._blocks, grows=False)

    def equip(self, player: Player) -> ReadWriteLock:
        return ReadWriteLock(player.zk, _PATH, prefer=player.rng.choice([None, None, "readers", "writers"]))

    def locking(self, player: Player, what: str) -> Locking[Any]:
        lock = cast(ReadWriteLock, player.tool)
        return lock.read() if what == "read" else lock.write()

    def watched(self, player: Player, lease: Any, what: str) -> AbstractContextManager[object]:
        kind = "read" if what == "read" else "write"
        greatest = self._greatest
        newest = greatest["write"] if kind == "read" else max(greatest.values())
        if lease.token <= newest and not self.guard.excuses(player, lease, kind):
            self.stage.fail(f"{player.actor.name} owns with the token {lease.token:#x} to {kind}, after {greatest}")
        greatest[kind] = max(greatest[kind], lease.token)
        for writer, former in self._former:
            with writer.machine.inside():
                if former.is_certain():
                    self.stage.fail(
                        f"{player.actor.name} owns to {kind} beside {former.path}, which is certain to write"
                    )
        return self.guard.held(player, lease, kind)

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        if what != "downgrade":
            await super().body(player, lease, what, seconds)
            return
        await super().body(player, lease, "write", seconds / 2)
        self._downgraded.add(lease.path.rpartition("/")[2])
        self._former.append((player, lease))
        with self.guard.held(player, await _downgraded(lease), "read"):
            await asyncio.sleep(seconds / 2)

    def _blocks(self, name: str, kind: str) -> bool:
        if kind == "write":
            return READ_PREFIX in name or WRITE_PREFIX in name  # and not a ticket at the gate of waiting writers
        return WRITE_PREFIX in name and name not in self._downgraded


async def _downgraded(lease: WriteLease) -> Lease:
    while True:
        with refused():
            return await lease.downgrade()
        await asyncio.sleep(_PAUSE)


def fits(kinds: Sequence[str]) -> bool:
    """Return whether leases of these kinds may be held together."""
    return len(kinds) <= 1 or "write" not in kinds
