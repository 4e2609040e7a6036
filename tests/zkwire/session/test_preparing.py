"""What a server grants is known before it gets a handshake that resumes the session: its answer may be lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import zkwire
from tests.support.client import turns
from tests.support.recipes import until_state
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time
from tests.zkwire.session.test_xids import OneToken
from zkwire import SessionState
from zkwire.session.hosts import Address
from zkwire.session.late_writes import LateServer
from zkwire.testing.memory.state import Settings

ASKED = [("b", "connect"), ("b", "closeSession")]


class _Servers(Server):
    """Two servers, a and b; b grants 4 s at most."""

    def received(self, wire: Wire, frame: bytes) -> None:
        self.machine.settings = Settings(max_session_timeout=4.0 if wire.host == "b" else None)
        super().received(wire, frame)


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[Server, zkwire.Client]]:
    """Connect a client to a, which grants 10 s."""
    server = _Servers(are_several=True)
    async with a_client(server=server) as (_, zk):
        assert zk.least_timeout == 10.0
        yield server, zk


def asked(server: Server) -> list[tuple[str, str]]:
    names = [(sent.host, sent.name) for sent in server.requests if sent.name != "ping"]
    server.requests.clear()
    return names


@in_virtual_time
async def test_the_first_time_another_session_asks_what_the_server_grants() -> None:
    async with two_servers() as (server, zk):
        first = zk.session_id
        await server.reconnect(zk)
        assert asked(server)[:3] == [*ASKED, ("b", "connect")]
        assert (zk.session_id, zk.least_timeout) == (first, 4.0)
        assert len(server.machine.sessions.by_id) == 1
        await server.reconnect(zk)
        assert asked(server)[:1] == [("a", "connect")]
        await server.reconnect(zk)
        assert asked(server)[:1] == [("b", "connect")]  # it is known now


@in_virtual_time
async def test_a_handshake_whose_answer_is_lost_may_have_given_the_session_less() -> None:
    """Pitfall 93: the leader may take it when the client has long resumed the session at another server."""
    async with two_servers() as (server, zk):

        def strike(wire: Wire, sent: Sent) -> None:
            server.is_silent = sent.name == "closeSession"

        server.strike = strike
        before = server.loop.time()
        assert zk.certain_until >= before + 9.9
        server.drop()
        await turns(20)
        assert asked(server) == ASKED
        assert zk.least_timeout == 4.0
        assert zk.certain_until <= server.loop.time() + 4.0


@in_virtual_time
async def test_a_slow_server_has_the_limit_of_an_attempt_for_the_question_and_again_for_the_session() -> None:
    async with two_servers() as (server, zk):
        first, server.refused = zk.session_id, {"a"}
        server.latency = lambda: 2.0
        server.drop()
        await turns()
        await until_state(zk, SessionState.CONNECTED)
        assert asked(server)[:2] == [("b", "connect")] * 2
        assert zk.session_id == first


@in_virtual_time
async def test_a_server_that_does_not_say_what_it_grants_gets_no_handshake() -> None:
    async with two_servers() as (server, zk):
        certain_until, first = zk.certain_until, zk.session_id
        received = server.received

        def silent(wire: Wire, frame: bytes) -> None:
            if wire.host != "b":
                received(wire, frame)

        server.received = silent  # type: ignore[method-assign]
        server.drop()
        await turns(20)
        assert zk.certain_until == certain_until
        await until_state(zk, SessionState.CONNECTED)
        assert (zk.server, zk.session_id, zk.least_timeout) == ("a:2181", first, 10.0)


@in_virtual_time
async def test_the_session_that_asks_is_used_again_and_a_new_one_is_made_when_it_has_expired() -> None:
    async with two_servers() as (server, zk):
        former = LateServer(Address("b", 2181), is_former=True)
        zk._session._servers.late_writes._servers["b", 2181] = former  # so that it is asked for a sync
        server.strike = lambda wire, sent: False if sent.name == "sync" else None
        server.refused = {"a"}
        server.drop()
        await server.until("sync", 2)
        (asking,) = server.machine.sessions.by_id.keys() - {zk.session_id}
        server.machine.expire(asking)
        server.strike = lambda wire, sent: None
        await until_state(zk, SessionState.CONNECTED)
        assert zk.server == "b:2181"
        assert len(server.machine.sessions.by_id) == 1


@in_virtual_time
@pytest.mark.parametrize("refuses", [False, True])
async def test_the_session_that_asks_authenticates_by_sasl_as_that_of_the_client_does(
    refuses: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_client(server=Server(are_several=True), sasl=OneToken()) as (server, zk):
        first = zk.session_id
        server.strike = lambda wire, sent: -115 if refuses and sent.name == "sasl" else None
        server.drop()
        if refuses:
            with pytest.raises(zkwire.AuthFailedError, match="SASL with b:2181: the server refuses"):
                await zk.ping()
            assert zk.state is SessionState.AUTH_FAILED
            assert "SASL with b:2181: the server refuses" in caplog.text
        else:
            await zk.ping()
            asking = [("b", "connect"), ("b", "sasl"), *ASKED[1:]]
            assert asked(server) == [*asking, ("b", "connect"), ("b", "sasl")]
            assert zk.session_id == first
