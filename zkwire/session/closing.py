"""The last waits of a session and of a link."""

from __future__ import annotations

import asyncio
from typing import Any

from zkwire.errors import SessionError
from zkwire.session.request_queue import RequestQueue
from zkwire.session.transport import Link
from zkwire.wire.requests import PingRequest


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


async def clean_up(requests: RequestQueue, link: Link | None, within: float) -> None:
    """Wait, for at most `within` seconds, until the nodes of cancelled creates are gone, or the link is.

    They must not stay in a session that outlives this client.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    assert link is not None
    while requests.is_cleaning_up and not link.is_lost and loop.time() < end:
        try:
            ping = requests.submit(PingRequest())
        except SessionError:
            return
        # When the ping is answered, so is all that was sent before; the removals have then sent their next requests.
        await answered_or_lost(ping, link, end - loop.time())


async def finish(link: Link) -> None:
    """Close `link`, if it is not closed yet, and wait until its socket is."""
    if not link.closed.done():
        link.abort(ConnectionAbortedError("the client has closed the connection"))
        await asyncio.wait({link.closed})
