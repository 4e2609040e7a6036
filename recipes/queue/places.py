"""The tasks of one queue object that wait for an item, in the order in which they came.

Knows nothing of items: the first task finds out how many there are, and calls as many of the others.
"""

from __future__ import annotations

import asyncio
from itertools import islice


class Place:
    """The place of one task."""

    __slots__ = ("_is_called",)

    def __init__(self) -> None:
        self._is_called = asyncio.Event()

    async def called(self) -> None:
        """Wait until this place is the first, or one of the first for which there are items."""
        await self._is_called.wait()
        self._is_called.clear()

    def call(self) -> None:
        """Let `called` return."""
        self._is_called.set()


class Places:
    """The places of the tasks that wait; the task with the first one waits for all."""

    def __init__(self) -> None:
        self._places: dict[Place, None] = {}  # in their order

    def enter(self) -> Place:
        """Return a place behind all others, to be given to `leave`."""
        place = Place()
        self._places[place] = None
        return place

    def is_first(self, place: Place) -> bool:
        """Return whether `place` is the first."""
        return next(iter(self._places)) is place

    def call(self, count: int) -> None:
        """Call the `count` places behind the first one, or fewer."""
        for place in islice(self._places, 1, 1 + count):
            place.call()

    def leave(self, place: Place) -> None:
        """Give `place` up, and call the one that is the first then."""
        del self._places[place]
        for first in islice(self._places, 1):
            first.call()
