"""A double barrier: its members begin together and end together.

The functions are pure: which children are members, in which order they came, and what a leaving member waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from recipes.common import lost_answers
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
    ServerError,
    SessionExpiredError,
    Sync,
    TransactionError,
    WatchSet,
    ZooKeeperError,
    join_path,
    sequence,
    sequence_distance,
    validate_path,
)

READY: Final = "ready"

# The members of one round, in the order in which they came: the names of their nodes. `ready` holds them, one a line.
Round: TypeAlias = tuple[str, ...]

# A member's node: a unique id, the member's count, and the sequence number.
_MEMBER: Final = re.compile(r"[0-9a-f-]{36}-of-([1-9][0-9]{0,9})-(?:[0-9]{10}|-[0-9]{9,10})")


def count_of(name: str) -> int | None:
    """Return the count with which the member `name` was made; None if it is not the name of a member."""
    match = _MEMBER.fullmatch(name)
    return int(match[1]) if match and sequence(name) is not None else None


def in_order(names: Collection[str]) -> list[str]:
    """Return those of `names` that are names of members, in the order in which the members came."""
    numbers = {name: sequence(name) or 0 for name in names if count_of(name) is not None}
    # Sequence numbers overflow, so they are compared by their distance to one of them.
    reference = next(iter(numbers.values()), 0)
    return sorted(numbers, key=lambda name: sequence_distance(numbers[name], reference))


def to_wait_for(own: str, present: Sequence[str]) -> str | None:
    """Return the member whose departure the leaving member `own` waits for; None when no other member is left.

    The first member stays until it is alone, and waits for the last one. All others go at once, and wait for the first.
    So each departure wakes one member, except for that of the first, which ends the round for all.
    Arguments: `present`, the members of the round whose nodes exist, in their order.
    """
    if not [name for name in present if name != own]:
        return None
    return present[-1] if present[0] == own else present[0]


class _Found(NamedTuple):
    """A member's node that was found after the answer to its create was lost: its name, its owner, all children."""

    name: str
    session_id: int
    names: list[str]


class DoubleBarrier:
    """A barrier at which `count` members meet: none enters before all have come, none leaves before all want to leave.

        async with DoubleBarrier(zk, "/jobs/7", 5):      # or: await barrier.enter(within=60.0); ...; await leave()
            ...                                          # all five have entered

    The others do not wait for a member that dies or gives up: its node goes with its session. The members that came
    first enter first: surplus members, and members that come back for another round, wait for a later round.
    Arguments: `path`, the barrier's node, a container, with the node `ready` and the members' ephemeral nodes below it;
    `count`, at least 1, the same for all members that are at the barrier at one time; `acl`, of every node that is
    created. Other children of the barrier's node are ignored.
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
        self._unique = ""  # the part of our node's name before its number
        self._own: str | None = None  # the name of our node
        self._session_id = 0  # of our node
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
        elif self._round is not None:
            # The body has failed: this member does not wait for the others, nor they for it.
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

        Arguments: `within`, the longest wait in seconds; None waits without limit, 0 enters only as the last member.
        Raises: TimeoutError; ValueError when the first member at the barrier has another count; RuntimeError when this
        member has entered and not left; SessionExpiredError, only if the client does not renew its session. Otherwise
        the member enters again in the next session. If its round is over by then, it waits for the next round, so limit
        the wait.
        Cancellation: no node stays. The other members may have entered by then.
        Requests: create2 and getChildren in one write, exists, getData of our own node and, when all have come, of
        `ready`. The last member to come sends, after the first write, getData of all members in one write, and multi.
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

        Arguments: `within`, the longest wait in seconds; None waits without limit, 0 only looks.
        Raises: TimeoutError, but this member has left all the same, and the others do not wait for it; RuntimeError
        when it has not entered.
        Cancellation: this member has left.
        Requests: getChildren, delete, getData, getChildren; for the first member getChildren and getData for each
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
        self._own = next((name for name in found if name.startswith(self._unique)), None)
        return found if self._own else None

    async def _create_own(self) -> list[str]:
        """Create our node and list the children, in one round trip; return the names of the children."""
        self._unique = f"{self._zk.unique_id()}-of-{self.count}-"
        own = Create(join_path(self.path, self._unique), ephemeral=True, sequential=True, acl=self._acl)
        while True:
            created, names = await self._zk.pipeline([own, GetChildren(self.path)])
            if isinstance(created, NoNodeError):
                await make_container(self._zk, self.path, self._acl)
            elif isinstance(created, ConnectionLostError):
                found = await self._find(self._unique)
                if found is not None:
                    self._own, self._session_id = found.name, found.session_id
                    return found.names
            elif isinstance(created, BaseException):
                raise created
            else:
                path, stat = created
                self._own, self._session_id = path.rpartition("/")[2], stat.ephemeral_owner
                return _listed(names)

    async def _find(self, unique: str) -> _Found | None:
        """Look for our node after the answer to its create was lost; None if it does not exist.

        Cancellation: the search goes on in a task of its own, and a node that it finds is removed.
        """
        search = asyncio.get_running_loop().create_task(self._search(unique))
        try:
            return await asyncio.shield(search)
        except asyncio.CancelledError:
            search.add_done_callback(self._discard_found)
            raise

    async def _search(self, unique: str) -> _Found | None:
        answers = await lost_answers.read(self._zk, self.path, GetChildren(self.path))
        names = lost_answers.result(answers[0]) or []
        name = next((name for name in names if name.startswith(unique)), None)
        if name is None:
            return None
        # The node may belong to a session that has expired since. It is found all the same, and then replaced.
        path = join_path(self.path, name)
        answers = await lost_answers.read(self._zk, path, GetData(path))
        try:
            node: Node | None = lost_answers.result(answers[0])
        except ServerError:
            self._zk.discard(path)
            raise
        return None if node is None else _Found(name, node.stat.ephemeral_owner, names)

    def _discard_found(self, search: asyncio.Task[_Found | None]) -> None:
        found = lost_answers.late_result(search)
        if found is not None:
            self._zk.discard(join_path(self.path, found.name))

    async def _wait_for_round(self, names: list[str], bound: Bound) -> Round | None:
        """Wait for a round with us in it, and return it; None when our node is gone.

        Arguments: `names`, of the children, as listed after our own node was created.
        """
        while self._own in names and self._session_id == self._zk.session_id:
            await self._check_count(names)
            with WatchSet() as watches:
                if READY not in names:
                    members = await self._next_round(names)
                    if members is not None:
                        if await self._begin_round(members) and self._own in members:
                            return members
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
                    elif await self._watch([self._own_path, join_path(self.path, present[0])], watches):
                        bound.must_wait()
                        await watches.next()
                    names = await self._list()
        return None

    async def _check_count(self, names: list[str]) -> None:
        """Raise ValueError if the first member at the barrier has another count than this one."""
        members = in_order(names)
        if all(count_of(name) == self.count for name in members):
            return
        for name in await self._ephemeral(members):
            if count_of(name) == self.count:
                return
            raise ValueError(
                f"the first member at the barrier {self.path} has count={count_of(name)}, this one count={self.count}:"
                " all members at a barrier need the same count"
            )

    async def _next_round(self, names: list[str]) -> Round | None:
        """Return the members of the next round: the first `count`; None if fewer have come."""
        members = [name for name in in_order(names) if count_of(name) == self.count]
        if len(members) < self.count:
            return None
        first = await self._ephemeral(members[: self.count])
        if len(first) < self.count:  # one of them has left, or is a node that a person has created
            first = (await self._ephemeral(members))[: self.count]
        return tuple(first) if len(first) == self.count else None

    async def _ephemeral(self, names: list[str]) -> list[str]:
        """Return those of `names` that are ephemeral nodes: a persistent one would never leave a round."""
        nodes = await self._zk.pipeline([GetData(join_path(self.path, name)) for name in names])
        for node in nodes:
            if isinstance(node, BaseException) and not isinstance(node, NoNodeError):
                raise node
        return [
            name
            for name, node in zip(names, nodes, strict=True)
            if isinstance(node, Node) and node.stat.ephemeral_owner
        ]

    async def _wait_for_ready(self, watches: WatchSet, bound: Bound) -> bool:
        """Wait until a round begins; return False when our own node is gone."""
        bound.must_wait()
        stat, _ = await self._zk.exists_and_watch(self._ready, into=watches)
        if stat is None:
            if not await self._watch([self._own_path], watches):
                return False
            await watches.next()
        return True

    async def _begin_round(self, members: Round) -> bool:
        """Create `ready`, unless a member has left or another one has created it; return whether this one has.

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
            pass  # the caller reads `ready` next, which shows whether it was created
        else:
            return True
        return False

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
                    await self._wait_for(other, is_last=own == present[0])
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
