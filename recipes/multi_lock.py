"""Several locks held as one: either all of them are held, or none.

A MultiLock acquires its locks in the order of their paths, whatever the order in which the caller lists them.  So two
MultiLocks never wait for each other.  This module uses the locks only through `Locking` and their leases.
"""

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any

from recipes.common.checks import same_loop
from recipes.line.contenders import Contender
from recipes.line.lease import Holding, Lease, LockLostError
from recipes.line.locking import Locking
from zkwire import Client, Transaction


class MultiLease(Holding):
    """A lease of several locks at once; lost as a whole as soon as one of them is lost.

    Attributes:
        leases: The lease of each lock, by the path of the lock, in the order in which they were acquired.  When a
            WriteLease among them is downgraded, the read lease replaces it.
    """

    _noun = "set of locks"

    def __init__(self, zk: Client, leases: Mapping[str, Lease]) -> None:
        super().__init__(zk, ", ".join(leases))
        self._leases = dict(leases)
        self.leases: MappingProxyType[str, Lease] = MappingProxyType(self._leases)
        for lease in self._leases.values():
            lease._enter_body(self)

    def __repr__(self) -> str:
        return f"<MultiLease of {', '.join(map(repr, self.leases.values()))}>"

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each lock, by the lock's path.  Give a store the token of the lock that guards it."""
        return {path: lease.token for path, lease in self.leases.items()}

    def _seconds_left(self) -> float:
        return 0.0 if self.is_over else min(lease.certain_for() for lease in self._leases.values())

    def check(self) -> None:
        """Return if all locks are certainly held.

        Raises:
            LockLostError: if one of the locks is lost.
            RuntimeError: if this lease was released, or a WriteLease among them is being downgraded.
        """
        if self._loss is not None:
            raise copy(self._loss)  # each call would add its traceback to one object
        if self.is_released:
            raise RuntimeError(f"the locks {self._described} were released")
        for lease in self._leases.values():
            lease.check()

    def _find_loss(self) -> LockLostError | None:
        """Find out whether each lock is still held; return the error of the first that was lost, None if all are."""
        if not self.is_over:
            for lease in self._leases.values():
                lease._find_loss()  # calls our `_interrupt` if it finds a loss
        return self._loss

    def transaction(self) -> Transaction:
        """Return a transaction that the server carries out only while the nodes of all the locks exist.

        It belongs to the present session, because the nodes do.  See Client.transaction.
        """
        leases = tuple(self._leases.values())
        transaction = self._zk.transaction(session_id=leases[0]._ticket.node.session_id)
        for lease in leases:
            lease._guard(transaction)
        return transaction

    async def release(self) -> None:
        """Release all locks, the last acquired first, and return when their nodes are gone; see Lease.release.

        Raises:
            RuntimeError: in another event loop.

        Cancellation:
            The locks are released anyway.
        """
        same_loop(self._loop, self._described)
        if self.is_released or await self._is_left_to_bodies():
            return
        self._depth = 0
        for lease in self._leases.values():
            lease._leave_body(self)
        releasing = start_release(self._leases.values())
        self._wake_lost(releasing)
        await asyncio.shield(releasing)

    # -- as the body of each of its leases ----------------------------------------------------------------------------

    def _interrupt(self, loss: LockLostError) -> None:
        """Record the loss of one of the locks, and interrupt the bodies; called by the lease that is lost."""
        if self._loss is None:
            self._loss = loss
            self._wake_lost()
            self._interrupt_bodies(loss)

    def _go_on_under(self, lease: Lease, before: Lease) -> None:
        """Replace `before` by `lease`; called by `before` when it is downgraded."""
        for path, held in list(self._leases.items()):
            if held is before:
                self._leases[path] = lease

    def _wake_lost(self, releasing: asyncio.Future[Any] | None = None) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(releasing)


class MultiLock(Locking[MultiLease]):
    """Several locks that are acquired as one: all or none, and without a deadlock between two MultiLocks.

    ::

        accounts = MultiLock([Lock(zk, "/locks/account-1"), Lock(zk, "/locks/account-2")])
        async with accounts.hold(within=5.0) as lease:      # cancelled when the first of them is lost
            print(lease.tokens)                             # {"/locks/account-1": 17, "/locks/account-2": 18}

    While a MultiLease is held, no other client holds any of its locks, except where the kind of lock allows it: other
    readers beside a read lock.

    A program that acquires the single locks in another order than by their paths can still deadlock with a
    MultiLock.  If one lock is lost while a later one is awaited, all are released and acquired again.

    Args:
        locks: In any order: locks of any kind with the forms of Lock, all of one client, with different paths.

    Raises:
        ValueError: for an empty list, for a path that is listed twice, or for locks of several clients.
        TypeError: for anything that is not a lock, or for another MultiLock.

    Acquiring raises what the single locks raise; then none is held.  `within` bounds the whole wait.

    Order:
        The locks are acquired one after the other in the order of their paths, each in the order of its own line, and
        released in the reverse order.  Two MultiLocks cannot deadlock, in whatever processes.

    Requests:
        Those of each lock, one lock after the other; the releases are sent together.
    """

    _noun = "set of locks"

    def __init__(self, locks: Sequence[Locking[Any]]) -> None:
        if isinstance(locks, Locking) or not all(isinstance(lock, Locking) for lock in locks):
            raise TypeError(f"MultiLock takes a list of locks, not {locks!r}")
        if any(isinstance(lock, MultiLock) for lock in locks):
            raise TypeError("a MultiLock within another MultiLock would not keep the order of paths: list its locks")
        paths = sorted(lock.path for lock in locks)
        if not paths:
            raise ValueError("MultiLock takes at least one lock")
        twice = [path for path, following in itertools.pairwise(paths) if path == following]
        if twice:
            raise ValueError(f"{twice[0]} is listed twice: it would wait for itself")
        if any(lock.client is not locks[0].client for lock in locks):
            raise ValueError("the locks of a MultiLock must all belong to one client")
        super().__init__(locks[0].client, ", ".join(paths))
        self._locks = sorted(locks, key=lambda lock: lock.path)

    async def _acquire(self) -> MultiLease:
        while True:
            lease = await self._acquire_all(wait=True)
            if lease is not None:
                return lease

    async def _try_acquire(self) -> MultiLease | None:
        return await self._acquire_all(wait=False)

    async def contenders(self) -> list[Contender]:
        """Return the contenders of each lock, lock after lock in the order of their paths: holders, then waiters."""
        self._check_usable()
        found = await asyncio.gather(*(lock.contenders() for lock in self._locks))
        return list(itertools.chain.from_iterable(found))

    async def _acquire_all(self, *, wait: bool) -> MultiLease | None:
        """Return a lease of all locks; None, with no lock held, if one was not free or was lost meanwhile."""
        held: dict[str, Lease] = {}
        try:
            for lock in self._locks:
                lease = await (lock.acquire() if wait else lock.try_acquire())
                if lease is None:
                    break
                held[lock.path] = lease
                # The wait may have been long: a lock that was acquired before it may be lost by now.
                if not all(each.is_certain() for each in held.values()):
                    break
            else:
                return MultiLease(self._zk, held)
        except BaseException:
            # Also for a cancellation, which may come from a timeout: then the caller relies upon holding none of them.
            await asyncio.shield(start_release(held.values()))
            raise
        # Outside the block above: a cancellation during this await must not release the leases a second time, which
        # would take away an outer lease of a re-entrant lock.
        await asyncio.shield(start_release(held.values()))
        return None


def start_release(leases: Iterable[Lease]) -> asyncio.Future[Any]:
    """Start to release all of `leases`, the last one first, without waiting between them; the future may be ignored."""
    return asyncio.gather(*(lease.release() for lease in reversed(tuple(leases))))
