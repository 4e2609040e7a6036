"""The queue of the tasks of one process that share a lock, in front of the line of tickets in ZooKeeper.

Only the first task of the queue has a ticket.  So a process costs the ensemble one node, however many tasks wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from recipes.line.ticket import Ticket
from zkwire import Client


class LocalQueue:
    """A first-in, first-out queue of tasks: one task has the turn, the others wait for it.

    Arguments: `zk`, whose end ends every wait; `passes`, how many times in succession a task may pass its ticket to the
    next task, while other processes wait; `drop`, called with a ticket that was passed on and that no task takes.
    """

    def __init__(self, zk: Client, passes: int, drop: Callable[[Ticket], None]) -> None:
        self._on_closed = zk.on_closed
        self._passes = self._passes_left = passes
        self._drop = drop
        self._is_taken = False
        self._waiting: deque[asyncio.Future[Ticket | None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether no task has the turn."""
        return not self._is_taken

    async def wait(self) -> Ticket | None:
        """Wait for the turn; return the ticket that the task before passed on, or None.

        Raises: SessionError when the client is closed or its session is over for good: the task that has the turn may
        never release it.
        Cancellation: if the turn arrived at the same moment, it is passed on.
        """
        if not self._is_taken:
            self._is_taken = True
            return None
        waiter: asyncio.Future[Ticket | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._on_closed.add(self._end)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if waiter in self._waiting:  # not there if `_pass_on` has skipped it meanwhile
                    self._waiting.remove(waiter)
            elif waiter.exception() is None:
                # The turn came in the same step of the event loop as the cancellation: without this it would be lost,
                # and every later task would wait for ever.
                self._pass_on(waiter.result())
            raise
        finally:
            if not self._waiting:
                self._on_closed.discard(self._end)

    def wants_ticket(self) -> bool:
        """Return whether a task waits, and the ticket may be passed on once more before other processes have a turn."""
        return self._passes_left > 0 and not all(waiter.done() for waiter in self._waiting)

    def pass_ticket(self, ticket: Ticket) -> None:
        """Pass the turn to the next task, together with `ticket`."""
        self._passes_left -= 1
        self._pass_on(ticket)

    def pass_turn(self) -> None:
        """Pass the turn to the next task, which needs a ticket of its own, behind those of the other processes."""
        self._passes_left = self._passes
        self._pass_on(None)

    def _pass_on(self, ticket: Ticket | None) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # a task that was cancelled may still be in the queue
                waiter.set_result(ticket)
                return
        self._is_taken = False
        if ticket is not None:
            self._drop(ticket)

    def _end(self) -> None:
        while self._waiting:
            waiter, error = self._waiting.popleft(), self._on_closed.error
            if error is not None and not waiter.done():
                waiter.set_exception(error)
