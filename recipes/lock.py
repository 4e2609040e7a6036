"""The fair lock, on two levels, and the re-entrant lock.

Tasks of one process that share a Lock object queue here, in the order in which they came, and only the first of them
stands in ZooKeeper's line, so that a process costs the ensemble one node however many tasks it has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from recipes.lease import Hold, Lease, checked_within
from recipes.line import Line, Standing
from zkwire import ACL, OPEN_ACL, Client, SessionClosedError, SessionState, validate_path


class Turns:
    """The queue of one process's tasks: one has the turn, the others wait in the order in which they came.

    Arguments: `passes`, how many times running the turn is passed on together with a standing in the cluster's line, so
    that the other processes wait meanwhile; `drop`, which gets a standing that nobody takes in the end.
    """

    def __init__(self, passes: int, drop: Callable[[Standing], None]) -> None:
        self._passes = self._passes_left = passes
        self._drop = drop
        self._taken = False
        self._waiting: deque[asyncio.Future[Standing | None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether nobody has the turn."""
        return not self._taken

    async def wait(self) -> Standing | None:
        """Wait for the turn; return the standing that comes with it, if one does.

        Cancellation: the turn, if it came at that moment, is passed on.
        """
        if not self._taken:
            self._taken = True
            return None
        waiter: asyncio.Future[Standing | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if waiter in self._waiting:  # else the turn has passed it by already
                    self._waiting.remove(waiter)
            else:
                self._pass_on(waiter.result())
            raise

    def take_turn(self) -> None:
        """Pass the turn on to the first who waits; the other processes have theirs before it."""
        self._passes_left = self._passes
        self._pass_on(None)

    def want_place(self) -> bool:
        """Whether somebody waits, and the other processes have not waited for too long."""
        return self._passes_left > 0 and not all(waiter.done() for waiter in self._waiting)

    def take_over(self, standing: Standing) -> None:
        """Pass the turn on with `standing`."""
        self._passes_left -= 1
        self._pass_on(standing)

    def _pass_on(self, standing: Standing | None) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(standing)
                return
        self._taken = False
        if standing is not None:
            self._drop(standing)


class Lock:
    """A fair lock: one holder in the whole cluster, served in the order of the tickets.

        async with Lock(zk, "/locks/account-221890") as lease: ...             # waits
        async with lock.hold(within=5.0) as lease: ...                         # waits 5 seconds at the most
        lease = await lock.acquire(within=5.0); ...; await lease.release()     # without a body to cancel
        lease = await lock.try_acquire()                                       # None at once if it is held

    Arguments: `path`, the lock's node, made as a container when it is missing, with persistent parents; `data`,
    stored in our nodes, for people who look; `acl`, of every node that is made; `local_passes`, how many times
    running a lease may be passed on to the next task of this process that waits on this object, before the other
    processes have their turn again: such leases share one token.

    What is promised: docs/waiting-line.md.  In short: while the body runs nobody else's does, unless a body does
    not stop when it is cancelled, its loop is blocked, or clocks run unevenly; `lease.token` guards a store even then.
    """

    def __init__(
        self, zk: Client, path: str, *, data: bytes = b"", acl: Sequence[ACL] = OPEN_ACL, local_passes: int = 0
    ) -> None:
        if local_passes < 0:
            raise ValueError(f"local_passes is at least 0, not {local_passes!r}")
        self._zk = zk
        self.path = validate_path(path)
        self._line = Line(zk, self.path, data=data, acl=acl)
        self._turns = Turns(local_passes, self._line.leave)
        self._entered: Hold | None = None

    async def __aenter__(self) -> Lease:
        hold = self.hold()
        lease = await hold.__aenter__()
        self._entered = hold
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold, self._entered = self._entered, None
        if hold is None:
            raise RuntimeError("left without having been entered")
        await hold.__aexit__(kind, error, trace)

    def hold(self, *, within: float | None = None) -> Hold:
        """Return what `async with` enters: acquires as `acquire` does, releases at the end.

        When the lease is lost the body is cancelled and LockLostError raised in place of the cancellation; also when
        the body has come to its end without noticing.
        """
        checked_within(within)
        return Hold(lambda: self.acquire(within=within))

    async def acquire(self, *, within: float | None = None) -> Lease:
        """Wait for the lock and return the lease, which somebody must release, even when it is lost.

        Arguments: `within`, how many seconds to wait at the most, the whole wait counted; None: without bound.
        Raises: TimeoutError; SessionClosedError; SessionExpiredError if the client renews no session (otherwise the
        line is entered anew); whatever else the server refuses.
        Cancellation: at any moment: no node stays, and the next in line gets its turn.
        Order: by tickets, which are given in the order in which creates reach the leader; tasks of one process that
        share this object in the order of their calls.
        """
        if checked_within(within) is None:
            standing = await self._stand()
        else:
            try:
                async with asyncio.timeout(within):
                    standing = await self._stand()
            except TimeoutError:
                raise TimeoutError(f"the lock {self.path} was not free within {within} s") from None
        return Lease(self._zk, standing, self._turns)

    async def try_acquire(self) -> Lease | None:
        """Return the lease if the lock is free at this moment, None otherwise; nobody is waited for.

        Raises, Cancellation: as `acquire`, but for the wait.
        """
        self._check_open()
        if not self._turns.is_free:
            return None
        await self._turns.wait()
        try:
            standing = await self._line.try_stand()
        except BaseException:
            self._turns.take_turn()
            raise
        if standing is None:
            self._turns.take_turn()
            return None
        return Lease(self._zk, standing, self._turns)

    async def _stand(self) -> Standing:
        """Wait for our turn in this process, and stand in the cluster's line if it comes without a place there."""
        self._check_open()
        standing = await self._turns.wait()
        if standing is not None:
            return standing
        try:
            return await self._line.stand()
        except BaseException:
            self._turns.take_turn()
            raise

    def _check_open(self) -> None:
        if self._zk.state is SessionState.CLOSED:
            raise SessionClosedError("the client is closed: make a new one with zkwire.connect")


class ReentrantLock:
    """A fair lock that the task that holds it may acquire again: it is free once it is released as often.

    Used like a Lock.  The owner is the task; every acquire of it gives the same lease, counted.
    Arguments: as Lock.
    """

    def __init__(
        self, zk: Client, path: str, *, data: bytes = b"", acl: Sequence[ACL] = OPEN_ACL, local_passes: int = 0
    ) -> None:
        self._lock = Lock(zk, path, data=data, acl=acl, local_passes=local_passes)
        self.path = self._lock.path
        self._owner: asyncio.Task[object] | None = None
        self._lease: Lease | None = None
        self._entered: list[Hold] = []

    async def __aenter__(self) -> Lease:
        hold = self.hold()
        lease = await hold.__aenter__()
        self._entered.append(hold)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._entered:
            raise RuntimeError("left without having been entered")
        await self._entered.pop().__aexit__(kind, error, trace)

    def hold(self, *, within: float | None = None) -> Hold:
        """As Lock.hold; within a body of the same task it is entered at once."""
        checked_within(within)
        return Hold(lambda: self.acquire(within=within))

    async def acquire(self, *, within: float | None = None) -> Lease:
        """As Lock.acquire; the owner gets its own lease again, at once and without a request.

        Raises: also LockLostError when the owner's lease is lost, for it must not go on as if it were held.
        """
        checked_within(within)
        return self._again() or self._first(await self._lock.acquire(within=within))

    async def try_acquire(self) -> Lease | None:
        """As Lock.try_acquire; the owner gets its own lease again."""
        again = self._again()
        if again is not None:
            return again
        lease = await self._lock.try_acquire()
        return None if lease is None else self._first(lease)

    def _again(self) -> Lease | None:
        lease = self._lease
        if lease is None or lease.is_released or self._owner is not asyncio.current_task():
            return None
        lease.acquired_again()
        return lease

    def _first(self, lease: Lease) -> Lease:
        self._owner = asyncio.current_task()
        self._lease = lease
        return lease
