"""The read/write lock: many readers hold it together, a writer holds it alone, and all queue in one line of tickets.

Safety depends only on which tickets block which (see `recipes.line`).  A preference does not change that: it only
delays the moment at which a client takes its ticket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

import zkwire
from recipes.common.arguments import current_task
from recipes.common.numbers import in_order, next_number
from recipes.common.this_process import or_in_words
from recipes.common.waiting import raise_unless_renewed
from recipes.line import ticket_data
from recipes.line.contenders import Contender
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import Locking
from recipes.line.loss_monitor import DELETED, WRITTEN_OVER
from recipes.line.own_data import OwnData, WrittenOverError
from recipes.line.position import every_contender
from recipes.line.readers import READ_PREFIX, WRITE_PREFIX, is_writer
from recipes.line.refusals import pause
from recipes.line.sight import Sight
from recipes.line.strangers import is_ticket, no_tickets, strangers_of
from recipes.line.ticket import Ticket
from zkwire import ACL, Client, Node, Transaction, join_path, validate_path

# With prefer="readers", writers queue below this node before they take a ticket.  Its name has no sequence number, so
# that no client takes the node itself for a ticket.
_GATE: Final = "writers"
# A writer writes into its ticket once: when it lets readers in.
_PROOFS: Final = 1

Preference = Literal["readers", "writers"]


class WriteLease(Lease):
    """A lease of the write lock: no other lease, for reading or writing, is held at the same time.

    It has all that Lease has; `downgrade` turns it into a read lease.
    """

    __slots__ = ("_data", "_holders", "_is_exclusive", "_own_data")

    def __init__(self, zk: Client, ticket: Ticket, holders: Holders, data: bytes) -> None:
        self._is_exclusive = True
        self._holders = holders
        self._data = data
        self._own_data = OwnData(zk, ticket)
        super().__init__(zk, ticket)

    async def downgrade(self) -> Lease:
        """Let readers in, and return the read lease that replaces this lease; no writer holds the lock in between.

        The ticket's node stays, with its token and its position ahead of all waiting writers; only its data changes.
        The readers that wait between this ticket and the next writer hold the lock at once.  Clients that do not know
        this data, for example Curator, still see a writer.

        As soon as `downgrade` is called, this lease is not certain any more.  After `downgrade` has returned, release
        the read lease; releasing this lease does nothing.  Inside `async with rw.write() as lease` the body continues
        under the read lease: its loss cancels the body, and the end of the body releases it.  A MultiLease that
        contains this lease contains the read lease from then on.
        Raises: LockLostError; RuntimeError when this lease was released or downgraded; other errors of the server.
        Cancellation: readers may have been let in or not, so this lease stays uncertain.  It is still the lease to
        release (at the end of its body, if it has one), and `downgrade` may be called again.
        Requests: setData, and a getData for each reader that waits.
        """
        if self.is_released:
            self.check()
        if self._seconds_left() <= 0:
            raise copy(self._lose(self._why_uncertain()))
        # Before the request is sent: a reader may hold the lock as soon as the server has the data, which is before we
        # have the answer.
        self._is_exclusive = False
        await self._write_shared()
        if self._loss is not None:
            raise copy(self._loss)
        if self.is_released:
            raise RuntimeError(f"the lock node {self.path} was released while it was downgraded")
        self._finish()
        lease = Lease(self._zk, self.ticket)
        self._become(lease)
        self._holders.replace(self, lease)
        return lease

    def certain_for(self) -> float:
        """Return the same as Lease.certain_for, but 0 as soon as `downgrade` was called."""
        return super().certain_for() if self._is_exclusive else 0.0

    def check(self) -> None:
        """Do the same as Lease.check.  Raises: also RuntimeError when `downgrade` was called."""
        self._check_exclusive()
        super().check()

    def guard(self, transaction: Transaction) -> None:
        """Do the same as Lease.guard.  Raises: RuntimeError when `downgrade` was called."""
        self._check_exclusive()
        super().guard(transaction)

    def _check_exclusive(self) -> None:
        if not self._is_exclusive and self._loss is None:
            raise RuntimeError(f"the write lease of {self.path} was downgraded: readers may hold the lock too")

    async def _write_shared(self) -> None:
        """Write into the ticket's node that readers may hold the lock too; return early if the lease is over."""
        while not self.is_over:
            try:
                await self._own_data.write(self._shared_data)
            except zkwire.ConnectionLostError:
                continue  # the next try finds out whether it was carried out
            except WrittenOverError:
                self._lose(WRITTEN_OVER)
            except zkwire.NoNodeError:
                self._lose(DELETED)
            except zkwire.SessionError as error:
                self._lose(str(error))
            except zkwire.ServerError as error:
                if error.is_transient:
                    await pause()
                elif not self.is_over:
                    raise
            else:
                return

    def _shared_data(self, version: int) -> bytes | None:
        """Return the data that lets readers in, None if it has been written already."""
        proofs = self.ticket.node.proofs
        proof = None if proofs is None else proofs.proof(version)
        return None if proof is None else ticket_data.shared(proof, self._data)


class Holders:
    """The leases of one ReadWriteLock object, by the task that has acquired them.

    With it a task that asks again gets an answer or an error at once, instead of waiting for itself.
    """

    def __init__(self) -> None:
        self._leases: WeakKeyDictionary[asyncio.Task[Any], Lease] = WeakKeyDictionary()

    def of_current_task(self) -> Lease | None:
        """Return the lease that the current task has acquired, if it is neither released nor lost."""
        task = current_task()
        lease = self._leases.get(task)
        if lease is not None and lease.is_over:
            del self._leases[task]
            return None
        return lease

    def add(self, lease: Lease) -> None:
        """Record that the current task has acquired `lease`."""
        self._leases[current_task()] = lease

    def replace(self, old: Lease, new: Lease) -> None:
        """Record that `new` has replaced `old`, in whichever task holds it."""
        for task, lease in list(self._leases.items()):
            if lease is old:
                self._leases[task] = new


class _PreferredTickets:
    """The tickets that a client lets pass before it takes a ticket of its own.

    Nodes that are not ephemeral are no tickets and do not count.
    Arguments: `is_preferred`, called with the name of a ticket; `ignores_shared`, whether the ticket of a writer that
    has let readers in does not count.
    """

    def __init__(
        self, zk: Client, path: str, is_preferred: Callable[[str], bool], *, ignores_shared: bool = False
    ) -> None:
        self._zk = zk
        self._path = path
        self._is_preferred = is_preferred
        self._ignores_shared = ignores_shared
        self._strangers = strangers_of(zk, path)

    async def wait_until_gone(self) -> None:
        """Return when no preferred ticket is left.

        It watches only the last one, and lists the tickets again when that one is gone: not one request for each
        ticket that leaves.  If it must not read that one, it watches the children instead.
        Cancellation: no watch stays.
        """
        ignored: set[str] = set()
        while True:
            try:
                found = await self._found(ignored)
                if not found:
                    return
                last = found[0]
                try:
                    node, watch = await self._zk.get_and_watch(join_path(self._path, last))
                except zkwire.NoAuthError:
                    await self._wait_unread(last)
                    continue
                if await self._ignores(node, found, ignored):
                    watch.cancel()
                else:
                    await watch
            except zkwire.NoNodeError:
                pass  # the ticket has gone since the list was read
            except zkwire.ServerError as error:
                if not error.is_transient:
                    raise
                await pause()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)

    async def are_gone(self) -> bool:
        """Return whether there is no preferred ticket at this moment.

        The looks come after a sync: a ticket that has left before this call is not seen.
        """
        ignored: set[str] = set()
        is_synced = False
        while True:
            try:
                if not is_synced:
                    await self._zk.sync(self._path)
                    is_synced = True
                found = await self._found(ignored)
                if not found:
                    return True
                try:
                    node = await self._zk.get(join_path(self._path, found[0]))
                except zkwire.NoAuthError:
                    return False
                if not await self._ignores(node, found, ignored):
                    return False
            except zkwire.NoNodeError:
                pass  # the ticket has gone since the list was read
            except zkwire.ServerError as error:
                if not error.is_transient:
                    raise
                await pause()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)

    async def _wait_unread(self, name: str) -> None:
        """Return when the children have changed, if `name`, which this client must not read, is still among them."""
        self._strangers.found_unreadable(join_path(self._path, name))
        names, watch = await self._zk.get_children_and_watch(self._path)
        if name in names:
            await watch
        else:
            watch.cancel()

    async def _found(self, ignored: set[str]) -> list[str]:
        """Return the names of the preferred tickets that are not in `ignored`, the last one first."""
        try:
            names, stat = await self._zk.get_children_and_stat(self._path)
        except zkwire.NoNodeError:
            return []
        preferred = [name for name in names if self._is_preferred(name) and name not in ignored]
        return in_order(preferred, next_number(stat))[::-1]

    async def _ignores(self, node: Node, found: list[str], ignored: set[str]) -> bool:
        """Return whether the first of `found`, which was read as `node`, does not count; add such ones to `ignored`."""
        name, *others = found
        if not is_ticket(node.stat):
            self._strangers.found_no_ticket(join_path(self._path, name))
            ignored.update(await no_tickets(self._zk, self._path, others))
        else:
            written = ticket_data.parse(name, node.data, node.stat.version)
            if not (self._ignores_shared and written is not None and written.is_shared):
                return False
        ignored.add(name)
        return True


class _ReadLock(Locking[Lease]):
    """The lock that `ReadWriteLock.read` returns.

    Arguments: `preferred`, the tickets to let pass before taking one, None if no ticket is preferred.
    """

    _noun = "read lock"

    def __init__(self, zk: Client, line: Line, holders: Holders, preferred: _PreferredTickets | None) -> None:
        super().__init__(zk, line.path)
        self._line = line
        self._holders = holders
        self._preferred = preferred

    async def _acquire(self, sight: Sight | None = None) -> Lease:
        again = self._acquired_again()
        if again is not None:
            return again
        if self._preferred is not None:
            await self._preferred.wait_until_gone()
        return self._lease_of(await self._line.acquire(sight))

    async def _try_acquire(self, sight: Sight | None = None) -> Lease | None:
        again = self._acquired_again()
        if again is not None:
            return again
        if self._preferred is not None and not await self._preferred.are_gone():
            return None
        ticket = await self._line.try_acquire(sight)
        return None if ticket is None else self._lease_of(ticket)

    def _acquired_again(self) -> Lease | None:
        """Return the read lease that the current task holds already, counted once more; None if it holds none.

        Without this a task would deadlock with itself: its second ticket would wait for a writer in between, and that
        writer for the task's first ticket.
        """
        held = self._holders.of_current_task()
        if isinstance(held, WriteLease):
            raise RuntimeError(
                f"this task holds the write lock {self.path}, and would wait for itself: to continue as a reader, call "
                f"downgrade() of that lease"
            )
        if held is not None:
            held.acquired_again()
        return held

    def _lease_of(self, ticket: Ticket) -> Lease:
        lease = Lease(self._zk, ticket)
        self._holders.add(lease)
        return lease


class _WriteLock(Locking[WriteLease]):
    """The lock that `ReadWriteLock.write` returns.

    Arguments: `preferred`, the tickets to let pass before taking one, and `gate`, the line in which writers queue for
    that; both None if no ticket is preferred.
    """

    _noun = "write lock"

    def __init__(
        self,
        zk: Client,
        line: Line,
        holders: Holders,
        data: bytes,
        preferred: _PreferredTickets | None,
        gate: Line | None,
    ) -> None:
        super().__init__(zk, line.path)
        self._line = line
        self._holders = holders
        self._data = data
        self._preferred = preferred
        self._gate = gate

    async def _acquire(self, sight: Sight | None = None) -> WriteLease:
        self._check_not_held()
        if self._preferred is None or self._gate is None:
            return self._lease_of(await self._line.acquire(sight))
        # Only the first writer at the gate watches the line.  If all waiting writers did, the departure of the last
        # ticket would wake them all, and they would take their tickets in no particular order.
        at_gate = await self._gate.acquire()
        try:
            await self._preferred.wait_until_gone()
            return self._lease_of(await self._line.acquire(sight))
        finally:
            self._gate.leave(at_gate)

    async def _try_acquire(self, sight: Sight | None = None) -> WriteLease | None:
        self._check_not_held()
        if self._preferred is not None and not await self._preferred.are_gone():
            return None
        ticket = await self._line.try_acquire(sight)
        return None if ticket is None else self._lease_of(ticket)

    def _check_not_held(self) -> None:
        """Raise RuntimeError when the current task holds a lease of this lock: its new ticket would wait for it."""
        held = self._holders.of_current_task()
        if held is not None:
            what = "write" if isinstance(held, WriteLease) else "read"
            raise RuntimeError(
                f"this task holds the {what} lock {self.path}, and would wait for itself: release that lease before "
                f"acquiring the write lock"
            )

    def _lease_of(self, ticket: Ticket) -> WriteLease:
        lease = WriteLease(self._zk, ticket, self._holders, self._data)
        self._holders.add(lease)
        return lease


class ReadWriteLock:
    """A fair lock that any number of readers hold together, or one writer alone.

        rw = ReadWriteLock(zk, "/locks/catalogue")
        async with rw.read() as lease: ...                            # together with other readers
        async with rw.write() as lease: ...                           # alone
            await lease.downgrade(); ...                              # from here on together with readers

    `read` and `write` return locks that are used like a Lock, with leases like those of a Lock.

    Arguments: `path`, `data` and `acl`, the same as those of Lock; `prefer`, None, "readers" or "writers".
    Order: by tickets; each task has a ticket of its own.  `prefer` decides when a client takes its ticket:
    - None: at once.  Readers and writers are served in the order in which they came; readers whose tickets follow each
      other hold the lock together.
    - "readers": a writer waits until the line is empty, and takes its ticket only then.
    - "writers": a reader takes its ticket only when no writer is in the line.
    With a preference, the clients that wait outside the line may starve: they wait as long as preferred ones keep
    coming.  The preference is the policy of each client, and safety does not depend on it: clients with different
    preferences, and Curator's read/write lock, may use one path.
    Requests: uncontended, the same as Lock: two round trips for acquire and release.  With prefer="writers" a reader
    sends one getChildren2 more.  With prefer="readers" a writer sends that too, and a create, a getChildren and a
    delete for a second ticket below `path`/writers.
    Raises: ValueError, TypeError.  Acquiring raises also RuntimeError, and sends nothing, when the task would wait for
    itself: when it holds the read lock and asks for the write lock, or holds the write lock and asks for either one.
    A task that holds the read lock and asks for it again gets the same lease, counted, without a request.  "The task"
    is the one in which `acquire` runs: use `within` to bound the wait, because asyncio.wait_for runs `acquire` in
    another task on Python 3.11.
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
        self.path = validate_path(path)
        if prefer not in (None, "readers", "writers"):
            raise ValueError(f'prefer must be None, "readers" or "writers", not {prefer!r}')
        data = or_in_words(data)
        holders = Holders()
        # ahead=0: readers that wait for one writer watch that writer only.  A watch on the writer before it would wake
        # them all for nothing.
        reads = Line(zk, path, prefix=READ_PREFIX, blocks=is_writer, ahead=0, ignores_shared=True, data=data, acl=acl)
        writes = Line(zk, path, prefix=WRITE_PREFIX, data=data, acl=acl, proofs=_PROOFS)
        before_reading = _PreferredTickets(zk, path, is_writer, ignores_shared=True) if prefer == "writers" else None
        # The writer waits for the tickets of other writers too: if it queued behind a writer that holds the lock, its
        # ticket would block the readers that come meanwhile.
        before_writing = _PreferredTickets(zk, path, every_contender) if prefer == "readers" else None
        gate = Line(zk, join_path(path, _GATE), acl=acl, container=path) if prefer == "readers" else None
        self._read_lock = _ReadLock(zk, reads, holders, before_reading)
        self._write_lock = _WriteLock(zk, writes, holders, data, before_writing, gate)

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
