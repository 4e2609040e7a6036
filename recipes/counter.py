"""A counter that everybody may add to, none of whose additions is lost or done twice.

Knows how a number stands in a node's data, and how to go on when somebody else was faster; that a write is carried out
once is the affair of `recipes.common.exact_writer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from recipes.common.exact_writer import ExactWriter
from recipes.common.shared_nodes import read_or_make
from recipes.common.value_stream import DecodedStream
from zkwire import ACL, OPEN_ACL, Client, Node, NoNodeError, validate_path

SIZES: Final = (8, 4)


def encoded(value: int, size: int, path: str) -> bytes:
    """Return `value` as a counter of `size` bytes stores it: signed, big-endian.  Raises: OverflowError."""
    try:
        return value.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise OverflowError(f"{value} does not fit into the counter {path}, which has {size} bytes") from None


def decoded(data: bytes, size: int, path: str) -> int:
    """Return the number that `data` stands for, 0 for no data.  Raises: ValueError when it is no such number."""
    if not data:
        return 0
    if len(data) != size:
        raise ValueError(
            f"{path} holds {len(data)} bytes, which is no counter of {size} (Curator's DistributedAtomicLong has 8, its"
            " SharedCount 4: say which by size=)"
        )
    return int.from_bytes(data, "big", signed=True)


class _Known(NamedTuple):
    """What stood in the node when we last knew, and its version."""

    value: int
    version: int


class Counter:
    """A whole number kept in a node, to which everybody may add.

        counter = Counter(zk, "/orders/count")
        number = await counter.add(1)             # the new value; no other add of 1 gives the same
        async for value in counter.watch(): ...   # now and after each change

    Arguments: `path`, the node, made persistent with 0 in it by the first `add` when it is missing; `size`, of the
    number in bytes: 8 shares a node with Curator's DistributedAtomicLong, 4 with its SharedCount and
    DistributedAtomicInteger; `acl`, of every node that is made.
    Do not delete the node of a counter that is in use: what was counted is gone with it.
    """

    def __init__(self, zk: Client, path: str, *, size: int = 8, acl: Sequence[ACL] = OPEN_ACL) -> None:
        if isinstance(size, bool) or size not in SIZES:
            raise ValueError(f"size is 8 or 4 bytes, not {size!r}")
        self._zk = zk
        self.path = validate_path(path)
        self.size = size
        self._acl = acl
        self._writer = ExactWriter(zk, self.path, acl=acl)
        self._turn = asyncio.Lock()
        self._known: _Known | None = None

    async def add(self, n: int = 1) -> int:
        """Add `n`, which may be negative, and return the new value.

        Exactly once, though a connection breaks: what became of a write that lost its answer is found out.  While
        others add too it is tried again until it succeeds; tasks that share this object have their turns in the order
        of their calls.
        Raises: OverflowError when the new value does not fit; ConnectionLostError with `maybe_applied` only when the
        session expires before that was found out; ValueError when the node holds no counter; TypeError.
        Cancellation: it may have been added.
        Requests: one (multi), after the first, when nobody else adds meanwhile; otherwise two more each time.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"only a whole number can be added to {self.path}, not {n!r}")
        encoded(n, self.size, self.path)
        async with self._turn:
            while True:
                known = self._known or self._read(await read_or_make(self._zk, self.path, self._zero, self._acl))
                self._known = None  # until it is known what came of it
                value = known.value + n
                if await self._writer.write(encoded(value, self.size, self.path), known.version):
                    self._known = _Known(value, known.version + 1)
                    return value

    async def get(self) -> int:
        """Return the value, 0 when there is no node (request: getData).

        Raises: ValueError when the node holds no counter.
        Order: what this client has added before is in it; what others have may not be yet: `zk.sync` before it.
        """
        try:
            return self._read(await self._zk.get(self.path)).value
        except NoNodeError:
            return 0

    def watch(self) -> CounterStream:
        """Return the value now and after each change, 0 while there is no node, to be iterated; see Watching.

        Raises, from the iteration: also ValueError when the node holds no counter.
        """
        return CounterStream(self._zk, self)

    def meaning(self, node: Node | None) -> int:
        """Return the value that stands in `node`."""
        return 0 if node is None else self._read(node).value

    @property
    def _zero(self) -> bytes:
        return encoded(0, self.size, self.path)

    def _read(self, node: Node) -> _Known:
        return _Known(decoded(node.data, self.size, self.path), node.stat.version)


class CounterStream(DecodedStream[int]):
    """The values of a counter; made by `Counter.watch`."""

    def __init__(self, zk: Client, counter: Counter) -> None:
        super().__init__(zk, counter.path)
        self._counter = counter

    def _meaning(self, node: Node | None) -> int:
        return self._counter.meaning(node)
