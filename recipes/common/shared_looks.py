"""Looks at the server that the tasks of one process share.

Knows tasks and their order.  What a look asks for is the recipe's affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Made(NamedTuple, Generic[T]):
    """What a look has found."""

    found: T


class SharedLooks(Generic[T]):
    """Shares looks: the tasks that ask for one while another is under way all get the next one.

    That one is sent after each of them has asked, so it is as good as one of their own.  One of these tasks makes it,
    so no task of its own is needed; if that one is cancelled, or its look fails, the next one makes a look.
    """

    def __init__(self) -> None:
        self._is_looking = False  # a task looks, or has been asked to
        # The tasks that wait for the next look.  The result is what it has found; None: the task has to make it.
        self._waiting: list[asyncio.Future[_Made[T] | None]] = []

    async def share(self, look: Callable[[int], Awaitable[T]]) -> T:
        """Return what a look has found that was sent after this call.

        Arguments: `look`, makes the look if this task has to make it; it is given the number of tasks that share it.
        Raises: what `look` raises.
        Order: tasks that share a look return in the order of their calls.
        """
        if self._is_looking:
            made = await self._next()
            if made is not None:
                return made.found
        self._is_looking = True
        sharing, self._waiting = self._waiting, []
        try:
            found = await look(1 + len(sharing))
        except BaseException:
            self._waiting[:0] = sharing
            raise
        else:
            # All in one turn of the event loop, so that their requests are sent in one write.
            for waiter in sharing:
                if not waiter.done():
                    waiter.set_result(_Made(found))
        finally:
            self._pass_on()
        return found

    async def _next(self) -> _Made[T] | None:
        """Wait for the next look; return None if the caller has to make it."""
        waiter: asyncio.Future[_Made[T] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled() and waiter.result() is None:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Have the first task that waits make the next look."""
        while self._waiting:
            waiter = self._waiting.pop(0)
            if not waiter.done():  # not cancelled
                waiter.set_result(None)
                return
        self._is_looking = False
