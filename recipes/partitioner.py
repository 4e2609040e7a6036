"""A partitioner: divides a set of partitions among the present members, and again whenever members come or go.

`division` and `fingerprint` are pure: they compute the share of each member, and show whether two lists of partitions
are the same. Each member sees the others come and go at a time of its own, so members may disagree about the division
for a while. Therefore a lock guards each partition, and a member works on a partition only while it holds that lock.
"""

import asyncio
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b, shake_128
from struct import unpack
from sys import float_info
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import quote

from recipes.common.background import BackgroundBlock
from recipes.common.checks import check_number, checked_function, checked_within
from recipes.common.this_process import one_line
from recipes.group import Group, Member
from recipes.line.lease import Lease
from recipes.lock import Lock
from zkwire import ACL, Client, SessionClosedError, join_path, validate_path

_log = logging.getLogger(__name__)

P = TypeVar("P", bound=Hashable)

# Members that keep coming and going delay a division by at most this multiple of the settling time.
_MOST_SETTLING: Final = 10

_MOST_SHOWN: Final = 20  # members in a warning

# The points of a member of weight 1 on the ring of a division. With fewer, the members' parts of the ring differ more
# from what they should be, and more partitions move when a member goes: of 10,000 partitions and 100 members, 100 have
# to move, and besides them 264 with 16 points, 177 with 64, 122 with 256.
_POINTS: Final = 64
# A member has this many times as many points at most.
_MOST_TIMES: Final = 16
# Weights multiply the points of all members up to here.  A division among hundreds of members of great weight would
# block the event loop for seconds.
_MOST_POINTS: Final = 8192
_FEWEST_POINTS: Final = 4  # of a member

_MOST_WEIGHT: Final = 999


def division(partitions: Collection[str], weights: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the partitions of each member; equal arguments give equal shares, whatever their order.

    The size of a share is the member's part of all weights, rounded down or up. Few partitions move when a member comes
    or goes: a partition goes to the member whose point comes next after its own on a ring of hash values, where each
    member has many points (consistent hashing). A full member leaves the ring, and partitions that it had no room for
    go on along the ring. Cost: some 25 ms of processor time for 10,000 partitions and 100 members of weight 1.
    """
    shares: dict[str, list[str]] = {member: [] for member in weights}
    if not shares:
        return {}
    total = sum(weights.values())
    # The size of each share, rounded down, and whether something was cut off.
    sizes = {member: divmod(len(partitions) * weight, total) for member, weight in weights.items()}
    more = len(partitions) - sum(least for least, _ in sizes.values())  # so many members get one partition above that
    points = sorted((point, name) for name, count in point_counts(weights).items() for point in _points(name, count))
    waiting = sorted((_point(partition), partition) for partition in partitions)
    while waiting:
        ring = [point for point, _ in points]
        owners = [member for _, member in points]
        owners.append(owners[0])  # after the last point comes the first
        without_room = []
        for place in waiting:
            point, partition = place
            owner = owners[bisect_left(ring, point)]
            share, (least, rest) = shares[owner], sizes[owner]
            if len(share) < least:
                share.append(partition)
            elif len(share) == least and rest and more:
                more -= 1
                share.append(partition)
            else:
                without_room.append(place)
        rooms = {member: least + bool(rest and more) for member, (least, rest) in sizes.items()}
        points = [place for place in points if len(shares[place[1]]) < rooms[place[1]]]
        waiting = without_room
    return shares


def point_counts(weights: Mapping[str, int]) -> dict[str, int]:
    """Return how many points each member has on the ring.

    If there would be too many, all are divided by a power of two, which seldom changes when a member comes or goes.
    """
    counts = {member: _POINTS * min(weight, _MOST_TIMES) for member, weight in weights.items()}
    while sum(counts.values()) > max(_MOST_POINTS, _POINTS * len(counts)):
        counts = {member: max(_FEWEST_POINTS, count // 2) for member, count in counts.items()}
    return counts


def fingerprint(partitions: Collection[str]) -> bytes:
    """Return a short text that is the same for the same partitions in any order, and names how many there are."""
    digest = blake2b("\0".join(sorted(partitions)).encode(), digest_size=8).hexdigest()
    return f"{len(partitions)} partitions, {digest}".encode()


def _point(partition: str) -> int:
    return int.from_bytes(blake2b(partition.encode(), digest_size=8).digest(), "big")


def _points(member: str, count: int) -> tuple[int, ...]:
    return unpack(f">{count}Q", shake_128(member.encode()).digest(8 * count))


class _Holding(Generic[P]):
    """One partition: whether it is in our share, whether we hold its lock, and whether the body may be using it.

    Args:
        lock: The lock that guards the partition.
        news: An event that is set when `is_offered` may have changed.
    """

    def __init__(self, partition: P, lock: Lock, news: asyncio.Event) -> None:
        self.partition = partition
        self.lease: Lease | None = None
        self.is_in_use = False  # the partition was given to the body
        self._lock = lock
        self._news = news
        self._is_wanted = False
        # The lock was lost while the body used the partition: the body must see one set without it before it is
        # offered again.
        self._was_lost = False
        self._hold_task: asyncio.Task[None] | None = None

    @property
    def is_offered(self) -> bool:
        """Whether the partition may be given to the body: its lock is certain to be held at this moment.

        The event loop may have been blocked since the lock was acquired.
        """
        lease = self.lease
        return self._is_wanted and not self._was_lost and lease is not None and lease._find_loss() is None

    def want(self, tasks: asyncio.TaskGroup | None) -> None:
        """Hold the lock in a task of the group `tasks`; None: release it once the body does not use the partition."""
        self._is_wanted = tasks is not None
        if tasks is not None and self._hold_task is None:
            self._hold_task = tasks.create_task(self._hold())
        self._release_unused()

    def confirm(self) -> None:
        """Record that the body no longer uses the partition."""
        self.is_in_use = self._was_lost = False
        self._release_unused()

    def _release_unused(self) -> None:
        if not self._is_wanted and not self.is_in_use and self._hold_task is not None:
            self._hold_task.cancel()
            self._hold_task = None

    async def _hold(self) -> None:
        """Hold the lock until this task is cancelled; acquire it again each time that it is lost."""
        while True:
            lease = await self._lock.acquire()
            self.lease = lease
            self._news.set()
            try:
                await lease.lost()
                self._was_lost = self.is_in_use
            finally:
                self.lease = None
                self._news.set()
                await lease.release()


class Partitioner(BackgroundBlock, Generic[P]):
    """This process's share of a set of partitions.

    ::

        async with Partitioner(zk, "/jobs/mail", range(8)) as mine:
            async for partitions in mine:      # a frozenset: the partitions that are ours from now on
                ...                            # begin work on the new ones, stop work on the others

    The iteration gives the set of held partitions when it is first not empty, and after each change. By asking for the
    next set, the body says that it has stopped all work on partitions that were not in the last one: only then are they
    handed back. So a body that gets a smaller set should stop work on the other partitions without delay, for the next
    owner waits. A partition whose lock is lost is left out at once, and another member soon owns it:
    `lease(partition).lost()` reports the loss, and `lease(partition).token` is a fencing token for a store.

    Promised: while a partition is given and its lease is certain, no other member holds it.  After an expired session
    that is renewed, the iteration goes on: an empty set, and then the partitions that are held in the next session.

    While a new version is rolled out, members with another list of partitions may be present.  Then each list is
    divided among the members that have it, and a warning is logged that names members of both.  Every partition of
    either list is held by one member; of those in both lists, some members hold fewer than their share.

    Whatever `divide` returns, no partition has two owners: of two members that take the same one, the second waits
    until the first hands it back.  A partition that no member takes is held by none.

    One object is for one event loop, the first in which it is entered; in another one its methods raise RuntimeError.

    Args:
        path: The node above the nodes `members` and `locks`.
        partitions: Distinct objects with distinct names (their str), the same for all members.
        name: The unique name of this member, random by default.
        settle: How many seconds must pass in which no member comes or goes before the partitions are divided again.
        weight: How many partitions this member has for each one of a member of weight 1; from 1 to 999.
        divide: A function that returns which partitions this member takes, given its name, the weights of all members
            by name, and the partitions, both in the order of the names.  All members should have the same function, and
            it should give each partition to one of them.  None: shares by weight, of which few partitions move when a
            member comes or goes.
        within: How many seconds to wait, on entering, for a member of that name in another session to go, such as that
            from before a restart of this process; None waits without limit, 0 looks once.
        acl: The ACL of every node that is created, None: as for Group and Lock.

    Raises:
        NodeExistsError: on entering, if the name is taken and `within` is 0; by cancelling the block, later.
        TimeoutError: on entering, if it is still taken after `within` seconds.
        TypeError: by cancelling the block, as ValueError and all that `divide` raises, if it returns no collection, or
            something that is none of the partitions.  They are handed back when the body has ended.  From a
            ZooKeeperError or CancelledError of `divide` a RuntimeError is raised.
        SessionExpiredError: if the client does not renew its session.
        ServerError: if the server refuses what Group and Lock need.

    Cancellation:
        All partitions are handed back, and the member leaves.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        partitions: Iterable[P],
        *,
        name: str | None = None,
        settle: float = 1.0,
        weight: int = 1,
        divide: Callable[[str, dict[str, int], list[P]], Collection[P]] | None = None,
        within: float | None = 0.0,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        check_number("settle is a number of seconds from 0", settle, 0, float_info.max, int | float)
        check_number(f"weight is a number from 1 to {_MOST_WEIGHT}", weight, 1, _MOST_WEIGHT)
        super().__init__(f"the Partitioner of {path}")
        self.path: str = validate_path(path)
        self._group = Group(zk, join_path(self.path, "members"), acl=acl)
        self.name: str = name or zk.unique_id()
        self._settle = settle
        self._weight = weight
        self._divides = checked_function("divide", divide)
        self._within = checked_within(within)
        self._news = asyncio.Event()
        self._holdings: dict[str, _Holding[P]] = {}
        for partition in partitions:
            node = quote(str(partition), safe=" ")
            if node in self._holdings or not node.strip("."):
                raise ValueError(f"each partition needs a name of its own, which is its str, unlike {partition!r}")
            lock = Lock(zk, f"{join_path(self.path, 'locks')}/{node}", data=self.name.encode(), acl=acl)
            self._holdings[node] = _Holding(partition, lock, self._news)
        self._fingerprint = fingerprint(self._holdings)
        # The data of a member that has our list, with its weight unless that is 1.
        self._same_list = re.compile(re.escape(self._fingerprint) + rb"(?:, weight ([1-9][0-9]{0,2}))?")
        self._others: dict[str, bytes] = {}  # the members that divide another list, with their fingerprints
        self._given: frozenset[P] = frozenset()
        self._is_iterated = False
        self._zk = zk
        self._member: Member  # of the present block
        self._over: asyncio.Future[None]  # done when it has ended

    async def _begin(self) -> Coroutine[Any, Any, None]:
        self._given = frozenset()
        self._over = asyncio.get_running_loop().create_future()
        weight = b"" if self._weight == 1 else b", weight %d" % self._weight
        self._member = await self._group.join(self.name, self._fingerprint + weight, within=self._within)
        self._zk.on_closing.add(self._client_closes)
        return self._divide()

    async def _end(self) -> None:
        for holding in self._holdings.values():
            holding.want(None)
            holding.confirm()
        self._news.set()
        self._zk.on_closing.discard(self._client_closes)
        self._over.set_result(None)
        await self._member.leave()

    def _client_closes(self) -> asyncio.Future[None] | None:
        """Stop the body if another task runs it; return the future of its end, None if there is none."""
        error = SessionClosedError(f"the client of {self._described} is being closed")
        return self._over if self._background is not None and self._background.stop(error) else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> frozenset[P]:
        self._check_loop()
        if self._is_iterated:
            raise RuntimeError(f"another task waits for the next partitions of {self.path} already")
        self._is_iterated = True
        try:
            while True:
                if self._background is None:
                    raise StopAsyncIteration
                self._news.clear()
                for holding in self._holdings.values():
                    if holding.partition not in self._given:
                        holding.confirm()
                offered = [holding for holding in self._holdings.values() if holding.is_offered]
                ours = frozenset(holding.partition for holding in offered)
                if ours != self._given:
                    for holding in offered:
                        holding.is_in_use = True
                    self._given = ours
                    return ours
                await self._news.wait()
        finally:
            self._is_iterated = False

    def lease(self, partition: P) -> Lease:
        """Return the lease of the lock of `partition`.

        Raises:
            LookupError: if this member does not hold it.
        """
        for holding in self._holdings.values():
            if holding.partition == partition and holding.lease is not None:
                return holding.lease
        raise LookupError(f"the partition {partition!r} of {self.path} is not held here")

    # -- the background task ----------------------------------------------------------------------------------------

    async def _divide(self) -> None:
        """Hold the partitions of our share, and divide again as members come and go."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_membership())
                await self._follow_members(tasks)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _follow_members(self, tasks: asyncio.TaskGroup) -> None:
        """Divide the partitions each time that the members have changed and settled."""
        loop = asyncio.get_running_loop()
        async with self._group.watch() as changes:

            def next_change() -> asyncio.Task[dict[str, bytes]]:
                return tasks.create_task(changes.__anext__())

            change = next_change()
            members: dict[str, bytes] = {}
            latest: float | None = None  # when to divide even if the members have not settled; None: nothing is new
            while True:
                wait = None if latest is None else max(0.0, min(self._settle, latest - loop.time()))
                changed, _ = await asyncio.wait([change], timeout=wait)
                if changed:
                    members = change.result()
                    change = next_change()
                    latest = latest or loop.time() + _MOST_SETTLING * self._settle
                else:
                    latest = None
                    try:
                        ours = self._share(self._weights(members))
                    except Exception as error:  # noqa: BLE001
                        assert self._background is not None
                        self._background.fail(error)
                        await loop.create_future()  # the locks are held until the body has ended
                    for node, holding in self._holdings.items():
                        holding.want(tasks if node in ours else None)
                    self._news.set()

    def _share(self, weights: dict[str, int]) -> frozenset[str]:
        """Return which partitions this member takes, by the names of their nodes."""
        if self.name not in weights:
            return frozenset()  # its node is gone, and will be put back
        if self._divides is None:
            return frozenset(division(self._holdings, weights)[self.name])
        nodes = {holding.partition: node for node, holding in sorted(self._holdings.items())}
        share = self._divides(self.name, weights, list(nodes))
        if not isinstance(share, Collection) or isinstance(share, str | bytes):
            raise TypeError(f"divide returns a collection of partitions of {self.path}, not {share!r}")
        for partition in share:
            if partition not in nodes:
                raise ValueError(f"divide has returned {partition!r}, which is no partition of {self.path}")
        return frozenset(nodes[partition] for partition in share)

    def _weights(self, members: dict[str, bytes]) -> dict[str, int]:
        """Return the weights of the members that divide the same list, in the order of the names.

        A warning is logged if others have come that divide another one.
        """
        found = {name: self._same_list.fullmatch(data) for name, data in sorted(members.items())}
        weights = {name: int(data[1] or 1) for name, data in found.items() if data is not None}
        others = {name: data for name, data in members.items() if name not in weights}
        # By name: a member never changes its list, so changing data is not worth another warning.
        if others.keys() - self._others.keys():
            first = sorted(others.items())[:_MOST_SHOWN]
            shown = [f"{one_line(name)}: {one_line(data.decode(errors='replace'))}" for name, data in first]
            _log.warning(
                "the member %s of %s divides %s, but these members divide another list among themselves: %s",
                self.name,
                self.path,
                self._fingerprint.decode(),
                "; ".join(shown),
            )
        self._others = others
        return weights

    async def _watch_membership(self) -> None:
        error = await self._member.lost()
        if error is not None:
            raise error
