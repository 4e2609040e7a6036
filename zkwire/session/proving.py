"""Keeps the session proven certain while locks depend on it.

Knows how many locks need certainty, and the connection that can prove it.  The rule itself is in
zkwire/wire/certainty.py; until when the session is certain is in lifetime.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final

from zkwire.errors import ConnectionLostError, ServerError
from zkwire.session.lifetime import Certainty
from zkwire.wire.connection import Connection
from zkwire.wire.requests import Request, SyncRequest

# So many requests in a row prove a session that was used before; see `certify`.
_QUICK: Final = 3
_PAUSE: Final = 1 / 16  # of the session timeout


class Proving:
    """What makes a session certain, and keeps it so.

    Arguments: `certainty`, the session's; `submit`, which sends a request.
    """

    def __init__(self, certainty: Certainty, submit: Callable[[Request[Any]], asyncio.Future[Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._certainty = certainty
        self._submit = submit
        self._needs = 0
        self._connection: Connection | None = None

    def need(self) -> None:
        """Take note that one lock more depends on certainty: from now on the pings go through the leader."""
        self._needs += 1
        if self._connection is not None:
            self._connection.keeps_certain = True

    def release(self) -> None:
        """Undo one `need`."""
        self._needs -= 1
        if self._connection is not None and not self._needs:
            self._connection.keeps_certain = False

    def attach(self, connection: Connection, now: float) -> None:
        """Use a new connection.

        If a lock is held, the first thing to prove is that the new server belongs to a quorum: see certainty.py.
        """
        self._connection = connection
        connection.keeps_certain = self._needs > 0
        if connection.keeps_certain:
            connection.prove(now)

    def detach(self) -> None:
        """Let the lost connection go."""
        self._connection = None

    async def certify(self) -> None:
        """Return once the session is certain to live, or at once if it is.

        Raises: SessionError; NotReadOnlyError on a server that has lost its quorum.
        Cancellation: harmless.
        Requests: none if it is certain; one sync if a write was answered just before.
        """
        for tries in itertools.count(1):
            if self._certainty.until > self._loop.time():
                return
            connection = self._connection
            # Without a connection: a sync, which waits for the next one.
            request = SyncRequest("/") if connection is None else connection.proof(self._loop.time())
            try:
                await self._submit(request)
            except ConnectionLostError:
                continue  # the next connection proves itself
            except ServerError as refusal:
                if not refusal.is_transient:
                    raise
            if tries >= _QUICK and connection is not None:
                # There was no request half a tick before these; now there is one.
                await asyncio.sleep(connection.timeout * _PAUSE)
