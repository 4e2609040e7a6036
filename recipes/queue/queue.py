"""The queue: first in, first out within a priority, for any number of producers and consumers.

`get` takes an item at most once, `claim` at least once.  Those who wait for an item, or for room, stand in a line of
their own, of which only the first is told of changes.  How items are put is in queue_puts, how they are taken in
queue_takes and queue_claims, what the nodes are in queue_nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self, TypeVar

import zkwire
from recipes.common.arguments import checked_within
from recipes.common.waiting import raise_unless_renewed
from recipes.line.line import Line
from recipes.line.locking import Hold
from recipes.queue.claims import Claim, Item
from recipes.queue.consumer import Takes
from recipes.queue.nodes import Nodes
from recipes.queue.order import DEFAULT_PRIORITY, checked_priority
from recipes.queue.producer import Puts
from zkwire import ACL, OPEN_ACL, Client, SessionState, WatchSet

T = TypeVar("T")


class Queue:
    """A queue of bytes, by priority, and first in, first out within each.

        await queue.put(b"work")                                  # or put_many([...]), all or none
        data = await queue.get()                                  # at most once: it is gone from the queue
        async with queue.claim() as item: handle(item.data)       # at least once: deleted if the body goes well
        async for data in queue: ...                              # get, for ever

    Arguments: `path`, the queue's node, made when it is missing, and not deleted when it is empty; `maxsize`, how many
    items it may have, claimed ones included: then producers wait for room; all who put into one queue must give the
    same; `acl`, of every node that is made.
    Order: the more urgent first, and of one priority those that were put earlier; several consumers that take at the
    same moment may each take one of the first few of a priority.
    Shares its items with kazoo's LockingQueue.
    """

    def __init__(self, zk: Client, path: str, maxsize: int | None = None, *, acl: Sequence[ACL] = OPEN_ACL) -> None:
        if maxsize is not None:
            if isinstance(maxsize, bool) or not isinstance(maxsize, int):
                raise TypeError(f"maxsize is an int or None, not {maxsize!r}")
            if maxsize < 1:
                raise ValueError(f"maxsize is at least 1, or None for no bound, not {maxsize}")
        self._zk = zk
        self._nodes = Nodes(zk, path, acl)
        self._puts = Puts(self._nodes, maxsize)
        self._takes = Takes(self._nodes)
        self._line = Line(zk, self._nodes.consumers, prefix="get-", acl=acl)
        self.path = path
        self.maxsize = maxsize

    # -- putting ----------------------------------------------------------------------------------------------------

    async def put(self, data: bytes, priority: int = DEFAULT_PRIORITY, *, within: float | None = None) -> None:
        """Put `data` into the queue, once.

        Arguments: `priority`, from 0, the most urgent, to 999; `within`, how many seconds to wait for room in a bounded
        queue, None: without bound.
        Raises: TimeoutError, and then it was not put; ConnectionLostError with `maybe_applied` only if the session
        ended before it could be found out whether it was put; SessionExpiredError, when nothing was put; ServerError
        for what the server refuses; TypeError and ValueError before anything is sent.
        Cancellation: it may be put all the same.
        Order: of the calls, for those that are awaited one after the other.  Those that are under way at the same time,
        without a bound, are in that order unless a connection breaks meanwhile: what was not carried out is then sent
        again behind what had not been sent yet.  `put_many` keeps the order of its items whatever happens.
        """
        await self.put_many([data], priority, within=within)

    async def put_many(
        self, items: Iterable[bytes], priority: int = DEFAULT_PRIORITY, *, within: float | None = None
    ) -> None:
        """Put all `items` in their order, all together or none, in one transaction.

        Arguments: as for `put`; some ten thousand items, or a megabyte, are the most that a server takes.
        Raises: as `put`; ValueError for more items than `maxsize`, or than a server takes.
        """
        checked_within(within)
        checked_priority(priority)
        wanted = []
        for data in items:
            if not isinstance(data, bytes | bytearray | memoryview):
                raise TypeError(f"data is bytes, not {type(data).__name__}: encode it")
            wanted.append((priority, bytes(data)))
        if self.maxsize is not None and len(wanted) > self.maxsize:
            raise ValueError(f"{len(wanted)} items at once never find room in a queue of {self.maxsize}")
        if not wanted:
            return
        self._takes.stock.expire()  # it may be more urgent than what this consumer knows of
        await self._puts.put(wanted, within)

    # -- taking -----------------------------------------------------------------------------------------------------

    async def get(self, *, within: float | None = None) -> bytes:
        """Wait for an item, take it out of the queue and return its data: each item once at the most.

        It is lost if this process dies before it has done with it, or its session while the item is on its way.
        Arguments: `within`, how many seconds to wait at the most, None: without bound.
        Raises: TimeoutError; SessionClosedError; SessionExpiredError if the client renews no session; ServerError for
        what the server refuses.
        Cancellation: an item that was taken is put back in its place; a bounded queue may then have one too many.
        Order: who finds an item when it comes takes it, ahead of those who wait; those are served in their order.
        """
        return await self._within(within, lambda: self._take(self._takes.get))

    def claim(self, *, within: float | None = None) -> Hold[Item]:
        """Return what `async with` enters: it waits for an item and claims it, which hides it from the others.

        When the body has come to its end the item is deleted from the queue.  When it raises or is cancelled, or its
        process dies, the item is handed back to its place, and somebody claims it again: each item at least once.
        When the claim is lost, on the signals on which a lock is, the body is cancelled and LockLostError raised in
        place of the cancellation; also when it has come to its end without noticing.  `item.token` guards a store from
        a body that goes on.
        Arguments, Raises, on entering: as `get`.
        Cancellation: an item that was claimed is handed back.
        """
        checked_within(within)
        return Claim(lambda: self._within(within, self._claim))

    async def peek(self) -> bytes | None:
        """Return the data of the first item that is to be had, without taking it; None when there is none."""
        return await self._takes.peek()

    async def size(self) -> int:
        """Return how many items are to be had; those that are claimed are not counted."""
        return await self._takes.count()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self.get()

    # -- within -----------------------------------------------------------------------------------------------------

    async def _claim(self) -> Item:
        return Item(self._nodes, await self._take(self._takes.claim), self._takes.stock.expire)

    async def _within(self, within: float | None, take: Callable[[], Awaitable[T]]) -> T:
        checked_within(within)
        if self._zk.state is SessionState.CLOSED:
            raise zkwire.SessionClosedError("the client is closed: make a new one with zkwire.connect")
        try:
            async with asyncio.timeout(within):
                return await take()
        except TimeoutError:
            raise TimeoutError(f"the queue {self.path} had no item within {within} s") from None

    async def _take(self, take: Callable[[], Awaitable[T | None]]) -> T:
        """Take an item that is there, else wait for one; after an expired session anew."""
        while True:
            try:
                taken = await take()
                return await self._wait(take) if taken is None else taken
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)

    async def _wait(self, take: Callable[[], Awaitable[T | None]]) -> T:
        """Stand in the line of the consumers; the first looks, takes and leaves, and so the next one is the first."""
        if not self._takes.has_nodes:
            await self._nodes.make()
        ticket = await self._line.acquire()
        try:
            while True:
                with WatchSet() as watches:
                    await self._takes.look(watches)
                    if not self._takes.has_nodes:
                        await self._nodes.make()
                    elif self._takes.stock.is_empty:
                        await watches.next()
                    else:
                        taken = await take()
                        if taken is not None:
                            return taken
        finally:
            self._line.leave(ticket)
