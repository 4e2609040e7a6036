"""Ask a server something without a session: whether it can write, and whether it speaks TLS."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final, cast

from zkwire.session.hosts import Address, Hosts
from zkwire.session.transport import Link, OpenLink
from zkwire.wire import timing

_WORD: Final = b"isro"
_YES: Final = b"rw"
_ROOM: Final = 256  # bytes, for the answer to the word, of which two matter

# A ClientHello of TLS 1.2 that offers one cipher.  Every server for TLS answers it with a TLS record: with its own
# hello, or with an alert.  A ZooKeeper server without TLS reads a much too large length, and closes the connection.
_HELLO: Final = (
    b"\x16\x03\x01\x00\x2d"  # a record of the handshake, TLS 1.0 as usual for the first one, 45 bytes
    b"\x01\x00\x00\x29\x03\x03" + bytes(32) + b"\x00"  # ClientHello, 41 bytes, TLS 1.2, random, no session to resume
    b"\x00\x02\xc0\x2f\x01\x00"  # one cipher, no compression
)
_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # the first bytes of an alert, and of a handshake
_HELLO_WITHIN: Final = 1.0  # seconds


async def find_writable(
    open_link: OpenLink, hosts: Hosts, here: Address, timeout: float, lost: asyncio.Future[Exception]
) -> bool:
    """Ask the servers other than `here` until one can write, and prefer it; return False when `lost` is done first.

    Arguments: `open_link`, which opens connections; `hosts`, the servers; `timeout`, the session timeout in seconds;
    `lost`, a future that is done when the session's link to `here` is lost.
    Cancellation: leaves no socket.
    """
    for rounds in itertools.count():
        await asyncio.wait({lost}, timeout=hosts.jittered(timing.ask_again_after(rounds, timeout)))
        for other in hosts.others(here):
            if lost.done():
                return False
            if await _can_write_before(open_link, other, timing.connect_within(timeout, len(hosts)), lost):
                hosts.prefer(other)
                return not lost.done()
        if lost.done():
            return False
    raise AssertionError


async def _can_write_before(
    open_link: OpenLink, address: Address, limit: float, lost: asyncio.Future[Exception]
) -> bool:
    """Return as `can_write`; False when `lost` is done first."""
    asking = asyncio.get_running_loop().create_task(can_write(open_link, address, limit))
    either: set[asyncio.Future[Any]] = {asking, lost}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asking.cancel()
        await asyncio.wait({asking})  # until its socket is closed
    return not asking.cancelled() and asking.result()


async def can_write(open_link: OpenLink, address: Address, limit: float) -> bool:
    """Return whether the server at `address` answers the four-letter word "isro" with "rw" within `limit` seconds.

    Raises: nothing for a server that cannot be reached or does not answer; the result is then False.
    Cancellation: leaves no socket.
    """
    return await _ask(open_link, address, limit, _WORD, _ROOM) == _YES


async def speaks_tls(open_link: OpenLink, address: Address) -> bool:
    """Return whether the server at `address` answers the beginning of a TLS handshake.

    Arguments: `open_link`, which opens connections without TLS.
    Raises: nothing for a server that cannot be reached or does not answer; the result is then False.
    Cancellation: leaves no socket.
    """
    return await _ask(open_link, address, _HELLO_WITHIN, _HELLO, len(_RECORDS[0])) in _RECORDS


async def _ask(open_link: OpenLink, address: Address, limit: float, question: bytes, room: int) -> bytes:
    """Return the first `room` bytes that the server sends after `question`, or all that it sends before it closes.

    Nothing for a server that cannot be reached, or does not answer within `limit` seconds.
    """
    protocol: _Question | None = None

    def make() -> _Question:
        nonlocal protocol
        protocol = _Question(question, room)
        return protocol

    try:
        async with asyncio.timeout(limit):
            # `open_link` only opens the connection and does not look at the protocol, so this cast is safe.
            await open_link(cast(Callable[[], Link], make), address.host, address.port)
            assert protocol is not None
            return await protocol.answer
    except OSError:  # TimeoutError is a subclass
        return b""
    finally:
        if protocol is not None:
            protocol.close()


class _Question(asyncio.BufferedProtocol):
    """Sends a question and collects the answer, which ends after `room` bytes or with the stream."""

    def __init__(self, question: bytes, room: int) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._question = question
        self._room = room
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(room))
        self._received = b""

    def close(self) -> None:
        """Drop the connection, if there is one."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._question)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._received = (self._received + bytes(self._view[:nbytes]))[: self._room]
        if len(self._received) == self._room:
            self._answered()

    def connection_lost(self, exc: Exception | None) -> None:
        self._answered()

    def _answered(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self._received)
