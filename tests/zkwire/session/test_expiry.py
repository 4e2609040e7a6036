"""Sessions that end without being closed: by the server, by the client's own clock, by a server that lost its data."""

import asyncio
import struct

import pytest

import zkwire
from tests.support.client import states_until, turns
from tests.support.everywhere import scene
from tests.support.recipes import until_state
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time
from tests.zkwire.session.test_xids import OneToken
from tests.zkwire.session.verbs import every_call
from zkwire import SessionState
from zkwire.testing.memory import machine as memory

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


@in_virtual_time
@pytest.mark.parametrize("renew", [True, False])
async def test_the_end_of_a_session_fails_every_call_and_watch_and_then_a_new_one_may_begin(renew: bool) -> None:
    async with a_client(renew=renew) as (server, zk):
        await zk.create("/e", ephemeral=True)
        old, states = zk.session_id, zk.states()
        watches = [(await zk.exists_and_watch("/e"))[1], (await zk.get_children_and_watch("/"))[1]]
        with zkwire.WatchSet() as group:
            await zk.get_and_watch("/e", into=group)
            in_set = asyncio.ensure_future(group.next())
            server.refused = {"a", "b"}
            server.drop()
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            server.machine.expire(old)
            calls = every_call(zk, "/x")
            removed = zk.discard("/e")
            await turns()
            server.refused = set()
            outcomes = await asyncio.gather(*calls, in_set, *watches, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [zkwire.SessionExpiredError] * len(outcomes)
            assert (f"{old:#x}" in str(outcomes[0]), zk.least_timeout) == (True, None if renew else 10.0)
            await removed
        if renew:
            assert await states_until(states, CONNECTED) == [EXPIRED, CONNECTING, CONNECTED]
            assert zk.session_id not in (0, old)
            assert await zk.exists("/e") is None
            assert await zk.exists("/x") is None
            _, watch = await zk.exists_and_watch("/e")
            await zk.create("/e", ephemeral=True)
            await watch
        else:
            for call in every_call(zk, "/x"):
                with pytest.raises(zkwire.SessionExpiredError):
                    await call
            await zk.discard("/x")
            assert server.names()[-1] == "connect"
            assert (zk.state, zk.certain_until) == (EXPIRED, float("-inf"))
            await zk.close()
            assert [state async for state in states] == [EXPIRED, CLOSED]
            with pytest.raises(zkwire.SessionClosedError):
                await zk.ping()


# -- servers that do not make or know a session, in virtual time ------------------------------------------------------

ANSWERS = {
    "read-only": struct.pack(">iiqi", 16, 0, 0, -119),  # of a server without a quorum
    "garbage": b"\x00\x00\x00\x05nonsense",
}


def answering(server: Server, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server send `answer` in place of each handshake from now on; its times are in `server.requests`."""

    def received(wire: Wire, frame: bytes) -> None:
        server.requests.append(Sent(server.loop.time(), wire.host, "connect", None))
        wire.send(ANSWERS[answer])

    monkeypatch.setattr(server, "received", received)
    server.drop()


@in_virtual_time
@pytest.mark.parametrize("answer", ["read-only", "garbage"])
@pytest.mark.parametrize(("is_resumable", "sasl"), [(True, None), (False, None), (False, OneToken())])
async def test_a_server_that_does_not_accept_the_session_does_not_prove_it_alive_pitfall_63(
    answer: str, is_resumable: bool, sasl: zkwire.SaslMechanism | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read-only server of a partition answers, but only the ensemble keeps the session."""
    async with a_client(timeout=9.0, sasl=sasl) as (server, zk):
        zk._session.key.is_resumable = is_resumable
        answering(server, answer, monkeypatch)
        assert (await states_until(zk.states(), EXPIRED))[-1] is EXPIRED
        assert server.loop.time() == pytest.approx(12.0, abs=0.05)


@in_virtual_time
async def test_a_session_of_a_server_without_a_quorum_lives_as_long_as_that_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    monkeypatch.setattr(Wire, "send", lambda wire, data, send=Wire.send: send(wire, data[:-1] + b"\1"))
    async with zkwire.connect("a", 9.0, read_only=True, open_link=server.open_link) as zk:
        monkeypatch.undo()
        assert zk.state is READ_ONLY
        await asyncio.sleep(20.0)
        server.refused = {"a"}
        server.drop()
        await until_state(zk, CONNECTING)
        assert 9.0 < server.loop.time() - 20.0 <= 12.01


@in_virtual_time
async def test_resuming_a_session_without_a_server_fails_as_expired() -> None:
    server = Server()
    server.refused = {"a"}
    with pytest.raises(zkwire.SessionExpiredError):
        await zkwire.connect("a", 0.5, session_id=5, session_password=bytes(16), open_link=server.open_link)


@in_virtual_time
async def test_a_half_open_link_is_dropped_and_the_next_one_is_judged_anew_pitfall_51() -> None:
    async with a_client(timeout=9.0) as (server, zk):
        states, old = zk.states(), zk.session_id
        server.is_silent = True
        asking = asyncio.create_task(zk.get("/"))
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        server.go_on()
        await asking
        assert await states_until(states, CONNECTED) == [CONNECTED]
        server.names()
        await server.until("sync", 3)  # sent and answered: the new link does not count as dead
        assert server.names()[:4] == ["multi", "sync", "sync", "sync"]
        assert (zk.state, zk.session_id) == (CONNECTED, old)


@in_virtual_time
async def test_a_server_that_lost_its_data_gives_a_new_session_pitfall_53() -> None:
    """The server has seen less than the client, and closes its connections, until the client gives up the session."""
    async with a_client() as (server, zk):
        await zk.create("/a")
        states = zk.states()
        server.drop()
        server.machine = memory.Machine(memory.Settings(), now=server.loop.time())
        assert await states_until(states, EXPIRED) == [CONNECTED, SUSPENDED, EXPIRED]
        assert await states_until(states, CONNECTED) == [CONNECTING, CONNECTED]
        assert await zk.exists("/a") is None


# -- transactions that belong to one session -----------------------------------------------------------------------


async def test_a_transaction_of_one_session_is_not_carried_out_in_the_next() -> None:
    async with scene() as stage:
        first = stage.zk.session_id
        early, late = (stage.zk.transaction(session_id=first) for _ in range(2))
        early.create("/early")
        late.create("/late")
        await early.commit()
        stage.server.expire(first)
        await until_state(stage.zk, EXPIRED)
        await stage.zk.ping()
        assert stage.zk.session_id != first
        with pytest.raises(zkwire.SessionExpiredError, match=f"{first:#x}"):
            await late.commit()
        async with stage.zk.transaction(session_id=stage.zk.session_id) as transaction:
            transaction.create("/later")
        assert sorted(await stage.other.get_children("/")) == ["early", "later", "zookeeper"]


# -- certainty -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_pings_alone_prove_nothing_and_requests_through_the_leader_do() -> None:
    """Pitfall 70: a server that is cut off from its leader answers pings as well."""
    async with a_client(locks=False) as (server, zk):
        proven = zk.certain_until
        assert proven == pytest.approx(server.loop.time() + 10.0, abs=0.01)
        await asyncio.sleep(9.0)
        assert server.names() == ["ping"] * 3
        assert zk.certain_until == proven
        zk.need_certainty()
        await asyncio.sleep(1.0)  # there were touches, which two syncs and a write prove
        left = []
        for _ in range(300):
            await asyncio.sleep(0.1)
            left.append(zk.certain_for(zk.session_id))
        assert 3.99 < min(left) <= max(left) <= 10.0
        assert set(server.names("getData")) == {"sync", "multi"}  # and which servers there are
