"""A ticket that waits: it sends what its position needs to know, takes in answers and events, and waits until it owns.

What follows from the answers is decided in `position`; docs/waiting-line.md has the argument.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import zkwire
from recipes.common.retrying import any_transient, pause, pause_if_transient, read
from recipes.line import ticket_data
from recipes.line.diagnostics import diagnose_before, diagnose_read
from recipes.line.known import KnownLine, Subscription
from recipes.line.position import Position, Promises, Ranking, WeighedPosition, every_contender, ranked
from recipes.line.ticket import ASKED, Ticket, is_ticket, yield_processor
from zkwire import Client, GetChildren, GetChildrenAndStat, GetData, Node, Sync, WatchEventType, WatchSet, join_path

_log = logging.getLogger(__name__)

# A holder that has promised to be done in some seconds is given a tenth more, for the end of its body and for clocks
# that run at different speeds.
_PATIENCE: Final = 1.1
_LOOKS_AGAIN: Final = 2  # of a ticket that does not wait


class EvictedError(Exception):
    """The ticket is lost before it owned: its node was deleted or written into, or its session is over."""


class Rules(NamedTuple):
    """Which tickets wait for which, in the line that `known` describes.

    Args:
        known: What the client knows of the line.
        blocks: Whether an earlier contender of that name is a blocker.
        slots: How many tickets may own; or a function of the data of the line's node, which may raise: then waiting
            tickets watch this node, and a blocker may take several slots (see WeighedPosition).
        ahead: How many blockers a ticket watches beyond those, see Position.
        ignores_shared: Whether a holder that lets readers in (see ticket_data) does not block.
        looks_first: Whether a try takes no ticket if it meets one that blocks it, even if no try has failed before.
    """

    known: KnownLine
    blocks: Callable[[str], bool] = every_contender
    slots: int | Callable[[Node], int] = 1
    ahead: int = 1
    ignores_shared: bool = False
    looks_first: bool = False

    def reads_slots(self) -> list[GetData]:
        """Return the request for the number of slots if it is in the line's node."""
        return [] if isinstance(self.slots, int) else [GetData(self.known.path)]

    def reads_line(self) -> list[GetChildren | GetChildrenAndStat | GetData]:
        """Return the requests for the children and, if it is in the line's node, for the number of slots.

        Then the list brings the Stat of that node, which shows whether the number was the same at the moment of the
        list (see WaitingTicket._take_list).
        """
        path, slots = self.known.path, self.reads_slots()
        return [GetChildrenAndStat(path), *slots] if slots else [GetChildren(path)]

    def position(self, name: str) -> Position:
        """Return the position of the ticket `name`, of which nothing is known yet."""
        if isinstance(self.slots, int):
            return Position(name, blocks=self.blocks, slots=self.slots, ahead=self.ahead)
        return WeighedPosition(name, blocks=self.blocks, slots=None, ahead=self.ahead)

    async def leave_out(self, zk: Client, position: Position) -> bool:
        """Read the first blockers of `position`, as many as there are slots, and leave out those that do not block.

        For a caller that does not wait.  A blocker is read only if it has made a try fail before: in general it is a
        holder; with `looks_first` the first try reads it, because it takes no ticket that would make it fail before.
        For each one that is left out the next one is read.  With `ignores_shared` a single blocker is read each time,
        because it may have let readers in: of several blockers one at least is not a holder, and only a holder does so.

        Returns:
            Whether one has left since the list: by now the number of slots may be another, or the ticket's node gone.

        Raises:
            ServerError: if the server refuses to show a blocker, but for one that this client must not read: that one
                goes on blocking.
        """
        has_left = False
        if position.is_free:
            return has_left
        path, known = self.known.path, self.known
        to_read = known.to_read(position.first, at_once=self.looks_first)
        if self.ignores_shared and len(position.before) == 1:
            to_read = position.first
        seen = set(position.first)
        while to_read:
            nodes = await read(zk, *(GetData(join_path(path, name)) for name in to_read))
            has_foreign = False
            for name, node in zip(to_read, nodes, strict=True):
                if isinstance(node, zkwire.NoNodeError):
                    has_left = True
                    position.departed(name)
                elif isinstance(node, Node) and not is_ticket(node.stat):
                    has_foreign = True
                    known.found_foreign(name)
                    position.departed(name)
                elif isinstance(node, Node):
                    known.was_read(name)
                    diagnose_read(name, node, position)
                    if self.ignores_shared and ticket_data.lets_readers_in(name, node.data, node.stat.version):
                        position.departed(name)
                elif not isinstance(node, zkwire.NoAuthError):
                    raise node
            if has_foreign and not position.is_free:
                for name in await known.foreign_among(zk, [name for name in position.before if name not in seen]):
                    position.departed(name)
            to_read = [] if position.is_free else [name for name in position.first if name not in seen]
            seen.update(to_read)
        return has_left


class WaitingTicket:
    """The ticket `ticket` while it does not own yet.

    Args:
        children: The children of the line's node, read after the ticket's node was created.
        slots: What the read of the number of slots has brought, if it is in the line's node.

    Raises:
        ServerError: if `slots` is a refusal.  What `rules.slots` raises is raised, too.
    """

    __slots__ = ("_is_kept", "_position", "_promises", "_rules", "_shared", "_watches", "_zk", "ticket")
    _watches: WatchSet  # those of the ticket, from the beginning of the wait

    def __init__(self, zk: Client, rules: Rules, ticket: Ticket, children: Ranking, *slots: Any) -> None:
        self._zk = zk
        self._rules = rules
        self.ticket: Ticket = ticket
        self._is_kept = False
        self._promises = Promises()
        self._shared = Subscription(rules.known.children)
        self._position = rules.position(ticket.node.name)
        self._take_list(children, *slots)

    @property
    def is_first(self) -> bool:
        """Whether the ticket owns, provided that its session is alive."""
        return self._position.owns

    @property
    def owns(self) -> bool:
        """Whether the ticket owns, for certain: a lock is no use that is lost at once."""
        return self._position.owns and self._zk.is_certain(self.ticket.node.session_id)

    @property
    def is_lost(self) -> bool:
        """Whether the node is gone, or the client has another session than the one that created it."""
        return self._position.is_gone or self._zk.session_id != self.ticket.node.session_id

    async def find_out(self) -> None:
        """Find out whether the blockers go on blocking, and whether the ticket owns for certain, if it does not wait.

        First those are left out that do not block.  The others may be tickets of other tries, which are about to leave.
        If all these tries left at once, none of them would own a lock that is free.  So the one with the smallest name
        lists the line again, twice at most.  Names begin at random: of the tickets that meet, one is patient.

        Raises:
            EvictedError: if the node is gone, or its session over.

        Cancellation:
            The ticket is given up, as for any error.
        """
        position = self._position
        try:
            has_left = await self._rules.leave_out(self._zk, position)
            if has_left or not position.is_informed:
                await self._look_again()
            for _ in range(_LOOKS_AGAIN):
                if not position.is_free and position.name < min(position.before):
                    await self._look_again()
            if self.is_first and not self.owns:
                await certify(self._zk)
                await self._look_again()  # that may have taken long, and nothing has watched the node
            if self.is_lost:
                raise EvictedError
            diagnose_before(self._rules.known.path, position)
        except BaseException:
            self.ticket.give_up()
            raise

    async def _look_again(self) -> None:
        """List the line together with other tickets that do."""
        self._take_list(*await self._rules.known.look(self._zk, *self._rules.reads_slots()))

    async def wait(self) -> Ticket:
        """Wait until the ticket owns, and return it.

        Raises:
            EvictedError: if its node is gone, or its session over.

        What the client and `rules.slots` raise is raised, too.

        Cancellation:
            The ticket is given up, as for any error.
        """
        position = self._position
        if self.ticket.watches is None:
            self.ticket.watches = WatchSet()
        self._watches = self.ticket.watches
        self._zk.need_certainty(later=True)
        try:
            while not self.owns:
                if self.is_lost:
                    raise EvictedError
                if position.owns:
                    # The last answer of the leader is so old that the session may have expired: ask before believing.
                    await certify(self._zk)
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
                        self._shared.exchange()
                        continue  # the event itself can be taken only a moment later, and is not needed to own
                self._take_events()
        except BaseException:
            self.ticket.give_up()
            diagnose_before(self._rules.known.path, position)
            raise
        finally:
            self._shared.leave()
            self._keep_certain(False)
            self._zk.release_certainty(later=True)
        self.ticket.is_watched = position.is_watched
        return self.ticket

    def _next_event(self) -> asyncio.Future[str | None]:
        """Return a future for the next event; its result is the path of a blocker that has left, or None.

        This is the fast path of a hand-over.  If the next departure makes the ticket own, it is awaited as urgent: the
        client recognises the bytes of that event as soon as they are read, and resumes this task at once with the path,
        before it decodes the event and does its other work for it.  Otherwise the event only lets the ticket look
        ahead.  The same deletion has then just made another ticket own, perhaps one of another process on this
        machine, which should get the processor first.
        """
        watches, position = self._watches, self._position
        decisive = [join_path(self._rules.known.path, name) for name in position.before] if position.is_armed else []
        self._keep_certain(bool(decisive))
        watches.set_callback(None if decisive else yield_processor)
        return watches.ready(urgent=decisive)

    def _keep_certain(self, is_decisive: bool) -> None:
        """Have the session kept certain while one more event can make the ticket own: then there is no time to ask."""
        if is_decisive is not self._is_kept:
            self._is_kept = is_decisive
            (self._zk.need_certainty if is_decisive else self._zk.release_certainty)()

    def _take_events(self) -> None:
        ticket, position = self.ticket, self._position
        # After a reconnect the watches were set again on a new connection, and events from there come in an order that
        # says nothing.  They are no reason to own, except that our own node, once it is gone, stays gone.
        starts_over = self._watches.was_rearmed
        for event in self._watches.take():
            if event.type is WatchEventType.DELETED:
                self._take_departure(event.path)
            elif event.type is WatchEventType.CHILDREN:
                position.children_changed()
            elif event.path == self._rules.known.path:
                position.slots_changed()
            elif event.path == ticket.node.path:
                starts_over = True  # its deletion would go unnoticed from now on
            else:
                position.unwatched(event.path.rpartition("/")[2])
        if starts_over:
            self._start_over()
        # Our own node is watched, and all events that the watch has brought are taken: what the other tickets of this
        # client know comes from the same connection, and none of it is newer than our node.
        if position.is_watched and not position.is_gone and (known := self._shared.exchange()) is not None:
            position.caught_up(known)

    def _take_departure(self, path: str) -> None:
        """Take in that the server has reported the deletion of the node at `path`."""
        name = path.rpartition("/")[2]
        self._position.departed(name)
        self._shared.departed(name)

    def _start_over(self) -> None:
        """Drop all watches; the ticket does not own before they are set again and there is a new list."""
        self._watches.cancel()
        self._watches = self.ticket.watches = WatchSet()
        self._shared.leave()
        self._position.started_over()

    async def _send_requests(self) -> None:
        """Send, in one write, the watches that are missing and the list if one is due; take in the answers.

        The watch on our own node is sent before those on the blockers.  A server executes requests in order and reports
        events in order: so if our own node is deleted, we know it before the departure of any blocker could make us
        own.  In the other order a blocker's departure could be reported while the deletion of our node, which came
        before it, was not watched yet.  The watch on the number of slots goes before the blockers, too, because a
        departure is to be counted by the number that is valid at that time.

        A blocker that this client may not read has no watch.  Then the list leaves a watch on the children.
        If the server must catch up with the leader first, a sync goes before all.

        If many tickets of this client list the line, this one shares a list, when its own node is watched.
        """
        rules, position, watches = self._rules, self._position, self._watches
        known = rules.known
        path = known.path
        watches_children = position.watches_children
        lists = position.needs_list
        if lists and known.is_busy and not watches_children:
            if position.is_watched and not position.needs_slots:
                names, *_ = await known.look(self._zk, *rules.reads_slots())
                position.listed(self._shared.listed(names))
                return
            lists = False
        blockers = [] if position.needs_list else position.to_watch
        sync = [Sync(path)] if position.needs_sync else []
        own = [] if position.is_watched else [position.name]
        slots = [GetData(path, into=watches)] if position.needs_slots else []
        if lists:
            yield_processor()  # a list is never urgent, and the departure before it has made another ticket own
        known.lists += lists
        try:
            answers = await self._zk.pipeline(
                [
                    *sync,
                    *(GetData(join_path(path, name), into=watches) for name in own),
                    *slots,
                    *(GetData(join_path(path, name), into=watches) for name in blockers),
                    *([GetChildren(path, into=watches if watches_children else None)] if lists else []),
                ]
            )
        finally:
            known.lists -= lists
        if any_transient(answers):
            # Of the watches only some are set.  The order in which they are asked for matters, so ask for all again.
            # An event that has arrived meanwhile may be that our own node is gone.
            self._take_events()
            self._start_over()
            await pause()
            return
        if sync:
            if isinstance(refusal := answers.pop(0), BaseException):
                raise refusal
            position.needs_sync = False
        if slots:
            self._take_slots(answers.pop(len(own)), is_watched=True)
        if lists:
            position.listed(self._shared.listed(ranked(answers.pop())), is_watched=watches_children)
        for name, answer in zip(own + blockers, answers, strict=True):
            self._take_watched(name, answer)
        if not all(is_ticket(answer.stat) for answer in answers if isinstance(answer, Node)):
            for name in await known.foreign_among(self._zk, position.unknown):
                position.departed(name)

    def _take_watched(self, name: str, answer: Any) -> None:
        """Take in the answer to the request that reads and watches `name`, a blocker or the ticket's own node."""
        position = self._position
        if isinstance(answer, zkwire.NoNodeError):
            self._take_departure(name)
        elif isinstance(answer, zkwire.NoAuthError) and name != position.name:
            position.unreadable(name)
            self._rules.known.found_unreadable(name)
        elif isinstance(answer, BaseException):
            raise answer
        elif name != position.name:
            position.watched(name)
            self._take_blocker(name, answer)
        elif self.ticket.is_own_data(answer):
            position.watched(name)
        else:
            # Nothing in it is believed by our clients.  But it is not known what others make of it.
            _log.warning("another client has written into %s, which waits: taking a new ticket", self.ticket.node.path)
            position.departed(name)

    def _take_list(self, children: Ranking, *slots: Any) -> None:
        """Take in a list of the line, and the number of slots that was read in the same write.

        Nothing watches the ticket's own node yet.  If the number has changed since the list, the node may have been
        deleted before that: then the ticket does not own before the number is read again, after its own node.
        """
        self._position.listed(children)
        for node in slots:
            self._take_slots(node, is_watched=False)
            if not children.is_of(node):
                self._position.slots_changed()

    def _take_slots(self, node: Any, *, is_watched: bool) -> None:
        if isinstance(node, zkwire.NoNodeError):
            self._position.departed(self._position.name)  # without its parent the ticket's node is gone, too
        elif isinstance(node, BaseException):
            raise node
        elif not isinstance(self._rules.slots, int):
            self._position.slots_read(self._rules.slots(node), is_watched=is_watched)

    def _take_blocker(self, name: str, node: Node) -> None:
        """Take in the data of a blocker: a promise, or that it lets readers in.  It blocks only if it is a ticket."""
        if not is_ticket(node.stat):
            self._rules.known.found_foreign(name)
            self._position.departed(name)
            return
        diagnose_read(name, node, self._position)
        written = ticket_data.parse(name, node.data, node.stat.version)
        if node.data == ASKED:
            self._promises.written_over(name, node.stat.version)
        elif written is None or written.limit is None:
            self._promises.forget(name)
        else:
            end = asyncio.get_running_loop().time() + written.limit * _PATIENCE
            self._promises.seen(name, node.stat.version, end)
        if written is not None and written.limit is None and self._rules.ignores_shared:
            self._position.departed(name)

    async def _enforce_promises(self, end: float) -> None:
        """Wait for an event until `end`, when a promise ends; then delete the nodes whose promise is broken.

        The delete names the version of the node that was read.  If the holder has promised again meanwhile, the server
        refuses the delete.  The answer to the delete counts, and not only the event of the watch on the node: a client
        that may not read the node any more gets no event.
        """
        loop = asyncio.get_running_loop()
        event = self._watches.ready()
        await asyncio.wait([event], timeout=max(0.0, end - loop.time()))
        event.cancel()
        for name, version in self._promises.broken(loop.time()):
            try:
                if name in self._position.before:
                    await self._zk.delete(join_path(self._rules.known.path, name), version)
                    self._take_departure(name)
            except zkwire.ConnectionLostError:
                continue  # it may have been deleted: the list that follows the reconnect will show it
            except zkwire.ServerError as error:
                if await pause_if_transient(error):
                    return
                if isinstance(error, zkwire.NoNodeError):
                    self._take_departure(name)
                # Otherwise an event has announced the new promise, which is read next; or we may not delete the node.
                elif not isinstance(error, zkwire.BadVersionError | zkwire.NoAuthError):
                    raise
            self._promises.forget(name)


async def certify(zk: Client) -> None:
    """Get an answer through the leader, so that the session is certain to be alive if it is.

    A read-only server has lost its quorum and cannot know whether the session lives, however often it is asked.  From
    such a server this returns only when the client has left it for another one.

    Raises:
        SessionError: if the session is over.
        ValueError: if nothing can be certain in it.
    """
    if zk.state is not zkwire.SessionState.READ_ONLY:
        with suppress(zkwire.NotReadOnlyError):  # the server has lost its quorum meanwhile
            await zk.certify()
        return
    states = zk.states()
    try:
        async for state in states:
            if state is not zkwire.SessionState.READ_ONLY:
                return
    finally:
        states.close()
