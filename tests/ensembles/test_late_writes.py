"""Servers that lag: a client never falls behind what it has seen, and a write that it gave up is never carried out.

A real leader carries out writes of a former connection, once the handshake that the client gave up comes after them:
Leader.revalidateSession makes the server of that handshake the owner of the session again, also if another one has it.
"""

import asyncio

import pytest

import zkwire
from tests.support.client import InOrder, states_until
from tests.support.proxy import Proxy
from tests.support.split import SplitEnsemble
from zkwire import SessionState

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


@pytest.mark.limit(240)
async def test_no_server_that_lags_shows_the_past_or_carries_out_what_is_given_up(path: str) -> None:
    """Pitfalls 61 and 92; each play leaves the ensemble whole, and begins with all of its servers in step."""
    async with SplitEnsemble(tick_time=0.5, sync_limit=60, properties={"initLimit": "40"}) as ensemble:
        plays = (
            a_server_that_is_behind_is_not_used_and_a_sync_waits_for_it,
            a_write_that_a_look_has_not_shown_is_never_carried_out,
            a_write_that_waits_at_the_former_server_is_not_carried_out_when_the_client_is_back_there,
        )
        for number, play in enumerate(plays):
            await play(ensemble, f"{path}-{number}")
            await ensemble.settled()


async def a_server_that_is_behind_is_not_used_and_a_sync_waits_for_it(ensemble: SplitEnsemble, path: str) -> None:
    """Pitfall 61: a client that has seen a write is not served by a server that has not seen it."""
    leader, late = await ensemble.leader(), await ensemble.follower()
    async with (
        Proxy(leader.hosts) as proxy,
        zkwire.connect(f"{proxy.hosts},{late.hosts}", rng=InOrder()) as ahead,
        zkwire.connect(late.hosts) as reader,
    ):
        await ahead.create(path, b"old")
        await reader.sync(path)
        assert (await reader.get(path)).data == b"old"

        ensemble.stall([leader], [late])
        await ahead.set(path, b"new")
        assert (await reader.get(path)).data == b"old"
        synced = asyncio.gather(reader.sync(path), reader.get(path))

        states = ahead.states()
        await states_until(states, CONNECTED)
        proxy.drop()
        assert await states_until(states, CONNECTED) == [SUSPENDED, CONNECTED]
        states.close()
        assert ahead.server == proxy.hosts
        assert (await ahead.get(path)).data == b"new"
        assert "client must try another server" in late.log_tail(1000)

        assert not synced.done()
        ensemble.heal()
        _, node = await synced
        assert node.data == b"new"


async def a_write_that_a_look_has_not_shown_is_never_carried_out(ensemble: SplitEnsemble, path: str) -> None:
    """Pitfall 92."""
    leader, follower = await ensemble.leader(), await ensemble.follower()
    async with (
        Proxy(follower.hosts) as slow,
        Proxy(leader.hosts) as other,
        zkwire.connect(f"{slow.hosts},{other.hosts}", 4.0, rng=InOrder()) as zk,
        zkwire.connect(follower.hosts, 30.0) as bystander,
    ):
        states = zk.states()
        await bystander.create(path)
        ensemble.stall([follower], [leader])
        mark = slow.mark()
        writes = [asyncio.create_task(zk.create(f"{path}/late-{number}")) for number in range(5)]
        await slow.until(lambda: slow.requests(mark).count("create") == 5)
        with other.refuse_connections():
            slow.drop()
            await asyncio.wait(writes)
            assert {type(write.exception()) for write in writes} == {zkwire.ConnectionLostError}
            await slow.until(lambda: "connect" in slow.requests(mark))
        assert await states_until(states, SessionState.EXPIRED) == [CONNECTED, SUSPENDED, EXPIRED]
        assert await states_until(states, CONNECTED) == [CONNECTING, CONNECTED]
        await zk.sync("/")
        shown = await zk.get_children(path)
        ensemble.heal()
        await bystander.sync("/")  # it comes through the follower, after the writes and the handshake
        assert await bystander.get_children(path) == shown == []


async def a_write_that_waits_at_the_former_server_is_not_carried_out_when_the_client_is_back_there(
    ensemble: SplitEnsemble, path: str
) -> None:
    leader, follower = await ensemble.leader(), await ensemble.follower()
    async with (
        Proxy(follower.hosts) as former,
        Proxy(leader.hosts) as other,
        zkwire.connect(f"{former.hosts},{other.hosts}", 10.0, rng=InOrder()) as zk,
    ):
        first, states = zk.session_id, zk.states()
        await zk.create(path)
        ensemble.stall([follower], [leader])
        mark = former.mark()
        writes = [asyncio.create_task(zk.create(f"{path}/late-{number}")) for number in range(5)]
        await former.until(lambda: former.requests(mark).count("create") == 5)
        former.drop()
        await asyncio.wait(writes)
        assert {type(write.exception()) for write in writes} == {zkwire.ConnectionLostError}
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        await zk.sync("/")
        assert zk.server == other.hosts
        shown = await zk.get_children(path)
        mark = former.mark()
        with other.refuse_connections():
            other.drop()
            await former.until(lambda: "connect" in former.requests(mark))
            ensemble.heal()
            await zk.sync("/")
        assert (zk.server, zk.session_id) == (former.hosts, first)
        assert await zk.get_children(path) == shown == []
