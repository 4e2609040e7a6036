"""One TCP connection of the in-memory server: it turns bytes into frames and frames into writes.

Decides nothing about requests or faults: that is the task of its owner, the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, cast

from zkwire.testing.memory.clock import Clock, Timer
from zkwire.testing.memory.faults import Fault, Hold
from zkwire.testing.memory.machine import ServerConnection
from zkwire.wire.frames import FrameReader

_READ_SIZE: Final = 8 * 1024  # bytes; each connection has such a buffer, so it is small
_LARGE: Final = 4 * 1024  # bytes; a reply of this size is written at once
_UNSENT_LIMIT: Final = 4 * 1024 * 1024  # bytes; while more output waits, the client's requests are not carried out
_WORD_SIZE: Final = 4


class LinkOwner(Protocol):
    """The interface of the server that a ServerLink calls, in the same turn of the loop in which something happens."""

    clock: Clock
    is_paused: bool

    def _link_opened(self, link: ServerLink, peer: str, port: int) -> None: ...

    def _link_began(self, link: ServerLink, word: bytes) -> bytes | None: ...

    def _link_received(self, link: ServerLink, payload: bytes) -> None: ...

    def _link_lost(self, link: ServerLink) -> None: ...

    def _flush(self) -> None: ...


class _Kept(NamedTuple):
    """Output that waits until its time has come and the faults that hold it have ended."""

    data: bytes
    ready_at: float
    faults: list[Hold]
    closing: bool


class ServerLink(asyncio.BufferedProtocol):
    """A client's connection; `closed` is done once the socket is closed.

    Args:
        owner: The server.
        max_buffer: The largest frame that is accepted, in bytes.
    """

    def __init__(self, owner: LinkOwner, max_buffer: int) -> None:
        self.connection: ServerConnection | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(_READ_SIZE))
        self._reader = FrameReader(max_buffer)
        self._beginning: bytes | None = b""  # the first bytes, until they are known to be a four-letter word or not
        self._pending: deque[bytes] = deque()  # frames that were read and not yet carried out
        self._is_over = False
        self._kept: deque[_Kept] = deque()
        self._kept_size = 0
        self._timer: Timer | None = None

    # -- what comes in ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:  # the server was stopped between accept and now
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        if peer is None:  # the client has disconnected already
            self.drop()
            return
        self._owner._link_opened(self, peer[0], peer[1])
        # Not now: Python 3.11.2 and uvloop begin to read when connection_made has returned, even after a pause in it.
        asyncio.get_running_loop().call_soon(self._read_or_wait)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._view[:nbytes])
        if self._beginning is not None:
            data = self._beginning + data
            if len(data) < _WORD_SIZE:
                self._beginning = data
                return
            self._beginning = None
            answer = self._owner._link_began(self, data[:_WORD_SIZE])
            if answer is not None:
                self._write(answer, closing=True)
                return
        self._pending.extend(self._reader.feed(data))
        self.go_on()

    def go_on(self) -> None:
        """Hand over the pending frames while nothing blocks, then continue or pause reading."""
        while self._pending and not self._is_over and not self._is_blocked():
            self._owner._link_received(self, self._pending.popleft())
            if self.connection is not None and self.connection.outgoing and len(self.connection.outgoing[-1]) > _LARGE:
                self._owner._flush()  # this shows whether the client reads; if it does not, the rest must wait
        self._owner._flush()
        if self._reader.error is not None and not self._pending and not self._is_over:
            self._write(b"", closing=True)
        self._read_or_wait()

    def eof_received(self) -> None:
        self._is_over = True

    def resume_writing(self) -> None:
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self.closed.set_result(None)

    # -- what goes out ------------------------------------------------------------------------------------

    def send(self, frames: Iterable[bytes], faults: Sequence[Fault], *, closing: bool) -> None:
        """Write frames when `faults` let them out and all earlier output is written; then close if `closing`."""
        data = b"".join(frames)
        if self._is_over:
            return
        if not faults and not self._kept and not self._owner.is_paused:
            self._write(data, closing=closing)
            return
        delay = max((fault.seconds for fault in faults), default=0.0)
        holds = [fault for fault in faults if isinstance(fault, Hold)]
        self._kept.append(_Kept(data, self._owner.clock.time() + delay, holds, closing))
        self._kept_size += len(data)
        self.let_out()

    def let_out(self) -> None:
        """Write the output that is no longer kept back, and continue reading if the kept output had blocked it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        was_blocked = self._is_blocked()
        while self._kept and not self._owner.is_paused:
            first = self._kept[0]
            if not all(fault.is_over for fault in first.faults):
                break
            if first.ready_at > self._owner.clock.time():
                self._timer = self._owner.clock.call_at(first.ready_at, self.let_out)
                break
            self._kept.popleft()
            self._kept_size -= len(first.data)
            self._write(first.data, closing=first.closing)
        if was_blocked and not self._is_blocked():
            self.go_on()

    def drop(self) -> None:
        """Close the socket at once; unwritten output is lost."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes, *, closing: bool) -> None:
        if self._is_over or self._transport is None:
            return
        self._transport.write(data)
        if closing:
            self._is_over = True
            self._transport.close()

    def _end(self) -> None:
        self._is_over = True
        self._pending.clear()
        self._kept.clear()
        self._kept_size = 0
        if self._timer is not None:
            self._timer.cancel()
        self._owner._link_lost(self)

    def _is_blocked(self) -> bool:
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._owner.is_paused or self._kept_size + written > _UNSENT_LIMIT

    def _read_or_wait(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._pending or self._is_over or self._is_blocked():
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
