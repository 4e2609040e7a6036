"""The work of a soak, in rounds: at the end of each round nothing is left, neither here nor on the server."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import zkwire
from recipes import Cache, Counter, DoubleBarrier, Election, Group, Lock, Queue, ReadWriteLock, Semaphore, TryLock
from recipes.line.lease import LockLostError
from recipes.try_lock import LockTakenError
from tests.support.links import Links

# What reconnects and expired sessions cause.
EXPECTED: Final = (
    zkwire.ConnectionLostError,
    zkwire.SessionExpiredError,
    zkwire.NoNodeError,
    TimeoutError,
    LockLostError,
    LockTakenError,
)
HANGS: Final = 90.0  # seconds that no work takes, whatever happens: beyond them a soak fails


class Work:
    """The work of one client.

    Args:
        zk: The client.
        rng: For every choice.
        number: The client's own.
    """

    def __init__(self, zk: zkwire.Client, rng: random.Random, number: int) -> None:
        self._zk = zk
        self._rng = rng
        self._number = number
        self._numbers = itertools.count()

    async def round(self) -> None:
        """Do some of everything, at the same time."""
        zk = self._zk
        async with asyncio.TaskGroup() as group:
            for work in (
                *[lambda: self._hold(Lock(zk, "/lock"))] * 3,
                lambda: self._hold(ReadWriteLock(zk, "/read-write").read()),
                lambda: self._hold(ReadWriteLock(zk, "/read-write").write()),
                lambda: self._hold(Semaphore(zk, "/semaphore", 2)),
                lambda: self._hold(Election(zk, "/election")),
                lambda: self._hold(TryLock(zk, "/try")),
                self._queue,
                self._count,
                self._watch,
                self._follow,
                self._mirror,
                self._join,
                self._meet,
                self._cancel,
            ):
                group.create_task(self._forgiven(work))

    async def _forgiven(self, work: Callable[[], Awaitable[None]]) -> None:
        for _ in range(3):
            with contextlib.suppress(*EXPECTED):
                async with asyncio.timeout(HANGS) as limit:
                    await work()
            assert not limit.expired()

    async def _hold(self, lock: Any) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rng.choice([10.0, self._rng.uniform(0, 0.05)])):
                async with lock.hold() as lease:
                    await asyncio.sleep(self._rng.uniform(0, 0.01))
                    lease.check()

    async def _queue(self) -> None:
        queue = Queue(self._zk, "/queue")
        await queue.put_many([b"a", b"b", b"c"])
        await queue.get(within=0)
        with contextlib.suppress(ZeroDivisionError):
            async with queue.claim(within=0):
                raise ZeroDivisionError  # handed back
        while await queue.size():
            async with queue.claim(within=0):
                pass
        with contextlib.suppress(TimeoutError):
            await queue.get(within=0.01)

    async def _count(self) -> None:
        counter = Counter(self._zk, "/counter")
        for _ in range(3):
            await counter.add(1)

    async def _watch(self) -> None:
        """Leave one-shot watches in every way."""
        zk, path = self._zk, f"/watched/{self._number}-{next(self._numbers)}"
        try:
            _, fired = await zk.exists_and_watch(path)
            await zk.create(path)
            await fired
            _, cancelled = await zk.get_and_watch(path)
            cancelled.cancel()
            await zk.get_children_and_watch(path)  # dropped
            with zkwire.WatchSet() as watches:
                await zk.get_and_watch(path, into=watches)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await watches.next()
        finally:
            await self._delete(path)

    async def _delete(self, path: str) -> None:
        """Delete a node that may exist, however long that takes: a persistent one outlives its session."""
        while True:
            try:
                await self._zk.sync(path)
                await self._zk.delete(path)
            except zkwire.NoNodeError:
                return
            except (zkwire.ConnectionLostError, zkwire.SessionExpiredError):
                continue
            else:
                return

    async def _follow(self) -> None:
        """Leave streams in every way."""
        zk, path = self._zk, f"/followed-{self._number}"
        await zk.ensure_path(path)
        async for _ in zk.data(path):
            break
        async for _ in zk.children(path):
            break
        async with zk.events(path, recursive=True) as events:
            await zk.set(path, b"x")
            async for _ in events:
                break

    async def _mirror(self) -> None:
        async with Cache(self._zk, "/queue") as cache:
            cache.get("/queue")

    async def _join(self) -> None:
        async with await Group(self._zk, "/group").join(f"member-{self._number}", within=5.0) as member:
            await member.set(b"x")

    async def _meet(self) -> None:
        barrier = DoubleBarrier(self._zk, f"/barrier-{self._number}", 1)
        await barrier.enter(within=5.0)
        await barrier.leave(within=5.0)

    async def _cancel(self) -> None:
        """Cancel calls at any moment."""
        zk, path = self._zk, f"/cancelled/{self._number}"
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: zk.get("/"),
            lambda: zk.create(f"{path}-", ephemeral=True, sequential=True),
            lambda: zk.get_children_and_watch("/"),
            lambda: zk.sync("/"),
            lambda: Lock(zk, "/lock").acquire(),
            lambda: Queue(zk, "/empty").get(),
        ]
        for call in calls:
            task = asyncio.ensure_future(call())
            for _ in range(self._rng.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled() or task.exception() is not None:
                continue
            found = task.result()  # it was faster
            if hasattr(found, "release"):
                await found.release()
            elif isinstance(found, str):
                await zk.discard(found)


async def prepare(zk: zkwire.Client) -> None:
    """Create the persistent nodes that are there at the end of each round.

    Among them are those that a cancelled call, or a bounded wait, may create or not.
    """
    # The server keeps statistics for each name below the root that was ever used: new names have a parent.
    # The parents of locks too: on a busy machine each of the first waits may end before it has created one.
    for path in ("/watched", "/cancelled", "/lock", "/read-write", "/semaphore", "/election"):
        await zk.ensure_path(path)
    for name in ("/queue", "/empty"):
        queue = Queue(zk, name)
        await queue.put(b"x")
        await queue.get()
        await zk.ensure_path(f"{name}/consumers")  # a bounded wait may end before it has created this


async def read(zk: zkwire.Client) -> None:
    """Read all the time, and write nothing, on a connection that lasts."""
    while True:
        await zk.get("/")
        await asyncio.sleep(0.1)


async def disturb(clients: dict[str, zkwire.Client], links: Links, hosts: str, rng: random.Random) -> None:
    """Cut the links of one client for a moment, and end the session of another one now and then."""
    await asyncio.sleep(rng.uniform(0, 0.2))
    name = rng.choice(list(clients))
    with links.during("cut", [(name, "server")]):
        await asyncio.sleep(rng.uniform(0, 0.05))
    if rng.random() < 0.3:
        zk = clients[rng.choice(list(clients))]
        session, password = zk.session_id, zk.session_password
        if session:
            # A second client that resumes the session takes it over, and ends it by closing.
            with contextlib.suppress(zkwire.SessionExpiredError):
                async with zkwire.connect(hosts, zk.session_timeout, session_id=session, session_password=password):
                    pass
