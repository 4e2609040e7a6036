"""The semaphore: a waiting line with several places at its head.

How many, is agreed through the data of the semaphore's own node, as a decimal number, which everybody who waits
follows.  That everybody counts by the same number at the same point of history is the line's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zkwire
from recipes.common.waiting import raise_unless_renewed
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import Locking
from zkwire import ACL, OPEN_ACL, Client, GetData, Sync, validate_path

PREFIX: Final = "lease-"  # Curator's
MOST_PERMITS: Final = 2**31 - 1


class PermitsError(ValueError):
    """The semaphore's number of permits is not what was asked for, or not to be had.

    Arguments: `path`, the semaphore's node; `asked`, the number that was given, None for whatever is stored; `stored`,
    the data of the node, None when there is no node.
    """

    def __init__(self, path: str, asked: int | None, stored: bytes | None) -> None:
        if stored is None or not stored:
            text = f"the semaphore {path} has no number of permits yet: give one"
        elif _number(stored) is None:
            text = f"the node {path} is no semaphore's: its data is {stored[:40]!r}, no number of permits"
        else:
            text = (
                f"the semaphore {path} has {stored.decode()} permits, not {asked}: give that number, or None to take "
                f"what is stored, or change it with resize"
            )
        super().__init__(text)
        self.path = path
        self.asked = asked
        self.stored = stored


class _UnwrittenError(Exception):
    """The node is there, and nobody has written a number into it."""


def checked_permits(permits: int) -> int:
    """Return `permits` if a semaphore can have so many.  Raises: TypeError, ValueError."""
    if isinstance(permits, bool) or not isinstance(permits, int):
        raise TypeError(f"permits is a whole number, not {permits!r}")
    if not 1 <= permits <= MOST_PERMITS:
        raise ValueError(f"permits is at least 1 and at most {MOST_PERMITS}, not {permits!r}")
    return permits


def _number(data: bytes) -> int | None:
    return int(data) if data.isdigit() and len(data) <= 10 and 1 <= int(data) <= MOST_PERMITS else None


class Semaphore(Locking[Lease]):
    """A lock that up to `permits` hold at a time, in the order of their tickets.

        async with Semaphore(zk, "/limits/export", 3) as lease: ...            # one of three; otherwise as Lock
        await semaphore.resize(5)

    Arguments: `path`, the semaphore's node, made as a container with the number as its data when it is missing;
    `permits`, how many may hold, which all must agree upon; None: what is stored there; `data`, `acl`, as of Lock.
    Raises: acquiring and resizing also PermitsError, a ValueError that names both numbers, when another number is
    stored than was given; no ticket stays.  Once it has agreed, an object follows every later `resize`.
    Order: by tickets.  Every acquire, of whatever task, stands in the line with a ticket of its own.
    """

    _noun = "semaphore"

    def __init__(
        self, zk: Client, path: str, permits: int | None, *, data: bytes = b"", acl: Sequence[ACL] = OPEN_ACL
    ) -> None:
        if permits is not None:
            checked_permits(permits)
        super().__init__(zk, validate_path(path))
        self._permits = permits  # what was given, and from the first agreement on what was last seen
        self._has_agreed = False
        self._acl = acl
        self._line = Line(
            zk, self.path, prefix=PREFIX, slots=self._agreed, parent_data=self._to_write, data=data, acl=acl
        )

    async def resize(self, permits: int) -> None:
        """Have `permits` hold from now on: more get in at once; with fewer, those who hold finish, and as many go
        before anybody else gets in.

        Every object at work follows; new ones must be given the new number, or None.  A semaphore that is not there is
        made.
        Raises: PermitsError, ValueError, TypeError; SessionClosedError; SessionExpiredError if the client renews no
        session; whatever else the server refuses.
        Cancellation: it may have happened or not.
        Order: of two at a time the last one stays.  Requests: getData, setData; and getData for each who waits.
        """
        checked_permits(permits)
        self._check_open()
        wanted = b"%d" % permits
        has_tried = False  # if so, the number that is wanted may be there by us, and need not be the one that was given
        while True:
            try:
                node = (await self._zk.pipeline([Sync(self.path), GetData(self.path)]))[1]
                if isinstance(node, zkwire.NoNodeError):
                    has_tried = True
                    await self._zk.create(self.path, wanted, container=True, make_parents=True, acl=self._acl)
                elif isinstance(node, BaseException):
                    raise node
                else:
                    if node.data and not (has_tried and node.data == wanted):
                        self._agreed(node.data)
                    has_tried = True
                    await self._zk.set(self.path, wanted, node.stat.version)
            except (
                zkwire.BadVersionError,
                zkwire.NodeExistsError,
                zkwire.NoNodeError,
                zkwire.ConnectionLostError,
            ):
                continue  # somebody else was at it, or it is not known whether it was carried out: look again
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
                continue
            self._permits, self._has_agreed = permits, True
            return

    async def _acquire(self) -> Lease:
        while True:
            try:
                return Lease(self._zk, await self._line.acquire())
            except _UnwrittenError:
                await self._write()

    async def _try_acquire(self) -> Lease | None:
        while True:
            try:
                ticket = await self._line.try_acquire()
            except _UnwrittenError:
                await self._write()
            else:
                return None if ticket is None else Lease(self._zk, ticket)

    def _agreed(self, data: bytes) -> int:
        """Return the number that the node's data tells.  Raises: PermitsError when it is not the one given."""
        if not data:
            raise PermitsError(self.path, None, data) if self._permits is None else _UnwrittenError
        stored = _number(data)
        if stored is None or (self._permits not in (None, stored) and not self._has_agreed):
            raise PermitsError(self.path, self._permits, data)
        self._permits, self._has_agreed = stored, True
        return stored

    def _to_write(self) -> bytes:
        """Return the data with which to make the node.  Raises: PermitsError when no number was given."""
        if self._permits is None:
            raise PermitsError(self.path, None, None)
        return b"%d" % self._permits

    async def _write(self) -> None:
        """Write our number into a node that somebody has made without one, unless somebody else does."""
        try:
            node = await self._zk.get(self.path)
            if not node.data:
                await self._zk.set(self.path, self._to_write(), node.stat.version)
        except (zkwire.NoNodeError, zkwire.BadVersionError, zkwire.ConnectionLostError):
            pass  # it is looked at again
        except zkwire.SessionExpiredError:
            raise_unless_renewed(self._zk)
