"""The lock without a queue: one ephemeral node at the path itself, and one request to take it.

There is no line, no wait and no order: whichever create reaches the server first while the path is free takes the lock.
"""

import asyncio
import logging
from collections.abc import Sequence

import zkwire
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import read_after_loss, until_answered
from recipes.common.this_process import or_described
from recipes.line.contenders import Contender, single
from recipes.line.known import known_of
from recipes.line.lease import Lease
from recipes.line.locking import Locking
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.waiting import certify
from zkwire import ACL, OPEN_ACL, Client, GetData, GuaranteedDelete, Transaction, ZooKeeperError, validate_path

_log = logging.getLogger(__name__)


class LockTakenError(ZooKeeperError):
    """The lock is taken, and this kind of lock does not wait.

    Attributes:
        path: The lock's node.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"the lock {path} is taken: try again later, or use Lock to wait for it")
        self.path = path


class TryLock(Locking[Lease]):
    """A lock that is taken at once or not at all: the client that creates the ephemeral node at `path` holds it.

    ::

        lease = await TryLock(zk, "/jobs/nightly-report").try_acquire()        # None at once if it is taken
        async with TryLock(zk, "/jobs/nightly-report") as lease: ...           # LockTakenError at once if it is taken

    One lease is held at a time in the whole cluster, as for Lock, and it is lost by the same signals.

    One promise is weaker than in Lock, because the name of the node is not unique.  Suppose that our node is deleted by
    hand, and another client takes the lock before we hear of it.  Then a release or a transaction of ours reaches the
    new node.  We hear of it at once, but not in the first tenth of a second of a lease.  `lease.token` distinguishes
    the two holders.

    Args:
        path: The lock's node itself, not a parent; missing parents are created as persistent nodes.
        data: Stored in the node, where people can see which program holds the lock; None: the same as in Lock.
        acl: The ACL of all nodes that are created; None: all clients may use the parents, and read the node, into which
            only this client may write, or all clients if this one has no identity.

    Raises:
        LockTakenError: from `acquire`, `hold` and `async with`, if the lock is taken.  Their `within` only bounds how
            long a server may take to answer; 0 sets no bound.

    Order:
        None.  A client that keeps trying may never succeed; use Lock for a queue.

    Requests:
        One to take the lock or to find it taken, and one to release it.
    """

    _can_wait = False

    def __init__(self, zk: Client, path: str, *, data: bytes | None = None, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(zk, validate_path(path))
        if path == "/":
            raise ValueError("the root cannot be a TryLock, because it always exists: use a node below it")
        self._parent = self.path.rpartition("/")[0] or "/"
        self._data = or_described(data)
        self._acl = acl
        self._order = known_of(self._zk).orders.setdefault(self.path, asyncio.Lock())

    async def _acquire(self) -> Lease:
        lease = await self._try_acquire()
        if lease is None:
            raise LockTakenError(self.path)
        return lease

    async def _try_acquire(self) -> Lease | None:
        while True:
            node = await self._create()
            if node is None:
                return None
            try:
                if self._acl is not None:
                    await warn_if_wider(self._zk, self._parent, self._acl)
                is_certain = await self._is_certain(node)
            except BaseException:
                self._removal(node).start()
                raise
            if is_certain:
                return _UnnumberedLease(self._zk, Ticket(node, self._removal(node)))

    async def _look(self) -> list[Contender]:
        (node,) = await self._zk.pipeline([GetData(self.path)])
        return single(self._zk, self.path, node)

    async def _create(self) -> TicketNode | None:
        """Create the node and return it; return None if the lock is taken.

        The tries of one client at one path run one after the other.  If the answers of two creates were lost at the
        same time, the node that is found could belong to either, because its name is not unique.  So a try whose caller
        is cancelled goes on until it has found out what it has created.
        """
        abandoned = asyncio.Event()
        creating = asyncio.create_task(self._create_in_turn(abandoned))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            abandoned.set()
            creating.add_done_callback(self._discard_late)
            raise

    async def _create_in_turn(self, abandoned: asyncio.Event) -> TicketNode | None:
        """Do what `_create` does, but begin no new attempt once `abandoned` is set."""
        zk = self._zk
        parents_acl = OPEN_ACL if self._acl is None else self._acl

        async def make_parents() -> None:
            if not abandoned.is_set():
                await zk.ensure_path(self._parent, acl=parents_acl)

        async def create() -> TicketNode | None:
            while not abandoned.is_set():
                if zk.is_cut_off():
                    await certify(zk)  # before a node is created that keeps others away
                acl = own_acl(zk, self.path) if self._acl is None else self._acl
                try:
                    _, stat = await zk.create_and_stat(self.path, self._data, ephemeral=True, acl=acl, recover=True)
                    return TicketNode(self.path, self.path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner)
                except zkwire.NodeExistsError:
                    return None
                except zkwire.NoNodeError:
                    await until_answered(zk, make_parents)
                except zkwire.InvalidACLError:
                    if not was_refused(zk, acl):
                        raise
            return None

        async with self._order:
            node = await until_answered(zk, create)
            if node is not None and abandoned.is_set():
                self._removal(node).start()  # before the next try has its turn
                return None
            return node

    async def _is_certain(self, node: TicketNode) -> bool:
        """Return whether the session that owns `node` is certainly alive at this moment; if need be, ask a server.

        The create may have taken long, and so may the step from its answer to the caller.  If the server was asked,
        this is also False when the node is gone: another client may have the lock.
        """
        while not self._zk.is_certain(node.session_id):
            if self._zk.session_id != node.session_id:
                return False
            try:
                await certify(self._zk)
                found = await read_after_loss(self._zk, self.path)
            except zkwire.SessionExpiredError:
                return False
            if found is None or found.stat.czxid != node.token:
                return False
        return True

    def _removal(self, node: TicketNode) -> GuaranteedDelete:
        """Return the removal of `node`; the node of the next holder has the same path.

        `newest_zxid` keeps a repeated delete away from that one, `session_id` a delete after the end of the session.
        """
        return self._zk.guaranteed_delete(node.path, newest_zxid=node.token, session_id=node.session_id)

    def _discard_late(self, creating: asyncio.Task[TicketNode | None]) -> None:
        """Delete the node that a try has created after its caller was cancelled."""
        if creating.cancelled():
            return
        error = creating.exception()
        if error is None:
            node = creating.result()
            if node is not None:
                self._removal(node).start()
        elif not isinstance(error, zkwire.SessionError):  # at a session's end the server deletes what it has created
            _log.warning("the caller was cancelled before this error could be raised: %s", error)


class _UnnumberedLease(Lease):
    """A lease whose node has no sequence number, so that the node of another holder has the same path."""

    __slots__ = ()

    def transaction(self) -> Transaction:
        """Return a transaction that the server carries out only while the node exists, and only in this session.

        Without the session, a transaction of an expired lease would be carried out under the next holder's node.
        """
        transaction = self._zk.transaction(session_id=self._ticket.node.session_id)
        transaction.check(self.path)
        return transaction
