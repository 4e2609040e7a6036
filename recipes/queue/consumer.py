"""Taking items out of a queue: for good, or as a claim.

Each take is one transaction that creates the ephemeral node `taken/<item>`: it can succeed for one consumer only, and
tells afterwards, when its answer was lost, whether it did.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import zkwire
from recipes.queue.nodes import Nodes
from recipes.queue.order import Stock
from zkwire import GetChildren, GetData, Node, WatchSet, ZooKeeperError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Claimed(NamedTuple):
    """A claim that was made: the item's name and data, the claim's own node, its zxid and its session."""

    name: str
    data: bytes
    path: str
    token: int
    session_id: int


class Takes:
    """The takes of one consumer, whose tasks share what it knows of the items.

    Arguments: `nodes`, the queue's.  `has_nodes`: whether the last list has found them there.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self.stock = Stock()
        self.has_nodes = False
        self._in_hand: set[str] = set()
        self._read_ahead: tuple[str, Node] | None = None

    # -- looking ----------------------------------------------------------------------------------------------------

    async def look(self, watches: WatchSet | None = None, *, read_ahead: bool = False) -> None:
        """List the items that are to be had.

        Arguments: `watches`, told when that may have changed; `read_ahead`, whether to read, with the list, the item
        that will probably be the first.
        """
        is_hiding = False
        while True:
            guess = self.stock.first if read_ahead else None
            # What is claimed is watched only if that is why there is nothing, so that others' takes wake nobody.
            entries, taken, *ahead = await self._zk.pipeline(
                [
                    GetChildren(self._nodes.entries, into=watches),
                    GetChildren(self._nodes.taken, into=watches if is_hiding else None),
                    *([] if guess is None else [GetData(self._nodes.entry(guess))]),
                ]
            )
            names, hidden = _names(entries), _names(taken)
            self.has_nodes = names is not None
            self._read_ahead = (guess, ahead[0]) if guess and isinstance(ahead[0], Node) else None
            # What another task here is about to take it may yet leave, and that nobody would tell.
            in_hand = self._in_hand if watches is None else set()
            self.stock.fill(names or (), in_hand.union(hidden or ()))
            if watches is None or is_hiding or not names or not self.stock.is_empty:
                return
            is_hiding = True

    async def peek(self) -> bytes | None:
        """Return the data of the first item, None without one."""
        stock = Stock()
        while True:
            entries, taken = await self._list()
            stock.fill(entries, taken)
            if stock.first is None:
                return None
            try:
                return (await self._zk.get(self._nodes.entry(stock.first))).data
            except zkwire.NoNodeError:
                continue

    async def count(self) -> int:
        """Return how many items are to be had."""
        entries, taken = await self._list()
        return len(entries - taken)

    async def _list(self) -> tuple[set[str], set[str]]:
        answers = await self._zk.pipeline([GetChildren(self._nodes.entries), GetChildren(self._nodes.taken)])
        entries, taken = (set(_names(answer) or ()) for answer in answers)
        return entries, taken

    # -- taking -----------------------------------------------------------------------------------------------------

    async def get(self) -> bytes | None:
        """Take the first item that is to be had out of the queue, None without one.

        Cancellation: an item that was taken is put back in its place.
        """
        return await self._next(self._get, read_ahead=True)

    async def claim(self) -> Claimed | None:
        """Claim the first item that is to be had, None without one.

        Cancellation: an item that was claimed is handed back.
        """
        return await self._next(self._claim, read_ahead=False)

    async def _next(self, seize: Callable[[str], Awaitable[T | None]], *, read_ahead: bool) -> T | None:
        is_fresh = False  # whether the list was read in this very take
        while True:
            if self.stock.is_stale:
                await self.look(read_ahead=read_ahead)
                is_fresh = True
            name = self.stock.pick(int(self._zk.unique_id()[:8], 16))
            if name is None:
                return None
            self._in_hand.add(name)
            try:
                seized = await seize(name)
            except BaseException:
                self.stock.expire()  # it may be there still, and is the first
                raise
            finally:
                self._in_hand.discard(name)
            if seized is not None:
                self.stock.won()
                return seized
            self.stock.lost(is_fresh=is_fresh)

    async def _get(self, name: str) -> bytes | None:
        """Take the item `name` out, None if it is somebody else's.

        It is read before and not in the same write: a read that is cut off is repeated, and would find nothing.
        """
        ahead, self._read_ahead = self._read_ahead, None
        if ahead is not None and ahead[0] == name:
            item = ahead[1]
        else:
            try:
                item = await self._zk.get(self._nodes.entry(name))
            except zkwire.NoNodeError:
                return None
        removing = self._nodes.in_background(_outcome(self._remove(name, item, self._zk.unique_id().encode())))
        try:
            removed = await asyncio.shield(removing)
        except asyncio.CancelledError:
            undoing = self._nodes.in_background(self._undo_removal(removing, name, item.data))
            # Who is cancelled may close the client next, and the item would be lost.
            await self._nodes.while_connected(undoing)
            raise
        if isinstance(removed, ZooKeeperError):
            raise removed
        if removed is None:
            return None
        self._nodes.drop(self._nodes.mark(name), removed)
        return item.data

    async def _remove(self, name: str, item: Node, mark: bytes) -> int | None:
        """Delete the item and leave our mark; return the session whose it is, None if the item is somebody else's.

        Arguments: `item`, what was read of it.
        """
        while True:
            transaction = self._zk.transaction()
            transaction.create(self._nodes.mark(name), mark, ephemeral=True, acl=self._nodes.acl)
            transaction.delete(self._nodes.entry(name))
            try:
                await transaction.commit()
            except zkwire.TransactionError as refused:
                if isinstance(refused.cause, zkwire.NoNodeError) and refused.index == 0:
                    await self._nodes.make()
                    continue
                _check_somebody_elses(refused)
                return None
            except zkwire.ConnectionLostError:
                session_id = self._zk.session_id
                now, (found, there) = await self._nodes.look_after_loss(self._nodes.mark(name), self._nodes.entry(name))
                if now != session_id:
                    return None  # the mark, if there was one, went with its session: if it was taken, it is lost
                if found is None or found.data != mark:
                    if there is not None and there.stat.czxid != item.stat.czxid:
                        return None  # the queue was deleted meanwhile, and this is another one of the same name
                    continue
            return self._zk.session_id

    async def _undo_removal(self, removing: asyncio.Task[int | ZooKeeperError | None], name: str, data: bytes) -> None:
        session_id = await removing
        if not isinstance(session_id, int):
            return
        try:
            await self._put_back(name, data, session_id)
        except ZooKeeperError as error:
            _log.warning("an item of %s that a cancelled get had taken is lost: %s", self._nodes.path, error)

    async def _put_back(self, name: str, data: bytes, session_id: int) -> None:
        """Make the item again where it was, and take our mark away: once, for the mark can be deleted once."""
        while self._zk.session_id == session_id:
            transaction = self._zk.transaction()
            transaction.create(self._nodes.entry(name), data, acl=self._nodes.acl)
            transaction.delete(self._nodes.mark(name))
            try:
                await transaction.commit()
            except zkwire.TransactionError as refused:
                if isinstance(refused.cause, zkwire.NoNodeError) and refused.index == 0:
                    await self._nodes.make()
                    continue
                self._nodes.drop(self._nodes.mark(name), session_id)
                raise
            except zkwire.ConnectionLostError:
                _, (found,) = await self._nodes.look_after_loss(self._nodes.mark(name))
                if found is not None:
                    continue
            return
        raise zkwire.SessionExpiredError(f"session {session_id:#x} ended before it was put back")

    async def _claim(self, name: str) -> Claimed | None:
        """Claim the item `name`, None if it is somebody else's."""
        path = self._nodes.mark(f"_c_{self._zk.unique_id()}")
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
        """Make the claim and read the item behind it, in one write."""
        entry, mark = self._nodes.entry(name), self._nodes.mark(name)
        while True:
            transaction = self._zk.transaction()
            transaction.create(mark, path.encode(), ephemeral=True, acl=self._nodes.acl)
            transaction.check(entry)
            transaction.create(path, name.encode(), ephemeral=True, acl=self._nodes.acl)
            # The tasks of gather start in this order, and in one turn of the loop.
            reads = [GetData(entry), GetData(path)]
            answers: list[Any] = await asyncio.gather(
                transaction.commit(), self._zk.pipeline(reads), return_exceptions=True
            )
            committed, read = answers
            if isinstance(committed, zkwire.TransactionError):
                if isinstance(committed.cause, zkwire.NoNodeError) and committed.index == 0:
                    await self._nodes.make()
                    continue
                _check_somebody_elses(committed)
                return None
            if isinstance(committed, zkwire.ConnectionLostError):
                _, read = await self._nodes.look_after_loss(entry, path)
                if read[1] is None:
                    continue
            elif isinstance(committed, BaseException):
                raise committed
            if isinstance(read, BaseException):
                raise read
            item, claim = read
            if not isinstance(claim, Node) or claim.stat.ephemeral_owner != self._zk.session_id:
                return None  # it went with its session, or somebody has cleared the queue
            if not isinstance(item, Node):
                self._nodes.drop(mark, claim.stat.ephemeral_owner)
                self._nodes.drop(path, claim.stat.ephemeral_owner)
                return None
            return Claimed(name, item.data, path, claim.stat.czxid, claim.stat.ephemeral_owner)

    async def _undo_claim(self, claiming: asyncio.Task[Claimed | ZooKeeperError | None]) -> None:
        claimed = await claiming
        if isinstance(claimed, Claimed):
            self._nodes.drop(self._nodes.mark(claimed.name), claimed.session_id)
            self._nodes.drop(claimed.path, claimed.session_id)


async def _outcome(work: Awaitable[T]) -> T | ZooKeeperError:
    """What comes of it; who was cancelled meanwhile may never look."""
    try:
        return await work
    except ZooKeeperError as error:
        return error


def _check_somebody_elses(refused: zkwire.TransactionError) -> None:
    """Return if a take was refused because the item is claimed, or gone.  Raises: whatever else it was."""
    if not isinstance(refused.cause, zkwire.NodeExistsError | zkwire.NoNodeError):
        raise refused.cause


def _names(answer: object) -> list[str] | None:
    """The names of a list, None if its parent is missing."""
    if isinstance(answer, zkwire.NoNodeError):
        return None
    if isinstance(answer, BaseException):
        raise answer
    assert isinstance(answer, list)
    return answer
