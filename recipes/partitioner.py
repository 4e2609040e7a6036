"""A partitioner: a set of partitions divided among the members that are there, and divided anew as they come and go.

The upper half is pure: who is to have what.  Members may disagree about it for a while, for each sees the others come
and go at its own time; so each partition is guarded by a lock, and worked on only while that is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterable, Sequence
from hashlib import blake2b
from types import TracebackType
from typing import Final, Generic, Self, TypeVar
from urllib.parse import quote

from recipes.common.background import BackgroundTask
from recipes.group import Group, Member
from recipes.line.lease import Lease
from recipes.lock import Lock
from zkwire import ACL, OPEN_ACL, Client, join_path, validate_path

P = TypeVar("P", bound=Hashable)

# Members that come and go without end put the division off for no more than so many times the settling time.
_MOST_SETTLING: Final = 10


def division(partitions: Collection[str], members: Iterable[str]) -> dict[str, list[str]]:
    """Return which of the partitions each member is to have: the same for everybody who asks with the same names.

    Numbers of partitions differ by one at the most.  Each partition prefers members in an order of its own, so that
    few move when a member comes or goes.
    """
    shares: dict[str, list[str]] = {member: [] for member in members}
    if not shares:
        return {}
    least, more = divmod(len(partitions), len(shares))  # so many have `least` and one more
    pairs = sorted((_weight(partition, member), partition, member) for partition in partitions for member in shares)
    divided: set[str] = set()
    for _, partition, member in pairs:
        share = shares[member]
        if partition not in divided and (len(share) < least or (len(share) == least and more)):
            more -= len(share) == least
            share.append(partition)
            divided.add(partition)
    return shares


def _weight(partition: str, member: str) -> bytes:
    return blake2b(f"{partition}\0{member}".encode(), digest_size=8).digest()


class _Holding(Generic[P]):
    """One partition: whether it is to be ours, whether its lock is, and whether the body may be at work on it.

    Arguments: `lock`, that guards it; `news`, set when what may be offered has changed.
    """

    def __init__(self, partition: P, lock: Lock, news: asyncio.Event) -> None:
        self.partition = partition
        self.lease: Lease | None = None
        self._lock = lock
        self._news = news
        self._is_wanted = False
        self._is_in_use = False
        self._was_lost = False  # while in use: not to be offered again before the body has been told
        self._holder: asyncio.Task[None] | None = None

    @property
    def is_offered(self) -> bool:
        """Whether the body may be at work on it from now on."""
        return self._is_wanted and self.lease is not None and not self._was_lost

    def want(self, tasks: asyncio.TaskGroup | None) -> None:
        """Begin to hold it, by one of `tasks`; None: hand it back as soon as the body does not use it."""
        self._is_wanted = tasks is not None
        if tasks is not None and self._holder is None:
            self._holder = tasks.create_task(self._hold())
        self._let_go()

    def use(self) -> None:
        """Take note that it is given to the body."""
        self._is_in_use = True

    def confirm(self) -> None:
        """Take note that the body does not use it any more."""
        self._is_in_use = self._was_lost = False
        self._let_go()

    def reset(self) -> None:
        """Take note that the block has been left."""
        self._is_wanted = self._is_in_use = self._was_lost = False
        self._holder = None

    def _let_go(self) -> None:
        if not self._is_wanted and not self._is_in_use and self._holder is not None:
            self._holder.cancel()
            self._holder = None

    async def _hold(self) -> None:
        """Hold the lock until cancelled, again and again if it is lost."""
        while True:
            lease = await self._lock.acquire()
            self.lease = lease
            self._news.set()
            try:
                await lease.lost()
                self._was_lost = self._is_in_use
            finally:
                self.lease = None
                self._news.set()
                await lease.release()


class Partitioner(Generic[P]):
    """This process's part of a set of partitions.

        async with Partitioner(zk, "/jobs/mail", range(8)) as mine:
            async for partitions in mine:      # a frozenset: what is ours from now on
                ...                            # begin with what has come, stop what has gone

    The iteration gives what is held at first, if that is anything, and after each change.  To ask for the next is to
    say that nothing is done any more on what was not in the last: only then is a partition that somebody else is to
    have handed back.  So a body that is given less stops what it does on the rest before it goes on, and takes no
    longer than it must: the next owner waits for it.  A partition whose lock is lost is left out at once, and is
    somebody else's soon: `lease(partition).lost()` tells it, and `lease(partition).token` guards a store.

    Arguments: `path`, below which stand the members, in `members`, and the locks, in `locks`; `partitions`, any
    different things with different names (str of them), the same for all members; `name`, of this member, unique, by
    default something random; `settle`, for how many seconds nobody must have come or gone before it is divided anew;
    `acl`, of every node that is made.
    Raises, on entering and, by cancelling the block, while it lasts: what a Group and a Lock raise, such as
    NodeExistsError for a name that is taken, SessionExpiredError if the client renews no session.  After an expired
    session that is renewed it goes on: all is lost, and what comes next is given.
    Cancellation: whatever is held is handed back, and the member leaves.
    Promised: while a partition is given and its lease certain, nobody else holds it.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        partitions: Iterable[P],
        *,
        name: str | None = None,
        settle: float = 1.0,
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> None:
        if isinstance(settle, bool) or not isinstance(settle, int | float):
            raise TypeError(f"settle is a number of seconds, not {settle!r}")
        if not 0 <= settle < float("inf"):
            raise ValueError(f"settle is a number of seconds from 0, not {settle!r}")
        self._zk = zk
        self.path = validate_path(path)
        self.name = name or zk.unique_id()
        self._settle = settle
        self._group = Group(zk, join_path(self.path, "members"), acl=acl)
        self._news = asyncio.Event()
        self._holdings: dict[str, _Holding[P]] = {}
        for partition in partitions:
            node = quote(str(partition), safe=" ")
            if node in self._holdings or not node.strip("."):
                raise ValueError(f"partitions are different and have names, unlike {partition!r}")
            lock = Lock(zk, f"{join_path(self.path, 'locks')}/{node}", data=self.name.encode(), acl=acl)
            self._holdings[node] = _Holding(partition, lock, self._news)
        self._given: frozenset[P] = frozenset()
        self._is_iterated = False
        self._member: Member | None = None
        self._background: BackgroundTask | None = None

    async def __aenter__(self) -> Self:
        if self._background is not None:
            raise RuntimeError(f"this member of {self.path} is entered already")
        self._given = frozenset()
        self._member = await self._group.join(self.name)
        self._background = BackgroundTask(self._divide(self._member))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        background, self._background = self._background, None
        member, self._member = self._member, None
        if background is None or member is None:
            raise RuntimeError("left without having been entered")
        try:
            await background.leave(kind)
        finally:
            for holding in self._holdings.values():
                holding.reset()
            self._news.set()
            await member.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> frozenset[P]:
        if self._is_iterated:
            raise RuntimeError(f"somebody waits for the next partitions of {self.path} already")
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
                        holding.use()
                    self._given = ours
                    return ours
                await self._news.wait()
        finally:
            self._is_iterated = False

    def lease(self, partition: P) -> Lease:
        """Return the lease of the lock of a partition that is held.  Raises: LookupError when it is not."""
        for holding in self._holdings.values():
            if holding.partition == partition and holding.lease is not None:
                return holding.lease
        raise LookupError(f"the partition {partition!r} of {self.path} is not held here")

    # -- beside the body --------------------------------------------------------------------------------------------

    async def _divide(self, member: Member) -> None:
        """Hold what is ours by the division, as members come and go."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_membership(member))
                await self._follow(tasks)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        """Divide anew each time that the members have changed and settled."""
        loop = asyncio.get_running_loop()
        async with self._zk.children(self._group.path) as changes:
            following = tasks.create_task(changes.__anext__())
            names: list[str] | None = None
            latest: float | None = None  # when to divide though they have not settled; None: nothing to divide
            while True:
                wait = None if latest is None else max(0.0, min(self._settle, latest - loop.time()))
                changed, _ = await asyncio.wait([following], timeout=wait)
                if changed:
                    names = following.result()
                    following = tasks.create_task(changes.__anext__())
                    latest = latest or loop.time() + _MOST_SETTLING * self._settle
                if latest is not None and (not changed or loop.time() >= latest):
                    latest = None
                    self._want(division(self._holdings, names or ()).get(self.name, ()), tasks)

    def _want(self, nodes: Collection[str], tasks: asyncio.TaskGroup) -> None:
        for node, holding in self._holdings.items():
            holding.want(tasks if node in nodes else None)
        self._news.set()

    async def _watch_membership(self, member: Member) -> None:
        error = await member.lost()
        if error is not None:
            raise error
