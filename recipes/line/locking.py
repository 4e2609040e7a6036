"""What locks of all kinds have in common: the forms of acquiring, and the `async with` that cancels its body on a loss.

Knows that a lock can be waited for or tried, and that both give a lease.  Each kind of lock says how.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from recipes.common.arguments import checked_within, current_task
from recipes.line.lease import Body, LockLostError
from zkwire import Client, SessionError


class Held(Protocol):
    """A lease, as far as an `async with` knows it."""

    def enter_body(self, body: Body, /) -> None:
        """Have `body` interrupted when the lease is lost."""

    def leave_body(self, body: Body, /) -> LockLostError | None:
        """Undo `enter_body`; return the loss of the lease, None if it is not lost."""

    async def release(self) -> None:
        """Release the lock."""


H = TypeVar("H", bound=Held)


class Hold(Generic[H]):
    """The context manager of `async with lock.hold() as lease`: it acquires the lock, and releases it at the end.

    When the lease is lost, it cancels the body and raises LockLostError in place of the cancellation.
    """

    def __init__(self, acquire: Callable[[], Awaitable[H]]) -> None:
        self._acquire = acquire
        self._lease: Held | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._interrupted = False

    async def __aenter__(self) -> H:
        if self._lease is not None:
            raise RuntimeError("this hold is entered already: call hold() for each `async with`")
        lease = await self._acquire()
        self._task = current_task()
        self._cancelling = self._task.cancelling()
        self._lease = lease
        lease.enter_body(self)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, task = self._lease, self._task
        if lease is None or task is None:
            raise RuntimeError("left without having been entered")
        self._lease = None
        loss = lease.leave_body(self)
        # If `interrupt` cancelled the task, that cancellation ends here.  One from elsewhere at the same time
        # goes on: then `cancelling()` stays above its value on entering.  If another task leaves the block than the
        # one that entered it, the cancelled task is not the present one, and nothing must be taken back.
        is_here = self._interrupted and task is asyncio.current_task()
        ours = is_here and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        await lease.release()
        if loss is not None and (ours or kind is None or isinstance(error, SessionError)):
            raise loss from error

    def go_on_under(self, lease: Held, before: Held) -> None:
        """Release `lease` at the end of the body, in place of the lease that the body began with."""
        self._lease = lease

    def interrupt(self, loss: LockLostError, stopped: set[asyncio.Task[Any]]) -> None:
        """Cancel the task of the body, unless it was cancelled for an inner body; called when the lease is lost."""
        task = self._task
        if task is not None and task not in stopped and task is not asyncio.current_task():
            stopped.add(task)
            self._interrupted = True
            task.cancel()


class Locking(ABC, Generic[H]):
    """A lock of any kind, in the forms in which it can be acquired:

        async with lock as lease: ...                             # waits
        async with lock.hold(within=5.0) as lease: ...            # waits 5 seconds at the most
        lease = await lock.acquire(within=5.0); ...; await lease.release()     # without a body to cancel
        lease = await lock.try_acquire()                          # None at once if it is held

    `path` is its node.

    When a lease is lost, the task that entered the body is cancelled.  Another task may leave the body, for example the
    one that closes an AsyncExitStack.  If at that time several tasks are inside by `async with` on one object, as
    readers may be, it is not clear which of them is left: use a `hold()` for each.
    """

    _noun = "lock"

    def __init__(self, zk: Client, path: str) -> None:
        self._zk = zk
        self.path = path
        self._entered: dict[asyncio.Task[Any], list[Hold[H]]] = {}

    @property
    def client(self) -> Client:
        """The client that acquires the lock."""
        return self._zk

    async def __aenter__(self) -> H:
        hold = self.hold()
        lease = await hold.__aenter__()
        self._entered.setdefault(current_task(), []).append(hold)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._left_by(current_task()).__aexit__(kind, error, trace)

    def _left_by(self, task: asyncio.Task[Any]) -> Hold[H]:
        """Return the hold that `task` leaves: the last one that it entered, or else one that another task entered.

        Raises: RuntimeError when several other tasks that still run have entered the lock: if the wrong one were taken,
        its body would go on without the lock.
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
            task = others[0]
        holds = self._entered[task]
        hold = holds.pop()
        if not holds:
            del self._entered[task]
        return hold

    def hold(self, *, within: float | None = None) -> Hold[H]:
        """Return a context manager that acquires the lock, as `acquire` does, and releases it at the end.

        When the lease is lost, the body is cancelled, and LockLostError is raised in place of the cancellation.  It is
        also raised when the body has come to its end without noticing the loss.
        Arguments: `within`, as of `acquire`.
        """
        checked_within(within)
        return Hold(lambda: self.acquire(within=within))

    async def acquire(self, *, within: float | None = None) -> H:
        """Wait for the lock and return the lease.  The caller must release it, even when it is lost.

        Arguments: `within`, how many seconds the whole wait may take; None: without bound.
        Raises: TimeoutError; SessionClosedError; SessionExpiredError if the client renews no session (if it does, a new
        ticket is taken in the new session); whatever else the server refuses.
        Cancellation: at any moment; no node stays, and the next ticket in the line gets its turn.
        """
        self._check_open()
        if checked_within(within) is None:
            return await self._acquire()
        try:
            async with asyncio.timeout(within):
                return await self._acquire()
        except TimeoutError:
            raise TimeoutError(f"the {self._noun} {self.path} was not free within {within} s") from None

    async def try_acquire(self) -> H | None:
        """Return the lease if the lock is free at this moment, None otherwise; does not wait for a holder.

        Raises: as `acquire`, without TimeoutError.  Cancellation: as `acquire`.
        """
        self._check_open()
        return await self._try_acquire()

    @abstractmethod
    async def _acquire(self) -> H:
        """Do what `acquire` does, without a bound."""

    @abstractmethod
    async def _try_acquire(self) -> H | None:
        """Do what `try_acquire` does."""

    def _check_open(self) -> None:
        error = self._zk.on_closed.error
        if error is not None:
            raise error
