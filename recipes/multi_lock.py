"""Several locks held as one: all of them or none.

They are acquired in the order of their paths, whatever the order in which they are named, so that no two MultiLocks
wait for each other.  Knows leases; how each lock is acquired is its own affair.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from recipes.line.lease import Body, Lease, LockLostError
from recipes.line.locking import Locking
from zkwire import Client, Transaction


class MultiLease:
    """One holding of several locks; lost as a whole when the first of them is.

    `leases` are those of the single locks, by the paths of the locks, in the order in which they were acquired.  When
    one is downgraded the read lease takes its place.
    """

    def __init__(self, zk: Client, leases: Mapping[str, Lease]) -> None:
        self._held = dict(leases)
        self.leases = MappingProxyType(self._held)
        self._zk = zk
        self._bodies: list[Body] = []
        self._loss: LockLostError | None = None
        self._is_released = False
        self._over: asyncio.Future[None] | None = None
        for lease in self._held.values():
            lease.enter_body(self)

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each lock, by the lock's path: a store is given that of the lock that protects it."""
        return {path: lease.token for path, lease in self.leases.items()}

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._is_released

    def is_certain(self) -> bool:
        """Whether all are held for certain at this moment."""
        return self.certain_for() > 0

    def certain_for(self) -> float:
        """Return for how many seconds from now all are held for certain: the least of theirs; 0 when one is not."""
        if self._loss is not None or self._is_released:
            return 0.0
        return min(lease.certain_for() for lease in self._held.values())

    def check(self) -> None:
        """Return if all are held for certain.

        Raises: LockLostError of one that is not; RuntimeError when released, or while one is being downgraded.
        """
        if self._loss is not None:
            raise self._loss
        if self._is_released:
            raise RuntimeError(f"the locks {', '.join(self.leases)} were released")
        for lease in self._held.values():
            lease.check()

    async def lost(self) -> LockLostError | None:
        """Return when the first of them is lost, with the error that tells which and how; None when they were released
        before.

        Cancellation: harmless.
        """
        if self._loss is None and not self._is_released:
            if self._over is None:
                self._over = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._over)
        return self._loss

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while the nodes of all the locks exist; see Client.transaction.

        It is the present session's only, as the nodes are.
        """
        leases = tuple(self._held.values())
        transaction = self._zk.transaction(session_id=leases[0].ticket.node.session_id)
        for lease in leases:
            lease.guard(transaction)
        return transaction

    async def release(self) -> None:
        """Let all of them go, in the reverse of the order in which they were acquired, and return when their nodes are
        known to be gone.

        Cancellation: they go all the same.
        """
        if not self._is_released:
            self._is_released = True
            for lease in self._held.values():
                lease.leave_body(self)
            self._end()
            await asyncio.shield(let_go(self._held.values()))

    # -- being told -------------------------------------------------------------------------------------------------

    def enter_body(self, body: Body) -> None:
        """Have `body` interrupted when the first of the locks is lost; of those of one task the innermost one is."""
        self._bodies.append(body)

    def leave_body(self, body: Body) -> LockLostError | None:
        """Undo `enter_body`; return how the first was lost, if one was."""
        self._bodies.remove(body)
        if self._loss is None and not self._is_released:
            for lease in self._held.values():
                lease.find_loss()  # what it finds it tells us, by `interrupt`
        return self._loss

    def interrupt(self, loss: LockLostError, stopped: set[asyncio.Task[Any]]) -> None:
        """Take note that one of the locks is lost, and interrupt the bodies; called by its lease."""
        if self._loss is None:
            self._loss = loss
            self._end()
            for body in reversed(self._bodies):
                body.interrupt(loss, stopped)

    def go_on_under(self, lease: Lease, before: Lease) -> None:
        """Have `lease` take the place of `before`; called by that one."""
        for path, held in list(self._held.items()):
            if held is before:
                self._held[path] = lease

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


class MultiLock(Locking[MultiLease]):
    """Several locks as one, acquired all or not at all, and never in a deadlock with another MultiLock.

        accounts = MultiLock([Lock(zk, "/locks/account-1"), Lock(zk, "/locks/account-2")])
        async with accounts.hold(within=5.0) as lease:      # cancelled when the first of them is lost
            print(lease.tokens)                             # {"/locks/account-1": 17, "/locks/account-2": 18}

    Arguments: `locks`, of any kinds that are acquired like a Lock, of one client and with different paths, in any
    order.
    Raises: ValueError for an empty list, a path that is there twice, or locks of several clients.
    Order: they are acquired one after the other in the order of their paths, each in the order of its own line, and
    released in reverse.  Two MultiLocks of whatever processes cannot wait for each other; somebody who holds one of
    the locks and waits for another in another order can.  One that is lost while a later one is waited for makes it
    begin anew.  `within` bounds the whole.
    """

    _noun = "set of locks"

    def __init__(self, locks: Sequence[Locking[Any]]) -> None:
        if isinstance(locks, Locking) or not all(isinstance(lock, Locking) for lock in locks):
            raise TypeError(f"MultiLock takes a list of locks, not {locks!r}")
        if any(isinstance(lock, MultiLock) for lock in locks):
            raise TypeError("a MultiLock within another would not keep the order of paths: name the locks themselves")
        paths = sorted(lock.path for lock in locks)
        if not paths:
            raise ValueError("MultiLock takes one lock at the least")
        twice = [path for path, following in itertools.pairwise(paths) if path == following]
        if twice:
            raise ValueError(f"{twice[0]} is named twice: it would wait for itself")
        if any(lock.client is not locks[0].client for lock in locks):
            raise ValueError("the locks of a MultiLock are all of one client")
        super().__init__(locks[0].client, ", ".join(paths))
        self._locks = sorted(locks, key=lambda lock: lock.path)

    async def _acquire(self) -> MultiLease:
        while True:
            lease = await self._all_of(wait=True)
            if lease is not None:
                return lease

    async def _try_acquire(self) -> MultiLease | None:
        return await self._all_of(wait=False)

    async def _all_of(self, *, wait: bool) -> MultiLease | None:
        """Return the lease of all; None if one is not to be had, or was lost meanwhile, and none is held."""
        held: dict[str, Lease] = {}
        try:
            for lock in self._locks:
                lease = await (lock.acquire() if wait else lock.try_acquire())
                if lease is None:
                    break
                held[lock.path] = lease
                if not all(each.is_certain() for each in held.values()):
                    break
            else:
                return MultiLease(self._zk, held)
        except asyncio.CancelledError:
            let_go(held.values())  # and who was cancelled need not wait for it
            raise
        except BaseException:
            await asyncio.shield(let_go(held.values()))
            raise
        # Outside of the block above: whoever is cancelled here must not let go of them a second time.
        await asyncio.shield(let_go(held.values()))
        return None


_LETTING_GO: set[asyncio.Task[None]] = set()


def let_go(leases: Iterable[Lease]) -> asyncio.Task[None]:
    """Release them, the last first and all in one go; what is returned need not be awaited."""

    last_first = tuple(leases)[::-1]

    async def release() -> None:
        await asyncio.gather(*(lease.release() for lease in last_first))

    task = asyncio.create_task(release())
    _LETTING_GO.add(task)  # the loop keeps none
    task.add_done_callback(_LETTING_GO.discard)
    return task
