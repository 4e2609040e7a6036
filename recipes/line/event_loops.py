"""Checks that a lock is used in one event loop only."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that is running in this thread, None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def same_loop(loop: asyncio.AbstractEventLoop | None, what: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop, if it is `loop` or if `loop` is None.

    Arguments: `what`, the beginning of the error message: what belongs to `loop`.
    Raises: RuntimeError in another event loop.
    """
    running = asyncio.get_running_loop()
    if loop is not None and loop is not running:
        raise RuntimeError(f"{what} belongs to another event loop: connect a client in each event loop")
    return running
