"""A ticket: one ephemeral sequential node in a waiting line, with its guaranteed delete, its watches and its own data.

Knows nothing of the order of the line (see position) and nothing of leases: a ticket may serve several leases, one
after the other.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from recipes.common.retrying import read_after_loss, until_answered
from recipes.line.ticket_data import HashChain
from zkwire import BadVersionError, Client, GuaranteedDelete, Node, NoNodeError, ServerError, Stat, Watch, WatchSet

LOCK_PREFIX: Final = "lock-"  # Curator's; go-zk's and kezhuw's Rust locks can wait in the same line, too
# Both prefixes are Curator's, so that Curator's read/write lock can use the same path.
READ_PREFIX: Final = "__READ__"
WRITE_PREFIX: Final = "__WRIT__"
_READERS: Final = (READ_PREFIX, "__rlock__")  # the second one is kazoo's
ASKED: Final = b"__REVOKE__"  # in place of a ticket's data: its client is asked to give way, as by Curator's Revoker
# Lets other processes that wait for this processor run first.  One deletion wakes two clients: the one that owns now,
# and the one that looks ahead (or has just released).  The second has nothing urgent to do.  If both run on one machine
# with few processors, the new owner would have to wait until the second has finished its work.
yield_processor: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)


def is_writer(name: str) -> bool:
    """Return whether the ticket `name` counts as a writer's: true unless its name has the form of a reader's ticket."""
    return not any(reader in name for reader in _READERS)


def checked_content(data: bytes) -> bytes:
    """Return `data` if a client may give it to its own ticket.

    Raises:
        ValueError: if it is a request to give way: each client that reads it would take it for one.
    """
    if data == ASKED:
        raise ValueError(f"the data of a ticket cannot be {ASKED!r}, which is a request to give way")
    return data


def is_ticket(stat: Stat) -> bool:
    """Return whether a node with this Stat can be a ticket: it belongs to a session, and goes with it.

    The servers show 0 as the owner of containers and of nodes with a TTL, too.
    """
    return stat.ephemeral_owner != 0


class TicketNode(NamedTuple):
    """The node of a ticket.

    Attributes:
        path: Its path, and `name` the last part of it.
        token: Its fencing token, the zxid of its creation.
        session_id: The session that owns it.
        chain: The hash chain of its name; None for a ticket whose data means nothing to other clients.
    """

    path: str
    name: str
    token: int
    session_id: int
    chain: HashChain | None = None


@dataclass(slots=True, eq=False, repr=False)
class Ticket:
    """A node in the line that belongs to this client.

    Attributes:
        node: The node.
        removal: Deletes the node once it is started.
        watches: All watches of this ticket; None if none was set: most tickets own at once, for a short time.
        is_watched: Whether a watch on the ticket's own node is among them.
        watch_request: The request that sets that watch, while it is under way.
        held_since: When the first lease of this ticket began, on the loop's clock.
        version: The version of the node's data, as far as this client knows what it has written.
        unanswered: The data of its write that is under way, or whose answer was lost: it may be the next version.
        asked_version: The version that was the last request to give way; -1: there was none.
        asked: Completed when another client asks to give way; None as long as that makes no difference to anyone.
    """

    node: TicketNode
    removal: GuaranteedDelete
    watches: WatchSet | None = None
    is_watched: bool = False
    watch_request: asyncio.Task[tuple[Node, Watch]] | None = None
    held_since: float | None = None
    version: int = 0
    unanswered: bytes | None = None
    asked_version: int = -1
    asked: asyncio.Future[None] | None = None

    def is_own_data(self, node: Node) -> bool:
        """Return whether this client has written the data that was read as `node`, or is asked there to give way.

        Each of its writes names the version that it replaces.  So all versions up to the last one are its own.
        """
        version = node.stat.version
        if version == self.version + 1 and node.data == self.unanswered:
            self.version, self.unanswered = version, None  # the write whose answer was lost
        elif version > self.version and node.data == ASKED:
            # It promises nothing to anyone, whatever was there before it, so it takes nothing from the holder.
            self.version, self.unanswered, self.asked_version = version, None, version
            if not self.until_asked().done():
                self.until_asked().set_result(None)
        return version <= self.version

    @property
    def is_asked(self) -> bool:
        """Whether another client has asked to give way."""
        return self.asked is not None and self.asked.done()

    def until_asked(self) -> asyncio.Future[None]:
        """Return the future that is completed when another client asks to give way."""
        if self.asked is None:
            self.asked = asyncio.get_running_loop().create_future()
        return self.asked

    def give_up(self) -> None:
        """Delete the node, as soon as a server can be reached, and drop the watches."""
        self.removal.start()
        self.unwatch()

    def unwatch(self) -> None:
        """Drop the watches, and the request for the one on the ticket's own node."""
        self.cancel_watch_request()
        if self.watches is not None:
            self.watches.cancel()

    def cancel_watch_request(self) -> None:
        """Cancel the request for the watch on the ticket's own node, if it is under way."""
        request, self.watch_request = self.watch_request, None
        if request is not None:
            request.cancel()  # if it has failed, asyncio will not log any more that its exception was never retrieved


class WrittenOverError(Exception):
    """Another client has written into the ticket's node."""


class VersionedWriter:
    """Writes the data of the node of `ticket`, one version after the other."""

    __slots__ = ("_order", "_ticket", "_zk")

    def __init__(self, zk: Client, ticket: Ticket) -> None:
        self._zk = zk
        self._ticket = ticket
        self._order = asyncio.Lock()

    async def write(self, data_of: Callable[[int], bytes | None]) -> None:
        """Write the data that `data_of` returns for the next version; nothing if it returns None.

        It is written again until it is known to be there.

        Raises:
            WrittenOverError: if another client has written into the node.
            NoNodeError: if the node is gone.

        What else the server refuses, and what `data_of` raises, is raised too.

        Cancellation:
            The data may have been written or not.

        Order:
            Versions are written in the order of the calls.

        Requests:
            setData; a sync and a getData more if it is unknown what became of the write before.
        """
        async with self._order:
            await until_answered(self._zk, lambda: self._write(data_of), repeats=True, renews=False)

    async def _write(self, data_of: Callable[[int], bytes | None]) -> None:
        ticket = self._ticket
        if ticket.unanswered is not None:
            await self._settle()
        while (data := data_of(ticket.version + 1)) is not None:
            ticket.unanswered = data
            try:
                stat = await self._zk.set(ticket.node.path, data, ticket.version)
            except ServerError as error:
                ticket.unanswered = None
                if not isinstance(error, BadVersionError):
                    raise
                await self._settle()  # returns only if it was a request to give way
            else:
                ticket.version, ticket.unanswered = stat.version, None
                return

    async def _settle(self) -> None:
        """Find out what is in the node if a write was cancelled or refused, or its answer was lost."""
        ticket = self._ticket
        path = ticket.node.path
        node = await read_after_loss(self._zk, path)
        if node is None:
            raise NoNodeError(NoNodeError.code, path)
        if not ticket.is_own_data(node):
            raise WrittenOverError
        ticket.unanswered = None


class Successors(Protocol):
    """The tasks of this process that wait for the same lock, see LocalQueue."""

    def wants_ticket(self, ticket: Ticket) -> bool:
        """Return whether `ticket` may be passed on."""

    def pass_ticket(self, ticket: Ticket) -> None:
        """Pass the turn to the next task, together with `ticket`."""

    def pass_turn(self) -> None:
        """Pass the turn to the next task, which needs a ticket of its own."""
