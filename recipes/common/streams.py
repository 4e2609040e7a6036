"""Streams of values that recipes read, on top of zkwire's ValueStream: they go on after transient refusals."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import zkwire
from recipes.common.retrying import until_answered
from zkwire import Client, Node, SessionState

T = TypeVar("T")


class RecipeStream(zkwire.ValueStream[T]):
    """The base class of the streams of recipes.

    Args:
        path: The recipe's node.
    """

    def __init__(self, zk: Client, path: str) -> None:
        super().__init__(path, lambda: zk.state is SessionState.EXPIRED)
        self._zk = zk.unlimited

    async def __anext__(self) -> T:
        return await until_answered(self._zk, super().__anext__)

    async def _is_missing(self) -> bool:
        """Leave a watch for the creation of the node; return False if it was created since its last read."""
        stat, _ = await self._zk.exists_and_watch(self.path, into=self._watches)
        return stat is None


class DecodedStream(RecipeStream[T]):
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
        super().__init__(zk, path)
        self._decode = decode
        self._create = create  # creates a missing node; without it, `decode` gets None for one

    async def __anext__(self) -> T:
        # Not in `_look`: after data that cannot be decoded, the next call waits for other data.
        node: Any = await super().__anext__()
        return self._decode(node)

    async def _look(self) -> tuple[object, Any]:
        while True:
            found = await self._found(self._zk.get_and_watch(self.path, into=self._watches))
            if found is not None:
                node, _ = found
                return (node.stat.czxid, node.stat.mzxid), node
            if self._create is not None:
                await self._create()
            elif await self._is_missing():
                return None, None
