"""Keeps one ephemeral node in existence for as long as its owner wants it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from copy import copy
from typing import Final, NoReturn

from recipes.common import lost_answers
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.shared_nodes import make_container
from recipes.common.waiting import LEAVES_WITHIN, bounded, raise_unless_renewed
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    ConnectionLostError,
    GetChildren,
    GetData,
    InvalidACLError,
    NoAuthError,
    Node,
    NodeExistsError,
    NoNodeError,
    ServerError,
    SessionExpiredError,
    Stat,
    WatchSet,
    ZooKeeperError,
)

_HINT_NOT_EPHEMERAL: Final = (
    "it is not an ephemeral node, so no session's end removes it: delete it, or use another name"
)
_HINT_SAME_CLIENT: Final = "this client has created it already"
_HINT_FORMER_SESSION: Final = (
    "it belongs to a former session of this client, which the server has not ended yet: wait for that with within="
)
_HINT_UNREADABLE: Final = "this client may not read it (its ACL), so it cannot wait for it: use another name"

_PAUSE: Final = 0.1  # seconds between a transient refusal and the next attempt


class Keeper:
    """Keeps one ephemeral node of this client at its path, and puts it back when it is gone.

    Arguments: `path`, the node, whose parent is created as a container when it is missing; `data`, the data at first;
    `acl`, of every node that is created, None: all clients may use the parent, and the node has `own_acl`;
    `own_sessions`, the ids of this client's sessions that may own such a node: a node of an earlier one is waited for
    to go, and is not taken for that of another client.
    """

    def __init__(
        self, zk: Client, path: str, data: bytes, *, acl: Sequence[ACL] | None, own_sessions: set[int] | None = None
    ) -> None:
        self._zk = zk
        self.path = path
        self._parent = path.rpartition("/")[0] or "/"
        self._data = checked_data(data)
        self._acl = acl
        self._own_sessions = set() if own_sessions is None else own_sessions
        self._tried_in: set[int] = set()  # the sessions in which this object has sent a create
        self._session_id = 0  # of the node that we have created last, as is its czxid
        self._czxid = 0
        self._is_made = False  # we have created the node, and have not heard that it is gone
        self._set_lock = asyncio.Lock()  # one task at a time is in `set`
        self._write_lock = asyncio.Lock()  # one write at a time is in flight: a create or a set
        self._settled = asyncio.Event()  # the node exists, or the keeping has ended with `_error`
        self._error: BaseException | None = None

    @property
    def exists(self) -> bool:
        """Whether the node exists, as far as this client has heard."""
        return self._error is None and self._may_be_ours

    @property
    def data(self) -> bytes:
        """The data that the server has accepted last, with which the node is put back."""
        return self._data

    async def created(self) -> None:
        """Return when the node exists.  Raises: the error that has ended the keeping; RuntimeError after `discard`."""
        if self._error is None:
            if not self.exists:
                self._settled.clear()  # it may still be set for a node that is gone
            await self._settled.wait()
        if self._error is not None:
            raise copy(self._error)  # each caller would add its traceback to one object

    async def acquire(self, *, within: float | None = 0.0) -> None:
        """Create the node; to be called once.

        Arguments: `within`, how many seconds to wait for the node of another session, or of a former one of this
        client, to go; None waits without limit, 0 looks once.
        Raises: NodeExistsError when `within` is 0 and the node exists; TimeoutError at the end of the wait.
        Cancellation: no node stays.
        """
        # A node that a create of this call has left, in a session that has expired since, is waited for in any case.
        waits_for = self._tried_in if within == 0 else None
        async with bounded(within, f"{self.path} was not free"):
            await self._acquire(waits_for)

    async def keep(self) -> NoReturn:
        """Put the node back each time that it is gone.

        Raises: NodeExistsError when another session has taken the path; SessionExpiredError if no other session
        follows; the other errors of the client.
        Cancellation: a node that was being put back is gone when this returns.
        """
        try:
            while True:
                try:
                    await self._wait_until_gone()
                    self._is_made = False
                    await self._acquire(self._own_sessions)
                except SessionExpiredError:
                    raise_unless_renewed(self._zk)
                except ServerError as refusal:
                    if not refusal.is_transient:
                        raise
                    await asyncio.sleep(_PAUSE)
        except asyncio.CancelledError:
            if not self._is_made and self._zk.session_id:
                await self._wait_until_withdrawn()
            raise
        except ZooKeeperError as error:
            self._error = error
            self._settled.set()
            raise

    async def set(self, data: bytes) -> None:
        """Replace the node's data, also for when the node is put back; return when the node holds it.

        The node is put back with the data that the server has accepted last. So data that it refuses is not kept.
        Raises: as `created`; the error with which the server refuses the data.
        Cancellation: the node may hold the data until it is put back.
        """
        checked_data(data)
        async with self._set_lock:
            while True:
                await self.created()
                # A create that holds this lock has no node yet, so `created` would not have returned.
                async with self._write_lock:
                    if await self._try_set(data):
                        return

    def discard(self) -> asyncio.Future[None] | None:
        """End the keeping: remove the node if it is ours, and return the future of its removal.

        This also works after the keeping has ended with an error: a client that may not read the node may still be
        allowed to delete it. Tasks that wait in `created` or `set`, now or later, get a RuntimeError.
        When the answer to the delete is lost, a node that another client has created since then is left alone. If
        another client deletes our node and a third one creates the next, before we have heard of it, that one goes.
        """
        may_be_ours, self._is_made = self._may_be_ours, False
        if self._error is None:
            self._error = RuntimeError(f"the node {self.path} is no longer kept")
        self._settled.set()
        return self._zk.discard(self.path, newest_zxid=self._czxid) if may_be_ours else None

    # -- writing the node -------------------------------------------------------------------------------------------

    async def _acquire(self, waits_for: Collection[int] | None) -> None:
        """Create the node.

        Arguments: `waits_for`, the sessions whose node is waited for to go; None: all sessions.
        Raises: NodeExistsError for the node of another session.
        """
        async with self._write_lock:
            while not await self._try_create(waits_for):
                pass

    async def _try_create(self, waits_for: Collection[int] | None) -> bool:
        """Try to create the node; return whether it exists and is ours."""
        try:
            if self._acl is not None:
                await warn_if_wider(self._zk, self._parent, self._acl)
            stat = await self._create(waits_for)
        except SessionExpiredError:
            raise_unless_renewed(self._zk)
            return False  # a node that this request may have created went with the session
        if stat is None:
            return False
        self._session_id, self._czxid, self._is_made = stat.ephemeral_owner, stat.czxid, True
        self._settled.set()
        return True

    async def _create(self, waits_for: Collection[int] | None) -> Stat | None:
        """Send one create; return the Stat of our node, None when it takes another attempt."""
        newest = self._zk.last_zxid
        # Even if the answer is lost, and the session after it: the server may keep the session, and its node, longer.
        self._sent_in(self._zk.session_id)
        acl = own_acl(self._zk, self.path) if self._acl is None else self._acl
        try:
            _, stat = await self._zk.create_and_stat(self.path, self._data, ephemeral=True, acl=acl)
        except NoNodeError:
            await make_container(self._zk, self._parent, OPEN_ACL if self._acl is None else self._acl)
            return None
        except InvalidACLError:
            if not was_refused(self._zk, acl):
                raise
            return None
        except NodeExistsError as error:
            await self._wait_until_free(error, waits_for)
            return None
        except ConnectionLostError:
            # The session in which this was sent, if there was none when it was submitted.
            self._sent_in(self._zk.session_id)
            return await self._find(newest)
        self._sent_in(stat.ephemeral_owner)
        return stat

    def _sent_in(self, session_id: int) -> None:
        """Take note that a create was sent in this session."""
        self._own_sessions.add(session_id)
        self._tried_in.add(session_id)

    async def _wait_until_free(self, error: NodeExistsError, waits_for: Collection[int] | None) -> None:
        """Wait until the node of another session is gone, if we are to wait for that; otherwise raise `error`."""
        while True:
            try:
                node, watch = await self._zk.get_and_watch(self.path)
            except NoNodeError:
                return
            except NoAuthError:
                error.hint = _HINT_UNREADABLE
                raise error from None
            try:
                owner = node.stat.ephemeral_owner
                if owner == self._zk.session_id:
                    error.hint = _HINT_SAME_CLIENT
                elif owner == 0:
                    error.hint = _HINT_NOT_EPHEMERAL
                elif waits_for is None or owner in waits_for:
                    await watch
                    continue
                elif owner in self._own_sessions:
                    error.hint = _HINT_FORMER_SESSION
                else:
                    error.hint = (
                        f"it belongs to another session, {owner % 2**64:#x}; if that is this process's session from"
                        " before a restart, the node goes when that session expires: wait for it with within="
                    )
                raise error
            finally:
                watch.cancel()

    async def _find(self, newest: int) -> Stat | None:
        """Look for the node of a create whose answer was lost; return its Stat, None if it is not there.

        Arguments: `newest`, a zxid that is older than the create.
        Cancellation: the search goes on in a task of its own, and a node that it finds is removed.
        """
        search = asyncio.get_running_loop().create_task(self._search(newest))
        try:
            return await asyncio.shield(search)
        except asyncio.CancelledError:
            search.add_done_callback(self._discard_found)
            raise

    async def _search(self, newest: int) -> Stat | None:
        answers = await lost_answers.read(self._zk, self.path, GetData(self.path))
        node: Node | None = lost_answers.result(answers[0])
        if node is None or node.stat.ephemeral_owner != self._zk.session_id:
            return None
        # An older node of our session was created by other code that uses the same client.
        return node.stat if node.stat.czxid > newest else None

    def _discard_found(self, search: asyncio.Task[Stat | None]) -> None:
        found = lost_answers.late_result(search)
        if found is not None:
            self._zk.discard(self.path, newest_zxid=found.czxid)

    async def _try_set(self, data: bytes) -> bool:
        """Send one setData; return whether it was accepted, False when it takes another attempt."""
        try:
            await self._zk.set(self.path, data)
        except ConnectionLostError:
            return False  # no other client writes this node, so it may be written twice
        except SessionExpiredError:
            raise_unless_renewed(self._zk)
            return False
        except NoNodeError:
            self._is_made = False
            return False
        self._data = data
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
            for answer in (node, names):
                if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                    raise answer
            if isinstance(node, NoNodeError) or isinstance(names, NoNodeError):
                return
            if node.stat.ephemeral_owner != self._zk.session_id:
                return
            await watches.next()

    async def _wait_until_withdrawn(self) -> None:
        """Return when a create that was cancelled in flight has left no node.

        The client deletes such a node, and our reads are queued behind that delete. The server that answers the reads
        may lag behind the server that executed the create: hence the sync. While no server answers, the client alone
        sees to it.
        """
        with contextlib.suppress(ZooKeeperError, TimeoutError):
            async with asyncio.timeout(LEAVES_WITHIN):
                await self._zk.sync(self.path)
                await self._wait_until_gone()

    @property
    def _may_be_ours(self) -> bool:
        return self._is_made and self._session_id == self._zk.session_id


def checked_data(data: bytes) -> bytes:
    """Return `data` if it is bytes.  Raises: TypeError."""
    if not isinstance(data, bytes):
        raise TypeError(f"data is bytes, not {data!r}")
    return data
