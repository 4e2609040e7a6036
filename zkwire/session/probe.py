"""The one question that a client of a server without a quorum asks the others: can you write?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from zkwire.session.hosts import Address
from zkwire.session.transport import Link, OpenLink

_WORD: Final = b"isro"
_YES: Final = b"rw"
_ROOM: Final = 256  # for the answer, of which two bytes matter


async def can_write(open_link: OpenLink, address: Address, limit: float) -> bool:
    """Return whether the server at `address` says, within `limit` seconds, that it can write (word: isro).

    Raises: nothing for a server that cannot be reached or does not answer: it cannot.
    Cancellation: leaves no socket.
    """
    word: _Word | None = None

    def make() -> _Word:
        nonlocal word
        word = _Word()
        return word

    try:
        async with asyncio.timeout(limit):
            # Whoever opens connections is told what to do with the bytes, and has no other business with it.
            await open_link(cast(Callable[[], Link], make), address.host, address.port)
            assert word is not None
            return await word.answer == _YES
    except OSError:  # TimeoutError is one
        return False
    finally:
        if word is not None:
            word.close()


class _Word(asyncio.BufferedProtocol):
    """Says the word and gathers the answer, which ends with the stream."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(_ROOM))
        self._said = b""

    def close(self) -> None:
        """Drop the connection, if there is one."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_WORD)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._said = (self._said + bytes(self._view[:nbytes]))[:_ROOM]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_result(self._said)
