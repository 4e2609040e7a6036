"""A lease: one holding of a lock, from acquiring to release or loss.

Knows one ticket that owns.  How it came to own is the line's affair.  A lease is lost on three signals: its session
expires; its node is deleted or written into by another client; or the session is not certain to be alive any more,
because the ensemble's leader has not confirmed it for too long.  The third signal comes before another ticket can own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any, ClassVar, Final, Protocol

from recipes.common.checks import same_loop
from recipes.common.retrying import is_transient
from recipes.common.waiting import LEAVES_WITHIN
from recipes.line.diagnostics import describe_session
from recipes.line.known import known_of
from recipes.line.ticket import Successors, Ticket, VersionedWriter, WrittenOverError, yield_processor
from zkwire import Client, Node, NoNodeError, SessionError, Transaction, Watch, WatchEventType, WatchSet, ZooKeeperError

_log = logging.getLogger(__name__)

GIVEN_BACK: Final = "another task has released it"
CLOSING: Final = "its client is being closed"
DELETED: Final = "another client has deleted it"
WRITTEN_OVER: Final = "another client has written into it"
_ENDED: Final = "its session is over"
_UNCERTAIN: Final = "the session may have expired: the ensemble's leader has not confirmed it for too long"
# Seconds.  The own node of a ticket that owned at once is watched only when it has been held for so long, so that a
# short hold costs two round trips and no third.  The price: a deletion by another client in this time is noticed late.
_UNWATCHED: Final = 0.1


class LockLostError(ZooKeeperError):
    """A lock that was held is lost, or cannot be relied upon any more: stop the work that it protects.

    Attributes:
        path: The lock's node.
        why: The reason.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the lock node {path} is lost: {why}; stop, and acquire it again before you go on")
        self.path = path
        self.why = why


class Body(Protocol):
    """The code that runs while a lease is held, usually the body of an `async with`."""

    def _interrupt(self, loss: LockLostError) -> None:
        """Stop the body, because the lease is lost; called once, for inner bodies first."""

    def _give_back(self, error: LockLostError) -> bool:
        """Stop the body if another task than the present one runs it; return whether it is so."""

    def _go_on_under(self, lease: Lease, before: Lease) -> None:
        """Replace the lease `before` by `lease`, which is the one to release from now on."""


class Holding:
    """What a lease of one lock and a lease of several have in common: the bodies that run under it, and its end.

    Args:
        described: What is held, for messages.
    """

    _noun: ClassVar = "lock"

    __slots__ = ("_bodies", "_depth", "_described", "_loop", "_loss", "_over", "_zk")

    def __init__(self, zk: Client, described: str) -> None:
        self._zk = zk
        self._described = described
        self._loop = asyncio.get_running_loop()
        self._depth = 1  # how many times it was acquired more often than released
        self._bodies: list[Body] = []  # the innermost last
        self._loss: LockLostError | None = None
        # Completed at the end of the lease, with the future of the removal of its nodes if that was started.
        self._over: asyncio.Future[asyncio.Future[None] | None] | None = None

    @property
    def is_released(self) -> bool:
        """Whether `release` was called as often as the lock was acquired."""
        return self._depth == 0

    @property
    def is_over(self) -> bool:
        """Whether the lease was released or lost."""
        return self.is_released or self._loss is not None

    def is_certain(self) -> bool:
        """Return whether the lock is certain to be held at this moment."""
        return self.certain_for() > 0

    def certain_for(self) -> float:
        """Return for how many seconds from now the lock is certain to be held if no server answers any more.

        It is 0 when the lock is not certain to be held.  Provided that clocks run at the same speed, no other client
        can own the lock before that.
        """
        return self._seconds_left()

    def _seconds_left(self) -> float:
        """Return how many seconds the lease lasts for certain; 0 once it is over.  Kinds of leases may shorten it."""
        raise NotImplementedError

    def _find_loss(self) -> LockLostError | None:
        """Lose the lease if it is not certain any more; return its loss, None if it is not lost."""
        raise NotImplementedError

    async def lost(self) -> LockLostError | None:
        """Wait until the lease is lost or released; return the error with the reason, None when it was released.

        Raises:
            RuntimeError: in another event loop.

        Cancellation:
            Harmless.
        """
        same_loop(self._loop, self._described)
        if not self.is_over:
            await asyncio.shield(self._until_over())
        return self._loss

    def _until_over(self) -> asyncio.Future[asyncio.Future[None] | None]:
        if self._over is None:
            self._over = self._loop.create_future()
        return self._over

    # -- bodies -----------------------------------------------------------------------------------------------------

    def _enter_body(self, body: Body) -> None:
        """Have `body` interrupted when the lease is lost."""
        if not self._bodies:
            self._zk.on_closing.add(self._client_closes)
        self._bodies.append(body)

    def _leave_body(self, body: Body) -> LockLostError | None:
        """Undo `_enter_body`; return the loss of the lease, None if it is not lost."""
        self._bodies.remove(body)
        if not self._bodies:
            self._zk.on_closing.discard(self._client_closes)
        return self._find_loss()

    def _interrupt_bodies(self, loss: LockLostError) -> None:
        for body in reversed(self._bodies):
            body._interrupt(loss)

    def _give_back(self, error: LockLostError) -> bool:
        """Stop the bodies that other tasks run, the innermost first; return whether there are any."""
        found = [body._give_back(error) for body in reversed(self._bodies)]  # all of them are asked
        return any(found)

    def _client_closes(self) -> asyncio.Future[Any] | None:
        """Stop the bodies that other tasks run; return the future of the end of the lease, None if none runs."""
        if self.is_over or not self._give_back(LockLostError(self._described, CLOSING)):
            return None
        return self._until_over()

    async def _is_left_to_bodies(self) -> bool:
        """Stop the bodies that other tasks run, and wait for them; return whether there are any: their ends release.

        It waits until they have ended and the nodes are gone, but not for long if a body does not end: the body may be
        waiting for the very task that calls this.
        """
        if self.is_released or not self._give_back(LockLostError(self._described, GIVEN_BACK)):
            return False
        if self._loss is None:
            over = self._until_over()
            await asyncio.wait([over], timeout=LEAVES_WITHIN)
            if not over.done():
                held = f"the {self._noun} {self._described}"
                _log.warning("%s stays held: its body was cancelled by a release, and has not ended", held)
            elif (gone := over.result()) is not None:
                await asyncio.wait([gone])  # not `await gone`: a cancellation would reach the other task that waits
        return True


class Lease(Holding):
    """One holding of a lock; made by acquiring, ended by `release` or by its loss.

    Attributes:
        path: The lock's node.
        token: The fencing token, the zxid that created this node: a later holder has a greater token.  A store that
            refuses tokens smaller than the greatest it has seen is safe even from a holder that does not notice its
            loss.
    """

    __slots__ = ("_is_awaited", "_session_id", "_successors", "_ticket", "_unwatched", "path", "token")

    def __init__(
        self, zk: Client, ticket: Ticket, successors: Successors | None = None, *, is_awaited: bool = True
    ) -> None:
        self.path: str = ticket.node.path
        super().__init__(zk, self.path)
        self._ticket: Ticket = ticket
        self.token: int = ticket.node.token
        self._session_id = ticket.node.session_id
        self._is_awaited = is_awaited  # whether another client may wait until the node is gone
        self._successors = successors
        self._unwatched = known_of(zk).unwatched
        zk.need_certainty()
        zk.on_uncertain.add(self._certainty_ended)
        if ticket.is_watched and ticket.watches is not None:  # a ticket that has waited brings its watch along
            ticket.watches.set_callback(self._watch_fired)
        elif ticket.watch_request is not None:  # begun under the lease before this one, of the same ticket
            ticket.watch_request.add_done_callback(self._watch_answered)
        else:
            if ticket.held_since is None:
                ticket.held_since = self._loop.time()
            # Counted from the first lease: otherwise a ticket that is passed on again and again, each time after less
            # than a tenth of a second, would never be watched.
            self._unwatched.add(self._watch_own_node, ticket.held_since + _UNWATCHED)

    def __repr__(self) -> str:
        if self._loss is not None:
            state = f"lost: {self._loss.why}"
        elif self.is_released:
            state = "released"
        else:
            left = self.certain_for()
            state = f"held, certain for {left:.1f} s" if left else "not certain to be held"
        kind = type(self).__name__.removeprefix("_")
        return f"<{kind} {self.path}, {state}, token {self.token}, session {describe_session(self._session_id)}>"

    # -- state ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Return if the lock is certain to be held.

        Raises:
            LockLostError: if it is not.
            RuntimeError: if it was released.
        """
        if self._loss is None and self.is_released:
            raise RuntimeError(f"the lock node {self.path} was released")
        loss = self._find_loss()
        if loss is not None:
            raise copy(loss)  # each call would add its traceback to one object

    async def asked(self) -> bool:
        """Wait until another client asks to give way, by `Contender.ask` or Curator's Revoker; return True then.

        The lease goes on: release it, as soon as the work allows, or do not.  Later calls return at once.

        Returns:
            False if the lease has ended and no client has asked before.

        Raises:
            RuntimeError: in another event loop.

        Cancellation:
            Harmless.

        Requests:
            None: a holder reads its node after each change anyway, from a tenth of a second after acquiring on.
        """
        same_loop(self._loop, self.path)
        asked = self._ticket.until_asked()
        if not self.is_over:
            either: list[asyncio.Future[Any]] = [asked, self._until_over()]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return asked.done()

    # -- use --------------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while the lock's node exists; see Client.transaction."""
        transaction = self._zk.transaction()
        self._guard(transaction)
        return transaction

    def _guard(self, transaction: Transaction) -> None:
        """Have `transaction` carried out only while the lock's node exists."""
        transaction.check(self.path)

    async def release(self) -> None:
        """Release the lock, and return when its node is known to be gone.

        While no server answers, return after one or two seconds anyway: the client deletes the node as soon as a server
        can be reached, and it is gone with the session at the latest.  So leaving never takes long, whatever is held.
        Does nothing when the lease was lost or released before.
        When another task runs the body of an `async with` of this lease, the body is cancelled first, and the node is
        deleted when the body has ended.  That `async with` raises LockLostError in place of the cancellation.  If its
        body has not ended after a second, return anyway; `lost` waits longer.  The task that runs the body may release
        the lock within it, and goes on without the lock.

        Raises:
            RuntimeError: in another event loop.

        Cancellation:
            The lock is released anyway.

        Order:
            Deletes are sent in the order of the calls, and before the next task of this process goes on.
        """
        if asyncio.get_running_loop() is not self._loop:
            same_loop(self._loop, self.path)  # raises the error
        if self._depth > len(self._bodies) or not await self._is_left_to_bodies():
            await self._release_at_once()

    async def _release_at_once(self) -> None:
        """Do the same as `release`, but leave the bodies alone."""
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        successors, ticket = self._successors, self._ticket
        if self._loss is not None:
            if successors is not None:
                successors.pass_turn()
            return
        # A ticket without certainty is not passed on: the next task would own it only to lose it.
        if successors is not None and successors.wants_ticket(ticket) and self._zk.certain_for(self._session_id):
            self._finish()
            successors.pass_ticket(ticket)
            return
        # First of all, the delete: it is written to the socket before `start` returns.  Another client waits for it, so
        # everything that this process has to clean up comes after it.
        gone = ticket.removal.start()
        self._finish(gone)
        if ticket.watch_request is not None:
            ticket.cancel_watch_request()
        # When the server deletes the node, it sends us the event of our own watch and, at the same moment, the next
        # owner its own event.  If that one runs on this machine it should get the processor first.
        if self._is_awaited and ticket.watches is not None:
            ticket.watches.set_callback(yield_processor)
        if successors is not None:
            successors.pass_turn()
        try:
            await gone
            if self._is_awaited:
                yield_processor()
        finally:
            # The watch on our own node has fired by now.  Watches on blockers may be left from the time of waiting.
            if ticket.watches is not None:
                ticket.watches.cancel()

    def _leave_node(self) -> None:
        """End a lease that is not over, as `release` does, but leave its node and its watches to the caller."""
        self._depth = 0
        self._finish()
        self._ticket.cancel_watch_request()

    def _acquired_again(self) -> None:
        """Count one more acquire, for a re-entrant lock.

        Raises:
            LockLostError: if the lease is lost.
        """
        self.check()
        self._depth += 1

    # -- the end, and what kinds of leases add to it ------------------------------------------------------------------

    def _find_loss(self) -> LockLostError | None:
        """Do the same as Holding._find_loss."""
        if self._seconds_left() <= 0:
            self._lose(self._why_uncertain())
        return self._loss

    def _seconds_left(self) -> float:
        return 0.0 if self.is_over else self._zk.certain_for(self._session_id)

    def _why_uncertain(self) -> str:
        """Return why `_seconds_left` is 0: the session has ended or is being closed, or no server has answered."""
        return _ENDED if self._zk.certain_until == float("-inf") else _UNCERTAIN

    def _on_end(self) -> None:
        """Clean up; called when the lease is released or lost, or another lease takes over its ticket."""

    def _on_asked(self) -> None:
        """Write again what others need to know; called when a request to give way has taken the place of the data."""

    def _become(self, lease: Lease) -> None:
        """Have `lease`, of the same ticket, replace this one in all bodies; this one counts as released."""
        self._depth = 0
        for body in self._bodies:
            lease._enter_body(body)
            body._go_on_under(lease, self)
        self._bodies.clear()
        self._zk.on_closing.discard(self._client_closes)

    async def _write(self, writer: VersionedWriter, data_of: Callable[[int], bytes | None]) -> None:
        """Write the data that `data_of` returns for the next version, until it is known to be there.

        Nothing is written once the lease is over.

        The lease is lost if the node is gone or another client has written into it, and if its session ends.
        """
        try:
            await writer.write(lambda version: None if self.is_over else data_of(version))
        except WrittenOverError:
            self._lose(WRITTEN_OVER)
        except NoNodeError:
            self._lose(DELETED)
        except SessionError as error:
            self._lose(str(error))

    async def _write_again(self, writer: VersionedWriter, data_of: Callable[[int], bytes | None]) -> None:
        """Do the same as `_write`, after a request to give way; what a server refuses for good stays unwritten."""
        with suppress(ZooKeeperError):
            await self._write(writer, data_of)

    def _lose(self, why: str) -> None:
        """Lose the lease, for the reason `why`, if it is not over."""
        if self.is_over:
            return
        self._loss = LockLostError(self.path, why)
        self._finish()
        if why is not DELETED and self._zk.session_id == self._session_id:
            # The session may well be alive on the server.  Others must not wait for a node without a holder.
            self._ticket.removal.start()
        self._ticket.unwatch()
        self._interrupt_bodies(self._loss)
        _log.warning("lost the %s %s: %s", self._noun, self.path, why)

    def _finish(self, gone: asyncio.Future[None] | None = None) -> None:
        """End the lease, once; `gone` is the future of its removal if that was started.

        The ticket keeps its watches, and a request for one, for the lease that may follow.  Nothing refers to this
        lease any more, so that its memory is free without the garbage collector.
        """
        self._zk.release_certainty()
        self._zk.on_uncertain.discard(self._certainty_ended)
        if self._ticket.watches is not None:
            self._ticket.watches.set_callback(None)
        self._unwatched.discard(self._watch_own_node)
        if self._ticket.watch_request is not None:
            self._ticket.watch_request.remove_done_callback(self._watch_answered)
        if self._over is not None:
            self._over.set_result(gone)
        self._on_end()

    # -- the signals of a loss: the certainty of the session, and the ticket's own node -------------------------------

    def _certainty_ended(self) -> None:
        if self._zk.certain_for(self._session_id) > 0:  # an answer has arrived since this was scheduled
            self._zk.on_uncertain.add(self._certainty_ended)
        else:
            self._find_loss()

    def _watch_own_node(self) -> None:
        """Send the request that reads and watches the ticket's own node; an earlier one counts no more."""
        ticket = self._ticket
        if ticket.watches is None:
            ticket.watches = WatchSet()
        asked = self._zk.get_and_watch(self.path, into=ticket.watches)
        ticket.watch_request = self._loop.create_task(asked)
        ticket.watch_request.add_done_callback(self._watch_answered)

    def _watch_answered(self, request: asyncio.Task[tuple[Node, Watch]]) -> None:
        if request.cancelled():
            return
        error = request.exception()
        ticket = self._ticket
        if self.is_over or request is not ticket.watch_request:
            return
        ticket.watch_request = None
        if is_transient(error):
            self._unwatched.add(self._watch_own_node, self._loop.time() + _UNWATCHED)
        elif isinstance(error, ZooKeeperError) and not isinstance(error, NoNodeError):
            # For example, the right to read the node is missing.  Without the watch a deletion would go unnoticed, so
            # the lease cannot be relied upon.
            self._lose(str(error))
        elif isinstance(error, NoNodeError) or request.result()[0].stat.czxid != self.token:
            self._lose(DELETED)  # another token: the node was deleted, and one of the same name was created
        elif not ticket.is_own_data(request.result()[0]):
            self._lose(WRITTEN_OVER)  # other clients may act on what they read there
        else:
            assert ticket.watches is not None  # the request has set a watch
            ticket.is_watched = True
            ticket.watches.set_callback(self._watch_fired)
            # Also if a write has met the request before: that write may have been cancelled.
            if request.result()[0].stat.version == ticket.asked_version:
                self._on_asked()

    def _watch_fired(self) -> None:
        watches = self._ticket.watches
        assert watches is not None  # one of them has fired
        try:
            # Watches on blockers from the time of waiting may still fire: they mean nothing to a holder.
            events = [event for event in watches.take() if event.path == self.path]
        except SessionError as error:
            self._lose(str(error))
            return
        if any(event.type is WatchEventType.DELETED for event in events):
            self._lose(DELETED)
        elif events:
            # The node's data has changed, which uses up the watch.  It also uses up a watch whose request is still
            # unanswered here, so a request that is under way does not make this one superfluous.
            self._ticket.is_watched = False
            self._watch_own_node()
