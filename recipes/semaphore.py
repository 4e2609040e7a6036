"""The semaphore: a waiting line whose first tickets hold at the same time, as many as the permits allow.

A ticket takes one permit, or several, as its name says: so every list shows what each ticket takes.
The number of permits is the data of the semaphore's node, as a decimal number.  Every waiting ticket watches that node.
`recipes.line` makes sure that all tickets apply the same number at the same point of the node's history.  The node is
a container; once it was resized, a persistent child keeps the server from deleting it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import zkwire
from recipes.common.checks import check_number, checked_within
from recipes.common.retrying import read_synced, until_answered
from recipes.line.contenders import Contender, look
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import Hold, LineLock
from recipes.line.ticket import Ticket
from recipes.line.waiting import Rules
from zkwire import ACL, OPEN_ACL, Client, GetData, Node, join_path, validate_path

PREFIX: Final = "lease-"  # Curator's
MOST_PERMITS: Final = 2**31 - 1
# A persistent child of a semaphore that was resized.  The server deletes a container when its last child has gone, and
# would delete the number with it: an operator's throttle would end by itself.  The name has no sequence number, so that
# no client takes the node for a ticket.
_RESIZED: Final = "resized"


class PermitsError(ValueError):
    """The semaphore's node has another number of permits than was given, or no number, or less than is wanted at once.

    Attributes:
        path: The semaphore's node.
        asked: The number that was given; None if the stored one was wanted.
        stored: The data of the node; None when there is no node, or it was not read.
        at_once: How many permits were wanted at once, if they are too many; otherwise None.
    """

    def __init__(self, path: str, asked: int | None, stored: bytes | None, at_once: int | None = None) -> None:
        super().__init__(path, asked, stored, at_once)  # and not the text: a copy is made by them
        self.path = path
        self.asked = asked
        self.stored = stored
        self.at_once = at_once

    def __str__(self) -> str:
        number = self.stored.decode(errors="replace") if self.stored else str(self.asked)
        has = f"the semaphore {self.path} has {number} permit{'' if number == '1' else 's'}"
        if self.at_once is not None:
            return f"{has}, and {self.at_once} at once are wanted: want fewer, or change the number with resize"
        if not self.stored:
            return f"the semaphore {self.path} has no number of permits yet: give one"
        if parse_permits(self.stored) is None:
            return f"the node {self.path} is not a semaphore: its data, {self.stored[:40]!r}, is no number of permits"
        return f"{has}, not {self.asked}: give that number, or None to use the stored one, or change it with resize"


class _NoNumberError(Exception):
    """The semaphore's node has no data, and we have a number to write into it."""


def checked_permits(permits: int) -> int:
    """Return `permits` if it is a valid number of permits.

    Raises:
        TypeError: if it is not a whole number.
        ValueError: if it is less than 1 or too large.
    """
    check_number(f"permits must be a whole number from 1 to {MOST_PERMITS}", permits, 1, MOST_PERMITS)
    return permits


def parse_permits(data: bytes) -> int | None:
    """Return the number of permits that `data` contains, None if it contains none."""
    return int(data) if data.isdigit() and len(data) <= 10 and 1 <= int(data) <= MOST_PERMITS else None


class _Permits(LineLock[Lease]):
    """So many permits of a semaphore at once, by one ticket of `line`.

    Args:
        count: How many.
        store: Stores the semaphore's number if it has none.
    """

    _noun = "semaphore"

    def __init__(self, zk: Client, line: Line, store: Callable[[], Awaitable[None]], count: int = 1) -> None:
        super().__init__(zk, line)
        if count > 1:
            self._described += f", asked for {count} permits at once,"
        self._store = store

    def _lease(self, ticket: Ticket) -> Lease:
        return Lease(self._zk, ticket)

    async def _acquire(self) -> Lease:
        while True:
            try:
                return await super()._acquire()
            except _NoNumberError:
                await self._store()

    async def _try_acquire(self) -> Lease | None:
        while True:
            try:
                return await super()._try_acquire()
            except _NoNumberError:
                await self._store()


class Semaphore(_Permits):
    """A lock that up to `permits` leases hold at the same time, in the order of their tickets.

    ::

        semaphore = Semaphore(zk, "/limits/export", 3)
        async with semaphore as lease: ...                       # one of three; all forms of Lock work
        async with semaphore.hold(permits=2) as lease: ...       # two at once, or none
        await semaphore.resize(5)                                # for all clients, from now on

    All clients must agree on the number of permits.  It is stored in the semaphore's node by the first client.

    Args:
        path: The semaphore's node, created as a container if it is missing.
        permits: The number; None to use the stored one.
        data: The same as in Lock, as for `acl`.

    Raises:
        PermitsError: from acquiring and resizing, when the stored number is not the one that was given; no ticket
            stays.  After the first agreement an object follows every later `resize`.

    Order:
        By tickets.  Every acquire takes a ticket of its own, also when tasks share this object.  A ticket that wants
        several permits keeps later ones waiting, so it gets them however many want one.

    Requests:
        Uncontended, two round trips for acquire and release, as for Lock, with one getData more.
    """

    def __init__(
        self, zk: Client, path: str, permits: int | None, *, data: bytes | None = None, acl: Sequence[ACL] | None = None
    ) -> None:
        if permits is not None:
            checked_permits(permits)
        self._given = permits  # None after a resize, too: then every number is followed
        self._permits = permits  # after the first agreement, the number last read
        self._agreed_with: int | None = None  # the czxid of the node
        self._acl = OPEN_ACL if acl is None else acl

        def line(prefix: str, slots: Callable[[Node], int]) -> Line:
            return Line(
                zk,
                validate_path(path),
                prefix=prefix,
                rules=lambda known: Rules(known, slots=slots),
                parent_data=self._initial_data,
                data=data,
                acl=acl,
                creates_at_once=permits is not None,  # without a number the node cannot be created
            )

        self._line_of = line
        super().__init__(zk, line(PREFIX, self._agreed_permits), self._store_permits)

    def hold(self, *, within: float | None = None, permits: int = 1) -> Hold[Lease]:
        """Return a context manager that acquires `permits` permits at once, and releases them at the end.

        It does what Lock's does.
        """
        checked_within(within)
        return Hold(partial(self.acquire, within=within, permits=checked_permits(permits)))

    async def acquire(self, *, within: float | None = None, permits: int = 1) -> Lease:
        """Wait for `permits` permits, all at once or none, and return the lease, whose release gives all of them back.

        It is served in the order of the tickets: while it waits, no later ticket gets a permit.

        Args:
            within: The same as in Lock.
            permits: How many; 1 costs no request more than a Lock's acquire and one getData, nor does any other number.

        Raises:
            PermitsError: if the semaphore has less permits, at once or when it is resized during the wait.

        What Lock's acquire raises is raised, too, and cancellation is the same.
        """
        if checked_permits(permits) == 1:
            return await super().acquire(within=within)
        lease = await self._at_once(permits).acquire(within=within)
        self._latest = lease
        return lease

    async def try_acquire(self, *, permits: int = 1) -> Lease | None:
        """Return the lease if so many permits are free at this moment, and no ticket waits; None otherwise.

        Errors are those of `acquire`, without TimeoutError, and cancellation and requests those of Lock's try.
        """
        if checked_permits(permits) == 1:
            return await super().try_acquire()
        lease = await self._at_once(permits).try_acquire()
        self._latest = lease or self._latest
        return lease

    def _at_once(self, permits: int) -> _Permits:
        self._check_usable()
        if self._agreed_with is None and permits > (self._given or permits):
            raise PermitsError(self.path, self._permits, None, permits)

        def slots(node: Node) -> int:
            stored = self._agreed_permits(node)
            if stored < permits:
                raise PermitsError(self.path, self._permits, node.data, permits)
            return stored - permits + 1  # fewer blockers may hold beside it than beside a ticket for one

        return _Permits(self._zk, self._line_of(f"permits-{permits}-{PREFIX}", slots), self._store_permits, permits)

    async def resize(self, permits: int) -> None:
        """Set the number of permits to `permits` for all clients.

        With more permits, waiting tickets get in at once.  With fewer, no lease is lost: the present holders finish,
        and no ticket gets in until fewer than `permits` of them are left.
        Semaphore objects that have acquired before follow; new ones must be given the new number, or None.  The node
        is created if it is missing.  The number stays also while no ticket exists: the persistent node `path`/resized
        keeps it.  To give the number up, delete that node: the server then deletes the semaphore when it is empty.

        Raises:
            PermitsError: if the number that was given to this object is not the stored one.
            ValueError: if `permits` is less than 1 or too large.
            SessionClosedError: if the client is closed.
            SessionExpiredError: if the client does not renew its session.
            ServerError: if the server refuses a request for good.

        Cancellation:
            The number may have been changed or not.

        Order:
            Of two concurrent calls, the last one at the server wins.

        Requests:
            sync, two getData and a multi, and one getData for each waiting ticket.
        """
        checked_permits(permits)
        self._check_usable()
        wanted, keeping_it = b"%d" % permits, join_path(self.path, _RESIZED)
        # Once a write of ours was tried, the wanted number in the node may be ours (the answer was lost), and is no
        # disagreement with the number that was given.
        has_tried = False

        async def store() -> None:
            nonlocal has_tried
            # After a sync: a server that lags would show an old number, which need not agree with ours.
            node, resized = await read_synced(self._zk, self.path, GetData(self.path), GetData(keeping_it))
            for answer in (node, resized):
                if not isinstance(answer, Node | zkwire.NoNodeError):
                    raise answer
            # One transaction: between two requests the server may delete the container, because it is empty.
            transaction = self._zk.transaction()
            if isinstance(node, Node):
                if node.data and not (has_tried and node.data == wanted):
                    self._agreed_permits(node)
                transaction.set(self.path, wanted, node.stat.version)
            else:
                await self._zk.ensure_path(self.path.rpartition("/")[0] or "/", acl=self._acl)
                transaction.create(self.path, wanted, container=True, acl=self._acl)
            if not isinstance(resized, Node):
                transaction.create(keeping_it, acl=self._acl)
            has_tried = True
            try:
                await transaction.commit()
            except zkwire.TransactionError as refused:
                raise refused.cause from None

        while True:
            # Refused like this, if another client has changed the node: read it again.
            with suppress(zkwire.BadVersionError, zkwire.NodeExistsError, zkwire.NoNodeError):
                await until_answered(self._zk, store, repeats=True)
                self._permits, self._given = permits, None
                return

    async def _look(self) -> list[Contender]:
        """Return the contenders; after a resize to fewer permits, a holder beyond the new number counts as waiting."""
        return await look(self._zk, self.path, lambda data: parse_permits(data) or self._permits or 0)

    def _agreed_permits(self, node: Node) -> int:
        """Return the number of permits that the `node` contains, once it agrees with the number given.

        Raises:
            PermitsError: if it does not agree, or is not a number.
            _NoNumberError: if we have to write the number.
        """
        if not node.data:
            raise PermitsError(self.path, None, node.data) if self._permits is None else _NoNumberError
        stored = parse_permits(node.data)
        # After the first agreement another number of this node comes from a resize, which every object follows.
        if stored is None or (self._given not in (None, stored) and node.stat.czxid != self._agreed_with):
            raise PermitsError(self.path, self._given, node.data)
        self._permits, self._agreed_with = stored, node.stat.czxid
        return stored

    def _initial_data(self) -> bytes:
        """Return the data to create the node with.

        Raises:
            PermitsError: if no number was given.
        """
        if self._permits is None:
            raise PermitsError(self.path, None, None)
        return b"%d" % (self._given or self._permits)

    async def _store_permits(self) -> None:
        """Write our number into the node, which another client has created without one; the caller reads it again."""

        async def store() -> None:
            node = await self._zk.get(self.path)
            if not node.data:
                # With the version, so that the first of several clients wins and the others see its number.
                await self._zk.set(self.path, self._initial_data(), node.stat.version)

        with suppress(zkwire.NoNodeError, zkwire.BadVersionError):
            await until_answered(self._zk, store, repeats=True)
