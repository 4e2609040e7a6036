"""Transactions: several writes in one request, which the server executes together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from zkwire.client.arguments import Data, checked_data, checked_version, creation, server_path
from zkwire.errors import ProtocolError, ServerError, TransactionError
from zkwire.paths import strip_chroot
from zkwire.session.transport import check_loop
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReply, MultiRequest
from zkwire.wire.records import ACL, OPEN_ACL, Stat
from zkwire.wire.requests import (
    CheckVersionRequest,
    Create2Reply,
    CreateReply,
    DeleteRequest,
    Request,
    SetDataRequest,
    StatReply,
)

# None for a delete and a check.
Result: TypeAlias = str | Stat | tuple[str, Stat | None] | None


class Transaction:
    """A group of writes that happen together or not at all; `Client.transaction` makes it.

    Each method adds one operation and checks its arguments at once.  Call `commit` to send them, or use the transaction
    as a context manager, which commits at the end of the block unless the block raises.

    Each operation sees the effects of those before it.  All share one zxid, and watches fire in their order.  The
    transaction is one request, which a server accepts up to 1,048,575 bytes (its jute.maxbuffer): about ten thousand
    short deletes, or a megabyte of data.
    """

    def __init__(
        self,
        commit: Callable[[MultiRequest], Awaitable[MultiReply]],
        chroot: str,
        refusal: Callable[[int, Request[Any]], ServerError],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._commit = commit
        self._chroot = chroot
        self._refusal = refusal
        self._loop = loop
        self._operations: list[Request[Any]] = []
        self._want_stat: set[int] = set()  # the positions of the operations added by create_and_stat
        self._results: list[Result] | None = None
        self._is_committed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._is_committed:
            await self.commit()

    @property
    def results(self) -> list[Result]:
        """The list that `commit` returned.  Raises: RuntimeError before the commit."""
        if self._results is None:
            raise RuntimeError("the transaction is not committed: it has no results")
        return self._results

    def create(
        self,
        path: str,
        data: Data = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> None:
        """Add a create with the arguments of Client.create; its result is the path that Client.create returns."""
        self._add(
            creation(
                self._chroot,
                path,
                data,
                ephemeral=ephemeral,
                sequential=sequential,
                container=container,
                ttl=ttl,
                acl=acl,
            )
        )

    def create_and_stat(
        self,
        path: str,
        data: Data = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> None:
        """Add a create with the arguments of Client.create; its result is a tuple of the path and the Stat.

        The Stat is None if the server sends none or an empty one, as servers before 3.7.2 and 3.8.2 do
        (ZOOKEEPER-4026, ZOOKEEPER-4667): use `exists` there.  Later operations of the transaction may have changed the
        node since.
        Requests: create2 (ZooKeeper 3.5), createContainer, createTTL.
        """
        self._add(
            creation(
                self._chroot,
                path,
                data,
                ephemeral=ephemeral,
                sequential=sequential,
                container=container,
                ttl=ttl,
                acl=acl,
                with_stat=True,
            )
        )
        self._want_stat.add(len(self._operations) - 1)

    def set(self, path: str, data: Data, version: int = -1) -> None:
        """Add a write of `data` on condition that the node's version is `version` (-1: any); its result is the Stat."""
        self._add(SetDataRequest(server_path(self._chroot, path), checked_data(data), checked_version(version)))

    def delete(self, path: str, version: int = -1) -> None:
        """Add a delete on condition that the node's version is `version` (-1: any); its result is None."""
        self._add(DeleteRequest(server_path(self._chroot, path), checked_version(version)))

    def check(self, path: str, version: int = -1) -> None:
        """Add the condition that the node exists, and has the version `version` (-1: any); its result is None."""
        self._add(CheckVersionRequest(server_path(self._chroot, path), checked_version(version)))

    async def commit(self) -> list[Result]:
        """Send the transaction and return a list with one result for each operation, in their order.

        Raises: TransactionError when the server refuses an operation, and then none has happened; ConnectionLostError
        with `maybe_applied` when the answer is lost; RuntimeError when the transaction was committed before; ValueError
        when it is too large.
        Cancellation: the writes may have happened; ephemeral nodes that were created are removed.
        """
        if self._is_committed:
            raise RuntimeError("the transaction is committed already: make a new one")
        check_loop(self._loop)  # here, because an empty transaction sends no request
        self._is_committed = True
        if not self._operations:
            self._results = []
            return []
        try:
            reply = await self._commit(MultiRequest(self._operations))
        except ValueError as refusal:  # too large for one request: nothing was sent
            count = len(self._operations)
            raise ValueError(
                f"a transaction of {count} operations is too large, make several of it: {refusal}"
            ) from None
        if len(reply.results) != len(self._operations):
            raise ProtocolError(f"{len(reply.results)} results for {len(self._operations)} operations")
        errors = [self._error(result, request) for result, request in zip(reply.results, self._operations, strict=True)]
        # When the server refuses a transaction, each operation has an error code: 0 before the refused operation, and
        # RuntimeInconsistency after it.  So the first other code is the reason.
        for index, error in enumerate(errors):
            if error is not None:
                raise TransactionError(error, index, errors)
        self._results = [self._result(index, result) for index, result in enumerate(reply.results)]
        return self._results

    def _add(self, operation: Request[Any]) -> None:
        if self._is_committed:
            raise RuntimeError("the transaction is committed already: make a new one")
        self._operations.append(operation)

    def _error(self, result: Record, request: Request[Any]) -> ServerError | None:
        """Return the error of one operation, None for an operation that succeeded or was rolled back without one."""
        if not isinstance(result, ErrorResult) or result.err == 0:
            return None
        return self._refusal(result.err, request)

    def _result(self, index: int, result: Record) -> Result:
        if isinstance(result, CreateReply | Create2Reply):
            path = strip_chroot(self._chroot, result.path)
            if index not in self._want_stat:
                return path
            stat = result.stat if isinstance(result, Create2Reply) else None
            return path, stat if stat is not None and stat.czxid > 0 else None
        return result.stat if isinstance(result, StatReply) else None
