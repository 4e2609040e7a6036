"""Requests that the tasks of one process share: of the tasks that ask at the same time, one sends the request for all.

Knows tasks and their order.  What is asked is the recipe's affair.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Shares calls: the tasks that ask for one while another is under way all get the result of the next one.

    That one begins after each of them has asked, so it is as good as one of their own.  One of these tasks makes it, so
    no task of its own is needed; if that one is cancelled, or its call fails, the next one makes a call.
    """

    def __init__(self) -> None:
        self._is_under_way = False  # a task makes a call, or has been asked to
        # The tasks that wait for the next call.  They get its result, in a tuple, or None: then they have to make it.
        self._waiting: list[asyncio.Future[tuple[T] | None]] = []

    async def share(self, call: Callable[[int], Awaitable[T]]) -> T:
        """Return what a call has returned that began after this one.

        Args:
            call: Makes the call if this task has to make it; it is given the number of tasks that share the result.

        Raises:
            Exception: whatever `call` raises.

        Order:
            Tasks that share a result return in the order of their calls.
        """
        if self._is_under_way:
            got = await self._next()
            if got is not None:
                return got[0]
        self._is_under_way = True
        sharing, self._waiting = self._waiting, []
        try:
            value = await call(1 + len(sharing))
        except BaseException:
            self._waiting[:0] = sharing
            raise
        else:
            # All in one turn of the event loop, so that their requests are sent in one write.
            for waiter in sharing:
                if not waiter.done():
                    waiter.set_result((value,))
        finally:
            self._pass_on()
        return value

    async def _next(self) -> tuple[T] | None:
        """Wait for the next call; return None if the caller has to make it."""
        waiter: asyncio.Future[tuple[T] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and waiter.result() is None:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Have the first task that waits make the next call."""
        while self._waiting:
            waiter = self._waiting.pop(0)
            if not waiter.done():  # not cancelled
                waiter.set_result(None)
                return
        self._is_under_way = False
