"""The fair lock, which queues on two levels, and the re-entrant lock.

Tasks of one process that share a Lock object queue in this process.  Only the first of them has a ticket in ZooKeeper's
line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recipes.common.arguments import checked_within, current_task
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.local_queue import LocalQueue
from recipes.line.locking import Locking
from recipes.line.sight import Sight
from zkwire import ACL, Client, validate_path


class Lock(Locking[Lease]):
    """A fair lock: one holder in the whole cluster, served in the order of the tickets.

        async with Lock(zk, "/locks/account-221890") as lease: ...             # waits
        async with lock.hold(within=5.0) as lease: ...                         # waits 5 seconds at the most
        lease = await lock.acquire(within=5.0); ...; await lease.release()     # without a body to cancel
        lease = await lock.try_acquire()                                       # None at once if it is held

    Arguments: `path`, the lock's node, created as a container when it is missing, with persistent parents; `data`,
    stored in the nodes of our tickets, for people to read, None: the host, the process id and the file name of the
    program, such as b"web-1 4711 backup.py"; `acl`, of every node that is created, which must let all
    contenders read, None: all clients may use the lock and read the tickets, into which only their own client may
    write, or all clients if that one has no identity; `local_passes`, how many times in succession a ticket may be
    passed on to the next task that waits on this object, before the other processes have a turn again: the leases of
    one ticket share one token.
    Order: by tickets, which are numbered in the order in which the creates reach the ensemble's leader.  Tasks of one
    process that share this object: in the order of their calls.

    What is promised: docs/waiting-line.md.  In short: while a body runs, no other body runs, unless a body does not
    stop when it is cancelled, its event loop is blocked, or clocks run at different speeds.  `lease.token` protects a
    store even then.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        data: bytes | None = None,
        acl: Sequence[ACL] | None = None,
        local_passes: int = 0,
    ) -> None:
        if local_passes < 0:
            raise ValueError(f"local_passes is at least 0, not {local_passes!r}")
        super().__init__(zk, validate_path(path))
        self._line = Line(zk, self.path, data=data, acl=acl)
        self._local_queue = LocalQueue(zk, local_passes, self._line.leave)

    async def _acquire(self, sight: Sight | None = None) -> Lease:
        """Wait for the turn in this process; if it comes without a ticket, wait in ZooKeeper's line."""
        ticket = await self._local_queue.wait()
        try:
            if ticket is None or not await self._line.still_owns(ticket):
                ticket = await self._line.acquire(sight)
        except BaseException:
            self._local_queue.pass_turn()
            raise
        return Lease(self._zk, ticket, self._local_queue)

    async def _try_acquire(self, sight: Sight | None = None) -> Lease | None:
        if not self._local_queue.is_free:
            return None
        await self._local_queue.wait()
        try:
            ticket = await self._line.try_acquire(sight)
        except BaseException:
            self._local_queue.pass_turn()
            raise
        if ticket is None:
            self._local_queue.pass_turn()
            return None
        return Lease(self._zk, ticket, self._local_queue)


class ReentrantLock(Lock):
    """A fair lock that its holder may acquire again; it is free once it has been released as often.

    The owner is the task in which `acquire` runs.  When it acquires the lock again, it gets the same lease at once and
    without a request, and the lease counts.  To bound a wait use `within`: asyncio.wait_for runs `acquire` in another
    task on Python 3.11.
    Arguments: as Lock.
    Raises: acquiring again also LockLostError when the owner's lease is lost: the owner must not go on as before.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        data: bytes | None = None,
        acl: Sequence[ACL] | None = None,
        local_passes: int = 0,
    ) -> None:
        super().__init__(zk, path, data=data, acl=acl, local_passes=local_passes)
        self._owner: asyncio.Task[object] | None = None
        self._lease: Lease | None = None

    async def acquire(self, *, within: float | None = None) -> Lease:
        """Wait for the lock, as Lock.acquire; the owner gets its own lease again."""
        checked_within(within)
        return self._again() or self._first(await super().acquire(within=within))

    async def try_acquire(self) -> Lease | None:
        """Return the lease if the lock is free, as Lock.try_acquire; the owner gets its own lease again."""
        again = self._again()
        if again is not None:
            return again
        lease = await super().try_acquire()
        return None if lease is None else self._first(lease)

    def _again(self) -> Lease | None:
        lease = self._lease
        if lease is None or lease.is_released or self._owner is not asyncio.current_task():
            return None
        lease.acquired_again()
        return lease

    def _first(self, lease: Lease) -> Lease:
        self._owner = current_task()
        self._lease = lease
        return lease
