"""A link between an open socket and its connection."""

import asyncio

from zkwire.session.transport import Link
from zkwire.testing import Server
from zkwire.wire.connection import Connection, Incoming
from zkwire.wire.records import ConnectRequest


class Owner:
    """Takes note of what a link says."""

    def __init__(self) -> None:
        self.reasons: list[Exception] = []

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        """Ignore it."""

    def link_writable(self, link: Link) -> None:
        """Ignore it."""

    def link_lost(self, link: Link, reason: Exception) -> None:
        self.reasons.append(reason)


async def test_an_aborted_link_counts_as_lost_at_once_and_is_lost_once() -> None:
    """The event loop closes the socket a turn later; nothing more may be done with the link until then."""
    loop = asyncio.get_running_loop()
    owner, reason = Owner(), ConnectionAbortedError("enough")
    async with Server() as server:
        host, _, port = server.hosts.rpartition(":")
        hello = ConnectRequest(0, 0, 4000, 0, bytes(16), False)
        _, link = await loop.create_connection(
            lambda: Link(Connection(hello, 1000, loop.time()), owner), host, int(port)
        )
        assert not link.is_lost
        link.abort(reason)
        assert link.is_lost
        assert not link.closed.done()
        assert await link.closed is reason
        assert link.is_lost
        assert owner.reasons == [reason]
