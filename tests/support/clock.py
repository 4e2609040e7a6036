"""Let time pass for an event loop at once, so that a test need not wait for its timers."""

import asyncio

import pytest

from tests.support.client import turns

_RATE = 0.1  # of this clock, so that a test on a busy machine is not surprised by the time that it takes


class Clock:
    """The clock of the running event loop, which runs slowly and can be put forward.

    Everything in the loop sees this time, also the sessions of clients and an in-memory server in the same loop: a
    test that lets several seconds pass at once needs a longer session timeout.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            pytest.skip("only the timers of asyncio's own event loop go by its method `time`")
        original = loop.time
        start = original()
        self._ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: start + self._ahead + _RATE * (original() - start))

    async def passes(self, seconds: float) -> None:
        """Put the clock forward, and run the timers that are due by then."""
        self._ahead += seconds
        await turns(10)
