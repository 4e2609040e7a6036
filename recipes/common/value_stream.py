"""Streams that give what a node means, now and after each change, on top of zkwire's stream of its data."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

from zkwire import Client, Node

T = TypeVar("T")


class DecodedStream(Generic[T]):
    """What the node at `path` means, now and after each change: `async for value in counter.watch()`.

    Of changes in quick succession some may be left out, the last one never; a reconnect, or a new session after an
    expiry, is not noticed.  Leave a loop by `break` as you like; who keeps the stream in a variable closes it, by
    `close()` or by `async with`.
    Raises, from the iteration: SessionExpiredError (only with `renew=False`), SessionClosedError, NoAuthError.
    Cancellation: of the wait for the next value removes the watch from the server; it may be taken up again.
    """

    def __init__(self, zk: Client, path: str) -> None:
        self._nodes = zk.data(path)
        self._is_missing = False  # and nobody was told: it was not yet tried, or in vain, to make it

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do as `close`, for contextlib.aclosing."""
        self.close()

    def close(self) -> None:
        """Give the watch up, here and on the server, and end the iteration."""
        self._nodes.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            if not self._is_missing:
                node = await anext(self._nodes)
                if node is not None:
                    return self._meaning(node)
                self._is_missing = True
            was_made = await self._made()
            self._is_missing = False
            if not was_made:
                return self._meaning(None)

    async def _made(self) -> bool:
        """Make the node, which is missing, if that is how it should be; return whether it was made."""
        return False

    @abstractmethod
    def _meaning(self, node: Node | None) -> T:
        """Return what `node` means, None ticket for one that is missing."""
