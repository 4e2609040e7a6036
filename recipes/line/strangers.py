"""Nodes among the children of a line that are no tickets, or cannot be read: they are reported once, in the log.

A client that may create nodes below the line's path can create anything there.  A ticket is ephemeral: a node that is
not ephemeral has no client that waits or holds, so no ticket waits for it.  A node that cannot be read may be a ticket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from recipes.common.notices import Notices
from zkwire import Client, ServerError, Stat, join_path

_log = logging.getLogger(__name__)

# A client that creates such nodes without end, or a program that uses ever new paths, must not fill the memory: the
# oldest are forgotten.
_MOST_REMEMBERED: Final = 1000
_MOST_AT_A_TIME: Final = 128


def is_ticket(stat: Stat) -> bool:
    """Return whether a node with this Stat can be a ticket: it belongs to a session, and goes with it.

    The servers show 0 as the owner of containers and of nodes with a TTL, too.
    """
    return stat.ephemeral_owner != 0


class Strangers:
    """What a client has found among the children of the line at `path`."""

    __slots__ = ("_first", "_no_tickets", "_notices")

    def __init__(self, path: str = "") -> None:
        self._notices = Notices(_log, f"the line {path}")
        self._no_tickets: dict[str, None] = {}
        self._first: dict[str, bool] = {}  # that made the last try fail, and whether each was read

    @property
    def was_in_vain(self) -> bool:
        """Whether the last try has failed."""
        return bool(self._first)

    def try_succeeded(self) -> None:
        """Take note that a try has succeeded."""
        self._first = {}

    def to_look_at(self, first: Sequence[str]) -> list[str]:
        """Return those of `first`, which come first in the line and make a try fail, that should be read now.

        A node should be read when a try fails for the second time because of it, or if it was found to be no ticket
        before.  (That alone proves nothing: when the lock's node is deleted and made anew, other clients may use the
        name again.)  So a try of a lock that is held costs no read, and tries that follow each other cost one for each
        holder.
        """
        before, self._first = self._first, {name: self._first.get(name, False) for name in first}
        return [name for name in first if name in self._no_tickets or before.get(name) is False]

    def looked_at(self, name: str) -> None:
        """Take note that `name` was read, and is a ticket."""
        self._first[name] = True

    def found_no_ticket(self, path: str) -> None:
        """Report a node that is not ephemeral, once."""
        name = path.rpartition("/")[2]
        if name not in self._no_tickets:
            _forget_oldest(self._no_tickets)
            self._no_tickets[name] = None
        self._notices.report(path, "is not ephemeral, so it is no ticket: it is left out, and can be deleted")

    def found_unreadable(self, path: str) -> None:
        """Report a node before ours that this client may not read, once."""
        self._notices.report(
            path,
            "is in the line and must not be read by this client: it counts as a ticket, and each change of the line is"
            " listed until it is gone; delete it if no client holds it, and have all clients give tickets an ACL with"
            " READ for all of them",
        )


async def no_tickets(zk: Client, path: str, names: Sequence[str]) -> list[str]:
    """Return the first of `names`, children of the line at `path`, as far as none of them is a ticket; report them.

    To be called when such a node was found beside them: there may be thousands.
    Raises: SessionError.
    Requests: an exists for each, in writes of 2, 4, 8 and so on, 128 at most, until one of them brings another answer.
    """
    found: list[str] = []
    most = 1
    while len(found) < len(names):
        most = min(2 * most, _MOST_AT_A_TIME)
        batch = names[len(found) : len(found) + most]
        stats = await asyncio.gather(*(zk.exists(join_path(path, name)) for name in batch), return_exceptions=True)
        for name, stat in zip(batch, stats, strict=True):
            if isinstance(stat, BaseException) and not isinstance(stat, ServerError):
                raise stat
            if not isinstance(stat, Stat) or is_ticket(stat):
                return found
            strangers_of(zk, path).found_no_ticket(join_path(path, name))
            found.append(name)
    return found


_KNOWN: Final[WeakKeyDictionary[Client, dict[str, Strangers]]] = WeakKeyDictionary()


def strangers_of(zk: Client, path: str) -> Strangers:
    """Return what `zk` knows of the line at `path`: one object for all recipes of this client there."""
    known = _KNOWN.setdefault(zk, {})
    strangers = known.get(path)
    if strangers is None:
        _forget_oldest(known)
        strangers = known[path] = Strangers(path)
    return strangers


def _forget_oldest(known: dict[str, None] | dict[str, Strangers]) -> None:
    if len(known) >= _MOST_REMEMBERED:
        del known[next(iter(known))]
