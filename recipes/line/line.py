"""The waiting line: how a ticket is taken, how it waits, and how it changes hands without a read.

A `Line` asks the server and waits; what follows from the answers is decided in `position`.  Locks of every kind,
semaphores and elections differ only in what blocks a ticket and in how many blockers it may have (`slots`).

Why no list is read at a hand-over: sequence numbers only grow, so that once a list has shown our own node, nobody can
ever come to stand before us, and those before us can only leave.  What the list showed minus those seen leaving is
therefore never less than the truth; when it falls below `slots`, we own.  docs/waiting-line.md has the whole
argument.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import zkwire
from recipes.common import lost_answers
from recipes.common.shared_nodes import make_container
from recipes.common.waiting import raise_unless_renewed
from recipes.line import ticket_data
from recipes.line.position import Position, Promises, everyone
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    Create,
    GetChildren,
    GetData,
    Node,
    Removal,
    Watch,
    WatchEventType,
    WatchSet,
    join_path,
)

LOCK_PREFIX: Final = "lock-"  # Curator's; go-zk and kezhuw's Rust client stand in the same line

# Who has promised to be done in so many seconds is given a tenth more: for the end of its body, and for clocks.
_PATIENCE: Final = 1.1


def let_others_run() -> None:
    """Let whoever waits for this processor have it first.

    The departure that lets us look ahead, or go on after a release, has made somebody own at the same moment.  He may
    be on this machine, and is in more of a hurry than we are.
    """
    if hasattr(os, "sched_yield"):
        os.sched_yield()


async def ask_whether_session_lives(zk: Client) -> None:
    """Have a server answer, so that the session is certain to live if it does.

    A server without a quorum cannot tell, however often it is asked: then return when it has been left for another.
    """
    if zk.state is not zkwire.SessionState.READ_ONLY:
        await zk.certify()
        return
    states = zk.states()
    try:
        async for state in states:
            if state is not zkwire.SessionState.READ_ONLY:
                return
    finally:
        states.close()


class TicketNode(NamedTuple):
    """A node in the line: its path and name, its fencing token (the zxid of its creation), and its owner's session."""

    path: str
    name: str
    token: int
    session_id: int


@dataclass(slots=True)
class Ticket:
    """A place that owns, the removal of its node, and the watches that tell of its loss; `is_watched`: whether its own
    node is among them; `asking`: the request for that, while it is under way; `held_since`: on the loop's clock.

    It may serve several leases, one after the other.
    """

    node: TicketNode
    removal: Removal
    watches: WatchSet = field(default_factory=WatchSet)
    is_watched: bool = False
    asking: asyncio.Task[tuple[Node, Watch]] | None = None
    held_since: float | None = None

    def stop_asking(self) -> None:
        """Give up the request for the watch on our own node, if it is under way."""
        asking, self.asking = self.asking, None
        if asking is not None and not asking.cancel() and not asking.cancelled():
            asking.exception()  # nobody wants to know


class _EvictedError(Exception):
    """Our node is gone: somebody else has deleted it, or its session is over."""


@dataclass(slots=True, kw_only=True)
class _WaitingTicket(Ticket):
    """A place that waits until it owns: what it knows, and who has promised it to be done."""

    position: Position
    promises: Promises = field(default_factory=Promises)


class Line:
    """One line of tickets below a node of ZooKeeper.

    Arguments: `path`, whose children are the tickets, made as a container when it is missing; `prefix`, what stands
    between the unique id and the number in the names of our tickets; `blocks`, `slots` and `ahead`, see Position, but
    `slots` may be a function of the data of the node at `path`, which is then followed while we wait, and which may
    raise; `is_sharing`, whether a holder that has marked its ticket as shared blocks us no longer; `data` and `acl`, of
    our nodes; `head`, gives the data with which the node at `path` is made; `container`, the topmost node of those
    above the tickets that is made as a container, `path` by default.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        prefix: str = LOCK_PREFIX,
        blocks: Callable[[str], bool] = everyone,
        slots: int | Callable[[bytes], int] = 1,
        ahead: int = 1,
        is_sharing: bool = False,
        data: bytes = b"",
        acl: Sequence[ACL] = OPEN_ACL,
        head: Callable[[], bytes] = bytes,
        container: str | None = None,
    ) -> None:
        self._zk = zk
        self.path = path
        self._prefix = prefix
        self._blocks = blocks
        self._slots = slots if isinstance(slots, int) else None
        self._read_slots = None if isinstance(slots, int) else slots
        self._ahead = ahead
        self._is_sharing = is_sharing
        self._data = data
        self._acl = acl
        self._head = head
        self._container = path if container is None else container

    async def acquire(self) -> Ticket:
        """Enter the line and return when we own; after an expired session or an eviction, enter anew.

        Raises: what the client raises, but for an expired session that is renewed; what `slots` raises.
        Cancellation: the node is removed.
        """
        while True:
            try:
                self._zk.need_certainty()
                try:
                    return await self._wait(await self._enter())
                finally:
                    self._zk.release_certainty()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
            except _EvictedError:
                pass

    async def try_acquire(self) -> Ticket | None:
        """Enter the line; stay in it only if we own at once, otherwise leave it and return None.

        Raises, Cancellation: as `stand`.
        """
        while True:
            try:
                ticket = await self._enter()
                if self._is_sharing and len(ticket.position.before) == 1:
                    await self._look_for_mark(ticket, ticket.position.before[0])
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
                continue  # nothing has been found out yet
            if ticket.position.owns and not self._zk.certain_for(ticket.node.session_id):
                await self._zk.certify()
            if ticket.position.owns and self._zk.certain_for(ticket.node.session_id):
                return ticket
            await ticket.removal.start()
            if not ticket.position.owns or ticket.node.session_id == self._zk.session_id:
                return None

    def leave(self, ticket: Ticket) -> None:
        """Give `ticket` up; its node goes as soon as a server can be told."""
        ticket.removal.start()
        ticket.stop_asking()
        ticket.watches.cancel()

    # -- entering ---------------------------------------------------------------------------------------------------

    async def _enter(self) -> _WaitingTicket:
        """Create our node and list the children, in one round trip; return our ticket and what the list says of it.

        The name begins with an id that nobody else has, so that a node whose create lost its answer is found again.
        """
        session_id = self._zk.session_id
        unique = f"_c_{self._zk.unique_id()}-{self._prefix}"
        make_parents = False
        while True:
            created, listing = await self._create_and_list(unique, make_parents)
            if isinstance(created, zkwire.NoNodeError):
                make_parents = True
                continue
            if isinstance(created, zkwire.ConnectionLostError):
                found = await self._find(unique)
                if found is None:
                    if self._zk.session_id != session_id:
                        return await self._enter()  # the session died meanwhile, and what it made with it
                    continue
                place, listing = found
            else:
                if isinstance(created, zkwire.NodeExistsError):
                    created.hint = "the sequence numbers below this parent are used up: delete it and make it anew"
                if isinstance(created, BaseException):
                    raise created
                path, stat = created
                place = TicketNode(path, path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner)
            removal = self._zk.removal(place.path)
            try:
                return _WaitingTicket(place, removal, position=self._position(place, listing))
            except Exception:
                await removal.start()
                raise

    def _listing(self) -> list[GetData | GetChildren]:
        """What to ask to learn who stands where.  The number comes behind the names: what it says is true of them."""
        if self._read_slots is None:
            return [GetChildren(self.path)]
        return [GetChildren(self.path), GetData(self.path)]

    async def _create_and_list(self, unique: str, make_parents: bool) -> tuple[Any, list[Any]]:
        """Send the create and the list in one write; return what each got, or the error that it got."""
        parents = [
            Create(
                at,
                self._head() if at == self.path else b"",
                container=at == self._container or at.startswith(f"{self._container}/"),
                acl=self._acl,
            )
            for at in (zkwire.ancestors(self.path) if make_parents else ())
        ]
        answers = await self._zk.pipeline(
            [
                *parents,
                Create(join_path(self.path, unique), self._data, ephemeral=True, sequential=True, acl=self._acl),
                *self._listing(),
            ]
        )
        created, *listing = answers[len(parents) :]
        if make_parents and isinstance(created, zkwire.NoNodeError):
            # The parents cannot be made like this: the chroot is missing, or we may not.  This makes them or tells why.
            await make_container(self._zk, self.path, self._acl)
        return created, listing

    async def _find(self, unique: str) -> tuple[TicketNode, list[Any]] | None:
        """Look for the node whose create lost its answer; None if it was never made.

        Cancellation: it is looked for all the same, and removed.
        """
        searching = asyncio.create_task(self._search(unique))
        try:
            return await asyncio.shield(searching)
        except asyncio.CancelledError:
            searching.add_done_callback(self._drop_found)
            raise

    def _drop_found(self, searching: asyncio.Task[tuple[TicketNode, list[Any]] | None]) -> None:
        found = lost_answers.late_result(searching)
        if found is not None:
            self._zk.discard(found[0].path)

    async def _search(self, unique: str) -> tuple[TicketNode, list[Any]] | None:
        """Look until it is known whether our node is there.

        Raises: what forbids to look; a node whose name has shown that it is ours is removed then.
        """
        listing = await lost_answers.read(self._zk, self.path, *self._listing())
        for name in lost_answers.result(listing[0]) or ():
            if name.startswith(unique):
                path = join_path(self.path, name)
                answers = await lost_answers.read(self._zk, path, GetData(path))
                try:
                    node: Node | None = lost_answers.result(answers[0])
                except zkwire.ServerError:
                    self._zk.discard(path)
                    raise
                if node is not None and node.stat.ephemeral_owner == self._zk.session_id:
                    return TicketNode(path, name, node.stat.czxid, node.stat.ephemeral_owner), listing
        return None

    def _position(self, place: TicketNode, listing: list[Any]) -> Position:
        """What the answers to `_listing` say of `place`."""
        position = Position(place.name, blocks=self._blocks, slots=self._slots, ahead=self._ahead)
        self._take_list(position, listing[0])
        if self._read_slots is not None:
            self._take_size(position, listing[1], is_watched=False)
        return position

    async def _look_for_mark(self, ticket: _WaitingTicket, name: str) -> None:
        """Read whether `name`, the only blocker, is a holder that lets us in; of several, one is no holder yet."""
        try:
            (node,) = await self._zk.pipeline([GetData(join_path(self.path, name))])
            if isinstance(node, zkwire.NoNodeError):
                ticket.position.departed(name)
            elif isinstance(node, Node):
                self._take_mark(ticket, name, node)
            elif not isinstance(node, zkwire.NoAuthError):  # for all that we may know it blocks us
                raise node
        except BaseException:
            self.leave(ticket)
            raise

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def _wait(self, ticket: _WaitingTicket) -> Ticket:
        """Return when the ticket owns."""
        place, position = ticket.node, ticket.position
        try:
            while not (position.owns and self._zk.certain_for(place.session_id)):
                if position.is_gone or place.session_id != self._zk.session_id:
                    raise _EvictedError
                if position.owns:
                    # It was long since a server answered, so that the session may be over: ask before believing.
                    await ask_whether_session_lives(self._zk)
                elif position.needs_look:
                    await self._look(ticket)
                elif ticket.promises.next_end is None:
                    decisive = self._decisive(position)
                    ticket.watches.set_callback(None if decisive else let_others_run)
                    gone = await ticket.watches.ready(urgent=decisive)
                    if gone is not None:
                        position.departed(gone.rpartition("/")[2])
                        continue
                else:
                    await self._see_promises_kept(ticket, ticket.promises.next_end)
                for event in ticket.watches.take():
                    if event.type is WatchEventType.DELETED:
                        position.departed(event.path.rpartition("/")[2])
                    elif event.path != self.path:
                        position.unwatched(event.path.rpartition("/")[2])
                    else:
                        position.resized()
                if ticket.watches.was_rearmed:
                    ticket.watches.cancel()
                    ticket.watches = WatchSet()
                    position.disarmed()
        except BaseException:
            self.leave(ticket)
            raise
        ticket.is_watched = position.is_watched
        return ticket

    def _decisive(self, position: Position) -> list[str]:
        """The paths of the nodes each of whose deletion makes the ticket own."""
        return [join_path(self.path, name) for name in position.before] if position.is_armed else []

    async def _look(self, ticket: _WaitingTicket) -> None:
        """Send, in one write, the watches that are missing and the list if one is due; take in what they say.

        The watch on our own node goes ahead of those on the blockers: requests are executed in order, so that if
        our node is gone we know it before any departure can make us own.  So does the one on the number of slots,
        for a departure counts by the number that holds at that time.
        """
        position, watches = ticket.position, ticket.watches
        watched = [] if position.is_watched else [position.name]
        sizes = [GetData(self.path, into=watches)] if position.needs_size else []
        count = len(watched)
        if not position.needs_list:
            watched += position.to_watch
        operations: list[GetData | GetChildren] = [
            GetData(join_path(self.path, name), into=watches) for name in watched
        ]
        operations[count:count] = sizes
        if position.needs_list:
            let_others_run()
            operations.append(GetChildren(self.path))
        answers = await self._zk.pipeline(operations)
        if sizes:
            self._take_size(position, answers.pop(count), is_watched=True)
        if position.needs_list:
            self._take_list(position, answers.pop())
        for name, answer in zip(watched, answers, strict=True):
            if isinstance(answer, zkwire.NoNodeError):
                position.departed(name)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                position.watched(name)
                if name != position.name:
                    self._take_mark(ticket, name, answer)

    def _take_list(self, position: Position, names: Any) -> None:
        if isinstance(names, zkwire.NoNodeError):
            names = []  # repeated after a reconnect, and somebody has cleared the line meanwhile
        if isinstance(names, BaseException):
            raise names
        position.listed(names)

    def _take_size(self, position: Position, node: Any, *, is_watched: bool) -> None:
        if isinstance(node, zkwire.NoNodeError):
            position.departed(position.name)  # nothing stands below a node that is gone
        elif isinstance(node, BaseException):
            raise node
        elif self._read_slots is not None:
            position.sized(self._read_slots(node.data), is_watched=is_watched)

    def _take_mark(self, ticket: _WaitingTicket, name: str, node: Node) -> None:
        """Take in what the holder `name` has written into its ticket."""
        mark = ticket_data.parse(node.data, node.stat.version)
        if mark is None or mark.limit is None:
            ticket.promises.forget(name)
        else:
            end = asyncio.get_running_loop().time() + mark.limit * _PATIENCE
            ticket.promises.seen(name, node.stat.version, end)
        if mark is not None and mark.is_shared and self._is_sharing:
            ticket.position.departed(name)

    async def _see_promises_kept(self, ticket: _WaitingTicket, end: float) -> None:
        """Wait for an event until a promise has come to its end, and remove the nodes of those who have broken theirs.

        What is removed is the version of the node that was read: who has promised anew meanwhile stays.
        """
        loop = asyncio.get_running_loop()
        arrival = ticket.watches.ready()
        await asyncio.wait([arrival], timeout=max(0.0, end - loop.time()))
        arrival.cancel()
        for name, version in ticket.promises.broken(loop.time()):
            try:
                if ticket.position.is_blocked_by(name):
                    await self._zk.delete(join_path(self.path, name), version)
            except zkwire.ConnectionLostError:
                continue  # perhaps it is gone: the list that follows will tell
            except zkwire.NoNodeError:
                ticket.position.departed(name)
            except (zkwire.BadVersionError, zkwire.NoAuthError):
                pass  # an event has told of the new promise, which is read next; or it is not for us to remove
            else:
                ticket.position.departed(name)
            ticket.promises.forget(name)
