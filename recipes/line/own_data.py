"""Writing into the node of our own ticket, so that the data of other clients is recognised there.

Knows one ticket.  What a kind of lease writes, and what it does when another client has written, is its own affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zkwire
from recipes.common import lost_answers
from recipes.line.ticket import Ticket
from zkwire import Client, GetData, Node


class WrittenOverError(Exception):
    """Another client has written into the ticket's node."""


class OwnData:
    """Writes the data of `ticket`'s node, one version after the other."""

    __slots__ = ("_order", "_ticket", "_zk")

    def __init__(self, zk: Client, ticket: Ticket) -> None:
        self._zk = zk
        self._ticket = ticket
        self._order = asyncio.Lock()

    async def write(self, data_of: Callable[[int], bytes | None]) -> None:
        """Write the data that `data_of` returns for the next version; nothing if it returns None.

        Raises: WrittenOverError; ConnectionLostError, and then the data may have been written; NoNodeError; what else
        the server refuses; what `data_of` raises.
        Cancellation: the data may have been written or not.
        Order: that of the calls.
        Requests: setData; a sync and a getData more if it is unknown what became of the write before.
        """
        ticket = self._ticket
        async with self._order:
            await self._settle()
            data = data_of(ticket.version + 1)
            if data is None:
                return
            ticket.unanswered = data
            try:
                stat = await self._zk.set(ticket.node.path, data, ticket.version)
            except zkwire.ServerError as error:
                ticket.unanswered = None
                if isinstance(error, zkwire.BadVersionError):
                    raise WrittenOverError from None
                raise
            ticket.version, ticket.unanswered = stat.version, None

    async def _settle(self) -> None:
        """Find out what became of the write before, if it was cancelled or its answer was lost."""
        ticket = self._ticket
        if ticket.unanswered is None:
            return
        path = ticket.node.path
        (answer,) = await lost_answers.read(self._zk, path, GetData(path))
        node: Node | None = lost_answers.result(answer)
        if node is None:
            raise zkwire.NoNodeError(zkwire.NoNodeError.code, path)
        if not ticket.is_own_data(node):
            raise WrittenOverError
        ticket.unanswered = None
