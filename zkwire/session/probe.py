"""Ask servers by four-letter words: anything, which of them can write, and which one is not the leader."""

import asyncio
from typing import Any, Final, cast

from zkwire.session.closing import end_tasks
from zkwire.session.hosts import Address, Hosts
from zkwire.session.transport import Link, OpenLink
from zkwire.wire import timing

_ROOM: Final = 2048  # bytes, for the answer: that to "srvr" has some 300
_READ_SIZE: Final = 64 * 1024


async def find_writable(
    open_link: OpenLink, hosts: Hosts, here: Address, timeout: float, lost: asyncio.Future[Exception]
) -> bool:
    """Ask the servers other than `here` until one can write, and prefer it; return False when `lost` is done first.

    `lost` is done when the session's link to `here` is lost; `timeout` is the session timeout, in seconds.
    Cancellation: leaves no socket.
    """
    finding = asyncio.get_running_loop().create_task(_find_writable(open_link, hosts, here, timeout))
    either: set[asyncio.Future[Any]] = {finding, lost}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks({finding})  # its socket is closed then
    return not lost.done() and finding.result()


async def _find_writable(open_link: OpenLink, hosts: Hosts, here: Address, timeout: float) -> bool:
    rounds = 0
    while True:
        await asyncio.sleep(hosts.jittered(timing.ask_again_after(rounds, timeout)))
        rounds += 1
        for other in hosts.others(here):
            if await can_write(open_link, other, timing.connect_within(timeout, len(hosts))):
                hosts.prefer(other)
                return True


async def can_write(open_link: OpenLink, address: Address, limit: float) -> bool:
    """Return whether the server at `address` answers the four-letter word "isro" with "rw" within `limit` seconds.

    Cancellation: leaves no socket.
    """
    return await _ask(open_link, address, b"isro", limit) == b"rw"


async def is_learner(open_link: OpenLink, address: Address, limit: float) -> bool:
    """Return whether the server at `address` answers "srvr" within `limit` seconds, and is a follower or an observer.

    Cancellation: leaves no socket.
    """
    answer = await _ask(open_link, address, b"srvr", limit)
    return not {b"Mode: follower", b"Mode: observer"}.isdisjoint(answer.splitlines())


async def _ask(open_link: OpenLink, address: Address, word: bytes, limit: float) -> bytes:
    """Return the answer to a four-letter word, as far as it matters; b"" if there is none within `limit` seconds."""
    try:
        async with asyncio.timeout(limit):
            return bytes(await ask(open_link, address, word, _ROOM))
    except OSError:  # TimeoutError is a subclass
        return b""


async def ask(open_link: OpenLink, address: Address, word: bytes, most: int) -> bytearray:
    """Return the answer of the server at `address` to a four-letter word, or the first `most` bytes of a longer one.

    Raises: OSError.
    Cancellation: leaves no socket.
    """
    protocol = _WordProtocol(word, most)
    try:
        # `open_link` only opens the connection and does not look at the protocol, so this cast is safe.
        await open_link(lambda: cast(Link, protocol), address.host, address.port)
        if (failure := await protocol.ended) is not None:
            raise failure
        return protocol.answer
    finally:
        protocol.close()


class _WordProtocol(asyncio.BufferedProtocol):
    """Sends the word and collects the answer, which ends with the stream or after `most` bytes."""

    def __init__(self, word: bytes, most: int) -> None:
        self._word = word
        self._most = most
        self.answer = bytearray()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(min(most, _READ_SIZE)))

    def close(self) -> None:
        """Drop the connection, if there is one."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._word)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self.answer += self._view[: min(nbytes, self._most - len(self.answer))]
        if len(self.answer) == self._most:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():  # cancelled
            self.ended.set_result(exc)
