"""A witness: what it asks for, that it leaves its session alone, and when it counts as ended."""

import asyncio

import pytest

from tests.support.client import cancelled
from tests.support.virtual_time import Sent, Server, Wire, in_virtual_time
from zkwire.errors import NoAuthError, ProtocolError
from zkwire.session.attempt import SessionKey
from zkwire.session.credentials import Credential, Identity
from zkwire.session.hosts import Address
from zkwire.session.witness import Witness
from zkwire.wire.records import ConnectRequest

TIMEOUT = 4.0  # seconds, the least that the server grants


class Hellos(Server):
    """A server that keeps the handshakes."""

    def __init__(self) -> None:
        super().__init__()
        self.hellos: list[ConnectRequest] = []

    def received(self, wire: Wire, frame: bytes) -> None:
        if wire.connection.session is None:
            self.hellos.append(ConnectRequest.decode(frame, 0)[0])
        super().received(wire, frame)

    @property
    def open_wires(self) -> list[Wire]:
        return [wire for wire in self.wires if wire.is_open]


def witness(server: Server) -> Witness:
    return Witness(
        None, [Credential(Identity("digest", b"user:password"), print)], server.open_link, Address("a", 2181), 1.0
    )


@in_virtual_time
async def test_a_witness_makes_a_short_session_known_to_the_leader_and_is_silent_until_it_is_refused() -> None:
    server = Hellos()
    await witness(server).run()
    made, refused = server.hellos
    assert (made.session_id, made.timeout, made.read_only, refused.read_only) == (0, 1, False, False)
    assert refused.session_id != 0
    (path,) = (sent.path for sent in server.requests if sent.name == "create")
    assert path == f"/zkwire-{refused.session_id:#x}/witness"  # the parent does not exist
    assert [(sent.name, sent.at) for sent in server.requests] == [
        ("connect", 0.0),
        ("auth", 0.0),
        ("create", 0.0),
        ("connect", pytest.approx(1.6 * TIMEOUT)),
    ]
    assert not server.open_wires
    assert len(server.machine.sessions.by_id) == 0


@in_virtual_time
async def test_a_witness_that_still_lives_is_left_alone_again() -> None:
    server = Hellos()
    running = asyncio.create_task(witness(server).run())
    await asyncio.sleep(3.0)
    server.machine.restart(server.loop.time())  # a new leader gives each session its timeout again
    await running
    assert [sent.at for sent in server.requests] == pytest.approx([0.0, 0.0, 0.0, 6.4, 19.2])
    assert [hello.session_id for hello in server.hellos] == [0, *[server.hellos[1].session_id] * 2]


@in_virtual_time
@pytest.mark.parametrize("how", ["refused", "lost", "silent"])
async def test_a_witness_that_the_leader_may_not_know_fails(how: str) -> None:
    server = Hellos()

    def strike(wire: Wire, sent: Sent) -> int | bool | None:
        if sent.name != "create":
            return None
        if how == "refused":
            return NoAuthError.code
        if how == "lost":
            wire.lose(None)
        return False

    server.strike = strike
    with pytest.raises({"refused": ProtocolError, "lost": ConnectionError, "silent": TimeoutError}[how]):
        await witness(server).run()
    await asyncio.sleep(0)
    assert not server.open_wires
    assert len(server.hellos) == 1


@in_virtual_time
@pytest.mark.parametrize("seconds", [0.0005, 0.0015, 0.0025, 0.0035, 1.0, 6.401])
async def test_a_witness_that_is_cancelled_leaves_no_socket(seconds: float) -> None:
    """While it connects, shakes hands, creates, waits, or is to be refused."""
    server = Hellos()
    server.latency = lambda: 0.001
    running = asyncio.create_task(witness(server).run())
    await asyncio.sleep(seconds)
    await cancelled(running)
    await asyncio.sleep(0.3)
    assert not server.open_wires


@in_virtual_time
async def test_a_question_that_is_refused_leaves_no_socket() -> None:
    server = Hellos()
    server.strike = lambda wire, sent: NoAuthError.code if sent.name == "sync" else None
    with pytest.raises(ProtocolError, match="a sync was refused"):
        await witness(server).ask(SessionKey().hello(TIMEOUT, 0, accepts_read_only=False), flush=True)
    await asyncio.sleep(0)
    assert not server.open_wires
