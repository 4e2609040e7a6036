"""The monitor of a held ticket: it watches the session's certainty and the ticket's own node, and reports a loss.

Knows the ticket.  What a loss means for the holder is for the lease to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from recipes.line.certainty import Certainty
from recipes.line.ticket import Ticket
from zkwire import Client, Node, NoNodeError, ServerError, SessionError, Watch, WatchEventType, ZooKeeperError

# Seconds.  The own node of a ticket that owned at once is watched only when it has been held for so long, so that a
# short hold costs two round trips and no third.  The price: a deletion by another client in this time is noticed late.
_UNWATCHED: Final = 0.1
_NEVER: Final = float("inf")

DELETED: Final = "another client has deleted it"
WRITTEN_OVER: Final = "another client has written into it"


class _Unwatched:
    """The monitors of one client that are to watch their ticket's node in a moment, with one timer for all of them.

    Most leases are over before that, and a timer for each of them would be set in vain.
    """

    __slots__ = ("_due", "_next", "_timer")

    def __init__(self) -> None:
        self._due: dict[LossMonitor, float] = {}
        self._next = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    def add(self, monitor: LossMonitor, due: float) -> None:
        """Have `monitor` watch the node at the time `due`, on the event loop's clock."""
        self._due[monitor] = due
        if due < self._next:
            if self._timer is not None:
                self._timer.cancel()
            self._wait_until(due)

    def _wait_until(self, due: float) -> None:
        self._next = due
        self._timer = asyncio.get_running_loop().call_at(due, self._watch)

    def discard(self, monitor: LossMonitor) -> None:
        """Undo `add`.  The timer stays: the next monitor is often added a moment later."""
        self._due.pop(monitor, None)

    def _watch(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [monitor for monitor, at in self._due.items() if at <= now]
        for monitor in due:
            del self._due[monitor]
        self._next, self._timer = _NEVER, None
        if self._due:
            self._wait_until(min(self._due.values()))
        for monitor in due:
            monitor.watch_own_node()


_OF_CLIENT: Final[WeakKeyDictionary[Client, _Unwatched]] = WeakKeyDictionary()


class LossMonitor:
    """Watches over one lease of `ticket`, from now until `stop`.

    Arguments: `certainty`, that of the ticket's session; `loop`, the event loop; `on_uncertain`, called when it has
    ended; `on_lost`, called with the reason when the ticket's node is lost.  Both stop the monitor.
    """

    __slots__ = ("_certainty", "_is_stopped", "_on_lost", "_on_uncertain", "_ticket", "_unwatched", "_zk")

    def __init__(
        self,
        zk: Client,
        ticket: Ticket,
        certainty: Certainty,
        loop: asyncio.AbstractEventLoop,
        *,
        on_uncertain: Callable[[], object],
        on_lost: Callable[[str], object],
    ) -> None:
        self._zk = zk
        self._ticket = ticket
        self._on_uncertain = on_uncertain
        self._on_lost = on_lost
        self._is_stopped = False
        self._unwatched = _OF_CLIENT.get(zk) or _OF_CLIENT.setdefault(zk, _Unwatched())
        self._certainty = certainty
        certainty.need(self._certainty_ended)
        if ticket.is_watched:  # a ticket that has waited brings its watch along
            ticket.watches.set_callback(self._watch_fired)
        elif ticket.watch_request is not None:  # begun under the lease before this one, of the same ticket
            ticket.watch_request.add_done_callback(self._watch_answered)
        else:
            if ticket.held_since is None:
                ticket.held_since = loop.time()
            # Counted from the first lease: otherwise a ticket that is passed on again and again, each time after less
            # than a tenth of a second, would never be watched.
            self._unwatched.add(self, ticket.held_since + _UNWATCHED)

    def stop(self) -> None:
        """Stop watching, once; the ticket keeps its watches, and a request for one, for the lease that may follow."""
        self._is_stopped = True
        self._certainty.release(self._certainty_ended)
        self._ticket.watches.set_callback(None)
        self._unwatched.discard(self)
        if self._ticket.watch_request is not None:
            self._ticket.watch_request.remove_done_callback(self._watch_answered)
        self._on_uncertain = self._on_lost = _ignore  # breaks the reference cycle with the lease

    def _certainty_ended(self) -> None:
        if self._certainty.seconds_left() > 0:  # an answer has arrived since this call was scheduled
            self._certainty.add_callback(self._certainty_ended)
        else:
            self._on_uncertain()

    def watch_own_node(self) -> None:
        """Send the request that reads and watches the ticket's own node; an earlier one counts no more."""
        ticket = self._ticket
        asked = self._zk.get_and_watch(ticket.node.path, into=ticket.watches)
        ticket.watch_request = asyncio.get_running_loop().create_task(asked)
        ticket.watch_request.add_done_callback(self._watch_answered)

    def _watch_answered(self, request: asyncio.Task[tuple[Node, Watch]]) -> None:
        if request.cancelled():
            return
        error = request.exception()
        ticket = self._ticket
        if self._is_stopped or request is not ticket.watch_request:
            return
        ticket.watch_request = None
        if isinstance(error, ServerError) and error.is_transient:
            self._unwatched.add(self, asyncio.get_running_loop().time() + _UNWATCHED)
        elif isinstance(error, ZooKeeperError) and not isinstance(error, NoNodeError):
            # For example, the right to read the node is missing.  Without the watch a deletion would go unnoticed, so
            # the lease cannot be relied upon.
            self._on_lost(str(error))
        elif isinstance(error, NoNodeError) or request.result()[0].stat.czxid != ticket.node.token:
            self._on_lost(DELETED)  # another token: the node was deleted, and one of the same name was created
        elif not ticket.is_own_data(request.result()[0]):
            # Other clients may act on what they read there.
            self._on_lost(WRITTEN_OVER)
        else:
            ticket.is_watched = True
            ticket.watches.set_callback(self._watch_fired)

    def _watch_fired(self) -> None:
        path = self._ticket.node.path
        try:
            # Watches on blockers from the time of waiting may still fire: they mean nothing to a holder.
            events = [event for event in self._ticket.watches.take() if event.path == path]
        except SessionError as error:
            self._on_lost(str(error))
            return
        if any(event.type is WatchEventType.DELETED for event in events):
            self._on_lost(DELETED)
        elif events:
            # The node's data has changed, which uses up the watch.  It also uses up a watch whose request is still
            # unanswered here, so a request that is under way does not make this one superfluous.
            self._ticket.is_watched = False
            self.watch_own_node()


def _ignore(why: str = "") -> None:
    """Do nothing: the monitor is stopped."""
