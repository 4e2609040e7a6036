"""A double barrier: its members begin together and end together.

`to_wait_for` is pure: it decides what a member that leaves has to wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from recipes.common.arguments import checked_within
from recipes.common.shared_nodes import make_container
from recipes.common.waiting import Bound, bounded, raise_unless_renewed
from zkwire import (
    ACL,
    OPEN_ACL,
    BadVersionError,
    Client,
    ConnectionLostError,
    Create,
    GetChildren,
    GetData,
    Node,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Sync,
    TransactionError,
    WatchSet,
    ZooKeeperError,
    join_path,
    validate_path,
)

READY: Final = "ready"

# The members of one round: the names of their nodes. The node `ready` holds them, one a line.
Round: TypeAlias = tuple[str, ...]


def to_wait_for(own: str, present: Collection[str]) -> str | None:
    """Return the member whose departure the leaving member `own` waits for; None when no other member is left.

    The lowest member stays until it is the last, and waits for the highest one. All others go at once, and wait for the
    lowest. So each departure wakes one member, except for that of the lowest, which ends the round for all.
    Arguments: `present`, the members of the round whose nodes exist.
    """
    others = [name for name in present if name != own]
    if not others:
        return None
    return max(others) if own == min(present) else min(present)


class DoubleBarrier:
    """A barrier at which `count` members meet: none enters before all have come, none leaves before all want to leave.

        async with DoubleBarrier(zk, "/jobs/7", 5):      # or: await barrier.enter(within=60.0); ...; await leave()
            ...                                          # all five have entered

    The others do not wait for a member that dies or gives up: its node goes with its session. Surplus members, and
    members that come back for another round, wait until the round is over.
    Arguments: `path`, the barrier's node, a container, with the node `ready` and the members' ephemeral nodes below it;
    `count`, at least 1, the same for all members; `acl`, of every node that is created.
    Each object is one member, for one task at a time.
    """

    def __init__(self, zk: Client, path: str, count: int, *, acl: Sequence[ACL] = OPEN_ACL) -> None:
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"count is a whole number of members, not {count!r}")
        if count < 1:
            raise ValueError(f"count is at least 1 member, not {count!r}")
        self._zk = zk
        self.path = validate_path(path)
        self.count = count
        self._acl = acl
        self._ready = join_path(self.path, READY)
        self._own: str | None = None
        self._session_id = 0
        self._round: Round | None = None
        self._is_busy = False

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.leave()
        elif (
            self._round is not None
        ):  # the body has failed: neither does this member wait for the others, nor they for it
            failed, self._round = self._round, None
            gone = self._discard_own()
            if gone is not None:
                await gone
            with contextlib.suppress(ZooKeeperError):  # the body's error is more important
                names = await self._list()
                if READY in names and not any(name in names for name in failed):
                    await self._end_round(failed)

    async def enter(self, *, within: float | None = None) -> None:
        """Wait until `count` members have come, and return together with them.

        Arguments: `within`, the longest wait in seconds; None waits without limit.
        Raises: TimeoutError; RuntimeError when this member has entered and not left; SessionExpiredError, only if the
        client does not renew its session. Otherwise the member enters again in the next session. If its round is over
        by then, it waits for the next round, so limit the wait.
        Cancellation: no node stays. The other members may have entered by then.
        Requests: create2 and getChildren in one write, exists, getData of our own node and, when all have come, of
        `ready`. The last member to come sends multi in place of exists and the getData of its own node.
        """
        checked_within(within)
        if self._round is not None or self._is_busy:
            raise RuntimeError(f"this member of {self.path} has entered already: leave it first")
        self._is_busy = True
        try:
            async with bounded(within, f"{self.count} members did not come to {self.path}") as bound:
                self._round = await self._enter(bound)
        except BaseException:
            self._discard_own()
            raise
        finally:
            self._is_busy = False

    async def leave(self, *, within: float | None = None) -> None:
        """Wait until all members of the round have left or died, and return together with them.

        Arguments: `within`, the longest wait in seconds; None waits without limit.
        Raises: TimeoutError, but this member has left all the same, and the others do not wait for it; RuntimeError
        when it has not entered.
        Cancellation: this member has left.
        Requests: getChildren, delete, getData, getChildren; for the lowest member getChildren and getData for each
        departure that it waits for, and multi at the end.
        """
        checked_within(within)
        entered, self._round = self._round, None
        if entered is None:
            raise RuntimeError(f"this member of {self.path} has not entered")
        self._is_busy = True
        try:
            async with bounded(within, f"the other members did not leave {self.path}") as bound:
                await self._leave(entered, bound)
        except BaseException:
            self._discard_own()
            raise
        finally:
            self._is_busy = False

    # -- entering ---------------------------------------------------------------------------------------------------

    async def _enter(self, bound: Bound) -> Round:
        while True:
            try:
                entered = await self._wait_for_round(await self._create_own(), bound)
            except SessionExpiredError:
                raise_unless_renewed(self._zk)
                entered = await self._round_with_us()
            if entered is not None:
                return entered
            # Our node is gone, or belongs to an expired session: enter again with another node.
            self._discard_own()

    async def _round_with_us(self) -> Round | None:
        """Return the round if it has begun with our node, which has gone with its session since; otherwise None."""
        try:
            found = _members(await self._zk.get(self._ready))
        except (NoNodeError, SessionExpiredError):
            return None
        return found if self._own in found else None

    async def _create_own(self) -> list[str]:
        """Create our node and list the children, in one round trip."""
        self._session_id = self._zk.session_id
        self._own = self._zk.unique_id()
        own = Create(self._own_path, ephemeral=True, acl=self._acl)
        while True:
            created, names = await self._zk.pipeline([own, GetChildren(self.path)])
            # There was no session at first, between two sessions: then it is the one in which this was sent.
            self._session_id = self._session_id or self._zk.session_id
            if self._session_id != self._zk.session_id:
                return []
            if isinstance(created, NoNodeError):
                await make_container(self._zk, self.path, self._acl)
            elif isinstance(created, ConnectionLostError):
                pass  # the name is ours alone: if the node exists now, the next create says so
            elif isinstance(created, BaseException) and not isinstance(created, NodeExistsError):
                raise created
            else:
                return _listed(names)

    async def _wait_for_round(self, names: list[str], bound: Bound) -> Round | None:
        """Wait for a round with us in it, and return it; None when our node is gone."""
        while self._own in names and self._session_id == self._zk.session_id:
            with WatchSet() as watches:
                if READY not in names:
                    if len(names) >= self.count:
                        await self._begin_round(sorted(names)[: self.count])
                    elif not await self._wait_for_ready(watches, bound):
                        return None
                found = await self._read_ready(watches)
                if found is not None and self._own in found:
                    return found
                names = await self._list()
                if found is not None:
                    present = [name for name in found if name in names]
                    if not present:
                        # All members of that round have died, and none of them could remove `ready`.
                        await self._end_round(found)
                    elif await self._watch([self._own_path, join_path(self.path, min(present))], watches):
                        bound.must_wait()
                        await watches.next()
                    names = await self._list()
        return None

    async def _wait_for_ready(self, watches: WatchSet, bound: Bound) -> bool:
        """Wait until a round begins; return False when our own node is gone."""
        bound.must_wait()
        stat, _ = await self._zk.exists_and_watch(self._ready, into=watches)
        if stat is None:
            if not await self._watch([self._own_path], watches):
                return False
            await watches.next()
        return True

    async def _begin_round(self, members: list[str]) -> None:
        """Create `ready`, unless one of `members` has left or another member has created it.

        The transaction also increments the version of the barrier's node, for `_end_round`.
        """
        transaction = self._zk.transaction()
        for name in members:
            transaction.check(join_path(self.path, name))
        transaction.create(self._ready, "\n".join(members).encode(), acl=self._acl)
        transaction.set(self.path, str(self.count).encode())
        try:
            await transaction.commit()
        except TransactionError as error:
            if not isinstance(error.cause, NoNodeError | NodeExistsError):
                raise
            await self._zk.sync(self.path)  # our server may lag behind the leader, which has refused this
        except ConnectionLostError:
            pass  # the caller reads `ready` next

    async def _read_ready(self, watches: WatchSet) -> Round | None:
        """Read the members of the present round, and watch for its end; None if there is no round."""
        try:
            node, _ = await self._zk.get_and_watch(self._ready, into=watches)
        except NoNodeError:
            return None
        return _members(node)

    # -- leaving ----------------------------------------------------------------------------------------------------

    async def _leave(self, entered: Round, bound: Bound) -> None:
        own = self._own
        assert own is not None
        while True:
            try:
                names = await self._list()
                present = [name for name in entered if name in names]
                other = to_wait_for(own, present)
                if other is not None:
                    bound.must_wait()
                    await self._wait_for(other, is_last=own == min(present))
                elif await self._finish(entered, is_there=own in present, has_ready=READY in names):
                    return
            except SessionExpiredError:
                raise_unless_renewed(self._zk)

    async def _wait_for(self, other: str, *, is_last: bool) -> None:
        """Wait until `other` has left; delete our own node before that, unless we are to be the last."""
        with WatchSet() as watches:
            if not is_last:
                self._zk.discard(self._own_path)
            if await self._watch([join_path(self.path, other)], watches):
                await watches.next()

    async def _finish(self, entered: Round, *, is_there: bool, has_ready: bool) -> bool:
        """End the round, in which no other member is left; return whether that is done."""
        if not is_there:
            if has_ready:
                await self._end_round(entered)
            return True
        transaction = self._zk.transaction()
        transaction.delete(self._own_path)
        if has_ready:
            transaction.delete(self._ready)
        try:
            await transaction.commit()
        except ConnectionLostError:
            return False
        except TransactionError as error:
            if not isinstance(error.cause, NoNodeError):
                raise
            await self._zk.sync(self.path)
            return False
        return True

    # -- entering and leaving ---------------------------------------------------------------------------------------

    async def _end_round(self, ended: Round) -> None:
        """Delete the `ready` of the round `ended`, whose members are all gone, but not that of another round.

        Another member may have ended the round, and the next one may have begun. Each beginning of a round changes the
        version of the barrier's node. That version is read before `ready`, so it belongs to the round `ended` or to an
        earlier one, and the check of it fails if another round has begun since.
        """
        _, node, ready = await self._zk.pipeline([Sync(self.path), GetData(self.path), GetData(self._ready)])
        if isinstance(node, NoNodeError) or isinstance(ready, NoNodeError):
            return
        for answer in (node, ready):
            if isinstance(answer, BaseException):
                raise answer
        if _members(ready) != ended:
            return
        transaction = self._zk.transaction()
        transaction.check(self.path, node.stat.version)
        transaction.delete(self._ready)
        try:
            await transaction.commit()
        except TransactionError as error:
            if not isinstance(error.cause, NoNodeError | BadVersionError):
                raise
        except ConnectionLostError:
            pass  # the next member to enter ends the round

    async def _list(self) -> list[str]:
        try:
            return await self._zk.get_children(self.path)
        except NoNodeError:
            return []

    async def _watch(self, paths: list[str], watches: WatchSet) -> bool:
        """Watch nodes for their deletion; return whether all of them exist."""
        answers = await self._zk.pipeline([GetData(path, into=watches) for path in paths])
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                raise answer
        return not any(isinstance(answer, NoNodeError) for answer in answers)

    @property
    def _own_path(self) -> str:
        return join_path(self.path, self._own or "")

    def _discard_own(self) -> asyncio.Future[None] | None:
        """Remove our node if we have one, and return the future of its removal."""
        if self._own is None:
            return None
        gone = self._zk.discard(self._own_path)
        self._own = None
        return gone


def _members(ready: Node) -> Round:
    return tuple(ready.data.decode(errors="replace").split("\n"))


def _listed(names: list[str] | BaseException) -> list[str]:
    """Return the names that getChildren has answered; none if the node is missing."""
    if isinstance(names, NoNodeError):
        return []
    if isinstance(names, BaseException):
        raise names
    return names
