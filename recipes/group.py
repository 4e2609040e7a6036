"""A group: who is in it at this moment, each under a name of its own and with some data.

A member is an ephemeral node below the group's, as Curator's GroupMember makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import zkwire
from recipes.common.arguments import checked_within
from recipes.common.keeper import Keeper, checked_data
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    GetData,
    Node,
    NoNodeError,
    SessionState,
    ValueStream,
    WatchEvent,
    WatchEventType,
    join_path,
    validate_path,
)

# A membership that is over within this time, in seconds, never costs a watch, so that to join is one request.
_UNWATCHED: Final = 0.1


class Member:
    """One membership; made by `Group.join`, ended by `leave`, or by `async with await group.join(...)`.

    It outlives its session: in the next one it is put back, and so it is when somebody deletes its node.
    `name` and `path` are its node's.
    """

    def __init__(self, zk: Client, name: str, keeper: Keeper) -> None:
        self._zk = zk
        self.name = name
        self.path = keeper.path
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[zkwire.ZooKeeperError | None] = self._loop.create_future()
        self._is_told = False
        self._keeping: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(_UNWATCHED, self._begin)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.leave()
        except zkwire.ZooKeeperError:
            if kind is None:
                raise

    @property
    def stands(self) -> bool:
        """Whether its node stands, as far as this client has been told."""
        return self._keeper.stands

    async def set(self, data: bytes) -> None:
        """Replace the member's data; return when the node holds it (request: setData).

        While the session is being renewed it waits for the node to be put back.
        Raises: RuntimeError when it has left; what has ended the membership, see `lost`.
        Cancellation: it may have been replaced.
        """
        if self._over.done():
            self._is_told = True
            raise self._over.result() or RuntimeError(f"the member {self.path} has left")
        await self._keeper.set(data)

    async def leave(self) -> None:
        """Leave the group, and return when the node is known to be gone; a second call does nothing.

        Raises: what has ended the membership before, unless `lost` or `set` has told it, or the client is closed.
        Cancellation: it leaves all the same.
        """
        self._timer.cancel()
        keeping, self._keeping = self._keeping, None
        gone: asyncio.Future[None] | None = None
        try:
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait([keeping])
        finally:
            gone = self._keeper.discard()
            self._end(None)
        if gone is not None:
            await gone
        error = self._over.result()
        if error is not None and not self._is_told and not isinstance(error, zkwire.SessionClosedError):
            self._is_told = True
            raise error

    async def lost(self) -> zkwire.ZooKeeperError | None:
        """Return when the membership has ended, with the error that has ended it; None when it has left.

        What ends it: NodeExistsError, when another session has taken the name while this one was renewed;
        SessionExpiredError, if the client renews no session; SessionClosedError; what else forbids the node.
        Cancellation: harmless.
        """
        error = await asyncio.shield(self._over)
        self._is_told = True
        return error

    def _begin(self) -> None:
        self._keeping = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        try:
            await self._keeper.keep()
        except zkwire.ZooKeeperError as error:
            self._end(error)

    def _end(self, error: zkwire.ZooKeeperError | None) -> None:
        if not self._over.done():
            self._over.set_result(error)


class Group:
    """A group of members, each with a name and some data.

        group = Group(zk, "/services/web")
        member = await group.join("host-1", b"10.0.0.7:80")
        print(await group.members())                     # {"host-1": b"10.0.0.7:80", ...}
        async for members in group.watch(): ...          # now and after each change
        await member.leave()

    Arguments: `path`, the group's node, made as a container when it is missing; `acl`, of every node that is made.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] = OPEN_ACL) -> None:
        self._zk = zk
        self.path = validate_path(path)
        self._acl = acl
        self._former: set[int] = set()

    async def join(self, name: str, data: bytes = b"", *, within: float = 0.0) -> Member:
        """Join under `name`, and return the membership, which lasts until it leaves or the client is closed.

        Arguments: `name`, a node's name; `data`, for the others to see; `within`, for how many seconds to wait for
        another session's member of that name to go, such as this process's own before a restart.
        Raises: NodeExistsError when the name is taken, after a `within` TimeoutError; ValueError, TypeError.
        Cancellation: no node stays.
        Requests: create; from a tenth of a second on also getData and getChildren, with a watch, in one write.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a member is a str, not {name!r}")
        if "/" in name:
            raise ValueError(f"the name of a member is that of one node, not a path: {name!r}")
        path = validate_path(join_path(self.path, name))
        keeper = Keeper(self._zk, path, checked_data(data), acl=self._acl, former=self._former)
        await keeper.acquire(within=checked_within(within) or 0.0)
        return Member(self._zk, name, keeper)

    async def members(self) -> dict[str, bytes]:
        """Return the data of all members, by their names; nobody is in a group whose node is missing.

        Order: what this client has done before is in it; what others have may not be yet: `zk.sync` before it.
        Requests: getChildren, then one getData for each member, in one write.
        """
        try:
            names = await self._zk.get_children(self.path)
        except NoNodeError:
            return {}
        found = await self._zk.pipeline([GetData(join_path(self.path, name)) for name in names])
        members = {}
        for name, node in zip(names, found, strict=True):
            if isinstance(node, Node):
                members[name] = node.data
            elif not isinstance(node, NoNodeError):  # who has left meanwhile is no member
                raise node
        return members

    def watch(self) -> MembersStream:
        """Return the members, as `members` does, now and after each change of who they are or of their data."""
        return MembersStream(self._zk, self.path)


class MembersStream(ValueStream[dict[str, bytes]]):
    """The members of a group, now and after each change; made by `Group.watch`.

    Of changes in quick succession some may be left out, the last one never; a reconnect, or a new session after an
    expiry, is not noticed.  Leave a loop by `break` as you like; who keeps the stream in a variable closes it, by
    `close()` or by `async with`.
    Raises, from the iteration: SessionExpiredError (only with `renew=False`), SessionClosedError, NoAuthError.
    Cancellation: of the wait for the next change removes the watches from the server; it may be taken up again.
    Requests: for a change of a member's data one getData; for one who joins getChildren and getData; for one who leaves
    getChildren.
    """

    _noun = "members"

    def __init__(self, zk: Client, path: str) -> None:
        super().__init__(path, lambda: zk.state is SessionState.EXPIRED)
        self._zk = zk
        self._names: list[str] = []  # of the members, as last listed
        self._known: dict[str, bytes] = {}  # the data of those on whom a watch stands
        self._needs_list = True

    def _heard(self, event: WatchEvent) -> None:
        """Forget what is out of date: its watch is used up."""
        if event.path == self.path:
            self._needs_list = True
            return
        name = event.path.rpartition("/")[2]
        self._known.pop(name, None)
        if event.type is WatchEventType.DELETED and name in self._names:
            self._names.remove(name)

    async def _look(self) -> tuple[object, dict[str, bytes]]:
        """Read what is not known, and leave a watch on each thing that is."""
        if not self._is_armed:  # what was known has no watch any more
            self._known.clear()
            self._needs_list = True
        while self._needs_list:
            found = await self._found(self._zk.get_children_and_watch(self.path, into=self._watches))
            if found is None:
                stat, _ = await self._zk.exists_and_watch(self.path, into=self._watches)
                if stat is not None:
                    continue
            self._names = [] if found is None else found[0]
            self._needs_list = False
            self._known = {name: self._known[name] for name in self._names if name in self._known}
        unknown = [name for name in self._names if name not in self._known]
        reads = [GetData(join_path(self.path, name), into=self._watches) for name in unknown]
        for name, node in zip(unknown, await self._zk.pipeline(reads), strict=True):
            if isinstance(node, Node):
                self._known[name] = node.data
            elif not isinstance(node, NoNodeError):  # that it is gone the watch on the group tells
                raise node
        return self._known.copy(), self._known.copy()
