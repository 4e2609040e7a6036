"""The store that the locks of a run protect: a small server in the parent process that refuses stale fencing tokens.

A holder reads a number and writes it back plus one.  A read with a token counts as seen, so that the former holder can
write no more.  Clients reach the store without a relay: its own faults are not the subject.
"""

import asyncio
import contextlib
import itertools
import json
from types import TracebackType
from typing import Any, Self

from tests.chaos.journal import Journal


class StaleTokenError(Exception):
    """The store has seen a greater token than that of the write."""


class Store:
    """The numbers, by name, with the greatest token that was seen for each; an async context manager.

    Arguments: `journal`, to which each token that is seen and each number that is stored is written.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._values: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def answer(self, name: str, token: int | None, value: int | None) -> dict[str, Any]:
        """Read the number, or write `value` if it is given; `token` is None for a reader, which changes nothing."""
        if token is not None:
            greatest = self._tokens.get(name, 0)
            if token < greatest:
                self._journal.write("turned away", name=name, token=token, greatest=greatest)
                return {"stale": True}
            self._tokens[name] = token
            if value is None:
                self._journal.write("seen", name=name, token=token)
            else:
                self._values[name] = value
                self._journal.write("stored", name=name, token=token, value=value)
        return {"value": self._values.get(name, 0)}

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):  # the client was killed
                while (line := await reader.readline()).endswith(b"\n"):
                    number, name, token, value = json.loads(line)
                    writer.write(json.dumps([number, self.answer(name, token, value)]).encode() + b"\n")
        finally:
            writer.transport.abort()


class StoreClient:
    """A client's connection to the store; an async context manager.  Any task may ask at any time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.transport.abort()

    async def read(self, name: str, token: int | None) -> int:
        """Return the number.  Raises: StaleTokenError."""
        return await self._ask(name, token, None)

    async def write(self, name: str, token: int, value: int) -> None:
        """Replace the number.  Raises: StaleTokenError.  Cancellation: it may have been replaced."""
        await self._ask(name, token, value)

    async def _ask(self, name: str, token: int | None, value: int | None) -> int:
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps([number, name, token, value]).encode() + b"\n")
        found = await answer
        if found.get("stale"):
            raise StaleTokenError(name)
        return int(found["value"])

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            number, answer = json.loads(line)
            asked = self._asked.pop(number)
            if not asked.done():  # the task that asked may have been cancelled
                asked.set_result(answer)
