"""A stream of the decoded value of a node, on top of zkwire's stream of the node's data."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

from recipes.common.retrying import until_answered
from zkwire import Client, Node

T = TypeVar("T")


class DecodedStream(Generic[T]):
    """The decoded value of the node at `path`, now and after each change: `async for value in counter.watch()`.

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

    def __init__(self, zk: Client, path: str) -> None:
        self._zk = zk
        self._nodes = zk.data(path)
        # The last state read is "missing", and it has not been handled: creating the node was cancelled or has failed.
        self._is_missing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do the same as `close`; for contextlib.aclosing."""
        self.close()

    def close(self) -> None:
        """Remove the watch, here and on the server, and end the iteration."""
        self._nodes.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            if not self._is_missing:
                node = await until_answered(self._zk, self._nodes.__anext__)
                if node is not None:
                    return self._decode(node)
                self._is_missing = True
            was_created = await self._create_missing()
            self._is_missing = False
            if not was_created:
                return self._decode(None)

    async def _create_missing(self) -> bool:
        """Create the missing node, if the recipe wants that; return whether it was created."""
        return False

    @abstractmethod
    def _decode(self, node: Node | None) -> T:
        """Return the value of `node`, where None stands for a missing node."""
