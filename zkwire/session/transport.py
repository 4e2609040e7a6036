"""The asyncio protocol around a Connection: bytes in, bytes out, a timer for its ticks.  Nothing is decided here."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, cast

from zkwire.errors import explained
from zkwire.wire import timing
from zkwire.wire.connection import Connection, Incoming

_log = logging.getLogger(__name__)

_A_MOMENT: Final = 0.001  # seconds
_READ_SIZE: Final = 64 * 1024
_BY_THE_SERVER: Final = "the server closed the connection"


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Return if `loop`, the session's, is the one that runs here.

    Raises: RuntimeError when another loop runs here, or none.  A future of the one loop that is completed in the other
    wakes no task there, so that the caller would wait for ever.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:  # a thread without a loop: asyncio does not say what to do
        running = None
    if running is not loop:
        raise RuntimeError(
            "the zkwire client belongs to another event loop: use it in the loop, and in the thread, that has connected"
            " it, and connect once for each loop"
        )


class LinkOwner:
    """What a Link calls, in the step in which each thing happens; the methods here do nothing."""

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        """Take what has arrived, in the order of the wire; the list may be empty."""

    def link_writable(self, link: Link) -> None:
        """The socket takes bytes again, after `is_blocked` was True."""

    def link_lost(self, link: Link, reason: Exception) -> None:
        """The connection is gone; called once."""


class Link(asyncio.BufferedProtocol):
    """One open socket and the Connection that speaks on it.

    A buffered protocol, because asyncio allocates a quarter of a megabyte for each read of a plain protocol, which
    costs more than decoding what arrives.

    Attributes:
        owner: What it calls; to be replaced by a LinkOwner, which does nothing, before a link is closed.
        closed: Done once the socket is closed; its result is the reason.
        is_blocked: Whether nothing more should be given to the connection: the socket's buffer is full, or the session
            is leaving this server (`is_leaving`).
        overdue_at: When the same begins, on the event loop's clock: the event loop was blocked, and the link may turn
            out to be dead.  `link_writable` is called once it has not.
    """

    def __init__(self, connection: Connection, owner: LinkOwner) -> None:
        self.connection = connection
        self.is_blocked: bool = False
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self.closed: asyncio.Future[Exception] = self._loop.create_future()
        self.owner = owner
        self._transport: asyncio.Transport | None = None
        self.peer: tuple[str, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reason: Exception | None = None
        self._view = memoryview(bytearray(_READ_SIZE))
        self.is_leaving: bool = False
        self.overdue_at: float = float("inf")
        self._is_full = self._was_late = self._has_warned = False

    @property
    def is_lost(self) -> bool:
        """Whether the link is closed, or about to be."""
        return self._reason is not None or self.closed.done()

    def hand_over(self, other: Link) -> None:
        """Give the socket, on which nothing was sent yet, to `other`; this link is closed.

        Raises: ConnectionResetError if it is closed already.
        """
        transport, self._transport = self._transport, None
        if transport is None or transport.is_closing():
            self.connection_lost(None)
            raise ConnectionResetError(_BY_THE_SERVER)
        transport.set_protocol(other)
        other.connection_made(transport)
        self.connection_lost(None)

    def flush(self) -> None:
        """Write what the connection has queued."""
        data = self.connection.data_to_send()
        if data and self._process == os.getpid():  # in a forked process the socket is the parent's
            assert self._transport is not None  # a link is used once it is connected
            self._transport.write(data)

    def release(self) -> None:
        """Begin to send pings: the SASL exchange, which no ping may interrupt, is through."""
        self.connection.is_held = False
        if self._timer is not None:
            self._timer.cancel()
        self._schedule_tick()

    def tick_earlier(self) -> None:
        """Have the next tick run when it is due now, if that is earlier than when it was due before."""
        if self._timer is not None and not self._was_late and self.connection.next_tick() < self._due:
            self._timer.cancel()
            self._schedule_tick()

    def leave(self) -> None:
        """Count as blocked from now on; what was written before, and its answers, go on."""
        self.is_blocked = self.is_leaving = True

    def stay(self) -> None:
        """Undo `leave`."""
        if self.is_leaving:
            self.is_leaving = False
            self.is_blocked = self._is_full or self.is_lost

    def abort(self, reason: Exception) -> None:
        """Close the socket at once, for `reason`; bytes that were not yet sent are lost."""
        if self._reason is None:
            self._reason = reason
        self.is_blocked = True
        if self._transport is not None and self._process == os.getpid():
            self._transport.abort()
        elif not self.closed.done():  # never connected, or a parent's: asyncio will not call connection_lost
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")  # a TLS transport that was closed does not know it any more
        self.peer = (name[0], name[1]) if isinstance(name, tuple) else None
        if self.closed.done():  # aborted while the connection was being opened
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        # Not the bytearray itself: asyncio's TLS writes into slices, and a slice of a bytearray is a copy.
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._view[:nbytes])
        connection = self.connection
        urgent = connection.take_urgent(data) if connection.urgent else None
        if urgent is not None:
            # A lock's owner may run its task from this callback.  That is possible here, because the event loop calls a
            # protocol outside of any task.
            urgent()
        arrived = connection.receive(data, self._loop.time())
        if self._timer is None and connection.is_open:
            self._schedule_tick()
        self.owner.link_delivered(self, arrived)
        if connection.error is not None:
            self.abort(connection.error)
        elif connection.unfolding is not None and not self.is_lost:  # the owner may have dropped it
            # The peer waits meanwhile, so that memory stays bounded.
            assert self._transport is not None
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Decode one step of a large reply, with other work of the event loop between the steps."""
        if self.is_lost:
            return
        arrived = self.connection.go_on(self._loop.time())
        self.owner.link_delivered(self, arrived)
        if self.connection.error is not None:
            self.abort(self.connection.error)
        elif self.connection.unfolding is not None:
            self._loop.call_soon(self._go_on)
        elif not self.is_lost:
            assert self._transport is not None
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        if exc is not None and not str(exc):
            exc = ConnectionResetError(explained(exc))
        where = " inside a frame" if self.connection.is_inside_frame else ""
        reason = self._reason or self.connection.error or exc or ConnectionResetError(f"{_BY_THE_SERVER}{where}")
        self.is_blocked, self.is_leaving = True, False
        self.owner.link_lost(self, reason)
        self.closed.set_result(reason)

    def pause_writing(self) -> None:
        self.is_blocked = self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if not self.is_leaving:
            self.is_blocked = False
            self.owner.link_writable(self)

    def _schedule_tick(self) -> None:
        # The first tick can be due by now, if the handshake took long; that does not make the event loop late.
        self._due = max(self.connection.next_tick(), self._loop.time())
        self.overdue_at = self._due + timing.late_after(self.connection.timeout)
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if now > self.overdue_at and not self._was_late:
            self._was_late = True
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "this event loop did not run for %.1f s: code in this process has blocked it, or the machine was"
                    " too busy; a lost connection or session is no fault of the server then",
                    now - self._due,
                )
            # Read first what has arrived while the event loop was blocked, and judge the silence then.
            self._timer = self._loop.call_at(now + _A_MOMENT, self._tick)
            return
        if self.connection.tick(now):
            self.flush()
            self._schedule_tick()
            if self._was_late:
                self._was_late = False
                if not self.is_blocked:
                    self.owner.link_writable(self)
        else:
            self.abort(TimeoutError("the server is silent, or does not answer the requests"))


OpenLink: TypeAlias = Callable[[Callable[[], Link], str, int], Awaitable[Link]]
