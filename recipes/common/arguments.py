"""Checks of arguments that several recipes take."""

import asyncio
from typing import Any


def current_task() -> asyncio.Task[Any]:
    """Return the task that is running.

    Raises:
        RuntimeError: if no task is running, as in a callback of the event loop.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a lock is held by a task")
    return task


def checked_within(within: float | None) -> float | None:
    """Return `within` if it can limit a wait: None, or a number of seconds that is at least 0.

    Raises:
        TypeError: if it is neither a number nor None.
        ValueError: if it is less than 0.
    """
    if within is None:
        return None
    if isinstance(within, bool) or not isinstance(within, int | float):
        raise TypeError(f"within is a number of seconds or None, not {within!r}")
    if not within >= 0:
        raise ValueError(f"within is a number of seconds from 0, not {within!r}")
    return within


def checked_data(data: bytes) -> bytes:
    """Return `data` if it is bytes.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"data is bytes, not {data!r}")
    return data
