"""The verbs that send many operations at once: `get_many` in one request, `pipeline` in one write.

`Client` inherits both.  They have a file of their own because their types take up space: the results have the types
that belong to the operations, if all operations are of one class; otherwise each result is `Any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from zkwire.client.operations import Create, GetChildren, GetChildrenAndStat, GetData, Node, Operation, Sync
from zkwire.client.requester import Requester
from zkwire.errors import ServerError, ZooKeeperError
from zkwire.wire.records import Stat


class Batches:
    """The verbs of a Client that take many operations."""

    _requester: Requester

    @overload
    async def get_many(self, reads: Sequence[GetData]) -> list[Node | ServerError]: ...

    @overload
    async def get_many(self, reads: Sequence[GetChildren]) -> list[list[str] | ServerError]: ...

    @overload
    async def get_many(self, reads: Sequence[GetData | GetChildren]) -> list[Any]: ...

    async def get_many(self, reads: Sequence[GetData] | Sequence[GetChildren] | Sequence[Any]) -> list[Any]:
        """Read data and children of many nodes in one round trip (request: multiRead, ZooKeeper 3.6).

        Returns a list with one result for each read, in their order: the Node or the names, or the ServerError that
        `get` or `get_children` would raise.  No write happens between the reads of one request.  Reads that are too
        many for one request (a megabyte of paths) are sent in several requests.
        Raises: UnimplementedError by an older server, which also closes the connection: use `pipeline` there;
        ProtocolError when the answer is larger than the `reply_limit` of `connect`, 64 MiB.
        """
        return await self._requester.get_many(reads)

    @overload
    async def pipeline(self, operations: Sequence[GetData]) -> list[Node | ZooKeeperError]: ...

    @overload
    async def pipeline(self, operations: Sequence[GetChildren]) -> list[list[str] | ZooKeeperError]: ...

    @overload
    async def pipeline(
        self, operations: Sequence[GetChildrenAndStat]
    ) -> list[tuple[list[str], Stat] | ZooKeeperError]: ...

    @overload
    async def pipeline(self, operations: Sequence[Create]) -> list[tuple[str, Stat] | ZooKeeperError]: ...

    @overload
    async def pipeline(self, operations: Sequence[Sync]) -> list[ZooKeeperError | None]: ...

    @overload
    async def pipeline(self, operations: Sequence[Operation]) -> list[Any]: ...

    async def pipeline(self, operations: Sequence[Any]) -> list[Any]:
        """Send the operations in one write and return the list of their results, in their order, once all are answered.

        The server executes them in their order.  Unlike those of a transaction, each one succeeds or fails by itself,
        and operations of other clients may come between.
        The result of an operation is what its verb returns (a watch is only in its WatchSet), or the ServerError or
        ConnectionLostError that its verb would raise.
        Raises: SessionError; ValueError and TypeError before anything is sent.
        Cancellation: for each operation, as for its verb.
        """
        return await self._requester.pipeline(operations)
