"""What the consumer of a process knows of the queue's items, and the reads by which it learns it.

The tasks that share a queue object share these reads (see SingleFlight).
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from recipes.common.numbers import next_number
from recipes.common.retrying import read
from recipes.common.single_flight import SingleFlight
from recipes.queue.delayed import Delayed
from recipes.queue.nodes import Nodes, child_names
from recipes.queue.order import Listing, in_order
from recipes.queue.quarantine import Quarantine
from zkwire import GetChildren, GetChildrenAndStat, GetData, Node, SessionState, WatchSet

# In seconds: a consumer that has waited so long, because all items are taken, looks at what has taken them.
_PATIENCE: Final = 1.0

# Items to read together with a list at most, and their bytes, as far as the size of the last ones shows it.
_MOST_READ_AHEAD: Final = 64
_MOST_BYTES_AHEAD: Final = 256 * 1024
# Seconds, from before its read, for which a list is believed, and what was read ahead with it: a more urgent item may
# have been put meanwhile, and a person may have deleted the queue and made it again, so that the names began again: the
# data of the former item must not be given out for the new one.
_BELIEVED_FOR: Final = 1.0
# Seconds for which an item whose body has failed comes after all others.  Then it is tried at its place again, or new
# items could keep it waiting for ever.
_FAILED_FOR: Final = 60.0


class View:
    """The items that the tasks of one queue object know, and which of them are being taken by these tasks.

    Attributes: `listing` of the known items; `has_nodes`, whether the last read found the queue's nodes; `being_taken`,
    by takes of this consumer that are under way; `quarantine`, the items that it skips; `delayed`, those whose time has
    not come.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self.listing: Listing = Listing()
        self.has_nodes: bool
        self.quarantine: Quarantine = Quarantine(nodes)
        self.delayed: Delayed = Delayed(nodes)
        self.being_taken: set[str] = set()
        self._listed: tuple[Sequence[str], Sequence[str]] = (), ()  # all items, and all nodes in `taken`, at last
        self._lists: SingleFlight[None] = SingleFlight()
        self._failed: dict[str, float] = {}  # items that come after the others, and until when, on the loop's clock
        self._read_ahead: dict[str, Node] = {}
        self._believed_until = 0.0  # on the loop's clock
        self._size_ahead = _MOST_BYTES_AHEAD  # of the largest item read ahead at last

    # -- looking ----------------------------------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        """Whether a call needs a new list before it tries an item."""
        return self.listing.is_stale or asyncio.get_running_loop().time() >= self._believed_until

    async def look(self, *, read_ahead: bool) -> None:
        """Learn which items can be taken, by reads that are sent after this call.

        Args:
            read_ahead: Whether to read the items that will probably be taken next, too.

        Order:
            Tasks that share the reads return in the order of their calls.
        """
        await self._lists.share(lambda tasks: self._list(self.being_taken, self._guesses(tasks if read_ahead else 0)))

    async def look_and_watch(self, watches: WatchSet) -> None:
        """List the items that can be taken, and add the watches to `watches` that fire when another item may be there.

        Items that other tasks of this consumer are taking are not left out: such a take may fail and leave the item
        where it is, and no watch would fire.
        """
        # Watching `taken` wakes a waiting consumer whenever another one takes an item.  It is needed only if there are
        # items and all of them are taken: then an item that is handed back becomes free without a new entry.
        for taken_watches in (None, watches):
            await self._list((), (), watches, taken_watches)
            if not all(self._listed) or self.listing:
                return

    async def _list(
        self,
        being_taken: Iterable[str],
        ahead: Sequence[str],
        watches: WatchSet | None = None,
        taken_watches: WatchSet | None = None,
    ) -> None:
        """List the items, except those `being_taken`, and in the same write read the items `ahead`."""
        start = asyncio.get_running_loop().time()
        lists: list[GetChildrenAndStat | GetChildren] = [
            GetChildrenAndStat(self._nodes.entries, into=watches),
            GetChildren(self._nodes.taken, into=taken_watches),
        ]
        reads = [*lists, *(GetData(self._nodes.entry(name)) for name in ahead)]
        entries, taken, *items = await read(self._zk, *reads)
        if await self.delayed.move_due(entries):
            entries, taken, *items = await read(self._zk, *reads)
        self._listed = names, taken_names = child_names(entries) or (), child_names(taken) or ()
        self.has_nodes = isinstance(entries, tuple)
        without = set(being_taken).union(taken_names, self.quarantine.among(names))
        if self._failed:
            self._failed = {name: until for name, until in self._failed.items() if until > start}
            self.listing.fill(names, without.union(self._failed), next_item(entries))
        if not (self._failed and self.listing):
            self.listing.fill(names, without, next_item(entries))
        self._believed_until = start + _BELIEVED_FOR
        self._read_ahead = {name: item for name, item in zip(ahead, items, strict=True) if isinstance(item, Node)}
        if ahead:
            self._size_ahead = max((len(item.data) for item in self._read_ahead.values()), default=_MOST_BYTES_AHEAD)

    def handed_back(self, name: str, *, has_failed: bool) -> None:
        """Expect the item `name` in the next list; after the others if its body `has_failed`.

        Without this a consumer would claim an item that always fails again and again, and no other one.
        """
        self.listing.expire()
        if has_failed:
            self._failed[name] = asyncio.get_running_loop().time() + _FAILED_FOR

    # -- reading ahead ----------------------------------------------------------------------------------------------

    def ahead(self, name: str) -> Node | None:
        """Return the item `name`, once, if it was read ahead with the last list, less than a second ago."""
        item = self._read_ahead.pop(name, None)
        return item if asyncio.get_running_loop().time() < self._believed_until else None

    def _guesses(self, wanted: int) -> list[str]:
        """Return the items to read together with the next list: those that will probably be taken before another.

        A consumer that competes draws lots, so it cannot know which these are.
        """
        if not wanted or self.listing.window:
            return []
        most = min(_MOST_READ_AHEAD, _MOST_BYTES_AHEAD // max(1, self._size_ahead))
        return self.listing.next(min(max(wanted, self.listing.takes_of_one_look), most))

    # -- other reads ------------------------------------------------------------------------------------------------

    async def free_items(self) -> list[str]:
        """Return the items that can be taken, in their order."""
        lists = GetChildrenAndStat(self._nodes.entries), GetChildren(self._nodes.taken)
        entries, taken = await read(self._zk, *lists)
        # To look, it need not move anything: without a quorum the move would wait for one.
        while self._zk.state is not SessionState.READ_ONLY and await self.delayed.move_due(entries):
            entries, taken = await read(self._zk, *lists)
        names = child_names(entries) or []
        without = self.quarantine.among(names).union(child_names(taken) or ())
        return in_order((name for name in names if name not in without), next_item(entries))

    async def wait_for_change(self, watches: WatchSet) -> None:
        """Wait until another item may be there, or one that is skipped or delayed is to be tried again.

        It follows a read that found no item to take.

        Args:
            watches: Those that `look_and_watch` has set.
        """
        if all(self._listed):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._soonest(asyncio.get_running_loop().time() + _PATIENCE)):
                    await watches.next()
                return
            await self.quarantine.free_hidden(*self._listed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._soonest(self.quarantine.next_try)):
                await watches.next()

    def _soonest(self, look: float | None) -> float | None:
        """Return the time of the next look: that one, or the one for a delayed item if it is earlier."""
        return min((time for time in (look, self.delayed.next_look) if time is not None), default=None)


def next_item(entries: object) -> int:
    """Return the number that the next item gets, given the answer to the list of the items."""
    return next_number(entries[1]) if isinstance(entries, tuple) else 0
