"""Writes whose outcome is known although the connection breaks before their answer arrives.

Reading the written node is often not enough: when two clients add 1 to a counter that holds 7, both find 8 afterwards,
one version further; and an item of a queue may have been taken before its producer looks for it.  So the write goes
into one transaction with a write of its *receipt*: an ephemeral node that only this client uses.  The server carries
out both or none.  If the answer is lost, the version of the receipt says whether the transaction was carried out,
whatever other clients have written since.  The whole is still one request.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import zkwire
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import read_after_loss, read_synced, until_answered
from recipes.common.shared_nodes import wait_for_session
from zkwire import ACL, Client, GetData, Node, Transaction, join_path

ANY_VERSION: Final = -1
LAST_VERSION: Final = 2**31 - 1  # after which the server goes on with negative versions

# Receipts that were not used for so many seconds are deleted.  A busy writer so uses the same receipt again and again,
# and an idle one leaves no node.
_KEPT_FOR: Final = 0.1

_NOT_CREATED: Final = -1


@dataclass(slots=True)
class _Receipt:
    """A receipt: its owner, the version before the write under way, and when it was used, on the loop's clock."""

    path: str
    session_id: int
    version: int = _NOT_CREATED
    used_at: float = 0.0


class Receipts:
    """The write receipts of one writer.  Each commit under way has one of its own; an answered one is used again.

    Args:
        prefix: The beginning of the receipts' paths, to which a unique id is added.
        acl: The ACL of the receipts, None for `own_acl`.
    """

    def __init__(self, zk: Client, prefix: str, *, acl: Sequence[ACL] | None) -> None:
        self._zk = zk.unlimited
        self._prefix = prefix
        self._parent = prefix.rpartition("/")[0] or "/"
        self._acl = acl
        self._unused: list[_Receipt] = []  # the one that was used last is at the end
        self._timer: asyncio.TimerHandle | None = None

    async def commit(self, transaction: Transaction) -> bool:
        """Add a write of a receipt to `transaction` and commit it; return whether it was carried out.

        If it returns False nothing was carried out, and the same writes may be tried again in a new transaction.

        Raises:
            TransactionError: if the server refuses one of the caller's operations, or does not allow this client to
                create the receipt.
            ConnectionLostError: with `maybe_applied`, if the answer was lost and the session ended before the receipt
                could be read.
            SessionExpiredError: if nothing was sent.
            ValueError: if the transaction is too large.

        Cancellation:
            The transaction may have been carried out; its receipt is deleted.
        """
        receipt = self._reuse_or_new(await wait_for_session(self._zk))
        acl: Sequence[ACL] = ()
        if receipt.version == _NOT_CREATED:
            acl = own_acl(self._zk, receipt.path) if self._acl is None else self._acl
            transaction.create(receipt.path, ephemeral=True, acl=acl)
        else:
            transaction.set(receipt.path, b"")
        try:
            try:
                await transaction.commit()
                receipt.version += 1
                was_carried_out = True
            except zkwire.ConnectionLostError as lost:
                was_carried_out = await self._look_up(receipt, lost)
        except (zkwire.TransactionError, ValueError) as refused:
            cause = refused.cause if isinstance(refused, zkwire.TransactionError) else None
            if isinstance(cause, zkwire.NoNodeError) and cause.path == receipt.path:
                return False  # the receipt was deleted by hand: the next try creates another one
            if isinstance(cause, zkwire.InvalidACLError) and was_refused(self._zk, acl):
                return False  # the next try creates the receipt with another ACL
            if isinstance(cause, zkwire.NoAuthError) and cause.path == receipt.path:
                cause.hint = (
                    f"the client needs the permissions CREATE and DELETE on {self._parent}: together with each write it"
                    " creates an ephemeral node there, its receipt, which shows whether the write was carried out if"
                    " the answer is lost"
                )
            if isinstance(cause, zkwire.NoChildrenForEphemeralsError):
                cause.hint = (
                    f"{self._parent} is an ephemeral node, which another client must have created by hand: it goes with"
                    " that client's session; delete it, and it is created again as it should be"
                )
            self._keep(receipt)
            raise
        except BaseException:
            self._delete(receipt)
            raise
        self._keep(receipt)
        return was_carried_out

    async def _look_up(self, receipt: _Receipt, lost: zkwire.ConnectionLostError) -> bool:
        """Read `receipt` and return whether the transaction was carried out.

        Raises:
            ConnectionLostError: `lost`, if the receipt is missing for another reason than that it was not created.
        """
        try:
            node = await read_after_loss(self._zk, receipt.path)
        except zkwire.SessionExpiredError:
            raise lost from None
        # A missing receipt means "not carried out" only if the transaction would have created it, and if it cannot have
        # been deleted with its session since.
        if node is None and receipt.version == _NOT_CREATED and receipt.session_id == self._zk.session_id:
            return False
        if node is None or node.stat.ephemeral_owner != receipt.session_id:
            raise lost  # with another owner: another client has deleted our receipt and created its own
        was_carried_out = node.stat.version > receipt.version
        receipt.version = node.stat.version
        return was_carried_out

    def _reuse_or_new(self, session_id: int) -> _Receipt:
        while self._unused:
            receipt = self._unused.pop()
            # Receipts of former sessions are gone.
            if receipt.session_id == session_id and receipt.version < LAST_VERSION // 2:
                return receipt
            self._delete(receipt)
        return _Receipt(self._prefix + self._zk.unique_id(), session_id)

    def _keep(self, receipt: _Receipt) -> None:
        """Keep `receipt` for a later commit, if its node exists."""
        if receipt.version == _NOT_CREATED:
            return
        loop = asyncio.get_running_loop()
        receipt.used_at = loop.time()
        self._unused.append(receipt)
        if self._timer is None:
            self._timer = loop.call_later(_KEPT_FOR, self._delete_idle)

    def _delete_idle(self) -> None:
        loop = asyncio.get_running_loop()
        idle_since = loop.time() - _KEPT_FOR
        while self._unused and self._unused[0].used_at <= idle_since:
            self._delete(self._unused.pop(0))
        self._timer = None
        if self._unused:
            self._timer = loop.call_at(self._unused[0].used_at + _KEPT_FOR, self._delete_idle)

    def _delete(self, receipt: _Receipt) -> None:
        """Delete the node for certain, unless its session has ended: then the server has deleted it."""
        if receipt.session_id == self._zk.session_id:
            self._zk.discard(receipt.path)


class ExactWriter:
    """Writes one node, each write exactly once although connections break, together with a receipt below the node.

    Args:
        path: The node.
        acl: The ACL of the receipts, None for `own_acl`; if it is given, and the node's ACL allows more, a warning is
            logged.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] | None) -> None:
        self._zk = zk.unlimited
        self._path = path
        self._acl = acl
        self._receipts = Receipts(zk, join_path(path, "writing-"), acl=acl)

    async def write(self, data: bytes, version: int) -> bool:
        """Write `data` if the node's version is `version` (ANY_VERSION: any); return whether it was written.

        Returns False also when the node is missing.

        Raises:
            ConnectionLostError: with `maybe_applied`, if the answer was lost, the session expired before the receipt
                could be read, and the node itself does not show what happened.
            NoAuthError: if this client may not write the node, or not create the receipt below it.

        Cancellation:
            The write may have been carried out; no receipt stays.
        """
        former: zkwire.ConnectionLostError | None = None  # of a write that a server may have carried out late
        while True:
            try:
                if await until_answered(self._zk, lambda: self._commit(data, version)):
                    return True
                continue
            except zkwire.TransactionError as refused:
                # The receipt is not refused in these ways: see Receipts.commit.
                if not isinstance(refused.cause, zkwire.BadVersionError | zkwire.NoNodeError):
                    raise refused.cause from None
            except zkwire.ConnectionLostError as lost:
                former = lost
            if former is None or not await self._can_retry(data, version, former):
                return False

    async def _commit(self, data: bytes, version: int) -> bool:
        transaction = self._zk.transaction()
        transaction.set(self._path, data, version)
        await warn_if_wider(self._zk, self._path, self._acl)
        return await self._receipts.commit(transaction)

    async def _can_retry(self, data: bytes, version: int, lost: zkwire.ConnectionLostError) -> bool:
        """Judge by the node itself, because the receipt has gone with its session.

        Returns True if the write was not carried out and may be repeated, False if another client's write came first.

        Raises:
            ConnectionLostError: `lost`, if the node does not show it.
        """
        try:
            (answer,) = await until_answered(self._zk, lambda: read_synced(self._zk, self._path, GetData(self._path)))
        except zkwire.SessionExpiredError:
            raise lost from None
        if isinstance(answer, Node) and version != ANY_VERSION:
            if answer.stat.version == version:
                return True
            # The one write since is not ours: it wrote other data.
            if answer.stat.version == version + 1 and answer.data != data:
                return False
        raise lost
