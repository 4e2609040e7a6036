"""One look at the holders of a lock, and at the clients that wait for it.

Knows the nodes of a line and what their names mean.  Nothing is decided by it: a ticket owns by what `position` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import zkwire
from recipes.common.numbers import in_order, next_number
from recipes.line import ticket_data
from recipes.line.readers import is_writer
from recipes.line.strangers import is_ticket, strangers_of
from zkwire import Client, GetData, Node, Stat, join_path

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A holder of a lock, or a client that waits for it, at the moment of a look.

    `path` is its node, and `data` what its client has stored there with `data=`.  `session` is the id of its session,
    as servers and their logs print it: "0x100003f2c8d0001".  `since` is the time at which it came into the line, by the
    clock of the ensemble's leader.  `token` is the fencing token of its lease.  `is_mine`: whether it belongs to the
    session of the client that looks.  `owns`: whether it holds the lock.

    Of a node that this client must not read only the path, and whether it owns, are known: `data` and `session` are
    empty, `since` is None, `token` is 0.
    """

    path: str
    data: bytes
    session: str
    since: datetime | None
    token: int
    is_mine: bool
    owns: bool


async def look(
    zk: Client, path: str, slots: int | Callable[[bytes], int] = 1, *, reports: bool = True
) -> list[Contender]:
    """Return the contenders of the line at `path`, in their order.

    Arguments: `slots`, how many may own at once, or a function of the data of the node at `path`; `reports`, whether
    nodes that are no tickets are logged.
    Raises: what the client raises.  A line that does not exist is empty.
    Requests: getChildren2; in one write a getData for each child, and one for `path` if `slots` is a function.
    """
    try:
        children, stat = await zk.get_children_and_stat(path)
    except zkwire.NoNodeError:
        return []
    names = in_order(children, next_number(stat))
    nodes = await zk.pipeline([GetData(join_path(path, name)) for name in names] + [GetData(path)] * callable(slots))
    if callable(slots):
        its_node = nodes.pop()
        if isinstance(its_node, zkwire.NoNodeError):
            return []
        if isinstance(its_node, BaseException):
            raise its_node
        slots = slots(its_node.data)
    if reports:
        strangers = strangers_of(zk, path)
        for name, node in zip(names, nodes, strict=True):
            if isinstance(node, Node) and not is_ticket(node.stat):
                strangers.found_no_ticket(join_path(path, name))
            elif isinstance(node, zkwire.NoAuthError):
                strangers.found_unreadable(join_path(path, name))
    return in_line(path, names, nodes, slots=slots, session_id=zk.session_id)


def in_line(
    path: str, names: Sequence[str], nodes: Sequence[Node | Exception], *, slots: int, session_id: int
) -> list[Contender]:
    """Return the contenders of the line at `path`.

    Arguments: `names` of its children that have a sequence number, in order; `nodes`, what a read of each one got;
    `slots`, how many may own at once; `session_id` of the client that looks.
    Raises: an error among `nodes`, unless it says that the node is gone or must not be read.

    A child that is gone, or is not ephemeral, is left out.  One that must not be read counts as a ticket.
    """
    found: list[Contender] = []
    tickets = writers = 0  # those before the present one that block: of all, and of a reader
    for name, node in zip(names, nodes, strict=True):
        if isinstance(node, zkwire.NoNodeError) or (isinstance(node, Node) and not is_ticket(node.stat)):
            continue
        if isinstance(node, Exception) and not isinstance(node, zkwire.NoAuthError):
            raise node
        owns = (tickets if is_writer(name) else writers) < slots
        tickets += 1
        if isinstance(node, Node):
            found.append(contender(join_path(path, name), node, session_id=session_id, owns=owns))
            written = ticket_data.parse(name, node.data, node.stat.version)
            writers += is_writer(name) and not (written is not None and written.is_shared)
        else:
            found.append(_unread(join_path(path, name), owns=owns))
            writers += is_writer(name)
    return found


def contender(path: str, node: Node, *, session_id: int, owns: bool) -> Contender:
    """Return the contender of `node`, which was read at `path` by the client with the session `session_id`."""
    stat = node.stat
    return Contender(
        path=path,
        data=ticket_data.without_line(path.rpartition("/")[2], node.data, stat.version),
        session=session_in_words(stat.ephemeral_owner),
        since=_created_at(stat),
        token=stat.czxid,
        is_mine=stat.ephemeral_owner == session_id,
        owns=owns,
    )


def session_in_words(session_id: int) -> str:
    """Return a session's id as servers print it."""
    return f"{session_id % 2**64:#x}"


def holders_first(contenders: Iterable[Contender]) -> list[Contender]:
    """Return the contenders, those that own ahead of those that wait, and each in their order."""
    return sorted(contenders, key=lambda each: not each.owns)


def _unread(path: str, *, owns: bool) -> Contender:
    return Contender(path=path, data=b"", session="", since=None, token=0, is_mine=False, owns=owns)


def _created_at(stat: Stat) -> datetime:
    """Return the time of creation; a clock beyond the calendar is shown as its last day, or its first."""
    try:
        return _EPOCH + timedelta(milliseconds=stat.ctime)
    except OverflowError:
        return (datetime.max if stat.ctime > 0 else datetime.min).replace(tzinfo=UTC)


def single(zk: Client, path: str, node: Any) -> list[Contender]:
    """Return the contender of a lock without a line, which is the node at `path`: its holder, or none.

    Arguments: `node`, what a read of that node got.  Raises: an error of that read, as `in_line`.
    """
    if isinstance(node, zkwire.NoNodeError) or (isinstance(node, Node) and not is_ticket(node.stat)):
        return []
    if isinstance(node, zkwire.NoAuthError):
        return [_unread(path, owns=True)]
    if isinstance(node, BaseException):
        raise node
    return [contender(path, node, session_id=zk.session_id, owns=True)]
