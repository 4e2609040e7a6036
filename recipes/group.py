"""A group: the list of its present members, each with a name and some data.

A member is an ephemeral node below the group's node, as for Curator's GroupMember.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from copy import copy
from typing import Final, Self

import zkwire
from recipes.common.checks import checked_client, checked_within, same_loop
from recipes.common.persistent_node import PersistentNode
from recipes.common.retrying import read, until_answered
from recipes.common.streams import RecipeStream
from recipes.common.warn_once import WarnOnce
from zkwire import ACL, Client, GetData, Node, WatchEvent, join_path, validate_path

_log = logging.getLogger(__name__)

# In seconds: a membership that ends sooner never sets a watch, so that joining costs one request.
_UNWATCHED: Final = 0.1
_NOT_SHOWN: Final = "so it is not shown as a member"


class Member:
    """A membership in a group, made by `Group.join` and ended by `leave`, or by `async with await group.join(...)`.

    It outlives its session: its node is put back in the next session, and when another client deletes it.
    It is for the event loop in which it was made; in another one its methods raise RuntimeError.

    Attributes: `name` and `path` of its node.
    """

    def __init__(self, name: str, node: PersistentNode) -> None:
        self.name = name
        self.path: str = node.path
        self._node = node
        self._loop = loop = asyncio.get_running_loop()
        self._over: asyncio.Future[zkwire.ZooKeeperError | None] = loop.create_future()
        self._is_reported = False  # the error that has ended the membership was raised or returned to the caller
        self._keep_task: asyncio.Task[None] | None = None
        self._timer = loop.call_later(_UNWATCHED, self._start_keeping)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            await self.leave()
        except zkwire.ZooKeeperError:
            if kind is None:
                raise

    @property
    def exists(self) -> bool:
        """Whether the member's node exists, as far as this client has heard."""
        return self._node.exists

    async def set(self, data: bytes) -> None:
        """Replace the member's data; return when the node holds it.

        While the session is being renewed, this waits until the node is put back.  A node is put back with the data
        that the server has accepted last, so refused data does not end the membership.

        Raises:
            RuntimeError: if the member has left.
            ZooKeeperError: if this error has ended the membership, see `lost`, or the server refuses the data with it.
                If another session has put its own node in the place of this one a moment before, NodeExistsError; that
                node is left as it is if its version differs.

        Cancellation:
            The node may hold the data until it is put back.

        Requests:
            setData; if another client has written the node since, also exists and setData.
        """
        self._check_loop()
        if self._over.done():
            self._is_reported = True
            raise copy(self._over.result()) or RuntimeError(f"the member {self.path} has left")
        await self._node.set(data)

    async def leave(self) -> None:
        """Leave the group, and return when the node is known to be gone; a second call does nothing.

        While no server answers, return after one or two seconds anyway, see Lease.release.

        Raises:
            ZooKeeperError: if this error has ended the membership, unless `lost` or `set` has reported it or the client
                is closed.

        Cancellation:
            The member leaves anyway.
        """
        self._check_loop()
        self._timer.cancel()
        keep_task, self._keep_task = self._keep_task, None
        try:
            if keep_task is not None:
                keep_task.cancel()
                await asyncio.wait([keep_task])
        finally:
            gone = self._node.discard()
            self._end(None)
        if gone is not None:
            await gone
        error = self._over.result()
        if error is not None and not self._is_reported and not isinstance(error, zkwire.SessionClosedError):
            self._is_reported = True
            raise error

    async def lost(self) -> zkwire.ZooKeeperError | None:
        """Wait until the membership has ended; return the error that has ended it, None if the member has left.

        Returns:
            NodeExistsError if another session has taken the name while this one was renewed, SessionExpiredError if the
            client does not renew its session, SessionClosedError if the client was closed, or another error that keeps
            the node from being created, such as NoAuthError.

        Cancellation:
            Leaves no node.
        """
        self._check_loop()
        error = await asyncio.shield(self._over)
        self._is_reported = True
        return error

    def _check_loop(self) -> None:
        same_loop(self._loop, f"the member {self.path}")

    def _start_keeping(self) -> None:
        self._keep_task = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        try:
            await self._node.keep()
        except zkwire.ZooKeeperError as error:
            self._end(error)

    def _end(self, error: zkwire.ZooKeeperError | None) -> None:
        if not self._over.done():
            self._over.set_result(error)


class Group:
    """A group of members, each with a name and some data.

    ::

        group = Group(zk, "/services/web")
        member = await group.join("host-1", b"10.0.0.7:80")
        print(await group.members())                     # {"host-1": b"10.0.0.7:80", ...}
        async for members in group.watch(): ...          # now and after each change
        await member.leave()

    Args:
        path: The group's node, created as a container when it is missing.
        acl: The ACL of every node that is created.  None: all clients may join, and read the members, into whose nodes
            only their makers may write, if they have an identity.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._zk = checked_client(zk)
        self.path: str = validate_path(path)
        self._acl = acl
        self._own_sessions: set[int] = set()
        self._warnings = WarnOnce(_log, f"the group {self.path}")

    async def join(self, name: str, data: bytes = b"", *, within: float | None = 0.0) -> Member:
        """Join under `name`, and return the membership, which lasts until it leaves or the client is closed.

        Args:
            name: The name of the member's node.
            data: What the other members can read.
            within: How many seconds to wait for a member of that name in another session to go, such as a node of this
                process before a restart, or before its session expired; None waits without limit, 0 looks once.

        Raises:
            NodeExistsError: if the name is taken and `within` is 0, or by a node that never goes or is this session's.
            TimeoutError: if it is still taken after `within` seconds.
            ValueError: if it is not a name, as TypeError.

        Cancellation:
            No node stays.

        Requests:
            create; after a tenth of a second also getChildren, with a watch, and getData, in one write.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a member is a str, not {name!r}")
        if "/" in name:
            raise ValueError(f"the name of a member is one node's name, not a path: {name!r}")
        path = validate_path(join_path(self.path, name))
        node = PersistentNode(self._zk, path, data, acl=self._acl, own_sessions=self._own_sessions)
        await node.acquire(within=checked_within(within))
        return Member(name, node)

    async def members(self) -> dict[str, bytes]:
        """Return the data of all members by their names; a group whose node is missing has no members.

        A node that is not ephemeral, or that this client may not read, is not a member; a warning is logged.

        Raises:
            NoAuthError: if this client may not list the group.
            ValueError: if the server lists a name that no server lets a client create, such as one with an ESC.

        Order:
            The answer includes the earlier changes of this client; other clients' may be missing, unless `zk.sync` was
            called before.

        Requests:
            getChildren, then one getData for each member, all in one write.
        """
        try:
            names = await until_answered(self._zk, lambda: self._zk.get_children(self.path))
        except zkwire.NoNodeError:
            return {}
        found = await read(self._zk, *(GetData(join_path(self.path, name)) for name in names))
        members = {}
        for name, node in zip(names, found, strict=True):
            if self._warnings.is_member(node, join_path(self.path, name), _NOT_SHOWN):
                members[name] = node.data
        return members

    def watch(self) -> MembersStream:
        """Return a stream of the members, as `members` returns them, now and after each change."""
        return MembersStream(self._zk, self.path, self._warnings)


class MembersStream(RecipeStream[dict[str, bytes]]):
    """The members of a group, now and after each change; made by `Group.watch`.

    Of changes in quick succession some may be left out, but never the last one.  The stream goes on after a reconnect,
    and in a new session after an expiry.  A loop may be left by `break`; a stream that is kept in a variable must be
    closed, by `close()` or by `async with`.

    Raises:
        SessionExpiredError: from the iteration, if the client does not renew its session.
        SessionClosedError: from the iteration, if the client is closed.
        NoAuthError: from the iteration, if this client may not list the group.

    Cancellation:
        Removes the watches from the server; the iteration may be continued afterwards.

    Requests:
        One getData when a member changes its data; getChildren and getData when a member joins; getChildren when a
        member leaves.  After each getChildren also getData of every node that this client may not read.
    """

    _noun = "members"

    def __init__(self, zk: Client, path: str, warnings: WarnOnce) -> None:
        super().__init__(zk, path)
        self._warnings = warnings
        self._names: list[str] = []  # of the group's children, as last listed
        # The data of those that were read, so that a watch was set; None for one that is not a member's.
        self._known: dict[str, bytes | None] = {}
        # Those that may not be read.  A refused read sets no watch, so they are read again after the next list.
        self._unreadable: set[str] = set()
        self._needs_list: bool  # whether the names may have changed; the first look lists them in any case

    def _heard(self, event: WatchEvent) -> None:
        """Forget what the event has made out of date; its watch is used up."""
        if event.path == self.path:
            self._needs_list = True
            return
        # Also after a deletion the name stays, and is read again: a list that came meanwhile may be newer than the
        # event, and show a member that has joined again under its name.
        self._known.pop(event.path.rpartition("/")[2], None)

    async def _look(self) -> tuple[object, dict[str, bytes]]:
        """Read what is not known, and leave a watch on everything that is known."""
        if not self._is_armed:  # the watches are gone, so nothing that was known can be trusted
            self._known.clear()
            self._needs_list = True
        while self._needs_list:
            found = await self._found(self._zk.get_children_and_watch(self.path, into=self._watches))
            if found is None and not await self._is_missing():
                continue
            self._names = [] if found is None else found[0]
            self._needs_list = False
            self._unreadable.clear()
            self._known = {name: self._known[name] for name in self._names if name in self._known}
        unknown = [name for name in self._names if name not in self._known and name not in self._unreadable]
        reads = [GetData(join_path(self.path, name), into=self._watches) for name in unknown]
        for name, node in zip(unknown, await read(self._zk, *reads), strict=True):
            is_member = self._warnings.is_member(node, join_path(self.path, name), _NOT_SHOWN)
            if isinstance(node, Node):
                self._known[name] = node.data if is_member else None
            elif isinstance(node, zkwire.NoAuthError):
                self._unreadable.add(name)
        members = {name: data for name, data in self._known.items() if data is not None}
        return members.copy(), members
