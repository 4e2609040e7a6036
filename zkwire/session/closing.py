"""The last waits of a session and of a link."""

from __future__ import annotations

import asyncio
from typing import Any

from zkwire.session.transport import Link


async def answered_or_lost(answer: asyncio.Future[Any], link: Link | None, within: float) -> None:
    """Return when `answer` is done, or `link` is lost, or `within` seconds have passed; ignore what the answer is.

    With the connection lost, nothing more can be done.
    """
    assert link is not None
    try:
        await asyncio.wait([answer, link.closed], timeout=max(within, 0), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not answer.cancel() and not answer.cancelled():
            answer.exception()


async def finish(link: Link) -> None:
    """Close `link`, if it is not closed yet, and wait until its socket is."""
    if not link.closed.done():
        link.abort(ConnectionAbortedError("the client has closed the connection"))
        await asyncio.wait({link.closed})
