"""Checks that an object is used in one event loop only.

Futures must not be completed from another thread: a task that waits for one in a second event loop would never be
woken. asyncio.Lock and asyncio.Event do the same check, but only when they have to wait.
"""

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that is running in this thread, None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def same_loop(loop: asyncio.AbstractEventLoop | None, what: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop, if it is `loop` or if `loop` is None.

    Args:
        what: The beginning of the error message: what belongs to `loop`.

    Raises:
        RuntimeError: in another event loop.
    """
    running = running_loop()
    if running is None:
        raise RuntimeError(f"{what} is used without an event loop: use it in the loop that has connected its client")
    if loop is not None and loop is not running:
        raise RuntimeError(f"{what} belongs to another event loop: connect a client in each event loop")
    return running
