"""Keeps one ephemeral node in existence for as long as its owner wants it, whatever happens to the session."""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from copy import copy
from typing import Final, NoReturn

import zkwire
from recipes.common.checks import checked_data
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import result, until_answered
from recipes.common.shared_nodes import make_container, wait_for_session
from recipes.common.waiting import LEAVES_WITHIN, bounded
from zkwire import ACL, OPEN_ACL, Client, GetChildren, GetData, Stat, WatchSet

_THEN: Final = "try again then, or give within= to Group.join, PersistentEphemeral or Partitioner"


class PersistentNode:
    """One ephemeral node of this client, which is put back when it is gone.

    Args:
        path: The node, whose parent is created as a container when it is missing.
        data: The data at first.
        acl: The ACL of every node that is created.  None: all clients may use the parent, and the node has `own_acl`.
        own_sessions: The ids of this client's sessions that may own such a node: a node of an earlier one is waited for
            to go, and is not taken for another client's.

    Attributes:
        path: The node.
        data: The data that the server has accepted last, with which the node is put back.
    """

    def __init__(
        self, zk: Client, path: str, data: bytes, *, acl: Sequence[ACL] | None, own_sessions: set[int]
    ) -> None:
        self._zk = zk.unlimited
        self.path = path
        self._parent = path.rpartition("/")[0] or "/"
        self.data: bytes = checked_data(data)
        self._acl = acl
        self._own_sessions = own_sessions
        self._tried_in: set[int] = set()  # the sessions in which this object has sent a create
        self._made: Stat | None = None  # of the node that we have created, until we hear that it is gone
        self._set_lock = asyncio.Lock()  # one task at a time is in `set`
        self._write_lock = asyncio.Lock()  # one write at a time is in flight: a create or a set
        self._settled = asyncio.Event()  # the node exists, or the keeping has ended with `_error`
        self._error: BaseException | None = None

    @property
    def exists(self) -> bool:
        """Whether the node exists, as far as this client has heard."""
        return self._error is None and self._may_be_there is not None

    async def created(self) -> None:
        """Return when the node exists.

        Raises:
            RuntimeError: after `discard`.
            ZooKeeperError: if the keeping has ended with this error.
        """
        if self._error is None:
            if not self.exists:
                self._settled.clear()  # it may still be set for a node that is gone
            await self._settled.wait()
        if self._error is not None:
            raise copy(self._error)  # each caller would add its traceback to one object

    async def acquire(self, *, within: float | None = 0.0) -> None:
        """Create the node; to be called once.

        Args:
            within: How many seconds to wait for the node of another session, or of a former one of this client, to go;
                None waits without limit, 0 looks once.

        Raises:
            NodeExistsError: if `within` is 0 and the node exists.
            TimeoutError: at the end of the wait.

        Cancellation:
            No node stays.
        """
        # A node that a create of this call has left, in a session that has expired since, is waited for in any case.
        waits_for = self._tried_in if within == 0 else None
        async with bounded(self._zk, within, f"{self.path} was not free"):
            await self._acquire(waits_for)

    async def keep(self) -> NoReturn:
        """Put the node back each time that it is gone.

        Raises:
            NodeExistsError: if another session has taken the path.
            SessionExpiredError: if no other session follows.

        Cancellation:
            A node that was being put back is gone when this returns.
        """
        try:
            while True:
                await until_answered(self._zk, self._wait_until_gone)
                self._made = None
                await self._acquire(self._own_sessions)
        except asyncio.CancelledError:
            if self._made is None:
                await self._wait_until_withdrawn()
            raise
        except zkwire.ZooKeeperError as error:
            self._error = error
            self._settled.set()
            raise

    async def set(self, data: bytes) -> None:
        """Replace the node's data, also for when the node is put back; return when the node holds it.

        The node is put back with the data that the server has accepted last.  So data that it refuses is not kept.

        Raises:
            TypeError: if the data is not bytes: it is kept, and a buffer of the caller's may change.
            RuntimeError: after `discard`.
            ZooKeeperError: if the keeping has ended with this error, or the server refuses the data with it.

        Cancellation:
            The node may hold the data until it is put back.
        """
        checked_data(data)
        async with self._set_lock:
            while True:
                await self.created()  # not below: the error that has ended the keeping is not the answer of a request
                # The node is this client's, so it may be written twice.
                if await until_answered(self._zk, lambda: self._write(data), repeats=True):
                    return

    def discard(self) -> asyncio.Future[None] | None:
        """End the keeping: remove the node if it is ours, and return the future of its removal.

        This also works after the keeping has ended with an error: a client that may not read the node may still be
        allowed to delete it.  Tasks that wait in `created` or `set`, now or later, get a RuntimeError.
        When the answer to the delete is lost, a node that another client has created since then is left alone.  If
        another client deletes our node and a third one creates the next, before we have heard of it, that one goes.
        """
        made, self._made = self._may_be_there, None
        if self._error is None:
            self._error = RuntimeError(f"the node {self.path} is no longer kept")
        self._settled.set()
        return None if made is None else self._zk.discard(self.path, newest_zxid=made.czxid)

    # -- writing the node -------------------------------------------------------------------------------------------

    async def _acquire(self, waits_for: Collection[int] | None) -> None:
        """Create the node.

        Args:
            waits_for: The sessions whose node is waited for to go; None: all sessions.

        Raises:
            NodeExistsError: if the node belongs to another session.
        """
        async with self._write_lock:
            await until_answered(self._zk, lambda: self._create(waits_for))

    async def _create(self, waits_for: Collection[int] | None) -> None:
        while True:
            await warn_if_wider(self._zk, self._parent, self._acl)
            acl = own_acl(self._zk, self.path) if self._acl is None else self._acl
            # Whatever the answer is: the server may keep the session, and its node, for longer than this client.
            session_id = await wait_for_session(self._zk)
            self._own_sessions.add(session_id)
            self._tried_in.add(session_id)
            try:
                _, self._made = await self._zk.create_and_stat(
                    self.path, self.data, ephemeral=True, recover=True, acl=acl
                )
            except zkwire.NoNodeError:
                await make_container(self._zk, self._parent, OPEN_ACL if self._acl is None else self._acl)
            except zkwire.InvalidACLError:
                if not was_refused(self._zk, acl):
                    raise
            except zkwire.NodeExistsError as error:
                await self._wait_until_free(error, waits_for)
            else:
                self._settled.set()
                return

    async def _wait_until_free(self, error: zkwire.NodeExistsError, waits_for: Collection[int] | None) -> None:
        """Wait until the node of another session is gone, if we are to wait for that; otherwise raise `error`."""
        with contextlib.suppress(zkwire.NoNodeError):
            while True:
                try:
                    node, watch = await self._zk.get_and_watch(self.path)
                except zkwire.NoAuthError:
                    error.hint = "this client may not read it (its ACL), so it cannot wait for it: use another name"
                    raise error from None
                try:
                    owner = node.stat.ephemeral_owner
                    if owner == self._zk.session_id:
                        error.hint = "this client has created it already"
                    elif owner == 0:
                        error.hint = (
                            "it is not an ephemeral node, so no session's end removes it: delete it, or use another"
                            " name"
                        )
                    elif waits_for is None or owner in waits_for:
                        await watch
                        continue
                    elif owner in self._own_sessions:
                        error.hint = f"it belongs to a former session of this client that has not ended yet: {_THEN}"
                    else:
                        error.hint = (
                            f"it belongs to another session, {owner % 2**64:#x}; if that is this process's session from"
                            f" before a restart, the node goes when that session expires: {_THEN}"
                        )
                    raise error
                finally:
                    watch.cancel()

    async def _write(self, data: bytes) -> bool:
        """Write the node; return False if it is not as we knew it: what is at the path may be another client's."""
        async with self._write_lock:
            made = self._may_be_there
            if made is None:
                return False
            # Another session may have put its node in the place of ours, and we have not heard of it yet: the version
            # keeps it as it is, unless it is the same by chance, and the Stat shows whose node was written.
            try:
                found: Stat | None = await self._zk.set(self.path, data, made.version)
            except (zkwire.NoNodeError, zkwire.BadVersionError):
                found, made = await self._zk.exists(self.path), None
            if self._error is None:  # otherwise a second `discard` would delete the node of another client
                self._made = found
            if made is None or not self.exists:
                return False
            self.data = data
            return True

    # -- looking after the node -------------------------------------------------------------------------------------

    async def _wait_until_gone(self) -> None:
        """Return when the node does not exist, or is not ours."""
        with WatchSet() as watches:
            # A watch on the children of an ephemeral node, which cannot have any, fires when the node is deleted, and
            # not when its data changes.  After a reconnect, a server that has another node at this path by now reports
            # that its children have changed.  So each event means that the node is gone.
            # It is set before the node is read: a connection that breaks in between brings nothing that goes unnoticed.
            names, node = await self._zk.pipeline([GetChildren(self.path, into=watches), GetData(self.path)])
            if result(node) is None or result(names) is None:
                return
            if node.stat.ephemeral_owner == self._zk.session_id:
                await watches.next()

    async def _wait_until_withdrawn(self) -> None:
        """Return when a create that was cancelled in flight has left no node.

        The client deletes such a node, and our reads are queued after that delete.  The server that answers the reads
        may lag behind the server that executed the create: hence the sync.  While no server answers, the client alone
        sees to it.
        """
        with contextlib.suppress(zkwire.ZooKeeperError, TimeoutError):
            async with asyncio.timeout(LEAVES_WITHIN):
                await self._zk.sync(self.path)
                await self._wait_until_gone()

    @property
    def _may_be_there(self) -> Stat | None:
        """The Stat of our node, unless we have heard that it is gone, or its session is over."""
        return self._made if self._made is not None and self._made.ephemeral_owner == self._zk.session_id else None
