"""A counter in a node, to which several clients add; each addition is carried out exactly once.

This module encodes the number, combines the additions that wait at the same time into one write, and repeats a write
that came too late.  `recipes.common.exact_writer` takes care that each write is carried out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, NamedTuple

from recipes.common.decoded_stream import DecodedStream
from recipes.common.exact_writer import ExactWriter
from recipes.common.shared_nodes import read_or_create
from zkwire import ACL, OPEN_ACL, Client, Node, NoNodeError, ZooKeeperError, validate_path

SIZES: Final = (8, 4)

# A write that came too late is tried again after a random time, of at most so many times what a write takes.  Without
# this, clients that add at the same time read and write in step: each round costs all of them two requests, and one of
# them succeeds.  A longer pause saves further requests, but then single clients wait for long.  A write that has taken
# seconds was held up by a fault, and not by other clients, so it makes no long pause.
_LONGEST_PAUSE: Final = 16
_SLOW: Final = 0.05  # seconds


def encoded(value: int, size: int, path: str) -> bytes:
    """Return `value` as a counter of `size` bytes stores it: signed, big-endian.  Raises: OverflowError."""
    try:
        return value.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise OverflowError(f"{value} does not fit into the counter {path}, which has {size} bytes") from None


def decoded(data: bytes, size: int, path: str) -> int:
    """Return the number in `data`, 0 if it is empty.  Raises: ValueError when it does not have `size` bytes."""
    if not data:
        return 0
    if len(data) != size:
        raise ValueError(
            f"{path} holds {len(data)} bytes, which is no counter of {size} bytes (Curator's DistributedAtomicLong has"
            " 8, its SharedCount 4: choose with size=)"
        )
    return int.from_bytes(data, "big", signed=True)


class _Known(NamedTuple):
    """The value and the version of the node when this client last read or wrote it."""

    value: int
    version: int


@dataclass(slots=True, eq=False)
class _Addition:
    """One call of `add`; at its end it has either a `value` or an `error`."""

    n: int
    value: int | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.value is not None or self.error is not None

    def result(self) -> int:
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


class Counter:
    """A whole number in a node, to which several clients may add.

        counter = Counter(zk, "/orders/count")
        number = await counter.add(1)             # the new value; no other add of 1 returns the same
        async for value in counter.watch(): ...   # now and after each change

    Arguments: `path` of the node; the first `add` creates it, persistent and with 0 in it, if it is missing; `size` of
    the number in bytes: 8 to share the node with Curator's DistributedAtomicLong, 4 with its SharedCount and
    DistributedAtomicInteger; `acl` of every node that is created, None: all clients may use the node, and only this
    one may write its traces, if it has an identity.
    Do not delete the node while the counter is in use: the count would begin again from 0.
    """

    def __init__(self, zk: Client, path: str, *, size: int = 8, acl: Sequence[ACL] | None = None) -> None:
        if not isinstance(size, int) or size not in SIZES:
            raise ValueError(f"size is 8 or 4 bytes, not {size!r}")
        self._zk = zk
        self.path = validate_path(path)
        self.size = size
        self._acl = OPEN_ACL if acl is None else acl
        self._writer = ExactWriter(zk, self.path, acl=acl)
        self._adding = asyncio.Lock()  # held by the task whose write is under way; the others wait in their order
        self._waiting: list[_Addition] = []  # for the next write
        self._shared_write: asyncio.Task[None] | None = None  # of several additions, while it is under way
        self._sharing: list[_Addition] = []  # those of its additions whose callers wait
        self._known: _Known | None = None

    async def add(self, n: int = 1) -> int:
        """Add `n`, which may be negative, and return the new value.

        `n` is added exactly once, even if a connection breaks: when an answer is lost, the client finds out whether
        the write was carried out.  When another client adds at the same moment, the addition is repeated until it
        succeeds.  Tasks that share this object add in the order of their calls; those that wait while a write is under
        way share the next one.
        Raises: OverflowError when the new value does not fit; ConnectionLostError with `maybe_applied` only when an
        answer was lost and the session expired before its outcome was known; NoAuthError, also when this client may
        write the node but not create its trace below it; ValueError when the node holds no counter; TypeError.
        Cancellation: `n` may have been added; it is not added later, unless it shares a write with additions whose
        callers go on waiting.
        Requests: one (multi), except for the first add, when no other client adds meanwhile; two more for each
        addition of another client that came first.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"only a whole number can be added to {self.path}, not {n!r}")
        encoded(n, self.size, self.path)
        addition = _Addition(n)
        self._waiting.append(addition)
        try:
            async with self._adding:
                while self._shared_write is not None:  # its first task was cancelled; the write goes on
                    await asyncio.wait([self._shared_write])
                if not addition.is_done:
                    await self._write_waiting()
        except BaseException:
            self._withdraw(addition)
            raise
        return addition.result()

    def _withdraw(self, addition: _Addition) -> None:
        """Take note that the caller of `addition` was cancelled; end the shared write if no other caller waits."""
        if addition in self._waiting:  # its write has not begun
            self._waiting.remove(addition)
        elif addition in self._sharing:
            self._sharing.remove(addition)
            if not self._sharing and self._shared_write is not None:
                self._shared_write.cancel()

    async def _write_waiting(self) -> None:
        """Carry out the additions that wait, the caller's among them; an error of several is in each of them."""
        additions, self._waiting = self._waiting, []
        if len(additions) == 1:
            await self._write(additions)
            return
        # In a task of its own: the cancellation of the caller must not end the additions of the others.
        self._sharing = list(additions)
        self._shared_write = asyncio.get_running_loop().create_task(self._write_for_all(additions))
        await asyncio.shield(self._shared_write)

    async def _write_for_all(self, additions: Sequence[_Addition]) -> None:
        try:
            await self._write(additions)
        except (ZooKeeperError, ValueError, RuntimeError) as error:
            for addition in additions:
                # Each gets an error of its own: if all raised one object, each would add its traceback to it.
                addition.value, addition.error = None, copy(error)
        finally:
            self._shared_write = None
            self._sharing = []

    async def _write(self, additions: Sequence[_Addition]) -> None:
        """Write the sum of `additions` and give each its value, or the OverflowError of its own."""
        loop = asyncio.get_running_loop()
        losses = 0  # to clients that wrote between our read and our write
        while True:
            known, self._known = self._known, None  # if the write fails, the next add reads the node
            is_fresh = known is None
            if known is None:
                known = self._read(await read_or_create(self._zk, self.path, self._zero, self._acl))
            value = self._add_up(additions, known.value)
            if value is None:
                if is_fresh:
                    return
                continue  # another client may have subtracted something meanwhile
            began = loop.time()
            if await self._writer.write(encoded(value, self.size, self.path), known.version):
                self._known = _Known(value, known.version + 1)
                return
            # A value that was out of date already is no sign of another client that adds at this moment.
            if is_fresh:
                losses += 1
                share = int(self._zk.unique_id()[:8], 16) / 2**32
                await asyncio.sleep(share * min(2**losses, _LONGEST_PAUSE) * min(loop.time() - began, _SLOW))

    def _add_up(self, additions: Sequence[_Addition], value: int) -> int | None:
        """Give each addition its value, beginning from `value`; return the last one, None if none of them fits."""
        fits = False
        for addition in additions:
            try:
                encoded(value + addition.n, self.size, self.path)
            except OverflowError as error:
                addition.value, addition.error = None, error
            else:
                value += addition.n
                addition.value, addition.error = value, None
                fits = True
        return value if fits else None

    async def get(self) -> int:
        """Return the value, 0 if the node is missing (request: getData).

        Raises: ValueError when the node holds no counter.
        Order: includes everything that this client added before.  Additions of other clients may be missing; to
        include them, call `zk.sync` first.
        """
        try:
            return self._read(await self._zk.get(self.path)).value
        except NoNodeError:
            return 0

    def watch(self) -> CounterStream:
        """Return a stream of the value, now and after each change, 0 while the node is missing.

        Raises, from the iteration: as DecodedStream; also ValueError when the node holds no counter.
        """
        return CounterStream(self._zk, self.path, self._value_of)

    def _value_of(self, node: Node | None) -> int:
        return 0 if node is None else self._read(node).value

    @property
    def _zero(self) -> bytes:
        return encoded(0, self.size, self.path)

    def _read(self, node: Node) -> _Known:
        return _Known(decoded(node.data, self.size, self.path), node.stat.version)


class CounterStream(DecodedStream[int]):
    """The values of a counter; made by `Counter.watch`."""

    def __init__(self, zk: Client, path: str, value_of: Callable[[Node | None], int]) -> None:
        super().__init__(zk, path)
        self._value_of = value_of

    def _decode(self, node: Node | None) -> int:
        return self._value_of(node)
