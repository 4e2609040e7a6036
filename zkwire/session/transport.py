"""The asyncio.Protocol around a Connection: bytes in, bytes out, a timer for its ticks.  Nothing is decided here."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, cast

from zkwire.wire.connection import Connection, Incoming

_READ_SIZE: Final = 64 * 1024


class LinkOwner(Protocol):
    """Who decides: told of each thing in the step in which it happens."""

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None: ...

    def link_writable(self, link: Link) -> None: ...

    def link_lost(self, link: Link, reason: Exception) -> None: ...


class Link(asyncio.BufferedProtocol):
    """One open socket and the Connection that speaks on it.

    A buffered protocol, because the other kind has a quarter of a megabyte allocated for each read, which costs more
    than all that we do with what arrives.

    Arguments: `connection`; `owner`, who is told what arrived, in the step in which it is decoded, that the socket
    takes bytes again after `is_blocked` was True, and that the link is lost.

    `closed` is done once the socket is closed; its result says why.
    """

    def __init__(self, connection: Connection, owner: LinkOwner) -> None:
        self.connection = connection
        self.is_blocked = False
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[Exception] = self._loop.create_future()
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reason: Exception | None = None
        self._view = memoryview(bytearray(_READ_SIZE))
        self._is_full = self._is_leaving = False

    @property
    def is_lost(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._reason is not None or self.closed.done()

    def flush(self) -> None:
        """Write what the connection has queued."""
        data = self.connection.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def release(self) -> None:
        """Begin to ping: what had to come first is through."""
        self.connection.is_held = False
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self.connection.next_tick(), self._tick)

    def leave(self) -> None:
        """Take nothing more to be written; what was, and its answers, go on."""
        self.is_blocked = self._is_leaving = True

    def stay(self) -> None:
        """Undo `leave`."""
        self._is_leaving = False
        self.is_blocked = self._is_full

    def abort(self, reason: Exception) -> None:
        """Close the socket at once; what was not yet written is lost."""
        if self._reason is None:
            self._reason = reason
        self.is_blocked = True
        if self._transport is not None:
            self._transport.abort()
        elif not self.closed.done():  # it was never connected, and need not be waited for
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed.done():  # too late
            self._transport.abort()
        else:
            self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view  # asyncio's TLS cuts it into slices, and writes into them: a bytearray's would be copies

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._view[:nbytes])
        hurry = self.connection.take_urgent(data)
        if hurry is not None:  # a task may run in it, and may: a transport calls us outside of any
            hurry()
        arrived = self.connection.receive(data, self._loop.time())
        if self._timer is None and self.connection.is_open:
            self._timer = self._loop.call_at(self.connection.next_tick(), self._tick)
        self._owner.link_delivered(self, arrived)
        if self.connection.error is not None:
            self.abort(self.connection.error)

    def eof_received(self) -> None:
        self.connection.receive_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        reason = (
            self._reason or self.connection.error or exc or ConnectionResetError("the server closed the connection")
        )
        self.is_blocked = True
        self._owner.link_lost(self, reason)
        self.closed.set_result(reason)

    def pause_writing(self) -> None:
        self.is_blocked = self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if not self._is_leaving:
            self.is_blocked = False
            self._owner.link_writable(self)

    def _tick(self) -> None:
        if self.connection.tick(self._loop.time()):
            self.flush()
            self._timer = self._loop.call_at(self.connection.next_tick(), self._tick)
        else:
            self.abort(TimeoutError("the server is silent, or only tells of events and answers nothing"))


OpenLink: TypeAlias = Callable[[Callable[[], Link], str, int], Awaitable[Link]]


async def open_link(make: Callable[[], Link], host: str, port: int) -> Link:
    """Open a TCP connection to `host`:`port`, whose name is resolved anew, and return the Link made for it.

    The one place where connections are opened, so that another one can stand in for it.
    Raises: OSError.
    Cancellation: leaves no socket.
    """
    _, link = await asyncio.get_running_loop().create_connection(make, host, port)
    return link


def tls_opener(context: ssl.SSLContext) -> OpenLink:
    """Return what opens TLS connections as `open_link` does plain ones.

    The server's certificate is checked, as `context` says, against the host as the connect string names it.
    """

    async def open_tls_link(make: Callable[[], Link], host: str, port: int) -> Link:
        _, link = await asyncio.get_running_loop().create_connection(
            make, host, port, ssl=context, server_hostname=host
        )
        return link

    return open_tls_link
