"""The lock that gives up: one ephemeral node at the path itself, one request to take it, nobody waits.

Knows the node, and how to find out whose it is when the answer to its create is lost.  There is no line and no order:
whoever comes when it is free has it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import zkwire
from recipes.common import lost_answers
from recipes.common.waiting import raise_unless_renewed
from recipes.line.certainty import renew_certainty
from recipes.line.lease import Lease, LockLostError
from recipes.line.locking import Locking
from recipes.line.ticket import Ticket, TicketNode
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    ConnectionLostError,
    GetData,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Transaction,
    ZooKeeperError,
    validate_path,
)

# The tries of one client at one path go one after the other: when two have lost their answers, the node that is found
# then could be either's, for it has no name of its own.
_UNDER_WAY: Final[WeakKeyDictionary[Client, dict[str, asyncio.Task[TicketNode | None]]]] = WeakKeyDictionary()


class LockTakenError(ZooKeeperError):
    """The lock is taken, and nobody waits for this kind of lock.  Argument: `path`, the lock's node."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the lock {path} is taken, by us or by somebody else; try again later, or wait with Lock")
        self.path = path


class TryLock(Locking[Lease]):
    """A lock that is to be had at once or not at all: whoever creates the ephemeral node at `path` holds it.

        lease = await TryLock(zk, "/jobs/nightly-report").try_acquire()        # None at once if it is taken
        async with TryLock(zk, "/jobs/nightly-report") as lease: ...           # LockTakenError at once if it is taken

    Arguments: `path`, the node itself, not a parent; those above it are made, persistent, when they are missing;
    `data`, stored in it, for people who look; `acl`, of the nodes that are made.
    Raises: `acquire`, `hold` and `async with` LockTakenError when it is taken; their `within` bounds only how long a
    server may take to answer.
    Order: none.  Who keeps trying may never have it; for turns, use Lock.

    The lease is that of a Lock, and lost on the same signals.  One thing is weaker, as the node has no name of its
    own: if somebody else deletes the node, and yet another takes its place before we have heard of that, a release or
    a transaction of ours that is on its way then meets the new node.  `lease.token` tells the two apart.
    """

    def __init__(self, zk: Client, path: str, *, data: bytes = b"", acl: Sequence[ACL] = OPEN_ACL) -> None:
        super().__init__(zk, validate_path(path))
        if path == "/":
            raise ValueError("the root cannot be a TryLock: it is always there; name a node below it")
        if not isinstance(data, bytes):
            raise TypeError(f"the data of a lock are bytes, not {data!r}")
        self._parent = self.path.rpartition("/")[0] or "/"
        self._data = data
        self._acl = acl

    async def _acquire(self) -> Lease:
        lease = await self._try_acquire()
        if lease is None:
            raise LockTakenError(self.path)
        return lease

    async def _try_acquire(self) -> Lease | None:
        under_way = _UNDER_WAY.setdefault(self._zk, {})
        given_up = asyncio.Event()
        taking = asyncio.create_task(self._take(under_way.get(self.path), given_up))
        under_way[self.path] = taking
        taking.add_done_callback(self._forget)
        try:
            place = await asyncio.shield(taking)
        except asyncio.CancelledError:
            given_up.set()
            taking.add_done_callback(self._give_back)
            raise
        if place is None:
            return None
        # The node of another holder has the same name.
        removal = self._zk.removal(self.path, newest_zxid=place.token)
        return _PlainLease(self._zk, Ticket(place, removal))

    # -- taking -----------------------------------------------------------------------------------------------------

    async def _take(self, before: asyncio.Task[TicketNode | None] | None, given_up: asyncio.Event) -> TicketNode | None:
        """Create the node; return it, None if it is taken.

        Arguments: `before`, the try to wait for; `given_up`, whether nobody wants it any more: nothing new is begun
        then.  Nobody cancels this, for it has to learn what it has made.
        """
        if before is not None:
            await asyncio.wait([before])
        while not given_up.is_set():
            session_id, newest = self._zk.session_id, self._zk.last_zxid
            try:
                _, stat = await self._zk.create_and_stat(self.path, self._data, ephemeral=True, acl=self._acl)
            except NodeExistsError:
                return None
            except NoNodeError:
                if not given_up.is_set():
                    await self._make_parents()
                continue
            except ConnectionLostError:
                found = await self._look()
                if found is None:
                    continue  # it was not made
                if not found.ephemeral_owner == session_id == self._zk.session_id or found.czxid <= newest:
                    return None
                stat = found
            except SessionExpiredError:
                raise_unless_renewed(self._zk)
                continue
            place = TicketNode(self.path, self.path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner)
            if await self._is_certain(place):
                return place
        return None

    async def _make_parents(self) -> None:
        """Make the nodes above; if that is cut off or its session expires, the next create tells."""
        try:
            await self._zk.ensure_path(self._parent, acl=self._acl)
        except ConnectionLostError:
            pass
        except SessionExpiredError:
            raise_unless_renewed(self._zk)

    async def _look(self) -> zkwire.Stat | None:
        """Return the Stat of the node that stands there."""
        try:
            answers = await lost_answers.read(self._zk, self._parent, GetData(self.path))
        except SessionExpiredError:
            raise_unless_renewed(self._zk)
            return None  # what the old session has made is gone with it
        node: zkwire.Node | None = lost_answers.result(answers[0])
        return None if node is None else node.stat

    async def _is_certain(self, place: TicketNode) -> bool:
        """Whether `place` is held for certain; when the answer was long in coming, ask before believing."""
        while not self._zk.certain_for(place.session_id):
            if self._zk.session_id != place.session_id:
                return False
            try:
                await renew_certainty(self._zk)
            except SessionExpiredError:
                return False
        return True

    def _forget(self, taking: asyncio.Task[TicketNode | None]) -> None:
        """The last try of this client has come to its end."""
        under_way = _UNDER_WAY.get(self._zk, {})
        if under_way.get(self.path) is taking:
            del under_way[self.path]

    def _give_back(self, taking: asyncio.Task[TicketNode | None]) -> None:
        """Remove what a try has made whose caller was cancelled."""
        place = lost_answers.late_result(taking)
        if place is not None:
            self._zk.discard(place.path, newest_zxid=place.token)


class _PlainLease(Lease):
    """A Lease whose node has a name that the node of another holder has as well."""

    __slots__ = ()

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while this session, whose node it is, and the node exist."""
        transaction = self._zk.transaction(session_id=self.ticket.node.session_id)
        transaction.check(self.path)
        return transaction

    async def release(self) -> None:
        """As Lease.release; the node of another holder is left alone."""
        if not self.is_released:
            with contextlib.suppress(LockLostError):
                self.check()
        await super().release()
