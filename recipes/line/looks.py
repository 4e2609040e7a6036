"""The looks of one client at one line: how many lists are under way, and those that several of its tickets share.

A ticket's list of the children usually goes in the write of its other requests.  But very many tasks of one client may
enter a line at once, and very many readers may hear at once that a writer has left.  With a list for each of 10,000
tickets, of 10,000 names, the server and the event loop would be busy for longer than the session lives.  So only a few
tickets list the line at a time; the others share the next look, which costs them one round trip more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from recipes.common import lost_answers
from recipes.common.numbers import next_number
from recipes.common.shared_looks import SharedLooks
from recipes.line.position import Ranking
from recipes.line.shared_list import SharedList
from zkwire import Client, GetChildren, GetChildrenAndStat, GetData, NoNodeError

_MOST: Final = 8
_MOST_REMEMBERED: Final = 1000  # lines: a program may use ever new paths


class Looks:
    """The looks that are under way at one line.

    Arguments: `most`, how many tickets may list the line by requests of their own at a time.
    Attributes: `own`, how many do at present: a ticket adds 1 while it does; `newest`, the newest list.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self.own = 0
        self.newest = SharedList()
        self._shared: SharedLooks[list[Any]] = SharedLooks()

    @property
    def are_many(self) -> bool:
        """Whether so many tickets list the line that another one shares a look instead."""
        return self.own >= self._most

    async def share(self, zk: Client, path: str, reads: Sequence[GetData | GetChildren]) -> list[Any]:
        """Return the answers to `reads`, which were sent behind a sync after this call; other tickets may share them.

        Arguments: `reads`, the list of the children of `path` first: its answer is a Ranking, with the next number.
        Raises: as lost_answers.read; the refusal of the list, unless the node at `path` is missing: then it is empty.
        """

        async def look(_: int) -> list[Any]:
            listed, *others = await lost_answers.read(zk, path, GetChildrenAndStat(path), *reads[1:])
            if isinstance(listed, NoNodeError):
                return [Ranking(()), *others]
            if isinstance(listed, BaseException):
                raise listed  # not shared: each ticket has an error of its own
            names, stat = listed
            return [Ranking(names, next_number(stat)), *others]

        return await self._shared.share(look)


_KNOWN: Final[WeakKeyDictionary[Client, dict[tuple[str, bool], Looks]]] = WeakKeyDictionary()


def looks_of(zk: Client, path: str, *, reads_slots: bool) -> Looks:
    """Return the looks of `zk` at the line at `path`: one object for all its recipes that read the same there.

    Arguments: `reads_slots`, whether they read the number of slots, too.
    """
    known = _KNOWN.setdefault(zk, {})
    key = path, reads_slots
    looks = known.get(key)
    if looks is None:
        # If a line in use is forgotten, its later tickets share no looks with the earlier ones: they send a few more.
        if len(known) >= _MOST_REMEMBERED:
            del known[next(iter(known))]
        looks = known[key] = Looks(_MOST)
    return looks
