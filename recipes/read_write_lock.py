"""The read/write lock: many readers hold it together, a writer holds it alone, and all queue in one line of tickets.

Safety depends only on which tickets block which (see `recipes.line`).  A preference does not change that: it only
delays the moment at which a client takes its ticket.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

import zkwire
from recipes.common.checks import current_task
from recipes.common.numbers import in_order, next_number
from recipes.common.retrying import until_answered
from recipes.common.this_process import or_described
from recipes.line import ticket_data
from recipes.line.contenders import Contender
from recipes.line.known import line_of
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import H, LineLock, Locking
from recipes.line.position import every_contender
from recipes.line.ticket import READ_PREFIX, WRITE_PREFIX, Ticket, VersionedWriter, is_ticket, is_writer
from recipes.line.waiting import Rules
from zkwire import ACL, Client, Transaction, join_path, validate_path

_log = logging.getLogger(__name__)

# With prefer="readers", writers queue below this node before they take a ticket.  Its name has no sequence number, so
# that no client takes the node itself for a ticket.
_GATE: Final = "writers"
# A writer writes into its ticket when it lets readers in, and again after each request to give way.
_LINKS: Final = 64

Preference = Literal["readers", "writers"]
L = TypeVar("L", bound=Lease)


class WriteLease(Lease):
    """A lease of the write lock: no other lease, for reading or writing, is held at the same time.

    It has all that Lease has; `downgrade` turns it into a read lease.
    """

    __slots__ = ("_data", "_holders", "_is_exclusive", "_writer")

    def __init__(self, zk: Client, ticket: Ticket, holders: Holders, data: bytes) -> None:
        self._is_exclusive = True
        self._holders = holders
        self._data = data
        self._writer = VersionedWriter(zk, ticket)
        super().__init__(zk, ticket)

    async def downgrade(self) -> Lease:
        """Let readers in, and return the read lease that replaces this lease; no writer holds the lock in between.

        The ticket's node stays, with its token and its position before all waiting writers; only its data changes.  The
        readers that wait between this ticket and the next writer hold the lock at once.  Clients that do not know this
        data, for example Curator, still see a writer.

        As soon as `downgrade` is called, this lease is not certain any more.  After `downgrade` has returned, release
        the read lease; releasing this lease does nothing.  Inside `async with rw.write() as lease` the body continues
        under the read lease: its loss cancels the body, and the end of the body releases it.  A MultiLease that
        contains this lease contains the read lease from then on.

        Raises:
            LockLostError: if the lease is lost.
            RuntimeError: if this lease was released or downgraded.
            ServerError: if the server refuses the write for good.

        Cancellation:
            Readers may have been let in or not, so this lease stays uncertain.  It is still the lease to release (at
            the end of its body, if it has one), and `downgrade` may be called again.

        Requests:
            setData, and a getData for each reader that waits; again after each request to give way.
        """
        if self.is_released:
            self._check_exclusive()
        super().check()
        # Before the request is sent: a reader may hold the lock as soon as the server has the data, which is before we
        # have the answer.
        self._is_exclusive = False
        try:
            await self._write(self._writer, self._shared_data)
        except zkwire.ServerError:
            if not self.is_over:
                raise
        if self._loss is not None:
            raise copy(self._loss)
        if self.is_released:
            raise RuntimeError(f"the lock node {self.path} was released while it was downgraded")
        self._finish()
        lease = _SharedLease(self._zk, self._ticket, self._writer, self._shared_data)
        self._become(lease)
        self._holders.replace(self, lease)
        return lease

    def _shared_data(self, version: int) -> bytes | None:
        """Return the data that lets readers in; None if no proof is left for it."""
        chain = self._ticket.node.chain
        link = None if chain is None else chain.link(version)
        if link is None:
            _log.warning("%s: this lease lets no more readers in: it had too many requests to give way", self.path)
        return None if link is None else ticket_data.shared(link, self._data)

    def certain_for(self) -> float:
        """Return the same as Lease.certain_for, but 0 as soon as `downgrade` was called."""
        return super().certain_for() if self._is_exclusive else 0.0

    def check(self) -> None:
        """Do the same as Lease.check.

        Raises:
            LockLostError: if the lease is lost.
            RuntimeError: if it was released, or `downgrade` was called.
        """
        self._check_exclusive()
        super().check()

    def _guard(self, transaction: Transaction) -> None:
        """Do the same as Lease._guard.

        Raises:
            RuntimeError: if `downgrade` was called.
        """
        self._check_exclusive()
        super()._guard(transaction)

    def _check_exclusive(self) -> None:
        if not self._is_exclusive and self._loss is None:
            raise RuntimeError(f"the write lease of {self.path} was downgraded: readers may hold the lock too")


class _SharedLease(Lease):
    """The read lease that replaces a write lease; it lets readers in again after a request to give way.

    Args:
        data_of: Returns the data that lets readers in as the given version of the node; None if it cannot be proven.
    """

    __slots__ = ("_data_of", "_writer")

    def __init__(
        self, zk: Client, ticket: Ticket, writer: VersionedWriter, data_of: Callable[[int], bytes | None]
    ) -> None:
        self._writer = writer
        self._data_of = data_of
        super().__init__(zk, ticket)
        if ticket.is_asked:  # perhaps after the write that has let readers in
            self._on_asked()

    def _on_asked(self) -> None:
        # The event loop has a strong reference to this task through the answer that it waits for.
        self._loop.create_task(self._write_again(self._writer, self._data_of))


class Holders:
    """The leases of one ReadWriteLock object, by the task that has acquired them.

    With it a task that asks again gets an answer or an error at once, instead of waiting for itself.
    """

    def __init__(self) -> None:
        self._leases: WeakKeyDictionary[asyncio.Task[Any], Lease] = WeakKeyDictionary()

    def of_current_task(self) -> Lease | None:
        """Return the lease that the current task has acquired, if it is neither released nor lost."""
        lease = self._leases.get(current_task())
        return None if lease is None or lease.is_over else lease

    def add(self, lease: L) -> L:
        """Record that the current task has acquired `lease`, and return it."""
        self._leases[current_task()] = lease
        return lease

    def replace(self, old: Lease, new: Lease) -> None:
        """Record that `new` has replaced `old`, in whichever task holds it."""
        for task, lease in list(self._leases.items()):
            if lease is old:
                self._leases[task] = new


class _Side(LineLock[H]):
    """What the read lock and the write lock have in common.

    Args:
        prefers: Called with the name of a ticket: whether to let it pass before taking one; None for no ticket.
    """

    def __init__(self, zk: Client, line: Line, holders: Holders, prefers: Callable[[str], bool] | None = None) -> None:
        super().__init__(zk, line)
        self._holders = holders
        self._prefers = prefers
        self._known = line_of(zk, line.path)

    @abstractmethod
    def _again(self) -> H | None:
        """Return the lease that the current task holds already, counted once more; None if it holds none.

        Raises:
            RuntimeError: if its new ticket would wait for the lease that it holds.
        """

    async def _acquire(self) -> H:
        again = self._again()
        if again is not None:
            return again
        if self._prefers is not None:
            ignored: set[str] = set()
            while await until_answered(self._zk, partial(self._wait_for_last, self._prefers, ignored)):
                pass
        return await super()._acquire()

    async def _try_acquire(self) -> H | None:
        return self._again() or await super()._try_acquire()

    async def _wait_for_last(self, prefers: Callable[[str], bool], ignored: set[str]) -> bool:
        """Wait until the last preferred ticket is gone, or add it to `ignored`; return False if there is none.

        Only the last one is watched, and the tickets are listed again when it is gone: not one request for each ticket
        that leaves.  If this client must not read it, the children are watched instead.  Nodes that are not ephemeral
        do not count.
        """
        try:
            names, stat = await self._zk.get_children_and_stat(self.path)
        except zkwire.NoNodeError:
            return False
        preferred = in_order((name for name in names if prefers(name) and name not in ignored), next_number(stat))
        if not preferred:
            return False
        *others, last = preferred
        try:
            node, watch = await self._zk.get_and_watch(join_path(self.path, last))
        except zkwire.NoNodeError:
            return True
        except zkwire.NoAuthError:
            await self._wait_unread(last)
            return True
        if not is_ticket(node.stat):
            watch.cancel()
            self._known.found_foreign(last)
            ignored.update([last, *await self._known.foreign_among(self._zk, others[::-1])])
        elif prefers is is_writer and ticket_data.lets_readers_in(last, node.data, node.stat.version):
            ignored.add(last)
        else:
            await watch
        return True

    async def _wait_unread(self, name: str) -> None:
        """Return when the children have changed, if `name`, which this client must not read, is still among them."""
        self._known.found_unreadable(name)
        try:
            names, watch = await self._zk.get_children_and_watch(self.path)
        except zkwire.NoNodeError:
            return
        if name in names:
            await watch
        else:
            watch.cancel()


class _ReadLock(_Side[Lease]):
    """The lock that `ReadWriteLock.read` returns."""

    _noun = "read lock"

    def _again(self) -> Lease | None:
        # Without this a task would deadlock with itself: its second ticket would wait for a writer in between, and that
        # writer for the task's first ticket.
        held = self._holders.of_current_task()
        if isinstance(held, WriteLease):
            raise RuntimeError(
                f"this task holds the write lock {self.path}, and would wait for itself: to continue as a reader, call "
                f"downgrade() of that lease"
            )
        if held is not None:
            held._acquired_again()
        return held

    def _lease(self, ticket: Ticket) -> Lease:
        return self._holders.add(Lease(self._zk, ticket))


class _WriteLock(_Side[WriteLease]):
    """The lock that `ReadWriteLock.write` returns.

    Args:
        gate: The line in which writers queue to let all tickets pass; None if no ticket is preferred.
    """

    _noun = "write lock"

    def __init__(self, zk: Client, line: Line, holders: Holders, data: bytes, gate: Line | None) -> None:
        # It lets other writers pass too: if it queued after a writer that holds the lock, its ticket would block the
        # readers that come meanwhile.
        super().__init__(zk, line, holders, None if gate is None else every_contender)
        self._data = data
        self._gate = gate

    async def _acquire(self) -> WriteLease:
        if self._gate is None:
            return await super()._acquire()
        self._again()
        # Only the first writer at the gate watches the line.  If all waiting writers did, the departure of the last
        # ticket would wake them all, and they would take their tickets in no particular order.
        at_gate = await self._gate.acquire()
        try:
            return await super()._acquire()
        finally:
            at_gate.give_up()

    def _again(self) -> None:
        held = self._holders.of_current_task()
        if held is not None:
            what = "write" if isinstance(held, WriteLease) else "read"
            raise RuntimeError(
                f"this task holds the {what} lock {self.path}, and would wait for itself: release that lease before "
                f"acquiring the write lock"
            )

    def _lease(self, ticket: Ticket) -> WriteLease:
        return self._holders.add(WriteLease(self._zk, ticket, self._holders, self._data))


class ReadWriteLock:
    """A fair lock that any number of readers hold together, or one writer alone.

    ::

        rw = ReadWriteLock(zk, "/locks/catalogue")
        async with rw.read() as lease: ...                            # together with other readers
        async with rw.write() as lease: ...                           # alone
            await lease.downgrade(); ...                              # from here on together with readers

    `read` and `write` return locks that are used like a Lock, with leases like those of a Lock.

    Args:
        path: The same as in Lock, as for `data` and `acl`.
        prefer: When a client takes its ticket.  None: at once.  Readers and writers are served in the order in which
            they came; readers whose tickets follow each other hold the lock together.  "readers": a writer waits until
            the line is empty, and takes its ticket only then.  "writers": a reader takes its ticket only when no writer
            is in the line.

    With a preference, the clients that wait outside the line may starve: they wait as long as preferred ones keep
    coming.  The preference is the policy of each client, and safety does not depend on it: clients with different
    preferences, and Curator's read/write lock, may use one path.  Where a TimedLock is used, too, clients outside the
    line do not remove its holder if that hangs: they wait until a client with a ticket does it, or its session ends.

    Raises:
        RuntimeError: from acquiring, without a request, if the task would wait for itself: it holds the read lock and
            asks for the write lock, or holds the write lock and asks for either one.

    A task that holds the read lock and asks for it again gets the same lease, counted, without a request.  "The task"
    is the one in which `acquire` runs: use `within` to bound the wait, because asyncio.wait_for runs `acquire` in
    another task on Python 3.11.

    Order:
        By tickets; each task has a ticket of its own.

    Requests:
        Uncontended, the same as Lock: two round trips for acquire and release.  With prefer="writers" a reader sends
        one getChildren2 more.  With prefer="readers" a writer sends that too, and a create, a getChildren and a delete
        for a second ticket below `path`/writers.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        prefer: Preference | None = None,
        data: bytes | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self.path: str = validate_path(path)
        if prefer not in (None, "readers", "writers"):
            raise ValueError(f'prefer must be None, "readers" or "writers", not {prefer!r}')
        data = or_described(data)
        holders = Holders()
        line = partial(Line, zk, path, data=data, acl=acl)
        # ahead=0: readers that wait for one writer watch that writer only.  A watch on the writer before it would wake
        # them all for nothing.
        shared = partial(Rules, blocks=is_writer, ahead=0, ignores_shared=True, looks_first=prefer == "writers")
        reads = line(prefix=READ_PREFIX, rules=shared)
        writes = line(prefix=WRITE_PREFIX, links=_LINKS, rules=partial(Rules, looks_first=prefer == "readers"))
        gate = Line(zk, join_path(path, _GATE), acl=acl, container=path) if prefer == "readers" else None
        self._read_lock = _ReadLock(zk, reads, holders, is_writer if prefer == "writers" else None)
        self._write_lock = _WriteLock(zk, writes, holders, data, gate)

    def __repr__(self) -> str:
        return f"<ReadWriteLock {self.path}, {self._read_lock!r}, {self._write_lock!r}>"

    async def contenders(self) -> list[Contender]:
        """Return the holders of the lock, readers or a writer, and then those that wait; see Lock.contenders.

        Clients that prefer others, and so have no ticket yet, are not in it.
        """
        return await self._read_lock.contenders()

    def read(self) -> Locking[Lease]:
        """Return the read lock, which is used like a Lock; only the writers before it block it."""
        return self._read_lock

    def write(self) -> Locking[WriteLease]:
        """Return the write lock, which is used like a Lock; all tickets before it block it."""
        return self._write_lock
