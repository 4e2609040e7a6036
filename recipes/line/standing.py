"""Which nodes a client takes for standing, so that entering a line creates no node in vain.

Pure but for the memory of each client: it is given paths and the time.

A create that fails because the node exists costs the ensemble as much as one that succeeds: the leader numbers it, and
every server writes it into its log.  A create that fails because the parent is missing costs a round trip more as well.
So what was seen is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from zkwire import Client, ancestors

# Seconds for which a container that this client has created, and uses, is taken for standing.  Servers look for empty
# containers once a minute, by default, and delete them.
_CONTAINER: Final = 30.0
_FOR_EVER: Final = float("inf")
# Programs use ever new paths.  When so many are remembered, all are forgotten.
_MOST_REMEMBERED: Final = 10_000


class Standing:
    """The nodes that one client takes for standing; `now` is the time on the event loop's clock."""

    __slots__ = ("_being_made", "_until")

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._being_made: set[str] = set()

    def missing(self, path: str, now: float) -> list[str]:
        """Return which nodes to create ahead of a child of `path`: those below the lowest one that stands, top first.

        If none is known to stand, the parent of `path` is taken for standing: a lock for each order or message is the
        usual case, and all of them have one parent.
        """
        if self._until.get(path, 0.0) > now:
            return []
        nodes = ancestors(path)
        for number in range(len(nodes) - 1, 0, -1):
            if nodes[number - 1] in self._until:
                return nodes[number:]
        return nodes[-1:]

    def is_being_made(self, path: str) -> bool:
        """Return whether a create of `path` is under way: what is sent now comes behind it."""
        return path in self._being_made

    @contextmanager
    def making(self, path: str) -> Iterator[None]:
        """Record that `path` is being made, as long as the block runs; its creates are sent in this very step."""
        if path in self._being_made:
            yield
            return
        self._being_made.add(path)
        try:
            yield
        finally:
            self._being_made.discard(path)

    def entered(self, path: str, now: float, *, is_ours: bool) -> None:
        """Take note that a ticket was created below `path`, so that this node and all above it stand.

        Arguments: `is_ours`, whether this client has created `path` itself just before.  If not, other clients use the
        node too, or it is no container, and it probably stands the next time as well.
        """
        until = self._until
        known = until.get(path)
        if known is None or known <= now:
            if len(until) >= _MOST_REMEMBERED:
                until.clear()
            for above in ancestors(path)[:-1]:
                until[above] = _FOR_EVER
            known = 0.0 if is_ours else _FOR_EVER
        until[path] = max(known, now + _CONTAINER)

    def was_missing(self, path: str) -> None:
        """Take note that `path` is missing, although it was taken for standing."""
        self._until.pop(path, None)


_OF_CLIENT: Final[WeakKeyDictionary[Client, Standing]] = WeakKeyDictionary()


def standing_of(zk: Client) -> Standing:
    """Return what `zk` takes for standing."""
    return _OF_CLIENT.setdefault(zk, Standing())
