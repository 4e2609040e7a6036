"""Sessions that end without being closed: by the server, by the client's own clock, by a server that lost its data."""

import asyncio

import pytest

import zkwire
from tests.support.client import InOrder, states_until
from tests.support.everywhere import scene
from tests.support.proxy import Proxy
from tests.support.recipes import until_state
from tests.support.rogue import Peer, Rogue, read_only_refusal, refused_session
from tests.zkwire.session.verbs import every_call
from zkwire import Client, SessionState
from zkwire.testing import RealServer

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


async def end_session(server: RealServer, zk: Client) -> None:
    """Have the server end the session of `zk` now: another client resumes and closes it."""
    thief = await zkwire.connect(server.hosts, session_id=zk.session_id, session_password=zk.session_password)
    await thief.close()


async def test_the_end_of_a_session_fails_every_call_and_watch_and_then_a_new_one_begins(
    zookeeper: RealServer, path: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path, ephemeral=True)
        old = zk.session_id
        states = zk.states()
        watches = [(await zk.exists_and_watch(path))[1], (await zk.get_children_and_watch("/"))[1]]
        with zkwire.WatchSet() as group:
            await zk.get_and_watch(path, into=group)
            in_set = asyncio.create_task(group.next())
            refusal = proxy.refuse_connections()
            proxy.drop()
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            await end_session(zookeeper, zk)
            calls = every_call(zk, f"{path}-x")
            removal = zk.discard(path)
            await asyncio.wait({in_set}, timeout=0)
            refusal.end()
            outcomes = await asyncio.gather(*calls, in_set, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [zkwire.SessionExpiredError] * len(outcomes)
            assert f"{old:#x}" in str(outcomes[0])
            await removal
        for watch in watches:
            with pytest.raises(zkwire.SessionExpiredError):
                await watch
        assert await states_until(states, CONNECTED) == [EXPIRED, CONNECTING, CONNECTED]
        assert zk.session_id not in (0, old)
        assert await zk.exists(path) is None
        assert await zk.exists(f"{path}-x") is None
        await zk.create(path, ephemeral=True)
        _, watch = await zk.get_and_watch(path)
        await zk.set(path, b"")
        await watch


async def test_a_session_that_is_not_renewed_stays_expired_and_every_call_says_so_at_once(
    zookeeper: RealServer, path: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, renew=False) as zk:
        _, watch = await zk.exists_and_watch(path)
        states = zk.states()
        await end_session(zookeeper, zk)
        assert await states_until(states, EXPIRED) == [CONNECTED, SUSPENDED, EXPIRED]
        connections = proxy.connections
        with pytest.raises(zkwire.SessionExpiredError):
            await watch
        for call in every_call(zk, path):
            with pytest.raises(zkwire.SessionExpiredError):
                await call
        with pytest.raises(zkwire.SessionExpiredError):
            _ = await zk.exists_and_watch(path)
        await zk.discard(path)
        assert zk.state is EXPIRED
        assert proxy.connections == connections
        assert zk.certain_until == float("-inf")
        await zk.close()
        assert [state async for state in states] == [CLOSED]
        with pytest.raises(zkwire.SessionClosedError):
            await zk.ping()


async def test_the_server_expires_a_silent_session(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts, 3.0) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await zk.create(path, ephemeral=True)
        states, old = zk.states(), zk.session_id
        _, gone = await other.exists_and_watch(path)
        refusal = proxy.refuse_connections()
        proxy.drop()
        await gone
        refusal.end()
        assert await states_until(states, EXPIRED) == [CONNECTED, SUSPENDED, EXPIRED]
        assert await states_until(states, CONNECTED) == [CONNECTING, CONNECTED]
        assert zk.session_id != old


async def test_a_client_cut_off_from_all_servers_expires_its_session_itself_pitfall_63(
    zookeeper: RealServer, path: str
) -> None:
    loop = asyncio.get_running_loop()
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 1.0) as zk:
        _, watch = await zk.exists_and_watch(path)
        states = zk.states()
        refusal = proxy.refuse_connections()
        proxy.drop()
        await states_until(zk.states(), SUSPENDED)
        waiting = asyncio.create_task(zk.set(path, b""))
        with pytest.raises(zkwire.SessionExpiredError):
            await watch
        with pytest.raises(zkwire.SessionExpiredError, match="no server has answered"):
            await waiting
        assert await states_until(states, CONNECTING) == [CONNECTED, SUSPENDED, EXPIRED, CONNECTING]
        assert zk.session_id == 0
        assert zk.certain_until < loop.time()
        refusal.end()
        assert await states_until(states, CONNECTED) == [CONNECTED]


@pytest.mark.parametrize("refusal", ["read-only", "garbage"])
async def test_a_server_that_does_not_accept_the_session_does_not_prove_it_alive_pitfall_63(refusal: str) -> None:
    """The read-only server of a partition answers, but only the ensemble keeps the session."""

    async def once(peer: Peer) -> None:
        await peer.handshake()

    async def nonsense(peer: Peer) -> None:
        await peer.connect_request()
        await peer.send(b"\x00\x00\x00\x05nonsense")

    async with (
        Rogue(once, read_only_refusal if refusal == "read-only" else nonsense) as rogue,
        zkwire.connect(rogue.hosts, 1.0) as zk,
    ):
        assert (await states_until(zk.states(), EXPIRED))[-1] is EXPIRED


async def test_a_server_that_lost_its_data_gives_a_new_session_pitfall_53(path: str) -> None:
    """The server has seen less than the client, and closes its connections, until the client gives up the session."""
    async with (
        RealServer() as before,
        RealServer() as after,
        Proxy(before.hosts) as proxy,
        zkwire.connect(proxy.hosts, 1.0) as zk,
    ):
        await zk.create(path)
        for _ in range(5):
            await zk.set(path, b"")
        states, old = zk.states(), zk.session_id
        proxy.upstream = after.hosts
        proxy.drop()
        assert await states_until(states, EXPIRED) == [CONNECTED, SUSPENDED, EXPIRED]
        assert await states_until(states, CONNECTED) == [CONNECTING, CONNECTED]
        assert zk.session_id != old
        assert await zk.exists(path) is None
        await zk.create(path)


async def test_resuming_a_session_without_a_server_fails_as_expired() -> None:
    with pytest.raises(zkwire.SessionExpiredError):
        await zkwire.connect("127.0.0.1:1", 0.5, session_id=5, session_password=bytes(16))


async def test_a_server_that_refuses_to_make_a_session_is_skipped(
    zookeeper: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal does not mean that a session has expired: there is none yet."""
    async with (
        Rogue(refused_session) as rogue,
        zkwire.connect(f"{rogue.hosts},{zookeeper.hosts}", rng=InOrder()) as zk,
    ):
        assert zk.server == zookeeper.hosts
        assert zk.state is CONNECTED
    assert "ProtocolError" in caplog.text


async def test_the_pauses_grow_when_every_session_is_refused() -> None:
    async def once(peer: Peer) -> None:
        await peer.handshake()

    loop = asyncio.get_running_loop()
    async with Rogue(once, refused_session) as rogue, zkwire.connect(rogue.hosts, 4.0) as zk:
        start = loop.time()
        assert (await states_until(zk.states(), EXPIRED))[-1] is EXPIRED
        await rogue.connected(7)
        # the pauses before the last five attempts: at least 25 ms, and then longer each time
        assert loop.time() - start > 0.25
        assert zk.state is CONNECTING


async def test_a_second_frame_after_a_refusal_is_harmless(zookeeper: RealServer) -> None:
    async def refused_twice(peer: Peer) -> None:
        await peer.connect_request()
        refusal = bytes(16) + (16).to_bytes(4, "big") + bytes(17)
        await peer.send((len(refusal).to_bytes(4, "big") + refusal) * 2)

    async with (
        Rogue(refused_twice) as rogue,
        zkwire.connect(f"{rogue.hosts},{zookeeper.hosts}", rng=InOrder()) as zk,
    ):
        assert zk.server == zookeeper.hosts


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


async def test_a_transaction_that_waits_for_a_connection_ends_with_its_session() -> None:
    async with scene() as stage:
        with stage.server.refuse_connections() as refusing:
            stage.server.drop(stage.zk.session_id)
            await until_state(stage.zk, SUSPENDED)
            transaction = stage.zk.transaction(session_id=stage.zk.session_id)
            transaction.create("/late")
            committing = asyncio.ensure_future(transaction.commit())
            await asyncio.sleep(0)
            stage.server.expire(stage.zk.session_id)
            refusing.end()
        with pytest.raises(zkwire.SessionExpiredError):
            await committing
        await stage.zk.ping()
        assert await stage.other.exists("/late") is None


# -- certainty -----------------------------------------------------------------------------------------------------


async def test_pings_alone_prove_nothing_and_requests_through_the_leader_do(zookeeper: RealServer) -> None:
    """Pitfall 70: a server that is cut off from its leader answers pings as well."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 1.0) as zk:
        loop = asyncio.get_running_loop()
        proven = zk.certain_until
        assert proven <= loop.time() + 1.0
        mark = proxy.mark()
        for _ in range(3):
            await proxy.seen("ping", proxy.mark(), direction="reply")
        assert "sync" not in proxy.requests(mark)
        assert zk.certain_until == proven
        zk.need_certainty()
        certain = []
        for _ in range(12):
            mark = proxy.mark()
            await proxy.seen("sync", mark, direction="reply")
            await proxy.seen("sync", proxy.mark())  # the next one leaves: the answer before it has arrived
            certain.append(zk.certain_until)
        assert certain == sorted(certain)
        assert all(one > proven for one in certain[4:])
        assert loop.time() < zk.certain_until <= loop.time() + 0.5
        zk.release_certainty()
        mark = proxy.mark()
        for _ in range(2):
            await proxy.seen("ping", proxy.mark(), direction="reply")
        assert proxy.requests(mark).count("sync") <= 1  # the one that was due


async def test_a_resumed_session_is_proven_by_a_write_that_changes_nothing(zookeeper: RealServer) -> None:
    """The server may belong to a leader without followers: only a committed write shows that it does not."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 4.0) as zk:
        zk.need_certainty()
        mark, before = proxy.mark(), zk.last_zxid
        proven = zk.certain_until
        proxy.drop()
        await proxy.seen("multi", mark, direction="reply")
        await zk.ping()
        assert proven < zk.certain_until <= asyncio.get_running_loop().time() + 4.0
        assert proxy.requests(mark, ignore_pings=True)[:2] == ["connect", "multi"]
        assert zk.last_zxid > before


async def test_certainty_counts_from_the_sending(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 2.0) as zk:
        loop = asyncio.get_running_loop()
        zk.need_certainty()
        await eventually_certain_by_proofs(zk)
        hold = proxy.hold_replies()
        mark = proxy.mark()
        asked = loop.time()
        transaction = zk.transaction()
        transaction.check("/")
        asking = asyncio.create_task(transaction.commit())
        before = zk.certain_until
        await proxy.seen("multi", mark)
        await asyncio.sleep(0.3)  # a slow answer
        assert zk.certain_until == before  # replies that are held prove nothing
        hold.release()
        await asking
        await zk.sync("/")  # closes the chain that began with the transaction, or with a proof 0.2 s later
        # The touch was sent half a tick before that, at least, and half a tick is 0.5 s here.
        assert before < zk.certain_until <= asked + 0.25 + 2.0 - 0.5
        assert zk.certain_until >= asked + 1.0


async def eventually_certain_by_proofs(zk: zkwire.Client) -> None:
    """Wait until what the handshake has proven is used up."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(10):
        while zk.certain_until - loop.time() > 0.65 * zk.session_timeout:
            await zk.ping()
            await asyncio.sleep(0.01)


async def test_certainty_ends_when_the_network_falls_silent_and_is_minus_infinity_after_expiry(
    zookeeper: RealServer,
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 1.0) as zk:
        states = zk.states()
        await zk.ping()
        proxy.pause()
        certain = zk.certain_until
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        assert zk.certain_until == certain
        assert await states_until(states, EXPIRED) == [EXPIRED]
        assert zk.certain_until == float("-inf")
        assert certain < asyncio.get_running_loop().time()
        proxy.resume()
        assert await states_until(states, CONNECTED) == [CONNECTING, CONNECTED]
        assert zk.certain_until > asyncio.get_running_loop().time()


# -- dead links ----------------------------------------------------------------------------------------------------


async def test_a_half_open_link_is_dropped_and_the_next_one_is_judged_anew_pitfall_51(
    zookeeper: RealServer, path: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 2.0) as zk:
        await zk.create(path, ephemeral=True)
        states, old = zk.states(), zk.session_id
        proxy.pause()
        asking = asyncio.create_task(zk.get(path))
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        proxy.resume()
        assert (await asking).stat.ephemeral_owner == old
        assert await states_until(states, CONNECTED) == [CONNECTED]
        connections, mark = proxy.connections, proxy.mark()
        for _ in range(3):  # pings are sent and answered: the new link does not count as dead
            await proxy.seen("ping", mark, direction="reply")
            mark = proxy.mark()
        assert (proxy.connections, zk.state, zk.session_id) == (connections, CONNECTED, old)


async def test_pings_are_sent_to_a_server_that_sends_events_all_the_time_pitfall_52(
    zookeeper: RealServer, path: str
) -> None:
    """Events arrive all the time, and the client sends no requests."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts, 1.0) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        nodes = [f"{path}-{number}" for number in range(400)]
        watches = [watch for _, watch in await asyncio.gather(*map(zk.exists_and_watch, nodes))]
        mark, count = proxy.mark(), 0
        for node, watch in zip(nodes, watches, strict=True):
            await other.create(node)
            await watch
            count += 1
            if "ping" in proxy.requests(mark, ignore_pings=False):
                if count > 5:
                    break
                mark, count = proxy.mark(), 0  # the machine was busy: a ping after a pause proves nothing
            await asyncio.sleep(0.005)  # the pace of the events
        else:
            pytest.fail(f"no ping during {count} events")


async def test_requests_larger_than_the_sockets_buffers_do_not_deadlock(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 4.0) as zk:
        await zk.create(path)
        proxy.pause()
        sets = [asyncio.create_task(zk.set(path, bytes([number]) * 900_000)) for number in range(20)]
        gets = [asyncio.create_task(zk.get(path)) for _ in range(20)]
        await asyncio.wait(sets, timeout=0.1)
        assert not any(task.done() for task in sets)
        proxy.resume()
        assert [stat.version for stat in await asyncio.gather(*sets)] == list(range(1, 21))
        assert {node.stat.version for node in await asyncio.gather(*gets)} == {20}
        assert proxy.connections == 1


async def test_large_requests_into_a_dead_link_fail_with_it(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, 2.0) as zk:
        await zk.create(path)
        proxy.pause()
        sets = [asyncio.create_task(zk.set(path, bytes(900_000))) for _ in range(20)]
        await states_until(zk.states(), SUSPENDED)
        proxy.resume()
        outcomes = await asyncio.gather(*sets, return_exceptions=True)
        lost = [isinstance(outcome, zkwire.ConnectionLostError) for outcome in outcomes]
        # 4 MiB were written, and the other requests waited for the next connection.
        assert lost == [True] * 4 + [False] * 16
        assert all(isinstance(outcome, zkwire.Stat) for outcome in outcomes[4:])
