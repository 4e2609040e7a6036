"""What must never happen while something is held, checked at the moment at which somebody begins to hold it.

- Never are more leases certain than may be held together.
- The body of a former holder has stopped before the next one owns, if its machine runs.
- The ticket that owns has no ticket before it that blocks it, in the copy of the server that has come furthest.
- Tokens grow with ownership.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tests.simulation.stage import Player, Stage

_LOOK_EVERY: Final = 1.1  # seconds
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
    `blocks`, whether an earlier ticket of a name blocks a ticket of a kind; `slots`, how many blockers are too many;
    `grows`, whether each lease must have a greater token than all before it.
    """

    def __init__(
        self,
        stage: "Stage",
        path: str,
        *,
        fits: Callable[[Sequence[str]], bool] = one,
        blocks: Callable[[str, str], bool] = lambda name, kind: True,
        slots: Callable[[], int] = lambda: 1,
        grows: bool = True,
    ) -> None:
        self._stage = stage
        self._path = path
        self._fits, self._blocks, self._slots, self._grows = fits, blocks, slots, grows
        self._holders: dict[_Holder, None] = {}
        self._excused: set[str] = set()
        self._greatest = (0, "")
        self.count = 0

    def deleted(self, path: str) -> None:
        """Take note that an operator deletes the node `path`: its holder learns of that after the fact."""
        self._excused.add(path)

    def tickets(self) -> list[str]:
        """Return the paths of all tickets, as the server that has come furthest shows them."""
        return [path for path in self._stage.ensemble.nodes_below(self._path) if _NUMBER.search(path)]

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
        others = [holder for holder in self._holders if not self._is_excused(holder)]
        certain = [holder for holder in others if _is_certain(holder)]
        if not self._fits([new.kind, *(holder.kind for holder in certain)]):
            self._fail(f"{new} owns while {_names(certain)} is certain to")
        running = [holder for holder in others if _could_stop(holder)]
        if not self._fits([new.kind, *(holder.kind for holder in running)]):
            self._fail(f"{new} owns while the body of {_names(running)} still runs")
        number = _number(new.lease.path)
        earlier = [path for path in self.tickets() if _number(path) < number]
        blockers = [path for path in earlier if self._blocks(path.rpartition("/")[2], new.kind)]
        if len(blockers) >= self._slots():
            self._fail(f"{new} owns while these are before it: {', '.join(blockers)}")
        token = new.lease.token, new.lease.path
        if self._grows and token <= self._greatest and token != self._greatest:
            self._fail(f"{new} owns, and {self._greatest[1]} owned before, whose token is {self._greatest[0]:#x}")
        self._greatest = max(self._greatest, token)

    def _is_excused(self, holder: _Holder) -> bool:
        """Whether a holder may rely on its lease although it is lost.

        An operator has deleted its node, or ended its session.  Or the leader has last heard of a shorter session
        timeout than the client: servers that grant different timeouts are beyond what is promised, as
        docs/waiting-line.md says, unless the client has got the answer of the one that granted less.
        """
        if holder.lease.path in self._excused or holder.session_id in self._stage.ended_sessions:
            return True
        known = self._stage.ensemble.election.timeouts.get(holder.session_id, 0)
        return known < round(holder.player.zk.session_timeout * 1000)

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


def _number(path: str) -> int:
    found = _NUMBER.search(path)
    return int(found[0]) if found else -1
