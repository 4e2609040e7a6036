"""The lock with a time limit: a holder promises to finish in time, and others take the lock over if it does not.

The holder writes the limit into the data of its own ticket.  The waiting tickets read it, count from that moment, and
delete the holder's ticket when the limit has passed.  That helps when the session of the holder stays alive although
its program hangs; an expired session needs no limit.  Each limit comes with a proof that the holder itself has written
it, see `recipes.line.ticket_data`.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import zkwire
from recipes.common.this_process import or_described
from recipes.line import ticket_data
from recipes.line.lease import Lease
from recipes.line.line import Line
from recipes.line.locking import LineLock
from recipes.line.ticket import Ticket, VersionedWriter
from recipes.line.ticket_data import MOST_LINKS
from zkwire import ACL, Client, validate_path

_log = logging.getLogger(__name__)

_LIMIT_PASSED: Final = "its time limit has passed"
# Seconds between two checks of the limit: the event loop's timers do not run while the machine is suspended.
_LOOK_EVERY: Final = 1.0


class TimedLease(Lease):
    """A lease that ends when its time limit passes, unless it is extended.  It has all that Lease has.

    The holder counts the limit from before it sends the limit; the waiting clients count from when they read it.  So
    the lease ends at the holder before another client may take the lock over.
    """

    __slots__ = ("_alarm", "_data", "_end", "_extensions", "_is_believed", "_own_write", "_suspended", "_writer")

    def __init__(self, zk: Client, ticket: Ticket, limit: float, data: bytes) -> None:
        self._suspended = zk.machine_suspended()
        self._end = asyncio.get_running_loop().time() + limit
        self._data = data
        self._writer = VersionedWriter(zk, ticket)
        # The calls of `extend` that are under way: a timeout by which each is stopped as soon as the lease is over, and
        # until when the lease may be held once the server has answered it, on the lease's clock.
        self._extensions: dict[asyncio.Timeout, float] = {}
        self._is_believed = True  # no limit without a proof has been written
        super().__init__(zk, ticket)
        self._alarm = self._loop.call_later(min(limit, _LOOK_EVERY), self._check_limit)
        self._own_write = self._loop.create_task(self._write_limit())

    async def extend(self, limit: float) -> None:
        """Set a new limit: `limit` seconds from now.

        An earlier end than the present one applies at once.  A later end applies when this call returns: until then
        the waiting clients may know only the old limit.  Of concurrent calls the latest one applies: if it has asked
        for an earlier end, the answer to an older call does not move that end.

        A lease can prove 300 limits, or half as many if it is asked to give way after each of them.  Those after that
        end the lease as well, but no other client believes them: if the program hangs by then, the lock is free only
        when its session has expired.

        Args:
            limit: In seconds.

        Raises:
            LockLostError: if the lease is lost, also when the old limit passes before the server has answered.
            RuntimeError: if the lease was released.
            ValueError: if the limit is not more than 0, or too long.

        Cancellation:
            The earlier one of the old and the new end applies.

        Requests:
            setData, and one getData for each of the one or two clients next in line.
        """
        ticket_data.checked_limit(limit)
        self.check()
        end = self._now() + limit
        if end < self._end:
            self._set_end(end)
        # The waiting clients may have read our new limit before an older call gets its answer.
        for older, its_end in self._extensions.items():
            self._extensions[older] = min(its_end, end)
        bound = asyncio.timeout(None)
        self._extensions[bound] = end
        try:
            async with bound:
                await self._write_limit(end)
                self.check()
                self._set_end(self._extensions[bound])
        except TimeoutError:
            self.check()  # raises, because `bound` has stopped us at the end of the lease
        finally:
            self._extensions.pop(bound, None)

    def _set_end(self, end: float) -> None:
        self._end = end
        self._alarm.cancel()
        self._alarm = self._loop.call_later(min(end - self._now(), _LOOK_EVERY), self._check_limit)

    def _now(self) -> float:
        """Return the time on the lease's clock: the loop's, and the time that the machine was suspended since it began.

        The loop's clock leaves that time out; the clocks of the waiting clients do not.
        """
        return self._loop.time() + max(0.0, self._zk.machine_suspended() - self._suspended)

    def _check_limit(self) -> None:
        if self._end > self._now():
            self._set_end(self._end)
        else:
            self._lose(self._why_uncertain())

    async def _write_limit(self, end: float | None = None) -> None:
        """Write the limit `end`, None: the present one, into our node, until it is there or the lease is over.

        The limits are written in the order of the calls.
        """
        try:
            await self._write(self._writer, partial(self._limit_data, end))
        except (zkwire.ServerError, ValueError) as error:  # ValueError: too large, though not for the ticket's create
            self._lose(str(error))

    def _limit_data(self, end: float | None, version: int) -> bytes | None:
        """Return the data of `version`, with the limit `end`, or the present one; None if the lease is over."""
        left = (self._end if end is None else end) - self._now()
        if left <= 0:
            self._lose(_LIMIT_PASSED)
        if self.is_over:
            return None
        chain = self._ticket.node.chain
        link = None if chain is None else chain.link(version)
        if link is not None:
            return ticket_data.limited(left, link, self._data)
        if self._is_believed:
            self._is_believed = False
            _log.warning(
                "%s: no other client believes this lease's limits any more: too many limits and requests to give way",
                self.path,
            )
        return self._data

    def _seconds_left(self) -> float:
        return 0.0 if self.is_over else max(0.0, min(self._zk.certain_for(self._session_id), self._end - self._now()))

    def _why_uncertain(self) -> str:
        return _LIMIT_PASSED if self._end <= self._now() else super()._why_uncertain()

    def _on_asked(self) -> None:
        self._own_write = self._loop.create_task(self._write_limit())

    def _on_end(self) -> None:
        self._alarm.cancel()
        self._own_write.cancel()
        # A timeout, not task.cancel(): `extend` runs in the caller's task, which may be cancelled at the same moment,
        # for the same loss or from elsewhere.  asyncio.timeout takes back its own cancellation only.
        bounds, self._extensions = self._extensions, {}
        for bound in bounds:
            bound.reschedule(self._loop.time())


class TimedLock(LineLock[TimedLease]):
    """A fair lock with one holder, which promises to finish within `limit` seconds; others may take over after that.

    ::

        async with TimedLock(zk, "/locks/report", limit=30.0) as lease: ...    # the body is cancelled after 30 seconds
            await lease.extend(30.0)                                           # 30 seconds from now

    Use it where a program may hang while its session stays alive.  One lease is held at a time, and a lease is lost by
    the signals of Lock or when its limit passes: the body is cancelled, and LockLostError is raised.

    The next client in line, which may use Lock or any other recipe on this path, waits a tenth of the limit longer and
    then deletes the holder's node.  This is safe under the assumption that the clocks of two hosts differ in speed by
    less than that tenth, minus the time that a cancelled body needs to end.  `lease.token` protects a store even from a
    body that does not end.  A holder that hangs before it has written its limit, which is one request after it has
    acquired the lock, keeps the lock as long as its session lives.  So does one that hangs if all clients that wait
    yield by the `prefer` of ReadWriteLock: they have no ticket, and delete no node.

    The limit takes about 100 bytes more than `data`.  If a server does not accept so much, the lease is lost at once.

    Args:
        path: The same as in Lock, as for `data` and `acl`.
        limit: In seconds, counted from acquiring.

    Order:
        By tickets.  Every acquire takes a ticket of its own, also when tasks share this object.

    Requests:
        Those of Lock, and one setData, for which the caller does not wait.
    """

    def __init__(
        self, zk: Client, path: str, limit: float, *, data: bytes | None = None, acl: Sequence[ACL] | None = None
    ) -> None:
        self._limit = ticket_data.checked_limit(limit)
        self._data = or_described(data)
        super().__init__(zk, Line(zk, validate_path(path), data=self._data, acl=acl, links=MOST_LINKS))

    def _lease(self, ticket: Ticket) -> TimedLease:
        return TimedLease(self._zk, ticket, self._limit, self._data)
