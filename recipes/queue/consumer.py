"""Take items out of a queue: for good (`get`), or as a claim (`claim`).

How a consumer takes the first item exactly once although an answer may be lost:

- A take is one transaction that creates the node `taken/<item>`.  The node can be created once, so only one consumer
  succeeds; the others see it refused and try another item.
- The transaction of `claim` leaves this node, which is ephemeral, as long as the claim lasts.
- The transaction of `get` deletes the item and this node too, and writes a trace (see recipes.common.trace).  If the
  answer is lost, the trace says whether the transaction was carried out.  If it was not, it is sent again; it is
  refused if another consumer has taken the item meanwhile.
- The name of an item is not given to another item (see recipes.queue.nodes), so the second transaction cannot take a
  later item.  Only deleting the whole queue by hand breaks this rule; then the item has another czxid.
- One case stays open: the whole queue is deleted and made again between the read of an item and the transaction that
  takes it, and an item of the same name is put.  Then `get` returns the old data and deletes the new item.  So an item
  is not read long ahead.  A transaction can make its delete depend only on the version of data, which shows that the
  item was changed, but is 0 for both items here; no operation compares the czxid.  To close the case each queue would
  need another node, with a unique name, that each take checks; kazoo would not create it.  `claim` reads the item
  behind its transaction, and so returns the item that it has.
- When the session ends before the trace could be read, nothing shows whether this consumer took the item.  `get`
  then goes on with the next item: it promises each item at most once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import zkwire
from recipes.common.trace import Traces
from recipes.line.certainty import Certainty
from recipes.line.refusals import any_transient, is_transient, pause
from recipes.queue.aside import HAS_CHILDREN, UNREADABLE, UnusableItemError, checked
from recipes.queue.nodes import Nodes
from recipes.queue.order import name_before
from recipes.queue.view import View
from zkwire import GetData, Node, ZooKeeperError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Claimed(NamedTuple):
    """A successful claim: the item's name and data; the path of the claim's own node, its czxid and its session."""

    name: str
    data: bytes
    path: str
    token: int
    session_id: int


class Consumer:
    """Takes items; the tasks that share a queue object share one consumer and what it knows of the items.

    Arguments: `nodes` of the queue.
    Attributes: `view`, what it knows of the items.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self._traces = Traces(nodes.zk, nodes.take_prefix, acl=nodes.asked_acl)
        self.view = View(nodes)

    async def peek(self) -> bytes | None:
        """Return the data of the first item that can be taken, None without one."""
        while True:
            free = await self.view.free_items()
            if not free:
                return None
            first = free[0]
            try:
                return (await self._read(first)).data
            except zkwire.NoNodeError:
                continue
            except UnusableItemError as unusable:
                self.view.go_round(first, unusable.why)

    async def count(self) -> int:
        """Return how many items can be taken."""
        return len(await self.view.free_items())

    async def _read(self, name: str) -> Node:
        """Return the item `name`.  Raises: UnusableItemError when it cannot be taken; NoNodeError when it is gone."""
        try:
            item: object = await self._zk.get(self._nodes.entry(name))
        except (zkwire.NoAuthError, zkwire.ProtocolError) as error:
            item = error
        return checked(item)

    # -- taking -----------------------------------------------------------------------------------------------------

    async def get(self, *, has_looked: bool = False) -> bytes | None:
        """Take the first item out of the queue and return its data, None without one.

        Arguments: `has_looked`, whether the last look was made for this call, among others.
        Cancellation: an item that was taken is put back in its place.
        """
        return await self._take_first(self._get, is_get=True, has_looked=has_looked)

    async def claim(self, *, has_looked: bool = False) -> Claimed | None:
        """Claim the first item, None without one; the claim's session is certain to be alive when this returns.

        Arguments: `has_looked`, as for `get`.
        Cancellation: an item that was claimed is handed back.
        """
        while True:
            claimed = await self._take_first(self._claim, is_get=False, has_looked=has_looked)
            if claimed is None or await self._is_certain(claimed):
                return claimed
            self.view.expire()

    async def _take_first(
        self, take: Callable[[str], Awaitable[T | None]], *, is_get: bool, has_looked: bool
    ) -> T | None:
        """Call `take` with one item after the other until it returns something; return that, None without items."""
        listing = self.view.listing
        is_fresh = False  # whether this call has looked by itself
        while True:
            if listing.is_expired or (listing.is_stale and not has_looked):
                await self.view.look(read_ahead=is_get)
                is_fresh = has_looked = True
            name = listing.pick(int(self._zk.unique_id()[:8], 16))
            if name is None:
                return None
            self.view.being_taken.add(name)
            try:
                taken = await take(name)
            except UnusableItemError as unusable:
                self.view.go_round(name, unusable.why)
                has_looked = has_looked and not listing.is_empty
                continue
            except BaseException:
                self.view.expire()  # the item may still be there, and then it is the first
                raise
            finally:
                self.view.being_taken.discard(name)
            if taken is not None:
                self.view.took(is_deleted=is_get)
                return taken
            self.view.missed(is_fresh=is_fresh)
            has_looked = has_looked and not listing.is_empty

    # -- getting ----------------------------------------------------------------------------------------------------

    async def _get(self, name: str) -> bytes | None:
        """Take the item `name` out of the queue; return None if another consumer has it."""
        # The data is read before the take and not with it: after a lost connection the client repeats reads, and by
        # then our own take may have deleted the item.
        item = self.view.ahead(name)
        if item is None:
            try:
                item = await self._read(name)
            except zkwire.NoNodeError:
                return None
        removing = self._nodes.in_background(_outcome(self._remove(name, item)))
        try:
            was_removed = await asyncio.shield(removing)
        except asyncio.CancelledError:
            undoing = self._nodes.in_background(self._undo_removal(removing, name, item.data))
            # A caller that cancels often closes the client next.  The item would be lost, so put it back first, even if
            # the caller cancels again.
            await self._nodes.wait_while_connected(undoing)
            raise
        if isinstance(was_removed, ZooKeeperError):
            raise was_removed
        return item.data if was_removed else None

    async def _remove(self, name: str, item: Node) -> bool:
        """Delete the item, and return whether it is ours; if not, another consumer has it.

        Arguments: `item` as it was read.
        """
        taken_node, entry = self._nodes.taken_node(name), self._nodes.entry(name)
        while True:
            session_id = self._zk.session_id
            transaction = self._zk.transaction()
            transaction.create(taken_node, acl=self._nodes.fixed_acl)  # not if another consumer has claimed the item
            transaction.delete(entry, item.stat.version)  # not if its data was changed since it was read
            transaction.delete(taken_node)
            try:
                if await self._traces.commit(transaction):
                    return True
            except zkwire.TransactionError as refused:
                if isinstance(refused.cause, zkwire.NoNodeError) and refused.index == 0:
                    await self._nodes.make()
                    continue
                if isinstance(refused.cause, zkwire.NotEmptyError):
                    raise UnusableItemError(HAS_CHILDREN) from None
                if isinstance(refused.cause, zkwire.BadVersionError):
                    self.view.expire()  # it is still the first
                    return False
                _raise_unless_lost(refused)
                return False
            except zkwire.ConnectionLostError as lost:
                # The trace is gone, usually with its session: nothing shows whether we have the item.
                if self._zk.session_id == session_id:
                    return False
                raise zkwire.SessionExpiredError("the session ended before the outcome of a take was known") from lost
            _, (there,) = await self._nodes.read_after_loss(entry)
            if there is not None and there.stat.czxid != item.stat.czxid:
                return False  # the queue was deleted meanwhile, and this is another item of the same name

    async def _undo_removal(self, removing: asyncio.Task[bool | ZooKeeperError], name: str, data: bytes) -> None:
        if await removing is not True:
            return
        try:
            await self._put_back(name, data)
        except (ZooKeeperError, ValueError) as error:  # ValueError: too large, though not for the create of its maker
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
                if await self._traces.commit(transaction):
                    return
            except zkwire.TransactionError as refused:
                if isinstance(refused.cause, zkwire.NoNodeError) and refused.index == 0:
                    await self._nodes.make()
                elif isinstance(refused.cause, zkwire.NodeExistsError) and refused.index == 0:
                    name = name_before(name)
                else:
                    raise
            except zkwire.ServerError as refused:
                if not refused.is_transient:
                    raise
                await pause()

    # -- claiming ---------------------------------------------------------------------------------------------------

    async def _claim(self, name: str) -> Claimed | None:
        """Claim the item `name`; return None if another consumer has it."""
        path = self._nodes.taken_node(f"_c_{self._zk.unique_id()}")
        claiming: asyncio.Task[Claimed | ZooKeeperError | None]
        claiming = self._nodes.in_background(_outcome(self._make_claim(name, path)))
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._nodes.in_background(self._undo_claim(claiming))
            raise
        if isinstance(claimed, ZooKeeperError):
            raise claimed
        return claimed

    async def _make_claim(self, name: str, path: str) -> Claimed | None:
        """Create the taken node and the claim's own node at `path`, and read both item and claim, in one write."""
        entry, taken_node = self._nodes.entry(name), self._nodes.taken_node(name)
        while True:
            transaction = self._zk.transaction()
            transaction.create(taken_node, path.encode(), ephemeral=True, acl=self._nodes.fixed_acl)
            transaction.check(entry)
            transaction.create(path, name.encode(), ephemeral=True, acl=self._nodes.fixed_acl)
            # The tasks of gather start in this order, in the same turn of the event loop: the reads come behind the
            # transaction and see what it did.
            reads = [GetData(entry), GetData(path)]
            answers: Sequence[Any] = await asyncio.gather(
                transaction.commit(), self._zk.pipeline(reads), return_exceptions=True
            )
            committed, read = answers
            if isinstance(committed, zkwire.TransactionError):
                if isinstance(committed.cause, zkwire.NoNodeError) and committed.index == 0:
                    await self._nodes.make()
                    continue
                if isinstance(committed.cause, zkwire.NoAuthError) and committed.index == 1:  # a check needs READ
                    raise UnusableItemError(UNREADABLE)
                _raise_unless_lost(committed)
                return None
            was_lost = isinstance(committed, zkwire.ConnectionLostError)
            if isinstance(committed, BaseException) and not was_lost:
                raise committed
            item: object
            if was_lost or isinstance(read, zkwire.ProtocolError) or (isinstance(read, list) and any_transient(read)):
                # The claim alone: an item that is too large for an answer breaks the connection of all reads with it.
                _, (claim,) = await self._nodes.read_after_loss(path)
                item = await self._patient_read(entry)
            elif isinstance(read, BaseException):
                raise read
            else:
                item, claim = read
            if not isinstance(claim, Node) or claim.stat.ephemeral_owner != self._zk.session_id:
                # It was not carried out, or its node went with its session or by hand: the taken node may be left.
                await self._nodes.free(name, claim=path, session_id=self._zk.session_id)
                if was_lost:
                    continue
                return None
            unread = Claimed(name, b"", path, claim.stat.czxid, claim.stat.ephemeral_owner)
            try:
                data = checked(item).data
            except zkwire.NoNodeError:
                self._hand_back(unread)
                return None
            except ZooKeeperError:
                self._hand_back(unread)
                raise
            return Claimed(name, data, path, unread.token, unread.session_id)

    async def _patient_read(self, entry: str) -> object:
        """Return the node, or the error of the read; ask again after a transient refusal."""
        while True:
            item: object = await _outcome(self._zk.get(entry))
            if not is_transient(item):
                return item
            await pause()

    async def _is_certain(self, claimed: Claimed) -> bool:
        """Return whether the session of `claimed` is certain to be alive at this moment; if need be, ask the leader.

        While no claim is held, nothing asks the leader: without this a claim after an idle time would be lost at once.
        Cancellation: the item is handed back, as for any error.
        """
        certainty = Certainty(self._zk, claimed.session_id)
        try:
            while not certainty.seconds_left() and certainty.is_present_session:
                await certainty.renew()
        except BaseException:
            self._hand_back(claimed)
            self.view.expire()
            raise
        return certainty.is_present_session

    async def _undo_claim(self, claiming: asyncio.Task[Claimed | ZooKeeperError | None]) -> None:
        claimed = await claiming
        if isinstance(claimed, Claimed):
            self._hand_back(claimed)

    def _hand_back(self, claimed: Claimed) -> None:
        self._nodes.discard(self._nodes.taken_node(claimed.name), claimed.session_id)
        self._nodes.discard(claimed.path, claimed.session_id)


async def _outcome(work: Awaitable[T]) -> T | ZooKeeperError:
    """Return the result of `work`, or its error as a value: if the caller is cancelled, no one retrieves an exception.

    asyncio logs an exception that is never retrieved.
    """
    try:
        return await work
    except ZooKeeperError as error:
        return error


def _raise_unless_lost(refused: zkwire.TransactionError) -> None:
    """Return if a take was refused because the item is taken or gone.  Raises: the cause of any other refusal."""
    if not isinstance(refused.cause, zkwire.NodeExistsError | zkwire.NoNodeError):
        raise refused.cause
