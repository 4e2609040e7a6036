"""A value in a node that several clients read, set, and replace on the condition that no other client has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recipes.common.checks import check_number, checked_client, checked_data
from recipes.common.receipts import ANY_VERSION, ExactWriter
from recipes.common.shared_nodes import read_or_create
from recipes.common.streams import DecodedStream
from zkwire import ACL, OPEN_ACL, Client, Node, validate_path


class SharedValue:
    """Some bytes in a node, stored as Curator's SharedValue stores them.

    ::

        value, version = await shared.get()
        if not await shared.compare_and_set(b"new", version=version): ...    # another client was faster
        async for value, version in shared.watch(): ...                      # now and after each change

    Args:
        path: The node; the method that is called first creates it, if it is missing.
        initial: Its value then.
        acl: The ACL of every node that is created.  None: all clients may use the node, and only this one may write its
            write receipts, if it has an identity.
    """

    def __init__(self, zk: Client, path: str, initial: bytes = b"", *, acl: Sequence[ACL] | None = None) -> None:
        self._zk = checked_client(zk)
        self.path: str = validate_path(path)
        self._initial = checked_data(initial)
        self._acl = OPEN_ACL if acl is None else acl
        self._writer = ExactWriter(zk, self.path, acl=acl)
        self._writing = asyncio.Lock()  # held by the task whose write is under way; the others wait in their order

    async def get(self) -> tuple[bytes, int]:
        """Return the value and its version, which grows by one with each write.

        Order:
            Includes everything that this client set before.  Writes of other clients may be missing; to include them,
            call `zk.sync` first.

        Requests:
            getData.
        """
        return _decoded(await self._read_or_create())

    async def set(self, value: bytes) -> None:
        """Replace the value, whatever it is.

        The value is written exactly once, even if a connection breaks: a repeated write never replaces what another
        client has set since the first one.

        Raises:
            ConnectionLostError: with `maybe_applied`, if an answer was lost and the session expired before the outcome
                of the write was known.
            NoAuthError: if this client may not write the node, or not create its write receipt below it.
            TypeError: if `value` is not bytes.

        Cancellation:
            The value may have been set.

        Requests:
            multi.
        """
        checked_data(value)
        async with self._writing:
            while not await self._writer.write(value, ANY_VERSION):
                await self._read_or_create()

    async def compare_and_set(self, value: bytes, *, version: int) -> bool:
        """Replace the value if its version is `version`, which `get` returned; return whether it was.

        Errors and cancellation are those of `set`.

        Raises:
            ValueError: if `version` is -1, which stands for any.  Others are negative after 2**31 writes.

        Requests:
            multi.
        """
        checked_data(value)
        check_number("version is what `get` returned, never -1", version, 0 if version == ANY_VERSION else -(2**31))
        async with self._writing:
            if await self._writer.write(value, version):
                return True
            # A caller that never called `get` may assume that the value begins with version 0, so create the node.
            is_new = version == 0 and (await self._read_or_create()).stat.version == 0
            return is_new and await self._writer.write(value, version)

    def watch(self) -> SharedValueStream:
        """Return a stream of the value and its version, now and after each change; a missing node is created.

        The iteration raises the errors of DecodedStream.
        """
        return SharedValueStream(self._zk, self.path, _decoded, self._read_or_create)

    async def _read_or_create(self) -> Node:
        return await read_or_create(self._zk, self.path, self._initial, self._acl)


class SharedValueStream(DecodedStream[tuple[bytes, int]]):
    """The values of a SharedValue, each with its version; made by `SharedValue.watch`."""


def _decoded(node: Node | None) -> tuple[bytes, int]:
    assert node is not None
    return node.data, node.stat.version
