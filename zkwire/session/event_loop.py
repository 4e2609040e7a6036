"""The check that a session is used in its own event loop."""

from __future__ import annotations

import asyncio


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Return if `loop`, the session's, is the one that runs here.

    Raises: RuntimeError when another loop runs here, or none.  A future of the one loop that is completed in the other
    wakes no task there, so that the caller would wait for ever.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:  # a thread without a loop: asyncio does not say what to do
        running = None
    if running is not loop:
        raise RuntimeError(
            "the zkwire client belongs to another event loop: use it in the loop, and in the thread, that has connected"
            " it, and connect once for each loop"
        )
