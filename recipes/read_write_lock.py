"""The read/write lock: readers hold together, a writer alone, all in one line of tickets.

What blocks whom is the line's affair alone, so that it is safe whatever is preferred: a preference only says when a
ticket may be taken, and whoever waits for that stands outside of the line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

import zkwire
from recipes.common import lost_answers
from recipes.common.arguments import current_task
from recipes.common.waiting import raise_unless_renewed
from recipes.line import ticket_data
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import Locking
from recipes.line.loss_monitor import DELETED
from recipes.line.position import every_contender
from recipes.line.ticket import Ticket
from zkwire import ACL, OPEN_ACL, Client, GetData, Node, Transaction, join_path, validate_path

READ_PREFIX: Final = "__READ__"  # both are Curator's
WRITE_PREFIX: Final = "__WRIT__"
_READERS: Final = (READ_PREFIX, "__rlock__")  # kazoo's as well
_GATE: Final = "writers"  # no number: it is nobody's ticket

Preference = Literal["readers", "writers"]


def is_writer(name: str) -> bool:
    """Whether the ticket `name` is a writer's: every one that is not known for a reader's."""
    return not any(reader in name for reader in _READERS)


class WriteLease(Lease):
    """A lease of the write lock: nobody else reads or writes; as Lease, and it may become a read lease."""

    __slots__ = ("_data", "_holders", "_is_exclusive")

    def __init__(self, zk: Client, ticket: Ticket, holders: Holders, data: bytes) -> None:
        self._is_exclusive = True
        self._holders = holders
        self._data = data
        super().__init__(zk, ticket)

    async def downgrade(self) -> Lease:
        """Let readers in, and return the read lease that takes the place of this one; no writer comes in between.

        The lock's node stays, and with it the token and the place ahead of every writer that waits; only its data says
        from now on that readers pass.  Readers that stand before the next writer own at once.  Clients that do not know
        this, Curator for one, go on seeing a writer.

        From the call on this lease certifies nothing, and once it has returned, releasing this one does nothing: it is
        the read lease that is to be released.  Inside of `async with rw.write() as lease` the body goes on under the
        read lease, whose loss cancels it, and which its end releases.  So does a MultiLease that this one belongs to.
        Raises: LockLostError; RuntimeError when it was released or downgraded; what else the server refuses.
        Cancellation: readers may or may not be let in, so that this certifies nothing any more; it is this one
        that is to be released then (by the end of its body, if it has one), or downgraded again.
        Requests: setData, and getData for each reader that waits.
        """
        if self.is_released:
            self.check()
        if self._seconds_left() <= 0:
            raise self._lose(self._why_uncertain())
        self._is_exclusive = False
        await self._mark()
        if self.is_over:
            raise self._loss or RuntimeError(f"the lock node {self.path} was released while it was downgraded")
        self._finish()
        lease = Lease(self._zk, self.ticket)
        self._become(lease)
        self._holders.replace(self, lease)
        return lease

    def certain_for(self) -> float:
        """As Lease.certain_for; 0 from the beginning of a downgrade on."""
        return super().certain_for() if self._is_exclusive else 0.0

    def check(self) -> None:
        """As Lease.check.  Raises: RuntimeError also when it was downgraded."""
        self._check_exclusive()
        super().check()

    def guard(self, transaction: Transaction) -> None:
        """As Lease.guard.  Raises: RuntimeError when it was downgraded."""
        self._check_exclusive()
        super().guard(transaction)

    def _check_exclusive(self) -> None:
        if not self._is_exclusive and self._loss is None:
            raise RuntimeError(f"the write lease of {self.path} was downgraded: readers may hold it too")

    async def _mark(self) -> None:
        """Have the node say that readers pass, unless the lease is lost."""
        version, data = 0, self._data
        while not self.is_over:
            try:
                await self._zk.set(self.path, ticket_data.shared(data), version)
            except (zkwire.ConnectionLostError, zkwire.BadVersionError):
                # Carried out perhaps, or somebody has written there.
                answers = await self._asked(lost_answers.read(self._zk, self.path, GetData(self.path)))
                node: Node | None = lost_answers.result(answers[0])
                if node is None:
                    raise self._lose(DELETED) from None
                mark = ticket_data.parse(node.data, node.stat.version)
                if mark is not None and mark.is_shared:
                    return
                version, data = node.stat.version, node.data
            except zkwire.NoNodeError:
                raise self._lose(DELETED) from None
            except zkwire.SessionError as error:
                raise self._lose(str(error)) from None
            else:
                return

    async def _asked(self, asked: Any) -> Any:
        try:
            return await asked
        except zkwire.SessionError as error:
            raise self._lose(str(error)) from None


class Holders:
    """Which task of this process holds which lease of one read/write lock."""

    def __init__(self) -> None:
        self._leases: WeakKeyDictionary[asyncio.Task[Any], Lease] = WeakKeyDictionary()

    def mine(self) -> Lease | None:
        """The lease that the task that runs has acquired, and neither released nor lost."""
        task = current_task()
        lease = self._leases.get(task)
        if lease is not None and lease.is_over:
            del self._leases[task]
            return None
        return lease

    def add(self, lease: Lease) -> None:
        """Take note that the task that runs has acquired `lease`."""
        self._leases[current_task()] = lease

    def replace(self, old: Lease, new: Lease) -> None:
        """Take note that `new` has taken the place of `old`."""
        for task, lease in list(self._leases.items()):
            if lease is old:
                self._leases[task] = new


class _Outside:
    """Where whoever leaves others the precedence waits, before it takes a ticket.

    Arguments: `yields_to`, whose tickets those are; `is_sharing`, whether a writer that has let readers in is none.
    """

    def __init__(self, zk: Client, path: str, yields_to: Callable[[str], bool], *, is_sharing: bool = False) -> None:
        self._zk = zk
        self._path = path
        self._yields_to = yields_to
        self._is_sharing = is_sharing

    async def wait(self) -> None:
        """Return when nobody is there.  It watches the last one only, and looks again when that has gone.

        Cancellation: leaves no watch.
        """
        shared: set[str] = set()
        while True:
            try:
                last = await self._last(shared)
                if last is None:
                    return
                node, watch = await self._zk.get_and_watch(join_path(self._path, last))
                if self._is_shared(node):
                    shared.add(last)
                    watch.cancel()
                else:
                    await watch
            except zkwire.NoNodeError:
                pass
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)

    async def is_empty(self) -> bool:
        """Return whether nobody is there at this moment."""
        shared: set[str] = set()
        while True:
            try:
                last = await self._last(shared)
                if last is None:
                    return True
                if not self._is_sharing or not self._is_shared(await self._zk.get(join_path(self._path, last))):
                    return False
                shared.add(last)
            except zkwire.NoNodeError:
                pass
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)

    async def _last(self, shared: set[str]) -> str | None:
        try:
            names = await self._zk.get_children(self._path)
        except zkwire.NoNodeError:
            return None
        last: tuple[int, str] | None = None
        for name in names:
            number = zkwire.sequence(name)
            if number is None or name in shared or not self._yields_to(name):
                continue
            if last is None or zkwire.sequence_distance(number, last[0]) > 0:
                last = number, name
        return None if last is None else last[1]

    def _is_shared(self, node: Node) -> bool:
        mark = ticket_data.parse(node.data, node.stat.version)
        return self._is_sharing and mark is not None and mark.is_shared


class _Reading(Locking[Lease]):
    """What `ReadWriteLock.read` returns."""

    _noun = "read lock"

    def __init__(self, zk: Client, line: Line, holders: Holders, outside: _Outside | None) -> None:
        super().__init__(zk, line.path)
        self._line = line
        self._holders = holders
        self._outside = outside

    async def _acquire(self) -> Lease:
        again = self._again()
        if again is not None:
            return again
        if self._outside is not None:
            await self._outside.wait()
        return self._leased(await self._line.acquire())

    async def _try_acquire(self) -> Lease | None:
        again = self._again()
        if again is not None:
            return again
        if self._outside is not None and not await self._outside.is_empty():
            return None
        ticket = await self._line.try_acquire()
        return None if ticket is None else self._leased(ticket)

    def _again(self) -> Lease | None:
        held = self._holders.mine()
        if isinstance(held, WriteLease):
            raise RuntimeError(
                f"this task holds the write lock {self.path}, and would wait for itself: to go on as a reader, call "
                f"downgrade() of that lease"
            )
        if held is not None:
            held.acquired_again()
        return held

    def _leased(self, ticket: Ticket) -> Lease:
        lease = Lease(self._zk, ticket)
        self._holders.add(lease)
        return lease


class _Writing(Locking[WriteLease]):
    """What `ReadWriteLock.write` returns.

    Arguments: `gate`, the line in which writers wait for their turn outside, one of them looking.
    """

    _noun = "write lock"

    def __init__(
        self, zk: Client, line: Line, holders: Holders, data: bytes, outside: _Outside | None, gate: Line | None
    ) -> None:
        super().__init__(zk, line.path)
        self._line = line
        self._holders = holders
        self._data = data
        self._outside = outside
        self._gate = gate

    async def _acquire(self) -> WriteLease:
        self._check_not_held()
        if self._outside is None or self._gate is None:
            return self._leased(await self._line.acquire())
        at_gate = await self._gate.acquire()
        try:
            await self._outside.wait()
            return self._leased(await self._line.acquire())
        finally:
            self._gate.leave(at_gate)

    async def _try_acquire(self) -> WriteLease | None:
        self._check_not_held()
        if self._outside is not None and not await self._outside.is_empty():
            return None
        ticket = await self._line.try_acquire()
        return None if ticket is None else self._leased(ticket)

    def _check_not_held(self) -> None:
        held = self._holders.mine()
        if held is not None:
            what = "write" if isinstance(held, WriteLease) else "read"
            raise RuntimeError(
                f"this task holds the {what} lock {self.path}, and would wait for itself: release that lease before it "
                f"asks for the write lock"
            )

    def _leased(self, ticket: Ticket) -> WriteLease:
        lease = WriteLease(self._zk, ticket, self._holders, self._data)
        self._holders.add(lease)
        return lease


class ReadWriteLock:
    """A lock that many hold for reading or one for writing: fair, in the order of the tickets.

        rw = ReadWriteLock(zk, "/locks/catalogue")
        async with rw.read() as lease: ...                            # beside other readers
        async with rw.write() as lease: ...                           # alone
            await lease.downgrade(); ...                              # readers come in, no writer does

    Arguments: `path`, as of Lock; `prefer`, None: whoever came first is served first, readers that stand next to each
    other together; "readers": a writer waits until nobody stands in the line, and only then takes its ticket;
    "writers": a reader takes its ticket only when no writer stands in the line; `data`, `acl`, as of Lock.
    Order: by tickets; each task has one of its own.  With a preference, those who yield get theirs late, and for ever
    late if those to whom they yield do not cease to come.  It is each client's own policy: safety is the line's
    alone, so that clients with different ones, and Curator's read/write lock, may use one path.
    Raises: ValueError, TypeError; acquiring also RuntimeError, with nothing sent, where the task would wait for
    itself: it holds the read lock and asks for the write lock, or holds the write lock and asks for either.  A
    task that holds the read lock and asks for it again gets the same lease, counted, without a request.  The task is
    the one in which `acquire` runs: bound it with `within`, as asyncio.wait_for runs it in another one on Python 3.11.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        prefer: Preference | None = None,
        data: bytes = b"",
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> None:
        self.path = validate_path(path)
        if prefer not in (None, "readers", "writers"):
            raise ValueError(f'prefer is None, "readers" or "writers", not {prefer!r}')
        holders = Holders()
        reads = Line(zk, path, prefix=READ_PREFIX, blocks=is_writer, ahead=0, ignores_shared=True, data=data, acl=acl)
        writes = Line(zk, path, prefix=WRITE_PREFIX, data=data, acl=acl)
        before_reading = _Outside(zk, path, is_writer, is_sharing=True) if prefer == "writers" else None
        before_writing = _Outside(zk, path, every_contender) if prefer == "readers" else None
        gate = Line(zk, join_path(path, _GATE), acl=acl, container=path) if prefer == "readers" else None
        self._reading = _Reading(zk, reads, holders, before_reading)
        self._writing = _Writing(zk, writes, holders, data, before_writing, gate)

    def read(self) -> Locking[Lease]:
        """Return the read lock, to be used like a Lock: it is blocked by the writers before it, and by nobody else."""
        return self._reading

    def write(self) -> Locking[WriteLease]:
        """Return the write lock, to be used like a Lock: it is blocked by all before it."""
        return self._writing
