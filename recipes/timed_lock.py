"""The lock with a time limit: a holder promises to be done by a time, and others take over after it.

The promise stands in the data of the holder's own ticket.  Those who wait see it, count from then on, and remove the
ticket when it is not kept, although the session of the holder may live on: its process hangs, or its loop is blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import zkwire
from recipes.line import ticket_data
from recipes.line.lease import Lease, LockLostError
from recipes.line.line import Line
from recipes.line.locking import Locking
from recipes.line.loss_monitor import DELETED
from recipes.line.ticket import Ticket
from zkwire import ACL, OPEN_ACL, Client, validate_path

_BROKEN: Final = "its time limit has passed"


@dataclass(slots=True, eq=False)
class _Extension:
    """A call of `extend` that is under way; `end`, until when the lease may hold once it is answered; `bound`, ends it
    as soon as there is nothing left to extend."""

    end: float
    bound: asyncio.Timeout = field(default_factory=partial(asyncio.timeout, None))


class TimedLease(Lease):
    """A lease that ends by a time limit, unless it is extended; otherwise as Lease.

    The limit counts from before the moment in which it is sent, and those who wait count from when they see it: so it
    is over here before it is over there.
    """

    __slots__ = ("_alarm", "_data", "_end", "_extending", "_loop", "_promising", "_writing")

    def __init__(self, zk: Client, ticket: Ticket, limit: float, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + limit
        self._data = data
        self._writing = asyncio.Lock()
        self._extending: set[_Extension] = set()
        self._promising: asyncio.Task[None] | None = None
        super().__init__(zk, ticket)
        self._alarm = self._loop.call_at(self._end, self._look_at_the_end)
        self._promising = self._loop.create_task(self._promise())

    async def extend(self, limit: float) -> None:
        """Promise anew: to be done in `limit` seconds from now.

        A later end counts from the moment in which this returns, an earlier one at once.  Of several calls the latest
        counts: an earlier end that it has asked for is not put off by the answer to a call before it.
        Raises: LockLostError, also when the old limit passes before the answer comes; RuntimeError when it was
        released; ValueError, TypeError.
        Cancellation: the earlier of the two ends counts.
        Requests: setData; and getData for the one or two who wait next.
        """
        ticket_data.checked_limit(limit)
        self.check()
        end = self._loop.time() + limit
        if end < self._end:
            self._end_at(end)
        for before in self._extending:
            before.end = min(before.end, end)
        asked = _Extension(end)
        self._extending.add(asked)
        try:
            async with asked.bound, self._writing:
                await self._write(end)
                self.check()
                self._end_at(asked.end)
        except TimeoutError:
            self.check()  # it is over, and this tells how
            raise
        finally:
            self._extending.discard(asked)

    def _end_at(self, end: float) -> None:
        self._end = end
        self._alarm.cancel()
        self._alarm = self._loop.call_at(end, self._look_at_the_end)

    def _look_at_the_end(self) -> None:
        if self._end > self._loop.time():  # a timer may be early by a tick of the clock
            self._end_at(self._end)
        else:
            self._lose(self._why_uncertain())

    async def _promise(self) -> None:
        try:
            async with self._writing:
                await self._write(self._end)
        except LockLostError:
            pass  # it has been told

    async def _write(self, end: float) -> None:
        """Have our node say when we shall be done, until it is known that it does.  Raises: LockLostError."""
        while not self.is_over:
            left = end - self._loop.time()
            if left <= 0:
                raise self._lose(_BROKEN)
            try:
                await self._zk.set(self.path, ticket_data.limited(left, self._data))
            except zkwire.ConnectionLostError:
                continue  # once more does no harm: it says the same, a little later
            except zkwire.NoNodeError:
                raise self._lose(DELETED) from None
            except (zkwire.SessionError, zkwire.ServerError) as error:
                raise self._lose(str(error)) from None
            return

    def _seconds_left(self) -> float:
        return max(0.0, min(self._session_seconds_left(), self._end - self._loop.time()))

    def _why_uncertain(self) -> str:
        return _BROKEN if self._end <= self._loop.time() else self._why_session_uncertain()

    def _on_end(self) -> None:
        self._alarm.cancel()
        if self._promising is not None and self._promising is not asyncio.current_task():
            self._promising.cancel()
        extending, self._extending = self._extending, set()
        for asked in extending:
            asked.bound.reschedule(self._loop.time())


class TimedLock(Locking[TimedLease]):
    """A fair lock whose holders promise to be done in `limit` seconds: others may take over after that, however long
    the holder's session lives.

        async with TimedLock(zk, "/locks/report", limit=30.0) as lease: ...    # the body is cancelled after 30 seconds
            await lease.extend(30.0)                                           # unless it says that it needs more

    Arguments: `path`, `data`, `acl`, as of Lock; `limit`, in seconds, counted from the acquiring.
    After the limit the lease is lost: the body is cancelled and LockLostError raised, as for every other loss.
    Whoever waits next, here or by a Lock or any other recipe on this path, gives a tenth of the limit more and then
    removes the holder's node.  Assumed: clocks that run at speeds that differ by less than that tenth, less the time
    that a body takes to end; `lease.token` guards a store even from one that does not end.
    A holder that hangs before it has told its limit, which is one write behind its acquiring, is waited for as long as
    its session lives.
    Order: by tickets.  Every acquire stands in the line with a ticket of its own, tasks of one process too.
    """

    def __init__(
        self, zk: Client, path: str, limit: float, *, data: bytes = b"", acl: Sequence[ACL] = OPEN_ACL
    ) -> None:
        super().__init__(zk, validate_path(path))
        self._limit = ticket_data.checked_limit(limit)
        self._data = data
        self._line = Line(zk, self.path, data=data, acl=acl)

    async def _acquire(self) -> TimedLease:
        return TimedLease(self._zk, await self._line.acquire(), self._limit, self._data)

    async def _try_acquire(self) -> TimedLease | None:
        ticket = await self._line.try_acquire()
        return None if ticket is None else TimedLease(self._zk, ticket, self._limit, self._data)
