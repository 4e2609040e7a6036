"""The clocks of a test server: the clock of the event loop, or one that a test advances by hand.

A server takes every time and every timer from its clock.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import TypeAlias


class LoopClock:
    """The time of the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        """Return the time of the running loop."""
        return self._loop.time()

    def wall(self) -> float:
        """Return the seconds since 1970, which become the ctime and mtime of nodes."""
        return time.time()

    def call_at(self, when: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Make `call` at the loop's time `when`."""
        return self._loop.call_at(when, call)


class _Call:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class VirtualClock:
    """A clock that moves only by `advance`, so that a test of a timeout of 30 s takes no time.

        clock = VirtualClock()
        async with Server(clock=clock) as server: ...; clock.advance(30)

    Several servers may use one clock. A client does not use it: it sees what the servers do, not that time has passed.

    Args:
        wall: The time of day at the start, in seconds since 1970; None takes the computer's.
    """

    def __init__(self, wall: float | None = None) -> None:
        self._now = 0.0
        self._wall = time.time() if wall is None else wall
        self._calls: list[tuple[float, int, _Call]] = []
        self._order = itertools.count()

    def time(self) -> float:
        """Return the seconds advanced so far."""
        return self._now

    def wall(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return self._wall + self._now

    def call_at(self, when: float, call: Callable[[], object]) -> _Call:
        """Make `call` in the `advance` that reaches `when`."""
        timer = _Call(call)
        heapq.heappush(self._calls, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: make all the calls that become due, in their order, each at its own time.

        The servers have then written their output, but clients read it only in a later turn of their event loop: await
        something that depends on it.

        Raises:
            ValueError: if `seconds` is negative, infinite or not a number.
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


Clock: TypeAlias = LoopClock | VirtualClock
Timer: TypeAlias = asyncio.TimerHandle | _Call
