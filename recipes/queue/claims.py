"""A claimed item, and the `async with` that deletes it from the queue or hands it back.

A claim is two ephemeral nodes: `taken/<item>`, which hides the item, and one of its own, which its lease watches. The
item and the first are deleted in one transaction that the second must survive, so that who has lost a claim can never
delete what somebody else has claimed since.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zkwire
from recipes.line.lease import Body, Lease, LockLostError
from recipes.line.locking import Hold
from recipes.line.ticket import Ticket, TicketNode
from recipes.queue.consumer import Claimed
from recipes.queue.nodes import Nodes
from zkwire import Transaction, ZooKeeperError


class Item(bytes):
    """An item that is ours for as long as its claim lasts; made by `Queue.claim`.

    It is what was put, as bytes, and so is `data`; `token`, the fencing token, is the zxid of the claim: who claims the
    item after us has a greater one; `path` is the claim's own node, `entry` the item's.
    """

    def __new__(cls, nodes: Nodes, claimed: Claimed, handed_back: Callable[[], None]) -> Self:
        """Be the data that was claimed."""
        return super().__new__(cls, claimed.data)

    def __init__(self, nodes: Nodes, claimed: Claimed, handed_back: Callable[[], None]) -> None:
        self.data = claimed.data
        self.token = claimed.token
        self.path = claimed.path
        self.entry = nodes.entry(claimed.name)
        self._nodes = nodes
        self._zk = nodes.zk
        self._mark = nodes.mark(claimed.name)
        self._session_id = claimed.session_id
        self._handed_back = handed_back
        self._is_handled = self._is_lost = False
        name = claimed.path.rpartition("/")[2]
        place = TicketNode(claimed.path, name, claimed.token, claimed.session_id)
        self._lease = Lease(nodes.zk, Ticket(place, nodes.zk.removal(place.path)))

    # -- asking -----------------------------------------------------------------------------------------------------

    def is_certain(self) -> bool:
        """Whether the item is ours for certain at this moment; see Lease.is_certain."""
        return self._lease.is_certain()

    def certain_for(self) -> float:
        """Return for how many seconds from now it is ours for certain; see Lease.certain_for."""
        return self._lease.certain_for()

    def check(self) -> None:
        """Return if the item is ours for certain.  Raises: LockLostError."""
        self._lease.check()

    async def lost(self) -> LockLostError | None:
        """Return when the claim is lost, with the error that tells how; None when it came to its end before."""
        return await self._lease.lost()

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while the item is ours; see Client.transaction."""
        return self._lease.transaction()

    # -- being held -------------------------------------------------------------------------------------------------

    def handled(self) -> None:
        """Have `release` delete the item from the queue; called at the end of a body that went well."""
        self._is_handled = True

    def enter_body(self, body: Body) -> None:
        """Have `body` interrupted when the claim is lost."""
        self._lease.enter_body(body)

    def leave_body(self, body: Body) -> LockLostError | None:
        """Undo `enter_body`; return how the claim was lost, if it was."""
        loss = self._lease.leave_body(body)
        if loss is not None:
            self._is_lost = True
        return loss

    async def release(self) -> None:
        """Delete the item from the queue if it was handled, hand it back otherwise.

        Raises: LockLostError when the session ended before it was known that the item is deleted.
        Cancellation: it is done all the same.
        """
        ending = self._nodes.in_background(self._end())
        error = await asyncio.shield(ending)
        if error is not None:
            raise error

    async def _end(self) -> ZooKeeperError | None:
        """Do as `release`; return its error, for whoever waited may be gone."""
        if self._is_lost or not self._is_handled:
            await self._hand_back()
            return None
        try:
            await self._delete()
        except zkwire.SessionError as error:
            return LockLostError(self.path, f"{error}; the item may be handled again")
        except LockLostError as error:
            return error
        except ZooKeeperError as error:
            await self._hand_back()
            return error
        return None

    async def _hand_back(self) -> None:
        self._handed_back()
        if self._is_lost:
            # Nobody waits for this: it may take until a server answers again, or the session is over.
            self._nodes.in_background(self._free_what_is_ours())
            await self._lease.release()
            return
        gone = self._nodes.drop(self._mark, self._session_id)
        await self._lease.release()
        if gone is not None:
            await gone

    async def _free_what_is_ours(self) -> None:
        """Have the node that hides the item deleted, unless it is the next one's by now."""
        with contextlib.suppress(ZooKeeperError):
            if self._zk.session_id == self._session_id:
                _, (mark,) = await self._nodes.look_after_loss(self._mark)
                if mark is not None and mark.data == self.path.encode():
                    self._nodes.drop(self._mark, self._session_id)

    async def _delete(self) -> None:
        transaction = self._lease.transaction()
        transaction.delete(self._mark)
        transaction.delete(self.entry)
        # In one write, and in this order: the transaction needs the node that the lease then removes.
        committed: object
        committed, _ = await asyncio.gather(transaction.commit(), self._lease.release(), return_exceptions=True)
        while isinstance(committed, zkwire.ConnectionLostError):
            now, (mark,) = await self._nodes.look_after_loss(self._mark)
            if now != self._session_id:
                raise zkwire.SessionExpiredError("the session ended before it was known that the item is deleted")
            if mark is None:
                return
            committed = await self._delete_in_session()
        if isinstance(committed, zkwire.TransactionError) and isinstance(committed.cause, zkwire.NoNodeError):
            self._is_lost = committed.cause.path != self.entry  # an item that was deleted by hand is handled, too
            await self._hand_back()
            if self._is_lost:
                raise LockLostError(self.path, "somebody else has deleted it; the item may be handled again")
        elif isinstance(committed, zkwire.TransactionError):
            raise committed.cause
        elif isinstance(committed, BaseException):
            raise committed

    async def _delete_in_session(self) -> object:
        """Try once more, when the claim's own node may be gone: in its session the mark can only be ours."""
        if self._zk.session_id != self._session_id:
            raise zkwire.SessionExpiredError("the session ended before the item was deleted")
        transaction = self._zk.transaction()
        transaction.delete(self._mark)
        transaction.delete(self.entry)
        try:
            return await transaction.commit()
        except (zkwire.ConnectionLostError, zkwire.TransactionError) as error:
            return error


class Claim(Hold[Item]):
    """What `async with queue.claim() as item` enters: it claims; at the end it deletes the item, or hands it back when
    the body has failed.

    When the claim is lost it cancels the body and raises LockLostError in place of the cancellation.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and isinstance(self._lease, Item):
            self._lease.handled()
        await super().__aexit__(kind, error, trace)
