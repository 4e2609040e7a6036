"""A counter in a node, to which several clients add; each addition is carried out exactly once.

This module encodes the number, combines the additions that wait at the same time into one write, and repeats a write
that came too late.  `recipes.common.receipts` takes care that each write is carried out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple

from recipes.common.receipts import ExactWriter
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


class _Addition(NamedTuple):
    """One call of `add`: `total` is the new value, and is cancelled with its caller."""

    n: int
    total: asyncio.Future[int]


class Counter:
    """A whole number in a node, to which several clients may add.

    ::

        counter = Counter(zk, "/orders/count")
        number = await counter.add(1)             # the new value; no other add of 1 returns the same
        async for value in counter.watch(): ...   # now and after each change

    Do not delete the node while the counter is in use: the count would begin again from 0.

    Args:
        path: The node; the first `add` creates it, persistent and with 0 in it, if it is missing.
        size: The size of the number in bytes: 8 to share the node with Curator's DistributedAtomicLong, 4 with its
            SharedCount and DistributedAtomicInteger.
        acl: The ACL of every node that is created.  None: all clients may use the node, and only this one may write its
            write receipts, if it has an identity.
    """

    def __init__(self, zk: Client, path: str, *, size: int = 8, acl: Sequence[ACL] | None = None) -> None:
        if not isinstance(size, int) or size not in SIZES:
            raise ValueError(f"size is 8 or 4 bytes, not {size!r}")
        self._zk = zk.unlimited
        self.path: str = validate_path(path)
        self.size = size
        self._acl = OPEN_ACL if acl is None else acl
        self._writer = ExactWriter(zk, self.path, acl=acl)
        self._waiting: list[_Addition] = []  # for the next write
        self._writing: asyncio.Task[list[int | OverflowError]] | None = None
        self._under_way: list[_Addition] = []  # those that the present write carries out together
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
            Tasks that share this object add in the order of their calls; those that wait while a write is under way
            share the next one.

        Requests:
            One (multi), except for the first add, when no other client adds meanwhile; two more for each addition of
            another client that came first.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"only a whole number can be added to {self.path}, not {n!r}")
        encoded(n, self.size, self.path)
        addition = _Addition(n, asyncio.get_running_loop().create_future())
        self._waiting.append(addition)
        if self._writing is None:
            self._write_waiting()
        try:
            return await addition.total
        except asyncio.CancelledError:
            if self._writing is not None and all(each.total.cancelled() for each in self._under_way):
                self._writing.cancel()
            raise

    def _write_waiting(self) -> None:
        """Carry out the additions that wait, in a task of its own: the end of one caller must not end the others."""
        self._under_way, self._waiting = [each for each in self._waiting if not each.total.done()], []
        self._writing = None
        if self._under_way:
            self._writing = asyncio.get_running_loop().create_task(self._write(self._under_way))
            self._writing.add_done_callback(self._has_written)

    def _has_written(self, writing: asyncio.Task[list[int | OverflowError]]) -> None:
        for index, addition in enumerate(self._under_way):
            if writing.cancelled():
                addition.total.cancel()
            elif addition.total.done():
                continue
            elif (error := writing.exception()) is not None:
                # Each gets an error of its own: if all raised one object, each would add its traceback to it.
                addition.total.set_exception(copy(error))
            elif isinstance(total := writing.result()[index], int):
                addition.total.set_result(total)
            else:
                addition.total.set_exception(total)
        self._write_waiting()

    async def _write(self, additions: Sequence[_Addition]) -> list[int | OverflowError]:
        """Write the sum of `additions`; return the new value after each, or the error of one that does not fit."""
        loop = asyncio.get_running_loop()
        losses = 0  # to clients that wrote between our read and our write
        while True:
            known, self._known = self._known, None  # if the write fails, the next add reads the node
            is_fresh = known is None
            if known is None:
                zero = encoded(0, self.size, self.path)
                node = await read_or_create(self._zk, self.path, zero, self._acl)
                known = self._value_of(node), node.stat.version
            value, version = known
            totals = self._add_up(additions, value)
            values = [total for total in totals if isinstance(total, int)]
            began = loop.time()
            if not values:
                if is_fresh:
                    return totals  # otherwise another client may have subtracted something meanwhile
            elif await self._writer.write(encoded(values[-1], self.size, self.path), version):
                self._known = values[-1], version + 1
                return totals
            elif is_fresh:  # a value that was out of date already is no sign of another client that adds at this moment
                losses += 1
                share = int(self._zk.unique_id()[:8], 16) / 2**32
                await asyncio.sleep(share * min(2**losses, _LONGEST_PAUSE) * min(loop.time() - began, _SLOW))

    def _add_up(self, additions: Sequence[_Addition], value: int) -> list[int | OverflowError]:
        """Return the new value after each addition, beginning from `value`; the error of one that does not fit."""
        totals: list[int | OverflowError] = []
        for addition in additions:
            try:
                encoded(value + addition.n, self.size, self.path)
            except OverflowError as error:
                totals.append(error)
            else:
                value += addition.n
                totals.append(value)
        return totals

    async def get(self) -> int:
        """Return the value, 0 if the node is missing.

        Raises:
            ValueError: if the node holds no counter.

        Order:
            Includes everything that this client added before.  Additions of other clients may be missing; to include
            them, call `zk.sync` first.

        Requests:
            getData.
        """
        try:
            return self._value_of(await until_answered(self._zk, lambda: self._zk.get(self.path)))
        except NoNodeError:
            return 0

    def watch(self) -> CounterStream:
        """Return a stream of the value, now and after each change, 0 while the node is missing.

        The iteration raises the errors of DecodedStream, and ValueError if the node does not hold a counter.
        """
        return CounterStream(self._zk, self.path, self._value_of)

    def _value_of(self, node: Node | None) -> int:
        return 0 if node is None else decoded(node.data, self.size, self.path)


class CounterStream(DecodedStream[int]):
    """The values of a counter; made by `Counter.watch`."""
