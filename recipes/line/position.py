"""What a ticket knows of those before it, and what follows from that: who owns, what to watch, whom to wait for.

Pure: told of lists of the children, of departures, of numbers and of promises, in the order of the wire; asks nobody.
docs/waiting-line.md has the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import zkwire


def everyone(name: str) -> bool:
    """Every contender blocks."""
    return True


def earlier(name: str, names: Iterable[str]) -> list[str]:
    """Return the contenders among `names` that stand before `name`, in their order.

    Every child whose name ends in a sequence number is a contender, whatever stands in front of it.  Numbers are
    compared as numbers, across their overflow.
    """
    own = _number(name)
    before = []
    for other in names:
        number = zkwire.sequence(other)
        if number is not None and other != name:
            distance = zkwire.sequence_distance(number, own)
            if distance < 0:
                before.append((distance, other))
    return [other for _, other in sorted(before)]


def _number(name: str) -> int:
    number = zkwire.sequence(name)
    if number is None:
        raise ValueError(f"{name!r} has no sequence number: it is no ticket")
    return number


class Position:
    """What the ticket `name` knows of those before it.

    Arguments: `blocks`, which of the earlier contenders count; `slots`, how many fewer than which may be left for it
    to own, None as long as the line has not told; `ahead`, how many blockers it watches beyond those.

    It watches its last `slots + ahead` blockers: `slots` of them so that the departure that makes it own cannot go
    unseen, and one more to look ahead, so that it learns early that nobody else is left before those.
    """

    __slots__ = (
        "_ahead", "_before", "_blocks", "_departed", "_is_fixed", "_is_listed", "_is_sized", "_slots",
        "_was_touched", "_watched", "is_gone", "is_watched", "name", "needs_list", "needs_size",
    )  # fmt: skip

    def __init__(
        self, name: str, *, blocks: Callable[[str], bool] = everyone, slots: int | None = 1, ahead: int = 1
    ) -> None:
        self.name = name
        self.is_gone = False
        self.is_watched = False
        self.needs_list = True
        self._is_fixed = self._is_sized = slots is not None
        self.needs_size = slots is None
        self._slots = 1 if slots is None else slots
        self._is_listed = False
        self._was_touched = False
        self._blocks = blocks
        self._ahead = ahead
        self._before: list[str] = []
        self._watched: set[str] = set()
        self._departed: set[str] = set()

    @property
    def owns(self) -> bool:
        """Whether fewer than `slots` blockers can be left.  A list that is behind the times can only show too many."""
        is_told = self._is_listed and self._is_sized and not self._was_touched
        return is_told and not self.is_gone and len(self._before) < self._slots

    @property
    def is_armed(self) -> bool:
        """Whether the next departure makes it own, and cannot go unseen."""
        is_told = self._is_listed and self._is_sized and not self._was_touched
        return is_told and len(self._before) == self._slots and self._watched.issuperset(self._before)

    @property
    def before(self) -> Sequence[str]:
        """Who stands before it, for all that is known."""
        return self._before

    def is_blocked_by(self, name: str) -> bool:
        """Whether `name` stands before it, for all that is known."""
        return name in self._before

    @property
    def to_watch(self) -> list[str]:
        """The blockers that it should watch and does not yet, in their order."""
        return [name for name in self._before[-self._slots - self._ahead :] if name not in self._watched]

    @property
    def needs_look(self) -> bool:
        """Whether there is something to ask."""
        return self.needs_list or self.needs_size or not self.is_watched or bool(self.to_watch)

    def listed(self, names: Sequence[str]) -> None:
        """Take in a list of the children; it may be older than departures already seen."""
        self.is_gone = self.is_gone or self.name not in names
        blockers = [name for name in earlier(self.name, names) if self._blocks(name)]
        self._before = [name for name in blockers if name not in self._departed]
        self._is_listed = True
        self.needs_list = False

    def sized(self, slots: int, *, is_watched: bool = True) -> None:
        """Take in the number of slots that the line tells, and whether a watch tells of its change."""
        self._slots = slots
        self._is_sized = True
        self.needs_size = not is_watched

    def resized(self) -> None:
        """Take note that the number of slots has changed: nothing is owned before the new one is known."""
        self._is_sized = False
        self.needs_size = True

    def watched(self, name: str) -> None:
        """Take note that a watch stands on `name`, one of its blockers or itself."""
        if name == self.name:
            self.is_watched = True
            self._was_touched = False
        else:
            self._watched.add(name)

    def departed(self, name: str) -> None:
        """Take note that the node `name` is gone, or blocks us no longer; names never come back."""
        if name == self.name:
            self.is_gone = True
            return
        self._departed.add(name)
        if name in self._before:
            self._before.remove(name)
            # Who left may have been the last of many: if there are some that nobody watches, look again.
            self.needs_list = self.needs_list or not self._watched.issuperset(self._before)

    def unwatched(self, name: str) -> None:
        """Take note that the watch on `name` was used up by a change of its data.

        If it was our own node's, nothing tells of its deletion any more: nothing is owned before it has been read.
        """
        if name == self.name:
            self.is_watched = False
            self._was_touched = True
        self._watched.discard(name)

    def disarmed(self) -> None:
        """Take note of a reconnect: nothing is watched, and a list must be read before anything is owned.

        What a reconnect brings at once comes in no order that means anything, so that a blocker's departure
        might be told of before our own.
        """
        self.is_watched = False
        self._watched.clear()
        self._is_listed = False
        self.needs_list = True
        if not self._is_fixed:
            self.resized()


class Promises:
    """Until when others have promised to be done, as a waiter counts it: from when it saw the promise."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, float]] = {}

    def seen(self, name: str, version: int, end: float) -> None:
        """Take note that `name` promises, by the data of that version of its node, to be done by `end`.

        What was seen before is not counted anew.
        """
        if name not in self._ends or self._ends[name][0] != version:
            self._ends[name] = version, end

    def forget(self, name: str) -> None:
        """Take note that `name` promises nothing, or is not waited for any more."""
        self._ends.pop(name, None)

    @property
    def next_end(self) -> float | None:
        """When the first promise ends, None without any."""
        return min((end for _, end in self._ends.values()), default=None)

    def broken(self, now: float) -> list[tuple[str, int]]:
        """Those who promised to be gone by `now`, with the version of the node that says so."""
        return [(name, version) for name, (version, end) in self._ends.items() if end <= now]
