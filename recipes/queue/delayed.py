"""Items that are not given before their time.

    path/delayed/001795718246123-100-0000000007    when it is due, in ms since 1970; the priority; a number

No consumer takes items from there, kazoo's neither.  When the time of one has come, the next consumer of ours that
looks for items moves it to the others, at the end of its priority, in one transaction.

The clock is the leader's of the ensemble, which stamps each write: a producer writes the node `delayed` and adds the
delay to the time of this write.  A consumer learns the time in the same way, and counts on with its event loop's clock
for a minute.  So the clocks of clients do not matter.  When another leader follows whose clock is ahead, items come so
much earlier, and when it is late, so much later.

A consumer need not ask whether there are such items.  Each delayed put writes the node `entries` as well, so the stat
in the list of the items, which a consumer reads in any case, shows that there are, and whether others have come.  It
also creates and deletes a child there, which wakes the consumer that waits.  Then a consumer lists `delayed` again, at
most 10,000 names a second: an item among many may come a second late.

A consumer that may not use `delayed` says so once, takes the other items, and tries it again after a minute.  While it
is the first of those that wait, no other one looks.
"""

import asyncio
import logging
import math
import re
from collections.abc import Sequence
from typing import Final

import zkwire
from recipes.common.receipts import Receipts
from recipes.common.retrying import read, until_answered
from recipes.common.warn_once import WarnOnce
from recipes.queue.nodes import DELAYS, Nodes, child_names
from recipes.queue.producer import Producer
from recipes.queue.quarantine import UnusableItemError, checked
from zkwire import GetChildren, GetData, Stat

_log = logging.getLogger(__name__)

LONGEST_DELAY: Final = 1e9  # seconds

_NAME: Final = re.compile(r"(\d{15})-\d{3}--?\d{9,10}")  # servers before 3.6 go on with negative numbers
_PRIORITY: Final = slice(16, 19)
_MOST_AT_ONCE: Final = 16
# In seconds: the time for which the leader's time is counted on, and after which what was refused is tried again.
_BELIEVED_FOR: Final = 60.0
# In seconds: the pause after a list, for each name in it, and at most.  Otherwise each delayed put would cost each
# consumer that looks a list of all delayed items.
_PAUSE_PER_NAME: Final = 1e-4
_LONGEST_PAUSE: Final = 1.0


class Delayed:
    """The delayed items of a queue, as far as one of its objects knows them."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self._producer = Producer(nodes, None)
        self._receipts = Receipts(nodes.zk, nodes.put_prefix, acl=nodes.asked_acl)
        self._warnings = WarnOnce(_log, f"the queue {nodes.path}")
        self._listed = 0  # the last write of `entries` that the list contains
        self._list_at = 0.0  # not before, on the loop's clock
        self._is_behind = False  # whether there is a later write, and it is not yet time to list again
        self._due: dict[str, float] = {}  # when, in seconds, by the leader's clock
        self._ahead = 0.0  # the leader's clock, of the loop's, at least
        self._ask_at = 0.0  # for the time, on the loop's clock
        self._refused_until: float | None = None  # on the loop's clock: when to try again to use `delayed`

    async def put(self, items: Sequence[tuple[int, bytes]], delay: float) -> None:
        """Put all `items`, each a priority and the data, or none; see Queue.put."""
        await until_answered(self._zk, lambda: self._put(items, delay))

    async def _put(self, items: Sequence[tuple[int, bytes]], delay: float) -> None:
        # A unique name: another client may have created any other by hand.
        entries, child = self._nodes.entries, self._nodes.entry(self._zk.unique_id())
        apart = 0  # milliseconds between the items
        while True:
            try:
                # The stamp is rounded down to a whole millisecond.
                due = math.ceil((await self._leaders_time() + delay) * 1000) + 1
                transaction = self._zk.transaction()
                transaction.set(entries, DELAYS)
                transaction.create(child, acl=self._nodes.acl)
                transaction.delete(child)
                for place, (priority, data) in enumerate(items):
                    path = f"{self._nodes.delayed}/{due + apart * place:015d}-{priority:03d}-"
                    transaction.create(path, data, sequential=True, acl=self._nodes.fixed_acl)
                if await self._receipts.commit(transaction):
                    return
            except (zkwire.NoNodeError, zkwire.TransactionError) as refused:
                cause = refused.cause if isinstance(refused, zkwire.TransactionError) else refused
                if isinstance(cause, zkwire.NodeExistsError):
                    apart = 1  # the server gives its last number again and again: other times make other names
                    continue
                if not isinstance(cause, zkwire.NoNodeError):
                    raise cause from None
                await self._nodes.make(self._nodes.delayed)

    async def _leaders_time(self) -> float:
        """Return a time, in seconds, that the leader's clock has shown after this call."""
        write = self._zk.set
        stat: Stat = await until_answered(self._zk, lambda: write(self._nodes.delayed, b""), repeats=True)
        return stat.mtime / 1000

    # -- moving -----------------------------------------------------------------------------------------------------

    @property
    def next_look(self) -> float | None:
        """When to look for items again, on the loop's clock; None if no item is delayed."""
        if self._refused_until is not None:
            return self._refused_until
        times = [self._list_at] if self._is_behind else []
        if self._due:
            times += [min(self._due.values()) - self._ahead, self._ask_at]
        return min(times, default=None)

    async def move_due(self, listed: object) -> bool:
        """Move the items whose time has come to the others; return whether the others should be listed again.

        Args:
            listed: The answer to the GetChildrenAndStat of the others.
        """
        stat: Stat | None = listed[1] if isinstance(listed, tuple) else None
        now = asyncio.get_running_loop().time()
        self._is_behind = False
        if self._refused_until is not None and now < self._refused_until:
            return False
        self._refused_until = None
        # Items that are known are listed again if another program has made `entries` again, without that data.
        if stat is None or not (stat.data_length or self._due):
            return False
        try:
            return await self._move_due(stat)
        except zkwire.ServerError as refused:
            self._refused_until = now + _BELIEVED_FOR
            why = "cannot be used by this client, which leaves the items whose time has come to other consumers"
            self._warnings.warn(self._nodes.delayed, f"{why}: {refused}")
        return False

    async def _move_due(self, stat: Stat) -> bool:
        loop = asyncio.get_running_loop()
        self._is_behind = stat.mzxid != self._listed and loop.time() < self._list_at
        if stat.mzxid != self._listed and not self._is_behind:
            (names,) = await read(self._zk, GetChildren(self._nodes.delayed))
            found = filter(None, map(_NAME.fullmatch, child_names(names) or ()))
            self._due = {name[0]: int(name[1]) / 1000 for name in found}
            self._listed = stat.mzxid
            self._list_at = loop.time() + min(_LONGEST_PAUSE, len(self._due) * _PAUSE_PER_NAME)
        if self._due and loop.time() >= self._ask_at:
            time = await self._leaders_time()
            self._ahead = time - loop.time()
            self._ask_at = loop.time() + _BELIEVED_FOR
        now = loop.time() + self._ahead
        if min(self._due.values(), default=math.inf) > now:
            return False
        due = sorted(name for name, time in self._due.items() if time <= now)[:_MOST_AT_ONCE]
        for failure in await asyncio.gather(*map(self._move, due), return_exceptions=True):
            if failure is not None:
                raise failure
        return bool(due)

    async def _move(self, name: str) -> None:
        path = f"{self._nodes.delayed}/{name}"
        try:
            item = checked((await read(self._zk, GetData(path)))[0])
            if item is not None:
                await self._producer.put([(int(name[_PRIORITY]), item.data)], None, [path])
        except zkwire.NoNodeError:
            pass  # another consumer has moved it
        except zkwire.ConnectionLostError:
            return  # it may be there still, and then the next look moves it
        except (UnusableItemError, ValueError) as refused:  # ValueError: it is too large for this client
            self._warnings.warn(path, f"cannot be moved to {self._nodes.entries}: {refused}")
            self._due[name] = asyncio.get_running_loop().time() + self._ahead + _BELIEVED_FOR
            return
        self._due.pop(name, None)
