"""Waits that several recipes share, limited by `within`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from recipes.common.retrying import raise_unless_renewed

__all__ = ["LEAVES_WITHIN", "Bound", "bounded", "raise_unless_renewed"]

# Seconds in which a caller that is leaving waits for an answer that it can do without, as for the end of a guaranteed
# delete: an ensemble that is down must not keep a program from ending.
LEAVES_WITHIN: Final = 1.0


class Bound:
    """The limit of one wait; made by `bounded`.

    Arguments: `what` did not happen within the limit, and `details`, which returns what else to say: the error message.
    Attributes: `is_one_look`, whether the limit is 0 seconds; `message` of the TimeoutError.
    """

    def __init__(self, within: float | None, what: str, details: Callable[[], str] = str) -> None:
        self.is_one_look = within == 0
        self._beginning = f"{what} within {within} s"
        self._details = details

    @property
    def message(self) -> str:
        """The message of the TimeoutError, with the details that are known by now."""
        return self._beginning + self._details()

    def must_wait(self) -> None:
        """Note that a look has been made, and that the caller has to wait.

        Raises: TimeoutError if the limit is 0 seconds. With any other limit this does nothing.
        """
        if self.is_one_look:
            raise TimeoutError(self.message)


@asynccontextmanager
async def bounded(within: float | None, what: str, details: Callable[[], str] = str) -> AsyncIterator[Bound]:
    """Limit the body to `within` seconds; None sets no limit, and 0 allows one look.

        async with bounded(within, f"the barrier {path} was not removed") as bound:
            while True:
                ...                          # look: return if the barrier is gone
                bound.must_wait()            # within=0 ends here
                await watch

    One look means: the body makes the requests that show whether it has to wait, however long their answers take, and
    takes what is free. So a limit of 0 sets no timer: the body must call `must_wait` between a look and each wait for
    other clients, or it would wait without limit.
    Arguments: `what`, the beginning of the error message: what did not happen in time; `details`, returns its end.
    Raises: TimeoutError. A TimeoutError of the body itself passes unchanged.
    """
    bound = Bound(within, what, details)
    try:
        async with asyncio.timeout(within or None) as limit:
            yield bound
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(bound.message) from None
