"""What a ticket knows of the tickets before it, and what follows: whether it owns, what to watch, what to wait for.

Pure: takes in lists of the children, departures, numbers of slots and promises, in the order in which they arrived, and
sends nothing.  docs/waiting-line.md has the argument why this is safe.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import Any, Final

import zkwire
from recipes.common.numbers import next_number
from zkwire import Node, Stat

_HALF: Final = 2**31  # of the circle of sequence numbers
_PERMITS: Final = re.compile(r"-permits-([1-9][0-9]{0,9})-")


def every_contender(name: str) -> bool:
    """Return True: every contender blocks."""
    return True


def permits_of(name: str) -> int:
    """Return how many permits of a semaphore the ticket `name` takes: 1 unless its name says another number.

    The name is in each list, and no client can change it.
    """
    found = _PERMITS.search(name) if "-permits-" in name else None
    return 1 if found is None else int(found[1])


class Contenders(list[str]):
    """Contenders in their order; never changed once `permits` was read."""

    @cached_property
    def permits(self) -> list[int]:
        """How many permits the first 0, 1, 2 and so on of them take, counted once: very many tickets ask for it."""
        return list(accumulate(map(permits_of, self), initial=0))


class Ranking:
    """The names of the children of a line, put in order once for all tickets that take in the same list.

    Every child whose name ends in a sequence number is a contender, whatever its prefix.  Numbers continue below zero
    after 2147483647, so each ticket sees the circle of numbers cut opposite its own one.  The contenders are sorted by
    plain number once, and rotated to the cut of the ticket that asks: no other node's number decides it (pitfall 88).

    Args:
        names: The children, in any order.
        parent: The Stat of the line's node at the moment of the list, if the list has brought it.

    Attributes:
        next_number: The number of the next ticket, if the list has brought it.
    """

    __slots__ = ("_blockers", "_mzxid", "_names", "next_number")

    def __init__(self, names: Iterable[str], parent: Stat | None = None) -> None:
        self.next_number: int = 0 if parent is None else next_number(parent)
        self._mzxid = 0 if parent is None else parent.mzxid
        self._names = dict.fromkeys(names)
        self._blockers: dict[Callable[[str], bool], _Circle] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def is_of(self, parent: object) -> bool:
        """Return whether the line's node had the data of `parent`, the answer to a read, at the moment of the list.

        No two writes of the data have the same zxid.  A refusal of the read shows no data: then it is True.
        """
        return not isinstance(parent, Node) or parent.stat.mzxid == self._mzxid

    def before(self, name: str, blocks: Callable[[str], bool]) -> tuple[Contenders, int]:
        """Return the contenders for which `blocks` is true, in their order, and how many of them come before `name`.

        Tickets that ask for the same contenders share the list: it must not be changed.
        """
        own = zkwire.sequence(name)
        if own is None:
            raise ValueError(f"{name!r} has no sequence number, so it is not a ticket")
        if blocks not in self._blockers:
            self._blockers[blocks] = _Circle(self._names if blocks is every_contender else filter(blocks, self._names))
        return self._blockers[blocks].before(own)

    def remove(self, name: str) -> None:
        """Leave out `name`, if it is there."""
        if name in self._names:
            del self._names[name]
            for blocks, circle in self._blockers.items():
                if blocks(name):
                    circle.remove(name)


def ranked(answer: Any) -> Ranking:
    """Return what a list of the children, with their parent's Stat or without, has shown.

    Raises:
        ServerError: if the server has refused the list.
    """
    if isinstance(answer, zkwire.NoNodeError):
        return Ranking(())  # sent again after a reconnect, and meanwhile another client has deleted the whole line
    if isinstance(answer, BaseException):
        raise answer
    return Ranking(*answer) if isinstance(answer, tuple) else Ranking(answer)


class _Circle:
    """Contenders in the order of their plain numbers, and the rotation of them that was asked for last."""

    __slots__ = ("_contenders", "_rotated", "_start")

    def __init__(self, names: Iterable[str]) -> None:
        self._contenders = [(number, name) for name in names if (number := zkwire.sequence(name)) is not None]
        self._contenders.sort()
        self._start = -1

    def before(self, own: int) -> tuple[Contenders, int]:
        contenders = self._contenders
        end = bisect_left(contenders, (own,))
        start = bisect_left(contenders, (own - _HALF if own >= 0 else own + _HALF,))
        count = end - start if own >= 0 else end + len(contenders) - start
        # Tickets of one line have the same start, unless other clients choose numbers: then the list is made again.
        if start != self._start:
            self._start = start
            rotated = chain(islice(contenders, start, None), islice(contenders, start))
            self._rotated = Contenders(name for _, name in rotated)
        return self._rotated, count

    def remove(self, name: str) -> None:
        number = zkwire.sequence(name)
        if number is not None:
            del self._contenders[bisect_left(self._contenders, (number, name))]
            self._start = -1


class Position:
    """What the ticket `name` knows of the tickets before it.

    The ticket watches its last `slots + ahead` blockers.  It watches `slots` of them so that it sees the departure that
    makes it own.  It watches one more to look ahead: when that one leaves, the ticket can list the children early, and
    learns before the decisive departure that no others remain.

    Args:
        blocks: Whether an earlier contender of that name is a blocker.
        slots: The ticket owns when fewer than `slots` blockers remain; None as long as the number is unknown.
        ahead: How many blockers the ticket watches beyond those.
    """

    def __init__(
        self, name: str, *, blocks: Callable[[str], bool] = every_contender, slots: int | None = 1, ahead: int = 1
    ) -> None:
        self.name = name
        self.is_gone: bool = False
        self.is_watched: bool = False
        self.needs_list: bool = True
        self.needs_sync: bool = False
        self._has_fixed_slots = self._knows_slots = slots is not None
        self.needs_slots: bool = slots is None
        self._slots = 1 if slots is None else slots
        self._is_listed = False
        self._blocks = blocks
        self._ahead = ahead
        # The blockers that may remain are the first `_count` of `_names`, and after them those of `_last`.  Other
        # tickets may share `_names`, so it is replaced and never changed.  In general it is one of the last blockers
        # that departs: then few names move to `_last`, and the event costs no more if very many remain.
        self._names = Contenders()
        self._count = 0
        self._last = Contenders()
        self._watched: set[str] = set()
        self._departed: set[str] = set()
        self._unreadable: set[str] = set()

    @property
    def owns(self) -> bool:
        """Whether fewer than `slots` blockers can remain.

        A list that is out of date does no harm: it can only show too many blockers, never too few.
        """
        return self.is_informed and not self.is_gone and self._taken < self._slots

    @property
    def is_free(self) -> bool:
        """Whether fewer than `slots` of the blockers that were listed remain."""
        return self._taken < self._slots

    @property
    def is_armed(self) -> bool:
        """Whether the next departure of a blocker can make the ticket own, and is certain to be noticed."""
        is_next = self.is_informed and self._remaining <= self._slots <= self._taken
        return is_next and self._watched.issuperset(self.before) and self._taken - self._most_of_one() < self._slots

    @property
    def is_informed(self) -> bool:
        """Whether a list and the number of slots are known."""
        return self._is_listed and self._knows_slots

    @property
    def _remaining(self) -> int:
        return self._count + len(self._last)

    @property
    def _taken(self) -> int:
        """How many slots the blockers take that may remain."""
        return self._count + len(self._last)

    def _most_of_one(self) -> int:
        return 1

    @property
    def before(self) -> list[str]:
        """The blockers that may remain, in the order of the line."""
        return self._names[: self._count] + self._last

    @property
    def first(self) -> list[str]:
        """The blockers that come first in the line, as many as there are slots: in general they are the holders."""
        return self.before[: self._slots]

    @property
    def to_watch(self) -> list[str]:
        """The blockers that the ticket should watch and does not watch yet, in the order of the line."""
        most = self._slots + self._ahead
        last = self._names[max(0, self._remaining - most) : self._count]
        last += self._last[max(0, len(self._last) - most) :]
        return [name for name in last if name not in self._watched and name not in self._unreadable]

    @property
    def unknown(self) -> list[str]:
        """The blockers of which nothing is known but their names, the last ones first."""
        return [name for name in reversed(self.before) if name not in self._watched and name not in self._unreadable]

    @property
    def watches_children(self) -> bool:
        """Whether the next list must leave a watch on the children.

        It must as long as a blocker remains that cannot be read: no watch on the blocker itself would report its
        departure.
        """
        return bool(self._unreadable) and not self._unreadable.isdisjoint(self.before)

    @property
    def needs_requests(self) -> bool:
        """Whether there is something to ask the server: a list, a watch, or the number of slots."""
        return self.needs_list or self.needs_slots or not self.is_watched or bool(self.to_watch)

    def listed(self, names: Ranking, *, is_watched: bool = False) -> None:
        """Take in a list of the children; it may be older than departures already seen.

        Args:
            is_watched: Whether the same request set a watch on the children.
        """
        self.is_gone = self.is_gone or self.name not in names
        self._take_blockers(names)
        self._is_listed = True
        self._sees_children = is_watched
        self.needs_list = self.watches_children and not is_watched

    def caught_up(self, names: Ranking) -> None:
        """Take in which children may remain, as other tickets of this client know it, if it makes a list unnecessary.

        It does so if no more blockers remain than the ticket is to watch.  The ticket's own node must be watched, and
        all events that this watch has brought must have been taken in: then the ticket may own by this as by a list.

        Args:
            names: From a list that is newer than this ticket's, without those whose deletion was reported.
        """
        if not (self.needs_list and self.is_informed) or self._unreadable or self.name not in names:
            return
        if names.before(self.name, self._blocks)[1] <= self._slots + self._ahead:
            self._take_blockers(names)
            self.needs_list = False

    def _take_blockers(self, names: Ranking) -> None:
        self._last = Contenders()
        self._names, self._count = names.before(self.name, self._blocks)
        if self._departed:
            self._names = Contenders(name for name in self.before if name not in self._departed)
            self._count = len(self._names)

    def slots_read(self, slots: int, *, is_watched: bool = True) -> None:
        """Take in the number of slots; `is_watched`, whether the same request set a watch on it."""
        self._slots = slots
        self._knows_slots = True
        self.needs_slots = not is_watched

    def slots_changed(self) -> None:
        """Record that the number of slots has changed: the ticket does not own before the new one is known."""
        self._knows_slots = False
        self.needs_slots = True

    def watched(self, name: str) -> None:
        """Record that `name`, a blocker or the ticket itself, exists and is watched."""
        if name == self.name:
            self.is_watched = True
        else:
            self._watched.add(name)

    def unreadable(self, name: str) -> None:
        """Record that the blocker `name` exists and cannot be watched, because this client may not read it."""
        self._unreadable.add(name)
        self.needs_list = self.needs_list or not self._sees_children

    def children_changed(self) -> None:
        """Record that the watch on the children has fired."""
        self._sees_children = False
        self.needs_list = self.needs_list or self.watches_children

    def departed(self, name: str) -> None:
        """Record that the node `name` is gone, is foreign, or blocks no longer.  A name never comes back."""
        if name == self.name:
            self.is_gone = True
        elif name not in self._departed:
            self._departed.add(name)
            if name in self._last:
                self._last = Contenders(each for each in self._last if each != name)
            elif (place := self._place(name)) is not None:
                self._last = Contenders(self._names[place + 1 : self._count] + self._last)
                self._count = place
            else:
                return
            # Unwatched blockers may have left long ago, so that none may remain but the watched ones: list again.
            if not self._watched.issuperset(chain(islice(self._names, self._count), self._last)):
                self.needs_list = True

    def _place(self, name: str) -> int | None:
        """Return the place of a blocker in `_names`, None if it is not there; from the end, where most of them are."""
        names = self._names
        return next((place for place in range(self._count - 1, -1, -1) if names[place] == name), None)

    def unwatched(self, name: str) -> None:
        """Record that a change of data has used up the watch on the blocker `name`."""
        self._watched.discard(name)

    def started_over(self) -> None:
        """Record that no watch counts any more: the ticket does not own before it has a new list.

        This is so after a reconnect, and when the watch on the ticket's own node was used up: from then on a blocker
        may leave after our own node was deleted.  The departures that were seen are forgotten.  The next server may
        not have those of the former one yet.  It would still show our own node from before its deletion, or a number of
        slots from before a shrink, while a departure that came after that is remembered here.  What one server answers
        on one connection is never older than what it has answered or reported before.

        If the number of slots may change, the new server must also catch up before it is asked (`needs_sync`).  It may
        not have the shrink yet that an event has reported: then the ticket would own by a number that it knows to be
        old.
        """
        self.is_watched = False
        self._watched.clear()
        self._departed.clear()
        self._unreadable.clear()
        self._is_listed = False
        self.needs_list = True
        if not self._has_fixed_slots:
            self.slots_changed()
            self.needs_sync = True


class WeighedPosition(Position):
    """The position of a ticket whose blockers may take several slots each: as many as `permits_of` says.

    The ticket itself takes one slot: what it takes beyond that must be missing in `slots`.  Each blocker takes one at
    least, so the ticket watches enough of them if it watches as many as if each took one.
    """

    @property
    def _taken(self) -> int:
        return self._names.permits[self._count] + self._last.permits[-1]

    def _most_of_one(self) -> int:
        return max(map(permits_of, self.before), default=0)


class Promises:
    """The ends of the time limits that holders have promised, counted from when a waiter saw the promise."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, float]] = {}

    def seen(self, name: str, version: int, end: float) -> None:
        """Record that the holder `name` promises to be done by `end`.

        Args:
            version: The version of its node's data.  A version that was seen before keeps its first end: it was only
                read again.
        """
        if name not in self._ends or self._ends[name][0] != version:
            self._ends[name] = version, end

    def written_over(self, name: str, version: int) -> None:
        """Record that `version` of the data of `name` says nothing: what the version before has promised still holds.

        A version in between, which was not read, may have promised more time: then nothing is known.
        """
        promise = self._ends.pop(name, None)
        if promise is not None and version <= promise[0] + 1:
            self._ends[name] = version, promise[1]

    def forget(self, name: str) -> None:
        """Forget what `name` has promised: it promises nothing, or is not waited for any more."""
        self._ends.pop(name, None)

    @property
    def next_end(self) -> float | None:
        """The earliest end of a promise, None if there is no promise."""
        return min((end for _, end in self._ends.values()), default=None)

    def broken(self, now: float) -> list[tuple[str, int]]:
        """Return the holders whose promise has ended by `now`, each with the version of its node that holds it."""
        return [(name, version) for name, (version, end) in self._ends.items() if end <= now]
