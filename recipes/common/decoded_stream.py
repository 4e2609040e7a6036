"""A stream of the decoded value of a node, on top of zkwire's stream of the node's data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self, TypeVar

from recipes.common.retrying import until_answered
from zkwire import Client, Node

T = TypeVar("T")


class DecodedStream(AsyncIterator[T]):
    """The decoded value of a node, now and after each change: `async for value in counter.watch()`.

    When the node changes several times in quick succession, values in between may be left out, but never the last one.
    The iteration goes on over reconnects, and in the new session after an expiry.  A loop may be left with `break` at
    any time.  If you keep the stream in a variable, close it when you are done: with `close()` or `async with`.

    Raises:
        SessionExpiredError: from the iteration, if the client does not renew its session.
        SessionClosedError: from the iteration, if the client is closed.
        NoAuthError: from the iteration, if this client may not read the node.

    Cancellation:
        Of the wait for the next value: removes the watch from the server; the iteration may go on later.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        decode: Callable[[Node | None], T],
        create: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._zk = zk
        self._decode = decode
        self._create = create  # creates a missing node; without it, `decode` gets None for one
        self._nodes = zk.data(path)
        # The last state read is "missing", and it has not been handled: creating the node was cancelled or has failed.
        self._is_missing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do the same as `close`; for contextlib.aclosing."""
        self.close()

    def close(self) -> None:
        """Remove the watch, here and on the server, and end the iteration."""
        self._nodes.close()

    async def __anext__(self) -> T:
        while True:
            if not self._is_missing:
                node = await until_answered(self._zk, self._nodes.__anext__)
                if node is not None or self._create is None:
                    return self._decode(node)
            self._is_missing = True
            assert self._create is not None
            await self._create()
            self._is_missing = False
