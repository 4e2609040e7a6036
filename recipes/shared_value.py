"""A value in a node that everybody may read, set, and replace on the condition that nobody else has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recipes.common.exact_writer import ANY_VERSION, ExactWriter
from recipes.common.shared_nodes import read_or_make
from recipes.common.value_stream import DecodedStream
from zkwire import ACL, OPEN_ACL, Client, Node, validate_path


class SharedValue:
    """Some bytes kept in a node, as Curator's SharedValue keeps them.

        value, version = await shared.get()
        if not await shared.compare_and_set(b"new", version=version): ...    # somebody else was faster
        async for value, version in shared.watch(): ...                      # now and after each change

    Arguments: `path`, the node, made persistent with `initial` in it when it is missing, by whatever is asked of it;
    `acl`, of every node that is made.
    """

    def __init__(self, zk: Client, path: str, initial: bytes = b"", *, acl: Sequence[ACL] = OPEN_ACL) -> None:
        self._zk = zk
        self.path = validate_path(path)
        self._initial = self._checked(initial)
        self._acl = acl
        self._writer = ExactWriter(zk, self.path, acl=acl)
        self._turn = asyncio.Lock()

    async def get(self) -> tuple[bytes, int]:
        """Return the value and its version, which grows by one with each write (request: getData).

        Order: what this client has set before is in it; what others have may not be yet: `zk.sync` before it.
        """
        node = await self.node()
        return node.data, node.stat.version

    async def set(self, value: bytes) -> None:
        """Replace the value, whatever it is (request: multi).

        Exactly once, though a connection breaks: what others set meanwhile is not replaced by a second writing.
        Raises: ConnectionLostError with `maybe_applied` only when the session expires before it was found out what
        became of a write that lost its answer; TypeError.
        Cancellation: it may have been set.
        """
        self._checked(value)
        async with self._turn:
            while not await self._writer.write(value, ANY_VERSION):
                await self.node()

    async def compare_and_set(self, value: bytes, *, version: int) -> bool:
        """Replace the value if its version is `version`, as `get` has told it, and return whether it was (request:
        multi).

        Raises, Cancellation: as `set`; ValueError for a negative version.
        """
        self._checked(value)
        if isinstance(version, bool) or not isinstance(version, int):
            raise TypeError(f"version is a whole number, not {version!r}")
        if version < 0:
            raise ValueError(f"version is what `get` has told, from 0, not {version!r}; `set` replaces any")
        async with self._turn:
            if await self._writer.write(value, version):
                return True
            # Whoever has not read it yet may take it for granted that it begins with the version 0.
            return version == 0 and await self._is_new() and await self._writer.write(value, version)

    def watch(self) -> SharedValueStream:
        """Return the value and its version, now and after each change, to be iterated; see Watching."""
        return SharedValueStream(self._zk, self)

    async def node(self) -> Node:
        """Read the node, and make it if it is missing."""
        return await read_or_make(self._zk, self.path, self._initial, self._acl)

    async def _is_new(self) -> bool:
        return (await self.node()).stat.version == 0

    def _checked(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"the value of {self.path} is bytes, not {value!r}")
        return value


class SharedValueStream(DecodedStream[tuple[bytes, int]]):
    """The values of a SharedValue; made by `SharedValue.watch`."""

    def __init__(self, zk: Client, shared: SharedValue) -> None:
        super().__init__(zk, shared.path)
        self._shared = shared

    async def _made(self) -> bool:
        await self._shared.node()
        return True

    def _meaning(self, node: Node | None) -> tuple[bytes, int]:
        assert node is not None
        return node.data, node.stat.version
