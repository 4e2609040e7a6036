"""The check that an object is used in one event loop only."""

from __future__ import annotations

import asyncio


class OneLoop:
    """Remembers the event loop in which an object is first used, and refuses every other one.

    Futures must not be completed from another thread: a task that waits for one in a second event loop would never be
    woken. asyncio.Lock and asyncio.Event do the same check, but only when they have to wait.
    Arguments: `what`, the object, for the error message.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Return if the running event loop is that of the first call.  Raises: RuntimeError."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(f"{self._what} is used in another event loop already")
