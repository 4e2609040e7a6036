"""A real leader carries out writes of a former connection, once the handshake that the client gave up comes after them.

Leader.revalidateSession makes the server of that handshake the owner of the session again, also if another one has it.
"""

import asyncio

import zkwire
from tests.support.client import InOrder, states_until
from tests.support.proxy import Proxy
from tests.support.split import SplitEnsemble
from zkwire import SessionState

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


async def test_a_write_that_a_look_has_not_shown_is_never_carried_out_pitfall_92() -> None:
    async with SplitEnsemble(tick_time=0.5, sync_limit=60, properties={"initLimit": "40"}) as ensemble:
        leader, follower = await ensemble.leader(), await ensemble.follower()
        async with (
            Proxy(follower.hosts) as slow,
            Proxy(leader.hosts) as other,
            zkwire.connect(f"{slow.hosts},{other.hosts}", 4.0, rng=InOrder()) as zk,
            zkwire.connect(follower.hosts, 30.0) as bystander,
        ):
            states = zk.states()
            ensemble.stall([follower], [leader])
            mark = slow.mark()
            writes = [asyncio.create_task(zk.create(f"/late-{number}")) for number in range(5)]
            await slow.until(lambda: slow.requests(mark).count("create") == 5)
            with other.refuse_connections():
                slow.drop()
                await asyncio.wait(writes)
                assert {type(write.exception()) for write in writes} == {zkwire.ConnectionLostError}
                await slow.until(lambda: "connect" in slow.requests(mark))
            assert await states_until(states, SessionState.EXPIRED) == [CONNECTED, SUSPENDED, EXPIRED]
            assert await states_until(states, CONNECTED) == [CONNECTING, CONNECTED]
            await zk.sync("/")
            shown = await zk.get_children("/")
            ensemble.heal()
            await bystander.sync("/")  # it comes through the follower, after the writes and the handshake
            assert await bystander.get_children("/") == shown == ["zookeeper"]


async def test_a_write_that_waits_at_the_former_server_is_not_carried_out_when_the_client_is_back_there() -> None:
    async with SplitEnsemble(tick_time=0.5, sync_limit=60, properties={"initLimit": "40"}) as ensemble:
        leader, follower = await ensemble.leader(), await ensemble.follower()
        async with (
            Proxy(follower.hosts) as former,
            Proxy(leader.hosts) as other,
            zkwire.connect(f"{former.hosts},{other.hosts}", 10.0, rng=InOrder()) as zk,
        ):
            first, states = zk.session_id, zk.states()
            ensemble.stall([follower], [leader])
            mark = former.mark()
            writes = [asyncio.create_task(zk.create(f"/late-{number}")) for number in range(5)]
            await former.until(lambda: former.requests(mark).count("create") == 5)
            former.drop()
            await asyncio.wait(writes)
            assert {type(write.exception()) for write in writes} == {zkwire.ConnectionLostError}
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            await zk.sync("/")
            assert zk.server == other.hosts
            shown = await zk.get_children("/")
            mark = former.mark()
            with other.refuse_connections():
                other.drop()
                await former.until(lambda: "connect" in former.requests(mark))
                ensemble.heal()
                await zk.sync("/")
            assert (zk.server, zk.session_id) == (former.hosts, first)
            assert await zk.get_children("/") == shown == ["zookeeper"]
