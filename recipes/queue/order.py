"""The items of a queue: the names of their nodes, their order, and which of them a consumer tries next.

Pure: knows names and nothing of servers.  The names are those of kazoo's LockingQueue, `entry-100-0000000001`: the
priority in three digits, then the sequence number from the server.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from typing import Final

import zkwire
from recipes.common import numbers
from recipes.common.checks import check_number

DEFAULT_PRIORITY: Final = 100  # kazoo's
LOWEST_PRIORITY: Final = 999

_PREFIX: Final = "entry-"
_PRIORITY: Final = slice(len(_PREFIX), len(_PREFIX) + 3)
_PLAIN: Final = b"entry-000-0000000000/"  # the usual form of a name, each digit replaced by 0; no name has a slash
_DIGITS_AS_0: Final = bytes.maketrans(b"123456789", b"000000000")

# A listing serves for one take per so many names, and for at least one.  So each take pays for at most so many names,
# however deep the queue is, and most are one round trip.  The price: an item that is put before the listed ones waits
# until the next listing.
_NAMES_PER_TAKE: Final = 64
# A consumer that competes picks at random among the first items: at most so many, or this share of a long listing.
_LARGEST_WINDOW: Final = 64
_WINDOW_SHARE: Final = 16
# After so many losses in a row a consumer lists again: other consumers may have taken everything in its listing.
_MOST_LOSSES: Final = 3


def check_priority(priority: int) -> None:
    """Raise an error unless `priority` is valid.

    Raises:
        ValueError: if it is not a priority, as TypeError.
    """
    allowed = f"a priority is a whole number from 0, the most urgent, to {LOWEST_PRIORITY}"
    check_number(allowed, priority, 0, LOWEST_PRIORITY)


def prefix(priority: int) -> str:
    """Return the part of an item's name that comes before the sequence number."""
    return f"{_PREFIX}{priority:03d}-"


def in_order(names: Iterable[str], base: int) -> list[str]:
    """Return the items among `names` in the order in which they are taken: by priority, then by sequence number.

    Names without a sequence number are left out.  A name of another program, without a priority, has the default one.

    Args:
        base: The number that the next item gets.
    """
    given = sorted(names)
    return given if _are_plain(given) else sorted(numbers.in_order(given, base), key=priority_of)


def name_before(name: str) -> str:
    """Return the name of the same priority that comes directly before the item `name`, which has a sequence number."""
    number = zkwire.sequence(name)
    assert number is not None
    before = number - 1 if number > -(2**31) else 2**31 - 1
    return f"{name.removesuffix(f'{number:010d}')}{before:010d}"


def _are_plain(names: list[str]) -> bool:
    """Return whether the order of `names`, sorted as text, is also the order of the items.

    It is if all names have the usual form and no number is negative.  A deep queue has many names, so this test looks
    at the whole list with few calls, not at each name.
    """
    forms = "/".join([*names, ""]).encode(errors="replace").translate(_DIGITS_AS_0)
    return forms == _PLAIN * len(names)


def priority_of(name: str) -> int:
    """Return the priority in the name of an item; the default one for a name of another program, without one."""
    digits = name[_PRIORITY]
    has_priority = name.startswith(_PREFIX) and digits.isascii() and digits.isdigit()
    return int(digits) if has_priority else DEFAULT_PRIORITY


class Listing:
    """The items that a consumer knows from its last listing, and the choice of the one to try next.

    While there is no competition, the choice is the first item.  After a loss to another consumer it is a random one of
    the first few of the same priority (the window), so that consumers do not all try the same item.  Each win makes
    the window smaller, until the choice is the first item again; the next loss at once doubles the former window.

    An item that another consumer took after it was listed here is not a sign of competition: consumers that take one
    after the other keep the strict order.

    Attributes: `window`, its size, 0 while there is no competition.
    """

    __slots__ = ("_last_window", "_losses", "_names", "_takes_left", "window")

    def __init__(self) -> None:
        self.window: int = 0
        self._last_window = 0  # the size with which competition began last; halved by each win without competition
        self.fill((), (), 0)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def is_stale(self) -> bool:
        """Whether a call needs a new listing before it tries an item."""
        return not self._names or self._takes_left <= 0

    def next(self, count: int) -> list[str]:
        """Return the first `count` known items, or fewer."""
        return self._names[:count]

    @property
    def takes_of_one_look(self) -> int:
        """For how many takes a listing of so many items serves."""
        return max(1, len(self._names) // _NAMES_PER_TAKE)

    def fill(self, names: Iterable[str], without: Collection[str], base: int) -> None:
        """Replace the known items by the listed `names`, except those in `without`; `base` as of `in_order`."""
        self._names = [name for name in in_order(names, base) if name not in without]
        self._takes_left = self.takes_of_one_look
        self._losses = 0  # in a row

    def expire(self) -> None:
        """Require a new listing before the next take."""
        self._takes_left = 0

    def pick(self, roll: int) -> str | None:
        """Return the item to try next and remove it from the known ones; None when there is none.

        Args:
            roll: A random number, large compared to the number of items.
        """
        if not self._names:
            return None
        if not self.window:
            return self._names.pop(0)
        window = min(len(self._names), max(self.window, len(self._names) // _WINDOW_SHARE))
        # The window must not reach into a less urgent priority.
        window = bisect_right(self._names, priority_of(self._names[0]), hi=window, key=priority_of)
        return self._names.pop(roll % window)

    def won(self) -> None:
        """Record that this consumer got the picked item."""
        self._takes_left -= 1
        self._losses = 0
        if self.window:
            self.window -= 1
        else:
            self._last_window //= 2

    def lost(self, *, is_fresh: bool) -> None:
        """Record that another consumer got the picked item.

        Args:
            is_fresh: Whether the listing was read during this take: then the other consumer took the item at this very
                moment, and so it competes.
        """
        if is_fresh or self.window:
            self.window = self._last_window = min(_LARGEST_WINDOW, 2 * self._last_window or 2)
        self._losses += 1
        if self._losses >= _MOST_LOSSES:
            self.expire()
