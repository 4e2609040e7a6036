"""No write is carried out after a look has shown that it was not: a session whose server may still do so is ended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkwire
from tests.support.client import begun, turns
from tests.support.recipes import outcome, until_state
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time
from tests.zkwire.session.test_sasl_later import AWAY, Slow
from zkwire import SessionState
from zkwire.session.hosts import Address
from zkwire.session.late_writes import LateWrites
from zkwire.session.transport import Link
from zkwire.wire.multi import MultiRequest
from zkwire.wire.requests import CheckVersionRequest

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState
A, B = Address("a", 2181), Address("b", 2181)


@pytest.mark.parametrize(
    ("steps", "doubtful"),
    [
        ("lost given_up", A),
        ("lost", None),
        ("given_up", None),
        ("given_up lost", None),  # A has answered a later handshake in between
        ("lost given_up answered", None),
        ("lost given_up answered given_up", None),
        ("lost answered given_up", None),
        ("lost given_up lost", A),
    ],
)
def test_a_write_may_come_late_where_a_handshake_was_given_up_behind_it(steps: str, doubtful: Address | None) -> None:
    late = LateWrites()
    for step in steps.split():
        if step == "answered":
            late.resumed(A, is_read_only=False)
        elif step == "lost":
            late.lost(A, A)
        else:
            late.given_up(A, A)
    for is_read_only in (True, False, True):
        late.resumed(B, is_read_only=is_read_only)
        expected = None if is_read_only else doubtful  # nothing can be written without a quorum
        assert (late.doubtful and late.doubtful.address) == expected


def test_a_handshake_that_was_given_up_at_another_address_may_be_with_the_same_server() -> None:
    late = LateWrites()
    late.lost(A, A)
    late.given_up(B, B)
    late.resumed(("c", 2181), is_read_only=False)
    assert late.doubtful is not None
    assert late.doubtful.address == B
    late.resumed(B, is_read_only=False)
    assert late.doubtful is None
    late.given_up(("c", 2181), A)  # in a later outage, in which nothing was lost
    late.resumed(B, is_read_only=False)
    assert late.doubtful is None


def test_a_former_server_is_flushed_before_it_gets_a_handshake() -> None:
    late = LateWrites()
    late.lost(A, A)
    assert not late.needs_flush(A)  # no look was made elsewhere
    late.resumed(B, is_read_only=True)
    assert not late.needs_flush(A)
    late.resumed(B, is_read_only=False)
    assert late.needs_flush(A)
    assert not late.needs_flush(B)
    late.flushed(A)
    assert not late.needs_flush(A)


@asynccontextmanager
async def two_servers(hosts: str = "a,b", **options: Any) -> AsyncIterator[tuple[Server, zkwire.Client]]:
    """Start two servers, a and b, or more, and a client that has been connected to each, and is to a."""
    async with a_client(hosts, server=Server(are_several=True), **options) as (server, zk):
        for _ in hosts.split(","):
            await server.reconnect(zk)
        server.requests.clear()
        del server.wires[:-1]
        yield server, zk


async def lose_a_write_and_a_handshake(server: Server, zk: zkwire.Client) -> "asyncio.Task[str]":
    """Have the server a keep both, while the client has not reached another one yet."""
    server.is_silent = True
    creating = await begun(zk.create("/lost", ephemeral=True, recover=True))
    server.refused = {"b", "c"}
    server.drop()
    while len(server.wires) < 2:
        await asyncio.sleep(0.01)
    assert server.wire.host == "a"
    assert not creating.done()
    server.is_silent, server.refused = False, set()  # for what comes from now on
    server.requests.clear()
    return creating


@in_virtual_time
@pytest.mark.parametrize(("is_kept", "is_certain"), [(True, True), (True, False), (False, True)])
async def test_a_session_whose_write_may_come_late_is_used_only_if_its_server_answers_pitfall_92(
    is_kept: bool, is_certain: bool
) -> None:
    """Otherwise it is ended first; the create is called not carried out only if it cannot come late."""
    async with two_servers("a,b,c") as (server, zk):
        await zk.create("/own", ephemeral=True)
        first, states = zk.session_id, zk.states()
        creating = await lose_a_write_and_a_handshake(server, zk)
        if not is_certain:
            server.refused = {"a", "b", "c"}
            await asyncio.sleep(zk.certain_until - server.loop.time())
            server.refused, server.latency = {"a"}, lambda: 0.01
            await server.until("connect")
        server.refused = set() if is_kept else {"a"}
        certain: list[bool] = []

        def strike(wire: Wire, sent: Sent) -> None:
            if sent.name == "closeSession" and sent.host == "b":
                certain.append(zk.certain_until > sent.at)

        server.strike = strike
        with pytest.raises(zkwire.ConnectionLostError if is_kept else zkwire.SessionExpiredError) as ended:
            await creating
        await until_state(zk, CONNECTED)
        asked = [(sent.host, sent.name) for sent in server.requests]
        assert await zk.exists("/lost") is None
        if is_kept:
            assert getattr(ended.value, "maybe_applied", None) is False
            assert asked[:3] == [("b", "connect"), ("a", "connect"), ("a", "multi")]  # b is asked nothing
            assert (zk.session_id, zk.server) == (first, "a:2181")
        else:
            assert str(ended.value) == (
                f"session {first:#x} has expired: the client has ended it: a write with a lost answer may yet"
                " come through a:2181"
            )
            assert asked[-2:] == [("b", "closeSession"), ("b", "connect")]
            assert certain == [False]  # another client can own what this one owned as soon as it is ended
            assert zk.session_id != first
        assert (await zk.exists("/own") is not None) == is_kept
        await zk.close()
        between = [] if is_kept else [EXPIRED, CONNECTING]
        assert [state async for state in states] == [CONNECTED, SUSPENDED, *between, CONNECTED, CLOSED]


@in_virtual_time
@pytest.mark.parametrize("how", ["answers", "refuses", "without a quorum"])
async def test_the_former_server_gets_a_handshake_once_a_sync_has_passed_it_pitfall_92(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_servers() as (server, zk):
        first = zk.session_id
        server.is_silent = True
        transaction = zk.transaction()
        transaction.check("/")  # alone it would be no write
        transaction.create("/lost")
        writing = await begun(transaction.commit())
        server.drop()
        server.is_silent = False
        with pytest.raises(zkwire.ConnectionLostError):
            await writing
        await until_state(zk, CONNECTED)
        assert zk.server == "b:2181"
        server.names()
        server.strike = lambda wire, sent: -110 if how == "refuses" and sent.name == "sync" else None
        if how == "without a quorum":
            server.latency, send = lambda: 0.05, Wire.send
            monkeypatch.setattr(Wire, "send", lambda at, data: send(at, data[:-1] + b"\1" if at.host == "a" else data))
        server.refused = {"b"}
        server.drop()
        await turns(50)
        await asyncio.sleep(0.5)
        server.refused = set()
        await until_state(zk, CONNECTED)
        asked = [(sent.host, sent.name) for sent in server.requests]
        flush = [("a", "connect"), ("a", "sync")]
        if how == "answers":
            assert asked[:4] == [*flush, ("a", "closeSession"), ("a", "connect")]
            assert zk.server == "a:2181"
        else:
            assert asked[:2] == flush if how == "refuses" else flush[:1] * 2
            assert ("b", "connect") in asked
            assert len(asked) < 20
            assert zk.server == "b:2181"
        assert zk.session_id == first


@in_virtual_time
@pytest.mark.parametrize("answers", [True, False])
async def test_servers_with_one_name_are_told_apart_by_their_addresses(answers: bool) -> None:
    server = Server()
    tried: list[str] = []

    async def open_link(make: Callable[[], Link], host: str, port: int) -> Link:
        tried.append("ab"[len(tried) % 2])
        link = await server.open_link(make, tried[-1], port)
        link.peer = (tried[-1], port)
        return link

    async with zkwire.connect("name", open_link=open_link) as zk:
        first = zk.session_id
        await server.reconnect(zk)
        del server.wires[:-1]
        assert tried == [*"aba"]  # b was prepared on the connection that was opened to it
        creating = await lose_a_write_and_a_handshake(server, zk)
        server.refused = set() if answers else {"a"}
        await until_state(zk, CONNECTED)
        assert (zk.session_id == first) == answers
        assert ("closeSession" in server.names()) != answers
        assert tried[2:7] == [*"ababa"]
        await outcome(creating)


@in_virtual_time
@pytest.mark.parametrize("how", ["unanswered", "lost"])
async def test_a_session_is_over_once_its_end_was_asked_for(how: str) -> None:
    """The leader carries that request out whenever it comes."""
    async with two_servers() as (server, zk):
        first = zk.session_id
        creating = await lose_a_write_and_a_handshake(server, zk)
        server.refused = {"a"}
        ends: list[float] = []

        def strike(wire: Wire, sent: Sent) -> bool | None:
            if sent.name != "closeSession":
                return None
            ends.append(sent.at)
            if how == "lost":
                wire.lose(None)
            return False

        server.strike = strike
        while zk.session_id == first:
            await asyncio.sleep(0.01)
        await until_state(zk, CONNECTED)
        assert len(ends) == 1
        await outcome(creating)
        server.strike = lambda wire, sent: None


@in_virtual_time
async def test_a_handshake_that_was_answered_does_no_harm_though_the_exchange_after_it_fails() -> None:
    mechanism = Slow()
    async with two_servers(sasl=mechanism) as (server, zk):
        first = zk.session_id
        server.is_silent = True
        writing = await begun(zk.create("/lost"))
        server.is_silent, server.refused, mechanism.errors = False, {"a"}, [None, AWAY]
        server.drop()
        with pytest.raises(zkwire.ConnectionLostError):
            await writing
        await server.until("sasl")
        server.refused = {"b"}
        await until_state(zk, CONNECTED)
        assert (zk.session_id, zk.server) == (first, "a:2181")


@in_virtual_time
@pytest.mark.parametrize("why", ["no write", "a proof", "refused at once"])
async def test_a_handshake_that_was_given_up_does_no_harm_by_itself(why: str) -> None:
    async with two_servers() as (server, zk):
        first = zk.session_id
        if why == "refused at once":
            writing = asyncio.ensure_future(zk.create("/lost"))
            server.strike = lambda wire, sent: False
            await turns()
            server.strike = lambda wire, sent: None
            server.refused = {"b"}
            server.is_silent = True
            server.drop()
            with pytest.raises(zkwire.ConnectionLostError):
                await writing
            while len(server.wires) < 2:
                await asyncio.sleep(0.001)
            server.drop()
            server.is_silent, server.refused = False, {"a"}
        else:
            server.is_silent = True
            asking = asyncio.ensure_future(zk.ping())
            if why == "a proof":
                zk._session.requests.submit(MultiRequest([CheckVersionRequest("/", -1)])).cancel()
            await turns()
            server.refused = {"b"}
            server.drop()
            while len(server.wires) < 2:
                await asyncio.sleep(0.01)
            server.is_silent, server.refused = False, set()
            await asking
        await until_state(zk, CONNECTED)
        assert (zk.session_id, zk.server) == (first, "b:2181")
        assert len(server.wires) == 3
