"""A claimed item, and the `async with` that deletes it from the queue or hands it back.

A claim has two ephemeral nodes.  `taken/<item>` hides the item from other consumers.  The claim's own node, with a
unique name, is watched by the claim's lease.  At the end one transaction deletes the item and both nodes, so it is
carried out only if the claim's own node still exists.  So a consumer that has lost its claim, perhaps without noticing,
does not delete an item that another consumer has claimed since.  To take an item from a consumer by hand, delete the
claim's own node first, and then `taken/<item>`.  If only the latter is deleted, a second consumer can claim the item
while the first one still has it, and the consumer that is done first deletes it.
"""

import asyncio
from dataclasses import replace
from types import TracebackType
from typing import Self

import zkwire
from recipes.common.numbers import next_number
from recipes.common.retrying import read, read_synced, result_after_loss, until_answered
from recipes.common.waiting import LEAVES_WITHIN
from recipes.line.contenders import Contender, contender
from recipes.line.lease import Body, Lease, LockLostError
from recipes.line.locking import Hold
from recipes.line.ticket import Ticket, is_ticket
from recipes.queue.attempts import add_move, has_moved
from recipes.queue.consumer import Claimed
from recipes.queue.nodes import Nodes, child_names
from recipes.queue.order import in_order
from recipes.queue.view import View
from zkwire import GetChildren, GetData, Node, Transaction, ZooKeeperError


class Item(bytes):
    """An item that belongs to this consumer as long as its claim lasts; made by `Queue.claim`.

    It is the data that was put, as bytes.

    Attributes: `attempt`, which one at the item it is, from 1, if the queue has `max_attempts`, otherwise 0; `data`,
    the same as the item; `token`, the fencing token, which is the czxid of the claim: every later claim of the
    item has a greater one; `path` of the claim's own node; `entry`, the path of the item.
    """

    def __new__(cls, nodes: Nodes, claimed: Claimed, view: View) -> Self:
        """Make the bytes from the claimed data."""
        return super().__new__(cls, claimed.data)

    def __init__(self, nodes: Nodes, claimed: Claimed, view: View) -> None:
        self.data: bytes = claimed.data
        self.attempt: int = claimed.attempt
        self.token: int = claimed.node.token
        self.path: str = claimed.node.path
        self.entry: str = nodes.entry(claimed.name)
        self._nodes = nodes
        self._zk = nodes.zk
        self._name = claimed.name
        self._session_id = claimed.node.session_id
        self._view = view
        self._version = claimed.version
        self._is_handled = False
        self._is_uncounted = False
        # No client waits for the claim's own node, so the end of a claim need not yield the processor to it.
        ticket = Ticket(claimed.node, nodes.zk.guaranteed_delete(self.path))
        self._lease = Lease(nodes.zk, ticket, is_awaited=False)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        """Make a copy, in this process or another one, of the data alone: the claim has one holder."""
        return bytes, (self.data,)

    # -- asking -----------------------------------------------------------------------------------------------------

    def is_certain(self) -> bool:
        """Return whether the claim certainly holds at this moment; see Lease.is_certain."""
        return self._lease.is_certain()

    def certain_for(self) -> float:
        """Return for how many seconds from now the claim certainly holds; see Lease.certain_for."""
        return self._lease.certain_for()

    def check(self) -> None:
        """Return if the claim certainly holds.

        Raises:
            LockLostError: if it may not.
        """
        self._lease.check()

    async def lost(self) -> LockLostError | None:
        """Wait until the claim is lost, and return the error that says how; return None when the claim has ended."""
        return await self._lease.lost()

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while the claim exists; see Client.transaction."""
        return self._lease.transaction()

    # -- the body ---------------------------------------------------------------------------------------------------

    def _body_ended(self, *, is_handled: bool, is_cancelled: bool) -> None:
        """Make `release` delete an item that was handled; if the body was cancelled, make the claim count no more."""
        self._is_handled = is_handled
        self._is_uncounted = is_cancelled

    def _enter_body(self, body: Body) -> None:
        """Interrupt `body` when the claim is lost."""
        self._lease._enter_body(body)

    def _leave_body(self, body: Body) -> LockLostError | None:
        """Undo `_enter_body`; return how the claim was lost, if it was."""
        return self._lease._leave_body(body)

    async def release(self) -> None:
        """Delete the item from the queue if it was handled, otherwise hand it back; do nothing the second time.

        Raises:
            LockLostError: if the claim was lost, or the session ended before the item was known to be deleted.

        Cancellation:
            The work goes on in the background.
        """
        if await self._lease._is_left_to_bodies():
            return
        ending = self._nodes.in_background(self._end())
        # A process that is being stopped must not wait for a silent ensemble.
        ended, _ = await asyncio.wait([ending], timeout=LEAVES_WITHIN if self._is_uncounted else None)
        for each in ended:
            each.result()

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        if self._lease.is_released:
            return  # another consumer may have claimed the item since
        loss = self._lease._find_loss()
        is_last = 0 < self._nodes.max_attempts <= self.attempt
        if loss is not None or not (self._is_handled or self._is_uncounted or is_last):
            await self._hand_back(is_lost=loss is not None)
            if loss is not None and self._is_handled:
                raise loss
            return
        try:
            await self._delete()
        except (ZooKeeperError, ValueError) as error:  # ValueError: it is too large for the transaction
            if not isinstance(error, zkwire.SessionError | LockLostError):
                await self._hand_back(is_lost=False)
            if not self._is_handled:
                return  # the body's error is more important; the next consumer tries to move the item
            if isinstance(error, zkwire.SessionError):
                raise LockLostError(self.path, f"{error}; the item may be handled again") from None
            raise

    async def _hand_back(self, *, is_lost: bool) -> None:
        self._view.handed_back(self._name, has_failed=not is_lost)
        if is_lost:
            # In the background: it may take until a server answers again, or until the session is over.
            self._nodes.in_background(self._nodes.free(self._name, claim=self.path, session_id=self._session_id))
            await self._lease._release_at_once()
            return
        discarded = self._nodes.discard(self._nodes.taken_node(self._name), self._session_id)
        await self._lease._release_at_once()
        if discarded is not None:
            await discarded

    async def _delete(self) -> None:
        """Delete the item and both nodes of the claim, in one transaction that needs all three.

        One that was not handled moves to `failed`, or stays with its former number if the claim does not count.

        Raises:
            SessionError: if the session has ended.
            LockLostError: if the claim was lost.
            ServerError: if the server refuses it otherwise.
        """
        self._lease._leave_node()
        try:
            await until_answered(self._zk, self._commit, renews=False)
        except (ZooKeeperError, ValueError) as error:
            # The claim's own node first: while it is there, its lease may be looked for.
            await self._lease._ticket.removal.start()
            if not isinstance(error, zkwire.TransactionError):
                raise
            if isinstance(error.cause, zkwire.NotEmptyError):
                error.cause.hint = "the item was handled, but cannot be deleted: another client put nodes below it"
            if not isinstance(error.cause, zkwire.NoNodeError):
                raise error.cause from None
            # If only the item is missing, a person has deleted it by hand, and it counts as handled.
            is_lost = error.cause.path != self.entry
            await self._hand_back(is_lost=is_lost)
            if is_lost:
                why = "another client has deleted it; the item may be handled again"
                raise LockLostError(self.path, why) from None

    async def _commit(self) -> None:
        """Delete the nodes; after a lost answer, see whether they are gone."""
        paths = [self.path, self._nodes.taken_node(self._name), *([] if self._is_uncounted else [self.entry])]
        is_counted = self.attempt > 0
        while True:
            transaction = self._zk.transaction(session_id=self._session_id)
            for path in paths:
                transaction.delete(path)
            if is_counted and self._is_uncounted:
                transaction.set(self._nodes.number(self._name), b"%d" % (self.attempt - 1), self._version)
            elif is_counted:
                transaction.delete(self._nodes.number(self._name))
            if not (self._is_handled or self._is_uncounted):
                add_move(transaction, self._nodes, self._name, self.data, self.attempt)
            try:
                await transaction.commit()
            except zkwire.TransactionError as refused:
                if refused.index < len(paths) or not isinstance(refused.cause, zkwire.NoNodeError):
                    raise
                # The number, or `failed`, was deleted by hand.
                is_counted = refused.index > len(paths)
                await self._nodes.make()
                continue
            except zkwire.ConnectionLostError:
                # When it was carried out, all three are gone, and no other consumer can have claimed the item since.
                left = await read_synced(self._zk, self._nodes.path, *map(GetData, paths))
                if self._zk.session_id != self._session_id:
                    why = "the session ended before the item was known to be deleted"
                    raise zkwire.SessionExpiredError(why) from None
                if any(result_after_loss(node) is not None for node in left):
                    continue  # this is refused if another client has deleted one of them by hand
            if self._is_uncounted:
                self._view.handed_back(self._name, has_failed=True)
            elif not self._is_handled:
                has_moved(self._nodes, self._name, self.attempt)
            return


async def claims(nodes: Nodes) -> list[Contender]:
    """Return the items that are claimed, with the claim of each; see Queue.claims."""
    listed, entries = await read(nodes.zk, GetChildren(nodes.taken), GetData(nodes.entries))
    names = in_order(child_names(listed) or (), next_number(entries.stat) if isinstance(entries, Node) else 0)
    reads = [GetData(of(name)) for name in names for of in (nodes.taken_node, nodes.entry)]
    answers = iter(await read(nodes.zk, *reads) if reads else ())
    found = []
    for name, taken, item in zip(names, answers, answers, strict=True):
        for answer in (taken, item):
            if isinstance(answer, BaseException) and not isinstance(answer, zkwire.NoNodeError | zkwire.NoAuthError):
                raise answer
        if isinstance(taken, Node) and is_ticket(taken.stat) and not isinstance(item, zkwire.NoNodeError):
            claim = contender(nodes.zk, nodes.entry(name), taken, owns=True)
            found.append(replace(claim, data=item.data if isinstance(item, Node) else b""))
    return found


class Claim(Hold[Item]):
    """The context manager of `async with queue.claim() as item`.

    Entering it waits for an item and claims it.  Leaving it deletes the item, or hands it back if the body has failed.
    When the claim is lost it cancels the body and raises LockLostError in place of the cancellation.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._lease, Item):
            is_cancelled = kind is asyncio.CancelledError and self._is_cancelled()
            self._lease._body_ended(is_handled=kind is None, is_cancelled=is_cancelled)
        await super().__aexit__(kind, error, trace)
