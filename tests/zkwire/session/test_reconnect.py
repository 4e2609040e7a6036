"""Lost connections of a session that lives: what is resumed, set again, repeated, or failed."""

import asyncio
import struct

import pytest

import zkwire
from tests.support.client import InOrder, states_until
from tests.support.everywhere import scene
from tests.support.proxy import Frame, Proxy
from tests.support.recipes import proxied
from tests.zkwire.session.verbs import WRITES
from zkwire import SessionState, WatchEventType
from zkwire.testing import RealServer
from zkwire.wire.requests import SetWatchesRequest

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


def handshake(frame: Frame) -> tuple[int, int]:
    """Return the last zxid and the session id of a ConnectRequest."""
    _, zxid, _, session_id = struct.unpack_from(">iqiq", frame.payload)
    return zxid, session_id


# -- resuming ------------------------------------------------------------------------------------------------------


async def test_a_kept_session_is_resumed_by_its_password_and_no_session_begins_in_its_place(
    zookeeper: RealServer, path: str
) -> None:
    first = await zkwire.connect(zookeeper.hosts)
    await first.create(path, ephemeral=True)
    session_id, password = first.session_id, first.session_password
    await first.close(keep_session=True)
    with pytest.raises(zkwire.SessionExpiredError, match=f"{session_id:#x}"):
        await zkwire.connect(zookeeper.hosts, session_id=session_id, session_password=b"x" * 16)
    async with zkwire.connect(zookeeper.hosts, session_id=session_id, session_password=password) as second:
        assert (second.session_id, second.session_password) == (session_id, password)
        stat = await second.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == session_id
    with pytest.raises(zkwire.SessionExpiredError):
        await zkwire.connect(zookeeper.hosts, session_id=session_id, session_password=password)


@pytest.mark.since("3.9", "the zxid of an event", raises=AssertionError)
async def test_no_event_advances_the_zxid_of_a_reconnect_pitfalls_33_61(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, other, zk):
        await zk.create(path)
        _, first = await zk.exists_and_watch(f"{path}-1")
        _, second = await zk.get_and_watch(path)
        seen = zk.last_zxid
        async with other.transaction() as tx:
            tx.create(f"{path}-1")
            tx.set(path, b"in the same transaction")
        event = await proxy.seen(lambda frame: frame.path == path, direction="event")
        assert event.zxid > seen  # a server before 3.9 would say -1
        assert (await first).type is WatchEventType.CREATED
        assert (await second).type is WatchEventType.CHANGED
        assert zk.last_zxid == seen
        _, third = await zk.exists_and_watch(f"{path}-3")
        assert zk.last_zxid == event.zxid
        mark = proxy.mark()
        await other.create(f"{path}-3")
        await third
        proxy.drop()
        assert handshake(await proxy.seen("connect", mark)) == (event.zxid, zk.session_id)


# -- watches -------------------------------------------------------------------------------------------------------


async def test_every_kind_of_watch_is_set_again_pitfalls_1_2_30(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, other, zk):
        await zk.create(path)
        _, exist = await zk.exists_and_watch(path)
        _, data = await zk.get_and_watch(path)
        _, child = await zk.get_children_and_watch(path)
        _, absent = await zk.exists_and_watch(f"{path}-absent")
        for _ in range(2):
            last_zxid = zk.last_zxid  # may rise with each answer: other clients of the server write, too
            mark = proxy.mark()
            proxy.drop()
            frame = await proxy.seen("setWatches", mark)
            again, _ = SetWatchesRequest.decode(frame.body, 0)
            assert (again.data, again.exist, again.child) == ([path], [f"{path}-absent"], [path])
            assert last_zxid <= again.relative_zxid <= zk.last_zxid
            await zk.ping()
            assert proxy.requests(mark) == ["connect", "setWatches"]
            assert not any(watch.done() for watch in (exist, data, child, absent))
        await other.create(f"{path}-absent")
        assert (await absent).type is WatchEventType.CREATED
        await other.set(path, b"")
        assert (await exist).type is (await data).type is WatchEventType.CHANGED
        await other.create(f"{path}/a")
        assert (await child).type is WatchEventType.CHILDREN


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_watch_survives_a_second_break_between_two_set_watches_chunks_pitfall_71(when: str) -> None:
    """The answer to the first chunk must not raise the zxid from which the second chunk is asked for again."""
    async with scene() as stage:
        zk, other = stage.zk, stage.other
        nodes = [f"/{'x' * 204}-{number:04d}" for number in range(1000)]
        await zk.create("/list")
        await asyncio.gather(*map(zk.create, nodes))
        watches = [(await each)[1] for each in [asyncio.ensure_future(zk.get_and_watch(node)) for node in nodes]]
        _, children = await zk.get_children_and_watch("/list")  # in the last chunk
        with stage.server.refuse_connections():
            stage.server.drop(zk.session_id)
            await states_until(zk.states(), SUSPENDED)
            await other.set(nodes[-1], b"changed")
            await other.create("/list/child")
            drop = stage.server.drop_before if when == "before" else stage.server.drop_after
            fault = drop("setWatches", session=zk.session_id, nth=2)
        await fault.until_hit()
        fault.end()
        async with asyncio.timeout(10):
            assert (await watches[-1]).type is WatchEventType.CHANGED
            assert (await children).type is WatchEventType.CHILDREN
        await zk.sync("/")
        assert [watch.done() for watch in watches] == [False] * 999 + [True]


# -- calls in flight -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["after", "before"])
@pytest.mark.parametrize("opcode", WRITES)
async def test_a_write_cut_off_in_flight_fails_and_is_not_sent_again_pitfall_60(
    zookeeper: RealServer, path: str, opcode: str, when: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as direct:
        await direct.create(f"{path}/child", make_parents=True)
        async with zkwire.connect(proxy.hosts) as zk:
            lost = (proxy.drop_after if when == "after" else proxy.drop_before)(opcode)
            with pytest.raises(zkwire.ConnectionLostError) as refused:
                await WRITES[opcode](zk, path)
            assert refused.value.maybe_applied
            assert lost.hits == 1
            await zk.sync(path)
            assert proxy.requests().count(opcode) == 1
        node = await direct.get(path)
        applied = (node.data, sorted(await direct.get_children(path))) != (b"", ["child"])
        assert applied == (when == "after")


# -- hosts ---------------------------------------------------------------------------------------------------------


async def test_dead_hosts_are_skipped_and_no_connection_leaks_pitfall_58(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as refusing, Proxy(zookeeper.hosts) as silent, Proxy(zookeeper.hosts) as good:
        refusal = refusing.refuse_connections()
        silent.pause()
        hosts = f"127.0.0.1:1,{refusing.hosts},{silent.hosts},{good.hosts}"
        async with zkwire.connect(hosts, 4.0, rng=InOrder()) as zk:
            assert zk.server == good.hosts
            await zk.create(path, ephemeral=True)
            good.drop()
            assert await zk.exists(path) is not None
            assert silent.connections >= 1
            assert refusal.hits >= 1
            assert good.open == 1
            silent.resume()
            await silent.until(lambda: silent.open == 0)


async def test_removing_a_watch_that_has_just_fired_is_harmless_pitfall_38(zookeeper: RealServer, path: str) -> None:
    """The watch fires while the request to remove it is on its way."""
    async with proxied(zookeeper) as (proxy, other, zk):
        _, watch = await zk.exists_and_watch(path)
        hold = proxy.hold_replies()
        await other.create(path)
        await proxy.seen("NodeCreated", direction="event")
        watch.cancel()
        removed = await proxy.seen("removeWatches", direction="reply")
        assert removed.err == -121
        hold.release()
        await zk.ping()
        assert proxy.connections == 1
        assert watch.done()
