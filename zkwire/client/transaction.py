"""Transactions: several writes in one request, which the server executes together or not at all."""

from collections.abc import Sequence
from typing import Any, Self, TypeAlias

from zkwire.client.operations import Create, Data
from zkwire.client.requester import Requester, checked_data, checked_version, creation, results_of
from zkwire.errors import NotReadOnlyError, ServerError, SessionExpiredError, TransactionError
from zkwire.paths import strip_chroot
from zkwire.session.transport import check_loop
from zkwire.wire import requests
from zkwire.wire.multi import MultiRequest
from zkwire.wire.records import ACL, OPEN_ACL, Stat, printed

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

    def __init__(self, requester: Requester, session_id: int | None) -> None:
        self._requester = requester
        self._session_id = session_id
        self._operations: list[requests.Request[Any]] = []
        self._want_stat: set[int] = set()  # the positions of the operations added by create_and_stat
        self._results: list[Result] | None = None
        self._is_committed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is None and not self._is_committed:
            await self.commit()

    @property
    def results(self) -> list[Result]:
        """The list that `commit` returned; before the commit, RuntimeError is raised."""
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
        """Add a create; its result is the path that Client.create returns.

        Args:
            path: As for Client.create.
            data: As for Client.create.
            ephemeral: As for Client.create.
            sequential: As for Client.create.
            container: As for Client.create.
            ttl: As for Client.create, in seconds.
            acl: As for Client.create.
        """
        self._add(creation(self._requester.chroot, Create(path, data, ephemeral, sequential, container, ttl, acl)))

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
        """Add a create; its result is a tuple of the path and the Stat.

        The Stat is None if the server sends none or an empty one, as servers before 3.7.2 and 3.8.2 do
        (ZOOKEEPER-4026, ZOOKEEPER-4667): use `exists` there.  Later operations of the transaction may have changed the
        node since.

        Args:
            path: As for Client.create.
            data: As for Client.create.
            ephemeral: As for Client.create.
            sequential: As for Client.create.
            container: As for Client.create.
            ttl: As for Client.create, in seconds.
            acl: As for Client.create.

        Requests:
            create2 (ZooKeeper 3.5), createContainer, createTTL.
        """
        create = Create(path, data, ephemeral, sequential, container, ttl, acl)
        self._add(creation(self._requester.chroot, create, with_stat=True))
        self._want_stat.add(len(self._operations) - 1)

    def set(self, path: str, data: Data, version: int = -1) -> None:
        """Add a write of a node's data; its result is the Stat.

        Args:
            path: The node.
            data: The new data.
            version: The version that the node must have, -1 for any.
        """
        server_path = self._requester.server_path(path)
        self._add(requests.SetDataRequest(server_path, checked_data(data), checked_version(version)))

    def delete(self, path: str, version: int = -1) -> None:
        """Add a delete; its result is None.

        Args:
            path: The node.
            version: The version that the node must have, -1 for any.
        """
        self._add(requests.DeleteRequest(self._requester.server_path(path), checked_version(version)))

    def check(self, path: str, version: int = -1) -> None:
        """Add the condition that the node exists; its result is None.

        Args:
            path: The node.
            version: The version that the node must have, -1 for any.
        """
        self._add(requests.CheckVersionRequest(self._requester.server_path(path), checked_version(version)))

    async def commit(self) -> list[Result]:
        """Send the transaction and return the list of the results.

        Returns:
            One result for each operation, in their order.

        Raises:
            TransactionError: If the server refuses an operation, and then none has happened.
            ConnectionLostError: If the answer is lost, with `maybe_applied`.
            SessionExpiredError: If the session is over, or another one than the transaction was made for.
            NotReadOnlyError: If the server has no quorum; if it is bound to a session that such a server has made, also
                between two servers, and it is not sent.
            RuntimeError: If the transaction was committed before.
            ValueError: If it is too large.

        Cancellation:
            The writes may have happened; ephemeral nodes that were created are removed.
        """
        if self._is_committed:
            raise RuntimeError("the transaction is committed already: make a new one")
        check_loop(self._requester.loop)  # here, because an empty transaction sends no request
        self._is_committed = True
        if not self._operations:
            self._results = []
            return []
        if self._session_id is not None and self._requester.session.key.id != self._session_id:
            raise SessionExpiredError(f"the session {printed(self._session_id)} of this transaction is over")
        # A server without a quorum has made that session, and another one follows it without an EXPIRED between them.
        if self._session_id and not self._requester.session.key.is_resumable:
            raise self._requester.refusal(NotReadOnlyError.code, MultiRequest(self._operations))
        try:
            reply = await self._requester.ask(MultiRequest(self._operations))
        except ValueError as refusal:  # too large for one request: nothing was sent
            count = len(self._operations)
            raise ValueError(f"a transaction of {count} operations is too large, make several: {refusal}") from None
        results = results_of(self._requester, reply, self._operations)
        # When the server refuses a transaction, each operation has an error code: 0 before the refused operation, and
        # RuntimeInconsistency after it.  So the first other code is the reason.
        errors = [each if isinstance(each, ServerError) and each.code else None for each in results]
        for index, error in enumerate(errors):
            if error is not None:
                raise TransactionError(error, index, errors)
        self._results = [self._result(index, result) for index, result in enumerate(results)]
        return self._results

    def _add(self, operation: requests.Request[Any]) -> None:
        if self._is_committed:
            raise RuntimeError("the transaction is committed already: make a new one")
        self._operations.append(operation)

    def _result(self, index: int, result: Any) -> Result:
        if isinstance(result, requests.CreateReply | requests.Create2Reply):
            path = strip_chroot(self._requester.chroot, result.path)
            if index not in self._want_stat:
                return path
            return path, result.stat if isinstance(result, requests.Create2Reply) and result.stat.czxid > 0 else None
        return result.stat if isinstance(result, requests.StatReply) else None
