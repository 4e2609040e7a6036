"""A link between an open socket and its connection."""

import asyncio
import struct
from typing import Any

import pytest

from tests.simulation.loop import Machine
from tests.support.client import turns
from tests.support.virtual_time import block, in_virtual_time
from zkwire.errors import ProtocolError
from zkwire.session.transport import Link, LinkOwner
from zkwire.wire.connection import Call, Connection, Incoming
from zkwire.wire.primitives import INT
from zkwire.wire.records import PING_XID, ConnectRequest, ConnectResponse
from zkwire.wire.requests import ExistsRequest, GetChildrenRequest, PingRequest


class Owner(LinkOwner):
    """Records what a link says; with `leaves`, it drops the link when something arrives."""

    def __init__(self) -> None:
        self.reasons: list[Exception] = []
        self.writable = 0
        self.arrived: list[list[Incoming]] = []
        self.leaves = False

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        self.arrived.append(arrived)
        if self.leaves:
            link.abort(ConnectionAbortedError("left"))

    def link_writable(self, link: Link) -> None:
        self.writable += 1

    def link_lost(self, link: Link, reason: Exception) -> None:
        self.reasons.append(reason)


# -- without a server -------------------------------------------------------------------------------------------------


class Socket(asyncio.Transport):
    """A transport that takes note of what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False
        self.calls: list[str] = []

    def is_closing(self) -> bool:
        return self.is_aborted

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: Any) -> None:
        self.written += data
        self.calls.append("write")

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def a_link(limit: int = 1000) -> tuple[Link, Owner]:
    owner = Owner()
    hello = ConnectRequest(0, 0, 4000, 0, bytes(16), False)
    return Link(Connection(hello, limit, asyncio.get_running_loop().time()), owner), owner


def a_greeted_link(limit: int = 1000) -> tuple[Link, Owner, Socket]:
    """Return a link whose server has granted four seconds."""
    link, owner = a_link(limit)
    socket = Socket()
    link.connection_made(socket)
    link.flush()
    read(link, frame(ConnectResponse(0, 4000, 7, bytes(16)).encode() + b"\0"))
    socket.written = b""
    socket.calls.clear()
    owner.arrived.clear()
    return link, owner, socket


def frame(payload: bytes) -> bytes:
    return INT.pack(len(payload)) + payload


def a_reply(xid: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">iqi", xid, 1, 0) + body)


def read(link: Link, data: bytes) -> None:
    """Have the link read `data`, as much at a time as it asks for."""
    while data:
        buffer: Any = link.get_buffer(-1)
        piece, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(piece)] = piece
        link.buffer_updated(len(piece))


def timers() -> int:
    """Return how many timers the event loop has, in virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Machine)
    return sum("the timer" in line for line in loop.left())


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
    link.leave()
    link.stay()
    assert link.is_blocked
    link.resume_writing()
    assert (link.is_blocked, owner.writable) == (False, 1)
    link.abort(ConnectionAbortedError())
    assert link.is_blocked
    link.leave()
    link.stay()
    assert link.is_blocked


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "the server closed the connection"),
        (TimeoutError("no route"), "no route"),
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
    assert isinstance(reason, TimeoutError if text == "no route" else ConnectionResetError)
    assert link.is_blocked
    assert link.is_lost
    assert link.closed.result() is reason


async def test_a_link_that_is_aborted_before_it_has_a_socket_aborts_that_socket() -> None:
    link, _ = a_link()
    link.abort(ConnectionAbortedError())
    socket = Socket()
    link.connection_made(socket)
    assert socket.is_aborted


# -- large replies ----------------------------------------------------------------------------------------------------


def a_large_reply(link: Link) -> tuple[list[Call], bytes]:
    """Ask for many children and then for a node; return the calls, and both answers together."""
    calls = [Call(GetChildrenRequest("/", False)), Call(ExistsRequest("/a", False))]
    for call in calls:
        link.connection.send(call, asyncio.get_running_loop().time())
    names = [b"%040d" % number for number in range(10_000)]
    children = INT.pack(len(names)) + b"".join(INT.pack(len(name)) + name for name in names)
    return calls, a_reply(1, children) + a_reply(2, bytes(68))


@in_virtual_time
@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_link_gives_its_socket_to_another_one_unless_it_is_closed(is_closed: bool) -> None:
    (link, owner), (other, _), socket = a_link(), a_link(), Socket()
    link.connection_made(socket)
    if is_closed:
        socket.is_aborted = True
        with pytest.raises(ConnectionResetError):
            link.hand_over(other)
    else:
        link.hand_over(other)
        other.flush()
        assert socket.written
        assert socket.get_protocol() is other
    assert link.is_lost
    assert len(owner.reasons) == 1


@in_virtual_time
async def test_a_large_reply_is_decoded_in_steps_while_nothing_is_read_and_small_ones_at_once() -> None:
    link, owner, socket = a_greeted_link(1 << 20)
    link.connection.send(Call(PingRequest()), 0.0)
    read(link, a_reply(PING_XID))
    assert socket.calls == []
    owner.arrived.clear()
    calls, data = a_large_reply(link)
    read(link, data)
    assert socket.calls == ["pause"]
    steps = 0
    while socket.calls == ["pause"]:
        assert not [item for arrived in owner.arrived for item in arrived]
        await asyncio.sleep(0)
        steps += 1
    assert steps == 2
    assert socket.calls == ["pause", "resume"]
    assert owner.arrived[-1] == calls
    read(link, a_reply(PING_XID))  # it was not asked for
    assert isinstance(link.connection.error, ProtocolError)


@in_virtual_time
@pytest.mark.parametrize("when", ["before the first step", "between two steps", "with the reply"])
async def test_a_link_that_is_lost_while_it_decodes_a_large_reply_goes_on_no_more(when: str) -> None:
    link, owner, socket = a_greeted_link(1 << 20)
    _, data = a_large_reply(link)
    if when == "with the reply":
        read(link, data)
        await asyncio.sleep(0)
        owner.leaves = True
    elif when == "between two steps":
        read(link, data)
        await asyncio.sleep(0)
        link.abort(ConnectionAbortedError("left"))
    else:
        owner.leaves = True
        read(link, data)
    seen = len(owner.arrived)
    await turns()
    assert socket.is_aborted
    assert socket.calls == ["pause"] * (when != "before the first step")  # a closed socket is left alone
    assert len(owner.arrived) - seen == (1 if when == "with the reply" else 0)


@in_virtual_time
async def test_a_large_reply_that_cannot_be_decoded_is_the_reason_of_a_loss() -> None:
    link, owner, socket = a_greeted_link(1 << 20)
    _, data = a_large_reply(link)
    at = data.index(b"%040d" % 9_000) - 4
    read(link, data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :])
    await turns()
    assert socket.is_aborted
    assert "resume" not in socket.calls
    link.connection_lost(None)
    assert [type(reason) for reason in owner.reasons] == [ProtocolError]


# -- time -------------------------------------------------------------------------------------------------------------

PING = frame(struct.pack(">ii", PING_XID, PingRequest.opcode))


@in_virtual_time
async def test_no_ping_is_sent_before_the_link_is_released() -> None:
    """During the SASL exchange."""
    link, _ = a_link()
    link.connection.is_held = True
    socket = Socket()
    link.connection_made(socket)
    link.flush()
    socket.written = b""
    assert link.overdue_at == float("inf")
    read(link, frame(ConnectResponse(0, 4000, 7, bytes(16)).encode() + b"\0"))
    await asyncio.sleep(1.4)
    assert (timers(), socket.written) == (1, b"")
    link.release()
    assert timers() == 1
    assert link.overdue_at == pytest.approx(1.9)
    await asyncio.sleep(0.01)
    assert (timers(), socket.written) == (1, PING)


@in_virtual_time
async def test_after_each_time_the_event_loop_was_blocked_the_owner_may_write_again_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    link, owner, socket = a_greeted_link()
    loop = asyncio.get_running_loop()
    assert link.overdue_at == pytest.approx(1.5)
    await asyncio.sleep(0.9)
    block(2.0)
    await asyncio.sleep(0)
    link.tick_earlier()
    await asyncio.sleep(0)
    # What has come meanwhile is read before the silence is judged.
    assert (socket.written, owner.writable, link.is_lost) == (b"", 0, False)
    assert loop.time() > link.overdue_at
    await asyncio.sleep(0.002)
    assert (socket.written, owner.writable, link.is_lost) == (PING, 1, False)
    assert loop.time() < link.overdue_at
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "this event loop did not run for 1.9 s"
    ]
    read(link, a_reply(PING_XID))
    await asyncio.sleep(1.0)
    assert owner.writable == 1  # it was in time
    read(link, a_reply(PING_XID))
    block(2.0)
    await asyncio.sleep(0.002)
    assert owner.writable == 2
    read(link, a_reply(PING_XID))
    link.pause_writing()
    block(2.0)
    await asyncio.sleep(0.002)
    assert owner.writable == 2  # its socket is full
    assert not link.is_lost
    assert len(caplog.records) == 1
    assert timers() == 1


@in_virtual_time
async def test_a_slow_handshake_does_not_make_the_event_loop_late(caplog: pytest.LogCaptureFixture) -> None:
    link, owner = a_link()
    link.connection_made(Socket())
    await asyncio.sleep(1.7)  # the first ping was due after one second
    response = frame(ConnectResponse(0, 4000, 7, bytes(16)).encode() + b"\0")
    read(link, response[:20])
    assert timers() == 0
    read(link, response[20:])
    assert link.overdue_at == pytest.approx(2.2)
    await asyncio.sleep(0.1)
    assert owner.writable == 0
    assert not caplog.records
