"""What locks of all kinds have in common: the forms of acquiring, and the `async with` that cancels its body on a loss.

Knows that a lock can be waited for or tried, and that both give a lease.  Each kind of lock says how.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from recipes.common.checks import checked_client, checked_within, current_task, running_loop, same_loop
from recipes.common.waiting import describe_outage
from recipes.line.diagnostics import DIAGNOSTICS, WaitDiagnostics
from recipes.line.lease import CLOSING, Body, LockLostError
from recipes.line.line import Line
from recipes.line.ticket import Ticket
from zkwire import Client, SessionError

if TYPE_CHECKING:
    from recipes.line.contenders import Contender

_log = logging.getLogger(__name__)

_LATE: Final = 10.0  # seconds: an operator wants to hear of a lock for which a caller has waited longer


class Held(Protocol):
    """A lease, as far as an `async with` knows it."""

    def _enter_body(self, body: Body, /) -> None:
        """Have `body` interrupted when the lease is lost."""

    def _leave_body(self, body: Body, /) -> LockLostError | None:
        """Undo `_enter_body`; return the loss of the lease, None if it is not lost."""

    async def release(self) -> None:
        """Release the lock."""


H = TypeVar("H", bound=Held)


# The holds that each task has entered and not left yet, the innermost last.
_ENTERED: Final[dict[asyncio.Task[Any], list[Hold[Any]]]] = {}


class Hold(Generic[H]):
    """The context manager of `async with lock.hold() as lease`: it acquires the lock, and releases it at the end.

    When the lease is lost, or another task releases it, it cancels the body and raises LockLostError in place of the
    cancellation.  A lease that another task releases is held until the body has ended.

    Holds may be nested in one task, of one lease or of several.  One cancellation stops only the innermost body: the
    code around that body may catch its LockLostError and go on.  Therefore a body that is left has the next outer body
    cancelled, if the lease of that one is lost too.
    """

    def __init__(self, acquire: Callable[[], Awaitable[H]]) -> None:
        self._acquire = acquire
        self._lease: Held | None = None
        self._task: asyncio.Task[Any] | None = None  # which has entered, or is entering
        self._cancelling_soon: asyncio.Handle | None = None

    async def __aenter__(self) -> H:
        task = current_task()
        if self._task is not None:
            raise RuntimeError("this hold is entered already: call hold() for each `async with`")
        self._task = task
        try:
            lease = await self._acquire()
        except BaseException as error:
            self._task = None
            # If this is the loss of a lease that an outer body has, the code in between may catch it.
            _stop_outer_body(task, passes_cancellation=isinstance(error, asyncio.CancelledError))
            raise
        self._cancelling = task.cancelling()
        self._loss: LockLostError | None = None
        self._cancellations: int = 0  # of the body, by this hold
        self._lease = lease
        _ENTERED.setdefault(task, []).append(self)
        lease._enter_body(self)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, task = self._lease, self._task
        if lease is None or task is None:
            raise RuntimeError("left without having been entered")
        self._lease = self._task = None
        loss = lease._leave_body(self)  # of the lease itself; it is None if another task has released it
        self._leave(task)
        ours = self._cancellations > 0 and self._take_back_cancellations(task) and kind is asyncio.CancelledError
        passes_cancellation = kind is asyncio.CancelledError and not ours
        try:
            await lease.release()
        except asyncio.CancelledError:
            passes_cancellation = True
            raise
        finally:
            if task in _ENTERED:
                _stop_outer_body(task, passes_cancellation=passes_cancellation)
        if ours:
            loss = self._loss
        elif kind is not None and not isinstance(error, SessionError):
            loss = None
        if loss is not None:
            raise loss from error

    def _go_on_under(self, lease: Held, before: Held) -> None:
        """Release `lease` at the end of the body, in place of the lease that the body began with."""
        self._lease = lease

    def _interrupt(self, loss: LockLostError) -> None:
        """Have the task of the body cancelled; called when the lease is lost.

        If an inner body of the task is cancelled for this loss already, the end of that body cancels this one.  If the
        task itself has found the loss, for example by `check`, it gets the error in place.
        """
        self._loss = loss
        task = self._task
        if task is not None and task is not asyncio.current_task():
            holds = _ENTERED[task]
            if not any(inner._loss is loss for inner in holds[holds.index(self) + 1 :]):
                self._cancel_body()

    def _give_back(self, error: LockLostError) -> bool:
        """Have the task of the body cancelled, once, if it is another one that runs; return whether it is so."""
        task = self._task
        if task is None or task.done() or task is asyncio.current_task():
            return False
        is_leaving = task.cancelling() > self._cancelling and error.why is CLOSING  # `asyncio.run` has cancelled it
        if self._loss is None and not is_leaving:
            self._interrupt(error)
        return True

    def _cancel_body_soon(self) -> None:
        """Cancel the task in the next turn of the event loop, unless the body has ended by then."""
        if self._cancelling_soon is None and self._task is not None:
            self._cancelling_soon = self._task.get_loop().call_soon(self._cancel_body)

    def _cancel_body(self) -> None:
        self._cancelling_soon = None
        if self._task is not None:
            self._cancellations += 1
            self._task.cancel()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        if self._cancelling_soon is not None:  # the task may enter again before it is called
            self._cancelling_soon.cancel()
            self._cancelling_soon = None
        holds = _ENTERED[task]
        holds.remove(self)
        if not holds:
            del _ENTERED[task]

    def _is_cancelled(self) -> bool:
        """Return whether the task was cancelled since it entered: a body may also raise CancelledError by itself."""
        return self._task is not None and self._task.cancelling() > self._cancelling

    def _take_back_cancellations(self, task: asyncio.Task[Any]) -> bool:
        """Undo the cancellations by this hold; return whether there are none from elsewhere.

        A cancellation from elsewhere at the same time goes on: then `cancelling()` stays above its value on entering.
        If another task leaves the block than the one that entered it, the cancelled task is not the present one, and
        nothing must be taken back.
        """
        if task is not asyncio.current_task():
            return False
        for _ in range(self._cancellations):
            task.uncancel()
        return task.cancelling() <= self._cancelling


def _stop_outer_body(task: asyncio.Task[Any], *, passes_cancellation: bool) -> None:
    """Have the next outer body of `task` whose lease is lost cancelled; called when an inner hold has ended.

    Not at once: `task.cancel()` in the running task takes effect at whatever the task awaits next, even after the outer
    body.  In the next turn of the event loop the task waits for something, within the body.

    Args:
        passes_cancellation: Whether the inner hold has passed a CancelledError on.  If the outer hold has cancelled the
            task before, this CancelledError is on its way to the outer body, and another one would only disturb the
            clean-up in between.  If it was not passed on, the inner body has swallowed it.
    """
    for hold in reversed(_ENTERED.get(task, ())):
        if hold._loss is not None:
            if not (passes_cancellation and hold._cancellations):
                hold._cancel_body_soon()
            return


class Locking(ABC, Generic[H]):
    """A lock of any kind, in the forms in which it can be acquired:

        async with lock as lease: ...                             # waits
        async with lock.hold(within=5.0) as lease: ...            # waits 5 seconds at the most
        lease = await lock.acquire(within=5.0); ...; await lease.release()     # without a body to cancel
        lease = await lock.try_acquire()                          # None at once if it is held

    `path` is its node.

    When a lease is lost, or another task releases it, the task that entered the body is cancelled.  Another task may
    leave the body, for example the one that closes an AsyncExitStack.  If at that time several tasks are inside by
    `async with` on one object, as readers may be, it is not clear which of them is left: use a `hold()` for each.
    """

    _noun = "lock"
    _can_wait = True

    def __init__(self, zk: Client, path: str) -> None:
        self._zk = checked_client(zk)
        self.path = path
        self._described = f"the {self._noun} {path}"
        self._loop = running_loop()
        self._entered: dict[asyncio.Task[Any], list[Hold[H]]] = {}
        self._latest: H | None = None  # for `repr`

    def __repr__(self) -> str:
        latest = "no lease so far" if self._latest is None else f"latest lease {self._latest!r}"
        return f"<{type(self).__name__.removeprefix('_')} {self.path}, {latest}, {self._zk!r}>"

    if not TYPE_CHECKING:  # a type checker would otherwise take every attribute for known

        def __getattr__(self, name: str) -> Any:
            hint = ": release the lease that acquire() returned" if name == "release" else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def client(self) -> Client:
        """The client that acquires the lock."""
        return self._zk

    async def __aenter__(self) -> H:
        hold = Hold(self.acquire)
        lease = await hold.__aenter__()
        self._entered.setdefault(current_task(), []).append(hold)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._left_by(current_task()).__aexit__(kind, error, trace)

    def _left_by(self, task: asyncio.Task[Any]) -> Hold[H]:
        """Return the hold that `task` leaves: the last one that it entered, or else one that another task entered.

        Raises:
            RuntimeError: if several other tasks that still run have entered the lock: if the wrong one were taken, its
                body would go on without the lock.
        """
        if task not in self._entered:
            # A task that has finished cannot leave by itself any more, so its hold is the one to be left.
            others = [other for other in self._entered if other.done()][:1] or list(self._entered)
            if not others:
                raise RuntimeError("left without having been entered")
            if len(others) > 1:
                raise RuntimeError(
                    f"several tasks have entered the {self._noun} {self.path}, and the task that leaves is another one:"
                    f" call hold() for each `async with` that another task leaves"
                )
            [task] = others
        holds = self._entered[task]
        hold = holds.pop()
        if not holds:
            del self._entered[task]
        return hold

    def hold(self, *, within: float | None = None) -> Hold[H]:
        """Return a context manager that acquires the lock, as `acquire` does, and releases it at the end.

        When the lease is lost, the body is cancelled, and LockLostError is raised in place of the cancellation.  It is
        also raised when the body has come to its end without noticing the loss.  The body is cancelled in the same way
        when another task releases the lease, which is then held until the body has ended.

        Args:
            within: The same as in `acquire`.
        """
        checked_within(within)
        return Hold(partial(self.acquire, within=within))

    async def acquire(self, *, within: float | None = None) -> H:
        """Wait for the lock and return the lease.  The caller must release it, even when it is lost.

        Args:
            within: How many seconds the whole wait may take; None: without bound; 0: one look, which takes the lock if
                it is free, however long the server takes to answer.

        Raises:
            TimeoutError: if the lock was not free in time; it names the first ticket ahead, as far as the wait has seen
                it.
            RuntimeError: in another event loop than the one in which the lock was made.
            SessionClosedError: if the client is closed.
            SessionExpiredError: if the client renews no session; if it does, a new ticket is taken in the new session.
            ServerError: if a server refuses a request for good.

        Cancellation:
            At any moment; no node stays, and the next ticket in the line gets its turn.
        """
        loop = self._check_usable()
        start = loop.time()
        lease = await (self._acquire() if within is None else self._acquire_within(within))
        self._latest = lease
        if loop.time() - start > _LATE:
            _log.info("acquired the %s %s after %.0f s", self._noun, self.path, loop.time() - start)
        return lease

    async def _acquire_within(self, within: float) -> H:
        checked_within(within)
        limit, diagnostics = asyncio.timeout(within or None), WaitDiagnostics()
        outer = DIAGNOSTICS.set(diagnostics)
        try:
            async with limit:
                if within or not self._can_wait:
                    return await self._acquire()
                lease = await self._try_acquire()
                if lease is not None:
                    return lease
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            DIAGNOSTICS.reset(outer)
        outage = describe_outage(self._zk)
        raise TimeoutError(f"{self._described} was not free within {within} s{diagnostics.text}{outage}")

    async def try_acquire(self) -> H | None:
        """Return the lease if the lock is free at this moment, None otherwise; does not wait for a holder.

        If clients that only try meet at a free lock, one of them gets it.  Errors and cancellation are those of
        `acquire`, without TimeoutError.

        Requests:
            The first time create, getChildren and delete, and sometimes two more lists.  After a try in vain sync and
            getChildren2 in one write, and no node; and those of `acquire` if the lock is free.  So does the first try
            of the side of a ReadWriteLock that yields by `prefer`, which also reads the first ticket.
        """
        self._check_usable()
        lease = await self._try_acquire()
        if lease is not None:
            self._latest = lease
        return lease

    async def contenders(self) -> list[Contender]:
        """Return the holders of the lock, and then the clients that wait for it, in their order.

        When it is read, the lock may have changed hands already.  So nothing should be decided by it.  Clients that
        have no node in the line yet are not in it, such as tasks that wait for another one of this object.  Nodes that
        are not ephemeral are left out, and reported in the log.  Errors are those of `acquire`, without TimeoutError.

        Cancellation:
            Harmless.

        Requests:
            getChildren2, and in one write a getData for each contender.
        """
        from recipes.line.contenders import holders_first  # most programs only take locks

        return holders_first(await self._look())

    async def _look(self) -> list[Contender]:
        """Return the contenders in the order of the line."""
        from recipes.line.contenders import look  # most programs only take locks

        return await look(self._zk, self.path)

    @abstractmethod
    async def _acquire(self) -> H:
        """Do what `acquire` does, without a bound."""

    @abstractmethod
    async def _try_acquire(self) -> H | None:
        """Do what `try_acquire` does."""

    def _check_usable(self) -> asyncio.AbstractEventLoop:
        """Return the event loop.

        A task of another event loop would wait for ever: nothing wakes its loop, which runs in another thread.

        Raises:
            RuntimeError: in another event loop than the lock's.
            SessionError: if the client is closed for good.
        """
        if self._loop is not asyncio.get_running_loop():
            self._loop = same_loop(self._loop, self._described)
        error = self._zk.on_closed.error
        if error is not None:
            raise error
        return self._loop


class LineLock(Locking[H]):
    """A lock whose holders are the tickets that own in `line`."""

    def __init__(self, zk: Client, line: Line) -> None:
        super().__init__(zk, line.path)
        self._line = line

    @abstractmethod
    def _lease(self, ticket: Ticket) -> H:
        """Return the lease of a ticket that owns."""

    async def _acquire(self) -> H:
        return self._lease(await self._line.acquire())

    async def _try_acquire(self) -> H | None:
        ticket = await self._line.try_acquire()
        return None if ticket is None else self._lease(ticket)
