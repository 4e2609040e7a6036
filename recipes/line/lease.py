"""A lease: one holding of a lock, from acquiring to release or loss.

Knows one ticket that owns.  How it came to own is the line's affair.

A lease is lost on three signals: its session expires; its node is deleted or written into by another client; or the
session is not certain to be alive any more, because the ensemble's leader has not confirmed it for too long.  The third
signal comes before another ticket can own.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from typing import ClassVar, Final, Protocol

from recipes.common.event_loops import same_loop
from recipes.common.waiting import LEAVES_WITHIN
from recipes.line.certainty import Certainty
from recipes.line.contenders import session_in_words
from recipes.line.local_queue import LocalQueue
from recipes.line.loss_monitor import DELETED, LossMonitor
from recipes.line.ticket import Ticket
from recipes.line.yielding import yield_processor
from zkwire import Client, Transaction, ZooKeeperError

_log = logging.getLogger(__name__)

GIVEN_BACK: Final = "another task has released it"


class LockLostError(ZooKeeperError):
    """A lock that was held is lost, or cannot be relied upon any more: stop the work that it protects.

    Arguments: `path`, the lock's node; `why`, the reason.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the lock node {path} is lost: {why}; stop, and acquire it again before you go on")
        self.path = path
        self.why = why


class Body(Protocol):
    """The code that runs while a lease is held, usually the body of an `async with`."""

    def interrupt(self, loss: LockLostError) -> None:
        """Stop the body, because the lease is lost; called once, for inner bodies first."""

    def give_back(self, error: LockLostError) -> bool:
        """Stop the body if another task than the present one runs it; return whether it is so."""

    def go_on_under(self, lease: Lease, before: Lease) -> None:
        """Replace the lease `before` by `lease`, which is the one to release from now on."""


class Bodies(list[Body]):
    """The bodies that run under one lease, the innermost last."""

    __slots__ = ()

    def interrupt(self, loss: LockLostError) -> None:
        """Interrupt all bodies, the innermost first."""
        for body in reversed(self):
            body.interrupt(loss)

    def give_back(self, error: LockLostError) -> bool:
        """Stop the bodies that other tasks run, the innermost first; return whether there are any."""
        found = [body.give_back(error) for body in reversed(self)]  # all of them are asked
        return any(found)

    def move(self, old: Lease, new: Lease) -> None:
        """Have all bodies, which run under `old`, go on under `new`."""
        for body in self:
            new.enter_body(body)
            body.go_on_under(new, old)
        self.clear()


async def wait_for_bodies(over: asyncio.Future[asyncio.Future[None] | None], in_words: str) -> None:
    """Wait until the bodies of a lease have ended and its nodes are gone, but not for long if a body does not end.

    The body may be waiting for the very task that calls this.
    Arguments: `over`, completed at the end of the lease, with the future of the removal; `in_words`, what is held.
    """
    await asyncio.wait([over], timeout=LEAVES_WITHIN)
    if not over.done():
        _log.warning("%s stays held: its body was cancelled by a release, and has not ended", in_words)
    elif (gone := over.result()) is not None:
        await asyncio.wait([gone])  # not `await gone`: a cancellation would reach the other task that waits for it


class Lease:
    """One holding of a lock; made by acquiring, ended by `release` or by its loss.

    `path` is the lock's node.  `token` is the fencing token, the zxid that created this node: a later holder has a
    greater token.  A store that refuses tokens smaller than the greatest it has seen is safe even from a holder that
    does not notice its loss.
    Arguments: `is_awaited`, whether another client may wait until the node is gone.
    """

    _noun: ClassVar = "lock"

    __slots__ = (
        "_bodies",
        "_certainty",
        "_depth",
        "_is_awaited",
        "_local_queue",
        "_loop",
        "_loss",
        "_monitor",
        "_over",
        "_zk",
        "path",
        "ticket",
        "token",
    )

    def __init__(
        self, zk: Client, ticket: Ticket, local_queue: LocalQueue | None = None, *, is_awaited: bool = True
    ) -> None:
        self._zk = zk
        self._loop = asyncio.get_running_loop()
        self.ticket = ticket
        self._is_awaited = is_awaited
        self.path = ticket.node.path
        self.token = ticket.node.token
        self._local_queue = local_queue
        self._depth = 1
        self._loss: LockLostError | None = None
        self._over: asyncio.Future[asyncio.Future[None] | None] | None = None
        self._bodies = Bodies()
        self._certainty = Certainty(zk, ticket.node.session_id)
        self._monitor = LossMonitor(
            zk, ticket, self._certainty, self._loop, on_uncertain=self.find_loss, on_lost=self._lose
        )

    def __repr__(self) -> str:
        session = session_in_words(self.ticket.node.session_id)
        kind = type(self).__name__.removeprefix("_")
        return f"<{kind} {self.path}, {self._state_in_words()}, token {self.token}, session {session}>"

    def _state_in_words(self) -> str:
        if self._loss is not None:
            return f"lost: {self._loss.why}"
        if self.is_released:
            return "released"
        left = self.certain_for()
        return f"held, certain for {left:.1f} s" if left else "not certain to be held"

    # -- state ------------------------------------------------------------------------------------------------------

    @property
    def is_released(self) -> bool:
        """Whether `release` was called as often as the lock was acquired."""
        return self._depth == 0

    @property
    def is_over(self) -> bool:
        """Whether the lease was released or lost."""
        return self._depth == 0 or self._loss is not None

    def is_certain(self) -> bool:
        """Return whether the lock is certain to be held at this moment."""
        return self.certain_for() > 0

    def certain_for(self) -> float:
        """Return for how many seconds from now the lock is certain to be held if no server answers any more.

        Returns 0 when it is not certain to be held.  Provided that clocks run at the same speed, no other client can
        own the lock before that.
        """
        return self._seconds_left()

    def check(self) -> None:
        """Return if the lock is certain to be held.  Raises: LockLostError; RuntimeError when it was released."""
        if self._loss is None and self.is_released:
            raise RuntimeError(f"the lock node {self.path} was released")
        if self._seconds_left() <= 0:
            raise copy(self._lose(self._why_uncertain()))  # each call would add its traceback to one object

    async def lost(self) -> LockLostError | None:
        """Wait until the lease is lost or released; return the error with the reason, None when it was released.

        Raises: RuntimeError in another event loop.
        Cancellation: harmless.
        """
        same_loop(self._loop, self.path)
        if self._loss is None and not self.is_released:
            await asyncio.shield(self._until_over())
        return self._loss

    def _until_over(self) -> asyncio.Future[asyncio.Future[None] | None]:
        if self._over is None:
            self._over = self._loop.create_future()
        return self._over

    # -- use --------------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while the lock's node exists; see Client.transaction."""
        transaction = self._zk.transaction()
        self.guard(transaction)
        return transaction

    def guard(self, transaction: Transaction) -> None:
        """Have `transaction` carried out only while the lock's node exists."""
        transaction.check(self.path)

    async def release(self) -> None:
        """Release the lock, and return when its node is known to be gone.

        While no server answers, return after one or two seconds all the same: the client deletes the node as soon as a
        server can be reached, and it is gone with the session at the latest.  So leaving never takes long, whatever is
        held.  Does nothing when the lease was lost or released before.
        When another task runs the body of an `async with` of this lease, the body is cancelled first, and the lock
        stays held until the body has ended: only then is the node deleted.  That `async with` raises LockLostError in
        place of the cancellation.  If its body has not ended after a second, return all the same; `lost` waits longer.
        The task that runs the body may release the lock within it, and goes on without the lock.
        Raises: RuntimeError in another event loop.
        Cancellation: the lock is released all the same.
        Order: deletes are sent in the order of the calls, and before the next task of this process goes on.
        """
        same_loop(self._loop, self.path)
        if self._depth > len(self._bodies) or not await self.is_left_to_bodies():
            await self.release_at_once()

    async def is_left_to_bodies(self) -> bool:
        """Stop the bodies that other tasks run, and wait for them; return whether there are any: their ends release."""
        if self._depth == 0 or not self._bodies.give_back(LockLostError(self.path, GIVEN_BACK)):
            return False
        if self._loss is None:
            await wait_for_bodies(self._until_over(), f"the {self._noun} {self.path}")
        return True

    async def release_at_once(self) -> None:
        """Do the same as `release`, but leave the bodies alone."""
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        local_queue = self._local_queue
        if self._loss is not None:
            if local_queue is not None:
                local_queue.pass_turn()
            return
        # A ticket without certainty is not passed on: the next task would own it only to lose it.
        if local_queue is not None and local_queue.wants_ticket() and self._certainty.seconds_left():
            self._finish()
            local_queue.pass_ticket(self.ticket)
            return
        # First of all, the delete: it is written to the socket before `start` returns.  Another client waits for it, so
        # everything that this process has to clean up comes after it.
        gone = self.ticket.removal.start()
        self._finish(gone)
        self.ticket.cancel_watch_request()
        # When the server deletes the node, it sends us the event of our own watch and, at the same moment, the next
        # owner its own event.  If that one runs on this machine it should get the processor first.
        if self._is_awaited:
            self.ticket.watches.set_callback(yield_processor)
        if local_queue is not None:
            local_queue.pass_turn()
        try:
            await gone
            if self._is_awaited:
                yield_processor()
        finally:
            # The watch on our own node has fired by now.  Watches on blockers may be left from the time of waiting.
            self.ticket.watches.cancel()

    def leave_node(self) -> None:
        """End a lease that is not over, as `release` does, but leave its node and its watches to the caller."""
        self._depth = 0
        self._finish()
        self.ticket.cancel_watch_request()

    def acquired_again(self) -> None:
        """Count one more acquire; called by a re-entrant lock.  Raises: LockLostError."""
        self.check()
        self._depth += 1

    # -- bodies -----------------------------------------------------------------------------------------------------

    def enter_body(self, body: Body) -> None:
        """Have `body` interrupted when the lease is lost."""
        self._bodies.append(body)

    def leave_body(self, body: Body) -> LockLostError | None:
        """Undo `enter_body`; return the loss of the lease, None if it is not lost."""
        self._bodies.remove(body)
        return self.find_loss()

    def find_loss(self) -> LockLostError | None:
        """Look whether the lease is still certain, lose it if not, and return its loss, None if it is not lost."""
        if self._seconds_left() <= 0:
            self._lose(self._why_uncertain())
        return self._loss

    # -- the end, and what kinds of leases add to it ------------------------------------------------------------------

    def _seconds_left(self) -> float:
        """Return how many seconds the lease lasts for certain; 0 once it is over.  Kinds of leases may shorten it."""
        return 0.0 if self.is_over else self._certainty.seconds_left()

    def _why_uncertain(self) -> str:
        """Return the reason for which `_seconds_left` is 0."""
        return self._certainty.why_ended()

    def _on_end(self) -> None:
        """Clean up; called when the lease is released or lost, or another lease takes over its ticket."""

    def _become(self, lease: Lease) -> None:
        """Have `lease`, of the same ticket, take the place of this one in all bodies; this one counts as released."""
        self._depth = 0
        self._bodies.move(self, lease)

    def _lose(self, why: str) -> LockLostError:
        """Return the loss of the lease; if it is not over, it is lost now, for the reason `why`."""
        if self.is_over:
            return self._loss or LockLostError(self.path, why)
        self._loss = LockLostError(self.path, why)
        self._finish()
        if why is not DELETED and self._certainty.is_present_session:
            # The session may well be alive on the server.  Others must not wait for a node without a holder.
            self.ticket.removal.start()
        self.ticket.cancel_watch_request()
        self.ticket.watches.cancel()
        self._bodies.interrupt(self._loss)
        _log.warning("lost the %s %s: %s", self._noun, self.path, why)
        return self._loss

    def _finish(self, gone: asyncio.Future[None] | None = None) -> None:
        """End the lease, once; `gone` is the future of its removal if that was started."""
        self._monitor.stop()
        if self._over is not None:
            self._over.set_result(gone)
        self._on_end()
