"""What all that can be held has in common: the forms of acquiring it, and the `async with` that cancels its body when
the lease is lost.

Knows that something can be waited for and tried, and yields a lease.  How, is for each kind of lock to say.
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
    """What an `async with` must know of a lease."""

    def enter_body(self, body: Body, /) -> None:
        """Have `body` interrupted when the lease is lost."""

    def leave_body(self, body: Body, /) -> LockLostError | None:
        """Undo `enter_body`; return how the lease was lost, if it was."""

    async def release(self) -> None:
        """Let go."""


H = TypeVar("H", bound=Held)


class Hold(Generic[H]):
    """What `async with lock.hold() as lease` enters: it acquires, and releases at the end.

    When the lease is lost it cancels the body and raises LockLostError in place of the cancellation.
    """

    def __init__(self, acquire: Callable[[], Awaitable[H]]) -> None:
        self._acquire = acquire
        self._lease: Held | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._interrupted = False

    async def __aenter__(self) -> H:
        if self._lease is not None:
            raise RuntimeError("this is entered already: call hold() for each `async with`")
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
        # The cancellation that came from us ends here; one from elsewhere at the same time goes on.  Where another task
        # leaves than has entered, the one that was cancelled is not here.
        is_here = self._interrupted and task is asyncio.current_task()
        ours = is_here and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        await lease.release()
        if loss is not None and (ours or kind is None or isinstance(error, SessionError)):
            raise loss from error

    def go_on_under(self, lease: Held, before: Held) -> None:
        """Have the body's end release `lease`, which takes the place of the one that it began with."""
        self._lease = lease

    def interrupt(self, loss: LockLostError, stopped: set[asyncio.Task[Any]]) -> None:
        """Cancel the body, unless one inside of it is cancelled; called by the lease when it is lost."""
        task = self._task
        if task is not None and task not in stopped and task is not asyncio.current_task():
            stopped.add(task)
            self._interrupted = True
            task.cancel()


class Locking(ABC, Generic[H]):
    """The forms in which a lock of any kind is acquired:

        async with lock as lease: ...                             # waits
        async with lock.hold(within=5.0) as lease: ...            # waits 5 seconds at the most
        lease = await lock.acquire(within=5.0); ...; await lease.release()     # without a body to cancel
        lease = await lock.try_acquire()                          # None at once if it is held

    `path` is its node.

    A body is cancelled by way of the task that has entered it.  Another task may leave it (that which closes an
    AsyncExitStack, for example); where several tasks are inside by way of one object, as readers are, each then needs
    a `hold()` of its own, which knows what it has entered.
    """

    _noun = "lock"

    def __init__(self, zk: Client, path: str) -> None:
        self._zk = zk
        self.path = path
        self._entered: dict[asyncio.Task[Any], list[Hold[H]]] = {}

    @property
    def client(self) -> Client:
        """The client that acquires it."""
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
        """Return what `task` leaves: what it has entered last, or, if it has entered nothing, what another task has.

        Raises: RuntimeError when that could be any of several that run: its body would go on without the lock.
        """
        if task not in self._entered:
            # Who has come to its end will not leave by itself; the one that has entered first may be lost by now.
            others = [other for other in self._entered if other.done()][:1] or list(self._entered)
            if not others:
                raise RuntimeError("left without having been entered")
            if len(others) > 1:
                raise RuntimeError(
                    f"several tasks have entered the {self._noun} {self.path}, and the one that leaves is none of them:"
                    f" call hold() for each `async with` that is left by another task"
                )
            task = others[0]
        holds = self._entered[task]
        hold = holds.pop()
        if not holds:
            del self._entered[task]
        return hold

    def hold(self, *, within: float | None = None) -> Hold[H]:
        """Return what `async with` enters: acquires as `acquire` does, releases at the end.

        When the lease is lost the body is cancelled and LockLostError raised in place of the cancellation; also when
        the body has come to its end without noticing.
        """
        checked_within(within)
        return Hold(lambda: self.acquire(within=within))

    async def acquire(self, *, within: float | None = None) -> H:
        """Wait, and return the lease, which somebody must release, even when it is lost.

        Arguments: `within`, how many seconds to wait at the most, the whole wait counted; None: without bound.
        Raises: TimeoutError; SessionClosedError; SessionExpiredError if the client renews no session (otherwise the
        line is entered anew); whatever else the server refuses.
        Cancellation: at any moment: no node stays, and the next in line gets its turn.
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
        """Return the lease if it is to be had at this moment, None otherwise; nobody is waited for.

        Raises, Cancellation: as `acquire`, but for the wait.
        """
        self._check_open()
        return await self._try_acquire()

    @abstractmethod
    async def _acquire(self) -> H:
        """As `acquire`, without a bound."""

    @abstractmethod
    async def _try_acquire(self) -> H | None:
        """As `try_acquire`."""

    def _check_open(self) -> None:
        error = self._zk.on_closed.error
        if error is not None:
            raise error
