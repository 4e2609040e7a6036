"""The list of a line that the tickets of one client share while they wait, so that few of them have to list it again.

Pure: takes in lists and departures, in the order in which the tickets get them; sends nothing.

A departure is a fact, and no name comes back.  But the server of the next connection may lag behind it (see
`Position.started_over`).  So a ticket takes part only while the watch on its own node stands.  That watch is set on one
connection, and is set again on the next one, which the ticket notices before it takes in anything else.  What was
shared since the ticket has joined comes from the connection on which its own node is watched.
docs/waiting-line.md, "What one of them is told, all of them know", has the argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from recipes.line.position import Ranking


class SharedList:
    """The newest list that a ticket of one client has read, without the nodes whose deletion was reported since.

    It is kept while tickets wait that can use it.
    """

    __slots__ = ("_count", "_names", "_source", "_tickets")

    def __init__(self) -> None:
        self._tickets = 0
        self._count = 0  # lists, ever
        self._source: Ranking | None = None  # of which `_names` is a copy
        self._names: Ranking | None = None

    @property
    def tickets(self) -> int:
        """How many tickets take part."""
        return self._tickets

    def join(self) -> int:
        """Let one more ticket take part; return what it has to give to `newer`."""
        self._tickets += 1
        return self._count

    def leave(self) -> None:
        """Take note that a ticket takes part no longer."""
        self._tickets -= 1
        if not self._tickets:
            self._names = self._source = None

    def listed(self, names: Ranking) -> None:
        """Take in a list that a ticket which takes part has read."""
        if names is not self._source:  # tickets that share a look bring the same one
            self._count += 1
            self._source, self._names = names, Ranking(names)

    def departed(self, name: str) -> None:
        """Take note that the deletion of `name` was reported to a ticket that takes part."""
        if self._names is not None:
            self._names.remove(name)

    def newer(self, joined: int) -> Ranking | None:
        """Return the names that may remain, None if no list was taken in since `join` has returned `joined`.

        They change with each list and departure.
        """
        return self._names if self._count > joined else None


class Share:
    """The part of one ticket in `shared`."""

    __slots__ = ("_departed", "_joined", "_listed", "_shared")

    def __init__(self, shared: SharedList) -> None:
        self._shared = shared
        self._joined: int | None = None
        # What this ticket's requests and events have shown since the last exchange.
        self._listed: Ranking | None = None
        self._departed: list[str] = []

    def listed(self, names: Sequence[str] | Ranking) -> Sequence[str] | Ranking:
        """Take note of a list that this ticket has read; return it, in order if others can use it."""
        if self._shared.tickets == (self._joined is not None):  # there is no other ticket
            return names
        self._listed = names if isinstance(names, Ranking) else Ranking(names)
        return self._listed

    def departed(self, name: str) -> None:
        """Take note that the deletion of `name` was reported to this ticket."""
        self._departed.append(name)

    def exchange(self) -> Ranking | None:
        """Share what this ticket has taken note of; return the names that may remain, as all tickets know it, or None.

        To be called only when all events have been taken, and the watch on the ticket's own node stands: it has not
        fired, and was not set again.
        """
        shared = self._shared
        if self._joined is None:
            self._joined = shared.join()
        if self._listed is not None:
            shared.listed(self._listed)
            self._listed = None
        if self._departed:
            for name in self._departed:
                shared.departed(name)
            self._departed.clear()
        return shared.newer(self._joined)

    def leave(self) -> None:
        """Take no part any longer, until the next exchange; what was not shared is forgotten."""
        self._listed = None
        self._departed.clear()
        if self._joined is not None:
            self._joined = None
            self._shared.leave()
