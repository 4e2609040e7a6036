"""A relay for the tests of ensembles: it holds back what one server sends to another."""

import asyncio
from types import TracebackType
from typing import Self

from zkwire.testing import EnsembleServer


class Relay:
    """A port that passes bytes on to another port, both ways, until `hold` stops the bytes that come back.

    No connection is closed meanwhile: the server behind the relay lags, and does not notice.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """The port of the relay."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def hold(self) -> None:
        """Stop passing on the bytes that come from the other port."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on the bytes that were held, and all later ones."""
        self._flows.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
            except OSError:
                return  # the leader does not listen yet
            try:
                ways = {
                    asyncio.ensure_future(self._pass(reader, there_writer, held=False)),
                    asyncio.ensure_future(self._pass(there_reader, writer, held=True)),
                }
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            finally:
                there_writer.transport.abort()
        finally:
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, held: bool) -> None:
        while data := await reader.read(65536):
            if held:
                await self._flows.wait()
            writer.write(data)
            await writer.drain()


def behind(relay: Relay, server: EnsembleServer) -> str:
    """Return the entry of `server` with the port of the relay, for the configuration of another server."""
    return server.spec.replace(f":{quorum_port(server)}:", f":{relay.port}:")


def quorum_port(server: EnsembleServer) -> int:
    """Return the port on which a leader accepts its followers."""
    return int(server.spec.split(":")[1])
