"""Ask servers by four-letter words: which of them can write, and which one is not the leader."""

import asyncio
from typing import Any, Final, cast

from zkwire.session.closing import end_tasks
from zkwire.session.hosts import Address, Hosts
from zkwire.session.transport import Link, OpenLink
from zkwire.wire import timing

_ROOM: Final = 2048  # bytes, for the answer: that to "srvr" has some 300


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
    protocol = _WordProtocol(word)
    try:
        async with asyncio.timeout(limit):
            # `open_link` only opens the connection and does not look at the protocol, so this cast is safe.
            await open_link(lambda: cast(Link, protocol), address.host, address.port)
            return await protocol.answer
    except OSError:  # TimeoutError is a subclass
        return b""
    finally:
        protocol.close()


class _WordProtocol(asyncio.BufferedProtocol):
    """Sends the word and collects the answer, which ends with the stream."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(_ROOM))
        self._received = b""

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
        self._received = (self._received + bytes(self._view[:nbytes]))[:_ROOM]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_result(self._received)
