"""The queue: by priority, then first in, first out, for any number of producers and consumers.

This module waits and gives up in time.  Consumers that wait for an item, and producers that wait for room, each have a
waiting line, in which only the first is woken by changes.  See `producer` for how items are put, `consumer` and
`claims` for how they are taken, `view` for how they are looked for, and `nodes` for the nodes in ZooKeeper.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Self, TypeAlias, TypeVar

from recipes.common.checks import check_number, checked_client, checked_within
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import until_answered
from recipes.common.waiting import Bound, bounded
from recipes.line.contenders import Contender
from recipes.line.line import Line
from recipes.line.locking import Hold
from recipes.queue.attempts import FailedItem, failed
from recipes.queue.claims import Claim, Item, claims
from recipes.queue.consumer import Consumer
from recipes.queue.delayed import LONGEST_DELAY
from recipes.queue.nodes import Nodes
from recipes.queue.order import DEFAULT_PRIORITY, check_priority, priority_of
from recipes.queue.producer import Producer
from zkwire import ACL, Client, WatchSet

T = TypeVar("T")

# One of the two ways of taking an item; returns None if none is there.
Take: TypeAlias = Callable[[], Awaitable[T | None]]

# Iterables that are no series of items: one item, or items without an order.
_NO_SERIES: Final = (str, bytes, bytearray, memoryview, set, frozenset, Mapping)


class Queue:
    """A queue of bytes, by priority, and first in, first out within each priority.

    ::

        await queue.put(b"work")                                  # or put_many([...]), all or none
        data = await queue.get()                                  # at most once: it is removed from the queue
        async with queue.claim() as item: handle(item.data)       # at least once: deleted if the body succeeds
        async for data in queue: ...                              # get, for ever

    The queue shares its items with kazoo's LockingQueue.

    Args:
        path: The queue's node, which is created if it is missing, and not deleted when the queue is empty.
        maxsize: How many items the queue may have, claimed ones included: when it is full, producers wait for room.
            All producers of one queue must give the same `maxsize`, which is the data of the node `room` below `path`
            (write that node to change the number).
        max_attempts: How often an item may fail, from 1: an item whose last claim has ended without success moves
            to `failed` and is claimed no more, see `claim`.  Give all consumers the same number.  None: for ever, and
            nothing is counted.
        acl: The ACL of every node that is created.  None: all clients may use the queue, and no client may change an
            item, or put nodes below it.

    Order:
        The more urgent priority first, and within one priority the items that were put earlier.  Consumers that take
        at the same moment may each take one of the first few items of a priority.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        maxsize: int | None = None,
        *,
        max_attempts: int | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        if maxsize is not None:
            check_number("maxsize is a whole number from 1, or None for no bound", maxsize, 1)
        if max_attempts is not None:
            check_number("max_attempts is a whole number from 1, or None for no limit", max_attempts, 1)
        self._zk = checked_client(zk)
        self._nodes = Nodes(zk, path, acl, max_attempts or 0)
        self._producer = Producer(self._nodes, maxsize)
        self._consumer = Consumer(self._nodes)
        self._line = Line(zk, self._nodes.consumers, prefix="get-", acl=acl)
        # The tasks that wait for an item, in the order in which they came.  The first one waits for all; its event is
        # set when it becomes the first, and those of others when it has found several items.
        self._waiters: list[asyncio.Event] = []
        self.path = path
        self.maxsize = maxsize
        self.max_attempts = max_attempts

    # -- putting ----------------------------------------------------------------------------------------------------

    async def put(
        self, data: bytes, priority: int = DEFAULT_PRIORITY, *, delay: float = 0.0, within: float | None = None
    ) -> None:
        """Put `data` into the queue, exactly once.

        Args:
            priority: From 0, the most urgent, to 999.
            delay: For how many seconds no consumer is to get the item, by the clock of the ensemble's leader, whatever
                the clocks of clients say.  When another leader follows whose clock is wrong by some seconds, the item
                comes so much earlier or later.  A queue with a `maxsize` takes no delay.
            within: How many seconds to wait for room in a bounded queue; None waits without limit, 0 uses the room that
                is there and does not wait.  A put that was sent is not cut off, as a take of `get` is not.

        Raises:
            TimeoutError: if there was no room in time; nothing was put.
            ValueError: if the producers of a bounded queue do not agree on its `maxsize`.
            NodeExistsError: if the item numbers are used up and the queue is not empty, see recipes.queue.nodes.
            ConnectionLostError: with `maybe_applied`, if an answer was lost and the session ended before the outcome
                was known.
            SessionExpiredError: if the client does not renew its session; nothing was put.

        Cancellation:
            The item may have been put.

        Order:
            Puts that are awaited one after the other keep the order of the calls.  Puts that are under way at the same
            time, in an unbounded queue, keep it too unless a connection breaks meanwhile: those that were not carried
            out are then sent again after those that had not been sent yet.  `put_many` always keeps the order of its
            items.
        """
        await self.put_many([data], priority, delay=delay, within=within)

    async def put_many(
        self,
        items: Iterable[bytes],
        priority: int = DEFAULT_PRIORITY,
        *,
        delay: float = 0.0,
        within: float | None = None,
    ) -> None:
        """Put all `items` in their order, all together or none, in one transaction.

        Args:
            items: A list, a generator or whatever else has an order.  A server takes at most some ten thousand items,
                or a megabyte, at once.
            priority: As for `put`.
            delay: As for `put`.
            within: As for `put`.

        Raises:
            ValueError: if there are more items than `maxsize`, or than a server takes.
            TypeError: if `items` is one bytes object, a set or a dict.

        All errors of `put` are raised, too.
        """
        checked_within(within)
        check_priority(priority)
        check_number("delay is a number of seconds from 0 to 1e9", delay, 0, LONGEST_DELAY, int | float)
        if delay and self.maxsize is not None:
            raise ValueError("a queue with a maxsize takes no delay: when the time has come there may be no room")
        if isinstance(items, _NO_SERIES) or not isinstance(items, Iterable):
            raise TypeError(f"put_many takes a list or another sequence of bytes, not {type(items).__name__}")
        wanted = []
        for data in items:
            if not isinstance(data, bytes | bytearray | memoryview):
                raise TypeError(f"data is bytes, not {type(data).__name__}: encode it")
            wanted.append((priority, bytes(data)))
        if self.maxsize is not None and len(wanted) > self.maxsize:
            raise ValueError(f"{len(wanted)} items at once never find room in a queue of {self.maxsize}")
        if not wanted:
            return
        await warn_if_wider(self._zk, self._nodes.entries, self._nodes.asked_acl)
        try:
            if delay:
                await self._consumer.view.delayed.put(wanted, delay)
            else:
                await self._producer.put(wanted, within)
        finally:
            self._consumer.view.listing.expire()  # the new items may be more urgent than the listed ones

    # -- taking -----------------------------------------------------------------------------------------------------

    async def get(self, *, within: float | None = None) -> bytes:
        """Wait for an item, take it out of the queue and return its data; each item is returned at most once.

        The item is lost if this process dies before it has finished with it, or if the session ends during the take.

        Args:
            within: How many seconds to wait at most; None waits without limit, 0 takes an item that is there and does
                not wait.  A take that was sent is not cut off: without a server the call may last up to 4/3 of a
                session timeout longer.

        Raises:
            TimeoutError: if no item came in time.
            QuotaExceededError: if a hard quota leaves no room for one node, which a take creates before it deletes.
            SessionClosedError: if the client is closed.
            SessionExpiredError: if the client does not renew its session.

        Cancellation:
            An item that was taken is put back in its place; a bounded queue may then have one item too many.  The
            call ends when the item is back, or after a second, also if it is cancelled once more; the client then goes
            on to put it back.  If the server refuses to have it back, as without the permission CREATE, the `get` of
            this object that is called next returns it, which is logged; one that waits already does not.  It is lost if
            there is no such call, or if the session ends, or the client is closed, while it is put back.

        Order:
            A consumer that finds an item when it comes takes it, before the waiting ones, which are served in the order
            in which they began to wait.  Tasks that share this object are served in the order of their calls; they have
            one place among the waiting consumers, and each of them that has taken an item leaves it to the next one,
            after the others.
        """
        return await self._take_within(within, self._consumer.get)

    def claim(self, *, within: float | None = None) -> Hold[Item]:
        """Return a context manager that waits for an item and claims it, which hides the item from other consumers.

        When the body ends, the item is deleted from the queue.  When the body raises or is cancelled, or the process
        dies, the item goes back to its place, and a consumer claims it again: each item is handled at least once.
        After a body that has failed, this object takes all other items first, for up to a minute.

        With `max_attempts` a claim counts if its body has raised or has released it, if it was lost, and if the process
        has died; not if the body's task was cancelled.  So limit the time of the work inside of the body.  After the
        last one the item is in `failed`, in one transaction, and no consumer that has a `max_attempts` claims it again.
        `item.attempt` is the number of the claim, from 1.

        A claim is lost on the same signals as a lock.  Then the body is cancelled and LockLostError is raised in place
        of the cancellation, also when the body has ended without noticing.  `item.token` protects a store against a
        body that goes on.

        Args:
            within: As for `get`.

        Raises:
            TimeoutError: on entering, as all errors of `get`.
            LockLostError: when the body ends, if the claim was lost.

        Cancellation:
            An item that was claimed is handed back.
        """
        checked_within(within)
        return Claim(lambda: self._claim(within))

    async def peek(self) -> bytes | None:
        """Return the data of the first item that can be taken, without taking it; None when there is none."""
        return await self._consumer.peek()

    async def size(self) -> int:
        """Return how many items can be taken; claimed items are not counted."""
        return len(await self._consumer.view.free_items())

    async def claims(self) -> list[Contender]:
        """Return the claimed items in their order, each with the session that has claimed it, and since when.

        `path` and `data` of each Contender are the item's.  The items may be handled already when the list is read.  An
        item that is being taken out for good is not in it, nor one whose `taken` node this client must not read.

        Cancellation:
            Harmless.

        Requests:
            getChildren and getData, and in one write two getData for each claimed item.
        """
        return await claims(self._nodes)

    # -- what has failed --------------------------------------------------------------------------------------------

    async def failed(self) -> list[FailedItem]:
        """Return the items that have failed `max_attempts` times, in the order in which they came there.

        They stay until `retry` puts them back, or their nodes are deleted.  Those that this client must not read are
        left out.

        Cancellation:
            Harmless.

        Requests:
            getChildren2, and in one write a getData for each item.
        """
        return await failed(self._nodes)

    async def retry(self, item: FailedItem, *, within: float | None = None) -> None:
        """Put an item of `failed` back, in one transaction: at the end of its priority, with no attempts counted.

        Args:
            item: One that `failed` has returned.
            within: As for `put`.

        Raises:
            NoNodeError: if it is not in `failed` any more: another client has put it back, or deleted it.
            ValueError: if it is an item of another queue.

        All errors of `put` are raised, too.

        Cancellation:
            The item may have been put back.

        Requests:
            As `put`.
        """
        checked_within(within)
        if not isinstance(item, FailedItem):
            raise TypeError(f"retry takes an item that failed() has returned, not {type(item).__name__}")
        if item.path.rpartition("/")[0] != self._nodes.failed:
            raise ValueError(f"{item.path} is not a failed item of the queue {self.path}")
        await self._producer.put([(priority_of(item.name), item.data)], within, [item.path])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self.get()

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def _claim(self, within: float | None) -> Item:
        claimed = await self._take_within(within, lambda _: self._consumer.claim())
        return Item(self._nodes, claimed, self._consumer.view)

    async def _take_within(self, within: float | None, take_within: Callable[[Bound], Awaitable[T | None]]) -> T:
        """Take an item that is there, or else wait for one; after an expired session begin again."""
        checked_within(within)
        await warn_if_wider(self._zk, self._nodes.entries, self._nodes.asked_acl)
        async with bounded(self._zk, within, f"the queue {self.path} had no item") as bound:
            take = partial(take_within, bound)
            taken = await until_answered(self._zk, take)
            if taken is not None:
                return taken
            bound.must_wait()
            waiter = asyncio.Event()
            self._waiters.append(waiter)
            try:
                return await until_answered(self._zk, lambda: self._wait(waiter, take))
            finally:
                self._waiters.remove(waiter)
                self._call(0, 1)

    async def _wait(self, waiter: asyncio.Event, take: Take[T]) -> T:
        """Wait until an item was taken.

        Of the tasks that share this object, only the first waits in the line of the consumers.  The others wait here,
        and try to take an item when the first has found several.  After an expired session each goes on at its place.
        """
        while self._waiters[0] is not waiter:
            await waiter.wait()
            waiter.clear()
            if self._waiters[0] is not waiter:
                taken = await take()
                if taken is not None:
                    return taken
        if not self._consumer.view.has_nodes:
            await self._nodes.make()
        ticket = await self._line.acquire()
        try:
            return await until_answered(self._zk, lambda: self._wait_in_line(take), renews=False)
        finally:
            # The next consumer becomes the first.
            ticket.give_up()

    async def _wait_in_line(self, take: Take[T]) -> T:
        """Wait until an item was taken; called by the first in the line of the consumers, which alone watches items."""
        view = self._consumer.view
        while True:
            with WatchSet() as watches:
                await view.look_and_watch(watches)
                if not view.has_nodes:
                    await self._nodes.make()
                elif not view.listing:
                    await view.wait_for_change(watches)
                else:
                    self._call(1, len(view.listing))
                    taken = await take()
                    if taken is not None:
                        return taken

    def _call(self, begin: int, end: int) -> None:
        for event in self._waiters[begin:end]:
            event.set()
