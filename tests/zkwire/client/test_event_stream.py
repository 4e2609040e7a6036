"""Streams of events under faults: watches are set again, gaps give a Resync, and nothing stays."""

import asyncio
import contextlib

import pytest

import zkwire
from tests.conformance.test_streams import following, plain, stream, taken
from tests.support.client import cancelled, eventually, states_until, turns, watched
from tests.support.everywhere import Play, Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import expire
from tests.support.rogue import CLOSE_SESSION, PING, UNIMPLEMENTED, Peer, Rogue
from zkwire import Resync, SessionState, WatchEventType
from zkwire.testing import RealServer, Server

CREATED, DELETED, CHANGED, CHILDREN = WatchEventType
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
KINDS = ["persistent", "recursive"]
SERVER_LIMIT = 1_048_575
ADD_WATCH, REMOVE_WATCHES, EXISTS = 106, 18, 3
NO_NODE, MARSHALLING = -101, -5


async def unwatched(server: RealServer, path: str) -> None:
    async def is_so() -> bool:
        return not await watched(server, path)

    await eventually(is_so)


# Reconnects


@pytest.mark.parametrize(("kind", "reset"), [("persistent", False), ("recursive", True)])
async def test_a_reconnect_gives_one_resync_pitfalls_31_37_39(
    zookeeper: RealServer, path: str, kind: str, reset: bool
) -> None:
    """While the connection is lost the stream gives nothing; `zk.states()` shows the loss."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
        stream(zk, kind, path) as events,
    ):
        states = zk.states()
        await other.create(path)
        assert plain([await following(events)], path) == [(CREATED, "")]
        refusal = proxy.refuse_connections()
        proxy.drop(reset=reset)
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        await other.set(path, b"lost")  # servers keep no events of persistent watches for a client that is away
        task = asyncio.ensure_future(anext(events))
        await turns()
        assert not task.done()
        refusal.end()
        assert await task == Resync()
        assert (await zk.get(path)).data == b"lost"
        assert await taken(events) == []
        await other.delete(path)
        assert plain([await following(events)], path) == [(DELETED, "")]


async def test_several_reconnects_without_an_event_between_give_one_resync(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
        zk.events(path) as events,
    ):
        await zk.create(path)
        for count in (2, 3, 4):
            proxy.drop()
            await proxy.connected(count)
            await zk.sync(path)
        await other.set(path, b"")
        await zk.sync(path)
        first, resync, last = await taken(events)
        assert plain([first, last]) == [(CREATED, path), (CHANGED, path)]
        assert resync == Resync()


# Faults at every request and at every turn of the event loop


def follow_a_creation(kind: str) -> Play:
    """Return a play that enters a stream, gets one event and leaves."""

    async def play(stage: Scene) -> None:
        async with stream(stage.zk, kind, stage.path) as events:
            await stage.other.create(stage.path)
            while (event := await anext(events)) == Resync():
                pass
            assert plain([event], stage.path) == [(CREATED, "")]
        await stage.other.delete_tree(stage.path)

    return play


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_is_cut_at_every_request_and_set_again(kind: str) -> None:
    await cut_at_every_step(follow_a_creation(kind))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_is_cancelled_at_every_turn_and_leaves_no_watch(kind: str) -> None:
    async def again(stage: Scene) -> None:
        with contextlib.suppress(zkwire.NoNodeError):
            await stage.other.delete_tree(stage.path)
        await follow_a_creation(kind)(stage)

    await cancel_at_every_moment(follow_a_creation(kind), afterwards=again)


# Leaving


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["the end", "an error", "cancelled outside of the wait", "cancelled in the wait"])
async def test_leaving_a_stream_removes_the_watch_from_the_server(
    zookeeper: RealServer, path: str, kind: str, way: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        entered = asyncio.Event()

        async def follow() -> None:
            async with stream(zk, kind, path) as events:
                entered.set()
                if way == "the end":
                    return
                if way == "an error":
                    raise LookupError
                if way == "cancelled in the wait":
                    await anext(events)
                await asyncio.Event().wait()

        for _ in range(2):
            entered.clear()
            task = asyncio.create_task(follow())
            if "cancelled" in way:
                await entered.wait()
                assert await watched(zookeeper, path)
                await turns()
                await cancelled(task)
            else:
                await asyncio.wait({task})
                assert (task.exception() is None) == (way == "the end")
            await unwatched(zookeeper, path)
        await zk.sync(path)
        removed = [f for f in proxy.log if (f.direction, f.opcode) == ("reply", "removeWatches")]
        assert [frame.err for frame in removed] == [0, 0]
        await zk.create(path)
        await zk.sync(path)
        assert proxy.events() == []
        assert proxy.connections == 1


# The end of the session


async def test_a_stream_left_while_another_task_sets_it_in_a_new_session_is_not_set_again() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        states = zk.states()
        async with zk.events("/") as events:
            waiting = asyncio.ensure_future(anext(events))
            await turns()
            held = server.hold_replies("addWatch")
            server.expire(zk.session_id)
            await held.until_hit()
        session_id = zk.session_id
        server.expire(session_id)
        server.drop(session_id)
        for _ in range(2):
            await states_until(states, EXPIRED)
        held.end()
        with pytest.raises(StopAsyncIteration):
            await waiting
        await no_watch_stays(server.hosts)


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_stream_ends_with_a_session_that_no_other_follows(is_waiting: bool) -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as zk, zk.events("/a") as events:
        waiting = asyncio.ensure_future(anext(events)) if is_waiting else None
        await turns()
        stage.server.expire(zk.session_id)
        for _ in range(2):
            with pytest.raises(zkwire.SessionExpiredError):
                await (waiting or following(events))
            waiting = None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_is_refused_in_a_new_session_can_be_iterated_again(kind: str) -> None:
    async with scene() as stage, stream(stage.zk, kind, "/a") as events:
        with stage.server.answering("addWatch", zkwire.ThrottledError) as refused:
            stage.server.expire(stage.zk.session_id)
            for _ in range(2):
                with pytest.raises(zkwire.ThrottledError):
                    await anext(events)
            assert refused.hits == 2
        assert await anext(events) == Resync()
        await stage.other.create("/a")
        assert plain([await following(events)]) == [(CREATED, "/a")]


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_goes_on_in_the_next_session_with_a_resync(
    zookeeper: RealServer, path: str, kind: str, is_waiting: bool
) -> None:
    async with (
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
        stream(zk, kind, path) as events,
    ):
        states, old = zk.states(), zk.session_id
        await other.create(path)
        await zk.sync(path)
        if is_waiting:
            assert plain(await taken(events), path) == [(CREATED, "")]
        task = asyncio.ensure_future(anext(events)) if is_waiting else None
        await expire(zookeeper, zk)
        await states_until(states, EXPIRED)
        await states_until(states, CONNECTED)
        assert zk.session_id != old
        await other.set(path, b"missed, unless a task waits")
        if task is None:
            assert plain([await anext(events)], path) == [(CREATED, "")]
        assert await (following(events) if task is None else task) == Resync()
        assert (await zk.get(path)).data != b""
        await taken(events)
        await other.delete(path)
        while isinstance(event := await following(events), Resync):
            pass  # one more, if the server let the session resume before it ended it
        assert plain([event], path) == [(DELETED, "")]
    await unwatched(zookeeper, path)


# Servers of other versions


async def without_the_operation(peer: Peer, *opcodes: int) -> None:
    """Answer an exists with NoNode, and `opcodes` like a server that does not have them: -6, then close."""
    await peer.handshake()
    while True:
        request = await peer.request()
        if request.opcode in opcodes:
            await peer.reply(request.xid, err=UNIMPLEMENTED)
            return
        if request.opcode == EXISTS:
            await peer.reply(request.xid, err=NO_NODE)
        else:
            await peer.answer(request)
        if request.opcode == CLOSE_SESSION:
            return


async def before_3_6(peer: Peer) -> None:
    await without_the_operation(peer, ADD_WATCH, 105)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_before_3_6_raises_unimplemented_and_the_session_lives(path: str, kind: str) -> None:
    async with Rogue(before_3_6) as rogue, zkwire.connect(rogue.hosts) as zk:
        _, watch = await zk.exists_and_watch(path)
        session_id = zk.session_id
        with pytest.raises(zkwire.UnimplementedError, match=path) as refused:
            async with stream(zk, kind, path):
                pass
        assert "addWatch" in str(refused.value)
        await rogue.connected(2)
        assert await zk.exists(path) is None
        assert zk.session_id == session_id
        assert not watch.done()
        codes = [code for _, code in rogue.requests if code != PING]
        assert codes == [EXISTS, ADD_WATCH, 101, EXISTS]
        assert rogue.connections == 2
