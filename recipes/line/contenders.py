"""One look at the holders of a lock, and at the clients that wait for it.

Knows the nodes of a line and what their names mean.  Nothing is decided by it: a ticket owns by what `position` says.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import zkwire
from recipes.common.numbers import in_order, next_number
from recipes.common.retrying import read, read_synced, result, until_answered
from recipes.line import ticket_data
from recipes.line.diagnostics import describe_session
from recipes.line.known import line_of
from recipes.line.position import permits_of
from recipes.line.ticket import ASKED, is_ticket, is_writer
from zkwire import Client, GetChildrenAndStat, GetData, Node, Stat, join_path

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNIQUE: Final = re.compile("/_c_[0-9a-f-]{36}-[^/]*$")  # ours and Curator's


class _Seen:
    """What has a client besides its fields: the client is no part of a copy, nor of what is compared."""

    __slots__ = ("_zk",)
    _zk: Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender(_Seen):
    """A holder of a lock, or a client that waits for it, at the moment of a look.

    Of a node that this client must not read only the path, and whether it owns, are known.

    Attributes:
        path: Its node.
        data: What its client has stored there with `data=`; empty if it must not be read.
        session: The id of its session, as servers and their logs print it: "0x100003f2c8d0001"; empty if it is unknown.
        since: When it came into the line, by the clock of the ensemble's leader; None if it is unknown.
        token: The fencing token of its lease; 0 if it is unknown.
        is_mine: Whether it belongs to the session of the client that looks.
        owns: Whether it holds the lock.
        permits: How many permits of a semaphore it holds or waits for.
    """

    path: str
    data: bytes = b""
    session: str = ""
    since: datetime | None = None
    token: int = 0
    is_mine: bool = False
    owns: bool
    permits: int = 1

    async def remove(self) -> bool:
        """Delete its node, and no other: the holder is told that the lock is lost, and the next in the line is served.

        The holder learns of it after the fact, so its body may still run when the next one owns.  A client that waits
        takes a new ticket, after all others.

        Returns:
            Whether it was still there.

        Raises:
            RuntimeError: for a copy, for a queue's claim, and if the node can be read only since it was shown.
            NoAuthError: if this client may not read or delete the node.

        The errors of `contenders` are raised, too.

        Cancellation:
            The node may have been deleted or not.

        Order:
            What the server has carried out before this call is seen.  A node without a sequence number, of a TryLock,
            is deleted in the round trip after it was seen to be the same.

        Requests:
            sync and getData in one write, and a delete.
        """
        return await self._while_there(lambda zk, version: zk.delete(self.path, version))

    async def ask(self) -> bool:
        """Ask its client to give way, as Curator's Revoker does: `Lease.asked` returns there; nothing is taken.

        The data of the node is replaced by b"__REVOKE__".  What a leader or a TimedLock has written is written again by
        it; a TimedLock whose process hangs cannot, and then clients that have not read its last limit before, such as
        those that come later, know none.  A client that waits hears of it when it holds the lock.

        Returns:
            Whether it was still there.

        Raises:
            NoAuthError: if this client may not write into the node: by default only the client of the ticket may, if it
                has an identity.

        All else is as for `remove`, with a setData in place of the delete.
        """
        return await self._while_there(lambda zk, version: zk.set(self.path, ASKED, version))

    async def _while_there(self, act: Callable[[Client, int], Awaitable[object]]) -> bool:
        """Call `act` with the version that it is for if the node is the one that was seen; return whether it was."""
        zk: Client | None = getattr(self, "_zk", None)
        if zk is None:
            raise RuntimeError(f"{self.path}: neither a copy nor a queue's claim, but only what `contenders` has shown")
        client, was_there = zk, False

        async def act_if_same() -> None:
            nonlocal was_there
            node = result((await read_synced(client, self.path, GetData(self.path)))[0])
            if node is not None and not self.token:
                raise RuntimeError(f"{self.path}: it could not be read when it was shown: look again at `contenders`")
            if node is not None and node.stat.czxid == self.token:
                was_there = True
                # The name of a ticket never comes back, and its client may write more often than we could ever look.
                await act(client, -1 if _UNIQUE.search(self.path) else node.stat.version)

        with suppress(zkwire.NoNodeError):
            while True:
                with suppress(zkwire.BadVersionError):
                    await until_answered(client, act_if_same, repeats=True)
                    break
        return was_there


async def look(
    zk: Client, path: str, slots: int | Callable[[bytes], int] = 1, *, reports: bool = True, most: int | None = None
) -> list[Contender]:
    """Return the contenders of the line at `path`, in their order.

    A line that does not exist is empty.

    Args:
        slots: How many may own at once; or, of a semaphore, a function of the data of the node at `path`.
        reports: Whether foreign nodes are logged.
        most: How many children to read, the first ones; None: all.

    Requests:
        getChildren2; in one write a getData for each child, and one for `path` if `slots` is a function.
    """
    listed = result((await read(zk, GetChildrenAndStat(path)))[0])
    if listed is None:
        return []
    children, stat = listed
    names, is_semaphore = in_order(children, next_number(stat))[:most], callable(slots)
    nodes = await read(zk, *(GetData(join_path(path, name)) for name in names), *[GetData(path)] * is_semaphore)
    if callable(slots):
        its_node = result(nodes.pop())
        if its_node is None:
            return []
        slots = slots(its_node.data)
    if reports:
        known = line_of(zk, path)
        for name, node in zip(names, nodes, strict=True):
            if isinstance(node, Node) and not is_ticket(node.stat):
                known.found_foreign(name)
            elif isinstance(node, zkwire.NoAuthError):
                known.found_unreadable(name)
    return in_line(zk, path, names, nodes, slots=slots, is_semaphore=is_semaphore)


def in_line(
    zk: Client,
    path: str,
    names: Sequence[str],
    nodes: Sequence[Node | Exception],
    *,
    slots: int,
    is_semaphore: bool = False,
) -> list[Contender]:
    """Return the contenders of the line at `path`.

    A child that is gone, or is not ephemeral, is left out.  One that must not be read counts as a ticket.

    Args:
        zk: The client that looks.
        names: Its children that have a sequence number, in order.
        nodes: What a read of each one has brought.
        slots: How many may own at once.
        is_semaphore: Whether a ticket may take several slots.

    Raises:
        ServerError: if it is among `nodes`, and does not say that the node is gone or must not be read.
    """
    found: list[Contender] = []
    tickets = writers = 0  # those before the present one that block: of all, and of a reader
    for name, node in zip(names, nodes, strict=True):
        if isinstance(node, zkwire.NoNodeError) or (isinstance(node, Node) and not is_ticket(node.stat)):
            continue
        if isinstance(node, Exception) and not isinstance(node, zkwire.NoAuthError):
            raise node
        permits = permits_of(name) if is_semaphore else 1
        owns = (tickets if is_writer(name) else writers) + permits <= slots
        tickets += permits
        writers += is_writer(name)
        if isinstance(node, Node):
            found.append(contender(zk, join_path(path, name), node, owns=owns, permits=permits))
            writers -= is_writer(name) and ticket_data.lets_readers_in(name, node.data, node.stat.version)
        else:
            found.append(_seen_by(zk, Contender(path=join_path(path, name), owns=owns, permits=permits)))
    return found


def contender(zk: Client, path: str, node: Node, *, owns: bool, permits: int = 1) -> Contender:
    """Return the contender of `node`, which `zk` has read at `path`."""
    stat = node.stat
    found = Contender(
        path=path,
        data=ticket_data.without_line(path.rpartition("/")[2], node.data, stat.version),
        session=describe_session(stat.ephemeral_owner),
        since=created_at(stat),
        token=stat.czxid,
        is_mine=stat.ephemeral_owner == zk.session_id,
        owns=owns,
        permits=permits,
    )
    return _seen_by(zk, found)


def _seen_by(zk: Client, found: Contender) -> Contender:
    object.__setattr__(found, "_zk", zk)
    return found


def holders_first(contenders: Iterable[Contender]) -> list[Contender]:
    """Return the contenders: those that own, and then those that wait, each in their order."""
    return sorted(contenders, key=lambda each: not each.owns)


def created_at(stat: Stat) -> datetime:
    """Return the time of creation; a clock beyond the calendar is shown as its last day, or its first."""
    try:
        return _EPOCH + timedelta(milliseconds=stat.ctime)
    except OverflowError:
        return (datetime.max if stat.ctime > 0 else datetime.min).replace(tzinfo=UTC)


def single(zk: Client, path: str, node: Any) -> list[Contender]:
    """Return the contender of a lock without a line, which is the node at `path`: its holder, or none.

    Args:
        node: What a read of that node has brought.

    Raises:
        ServerError: if the read was refused, unless that says that the node is gone or must not be read.
    """
    parent, _, name = path.rpartition("/")
    return in_line(zk, parent, (name,), (node,), slots=1)
