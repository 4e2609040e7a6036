"""What keeps a session certain: which connection pings through the leader, and the requests of `certify`."""

import asyncio
import struct
from typing import Any

import pytest

from tests.support.client import InOrder, turns
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire.errors import ConnectionLostError, NoAuthError, ThrottledError
from zkwire.session.lifetime import Certainty
from zkwire.session.proving import Proving
from zkwire.wire.connection import Connection
from zkwire.wire.records import ConnectRequest, ConnectResponse
from zkwire.wire.requests import Request, SyncRequest

TIMEOUT = 16.0
PAUSE = 1.0  # seconds between two requests, when three in a row were not enough
LOST = ConnectionLostError("lost", maybe_applied=False)


def now() -> float:
    return asyncio.get_running_loop().time()


def opened() -> Connection:
    """Return a connection on which a server has granted a session."""
    connection = Connection(ConnectRequest(0, 0, round(TIMEOUT * 1000), 0, bytes(16), False), 1000, now())
    answer = ConnectResponse(0, round(TIMEOUT * 1000), 5, bytes(16)).encode() + b"\0"
    connection.receive(struct.pack(">i", len(answer)) + answer, now())
    assert connection.is_open
    return connection


class Session:
    """A session whose certainty is proven by the last of `answers`, one of which each request gets in turn."""

    def __init__(self, *answers: Exception | None) -> None:
        self.certainty = Certainty()
        self.proving = Proving(self.certainty, self.submit)
        self.requests: list[Request[Any]] = []
        self._answers = list(answers)

    def submit(self, request: Request[Any]) -> asyncio.Future[Any]:
        self.requests.append(request)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        error = self._answers.pop(0)
        if error is not None:
            answered.set_exception(error)
        else:
            answered.set_result(None)
        if not self._answers:
            self.certainty.proven(now() + TIMEOUT)
        return answered


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; no time passes."""
    made: list[float] = []

    async def pause(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return made


async def test_pings_go_through_the_leader_for_as_long_as_a_lock_depends_on_certainty() -> None:
    proving = Session().proving
    connection = opened()
    proving.attach(connection, now())
    assert not connection.keeps_certain
    proving.need()
    proving.need()
    proving.release()
    assert connection.keeps_certain
    proving.release()
    assert not connection.keeps_certain
    assert not connection.calls  # nothing is sent at once
    proving.need()
    assert connection.keeps_certain


async def test_a_new_connection_proves_first_that_its_server_belongs_to_a_quorum_if_a_lock_is_held() -> None:
    proving = Session().proving
    first, second, third = opened(), opened(), opened()
    proving.need()  # between two connections
    proving.attach(first, now())
    assert first.keeps_certain
    assert [type(call.request) for call in first.calls] == [SyncRequest]
    proving.detach()
    proving.release()
    assert first.keeps_certain  # it is lost, and of no interest
    proving.attach(second, now())
    assert not second.keeps_certain
    assert not second.calls
    proving.detach()
    proving.need()
    proving.need()
    proving.release()
    assert not second.keeps_certain
    proving.attach(third, now())
    assert third.keeps_certain
    assert len(third.calls) == 1


async def test_a_session_that_is_certain_needs_no_proof() -> None:
    session = Session()
    session.certainty.proven(now() + TIMEOUT)
    await session.proving.certify()
    assert session.requests == []


async def test_without_a_connection_the_proof_is_a_sync_which_waits_for_the_next_one(pauses: list[float]) -> None:
    session = Session(LOST, None, None, None, None)
    await session.proving.certify()
    assert session.requests == [SyncRequest("/")] * 5
    assert pauses == []


@in_virtual_time
async def test_a_client_without_a_connection_sends_a_sync_first_on_the_next_one() -> None:
    """Although the lost connection has not shown a write for long, and would send one."""
    async with a_client() as (server, zk):
        await asyncio.sleep(30.0)
        server.drop()
        server.names()
        await turns(1)
        await zk.certify()
        assert server.names()[:2] == ["connect", "sync"]


async def test_a_proof_is_tried_three_times_at_once_and_then_with_pauses(pauses: list[float]) -> None:
    session = Session(None, None, None, ThrottledError(ThrottledError.code), LOST, None)
    connection = opened()
    session.proving.attach(connection, now())
    await session.proving.certify()
    assert session.requests == [connection.proof(now())] * 6
    assert pauses == [PAUSE, PAUSE, PAUSE]  # a lost connection needs none


async def test_a_refusal_for_good_is_raised(pauses: list[float]) -> None:
    session = Session(NoAuthError(NoAuthError.code), None)
    session.proving.attach(opened(), now())
    with pytest.raises(NoAuthError):
        await session.proving.certify()
    assert len(session.requests) == 1


class InPhase(InOrder):
    """Randomness that is always the same number, which is the phase of proofs as well."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self._number = number

    def random(self) -> float:
        return self._number


@in_virtual_time
@pytest.mark.parametrize("phase", [0.0, 0.3, 0.99])
async def test_an_idle_client_keeps_its_connection_whatever_its_phase(phase: float) -> None:
    async with a_client(rng=InPhase(phase)) as (server, _):
        await asyncio.sleep(60.0)
        assert set(server.names()) == {"sync"}
