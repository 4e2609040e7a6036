"""What must never happen while something is held, checked at the moment at which somebody begins to hold it.

- Never are more leases certain than may be held together.
- The body of a former holder has stopped before the next one owns, if its machine runs.
- There was a moment of the history at which the ticket that owns was there, and no ticket before it blocked it.
- Tokens grow with ownership.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tests.simulation.ensemble.history import Replica

if TYPE_CHECKING:
    from tests.simulation.stage import Player, Stage

_LOOK_EVERY: Final = 1.1  # seconds
_MOMENT: Final = 0.1
_NUMBER: Final = re.compile(r"\d{10}$")


class Held(Protocol):
    """What a guard asks of a lease."""

    path: str
    token: int

    def is_certain(self) -> bool: ...


@dataclass(eq=False, slots=True)
class _Holder:
    player: "Player"
    lease: Held
    kind: str
    session_id: int

    def __str__(self) -> str:
        return f"{self.player.actor.name} ({self.kind} {self.lease.path}, token {self.lease.token:#x})"


def one(kinds: Sequence[str]) -> bool:
    """Return whether leases of these kinds may be held together: of a lock, one."""
    return len(kinds) <= 1


class Guard:
    """Watches the leases of one path.

    Arguments: `stage`; `path`, below which the tickets are; `fits`, whether leases of some kinds may be held together;
    `blocks`, whether an earlier ticket of a name blocks a ticket of a kind, None if what is held is not decided by one
    ticket that blocks another; `grows`, whether each lease must have a greater token than all before it.
    """

    def __init__(
        self,
        stage: "Stage",
        path: str,
        *,
        fits: Callable[[Sequence[str]], bool] = one,
        blocks: Callable[[str, str], bool] | None = lambda name, kind: True,
        grows: bool = True,
    ) -> None:
        self._stage = stage
        self._path = path
        self._fits, self._blocks, self._grows = fits, blocks, grows
        self._lines: list[dict[str, int]] = []  # each line that there was: the tickets' names and numbers
        self._newest = 0  # the zxid of the last one
        if blocks is not None:
            stage.ensemble.frontier.listeners.append(self._applied)
        self._holders: dict[_Holder, None] = {}
        self._excused: set[str] = set()
        self._greatest = (0, "")
        self.count = 0
        stage.guards.append(self)

    def certainties(self) -> list[tuple[_Holder, bool]]:
        """Return all that is held, and whether it is certain."""
        return [(holder, _is_certain(holder)) for holder in self._holders]

    def deleted(self, path: str) -> None:
        """Record that an operator deletes the node `path`: its holder learns of that after the fact."""
        self._excused.add(path)

    @contextlib.contextmanager
    def held(self, player: "Player", lease: Held, kind: str = "lock") -> Iterator[None]:
        """Watch a body: to be entered in its first step, and left in its last."""
        holder = _Holder(player, lease, kind, player.zk.session_id)
        self._begins(holder)
        self._holders[holder] = None
        self.count += 1
        try:
            yield
        finally:
            del self._holders[holder]

    def _begins(self, new: _Holder) -> None:
        if self._blocks is not None and not self.is_ended(new.player) and not self._has_been_entitled(new):
            there = self._stage.ensemble.nodes_below(self._path)
            self._fail(f"{new} owns while it has never been entitled to it: now there are {there}")
        if self._is_excused(new):
            return  # it owned before, and has not heard of the end yet, where its body begins
        others = [each for each in self._holders if not self._is_excused(each)]
        certain = [holder for holder in others if _is_certain(holder)]
        if not self._fits([new.kind, *(holder.kind for holder in certain)]):
            self._fail(f"{new} owns while {_names(certain)} is certain to")
        running = [holder for holder in others if _could_stop(holder)]
        if not self._fits([new.kind, *(holder.kind for holder in running)]):
            self._fail(f"{new} owns while the body of {_names(running)} still runs")
        token = new.lease.token, new.lease.path
        if self._grows and token <= self._greatest and token != self._greatest:
            self._fail(f"{new} owns, and {self._greatest[1]} owned before, whose token is {self._greatest[0]:#x}")
        self._greatest = max(self._greatest, token)

    def _applied(self, replica: Replica) -> None:
        node = replica.tree.nodes.get(self._path)
        if node is not None and node.pzxid != self._newest:
            self._newest = node.pzxid
            strangers = self._stage.ensemble.strangers  # no tickets: they are persistent
            names = [each for each in node.children or () if not (strangers and f"{self._path}/{each}" in strangers)]
            self._lines.append({name: int(found[0]) for name in names if (found := _NUMBER.search(name))})

    def excuses(self, player: "Player", lease: Held, kind: str) -> bool:
        """Whether the player may rely on its lease although it is lost; see `_is_excused`."""
        return self._is_excused(_Holder(player, lease, kind, player.zk.session_id))

    def is_ended(self, player: "Player") -> bool:
        """Return whether an operator has ended the player's session.

        All tickets of a session go in one transaction, and are reported one after the other.  If the first is that of a
        blocker, the next ticket owns for a moment: see docs/waiting-line.md, "Our own node".
        """
        return player.zk.session_id in self._stage.ended_sessions

    def _has_been_entitled(self, holder: _Holder) -> bool:
        return any(self._is_entitled(holder, line) for line in reversed(self._lines))

    def _is_entitled(self, holder: _Holder, line: dict[str, int]) -> bool:
        own = line.get(holder.lease.path.rpartition("/")[2])
        if own is None or self._blocks is None:
            return False
        return not any(number < own and self._blocks(name, holder.kind) for name, number in line.items())

    def _is_excused(self, holder: _Holder) -> bool:
        """Whether a holder may rely on its lease although it is lost.

        An operator has deleted its node, or ended its session.
        """
        if holder.lease.path in self._excused or holder.session_id in self._stage.ended_sessions:
            return True
        # It may have looked, and was stopped before it could act.
        is_frozen = holder.player.machine.frozen_until > self._stage.world.now - _MOMENT
        return is_frozen and not _is_certain(holder)

    def _fail(self, what: str) -> None:
        self._stage.fail(what)


def _could_stop(holder: _Holder) -> bool:
    """Whether the body's event loop has had the time to cancel it.

    The timers of an event loop do not count the time of a suspension: the client looks at the other clock each second.
    """
    machine = holder.player.machine
    return machine.is_idle and machine.world.now > machine.resumed_at + _LOOK_EVERY


def _is_certain(holder: _Holder) -> bool:
    with holder.player.machine.inside():
        return holder.lease.is_certain()


def _names(holders: list[_Holder]) -> str:
    return ", ".join(map(str, holders))
