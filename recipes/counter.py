"""A counter in a node, which several clients change; each change is carried out exactly once.

This module encodes the number, combines the changes that wait at the same time into one write, and repeats a write that
came too late.  `recipes.common.receipts` takes care that each write is carried out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import Final, NamedTuple

from recipes.common.checks import checked_client
from recipes.common.receipts import LAST_VERSION, ExactWriter
from recipes.common.retrying import until_answered
from recipes.common.shared_nodes import read_or_create
from recipes.common.streams import DecodedStream
from zkwire import ACL, OPEN_ACL, Client, Node, NoNodeError, validate_path

SIZES: Final = (8, 4)

# A write that came too late is tried again after a random time, of at most so many times what a write takes.  Without
# this, clients that add at the same time read and write in step: each round costs all of them two requests, and one of
# them succeeds.  A longer pause saves further requests, but then single clients wait for long.  A write that has taken
# seconds was held up by a fault, and not by other clients, so it makes no long pause.
_LONGEST_PAUSE: Final = 16
_SLOW: Final = 0.05  # seconds


def encoded(value: int, size: int, path: str) -> bytes:
    """Return `value` as a counter of `size` bytes stores it: signed, big-endian.

    Raises:
        OverflowError: if it needs more bytes.
    """
    try:
        return value.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise OverflowError(f"{value} does not fit into the counter {path}, which has {size} bytes") from None


def decoded(data: bytes, size: int, path: str) -> int:
    """Return the number in `data`, 0 if it is empty.

    Raises:
        ValueError: if it does not have `size` bytes.
    """
    if not data:
        return 0
    if len(data) != size:
        raise ValueError(
            f"{path} holds {len(data)} bytes, which is not a counter of {size} bytes (Curator's DistributedAtomicLong"
            " has 8, its SharedCount 4: choose with size=)"
        )
    return int.from_bytes(data, "big", signed=True)


class _Change(NamedTuple):
    """One call: `new` returns the value that follows a value, None if there is nothing to change.

    `total` is the value after it, None if it has changed nothing; it is cancelled with its caller.
    """

    new: Callable[[int], int | None]
    total: asyncio.Future[int | None]


class Counter:
    """A whole number in a node, which several clients may change.

    ::

        counter = Counter(zk, "/orders/count")
        number = await counter.add(1)             # the new value; no other add of 1 returns the same
        await counter.set(100)
        if not await counter.compare_and_set(0, expected=100): ...    # another client was faster
        async for value in counter.watch(): ...   # now and after each change

    Do not delete the node while the counter is in use: the count would begin again.

    Args:
        path: The node; the first change creates it, persistent and with `initial` in it, if it is missing.
        initial: The value as long as the node is missing, the same for all clients.
        size: The size of the number in bytes: 8 to share the node with Curator's DistributedAtomicLong, 4 with its
            SharedCount and DistributedAtomicInteger.
        acl: The ACL of every node that is created.  None: all clients may use the node, and only this one may write its
            write receipts, if it has an identity.
    """

    def __init__(
        self, zk: Client, path: str, initial: int = 0, *, size: int = 8, acl: Sequence[ACL] | None = None
    ) -> None:
        if not isinstance(size, int) or size not in SIZES:
            raise ValueError(f"size is 8 or 4 bytes, not {size!r}")
        self._zk = checked_client(zk)
        self.path: str = validate_path(path)
        self.size = size
        self._initial = initial
        self._first_data = self._checked(initial)
        self._acl = OPEN_ACL if acl is None else acl
        self._writer = ExactWriter(zk, self.path, acl=acl)
        self._waiting: list[_Change] = []  # for the next write
        self._writing: asyncio.Task[list[int | OverflowError | None]] | None = None
        self._under_way: list[_Change] = []  # those that the present write carries out together
        # The value and the version of the node when this client last read or wrote it.
        self._known: tuple[int, int] | None = None

    async def add(self, n: int = 1) -> int:
        """Add `n`, which may be negative, and return the new value.

        `n` is added exactly once, even if a connection breaks: when an answer is lost, the client finds out whether
        the write was carried out.  When another client adds at the same moment, the addition is repeated until it
        succeeds.

        Raises:
            OverflowError: if the new value does not fit.
            ConnectionLostError: with `maybe_applied`, if an answer was lost and the session expired before its outcome
                was known.
            NoAuthError: if this client may not write the node, or not create its write receipt below it.
            ValueError: if the node holds no counter.
            TypeError: if `n` is not a whole number.

        Cancellation:
            `n` may have been added; it is not added later, unless it shares a write with additions whose callers go on
            waiting.

        Order:
            Tasks that share this object change it in the order of their calls; those that wait while a write is under
            way share the next one.

        Requests:
            One (multi), except for the first change, when no other client changes it meanwhile; two more for each
            change of another client that came first.
        """
        self._checked(n)
        total = await self._change(lambda value: value + n)
        assert total is not None
        return total

    async def set(self, n: int) -> None:
        """Set the value to `n`, whatever it is, exactly once.

        Errors, cancellation, order and requests are those of `add`.
        """
        self._checked(n)
        await self._change(lambda _: n)

    async def compare_and_set(self, n: int, *, expected: int) -> bool:
        """Set the value to `n` if it is `expected`; return whether it was.

        It is carried out exactly once, and the values are compared at the moment of the write.  Errors, cancellation,
        order and requests are those of `add`; a sync and a getData more before it returns False.
        """
        self._checked(n)
        self._checked(expected)
        return await self._change(lambda value: n if value == expected else None) is not None

    def _checked(self, n: int) -> bytes:
        """Return `n` encoded.

        Raises:
            TypeError: if it is not a whole number.
            OverflowError: if it does not fit.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"the counter {self.path} takes whole numbers, not {n!r}")
        return encoded(n, self.size, self.path)

    async def _change(self, new: Callable[[int], int | None]) -> int | None:
        """Carry out a change, and return the value after it, None if it has changed nothing."""
        change = _Change(new, asyncio.get_running_loop().create_future())
        self._waiting.append(change)
        if self._writing is None:
            self._write_waiting()
        try:
            return await change.total
        except asyncio.CancelledError:
            if self._writing is not None and all(each.total.cancelled() for each in self._under_way):
                self._writing.cancel()
            raise

    def _write_waiting(self) -> None:
        """Carry out the changes that wait, in a task of its own: the end of one caller must not end the others."""
        self._under_way, self._waiting = [each for each in self._waiting if not each.total.done()], []
        self._writing = None
        if self._under_way:
            self._writing = asyncio.get_running_loop().create_task(self._write(self._under_way))
            self._writing.add_done_callback(self._has_written)

    def _has_written(self, writing: asyncio.Task[list[int | OverflowError | None]]) -> None:
        for index, change in enumerate(self._under_way):
            if writing.cancelled():
                change.total.cancel()
            elif change.total.done():
                continue
            elif (error := writing.exception()) is not None:
                # Each gets an error of its own: if all raised one object, each would add its traceback to it.
                change.total.set_exception(copy(error))
            elif isinstance(total := writing.result()[index], OverflowError):
                change.total.set_exception(total)
            else:
                change.total.set_result(total)
        self._write_waiting()

    async def _write(self, changes: Sequence[_Change]) -> list[int | OverflowError | None]:
        """Write what follows from `changes`; return the value after each, None for one that changes nothing, or the
        error of one that does not fit.
        """
        loop = asyncio.get_running_loop()
        losses = 0  # to clients that wrote between our read and our write
        is_synced = False
        while True:
            known, self._known = self._known, None  # if the write fails, the next add reads the node
            is_fresh = known is None
            if known is None:
                node = await read_or_create(self._zk, self.path, self._first_data, self._acl)
                known = self._value_of(node), node.stat.version
            value, version = known
            totals = self._add_up(changes, value)
            values = [total for total in totals if isinstance(total, int)]
            began = loop.time()
            if not values:
                # No write shows that the value is the newest, and the server that was asked may lag.
                if is_synced:
                    return totals
                await until_answered(self._zk, lambda: self._zk.sync(self.path))
                is_synced = True
            elif await self._writer.write(encoded(values[-1], self.size, self.path), version):
                self._known = (values[-1], version + 1) if version < LAST_VERSION else None
                return totals
            elif is_fresh:  # a value that was out of date already is no sign of another client that adds at this moment
                losses += 1
                share = int(self._zk.unique_id()[:8], 16) / 2**32
                await asyncio.sleep(share * min(2**losses, _LONGEST_PAUSE) * min(loop.time() - began, _SLOW))

    def _add_up(self, changes: Sequence[_Change], value: int) -> list[int | OverflowError | None]:
        """Return what `_write` returns, beginning from `value`."""
        totals: list[int | OverflowError | None] = []
        for change in changes:
            new = change.new(value)
            try:
                encoded(value if new is None else new, self.size, self.path)
            except OverflowError as error:
                totals.append(error)
            else:
                totals.append(new)
                value = value if new is None else new
        return totals

    async def get(self) -> int:
        """Return the value, `initial` if the node is missing.

        Raises:
            ValueError: if the node holds no counter.

        Order:
            Includes everything that this client changed before.  Changes of other clients may be missing; to include
            them, call `zk.sync` first.

        Requests:
            getData.
        """
        try:
            return self._value_of(await until_answered(self._zk, lambda: self._zk.get(self.path)))
        except NoNodeError:
            return self._initial

    def watch(self) -> CounterStream:
        """Return a stream of the value, now and after each change, `initial` while the node is missing.

        The iteration raises the errors of DecodedStream, and ValueError if the node does not hold a counter.
        """
        return CounterStream(self._zk, self.path, self._value_of)

    def _value_of(self, node: Node | None) -> int:
        return self._initial if node is None else decoded(node.data, self.size, self.path)


class CounterStream(DecodedStream[int]):
    """The values of a counter; made by `Counter.watch`."""
