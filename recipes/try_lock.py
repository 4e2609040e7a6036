"""The lock without a queue: one ephemeral node at the path itself, and one request to take it.

There is no line, no wait and no order: whichever create reaches the server first while the path is free takes the lock.
This module also finds out which session owns the node when the answer to the create is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import zkwire
from recipes.common import lost_answers
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.this_process import or_in_words
from recipes.common.waiting import raise_unless_renewed
from recipes.line.certainty import be_certain_soon, renew_certainty
from recipes.line.contenders import Contender, single
from recipes.line.lease import Lease, LockLostError
from recipes.line.locking import Locking
from recipes.line.sight import Sight
from recipes.line.ticket import Ticket, TicketNode
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    ConnectionLostError,
    GetData,
    InvalidACLError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Transaction,
    ZooKeeperError,
    validate_path,
)

# The tries of one client at one path run one after the other.  If the answers of two tries were lost at the same time,
# the node that is found could belong to either, because its name is not unique.
_TRIES: Final[WeakKeyDictionary[Client, dict[str, asyncio.Task[TicketNode | None]]]] = WeakKeyDictionary()


class LockTakenError(ZooKeeperError):
    """The lock is taken, and this kind of lock does not wait.  Argument: `path`, the lock's node."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the lock {path} is taken: try again later, or use Lock to wait for it")
        self.path = path


class TryLock(Locking[Lease]):
    """A lock that is taken at once or not at all: the client that creates the ephemeral node at `path` holds it.

        lease = await TryLock(zk, "/jobs/nightly-report").try_acquire()        # None at once if it is taken
        async with TryLock(zk, "/jobs/nightly-report") as lease: ...           # LockTakenError at once if it is taken

    One lease is held at a time in the whole cluster, as for Lock, and it is lost by the same signals.

    Arguments: `path`, the lock's node itself, not a parent; missing parents are created as persistent nodes; `data`,
    stored in the node, where people can see which program holds the lock, None: the same as that of Lock; `acl`,
    of all nodes that are created, None: all clients may use the parents, and read the node, into which only this client
    may write, or all clients if this one has no identity.
    Order: none.  A client that keeps trying may never succeed; use Lock for a queue.
    Requests: one to take the lock or to find it taken, and one to release it.
    Raises: `acquire`, `hold` and `async with` raise LockTakenError when the lock is taken.  Their `within` only bounds
    how long a server may take to answer; 0 sets no bound.

    One promise is weaker than that of Lock, because the name of the node is not unique.  Suppose that our node is
    deleted by hand, and another client takes the lock before we hear of it.  Then a release or a transaction of ours
    reaches the new node.  We hear of it at once, but not in the first tenth of a second of a lease.  `lease.token`
    distinguishes the two holders.
    """

    _can_wait = False

    def __init__(self, zk: Client, path: str, *, data: bytes | None = None, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(zk, validate_path(path))
        if path == "/":
            raise ValueError("the root cannot be a TryLock, because it always exists: use a node below it")
        self._parent = self.path.rpartition("/")[0] or "/"
        self._data = or_in_words(data)
        self._acl = acl
        self._parents_acl = OPEN_ACL if acl is None else acl

    async def _acquire(self, sight: Sight | None = None) -> Lease:
        lease = await self._try_acquire()
        if lease is None:
            raise LockTakenError(self.path)
        return lease

    async def _try_acquire(self, sight: Sight | None = None) -> Lease | None:
        while True:
            node = await self._start_taking()
            if node is None:
                return None
            try:
                if self._acl is not None:
                    await warn_if_wider(self._zk, self._parent, self._acl)
                is_certain = await self._is_certain(node)
            except BaseException:
                self._zk.discard(node.path, newest_zxid=node.token)
                raise
            if is_certain:
                # The node of the next holder has the same path: `newest_zxid` keeps a repeated delete away from it.
                removal = self._zk.guaranteed_delete(self.path, newest_zxid=node.token)
                return _UnnumberedLease(self._zk, Ticket(node, removal))

    async def _look(self) -> list[Contender]:
        (node,) = await self._zk.pipeline([GetData(self.path)])
        return single(self._zk, self.path, node)

    async def _start_taking(self) -> TicketNode | None:
        """Have a task of its own create the node; return the node, None if the lock is taken.

        A cancellation of the caller does not stop that task: it must find out what it has created.
        """
        tries = _TRIES.setdefault(self._zk, {})
        abandoned = asyncio.Event()
        taking = asyncio.create_task(self._take(tries.get(self.path), abandoned))
        tries[self.path] = taking
        taking.add_done_callback(self._forget_try)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            abandoned.set()
            taking.add_done_callback(self._discard_late)
            raise

    # -- taking -----------------------------------------------------------------------------------------------------

    async def _take(
        self, previous: asyncio.Task[TicketNode | None] | None, abandoned: asyncio.Event
    ) -> TicketNode | None:
        """Create the node and return it; return None if the lock is taken.

        Arguments: `previous`, the try of this client to wait for; `abandoned`, set when the caller was cancelled: then
        no new attempt is begun.  This coroutine itself must not be cancelled.
        """
        if previous is not None:
            await asyncio.wait([previous])
        while not abandoned.is_set():
            try:
                await be_certain_soon(self._zk)
            except SessionExpiredError:
                raise_unless_renewed(self._zk)
            newest = self._zk.last_zxid
            acl = own_acl(self._zk, self.path) if self._acl is None else self._acl
            try:
                _, stat = await self._zk.create_and_stat(self.path, self._data, ephemeral=True, acl=acl)
            except NodeExistsError:
                return None
            except InvalidACLError:
                if not was_refused(self._zk, acl):
                    raise
                continue
            except NoNodeError:
                if not abandoned.is_set():
                    await self._make_parents()
                continue
            except ConnectionLostError:
                found = await self._read_stat()
                if found is None:
                    continue  # the create was not carried out
                # Our create made the node only if this session owns it and it is newer than all that we had seen before
                # the request.  An older one belongs to a lease that this client holds already.  The session may have
                # begun while the request waited to be sent.
                if found.ephemeral_owner != self._zk.session_id or found.czxid <= newest:
                    return None
                stat = found
            except SessionExpiredError:
                raise_unless_renewed(self._zk)
                continue
            return TicketNode(self.path, self.path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner)
        return None

    async def _make_parents(self) -> None:
        """Create the missing parents.

        Return also when the connection or the session was lost: the next create shows whether they exist.
        """
        try:
            await self._zk.ensure_path(self._parent, acl=self._parents_acl)
        except ConnectionLostError:
            pass
        except SessionExpiredError:
            raise_unless_renewed(self._zk)

    async def _read_stat(self) -> zkwire.Stat | None:
        """Return the Stat of the node at the path, None if there is no node."""
        try:
            answers = await lost_answers.read(self._zk, self._parent, GetData(self.path))
        except SessionExpiredError:
            raise_unless_renewed(self._zk)
            return None  # the node that the old session may have created is gone with that session
        node: zkwire.Node | None = lost_answers.result(answers[0])
        return None if node is None else node.stat

    async def _is_certain(self, node: TicketNode) -> bool:
        """Return whether the session that owns `node` is certainly alive at this moment; if need be, ask a server.

        The create may have taken long, and so may the step from its answer to the caller.  If the server was asked,
        this is also False when the node is gone: another client may have the lock.
        """
        while not self._zk.is_certain(node.session_id):
            if self._zk.session_id != node.session_id:
                return False
            try:
                await renew_certainty(self._zk)
            except SessionExpiredError:
                return False
            found = await self._read_stat()
            if found is None or found.czxid != node.token:
                return False
        return True

    def _forget_try(self, taking: asyncio.Task[TicketNode | None]) -> None:
        """Remove the finished task from the table, unless a later try waits for it and has replaced it there."""
        tries = _TRIES.get(self._zk, {})
        if tries.get(self.path) is taking:
            del tries[self.path]

    def _discard_late(self, taking: asyncio.Task[TicketNode | None]) -> None:
        """Delete the node that a try has created after its caller was cancelled."""
        node = lost_answers.late_result(taking)
        if node is not None:
            self._zk.discard(node.path, newest_zxid=node.token)


class _UnnumberedLease(Lease):
    """A lease whose node has no sequence number, so that the node of another holder has the same path."""

    __slots__ = ()

    def transaction(self) -> Transaction:
        """Return a transaction that the server carries out only while the node exists, and only in this session.

        Without the session, a transaction of an expired lease would be carried out under the next holder's node.
        """
        transaction = self._zk.transaction(session_id=self.ticket.node.session_id)
        transaction.check(self.path)
        return transaction

    async def release(self) -> None:
        """Do the same as Lease.release, but never delete the node of another holder."""
        if not self.is_released:
            # Finds out whether the session has expired: our node is gone then, and no delete must be sent for the path.
            with contextlib.suppress(LockLostError):
                self.check()
        await super().release()
