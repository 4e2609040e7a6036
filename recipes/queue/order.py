"""The items of a queue: how their nodes are named, in which order they come, and which of them a consumer tries next.

Pure: knows names and nothing of servers.  The names are those of kazoo's LockingQueue, `entry-100-0000000001`: the
priority in three digits, then the number that the server gave.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from typing import Final

import zkwire

DEFAULT_PRIORITY: Final = 100  # kazoo's
LOWEST_PRIORITY: Final = 999

_PREFIX: Final = "entry-"
_PRIORITY: Final = slice(len(_PREFIX), len(_PREFIX) + 3)
_PLAIN_LENGTH: Final = len("entry-100-0000000001")

# A list serves for one take by so many names, but for one at least: so a take costs no more names than this, however
# deep the queue.  What comes to stand ahead of them meanwhile waits.
_NAMES_PER_TAKE: Final = 256
# Those who compete take one of the first few, or of a small part of many.
_MOST_RIVALS: Final = 64
_PART: Final = 16
# Who has lost so many one after the other reads a new list: others may have taken all that is in this one.
_PATIENCE: Final = 3


def checked_priority(priority: int) -> int:
    """Return `priority` if it is one.  Raises: TypeError, ValueError."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"a priority is an int, not {priority!r}")
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise ValueError(f"a priority is from 0, the most urgent, to {LOWEST_PRIORITY}, not {priority}")
    return priority


def prefix(priority: int) -> str:
    """Return what stands before the number in the name of an item."""
    return f"{_PREFIX}{priority:03d}-"


def in_order(names: Iterable[str]) -> list[str]:
    """Return the items among `names` in the order in which they are due: by priority, then by number.

    Numbers are compared as numbers, across their overflow.  Whoever else puts something here is asked for a number
    only: without a priority it has the default.
    """
    given = sorted(names)
    if _are_plain(given):
        return given
    numbered = [(name, number) for name in given if (number := zkwire.sequence(name)) is not None]
    if not numbered:
        return []
    origin = numbered[0][1]
    ranked = [(_priority(name), zkwire.sequence_distance(number, origin), name) for name, number in numbered]
    return [name for _, _, name in sorted(ranked)]


def _are_plain(names: list[str]) -> bool:
    """Whether these names, sorted as text, are in order: all of the common form, with no number below 0.

    Asked of whole lists at once, for a deep queue has many.
    """
    if not names:
        return True
    are_ours = names[0].startswith(_PREFIX) and names[-1].startswith(_PREFIX)
    return are_ours and set(map(len, names)) == {_PLAIN_LENGTH} and "".join(names).count("-") == 2 * len(names)


def _priority(name: str) -> int:
    digits = name[_PRIORITY]
    is_ours = name.startswith(_PREFIX) and len(digits) == 3 and digits.isascii() and digits.isdigit()
    return int(digits) if is_ours else DEFAULT_PRIORITY


class Stock:
    """The items that a consumer knows of from its last list, and which of them it should try.

    It is the first one, as long as nobody competes.  Who has lost one to somebody else tries one of the first few of
    the same priority instead, that not all run after the same; after some successes it is the first one again.  What
    others have taken since the list was read does not make them rivals: they may take their turns one after the other.
    """

    __slots__ = ("_in_vain", "_last_rivals", "_names", "_rivals", "_takes_left")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._takes_left = 0
        self._rivals = 0
        self._last_rivals = 0
        self._in_vain = 0  # how many have been lost one after the other

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of that could be tried."""
        return not self._names

    @property
    def is_stale(self) -> bool:
        """Whether a new list is due before anything else is tried."""
        return not self._names or self._takes_left <= 0

    @property
    def first(self) -> str | None:
        """The first item that is known, None without one."""
        return self._names[0] if self._names else None

    def fill(self, names: Iterable[str], without: Collection[str]) -> None:
        """Take in a list of the items, leaving out those `without`."""
        self._names = [name for name in in_order(names) if name not in without]
        self._takes_left = max(1, len(self._names) // _NAMES_PER_TAKE)
        self._in_vain = 0

    def expire(self) -> None:
        """Have a new list read before the next try."""
        self._takes_left = 0

    def pick(self, roll: int) -> str | None:
        """Return the item to try next, and forget it; None when there is none.

        Arguments: `roll`, a random number, large compared to the number of items.
        """
        if not self._names:
            return None
        if not self._rivals:
            return self._names.pop(0)
        window = min(len(self._names), max(self._rivals, len(self._names) // _PART))
        # Not into a lesser priority.
        window = bisect_right(self._names, _priority(self._names[0]), hi=window, key=_priority)
        return self._names.pop(roll % window)

    def won(self) -> None:
        """Take note that the item picked is ours."""
        self._takes_left -= 1
        self._in_vain = 0
        if self._rivals:
            self._rivals -= 1
        else:
            self._last_rivals //= 2

    def lost(self, *, is_fresh: bool) -> None:
        """Take note that the item picked is somebody else's.

        Arguments: `is_fresh`, whether the list was read for this take: then it was lost at this moment.
        """
        if is_fresh or self._rivals:
            # Who competes still, as soon as it has tried the first one again, tries that the more seldom.
            self._rivals = self._last_rivals = min(_MOST_RIVALS, 2 * self._last_rivals or 2)
        self._in_vain += 1
        if self._in_vain >= _PATIENCE:
            self.expire()
