"""What the consumer of a process knows of the queue's items, and the reads by which it learns it.

The tasks that share a queue object share these reads (see SingleFlight).

A read lists all items, or it only confirms the last list.  The server counts the changes of the children of `entries`
in that node.  If this count has grown by the items that we have taken since, and by no more, the list is still right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import zkwire
from recipes.common.numbers import next_number
from recipes.common.retrying import read
from recipes.common.single_flight import SingleFlight
from recipes.queue.nodes import LAST_NUMBER, Nodes, child_names
from recipes.queue.order import Listing, in_order
from recipes.queue.quarantine import Quarantine
from zkwire import GetChildren, GetChildrenAndStat, GetData, Node, Stat, WatchSet

_Read: TypeAlias = GetData | GetChildren | GetChildrenAndStat

# In seconds: a consumer that has waited so long, because all items are taken, looks at what has taken them.
_PATIENCE: Final = 1.0

# Items to read together with a list at most, and their bytes, as far as the size of the last ones shows it.
_MOST_READ_AHEAD: Final = 64
_MOST_BYTES_AHEAD: Final = 256 * 1024
# Seconds for which what was read ahead is believed.  A person may delete the queue and make it again meanwhile, and the
# names begin again: the data of the former item must not be given out for the new one.
_AHEAD_FOR: Final = 1.0

# A shorter list is read again instead of confirmed, which costs no more.
_SHORT: Final = 32
# After a list could not be confirmed, because other clients put or take, so many reads list at once.
_LOOKS_UNCONFIRMED: Final = 16


class _Count(NamedTuple):
    """The node `entries` as the server will show it if only this consumer has taken items since a list."""

    czxid: int
    cversion: int

    @classmethod
    def of(cls, stat: Stat) -> _Count | None:
        """Return the count; None at the last number, from where on it does not grow with each change."""
        return None if next_number(stat) >= LAST_NUMBER else cls(stat.czxid, stat.cversion)


class View:
    """The items that the tasks of one queue object know, and which of them are being taken by these tasks.

    Attributes: `listing` of the known items; `has_nodes`, whether the last read found the queue's nodes; `being_taken`,
    by takes of this consumer that are under way.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self.listing = Listing()
        self.has_nodes: bool
        self._quarantine = Quarantine(nodes)
        self.being_taken: set[str] = set()
        self._listed: tuple[Sequence[str], Sequence[str]] = (), ()  # all items, and all nodes in `taken`, at last
        self._lists: SingleFlight[None] = SingleFlight()
        self._read_ahead: dict[str, Node] = {}
        self._ahead_until: float  # on the loop's clock; for what was read ahead
        self._size_ahead = _MOST_BYTES_AHEAD  # of the largest item read ahead at last
        self._count: _Count | None = None  # None if the list cannot be confirmed
        self._hidden: set[str] = set()  # the items that the list has left out
        self._lists_unconfirmed = 0

    # -- looking ----------------------------------------------------------------------------------------------------

    async def look(self, *, read_ahead: bool) -> None:
        """Learn which items can be taken, by reads that are sent after this call.

        Args:
            read_ahead: Whether to read the items that will probably be taken next, too.

        Order:
            Tasks that share the reads return in the order of their calls.
        """
        await self._lists.share(lambda tasks: self._look(tasks if read_ahead else 0))

    async def look_and_watch(self, watches: WatchSet) -> None:
        """List the items that can be taken, and add the watches to `watches` that fire when another item may be there.

        Items that other tasks of this consumer are taking are not left out: such a take may fail and leave the item
        where it is, and no watch would fire.
        """
        self._count = None
        # Watching `taken` wakes a waiting consumer whenever another one takes an item.  It is needed only if there are
        # items and all of them are taken: then an item that is handed back becomes free without a new entry.
        for taken_watches in (None, watches):
            answers = await read(
                self._zk,
                GetChildrenAndStat(self._nodes.entries, into=watches),
                GetChildren(self._nodes.taken, into=taken_watches),
            )
            self._fill(*answers, being_taken=())
            if not all(self._listed) or self.listing:
                return

    async def _look(self, wanted: int) -> None:
        """Confirm the list, or list the items; read up to `wanted` items ahead, more from a long list."""
        if self._count is not None and not self.being_taken and await self._is_confirmed(wanted):
            return
        # A list that was long may be confirmed the next time.
        self._lists_unconfirmed = max(0, self._lists_unconfirmed - 1)
        counts = wanted and len(self.listing) >= _SHORT and not self.being_taken and not self._lists_unconfirmed
        listed, taken = await self._read(
            [GetChildrenAndStat(self._nodes.entries), GetChildren(self._nodes.taken)], self._guesses(wanted)
        )
        self._fill(listed, taken, being_taken=self.being_taken)
        self._count = _Count.of(listed[1]) if counts and isinstance(listed, tuple) else None
        rest = [name for name in self._guesses(wanted) if name not in self._read_ahead]
        if len(rest) > 1:
            await self._read([], rest)

    async def _is_confirmed(self, wanted: int) -> bool:
        """Return whether the list is still right but for the items that are claimed; then leave these out."""
        expected, self._count = self._count, None
        found, taken = await self._read(
            [GetData(self._nodes.entries), GetChildren(self._nodes.taken)], self._guesses(wanted)
        )
        if not isinstance(found, Node) or _Count.of(found.stat) != expected:
            self._lists_unconfirmed = _LOOKS_UNCONFIRMED
            return False
        without = self._quarantine.among(self._listed[0]).union(child_names(taken) or ())
        if not self._hidden <= without:  # a claimed item was handed back
            return False
        self._hidden |= self.listing.confirm(without)
        self._count = expected
        return True

    def _fill(self, entries: object, taken: object, *, being_taken: Iterable[str]) -> None:
        names, taken_names = child_names(entries), child_names(taken)
        self.has_nodes = names is not None
        self._listed = names or (), taken_names or ()
        without = set(being_taken).union(taken_names or (), self._quarantine.among(names or ()))
        self.listing.fill(names or (), without, next_item(entries))
        self._hidden = without.intersection(names or ())

    # -- reading ahead ----------------------------------------------------------------------------------------------

    def ahead(self, name: str) -> Node | None:
        """Return the item `name` if it was read ahead, not long ago, once."""
        item = self._read_ahead.pop(name, None)
        return item if item is not None and asyncio.get_running_loop().time() < self._ahead_until else None

    def _guesses(self, wanted: int) -> list[str]:
        """Return the items to read together with the next list: those that will probably be taken before another."""
        if not wanted:
            return []
        most = min(_MOST_READ_AHEAD, _MOST_BYTES_AHEAD // max(1, self._size_ahead))
        return self.listing.next(min(max(wanted, self.listing.takes_of_one_look), most))

    async def _read(self, reads: Sequence[_Read], ahead: Sequence[str]) -> list[Any]:
        """Return the answers to `reads`, and keep the items `ahead`, which are read in the same write."""
        until = asyncio.get_running_loop().time() + _AHEAD_FOR
        try:
            answers = await read(self._zk, *reads, *(GetData(self._nodes.entry(name)) for name in ahead))
        except zkwire.ProtocolError:
            if not ahead:
                raise
            ahead = []  # one of the items may be too large for an answer
            self._size_ahead = _MOST_BYTES_AHEAD
            answers = await read(self._zk, *reads) if reads else []
        if reads:
            self._read_ahead, self._ahead_until = {}, until
        if ahead:
            items = zip(ahead, answers[len(reads) :], strict=True)
            found = {name: item for name, item in items if isinstance(item, Node)}
            self._read_ahead |= found
            self._size_ahead = max((len(item.data) for item in found.values()), default=_MOST_BYTES_AHEAD)
        return answers[: len(reads)]

    # -- taking -----------------------------------------------------------------------------------------------------

    def took(self, *, is_deleted: bool) -> None:
        """Record that this consumer has the item picked at last; `is_deleted`: it is out of the queue."""
        self.listing.won()
        if self._count is not None:
            cversion = (self._count.cversion + 1 + 2**31) % 2**32 - 2**31
            self._count = _Count(self._count.czxid, cversion) if is_deleted else None

    def missed(self, *, is_fresh: bool) -> None:
        """Record that another consumer has the item picked at last; see Listing.lost."""
        self._count = None
        self.listing.lost(is_fresh=is_fresh)

    def expire(self) -> None:
        """Require a new list before the next take."""
        self._count = None
        self.listing.is_expired = True

    def skip(self, name: str, why: str) -> None:
        """Skip the item `name` from now on."""
        self._count = None
        self._quarantine.add(name, why)

    # -- other reads ------------------------------------------------------------------------------------------------

    async def free_items(self) -> list[str]:
        """Return the items that can be taken, in their order."""
        entries, taken = await read(self._zk, GetChildrenAndStat(self._nodes.entries), GetChildren(self._nodes.taken))
        names = child_names(entries) or []
        without = self._quarantine.among(names).union(child_names(taken) or ())
        return in_order((name for name in names if name not in without), next_item(entries))

    async def wait_for_change(self, watches: WatchSet) -> None:
        """Wait until another item may be there, or one that is skipped is to be tried again.

        It follows a read that found no item to take.

        Args:
            watches: Those that `look_and_watch` has set.
        """
        if all(self._listed):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await watches.next()
                return
            if await self._quarantine.free_hidden(*self._listed):
                return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._quarantine.next_try):
                await watches.next()


def next_item(entries: object) -> int:
    """Return the number that the next item gets, given the answer to the list of the items."""
    return next_number(entries[1]) if isinstance(entries, tuple) else 0
