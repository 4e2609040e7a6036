"""Take items out of a queue: for good (`get`), or as a claim (`claim`).

How a consumer takes the first item exactly once although an answer may be lost:

- A take is one transaction that creates the node `taken/<item>`.  The node can be created once, so only one consumer
  succeeds; the others see it refused and try another item.
- The transaction of `claim` leaves this node, which is ephemeral, as long as the claim lasts.
- The transaction of `get` deletes the item and this node too, and writes a receipt (see recipes.common.receipts).  If
  the answer is lost, the receipt says whether the transaction was carried out.  If it was not, it is sent again; it is
  refused if another consumer has taken the item meanwhile.
- The name of an item is not given to another item (see recipes.queue.nodes), so the second transaction cannot take a
  later item.  Only deleting the whole queue by hand breaks this rule; then the item has another czxid.
- One case stays open: the whole queue is deleted and made again between the read of an item and the transaction that
  takes it, and an item of the same name is put.  Then `get` returns the old data and deletes the new item.  So an item
  is not read long before.  A transaction can make its delete depend only on the version of data, which shows that the
  item was changed, but is 0 for both items here; no operation compares the czxid.  To close the case each queue would
  need another node, with a unique name, that each take checks; kazoo would not create it.  `claim` reads the item
  after its transaction, and so returns the item that it has.
- When the session ends before the receipt could be read, nothing shows whether this consumer took the item.  `get`
  then goes on with the next item: it promises each item at most once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import zkwire
from recipes.common.receipts import Receipts
from recipes.common.retrying import read, read_after_loss, read_synced, until_answered
from recipes.common.waiting import Bound
from recipes.line.ticket import TicketNode
from recipes.line.waiting import certify
from recipes.queue.attempts import UNCOUNTED, Number, add_attempt, move_abandoned, read_number, take_back, uncountable
from recipes.queue.nodes import Nodes
from recipes.queue.order import name_before
from recipes.queue.quarantine import HAS_CHILDREN, TOO_LONG, UNREADABLE, UNWRITABLE, UnusableItemError, checked
from recipes.queue.view import View
from zkwire import GetData, Node, Transaction, ZooKeeperError

_log = logging.getLogger(__name__)

T = TypeVar("T")

# The position in a claim's transaction of the operation that counts it, and how it is refused if the number is not as
# it was believed to be.
_COUNTS: Final = 3
_WAS_COUNTED: Final = (zkwire.NodeExistsError, zkwire.NoNodeError, zkwire.BadVersionError)


@dataclass(slots=True)
class Claimed:
    """A successful claim: the name of the item, its data, and the claim's own node.

    Attributes: `attempt`, which claim of the item it is, from 1, or 0 if they are not counted; `version` of the number.
    """

    name: str
    node: TicketNode
    data: bytes = b""
    attempt: int = 0
    version: int = 0


class Consumer:
    """Takes items; the tasks that share a queue object share one consumer and what it knows of the items.

    Attributes: `view`, what it knows of the items.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self._receipts = Receipts(nodes.zk, nodes.take_prefix, acl=nodes.asked_acl)
        self.view: View = View(nodes)
        self._kept: list[bytes] = []  # of gets that were cancelled: the server would not have these items back

    async def peek(self) -> bytes | None:
        """Return the data of the first item that can be taken, None without one."""
        for name in await self.view.free_items():
            try:
                if (item := checked(await self._answer(name))) is not None:
                    return item.data
            except UnusableItemError as unusable:
                self.view.quarantine.add(name, str(unusable))
        return None

    async def _answer(self, name: str) -> object:
        """Return the item `name`, or the error of its read."""
        try:
            return await until_answered(self._zk, lambda: self._zk.get(self._nodes.entry(name)), renews=False)
        except ZooKeeperError as error:
            return error

    # -- taking -----------------------------------------------------------------------------------------------------

    async def get(self, bound: Bound) -> bytes | None:
        """Take the first item out of the queue and return its data, None without one; `bound` cuts off no take.

        Cancellation:
            An item that was taken is put back in its place; if the server refuses that, the next call returns it.
        """
        if self._kept:
            return self._kept.pop(0)
        return await self._take_first(partial(self._get, bound), is_get=True)

    async def claim(self) -> Claimed | None:
        """Claim the first item, None without one; the claim's session is certain to be alive when this returns.

        Cancellation:
            An item that was claimed is handed back.
        """
        return await self._take_first(self._claim, is_get=False)

    async def _take_first(self, take: Callable[[str], Awaitable[T | None]], *, is_get: bool) -> T | None:
        """Call `take` with one item after the other until it returns something; return that, None without items."""
        listing = self.view.listing
        is_fresh = False  # whether this call has looked by itself
        while True:
            if self.view.is_stale:
                await self.view.look(read_ahead=is_get)
                is_fresh = True
            name = listing.pick(int(self._zk.unique_id()[:8], 16))
            if name is None:
                return None
            self.view.being_taken.add(name)
            try:
                taken = await take(name)
            except UnusableItemError as unusable:
                self.view.quarantine.add(name, str(unusable))
            except BaseException:
                self.view.listing.expire()  # the item may still be there, and then it is the first
                raise
            else:
                if taken is not None:
                    listing.won()
                    return taken
                listing.lost(is_fresh=is_fresh)
            finally:
                self.view.being_taken.discard(name)

    # -- getting ----------------------------------------------------------------------------------------------------

    async def _get(self, bound: Bound, name: str) -> bytes | None:
        """Take the item `name` out of the queue; return None if another consumer has it."""
        # The data is read before the take and not with it: after a lost connection the client repeats reads, and by
        # then our own take may have deleted the item.
        item = self.view.ahead(name) or checked(await self._answer(name))
        if item is None or not await self._remove(bound, name, item):
            return None
        if self._nodes.max_attempts:
            self._zk.discard(self._nodes.number(name))
        return item.data

    async def _remove(self, bound: Bound, name: str, item: Node) -> bool:
        """Delete the item, and return whether it is ours; if not, another consumer has it.

        Args:
            item: The item as it was read.
        """
        session_id = self._zk.session_id
        try:
            return await until_answered(self._zk, lambda: self._commit_removal(bound, name, item), renews=False)
        except zkwire.TransactionError as refused:
            if isinstance(refused.cause, zkwire.NotEmptyError):
                raise UnusableItemError(HAS_CHILDREN) from None
            if isinstance(refused.cause, zkwire.BadVersionError):
                self.view.listing.expire()  # it is still the first
            else:
                _raise_unless_lost(refused)
            return False
        except zkwire.ConnectionLostError as lost:
            # The receipt is gone, usually with its session: nothing shows whether we have the item.
            if self._zk.session_id == session_id:
                return False
            raise zkwire.SessionExpiredError("the session ended before the outcome of a take was known") from lost

    async def _commit_removal(self, bound: Bound, name: str, item: Node) -> bool:
        taken_node, entry = self._nodes.taken_node(name), self._nodes.entry(name)
        while True:
            transaction = self._zk.transaction()
            transaction.create(taken_node, acl=self._nodes.fixed_acl)  # not if another consumer has claimed the item
            transaction.delete(entry, item.stat.version)  # not if its data was changed since it was read
            transaction.delete(taken_node)
            if await self._commit_take(bound, transaction, name, item.data):
                return True
            there = await read_after_loss(self._zk, entry)
            if there is not None and there.stat.czxid != item.stat.czxid:
                return False  # the queue was deleted meanwhile, and this is another item of the same name

    async def _commit_take(self, bound: Bound, transaction: Transaction, name: str, data: bytes) -> bool:
        """The same as `_committed`; if the caller is cancelled meanwhile, the item is put back."""
        committing: asyncio.Task[bool] | None = None

        def commit() -> asyncio.Future[bool]:
            nonlocal committing
            committing = self._nodes.in_background(self._committed(transaction))
            return asyncio.shield(committing)

        try:
            return await bound.uncut(commit)
        except asyncio.CancelledError:
            if committing is not None:
                undoing = self._nodes.in_background(self._undo_removal(committing, name, data))
                # A caller that cancels often closes the client next.  The item would be lost, so put it back first,
                # even if the caller cancels again.
                await self._nodes.wait_to_leave(undoing)
            raise

    async def _committed(self, transaction: Transaction) -> bool:
        """Commit with a receipt; return False if it was not carried out, and is to be tried again."""
        try:
            return await self._receipts.commit(transaction)
        except zkwire.TransactionError as refused:
            if not (isinstance(refused.cause, zkwire.NoNodeError) and refused.index == 0):
                raise
            await self._nodes.make()
            return False
        except ValueError:
            raise UnusableItemError(TOO_LONG) from None

    async def _undo_removal(self, removing: asyncio.Task[bool], name: str, data: bytes) -> None:
        if not await removing:
            return
        try:
            await until_answered(self._zk, lambda: self._put_back(name, data))
        except (zkwire.TransactionError, UnusableItemError) as refused:
            self._kept.append(data)
            path = self._nodes.path
            _log.warning("an item of %s that a cancelled get had taken is kept for the next get: %s", path, refused)
        except ZooKeeperError as error:
            _log.warning("an item of %s that a cancelled get had taken may be lost: %s", self._nodes.path, error)

    async def _put_back(self, name: str, data: bytes) -> None:
        """Create the item again under its old name, exactly once.

        If the server has given the name to another item since (it gives its last number again and again), the item gets
        the name before that one.
        """
        while True:
            transaction = self._zk.transaction()
            transaction.create(self._nodes.entry(name), data, acl=self._nodes.fixed_acl)
            try:
                if await self._committed(transaction):
                    return
            except zkwire.TransactionError as refused:
                if not isinstance(refused.cause, zkwire.NodeExistsError):
                    raise
                name = name_before(name)

    # -- claiming ---------------------------------------------------------------------------------------------------

    async def _claim(self, name: str) -> Claimed | None:
        """Claim the item `name`; return None if another consumer has it."""
        claiming = self._nodes.in_background(self._make_certain_claim(name))
        try:
            await asyncio.wait([claiming])
        except asyncio.CancelledError:
            self._nodes.in_background(self._undo_claim(claiming))
            raise
        return claiming.result()

    async def _make_certain_claim(self, name: str) -> Claimed | None:
        """Claim the item in a session that is certain to be alive at the end; if need be, ask the leader.

        While no claim is held, nothing asks the leader: without this a claim after an idle time would be lost at once.
        """
        while (claimed := await self._make_claim(name)) is not None:
            session_id = claimed.node.session_id
            try:
                while not self._zk.certain_for(session_id) and self._zk.session_id == session_id:
                    await certify(self._zk)
            except BaseException:
                await self._hand_back(claimed)
                raise
            if self._zk.session_id == session_id:
                break
        return claimed

    async def _make_claim(self, name: str) -> Claimed | None:
        """Create the taken node and the claim's own node, and read both item and claim, in one write.

        Most items were not claimed before: their number is created.  If that is refused, it is read.
        """
        number = UNCOUNTED
        while True:
            own_name = f"_c_{self._zk.unique_id()}"
            path = self._nodes.taken_node(own_name)
            try:
                item, claim = await self._commit_claim(name, path, number)
            except zkwire.TransactionError as refused:
                if isinstance(refused.cause, zkwire.NoNodeError) and refused.index in (0, _COUNTS):
                    await self._nodes.make()
                    if refused.index == 0:
                        continue
                if isinstance(refused.cause, zkwire.NoAuthError) and refused.index == 1:  # a check needs READ
                    raise UnusableItemError(UNREADABLE) from None
                if isinstance(refused.cause, zkwire.NoAuthError) and refused.index == _COUNTS and number != UNCOUNTED:
                    raise uncountable(self._nodes, name, UNWRITABLE) from None
                if refused.index == _COUNTS and isinstance(refused.cause, _WAS_COUNTED):
                    number = await read_number(self._nodes, name)
                    if number.attempts < self._nodes.max_attempts:
                        continue
                    await move_abandoned(self._nodes, name, number)
                    return None
                _raise_unless_lost(refused)
                return None
            attempt, version = number.attempts + 1 if self._nodes.max_attempts else 0, number.version + 1
            if isinstance(claim, zkwire.NoAuthError):  # it is there, but `acl` lacks READ
                own_node = TicketNode(path, own_name, 0, self._zk.session_id)
                await self._hand_back(Claimed(name, own_node, attempt=attempt, version=version))
                raise claim
            if not isinstance(claim, Node):
                # It was not carried out, or its node went with its session or by hand: the taken node may be left.
                await self._nodes.free(name, claim=path, session_id=self._zk.session_id)
                continue
            own_node = TicketNode(path, own_name, claim.stat.czxid, claim.stat.ephemeral_owner)
            claimed = Claimed(name, own_node, attempt=attempt, version=version)
            try:
                found = checked(item)
            except ZooKeeperError:
                await self._hand_back(claimed)
                raise
            if found is None:
                await self._hand_back(claimed)
                return None
            return replace(claimed, data=found.data)

    async def _commit_claim(self, name: str, path: str, number: Number) -> Any:
        """Send the transaction and the reads; return the item, and the claim's own node, or the errors of the reads."""
        entry = self._nodes.entry(name)
        transaction = self._zk.transaction()
        transaction.create(self._nodes.taken_node(name), path.encode(), ephemeral=True, acl=self._nodes.fixed_acl)
        transaction.check(entry)
        transaction.create(path, name.encode(), ephemeral=True, acl=self._nodes.fixed_acl)
        if self._nodes.max_attempts:
            add_attempt(transaction, self._nodes, name, number)
        # The tasks of gather start in this order, in the same turn of the event loop: the reads come after the
        # transaction and see what it did.
        reads = read(self._zk, GetData(entry), GetData(path))
        outcomes: list[Any] = await asyncio.gather(transaction.commit(), reads, return_exceptions=True)
        committed, answers = outcomes
        if isinstance(committed, zkwire.ConnectionLostError):
            (claim,) = await read_synced(self._zk, self._nodes.path, GetData(path))
            return [await self._answer(name), claim]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise UnusableItemError(TOO_LONG) if isinstance(outcome, ValueError) else outcome
        return answers

    async def _undo_claim(self, claiming: asyncio.Task[Claimed | None]) -> None:
        claimed = await claiming
        if claimed is not None:
            await self._hand_back(claimed)

    async def _hand_back(self, claimed: Claimed) -> None:
        """Give up a claim whose body has not begun."""
        if claimed.attempt:
            # First: the next claim of the item must find the former number.
            await take_back(self._nodes, claimed.name, claimed.attempt, claimed.version)
        self._nodes.discard(self._nodes.taken_node(claimed.name), claimed.node.session_id)
        self._nodes.discard(claimed.node.path, claimed.node.session_id)


def _raise_unless_lost(refused: zkwire.TransactionError) -> None:
    """Return if a take was refused because the item is taken or gone; raise the cause of any other refusal."""
    if not isinstance(refused.cause, zkwire.NodeExistsError | zkwire.NoNodeError):
        raise refused.cause
