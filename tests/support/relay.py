"""What the proxy, the links and the scripted server have in common: a port, waits, and pairs of connections.

Nothing here knows ZooKeeper or zkwire.  There are no tasks but for dialling, so a fault happens in the same callback
that reads the bytes.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Self, cast


class Listener:
    """A port on 127.0.0.1, in an `async with` block; `connections` counts those that were accepted.

    Waits have no time limit but the test's; when the listener is closed they end with ConnectionAbortedError.
    """

    def __init__(self) -> None:
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_closing = self._is_closed = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self.accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._is_closing = True
        with contextlib.suppress(NotImplementedError):  # uvloop accepts in its own way
            asyncio.get_running_loop().remove_reader(self._server.sockets[0].fileno())
        for _ in range(3):  # asyncio opens an accepted connection in a task, which ends at its third turn
            await asyncio.sleep(0)
        self._server.close()
        await self.end_connections()
        await self._server.wait_closed()
        self._is_closed = True
        self.changed()

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        raise NotImplementedError

    async def end_connections(self) -> None:
        """End all connections."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The listener's own port."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def hosts(self) -> str:
        """The connect string to give to the client."""
        return f"127.0.0.1:{self.port}"

    async def connected(self, count: int) -> None:
        """Wait until `count` connections have been accepted since the start."""
        await self.until(lambda: self.connections >= count)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, asked again whenever something arrives or a connection changes, is true."""
        while not condition():
            if self._is_closed:
                raise ConnectionAbortedError("the listener was closed during this wait")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def changed(self) -> None:
        """Have all waits ask their conditions again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Wire(asyncio.Protocol):
    """One of the two TCP connections of a pair."""

    def __init__(self, pair: "Pair") -> None:
        self.transport: asyncio.Transport | None = None
        self.got_eof = self.is_lost = False
        self._pair = pair

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but is not derived from it
        self._pair.opened(self)
        # Not now: Python 3.11.2 and uvloop begin to read when connection_made has returned, even after a pause in it.
        asyncio.get_running_loop().call_soon(self._pair.adjust_reading)

    def data_received(self, data: bytes) -> None:
        if not self._pair.is_cut:
            self._pair.received(self, data)

    def eof_received(self) -> bool:
        self.got_eof = True
        self._pair.ended(self)
        return True  # the other direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._pair.lost(self, exc)

    @property
    def is_open(self) -> bool:
        """Whether the connection was made and is not lost."""
        return self.transport is not None and not self.is_lost

    def write(self, data: bytes) -> None:
        """Send `data` unless the connection is lost."""
        if self.transport is not None and not self.is_lost:
            self.transport.write(data)

    def read(self, wanted: bool) -> None:
        """Read, or leave in the kernel's buffers what comes."""
        if self.transport is None or self.is_lost or self.transport.is_closing() or self.got_eof:
            return
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def finish(self) -> None:
        """Send FIN after what was written.

        Not close(): closing over unread bytes sends RST, which destroys what is on its way.
        """
        if self.transport is not None and not self.is_lost:
            with contextlib.suppress(OSError):  # the peer has reset the connection already; connection_lost follows
                self.transport.write_eof()

    def close(self) -> None:
        """Close the connection."""
        if self.transport is not None:
            self.transport.close()

    def abort(self, *, reset: bool = True) -> None:
        """Send RST now, or FIN without `reset`."""
        if self.transport is not None and not self.is_lost:
            if reset:
                linger = struct.pack("ii", 1, 0)
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()


class Pair:
    """A client's connection and its counterpart to the server; ends pass from one to the other as they come.

    Args:
        upstream: The port of the server.
        over: Called when both connections have ended.
    """

    def __init__(self, upstream: int, over: Callable[["Pair"], object]) -> None:
        self.client = Wire(self)
        self.server = Wire(self)
        self.is_cut = False  # nothing is passed on any more
        self._upstream = upstream
        self._over = over
        self._dialling: asyncio.Task[None] | None = None

    def opened(self, wire: Wire) -> None:
        """Open the counterpart of the client's connection; overridden to refuse it."""
        if wire is self.client:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())
            self._dialling.add_done_callback(lambda task: self._check_over())
        elif self.client.is_lost:
            wire.close()
        elif self.is_cut:
            wire.finish()

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, "127.0.0.1", self._upstream)
        except OSError:
            self.client.abort()  # as a server that is down would answer

    def other(self, wire: Wire) -> Wire:
        """Return the counterpart of `wire`."""
        return self.server if wire is self.client else self.client

    def received(self, wire: Wire, data: bytes) -> None:
        """Pass bytes on; overridden."""
        raise NotImplementedError

    def may_read(self, wire: Wire) -> bool:
        """Return whether bytes may arrive now."""
        return True

    def ended(self, wire: Wire) -> None:
        """FIN has come."""
        if not self.is_cut:
            self.pass_end(wire)
        self.close_if_over()

    def pass_end(self, wire: Wire) -> None:
        """Pass FIN on, after what came before it; overridden where something is kept back."""
        self.other(wire).finish()

    def lost(self, wire: Wire, error: Exception | None) -> None:
        """A connection is lost: end the other one in the same way."""
        other = self.other(wire)
        if other.is_open:
            if error is not None and not self.is_cut:
                other.abort()
            elif wire is self.client:
                other.close()
            elif not self.is_cut:
                other.finish()
        if wire is self.client and self.server.transport is None and self._dialling is not None:
            self._dialling.cancel()
        self._check_over()

    def close_if_over(self) -> None:
        """Close what both sides have ended."""
        if self.client.got_eof and (self.server.got_eof or self.server.is_lost) and not self.keeps_back():
            self.client.close()
        if self.server.got_eof and (self.client.got_eof or self.client.is_lost):
            self.server.close()

    def keeps_back(self) -> bool:
        """Return whether something for the client is kept back."""
        return False

    def adjust_reading(self) -> None:
        """Read once there is a server to write to; after a cut always, to see FIN."""
        for wire in (self.client, self.server):
            wire.read(self.is_cut or (self.server.transport is not None and self.may_read(wire)))

    def cut(self, *, reset: bool = False) -> None:
        """End both connections now; the client sees FIN or, with `reset`, RST."""
        if not self.is_cut:
            self.is_cut = True
            self.server.finish()  # by FIN in any case: RST could destroy requests that were passed on
            if reset:
                self.client.abort()
            else:
                self.client.finish()
            self.adjust_reading()

    def destroy(self, *, reset: bool = True) -> None:
        """Give up both connections, by RST or by FIN."""
        self.is_cut = True
        if self._dialling is not None:
            self._dialling.cancel()
        self.client.abort(reset=reset)
        self.server.abort(reset=reset)

    def _check_over(self) -> None:
        is_dialled = self._dialling is None or self._dialling.done()
        if self.client.is_lost and is_dialled and (self.server.transport is None or self.server.is_lost):
            self._over(self)
