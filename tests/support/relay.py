"""What the tests of ensembles share: a relay that holds up what one server hears from the others."""

import asyncio
from types import TracebackType
from typing import Self

from zkwire.testing import EnsembleServer


class Relay:
    """A port of its own that passes bytes on to another one, both ways, until it is told to hold what comes back.

    No connection is closed while it holds: whoever is behind it falls behind, and does not know.
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
        """The port that stands for the other one."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def hold(self) -> None:
        """Pass nothing on any more of what the other port's owner says."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on what was held, and what comes."""
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
                return  # nobody leads there yet
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
    """What to tell another server of `server`, so that it is sought behind the relay."""
    return server.spec.replace(f":{quorum_port(server)}:", f":{relay.port}:")


def quorum_port(server: EnsembleServer) -> int:
    """Where a leader waits for its followers."""
    return int(server.spec.split(":")[1])
