"""A port with TLS in front of a server that has none."""

import asyncio
import contextlib
import ssl
from typing import Self

from zkwire.testing import Certificate, Certificates

_CHUNK = 65536


class TlsFront:
    """A port that takes TLS connections and passes their bytes on to another port, both ways.

    Unlike asyncio's own server it sends the alert that says why a handshake fails, as a ZooKeeper server does.

    Arguments: `port`, on loopback, where the bytes go; `tls`, whose server certificate the port shows;
    `wants_certificate`, whether a client must show a certificate of the same authority.

    `context` is the server's, and `show` changes the certificate that later connections see.  `connections` counts
    those that were accepted.
    """

    def __init__(self, port: int, tls: Certificates, *, wants_certificate: bool = False) -> None:
        self.connections = 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(tls.server.chain)
        if wants_certificate:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(tls.ca.certificate)
        self._to = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def hosts(self) -> str:
        """The connect string."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def show(self, certificate: Certificate) -> None:
        """Show `certificate` to clients that connect from now on."""
        self.context.load_cert_chain(certificate.chain)

    def drop(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        stream = _TlsStream(self.context, reader, writer)
        try:
            await stream.shake_hands()
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
            try:
                ways = {
                    asyncio.ensure_future(_out(stream, there_writer)),
                    asyncio.ensure_future(_back(there_reader, stream)),
                }
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            finally:
                there_writer.transport.abort()
        except OSError:
            # The handshake has failed, the client is gone, or the server behind is not there.  Closing over bytes that
            # were not read would destroy the alert.
            with contextlib.suppress(OSError):
                writer.write_eof()
                await reader.read()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


class _TlsStream:
    """The server's side of one TLS connection."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self) -> None:
        """Raises: ssl.SSLError, after the alert was sent; ConnectionResetError."""
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:
                await self._send()
            if not await self._receive():
                raise ConnectionResetError

    async def read(self) -> bytes:
        """Return the next bytes, none at the end."""
        while True:
            try:
                return self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                pass
            if not await self._receive():
                return b""

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._send()

    async def _receive(self) -> bool:
        data = await self._reader.read(_CHUNK)
        self._incoming.write(data)
        return bool(data)

    async def _send(self) -> None:
        self._writer.write(self._outgoing.read())
        await self._writer.drain()


async def _out(stream: _TlsStream, writer: asyncio.StreamWriter) -> None:
    while data := await stream.read():
        writer.write(data)
        await writer.drain()


async def _back(reader: asyncio.StreamReader, stream: _TlsStream) -> None:
    while data := await reader.read(_CHUNK):
        await stream.write(data)
