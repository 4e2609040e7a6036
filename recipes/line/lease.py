"""A lease: one holding of a lock, watched for as long as it lasts.

Knows one place in a line that owns.  How it came to own, and who is next, is the lock's affair.

A lease is lost on three signals: its session expires; its node is deleted by somebody else; or the holder can no
longer be certain that the session lives, because three quarters of the timeout have passed since the sending of the
last request that was answered. The last comes before anybody else can own.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from recipes.line.line import Ticket, let_others_run
from zkwire import (
    Client,
    Node,
    NoNodeError,
    ServerError,
    SessionError,
    Transaction,
    Watch,
    WatchEventType,
    ZooKeeperError,
)

# What is held for less than this time, however often it is passed on, never costs a watch of its own node, so that an
# uncontended lock is two round trips.  The only loss that is told so much later is a deletion by somebody else.
_UNWATCHED: Final = 0.1


DELETED: Final = "somebody else has deleted it"
ENDED: Final = "its session is over"
UNCERTAIN: Final = "the session may have expired: no server has answered for three quarters of its timeout"


class LockLostError(ZooKeeperError):
    """A lock that was held is held no longer, or can no longer be relied upon: stop what it protects.

    Arguments: `path`, the lock's node; `why`, which signal told it.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the lock node {path} is lost: {why}; stop, and acquire it again before you go on")
        self.path = path
        self.why = why


class LocalQueue(Protocol):
    """Who goes on in this process when a lease ends; `passes_tickets`, whether they ever do with its place in the
    line."""

    passes_tickets: bool

    def wants_ticket(self) -> bool:
        """Whether the place in the line may be taken over, and somebody wants it."""

    def pass_ticket(self, ticket: Ticket) -> None:
        """Take the place in the line."""

    def pass_turn(self) -> None:
        """Go on without it."""


class NoLocalQueue:
    """No local_queue in this process: whoever comes next stands in the line on its own account."""

    passes_tickets = False

    def wants_ticket(self) -> bool:
        """Nobody does."""
        return False

    def pass_ticket(self, ticket: Ticket) -> None:
        """Never called."""

    def pass_turn(self) -> None:
        """There is no turn to take."""


NO_LOCAL_QUEUE: Final = NoLocalQueue()


class Body(Protocol):
    """What runs while a lease is held, or has a share in it."""

    def interrupt(self, loss: LockLostError, stopped: set[asyncio.Task[Any]]) -> None:
        """Stop, for the lease is lost.

        Arguments: `loss`, how; `stopped`, the tasks of bodies further inside that were interrupted for it already, to
        which this one adds its own: that of a task stops those around it as well.
        """

    def go_on_under(self, lease: Lease, before: Lease) -> None:
        """Take note that `lease` has taken the place of `before`, and is the one to be released."""


class Lease:
    """One holding of a lock; made by acquiring, ended by `release` or by its loss.

    `token` is the fencing token, the zxid that created the lock's node: of two holders the later one has the greater,
    so that a store that refuses smaller ones than it has seen is safe even from a holder that does not notice its loss.
    `path` is the lock's node.
    """

    __slots__ = (
        "_bodies",
        "_depth",
        "_local_queue",
        "_loss",
        "_over",
        "_timer",
        "_zk",
        "path",
        "ticket",
        "token",
    )  # fmt: skip

    def __init__(self, zk: Client, ticket: Ticket, local_queue: LocalQueue = NO_LOCAL_QUEUE) -> None:
        self._zk = zk
        self.ticket = ticket
        self.path = ticket.node.path
        self.token = ticket.node.token
        self._local_queue = local_queue
        self._depth = 1
        self._loss: LockLostError | None = None
        self._over: asyncio.Future[None] | None = None
        self._bodies: list[Body] = []
        self._timer: asyncio.TimerHandle | None = None
        zk.on_uncertain.add(self._look_at_the_clock)
        zk.need_certainty()
        if ticket.is_watched:
            ticket.watches.set_callback(self._look_at_events)
        elif ticket.asking is not None:
            ticket.asking.add_done_callback(self._watch_answered)
        else:
            loop = asyncio.get_running_loop()
            if ticket.held_since is None:
                ticket.held_since = loop.time()
            self._timer = loop.call_at(ticket.held_since + _UNWATCHED, self._watch)

    # -- asking -----------------------------------------------------------------------------------------------------

    @property
    def is_released(self) -> bool:
        """Whether `release` was called as often as it was acquired."""
        return self._depth == 0

    @property
    def is_over(self) -> bool:
        """Whether it was released or lost."""
        return self._depth == 0 or self._loss is not None

    def is_certain(self) -> bool:
        """Whether the lock is held for certain at this moment."""
        return self.certain_for() > 0

    def certain_for(self) -> float:
        """Return for how many seconds from now the lock is held for certain, if no server answers any more; 0 when it
        is not.

        A clock that runs unevenly aside, nobody else can own it before that.
        """
        return self._left()

    def check(self) -> None:
        """Return if the lock is held for certain.  Raises: LockLostError; RuntimeError when it was released."""
        if self._loss is None and self.is_released:
            raise RuntimeError(f"the lock node {self.path} was released")
        if self._left() <= 0:
            raise self._lose(self._doubt())

    async def lost(self) -> LockLostError | None:
        """Return when the lease is lost, with the error that tells how; None when it was released before.

        Cancellation: harmless.
        """
        if self._loss is None and not self.is_released:
            if self._over is None:
                self._over = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._over)
        return self._loss

    def transaction(self) -> Transaction:
        """Return a transaction that is carried out only while the lock's node exists; see Client.transaction."""
        transaction = self._zk.transaction()
        self.guard(transaction)
        return transaction

    def guard(self, transaction: Transaction) -> None:
        """Have `transaction` carried out only while the lock's node exists."""
        transaction.check(self.path)

    async def release(self) -> None:
        """Let the lock go, and return when its node is known to be gone; what was lost or released before needs
        nothing.

        Cancellation: the lock goes all the same.
        Order: the delete is sent in the order of the calls, and before anybody who waits in this process goes on.
        """
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        local_queue = self._local_queue
        if self._loss is not None:
            local_queue.pass_turn()
            return
        if (
            local_queue.passes_tickets
            and local_queue.wants_ticket()
            and self._zk.certain_for(self.ticket.node.session_id)
        ):
            self._stop_guard()
            local_queue.pass_ticket(self.ticket)
            return
        gone = self.ticket.removal.start()  # before anything else: somebody waits for it
        self._stop_guard()
        self.ticket.stop_asking()
        self.ticket.watches.set_callback(let_others_run)
        local_queue.pass_turn()
        try:
            await gone
            let_others_run()
        finally:
            # The watch on our own node has fired by then; what else was watched is of no use any more.
            self.ticket.watches.cancel()

    def acquired_again(self) -> None:
        """Count one acquire more; called by a re-entrant lock.  Raises: LockLostError."""
        self.check()
        self._depth += 1

    # -- being told -------------------------------------------------------------------------------------------------

    def enter_body(self, body: Body) -> None:
        """Have `body` interrupted when the lease is lost; of those of one task the innermost one is."""
        self._bodies.append(body)

    def leave_body(self, body: Body) -> LockLostError | None:
        """Undo `enter_body`; return how the lease was lost, if it was."""
        self._bodies.remove(body)
        return self.find_loss()

    def find_loss(self) -> LockLostError | None:
        """Return how the lease was lost, if it was, also when that is found out by looking now."""
        if not self.is_over and self._left() <= 0:
            self._lose(self._doubt())
        return self._loss

    def _left(self) -> float:
        """For how many seconds the lease is safe from everybody else, whatever happens; 0 once it is over."""
        return self._left_of_session()

    def _left_of_session(self) -> float:
        return 0.0 if self.is_over else self._zk.certain_for(self.ticket.node.session_id)

    def _doubt(self) -> str:
        """Why nothing is left of it."""
        return self._doubt_of_session()

    def _doubt_of_session(self) -> str:
        is_over = self._zk.session_id != self.ticket.node.session_id or self._zk.certain_until == float("-inf")
        return ENDED if is_over else UNCERTAIN

    def _guard_stopped(self) -> None:
        """Nobody looks after the lease any more: it is released, lost, or somebody else's."""

    def _watch(self) -> None:
        """Have our own node watched.  An earlier request for that which is under way counts no more."""
        ticket = self.ticket
        asked = self._zk.get_and_watch(self.path, into=ticket.watches)
        ticket.asking = asyncio.get_running_loop().create_task(asked)
        ticket.asking.add_done_callback(self._watch_answered)

    def _watch_answered(self, asking: asyncio.Task[tuple[Node, Watch]]) -> None:
        if asking.cancelled():
            return
        error = asking.exception()
        if self.is_over or asking is not self.ticket.asking:
            return
        self.ticket.asking = None
        if isinstance(error, ServerError) and error.is_transient:
            self._timer = asyncio.get_running_loop().call_later(_UNWATCHED, self._watch)
        elif isinstance(error, ZooKeeperError) and not isinstance(error, NoNodeError):
            self._lose(str(error))  # a lease whose loss would not be told is none: no right to read, perhaps
        elif isinstance(error, NoNodeError) or asking.result()[0].stat.czxid != self.token:
            self._lose(DELETED)  # or another one has taken its place
        else:
            self.ticket.is_watched = True
            self.ticket.watches.set_callback(self._look_at_events)

    def _look_at_events(self) -> None:
        try:
            events = [event for event in self.ticket.watches.take() if event.path == self.path]
        except SessionError as error:
            self._lose(str(error))
            return
        if any(event.type is WatchEventType.DELETED for event in events):
            self._lose(DELETED)
        elif events:
            # Its data was changed, which has used up the watch: also one whose answer we have not yet heard of.
            self.ticket.is_watched = False
            self._watch()

    def _look_at_the_clock(self) -> None:
        if self._left() > 0:
            self._zk.on_uncertain.add(self._look_at_the_clock)
        elif not self.is_over:
            self._lose(self._doubt())

    def _lose(self, why: str) -> LockLostError:
        if self._loss is None:
            self._loss = LockLostError(self.path, why)
            self._stop_guard()
            if why is not DELETED and self._zk.session_id == self.ticket.node.session_id:
                self.ticket.removal.start()  # it may yet be there, and nobody must wait for a node without a holder
            self.ticket.stop_asking()
            self.ticket.watches.cancel()
            stopped: set[asyncio.Task[Any]] = set()
            for body in reversed(self._bodies):
                body.interrupt(self._loss, stopped)
        return self._loss

    def _stop_guard(self) -> None:
        self._zk.on_uncertain.discard(self._look_at_the_clock)
        self._zk.release_certainty()
        self.ticket.watches.set_callback(None)
        if self._timer is not None:
            self._timer.cancel()
        if self.ticket.asking is not None:
            self.ticket.asking.remove_done_callback(self._watch_answered)  # the next one may take it over
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        self._guard_stopped()
