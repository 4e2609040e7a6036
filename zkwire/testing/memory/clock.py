"""The clocks that a test server goes by: the event loop's own, or one that a test advances by hand.

A server asks its clock for the time and to be called at a time; it knows no other.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later, until it is cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What a server needs of a clock; both times in seconds."""

    def time(self) -> float:
        """The time by which timeouts run; never steps back."""
        ...

    def wall(self) -> float:
        """The time since 1970, which nodes are stamped with."""
        ...

    def call_at(self, when: float, call: Callable[[], object]) -> Timer:
        """Make `call` when `time()` has reached `when`."""
        ...


class LoopClock:
    """The time of the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def wall(self) -> float:
        """The time of day."""
        return time.time()

    def call_at(self, when: float, call: Callable[[], object]) -> Timer:
        """As the loop's `call_at`."""
        return self._loop.call_at(when, call)


class _Call:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class VirtualClock:
    """A clock that stands still until `advance` moves it, so that a timeout of 30 s takes no time to test.

        clock = VirtualClock()
        async with Server(clock=clock) as server: ...; clock.advance(30)

    Several servers may go by one clock. A client has its own: it sees what the servers do, not that time has passed.

    Arguments: `wall`, the time of day at the start, in seconds since 1970; None takes the computer's.
    """

    def __init__(self, wall: float | None = None) -> None:
        self._now = 0.0
        self._wall = time.time() if wall is None else wall
        self._calls: list[tuple[float, int, _Call]] = []
        self._order = itertools.count()

    def time(self) -> float:
        """The seconds advanced so far."""
        return self._now

    def wall(self) -> float:
        """The time of day, in seconds since 1970."""
        return self._wall + self._now

    def call_at(self, when: float, call: Callable[[], object]) -> Timer:
        """Make `call` in the `advance` that reaches `when`."""
        timer = _Call(call)
        heapq.heappush(self._calls, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: what falls due is done now, in its order, each at its own time.

        What the servers then have to say is written, but clients see it only when their event loop comes round: await
        something that depends on it.
        Raises: ValueError when `seconds` is negative, infinite or no number.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a clock advances by 0 or more seconds, not by {seconds!r}")
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            when, _, timer = heapq.heappop(self._calls)
            self._now = max(self._now, when)
            if timer.call is not None:
                timer.call()
        self._now = end
