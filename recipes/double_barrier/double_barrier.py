"""A double barrier: its members enter, wait for each other, and leave together, in rounds."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import zkwire
from recipes.common.checks import check_number, checked_client, checked_within
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import pause, read, read_synced, result, until_answered
from recipes.common.shared_nodes import make_container
from recipes.common.waiting import LEAVES_WITHIN, Bound, bounded
from recipes.common.warn_once import WarnOnce
from recipes.double_barrier.rounds import Round, count_of, in_order, is_round, members_in, to_wait_for
from zkwire import ACL, OPEN_ACL, READ_ONLY_ACL, Client, GetChildren, GetData, WatchSet, join_path, validate_path

_log = logging.getLogger(__name__)

T = TypeVar("T")

READY: Final = "ready"


class DoubleBarrier:
    """A barrier at which `count` members meet: none enters before all have come, none leaves before all want to leave.

    ::

        async with DoubleBarrier(zk, "/jobs/7", 5):      # or: await barrier.enter(within=60.0); ...; await leave()
            ...                                          # all five have entered

    The others do not wait for a member that dies or gives up: its node goes with its session. The members that came
    first enter first: surplus members, and members that come back for another round, wait for a later round.
    Each object is one member, for one task at a time.

    Args:
        path: The barrier's node, a container, with the node `ready` and the members' ephemeral nodes below it.  Other
            children of it are ignored.
        count: How many members meet, at least 1, the same for all members that are at the barrier at one time.
        acl: The ACL of every node that is created.
    """

    def __init__(self, zk: Client, path: str, count: int, *, acl: Sequence[ACL] | None = None) -> None:
        check_number("count is a whole number of members from 1", count, 1)
        self._zk = checked_client(zk)
        self.path: str = validate_path(path)
        self.count = count
        self._acl = acl
        # No client has anything to write into the nodes of members and into `ready`.
        self._fixed_acl = READ_ONLY_ACL if acl is None else acl
        self._ready = join_path(self.path, READY)
        self._unique = ""  # the part of our node's name before its number; "" until a node is created
        self._own = ""  # the name of our node
        self._session_id = 0  # of our node
        self._round: Round | None = None
        self._is_busy = False
        self._no_members: set[str] = set()  # names of nodes that only look like members
        self._warnings = WarnOnce(_log, f"the double barrier {self.path}")

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is None:
            await self.leave()
        elif self._round is not None:
            # The body has failed: this member does not wait for the others, nor they for it.
            failed, self._round = self._round, None
            await self._zk.discard(self._own_path)
            with contextlib.suppress(zkwire.ZooKeeperError, TimeoutError):  # the body's error is more important
                async with asyncio.timeout(LEAVES_WITHIN):
                    names = await self._list()
                    if READY in names and not self._present(failed, names):
                        await self._end_round(failed)

    async def enter(self, *, within: float | None = None) -> None:
        """Wait until `count` members have come, and return together with them.

        After an expired session the member enters the round that has begun with it, if `ready` still names it;
        otherwise it comes again in the next session, and may wait for the next round, so limit the wait.

        Args:
            within: The longest wait in seconds; None waits without limit, 0 enters only as the last member.

        Raises:
            TimeoutError: if the others did not come in time.
            ValueError: if the first member at the barrier has another count.
            RuntimeError: if this member has entered and not left.
            SessionExpiredError: if the client does not renew its session.
            NoAuthError: if this client may not delete the node of its former try: it would count twice.

        Cancellation:
            No node stays.  The other members may have entered by then.

        Requests:
            create2 and getChildren in one write, exists, getData of our own node and, when all have come, of `ready`.
            The last member to come sends, after the first write, getData of all members in one write, and multi.
        """
        checked_within(within)
        if self._round is not None or self._is_busy:
            raise RuntimeError(f"this member of {self.path} has entered already: leave it first")
        self._unique = ""
        self._round = await self._do(self._enter, within, f"{self.count} members did not come to {self.path}")

    async def leave(self, *, within: float | None = None) -> None:
        """Wait until all members of the round have left or died, and return together with them.

        Args:
            within: The longest wait in seconds; None waits without limit, 0 only looks.

        Raises:
            TimeoutError: if the others did not leave in time; this member has left anyway, and they do not wait for it.
            RuntimeError: if it has not entered.
            NoAuthError: if this client may not delete its node: that stays until the session ends, and until then the
                first member of the round, and all that come for a later round, wait.

        Cancellation:
            This member has left.

        Requests:
            getChildren, delete, getData, getChildren; for the first member getChildren and getData for each departure
            that it waits for, and multi at the end.
        """
        checked_within(within)
        entered, self._round = self._round, None
        if entered is None:
            raise RuntimeError(f"this member of {self.path} has not entered")
        try:
            await self._do(partial(self._leave, entered), within, f"the other members did not leave {self.path}")
            self._own = ""
        except zkwire.NoAuthError as error:
            error.hint = f"leaving needs READ and DELETE on {self.path}: its node stays until its session ends"
            raise

    async def _do(self, work: Callable[[Bound], Awaitable[T]], within: float | None, what: str) -> T:
        """Return the result of `work`, within its bound; if it fails, no node of ours stays."""
        self._is_busy = True
        try:
            async with bounded(self._zk, within, what) as bound:
                return await until_answered(self._zk, lambda: work(bound), repeats=True)
        except BaseException:
            if self._own:
                self._zk.discard(self._own_path)
            raise
        finally:
            self._is_busy = False

    # -- entering ---------------------------------------------------------------------------------------------------

    async def _enter(self, bound: Bound) -> Round:
        """Enter with nodes of ours, one after the other, until one of them is in a round; return the round."""
        if self._own and not self._unique:  # of a former try: its delete may have been refused
            await self._delete_own()
        while True:
            names, begun = await self._round_with_us() if self._unique else ([], None)
            if begun is None:
                if self._own not in names:
                    names = await self._create_own()
                    await warn_if_wider(self._zk, self.path, self._acl)
                begun = await self._wait_for_round(names, bound)
            if begun is not None:
                return begun

    async def _round_with_us(self) -> tuple[list[str], Round | None]:
        """Return the children, and the round if it has begun with our node, which may have gone with its session.

        Our node of the present session keeps its place.  A former one is gone when this returns, and so no round can
        begin with it any more: the server may keep a session that has ended for its client, also before the client has
        heard of its node.
        """
        while True:
            listed, ready = await read_synced(self._zk, self.path, GetChildren(self.path), GetData(self._ready))
            names: list[str] = result(listed) or []
            kept = self._own if self._session_id == self._zk.session_id else ""
            former = [name for name in names if name.startswith(self._unique) and name != kept]
            if not former:
                break
            for name in former:
                await self._zk.discard(join_path(self.path, name))
            await pause()  # the deletes may not be carried out yet
        begun = members_in(ready) or ()
        own = [name for name in begun if name.startswith(self._unique)]
        if not (own and is_round(begun)):
            return names, None
        self._own = own[0]
        return names, begun

    async def _create_own(self) -> list[str]:
        """Create our node and list the children, in one round trip; return the names, none if the list was refused."""
        self._unique = f"{self._zk.unique_id()}-of-{self.count}-"
        path = join_path(self.path, self._unique)
        own = zkwire.Create(path, ephemeral=True, sequential=True, acl=self._fixed_acl, recover=True)
        while True:
            created, names = await self._zk.pipeline([own, GetChildren(self.path)])
            if isinstance(created, zkwire.NoNodeError):
                await make_container(self._zk, self.path, OPEN_ACL if self._acl is None else self._acl)
                continue
            if isinstance(created, BaseException):
                raise created
            path, stat = created
            self._own, self._session_id = path.rpartition("/")[2], stat.ephemeral_owner
            return names if isinstance(names, list) else []

    async def _wait_for_round(self, names: list[str], bound: Bound) -> Round | None:
        """Wait for a round with us in it, and return it; None when our node is gone.

        Args:
            names: The names of the children, as listed after our own node was created.
        """
        while self._own in names:
            await self._check_count(names)
            with WatchSet() as watches:
                if READY not in names:
                    if (members := await self._next_round(names)) is not None:
                        if await self._begin_round(members) and self._own in members:
                            return members
                    else:
                        await self._wait_for_ready(watches, bound)
                (ready,) = await read(self._zk, GetData(self._ready, into=watches))
                found = members_in(ready)
                if found is not None and self._own in found and is_round(found):
                    return found
                names = await self._list()
                if found is not None:
                    present = self._present(found, names)
                    if not present or not is_round(found):
                        # All members of that round have died, and none of them could remove `ready`.  Or `ready` is not
                        # the work of members.
                        if not is_round(found):
                            self._warnings.warn(self._ready, "names no members of a round, so it is deleted")
                        await self._end_round(found)
                    elif len(await self._ephemeral([self._own, present[0]], watches)) == 2:
                        bound.must_wait()
                        await watches.next()
                    names = await self._list()
        return None

    async def _check_count(self, names: list[str]) -> None:
        """Raise ValueError if the first member at the barrier has another count than this one."""
        members = in_order(names, self._own)
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
        members = [name for name in in_order(names, self._own) if count_of(name) == self.count]
        if len(members) < self.count:
            return None
        # Each waiting member asks this at the end of each round: not for every member that waits.
        first = await self._ephemeral(members[: self.count])
        if len(first) < self.count:  # one of them has left, or is a node that a person has created
            first = (await self._ephemeral(members))[: self.count]
        return tuple(first) if len(first) == self.count else None

    async def _ephemeral(self, names: list[str], watches: WatchSet | None = None) -> list[str]:
        """Return those of `names` that are ephemeral nodes: a persistent one would never leave a round.

        Args:
            watches: Those of their departures.
        """
        nodes = await read(self._zk, *(GetData(join_path(self.path, name), into=watches) for name in names))
        return [name for name, node in zip(names, nodes, strict=True) if self._is_member(name, node)]

    def _is_member(self, name: str, node: Any) -> bool:
        """Return whether `name` is an ephemeral node, given what its read got; report one that is not a member's.

        Raises:
            ZooKeeperError: if the read has failed otherwise than that the node is gone, or another client's may not be
                read.
        """
        if isinstance(node, zkwire.NoAuthError) and name == self._own:
            raise node
        is_member = self._warnings.is_member(node, join_path(self.path, name), "so it is not counted as a member")
        if not is_member and not isinstance(node, zkwire.NoNodeError):
            self._no_members.add(name)
        return is_member

    def _present(self, entered: Round, names: list[str]) -> list[str]:
        """Return the members of a round whose nodes are among the listed `names`."""
        there = set(names) - self._no_members
        return [name for name in entered if name in there]

    async def _wait_for_ready(self, watches: WatchSet, bound: Bound) -> None:
        """Wait until a round begins or our own node is gone."""
        bound.must_wait()
        stat, _ = await self._zk.exists_and_watch(self._ready, into=watches)
        if stat is None and await self._ephemeral([self._own], watches):
            await watches.next()

    async def _begin_round(self, members: Round) -> bool:
        """Create `ready`, unless a member has left or another one has created it; return whether this one has.

        The transaction also increments the version of the barrier's node, for `_end_round`, and keeps its data.  It is
        carried out in the session of our node only: the node of a former session will be gone soon.
        """
        node = result((await read(self._zk, GetData(self.path)))[0])
        if node is None:
            return False
        transaction = self._zk.transaction(session_id=self._session_id)
        for name in members:
            transaction.check(join_path(self.path, name))
        transaction.create(self._ready, "\n".join(members).encode(), acl=self._fixed_acl)
        transaction.set(self.path, node.data, node.stat.version)
        return await self._commit(transaction)

    async def _commit(self, transaction: zkwire.Transaction) -> bool:
        """Carry out the transaction; return False if the nodes are not as they should be for it."""
        try:
            await transaction.commit()
        except zkwire.TransactionError as error:
            if isinstance(error.cause, zkwire.NotEmptyError):
                await self._clear_ready(error.cause)
            elif isinstance(error.cause, zkwire.NoNodeError | zkwire.NodeExistsError | zkwire.BadVersionError):
                await self._zk.sync(self.path)  # our server may lag behind the leader, which has refused this
            else:
                raise error.cause from None
            return False
        return True

    # -- leaving ----------------------------------------------------------------------------------------------------

    async def _leave(self, entered: Round, bound: Bound) -> None:
        while True:
            names = await self._list()
            present = self._present(entered, names)
            other = to_wait_for(self._own, present)
            if other is not None:
                bound.must_wait()
                with WatchSet() as watches:
                    if self._own in present[1:]:  # the first one is to be the last
                        await self._delete_own()
                    if await self._ephemeral([other], watches):
                        await watches.next()
            elif self._own not in present:
                if READY in names:
                    await self._end_round(entered)
                return
            else:  # no other member of the round is left: end it
                transaction = self._zk.transaction()
                transaction.delete(self._own_path)
                if READY in names:
                    transaction.delete(self._ready)
                if await self._commit(transaction):
                    return

    async def _delete_own(self) -> None:
        """Delete our node, and return when it is known to be gone."""
        with contextlib.suppress(zkwire.NoNodeError):
            await self._zk.delete(self._own_path)

    # -- entering and leaving ---------------------------------------------------------------------------------------

    async def _end_round(self, ended: Round) -> None:
        """Delete the `ready` of the round `ended`, whose members are all gone, but not another round's.

        Another member may have ended the round, and the next one may have begun. Each beginning of a round changes the
        version of the barrier's node. That version is read before `ready`, so it belongs to the round `ended` or to an
        earlier one, and the check of it fails if another round has begun since.
        """
        node, ready = await read_synced(self._zk, self.path, GetData(self.path), GetData(self._ready))
        if result(node) is None or members_in(ready) != ended:
            return
        transaction = self._zk.transaction()
        transaction.check(self.path, node.stat.version)
        transaction.delete(self._ready)
        await self._commit(transaction)

    async def _clear_ready(self, refused: zkwire.NotEmptyError) -> None:
        """Delete the nodes that another client has put below `ready`; raise `refused` if it is no round."""
        found = members_in((await read(self._zk, GetData(self._ready)))[0])
        if found is not None and not is_round(found):
            refused.hint = "it is not the work of a DoubleBarrier: delete it, or use another path"
            raise refused
        self._warnings.warn(self._ready, "has nodes below it, which are deleted")
        with contextlib.suppress(zkwire.NoNodeError):
            for name in await self._zk.get_children(self._ready):
                await self._zk.delete_tree(join_path(self._ready, name))

    async def _list(self) -> list[str]:
        """Return the names of the barrier's children, none if it is missing."""
        return [*(result((await read(self._zk, GetChildren(self.path)))[0]) or ())]

    @property
    def _own_path(self) -> str:
        return join_path(self.path, self._own)
