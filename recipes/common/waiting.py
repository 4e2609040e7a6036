"""Waits that several recipes share: limited by `within`, and continued in the session after an expired one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from zkwire import Client, SessionState


@asynccontextmanager
async def bounded(within: float | None, what: str) -> AsyncIterator[None]:
    """Limit the body to `within` seconds; None sets no limit.

    Arguments: `what`, the beginning of the error message: what did not happen in time.
    Raises: TimeoutError. A TimeoutError of the body itself passes unchanged.
    """
    try:
        async with asyncio.timeout(within) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(f"{what} within {within} s") from None


def raise_unless_renewed(zk: Client) -> None:
    """Raise the SessionExpiredError that is being handled, unless the client begins a new session.

    To be called in an `except` block. With `renew=False` the client stays in the state EXPIRED, and every later
    request would fail as well.
    """
    if zk.state is SessionState.EXPIRED:
        raise
