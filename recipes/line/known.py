"""What one client knows of a line, and of the nodes above it: all of its recipes at one path share it.

A program may use ever new paths, and other clients may create ever new nodes, so each table here has a greatest size.
What is forgotten costs some requests more.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from recipes.common.retrying import read_synced
from recipes.common.single_flight import SingleFlight
from recipes.common.warn_once import WarnOnce
from recipes.line.position import Ranking, ranked
from recipes.line.ticket import is_ticket
from zkwire import Client, GetChildrenAndStat, GetData, Stat, ancestors, join_path

_log = logging.getLogger(__name__)

V = TypeVar("V")

_MOST_LINES: Final = 1000
_MOST_FOREIGN: Final = 1000
_MOST_PARENTS: Final = 10_000  # when so many are remembered, all are forgotten
# Seconds for which a container that this client has created, and uses, is taken for existing.  Servers look for empty
# containers once a minute, by default, and delete them.
_CONTAINER: Final = 30.0
# Tickets of one client that list one line at a time, each in the write of its other requests.  Very many tasks may
# enter a line at once, and very many readers may hear at once that a writer has left.  With a list for each of 10,000
# tickets, of 10,000 names, the server and the event loop would be busy for longer than the session lives.  So the
# others share the next list, which costs them one round trip more.
_MOST_LISTS: Final = 8
_MOST_AT_A_TIME: Final = 128  # exists requests in one write


class KnownLine:
    """What one client knows of the line at `path`.

    Attributes:
        children: The newest list that its waiting tickets share.
        lists: How many of its tickets list the line at present: a ticket adds 1 while it does.
        makers: The same, of those that create the line's node.
        blocked_by: What made the last try of this client fail, and whether each was read; empty if it has succeeded.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.children: CachedChildren = CachedChildren()
        self.lists = self.makers = 0
        self._flights: dict[bool, SingleFlight[list[Any]]] = {}
        self._warnings = WarnOnce(_log, f"the line {path}")
        self._foreign: dict[str, None] = {}
        self.blocked_by: dict[str, bool] = {}

    # -- its children -----------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether so many tickets list the line that another one shares a list instead."""
        return self.lists >= _MOST_LISTS

    async def look(self, zk: Client, *others: GetData) -> list[Any]:
        """Return a Ranking of the children and the answers to `others`, all sent after a sync and after this call.

        The tickets that call at the same time, and read the same, share the answers.

        Args:
            others: Reads of the line's node.  All is asked again if its data has changed since the list.

        Raises:
            ServerError: if the server refuses the list; a line whose node is missing is empty.
        """

        async def list_children(_: int) -> list[Any]:
            while True:
                listed, *answers = await read_synced(zk, self.path, GetChildrenAndStat(self.path), *others)
                children = ranked(listed)  # what it raises is not shared: each ticket has an error of its own
                if all(map(children.is_of, answers)):
                    return [children, *answers]

        return await self._flights.setdefault(bool(others), SingleFlight()).share(list_children)

    # -- foreign nodes: children that are not tickets, or cannot be read ----------------------------------------------
    #
    # A client that may create nodes below the line's path can create anything there.  A ticket is ephemeral: a node
    # that is not ephemeral has no client that waits or holds, so no ticket waits for it.

    def found_foreign(self, name: str) -> None:
        """Record that the child `name` is not a ticket, and report it, once."""
        remember(self._foreign, name, lambda: None, _MOST_FOREIGN)
        self._warnings.warn(
            join_path(self.path, name), "is not ephemeral, so it is not a ticket: it is left out, and can be deleted"
        )

    def found_unreadable(self, name: str) -> None:
        """Report the child `name`, which this client may not read and which may be a ticket, once."""
        self._warnings.warn(
            join_path(self.path, name),
            "is in the line and must not be read by this client: it counts as a ticket, and each change of the line is"
            " listed until it is gone; delete it if no client holds it, and have all clients give tickets an ACL with"
            " READ for all of them",
        )

    async def foreign_among(self, zk: Client, names: Sequence[str]) -> list[str]:
        """Return the first of `names`, as far as none of them is a ticket, and report them.

        To be called when a foreign node was found beside them: there may be thousands.

        Requests:
            An exists for each, in writes of 2, 4, 8 and so on, 128 at most, until one of them brings another answer.
        """
        found: list[str] = []
        most = 1
        while len(found) < len(names):
            most = min(2 * most, _MOST_AT_A_TIME)
            batch = names[len(found) : len(found) + most]
            asked = [zk.exists(join_path(self.path, name)) for name in batch]
            for name, stat in zip(batch, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                if not isinstance(stat, Stat) or is_ticket(stat):
                    return found
                self.found_foreign(name)
                found.append(name)
        return found

    # -- tries --------------------------------------------------------------------------------------------------------

    def to_read(self, first: Sequence[str], *, at_once: bool = False) -> list[str]:
        """Return those of `first`, the blockers that come first and make a try fail, that should be read now.

        A node should be read when a try fails for the second time because of it (`at_once`: for the first time), or if
        it was found to be foreign before.  (That alone proves nothing: when the lock's node is deleted and created
        again, other clients may use the name again.)  So a try of a lock that is held costs no read, and tries that
        follow each other cost one for each holder.
        """
        before, self.blocked_by = self.blocked_by, {name: self.blocked_by.get(name, False) for name in first}
        return [name for name in first if name in self._foreign or before.get(name, not at_once) is False]

    def was_read(self, name: str) -> None:
        """Record that the blocker `name` was read, and is a ticket."""
        self.blocked_by[name] = True


class CachedChildren:
    """The newest list that a ticket of one client has read, without the nodes whose deletion was reported since.

    It is kept while tickets wait that can use it, so that few of them have to list the line again.

    A departure is a fact, and no name comes back.  But the server of the next connection may not have it yet (see
    `Position.started_over`).  So a ticket takes part only while its own node is watched.  That watch is set on one
    connection, and is set again on the next one, which the ticket notices before it takes in anything else.  What was
    shared since the ticket has joined comes from the connection on which its own node is watched.
    docs/waiting-line.md, "What one of them hears, all of them know", has the argument.
    """

    def __init__(self) -> None:
        self.tickets = 0  # that take part
        self.count = 0  # lists, ever
        self.source: Ranking | None = None  # of which `names` is a copy
        self.names: Ranking | None = None


class Subscription:
    """The part that one ticket takes in `children`."""

    __slots__ = ("_children", "_departed", "_joined", "_listed")

    def __init__(self, children: CachedChildren) -> None:
        self._children = children
        self._joined: int | None = None  # how many lists there were when it joined
        # What this ticket's requests and events have shown since the last exchange.
        self._listed: Ranking | None = None
        self._departed: list[str] = []

    def listed(self, names: Ranking) -> Ranking:
        """Record and return a list that this ticket has read, if other tickets can use it."""
        if self._children.tickets > (self._joined is not None):
            self._listed = names
        return names

    def departed(self, name: str) -> None:
        """Record that the deletion of `name` was reported to this ticket."""
        self._departed.append(name)

    def exchange(self) -> Ranking | None:
        """Share what this ticket has recorded; return the names that may remain if there is a list since it joined.

        To be called only when all events have been taken, and the ticket's own node is watched: the watch has not
        fired, and was not set again.  The names change with each list and departure.
        """
        children = self._children
        if self._joined is None:
            self._joined = children.count
            children.tickets += 1
        # Tickets that look together bring one list.
        if self._listed is not None and self._listed is not children.source:
            children.count += 1
            children.source, children.names = self._listed, Ranking(self._listed)
        self._listed = None
        if children.names is not None:
            for name in self._departed:
                children.names.remove(name)
        self._departed.clear()
        return children.names if children.count > self._joined else None

    def leave(self) -> None:
        """Take no part any longer, until the next exchange; what was not shared is forgotten."""
        self._listed = None
        self._departed.clear()
        if self._joined is not None:
            self._joined = None
            self._children.tickets -= 1
            if not self._children.tickets:
                self._children.names = self._children.source = None


class KnownParents:
    """The nodes that one client takes for existing, so that entering a line creates no node in vain.

    A create that fails because the node exists costs the ensemble as much as one that succeeds: the leader numbers it,
    and every server writes it into its log.  A create that fails because the parent is missing costs a round trip more
    as well.  `now` is the time on the event loop's clock.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def to_create(self, path: str, now: float) -> list[str]:
        """Return which nodes to create before a child of `path`: those below the lowest known one, top first.

        If none is known, the parent of `path` is taken for existing: a lock for each order or message is the usual
        case, and all of them have one parent.
        """
        if self._until.get(path, now) > now:
            return []
        nodes = ancestors(path)
        for number in range(len(nodes) - 1, 0, -1):
            if nodes[number - 1] in self._until:
                return nodes[number:]
        return nodes[-1:]

    def entered(self, path: str, now: float, *, is_ours: bool) -> None:
        """Record that a ticket was created below `path`, so that this node and all above it exist.

        Args:
            is_ours: Whether this client has created `path` itself just before.  If not, other clients use the node too,
                or it is no container, and it probably exists the next time as well.
        """
        until = self._until
        known = until.get(path)
        if known is None or known <= now:
            if len(until) >= _MOST_PARENTS:
                until.clear()
            until.update(dict.fromkeys(ancestors(path)[:-1], inf))
            known = now if is_ours else inf
        until[path] = max(known, now + _CONTAINER)

    def was_missing(self, path: str) -> None:
        """Record that `path` is missing, although it was taken for existing."""
        self._until.pop(path, None)


class Alarms:
    """Calls that are due in a moment, with one timer for all of them: most are taken back before that."""

    def __init__(self) -> None:
        self._due: dict[Callable[[], None], float] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_due: float  # kept here: uvloop's handle of a time that has passed has no `when`

    def add(self, call: Callable[[], None], due: float) -> None:
        """Make `call` at the time `due`, on the event loop's clock."""
        self._due[call] = due
        if self._timer is None or due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = asyncio.get_running_loop().call_at(due, self._call)

    def discard(self, call: Callable[[], None]) -> None:
        """Undo `add`.  The timer stays: the next call is often added a moment later."""
        self._due.pop(call, None)

    def _call(self) -> None:
        self._timer = None
        pending, self._due = self._due, {}
        now = asyncio.get_running_loop().time()
        for call, due in pending.items():
            if due > now:
                self.add(call, due)
        for call, due in pending.items():
            if due <= now:
                call()


class KnownOfClient:
    """What one client knows of all lines.

    Args:
        session_id: Its session now.

    Attributes:
        session_id: The session in which its first recipe was made: the one that it has resumed, if it has.
        created: The least token of the tickets that it has created, in any line.
        adopted: The paths of those that it has taken over from a former process.
        lines: Each line, by its path.
        parents: The nodes that it takes for existing.
        unwatched: Leases whose node is to be watched in a moment.
        orders: Let one try at a path run at a time, by the path: kept as long as a TryLock uses them.
    """

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.created: float = inf
        self.adopted: set[str] = set()
        self.lines: dict[str, KnownLine] = {}
        self.parents: KnownParents = KnownParents()
        self.unwatched: Alarms = Alarms()
        self.orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


_OF_CLIENT: Final[WeakKeyDictionary[Client, KnownOfClient]] = WeakKeyDictionary()


def known_of(zk: Client) -> KnownOfClient:
    """Return what `zk` knows."""
    return _OF_CLIENT.get(zk) or _OF_CLIENT.setdefault(zk, KnownOfClient(zk.session_id))


def line_of(zk: Client, path: str) -> KnownLine:
    """Return what `zk` knows of the line at `path`: one object for all recipes of this client there.

    If a line in use is forgotten, its later tickets share nothing with the earlier ones: they send a few requests more.
    """
    return remember(known_of(zk.unlimited).lines, path, lambda: KnownLine(path), _MOST_LINES)


def remember(table: dict[str, V], key: str, make: Callable[[], V], most: int) -> V:
    """Return the value of `key`, made if it is new; then the oldest one is forgotten if there are `most`."""
    if key not in table:
        if len(table) >= most:
            del table[next(iter(table))]
        table[key] = make()
    return table[key]
