"""A ticket that waits: it sends what its position needs to know, takes in answers and events, and waits until it owns.

What follows from the answers is decided in `position`; docs/waiting-line.md has the argument.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import zkwire
from recipes.line import ticket_data
from recipes.line.certainty import Certainty
from recipes.line.looks import Looks
from recipes.line.position import Position, Promises, every_contender
from recipes.line.refusals import any_transient, pause
from recipes.line.shared_list import Share
from recipes.line.sight import Sight
from recipes.line.strangers import Strangers, is_ticket, no_tickets
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.trying import leave_out
from recipes.line.yielding import yield_processor
from zkwire import Client, GetChildren, GetData, Node, Sync, WatchEventType, WatchSet, join_path

_log = logging.getLogger(__name__)

# A holder that has promised to be done in some seconds is given a tenth more, for the end of its body and for clocks
# that run at different speeds.
_PATIENCE: Final = 1.1
_LOOKS_AGAIN: Final = 2  # of a ticket that does not wait


class EvictedError(Exception):
    """The ticket is lost before it owned: its node was deleted or written into, or its session is over."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which tickets wait for which, in the line below `path`.

    Arguments: `blocks`, `slots` and `ahead`, see Position, but `slots` may be a function of the data of the node at
    `path`, which may raise: then waiting tickets watch this node; `ignores_shared`, whether a holder that lets readers
    in (see ticket_data) does not block; `strangers`, what the client has found in this line that is no ticket; `looks`,
    of the client at this line.
    """

    path: str
    blocks: Callable[[str], bool] = every_contender
    slots: int | Callable[[bytes], int] = 1
    ahead: int = 1
    ignores_shared: bool = False
    strangers: Strangers = field(default_factory=Strangers)
    looks: Looks = field(default_factory=Looks)

    def reads(self) -> list[GetData | GetChildren]:
        """Return the requests that show where a new ticket stands.

        The number of slots is read after the children.  In the other order the number could shrink, and a holder leave,
        between the two reads: the ticket would then count the few blockers against the old, greater number.
        """
        if isinstance(self.slots, int):
            return [GetChildren(self.path)]
        return [GetChildren(self.path), GetData(self.path)]


class WaitingTicket:
    """The ticket `ticket` while it does not own yet.

    Arguments: `answers`, what each of `rules.reads()` got when it was sent behind the create of the ticket's node;
    `sight`, which takes note of the blockers, None if no one asks.
    Raises: a server's refusal among the answers; what `rules.slots` raises.
    """

    __slots__ = ("_is_kept", "_position", "_promises", "_rules", "_share", "_sight", "_zk", "certainty", "ticket")

    def __init__(
        self, zk: Client, rules: Rules, ticket: Ticket, answers: list[Any], sight: Sight | None = None
    ) -> None:
        self._zk = zk
        self._rules = rules
        self.ticket = ticket
        self.certainty = Certainty(zk, ticket.node.session_id)
        self._is_kept = False
        self._promises = Promises()
        self._share = Share(rules.looks.newest)
        slots = rules.slots if isinstance(rules.slots, int) else None
        self._position = Position(ticket.node.name, blocks=rules.blocks, slots=slots, ahead=rules.ahead)
        self._sight = sight
        if sight is not None:
            sight.begin(rules.path, self._position)
        self._position.listed(_names(answers[0]))
        if slots is None:
            self._take_slots(answers[1], is_watched=False)

    @property
    def node(self) -> TicketNode:
        """The ticket's node."""
        return self.ticket.node

    @property
    def is_first(self) -> bool:
        """Whether the ticket owns, provided that its session is alive."""
        return self._position.owns

    @property
    def owns(self) -> bool:
        """Whether the ticket owns, for certain."""
        return self._position.owns and self.certainty.is_enough()

    @property
    def is_in_present_session(self) -> bool:
        """Whether the client still has the session that created the ticket's node."""
        return self.certainty.is_present_session

    async def check_blockers(self) -> None:
        """Find out whether the blockers go on blocking; called where the ticket does not wait.

        First those are left out that do not block.  The others may be tickets of other tries, which are about to leave.
        If all these tries left at once, none of them would own a lock that is free.  So the one with the smallest name
        looks again, twice at most.  Names begin at random: of the tickets that meet, one is patient.
        Raises: SessionError; the refusal of a read.
        Cancellation: the ticket is given up, as for any error.
        """
        rules, position = self._rules, self._position
        try:
            await leave_out(
                self._zk, rules.path, position, rules.strangers, self._sight, ignores_shared=rules.ignores_shared
            )
            for _ in range(_LOOKS_AGAIN):
                if position.owns or min(position.before, default="") < position.name:
                    return
                await self._look_again()
        except BaseException:
            self.ticket.give_up()
            raise

    async def _look_again(self) -> None:
        """List the line by a look that tickets may share."""
        rules = self._rules
        names, *slots = await rules.looks.share(self._zk, rules.path, rules.reads())
        self._position.listed(names)
        if slots:
            self._take_slots(slots[0], is_watched=False)

    async def make_certain(self) -> None:
        """If the ticket is first, but its session is not certain to be alive, ask the leader.

        Raises: EvictedError when its node is gone.
        Cancellation: the ticket is given up, as for any error.
        """
        try:
            if self.is_first and not self.owns and self.is_in_present_session:
                await self.certainty.renew()
                await self._look_again()  # that may have taken long, and nothing has watched the node
                if self._position.is_gone:
                    raise EvictedError
        except BaseException:
            self.ticket.give_up()
            raise

    async def wait(self) -> Ticket:
        """Wait until the ticket owns, and return it.

        Raises: EvictedError when its node is gone; what the client raises; what `rules.slots` raises.
        Cancellation: the ticket is given up, as for any error.
        """
        position = self._position
        self.certainty.need(later=True)
        try:
            while not self.owns:
                if position.is_gone or not self.certainty.is_present_session:
                    raise EvictedError
                if position.owns:
                    # The last answer of the leader is so old that the session may have expired: ask before believing.
                    await self.certainty.renew()
                    if not position.is_watched:  # that may have taken long, and the node may be gone
                        self._start_over()
                elif position.needs_requests:
                    await self._send_requests()
                elif self._promises.next_end is not None:
                    await self._enforce_promises(self._promises.next_end)
                else:
                    gone = await self._next_event()
                    if gone is not None:
                        self._take_departure(gone)
                        self._share.exchange()
                        continue  # the event itself can be taken only a moment later, and is not needed to own
                self._take_events()
        except BaseException:
            self.ticket.give_up()
            raise
        finally:
            self._share.leave()
            self._keep_certain(False)
            self.certainty.release(later=True)
        self.ticket.is_watched = position.is_watched
        return self.ticket

    def _next_event(self) -> asyncio.Future[str | None]:
        """Return a future for the next event; its result is the path of a blocker that has left, or None.

        This is the fast path of a hand-over.  If the next departure makes the ticket own, it is awaited as urgent: the
        client recognises the bytes of that event as soon as they are read, and resumes this task at once with the path,
        before it decodes the event and does its other work for it.  Otherwise the event only lets the ticket look
        ahead.  The same deletion has then just made another ticket own, perhaps that of another process on this
        machine, which should get the processor first.
        """
        watches, position = self.ticket.watches, self._position
        decisive = [join_path(self._rules.path, name) for name in position.before] if position.is_armed else []
        self._keep_certain(bool(decisive))
        watches.set_callback(None if decisive else yield_processor)
        return watches.ready(urgent=decisive)

    def _keep_certain(self, is_decisive: bool) -> None:
        """Have the session kept certain while one more event can make the ticket own: then there is no time to ask."""
        if is_decisive is not self._is_kept:
            self._is_kept = is_decisive
            (self.certainty.need if is_decisive else self.certainty.release)()

    def _take_events(self) -> None:
        ticket, position = self.ticket, self._position
        # After a reconnect the watches were set again on a new connection, and events from there come in an order that
        # says nothing.  They are no reason to own, except that our own node, once it is gone, stays gone.
        starts_over = ticket.watches.was_rearmed
        for event in ticket.watches.take():
            if event.type is WatchEventType.DELETED:
                self._take_departure(event.path)
            elif event.type is WatchEventType.CHILDREN:
                position.children_changed()
            elif event.path == self._rules.path:
                position.slots_changed()
            elif event.path == ticket.node.path:
                starts_over = True  # its deletion would go unnoticed from now on
            else:
                position.unwatched(event.path.rpartition("/")[2])
        if starts_over:
            self._start_over()
        # The watch on our own node stands, and all events that it has brought are taken: what the other tickets of this
        # client know comes from the same connection, and none of it is newer than our node.
        if position.is_watched and not position.is_gone and (known := self._share.exchange()) is not None:
            position.caught_up(known)

    def _take_departure(self, path: str) -> None:
        """Take in that the server has reported the deletion of the node at `path`."""
        name = path.rpartition("/")[2]
        self._position.departed(name)
        self._share.departed(name)

    def _start_over(self) -> None:
        """Drop all watches; the ticket does not own before they are set again and there is a new list."""
        self.ticket.watches.cancel()
        self.ticket.watches = WatchSet()
        self._share.leave()
        self._position.started_over()

    async def _send_requests(self) -> None:
        """Send, in one write, the watches that are missing and the list if one is due; take in the answers.

        The watch on our own node is sent ahead of those on the blockers.  A server executes requests in order and
        reports events in order: so if our own node is deleted, we know it before the departure of any blocker could
        make us own.  In the other order a blocker's departure could be reported while the deletion of our node, which
        came before it, was not watched yet.  The watch on the number of slots goes ahead of the blockers, too, because
        a departure is to be counted by the number that is valid at that time.

        A blocker that this client may not read has no watch.  Then the list leaves a watch on the children.
        If the server must catch up with the leader first, a sync goes ahead of all.

        If many tickets of this client list the line, this one shares a look, when its own node is watched.
        """
        path, position, watches, looks = self._rules.path, self._position, self.ticket.watches, self._rules.looks
        watches_children = position.watches_children
        lists = position.needs_list
        if lists and looks.are_many and not watches_children:
            if position.is_watched and not position.needs_slots:
                names, *_ = await looks.share(self._zk, path, self._rules.reads())
                position.listed(self._share.listed(names))
                return
            lists = False
        watched = [] if position.is_watched else [position.name]
        slots = [GetData(path, into=watches)] if position.needs_slots else []
        own = len(watched)
        if not position.needs_list:
            watched += position.to_watch
        operations: list[GetData | GetChildren | Sync] = [
            GetData(join_path(path, name), into=watches) for name in watched
        ]
        operations[own:own] = slots
        if lists:
            yield_processor()  # a list is never urgent, and the departure behind it has made another ticket own
            operations.append(GetChildren(path, into=watches if watches_children else None))
        if position.needs_sync:
            operations.insert(0, Sync(path))
        looks.own += lists
        try:
            answers = await self._zk.pipeline(operations)
        finally:
            looks.own -= lists
        if any_transient(answers):
            # Of the watches only some are set.  The order in which they are asked for matters, so ask for all again.
            # An event that has arrived meanwhile may be that our own node is gone.
            self._take_events()
            self._start_over()
            await pause()
            return
        if position.needs_sync:
            self._take_sync(answers.pop(0))
        if slots:
            self._take_slots(answers.pop(own), is_watched=True)
        if lists:
            position.listed(self._share.listed(_names(answers.pop())), is_watched=watches_children)
        for name, answer in zip(watched, answers, strict=True):
            self._take_watched(name, answer)
        if not (position.owns or all(is_ticket(answer.stat) for answer in answers if isinstance(answer, Node))):
            for name in await no_tickets(self._zk, path, position.unknown):
                position.departed(name)

    def _take_sync(self, answer: Any) -> None:
        if isinstance(answer, BaseException):
            raise answer
        self._position.synced()

    def _take_watched(self, name: str, answer: Any) -> None:
        """Take in the answer to the request that reads and watches `name`, a blocker or the ticket's own node."""
        position = self._position
        if isinstance(answer, zkwire.NoNodeError):
            self._take_departure(name)
        elif isinstance(answer, zkwire.NoAuthError) and name != position.name:
            position.unreadable(name)
            self._rules.strangers.found_unreadable(join_path(self._rules.path, name))
        elif isinstance(answer, BaseException):
            raise answer
        elif name != position.name:
            position.watched(name)
            self._take_blocker(name, answer)
        elif self.ticket.is_own_data(answer):
            position.watched(name)
        else:
            # Nothing in it is believed by our clients.  But it is not known what others make of it.
            _log.warning("another client has written into %s, which waits: taking a new ticket", self.node.path)
            position.departed(name)

    def _take_slots(self, node: Any, *, is_watched: bool) -> None:
        if isinstance(node, zkwire.NoNodeError):
            self._position.departed(self._position.name)  # without its parent the ticket's node is gone, too
        elif isinstance(node, BaseException):
            raise node
        elif not isinstance(self._rules.slots, int):
            self._position.slots_read(self._rules.slots(node.data), is_watched=is_watched)

    def _take_blocker(self, name: str, node: Node) -> None:
        """Take in the data of a blocker: a promise, or that it lets readers in.  It blocks only if it is a ticket."""
        if self._is_stranger(name, node):
            self._position.departed(name)
            return
        if self._sight is not None:
            self._sight.saw(name, node)
        written = ticket_data.parse(name, node.data, node.stat.version)
        if written is None or written.limit is None:
            self._promises.forget(name)
        else:
            end = asyncio.get_running_loop().time() + written.limit * _PATIENCE
            self._promises.seen(name, node.stat.version, end)
        if written is not None and written.is_shared and self._rules.ignores_shared:
            self._position.departed(name)

    def _is_stranger(self, name: str, node: Node) -> bool:
        """Return whether `name`, read as `node`, is no ticket; then it is reported."""
        if is_ticket(node.stat):
            return False
        self._rules.strangers.found_no_ticket(join_path(self._rules.path, name))
        return True

    async def _enforce_promises(self, end: float) -> None:
        """Wait for an event until `end`, when a promise ends; then delete the nodes whose promise is broken.

        The delete names the version of the node that was read.  If the holder has promised anew meanwhile, the server
        refuses the delete.  The answer to the delete counts, and not only the event of the watch on the node: a client
        that may not read the node any more gets no event.
        """
        loop = asyncio.get_running_loop()
        event = self.ticket.watches.ready()
        await asyncio.wait([event], timeout=max(0.0, end - loop.time()))
        event.cancel()
        for name, version in self._promises.broken(loop.time()):
            try:
                if self._position.is_blocked_by(name):
                    await self._zk.delete(join_path(self._rules.path, name), version)
                    self._take_departure(name)
            except zkwire.ConnectionLostError:
                continue  # it may have been deleted: the list that follows the reconnect will show it
            except zkwire.ServerError as error:
                if error.is_transient:
                    await pause()
                    return
                if isinstance(error, zkwire.NoNodeError):
                    self._take_departure(name)
                # Otherwise an event has announced the new promise, which is read next; or we may not delete the node.
                elif not isinstance(error, zkwire.BadVersionError | zkwire.NoAuthError):
                    raise
            self._promises.forget(name)


def _names(answer: Any) -> list[str]:
    """Return what a list of the children has shown.  Raises: the refusal that the server has answered."""
    if isinstance(answer, zkwire.NoNodeError):
        return []  # sent again after a reconnect, and meanwhile somebody has deleted the whole line
    if isinstance(answer, BaseException):
        raise answer
    names: list[str] = answer
    return names
