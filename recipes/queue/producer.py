"""Put items into a queue: each exactly once although answers are lost, and within the bound of the queue.

A put is one transaction.  An item may be taken before its producer hears that it was put, so the items cannot show
afterwards whether the put was carried out; a receipt does, see recipes.common.receipts.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import zkwire
from recipes.common.numbers import next_number
from recipes.common.receipts import LAST_VERSION, Receipts
from recipes.common.retrying import read, result, until_answered
from recipes.common.waiting import Bound, bounded
from recipes.line.contenders import look
from recipes.line.line import Line
from recipes.line.ticket import Ticket
from recipes.queue.nodes import DELAYS, LAST_NUMBER, Nodes, child_names
from recipes.queue.order import prefix
from zkwire import GetChildren, GetData, Node, Transaction, WatchSet, join_path

# A producer that came too late so often, because others put first, enters the waiting line.
_MOST_FAILURES: Final = 3

_USED_UP: Final = (
    "the server gives no item number after 2147483647; the numbers begin again with the next put when the queue is"
    " empty: let consumers take all items out of {path}, and handle the claimed ones, then put again"
)
_MAY_NOT_RENEW: Final = (
    "the server gives no item number after 2147483647; to make the numbers begin again, a client needs the permissions"
    " CREATE and DELETE on {path}: let one put that has them"
)
_NAMES_TAKEN: Final = (
    "the names of the next items are taken by nodes that another client has created by hand: delete them, or let"
    " consumers take them"
)
# Numbers to leave out at most, because nodes of other clients have them.
_MOST_LEFT_OUT: Final = 512
# Nodes to look at in the line of the producers.
_MOST_TICKETS_READ: Final = 16


class _Room(NamedTuple):
    """The queue has at most `used` items as long as `version` is the version of the queue's node `room`."""

    version: int
    used: int


class Producer:
    """Puts items into a queue of at most `maxsize` items, None for any number."""

    def __init__(self, nodes: Nodes, maxsize: int | None) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self._maxsize = maxsize
        self._line = Line(nodes.zk, nodes.producers, prefix="put-", acl=nodes.asked_acl)
        # In a bounded queue one task at a time tries or waits in the line; the others wait here, in their order.
        self._putting = asyncio.Lock()
        # The same for puts that do not wait: they must not queue after a task that waits for room.
        self._putting_at_once = asyncio.Lock()
        self._room_data = b"" if maxsize is None else b"%d" % maxsize
        self._room: _Room | None = None
        self._are_numbers_used_up = False  # by the last put
        self._receipts = Receipts(nodes.zk, nodes.put_prefix, acl=nodes.asked_acl)

    async def put(
        self, items: Sequence[tuple[int, bytes]], within: float | None, instead_of: Sequence[str] = ()
    ) -> None:
        """Put all `items`, each a priority and the data, or none of them.

        Args:
            within: How many seconds to wait for room; None waits without limit, 0 does not wait.
            instead_of: Paths of nodes to delete in the same transaction.

        Raises:
            TimeoutError: if there was no room in time.
            ValueError: if the queue has another `maxsize`.
            NoNodeError: if one of `instead_of` is missing.
        """
        if self._maxsize is None:
            await until_answered(self._zk, lambda: self._send(items, None, self._receipts.commit, instead_of))
            return
        most = self._maxsize - len(items)
        what = f"the queue {self._nodes.path} had no room for {len(items)} more"
        async with bounded(self._zk, within, what) as bound:
            turn = self._putting_at_once if bound.is_one_look else self._putting
            async with turn:
                await until_answered(self._zk, lambda: self._put_bounded(items, bound, most, instead_of))

    # -- the bound --------------------------------------------------------------------------------------------------

    async def _put_bounded(
        self, items: Sequence[tuple[int, bytes]], bound: Bound, most: int, instead_of: Sequence[str]
    ) -> None:
        """Put `items` when there are at most `most` others.

        Two producers that both count the items and then put could together exceed the bound.  So each put also writes
        the node `room`, on the condition that its version is the one read *before* the count: of two producers that
        counted at the same time only one succeeds.  Consumers do not write it, for they only make more room.
        """

        async def commit(transaction: Transaction) -> bool:
            # A put that ended with TimeoutError must not have been carried out.
            return await bound.uncut(partial(self._receipts.commit, transaction))

        ticket: Ticket | None = None
        failures = 0
        try:
            while True:
                room, self._room = self._room, None
                if room is None or room.used > most:
                    # A put that must not wait looks again after each failure: another producer was faster, and there
                    # may still be room.
                    if ticket is None and (failures < _MOST_FAILURES or bound.is_one_look):
                        room = await self._find_room(most)
                    else:
                        room = None
                    if room is None:
                        bound.must_wait()
                        ticket = ticket or await self._line.acquire()
                        room = await until_answered(self._zk, partial(self._wait_for_room, most), renews=False)
                # Asked again here after a refusal, so that the put keeps its place in the line.
                send = partial(self._send, items, room.version, commit, instead_of)
                if await until_answered(self._zk, send, renews=False):
                    # After a producer that came out of the line others may wait there: its next put must look for them,
                    # and so it forgets the room.
                    if ticket is None and room.version < LAST_VERSION:
                        self._room = _Room(room.version + 1, room.used + len(items))
                    return
                failures += 1
        finally:
            if ticket is not None:
                ticket.give_up()

    async def _find_room(self, most: int) -> _Room | None:
        """Return the room if there are at most `most` items and no producer waits in the line, else None.

        Among more nodes in the line than it reads, it takes one for a producer's.
        """
        reads = GetData(self._nodes.entries), GetChildren(self._nodes.producers)
        version, (entries, waiting) = await self._read_room(*reads)
        parent: Node | None = result(entries)
        count = 0 if parent is None else parent.stat.num_children
        if count > most:
            return None
        paths = [join_path(self._nodes.producers, name) for name in child_names(waiting) or ()]
        tickets: Sequence[object] = [path for path in paths if self._line.is_own(path)]
        if 0 < len(tickets) <= _MOST_TICKETS_READ:
            tickets = await look(self._zk, self._nodes.producers)
        return None if tickets else _Room(version, count)

    async def _wait_for_room(self, most: int) -> _Room:
        """Wait until there are at most `most` items; return the room.  Only the first in the line calls this."""
        was_written = False
        while True:
            with WatchSet() as watches:
                version, (entries,) = await self._read_room(GetChildren(self._nodes.entries, into=watches))
                names = child_names(entries) or []
                if len(names) <= most:
                    return _Room(version, len(names))
                if was_written:
                    await watches.next()
                    continue
            # A producer that put before knows the version of `room`, and goes on without a look at the line as long as
            # the version stays.  It would overtake this one for ever; so write `room` once, which makes it look.  Only
            # at the version that was read: otherwise this write could undo a change of the number in the node.
            with contextlib.suppress(zkwire.NoNodeError, zkwire.BadVersionError, zkwire.ConnectionLostError):
                await self._zk.set(self._nodes.room, self._room_data, version=version)
                was_written = True  # after each of these errors the next read shows the state

    async def _read_room(self, *more: GetData | GetChildren) -> tuple[int, list[Any]]:
        """Return the version of the node `room`, and the answers to the reads `more`, sent together with its read.

        The data of `room` is the `maxsize` of the queue.  It is created if it is missing, and persistent: if its
        version began again from 0, a producer could mistake it for the version that it read before.

        Raises:
            ValueError: if the queue has another `maxsize`.
        """
        while True:
            # In order: a count that is older than the version proves nothing.
            answer, *answers = await read(self._zk, GetData(self._nodes.room), *more, in_order=True)
            room: Node | None = result(answer)
            if room is not None:
                break
            await self._nodes.make()
            with contextlib.suppress(zkwire.NodeExistsError, zkwire.NoNodeError, zkwire.ConnectionLostError):
                await self._zk.create(self._nodes.room, self._room_data, acl=self._nodes.acl)
        if room.data not in (b"", self._room_data):  # empty: created without a number
            theirs = room.data[:40].decode(errors="replace")
            raise ValueError(
                f"the queue {self._nodes.path} has maxsize {theirs}, not {self._maxsize}: give that number, or change"
                f" it for all producers by writing it into {self._nodes.room}"
            )
        return room.stat.version, answers

    # -- sending ----------------------------------------------------------------------------------------------------

    async def _send(
        self,
        items: Sequence[tuple[int, bytes]],
        version: int | None,
        commit: Callable[[Transaction], Awaitable[bool]],
        instead_of: Sequence[str],
    ) -> bool:
        """Put all `items` in one transaction; return whether they were put.

        Args:
            version: The version that the node `room` must have; None for an unbounded queue.
            commit: What commits the transaction, with a receipt.
            instead_of: Paths of nodes to delete in it.

        Cancellation:
            The items may have been put.
        """
        # The server gives its last number again once that item has been taken.  So a put that succeeds does not show
        # that there are numbers left.  A producer that has met the end therefore first tries to renew them.
        is_renewing = has_tried = self._are_numbers_used_up
        left_out = 0
        while True:
            transaction = self._zk.transaction()
            if version is not None:
                transaction.set(self._nodes.room, self._room_data, version)
            for path in instead_of:
                transaction.delete(path)
            if is_renewing:
                # `taken` must be empty too: a new item could get the name of one that another program is taking.
                for parent, its_data in ((self._nodes.taken, b""), (self._nodes.entries, DELAYS)):
                    transaction.delete(parent)
                    transaction.create(parent, its_data, acl=self._nodes.acl)
            # Each child that is created uses up a number, also if it is deleted again.
            for _ in range(left_out):
                transaction.create(self._nodes.entry("left-out"), acl=self._nodes.acl)
                transaction.delete(self._nodes.entry("left-out"))
            for priority, data in items:
                path = self._nodes.entry(prefix(priority))
                transaction.create(path, data, sequential=True, acl=self._nodes.fixed_acl)
            try:
                if await commit(transaction):
                    self._are_numbers_used_up = False
                    return True
            except zkwire.TransactionError as refused:
                cause = refused.cause
                is_room = version is not None and refused.index == 0
                if is_room and isinstance(cause, zkwire.BadVersionError | zkwire.NoNodeError):
                    return False
                if isinstance(cause, zkwire.NoNodeError) and cause.path not in instead_of:
                    await self._nodes.make()
                    continue
                if isinstance(cause, zkwire.NodeExistsError):
                    if not await self._is_at_last_number():
                        left_out = 2 * left_out or 1
                        if left_out <= _MOST_LEFT_OUT:
                            continue
                        cause.hint = _NAMES_TAKEN
                    elif has_tried:
                        self._are_numbers_used_up = True
                        cause.hint = _USED_UP.format(path=self._nodes.path)
                    else:  # the server gave its last number a second time
                        is_renewing = has_tried = True
                        continue
                elif is_renewing and isinstance(cause, zkwire.NotEmptyError):
                    # There are items: old ones, or those of another producer that has renewed the numbers just now.
                    is_renewing = False
                    continue
                elif is_renewing and isinstance(cause, zkwire.NoAuthError):
                    cause.hint = _MAY_NOT_RENEW.format(path=self._nodes.path)
                raise cause from None

    async def _is_at_last_number(self) -> bool:
        """Return whether the server has no further number for an item.

        Otherwise a put is refused because another client has created a node with the next name by hand.
        """
        (answer,) = await read(self._zk, GetData(self._nodes.entries))
        entries: Node | None = result(answer)
        return entries is not None and next_number(entries.stat) >= LAST_NUMBER
