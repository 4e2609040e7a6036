"""Let time pass for an event loop at once, so that a test need not wait for its timers."""

import asyncio

import pytest

from tests.support.client import turns


class Clock:
    """The clock of the running event loop, which can be put forward.

    Everything in the loop sees the new time, also the sessions of clients and an in-memory server in the same loop: a
    test that lets several seconds pass needs a longer session timeout.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        original = loop.time
        self._ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: original() + self._ahead)

    async def passes(self, seconds: float) -> None:
        """Put the clock forward, and run the timers that are due by then."""
        self._ahead += seconds
        await turns(10)
