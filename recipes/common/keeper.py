"""Keeps one ephemeral node in place for as long as its owner wants it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NoReturn

from recipes.common import lost_answers
from recipes.common.shared_nodes import make_container
from recipes.common.waiting import raise_unless_renewed
from zkwire import (
    ACL,
    Client,
    ConnectionLostError,
    GetChildren,
    GetData,
    Node,
    NodeExistsError,
    NoNodeError,
    ServerError,
    SessionExpiredError,
    Stat,
    WatchEventType,
    WatchSet,
    ZooKeeperError,
)

_NOT_EPHEMERAL: Final = "it is no ephemeral node, and so never goes by itself: delete it, or choose another name"


_OURS: Final = "this client has created it already"


_PAUSE: Final = 0.1  # seconds, before what was refused for the time being is asked again


class Keeper:
    """Keeps one ephemeral node of this client's ticket.

    Arguments: `path`, the node, whose parent is made as a container when it is missing; `data`, at first; `acl`, of
    every node that is made; `former`, the ids of this client's own sessions of before, whose nodes are waited for to
    go, instead of being taken for somebody else's.
    """

    def __init__(
        self, zk: Client, path: str, data: bytes, *, acl: Sequence[ACL], former: set[int] | None = None
    ) -> None:
        self._zk = zk
        self.path = path
        self._data = checked_data(data)
        self._acl = acl
        self._former = set() if former is None else former
        self._session_id = 0  # of the node that we have made last, as is its czxid
        self._czxid = 0
        self._is_made = False  # we have made it, and have not heard that it is gone
        self._turn = asyncio.Lock()  # of those who write the node
        self._there = asyncio.Event()  # also set when `_error` is
        self._error: BaseException | None = None

    @property
    def stands(self) -> bool:
        """Whether the node stands, as far as we have been told."""
        return self._error is None and self._may_be_ours

    @property
    def data(self) -> bytes:
        """What the node holds, or will when it is put back."""
        return self._data

    async def created(self) -> None:
        """Return when the node stands.  Raises: what has ended the keeping; RuntimeError after `discard`."""
        if not self.stands and self._error is None:
            self._there.clear()  # it stood in the session before, and who keeps it may not know yet
        await self._there.wait()
        if self._error is not None:
            raise self._error

    async def acquire(self, *, within: float = 0.0) -> None:
        """Create the node.

        Arguments: `within`, for how many seconds to wait for another session's node to go.
        Raises: NodeExistsError without such a wait, TimeoutError at its end.
        Cancellation: no node stays.
        """
        try:
            async with asyncio.timeout(within or None) as limit, self._turn:
                while not await self._created(waits=within > 0):
                    pass
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"{self.path} was not free within {within} s") from None

    async def keep(self) -> NoReturn:
        """Put the node back each time that it is gone.

        Raises: NodeExistsError when another session has taken the path; SessionExpiredError if no other session
        follows; what the client raises.
        Cancellation: a node that was just being put back is gone when this ends.
        """
        try:
            while True:
                try:
                    await self._until_gone()
                    self._lost()
                    await self.acquire()
                except SessionExpiredError:
                    raise_unless_renewed(self._zk)
                    self._lost()
                except ServerError as refusal:
                    if not refusal.is_transient:
                        raise
                    await asyncio.sleep(_PAUSE)
        except asyncio.CancelledError:
            if not self._is_made and self._zk.session_id:
                await self._until_withdrawn()
            raise
        except ZooKeeperError as error:
            self._error = error
            self._there.set()
            raise

    async def set(self, data: bytes) -> None:
        """Have the node hold `data`, now and whenever it is put back; return when it does.

        Raises: as `created`.
        Cancellation: it may hold it.
        """
        self._data = checked_data(data)
        async with self._turn:
            while self.stands:
                try:
                    await self._zk.set(self.path, self._data)
                except ConnectionLostError:
                    continue  # nobody else writes it: again
                except SessionExpiredError:
                    raise_unless_renewed(self._zk)
                    continue
                except NoNodeError:
                    self._lost()
                break
        await self.created()

    def discard(self) -> asyncio.Future[None] | None:
        """End the keeping: have the node removed, if it is ours, and return what to wait for.

        So it is also when the keeping has ended by an error before: who may not look after a node may still delete it.

        Who waits for the node to stand is told, and so is whoever asks later.
        When the answer is lost, what others have put there meanwhile is left alone.  If somebody deletes our node and
        yet another puts one in its place before we have heard of that, theirs goes.
        """
        may_be_ours, self._is_made = self._may_be_ours, False
        if self._error is None:
            self._error = RuntimeError(f"the node {self.path} is kept no more")
        self._there.set()
        return self._zk.discard(self.path, newest_zxid=self._czxid) if may_be_ours else None

    # -- within -----------------------------------------------------------------------------------------------------

    async def _created(self, *, waits: bool) -> bool:
        """Try to create the node; return whether it stands."""
        try:
            return await self._create(waits=waits)
        except SessionExpiredError:
            raise_unless_renewed(self._zk)
            return False  # whatever stood there went with the session

    async def _create(self, *, waits: bool) -> bool:
        newest = self._zk.last_zxid
        try:
            _, stat = await self._zk.create_and_stat(self.path, self._data, ephemeral=True, acl=self._acl)
        except NoNodeError:
            await make_container(self._zk, self.path.rpartition("/")[0] or "/", self._acl)
            return False
        except NodeExistsError as error:
            await self._until_free(error, waits=waits)
            return False
        except ConnectionLostError:
            found = await self._find(newest)
            if found is None:
                return False
            stat = found
        self._session_id, self._czxid, self._is_made = stat.ephemeral_owner, stat.czxid, True
        self._there.set()
        return True

    async def _until_free(self, error: NodeExistsError, *, waits: bool) -> None:
        """Wait until another session's node is gone, if that is to be waited for; otherwise raise `error`."""
        while True:
            try:
                node, watch = await self._zk.get_and_watch(self.path)
            except NoNodeError:
                return
            try:
                owner = node.stat.ephemeral_owner
                if owner == self._zk.session_id:
                    error.hint = _OURS
                elif owner == 0:
                    error.hint = _NOT_EPHEMERAL
                elif waits or owner in self._former:
                    await watch
                    continue
                else:
                    error.hint = (
                        f"it belongs to another session, {owner % 2**64:#x}; if that is this process's before a"
                        " restart, it goes with that session: wait for it with within="
                    )
                raise error
            finally:
                watch.cancel()

    async def _find(self, newest: int) -> Stat | None:
        """Look for a node whose create lost its answer, and return its Stat, None if it is not there.

        Arguments: `newest`, a zxid that is older than the create.
        Cancellation: it is looked for all the same, and removed.
        """
        searching = asyncio.get_running_loop().create_task(self._search(newest))
        try:
            return await asyncio.shield(searching)
        except asyncio.CancelledError:
            searching.add_done_callback(self._drop_found)
            raise

    async def _search(self, newest: int) -> Stat | None:
        """Look until it is known whether it is there."""
        answers = await lost_answers.read(self._zk, self.path, GetData(self.path))
        node: Node | None = lost_answers.result(answers[0])
        if node is None or node.stat.ephemeral_owner != self._zk.session_id:
            return None
        # One that is older was made by somebody else in this client.
        return node.stat if node.stat.czxid > newest else None

    def _drop_found(self, searching: asyncio.Task[Stat | None]) -> None:
        found = lost_answers.late_result(searching)
        if found is not None:
            self._zk.discard(self.path, newest_zxid=found.czxid)

    async def _until_gone(self) -> None:
        """Return when the node is not there, or not ours.

        A watch on its children, of which it has none, tells of its deletion, and not of each change of its data.
        """
        with WatchSet() as watches:
            node, names = await self._zk.pipeline([GetData(self.path), GetChildren(self.path, into=watches)])
            for answer in (node, names):
                if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                    raise answer
            if isinstance(node, NoNodeError) or isinstance(names, NoNodeError):
                return
            if node.stat.ephemeral_owner != self._zk.session_id:
                return
            while (await watches.next()).type is not WatchEventType.DELETED:
                pass

    async def _until_withdrawn(self) -> None:
        """Return when a create that was cancelled under way has left no node.

        The client removes what it has made; our reads go behind it.  The server that answers them may be behind the one
        that carried the create out: hence the sync.
        """
        with contextlib.suppress(ZooKeeperError):
            await self._zk.sync(self.path)
            await self._until_gone()

    @property
    def _may_be_ours(self) -> bool:
        return self._is_made and self._session_id == self._zk.session_id

    def _lost(self) -> None:
        self._is_made = False
        self._there.clear()
        if self._session_id != self._zk.session_id:
            self._former.add(self._session_id)


def checked_data(data: bytes) -> bytes:
    """Return `data` if it is bytes.  Raises: TypeError."""
    if not isinstance(data, bytes):
        raise TypeError(f"data is bytes, not {data!r}")
    return data
