"""A link between an open socket and its connection."""

import asyncio
from typing import Any

import pytest

from zkwire.errors import ProtocolError
from zkwire.session.transport import Link
from zkwire.testing import Server
from zkwire.wire.connection import Connection, Incoming
from zkwire.wire.records import ConnectRequest


class Owner:
    """Takes note of what a link says."""

    def __init__(self) -> None:
        self.reasons: list[Exception] = []
        self.writable = 0

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        """Ignore it."""

    def link_writable(self, link: Link) -> None:
        self.writable += 1

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


# -- without a server -------------------------------------------------------------------------------------------------


class Socket(asyncio.Transport):
    """A transport that takes note of what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True


def a_link() -> tuple[Link, Owner]:
    owner = Owner()
    hello = ConnectRequest(0, 0, 4000, 0, bytes(16), False)
    return Link(Connection(hello, 1000, asyncio.get_running_loop().time()), owner), owner


async def test_a_link_is_blocked_while_its_socket_is_full_and_its_owner_hears_of_the_end() -> None:
    link, owner = a_link()
    link.connection_made(Socket())
    link.pause_writing()
    assert (link.is_blocked, owner.writable) == (True, 0)
    link.resume_writing()
    assert (link.is_blocked, owner.writable) == (False, 1)


async def test_a_link_that_is_being_left_stays_blocked_whatever_its_socket_does() -> None:
    link, owner = a_link()
    link.connection_made(Socket())
    link.leave()
    link.pause_writing()
    link.resume_writing()
    assert (link.is_blocked, owner.writable) == (True, 0)
    link.stay()
    assert not link.is_blocked
    link.pause_writing()
    link.resume_writing()
    assert (link.is_blocked, owner.writable) == (False, 1)


async def test_a_link_that_stays_after_all_is_blocked_as_long_as_its_socket_is_full() -> None:
    link, owner = a_link()
    link.connection_made(Socket())
    link.pause_writing()
    link.leave()
    link.stay()
    assert link.is_blocked
    link.resume_writing()
    assert (link.is_blocked, owner.writable) == (False, 1)


async def test_what_the_connection_has_queued_is_written_once() -> None:
    link, _ = a_link()
    socket = Socket()
    link.connection_made(socket)
    link.flush()
    assert len(socket.written) == 4 + 45  # the handshake
    link.flush()
    assert len(socket.written) == 4 + 45


async def test_a_link_that_was_aborted_while_it_was_opened_is_closed_at_once() -> None:
    link, owner = a_link()
    reason = ConnectionAbortedError("enough")
    link.abort(reason)
    assert link.closed.result() is reason
    socket = Socket()
    link.connection_made(socket)
    assert (socket.is_aborted, socket.written) == (True, b"")
    link.connection_lost(None)
    assert owner.reasons == [reason]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "the server closed the connection"),
        (OSError("no route"), "no route"),
        (ConnectionResetError(), "the connection was reset"),
        (BrokenPipeError(), "the connection was closed"),
    ],
)
async def test_the_reason_of_a_loss_is_what_the_socket_says(error: Exception | None, text: str) -> None:
    link, owner = a_link()
    link.connection_made(Socket())
    link.connection_lost(error)
    (reason,) = owner.reasons
    assert str(reason) == text
    assert link.is_blocked
    assert link.closed.result() is reason


async def test_the_reason_of_a_loss_is_the_first_one() -> None:
    """Not what the closing of the socket causes."""
    link, owner = a_link()
    link.connection_made(Socket())
    link.abort(TimeoutError("silent"))
    link.abort(ConnectionAbortedError("later"))
    link.connection_lost(OSError("closed"))
    assert [str(reason) for reason in owner.reasons] == ["silent"]


async def test_bad_bytes_are_the_reason_of_a_loss() -> None:
    link, owner = a_link()
    socket = Socket()
    link.connection_made(socket)
    link.get_buffer(0)[:4] = b"\xff\xff\xff\xff"
    link.buffer_updated(4)
    assert socket.is_aborted
    link.connection_lost(None)
    (reason,) = owner.reasons
    assert isinstance(reason, ProtocolError)
