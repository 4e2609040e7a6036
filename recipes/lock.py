"""The fair lock, which queues on two levels, and the re-entrant lock.

Tasks of one process that share a Lock object queue in this process.  Only the first of them has a ticket in ZooKeeper's
line.  So a process costs the ensemble one node, however many tasks wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from recipes.common.checks import check_number, checked_within, current_task
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import LineLock
from recipes.line.ticket import Ticket
from zkwire import ACL, Client, validate_path

L = TypeVar("L", Lease, Lease | None)


class LocalQueue:
    """A first-in, first-out queue of tasks: one task has the turn, the others wait for it.

    Args:
        zk: The client whose end ends every wait.
        passes: How many times in succession a task may pass its ticket to the next task, while other processes wait.
        drop: Called with a ticket that was passed on and that no task takes.

    Attributes:
        is_free: Whether no task has the turn.
    """

    def __init__(self, zk: Client, passes: int, drop: Callable[[Ticket], None]) -> None:
        self._on_closed = zk.on_closed
        self._passes = self._passes_left = passes
        self._drop = drop
        self.is_free: bool = True
        self._waiting: deque[asyncio.Future[Ticket | None]] = deque()

    async def wait(self) -> Ticket | None:
        """Wait for the turn; return the ticket that the task before passed on, or None.

        Raises:
            SessionError: if the client is closed or its session is over for good: the task that has the turn may never
                release it.

        Cancellation:
            If the turn arrived at the same moment, it is passed on.
        """
        if self.is_free:
            self.is_free = False
            return None
        waiter: asyncio.Future[Ticket | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._on_closed.add(self._end)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if waiter in self._waiting:  # not there if `_pass_on` has skipped it meanwhile
                    self._waiting.remove(waiter)
            elif waiter.exception() is None:
                # The turn came in the same step of the event loop as the cancellation: without this it would be lost,
                # and every later task would wait for ever.
                self._pass_on(waiter.result())
            raise
        finally:
            if not self._waiting:
                self._on_closed.discard(self._end)

    def wants_ticket(self, ticket: Ticket) -> bool:
        """Return whether a task waits, and `ticket` may be passed on once more before other processes have a turn."""
        return self._passes_left > 0 and not ticket.is_asked and not all(waiter.done() for waiter in self._waiting)

    def pass_ticket(self, ticket: Ticket) -> None:
        """Pass the turn to the next task, together with `ticket`."""
        self._passes_left -= 1
        self._pass_on(ticket)

    def pass_turn(self) -> None:
        """Pass the turn to the next task, which needs a ticket of its own, after those of the other processes."""
        self._passes_left = self._passes
        self._pass_on(None)

    def _pass_on(self, ticket: Ticket | None) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # a task that was cancelled may still be in the queue
                waiter.set_result(ticket)
                return
        self.is_free = True
        if ticket is not None:
            self._drop(ticket)

    def _end(self) -> None:
        while self._waiting:
            waiter, error = self._waiting.popleft(), self._on_closed.error
            if error is not None and not waiter.done():
                waiter.set_exception(error)


class Lock(LineLock[Lease]):
    """A fair lock: one holder in the whole cluster, served in the order of the tickets.

    ::

        async with Lock(zk, "/locks/account-221890") as lease: ...             # waits
        async with lock.hold(within=5.0) as lease: ...                         # waits 5 seconds at the most
        lease = await lock.acquire(within=5.0); ...; await lease.release()     # without a body to cancel
        lease = await lock.try_acquire()                                       # None at once if it is held

    What is promised: docs/waiting-line.md.  In short: while a body runs, no other body runs, unless a body does not
    stop when it is cancelled, its event loop is blocked, or clocks run at different speeds.  `lease.token` protects a
    store even then.

    Args:
        path: The lock's node, created as a container when it is missing, with persistent parents.  These stay; one that
            `Client.ensure_path(..., container=True)` has made before goes after the last lock below it.
        data: Stored in the nodes of our tickets, for people to read; None: the host, the process id and the file name
            of the program, such as b"web-1 4711 backup.py".
        acl: The ACL of every node that is created, which must let all contenders read; None: all clients may use the
            lock and read the tickets, into which only their own client may write, or all clients if that one has no
            identity.
        local_passes: How many times in succession a ticket may be passed on to the next task that waits on this object,
            before the other processes have a turn again: the leases of one ticket share one token.  A ticket that was
            asked to give way is not passed on.

    Order:
        By tickets, which are numbered in the order in which the creates reach the ensemble's leader.  Tasks of one
        process that share this object: in the order of their calls.
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
        super().__init__(zk, Line(zk, validate_path(path), data=data, acl=acl))
        self._local_queue = LocalQueue(zk, local_passes, Ticket.give_up)

    async def adopt(self, lease_path: str, token: int) -> Lease:
        """Take up again a lease of a former process whose session this client has resumed; its token is the same.

        ::

            kept = zk.session_id, zk.session_password, zk.least_timeout, lease.path, lease.token    # keep it secret
            await zk.close(keep_session=True)                           # or the process dies
            zk = await zkwire.connect(hosts, session_id=kept[0], session_password=kept[1], least_timeout=kept[2])
            lease = await Lock(zk, path).adopt(kept[3], kept[4])        # in the next process

        No other client has held the lock in between.  The former process must have ended or closed its client: it
        would go on as a second holder.  Its other tickets of a Lock or TimedLock at this path, with which its tasks
        have waited, are removed, also when LockLostError is raised.  What it held or waited for at other paths, or with
        other kinds of locks, stays as long as the session lives, unless you `remove()` it: `contenders()` shows it with
        `is_mine`.

        Args:
            lease_path: `path` of the lease, of a Lock or ReentrantLock at this path.
            token: `token` of the lease.

        Returns:
            The lease, which is lost and released like any other.

        Raises:
            LockLostError: if the lease was released or lost meanwhile: acquire the lock again.
            RuntimeError: if its session was never this client's; if it is, or was, held in this process; if it is a
                TimedLock's; or if it is no lease, but the ticket of a client that waits.
            ValueError: if `lease_path` cannot be a lease of this lock; or if the session was resumed without its
                `least_timeout`.
            TypeError: if an argument is of the wrong kind.
            ServerError: if a server refuses a request for good.

        SessionError is raised as by `acquire`.

        Cancellation:
            The tickets stay as they are, as for each error but the first; `adopt` may be called again.

        Order:
            The lease keeps its place in the line.  It is not passed on to the tasks that wait on this object: they
            have tickets after it, or take one.

        Requests:
            sync and getData in one write, and those of `contenders`; before them those of Client.certify, which take
            about three ticks of the server just after the session was resumed.
        """
        if not isinstance(lease_path, str):
            raise TypeError(f"lease_path is a str, not {lease_path!r}")
        check_number("token is the number of a lease, from 1", token, 1)
        if not self._line.is_own(lease_path):
            raise ValueError(f"lease_path is the path of a lease of the lock {self.path}, not {lease_path!r}")
        lease = Lease(self._zk, await self._line.adopt(lease_path, token))
        self._latest = lease
        return lease

    def _lease(self, ticket: Ticket) -> Lease:
        return Lease(self._zk, ticket, self._local_queue)

    async def _acquire(self) -> Lease:
        """Wait for the turn in this process; if it comes without a ticket, wait in ZooKeeper's line."""
        ticket = await self._local_queue.wait()
        try:
            if ticket is None or not await self._line.still_owns(ticket):
                ticket = await self._line.acquire()
        except BaseException:
            self._local_queue.pass_turn()
            raise
        return Lease(self._zk, ticket, self._local_queue)

    async def _try_acquire(self) -> Lease | None:
        if not self._local_queue.is_free:
            return None
        await self._local_queue.wait()
        lease = None
        try:
            lease = await super()._try_acquire()
        finally:
            if lease is None:
                self._local_queue.pass_turn()
        return lease


class ReentrantLock(Lock):
    """A fair lock that its holder may acquire again; it is free once it has been released as often.

    The owner is the task in which `acquire` runs.  When it acquires the lock again, it gets the same lease at once and
    without a request, and the lease counts.  A `release` by hand counts, too: after one in the inner of two bodies, the
    lock is free when the inner body ends, and the outer one goes on without it.  To bound a wait use `within`:
    asyncio.wait_for runs `acquire` in another task on Python 3.11.  The arguments are those of Lock.

    Raises:
        LockLostError: from acquiring again, if the owner's lease is lost: the owner must not go on as before.
    """

    _owner: asyncio.Task[object] | None = None
    _held: Lease | None = None

    async def acquire(self, *, within: float | None = None) -> Lease:
        """Wait for the lock, as Lock.acquire; the owner gets its own lease again."""
        checked_within(within)
        return self._again() or self._first(await super().acquire(within=within))

    async def try_acquire(self) -> Lease | None:
        """Return the lease if the lock is free, as Lock.try_acquire; the owner gets its own lease again."""
        return self._again() or self._first(await super().try_acquire())

    async def adopt(self, lease_path: str, token: int) -> Lease:
        """Take up a lease again, as Lock.adopt; the owner is the task in which this runs, and has acquired it once."""
        return self._first(await super().adopt(lease_path, token))

    def _again(self) -> Lease | None:
        lease = self._held
        if lease is None or lease.is_released or self._owner is not asyncio.current_task():
            return None
        lease._acquired_again()
        return lease

    def _first(self, lease: L) -> L:
        if lease is not None:
            self._owner, self._held = current_task(), lease
        return lease
