"""Streams of events under faults: watches are set again, gaps give a Resync, and nothing stays."""

import asyncio
import contextlib
import struct
from collections import Counter
from contextlib import AsyncExitStack

import pytest

import zkwire
from tests.conformance.test_streams import following, plain, stream, taken
from tests.support.client import cancelled, eventually, states_until, turns, watched
from tests.support.everywhere import Play, Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Frame, Proxy
from tests.support.rogue import CLOSE_SESSION, PING, UNIMPLEMENTED, Peer, Rogue
from tests.support.set_watches import lists_of
from tests.zkwire.session.test_expiry import end_session
from zkwire import Resync, SessionState, WatchEvent, WatchEventType
from zkwire.testing import RealServer, Server

CREATED, DELETED, CHANGED, CHILDREN = WatchEventType
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
KINDS = ["persistent", "recursive"]
SERVER_LIMIT = 1_048_575
ADD_WATCH, REMOVE_WATCHES, EXISTS = 106, 18, 3
NO_NODE, MARSHALLING = -101, -5


def rearming(proxy: Proxy, since: int) -> list[Frame]:
    return [
        frame
        for frame in proxy.log[since:]
        if frame.direction == "request" and frame.opcode in ("setWatches", "setWatches2")
    ]


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


@pytest.mark.since("3.9", "one-shot watches beside a persistent one", raises=pytest.fail.Exception)
async def test_watches_of_all_kinds_are_set_again_each_in_its_list_pitfalls_30_31(
    zookeeper: RealServer, path: str
) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await zk.create(path)
        _, data = await zk.get_and_watch(path)
        _, child = await zk.get_children_and_watch(path)
        _, exist = await zk.exists_and_watch(f"{path}-absent")
        async with zk.events(path) as persistent, zk.events(path, recursive=True) as recursive, zk.events(path):
            for _ in range(2):
                mark, seen = proxy.mark(), zk.last_zxid
                proxy.drop()
                frame = await proxy.seen("setWatches2", mark)
                assert lists_of(frame) == [[path], [f"{path}-absent"], [path], [path], [path]]
                assert struct.unpack_from(">q", frame.body) == (seen,)
                assert await following(persistent) == await following(recursive) == Resync()
                assert proxy.requests(mark) == ["connect", "setWatches2"]
            await other.create(f"{path}/a")
            await other.set(path, b"")
            await other.create(f"{path}-absent")
            await zk.sync(path)
            assert [(await watch).type for watch in (data, child, exist)] == [CHANGED, CHILDREN, CREATED]
            assert plain(await taken(persistent), path) == [(CHILDREN, ""), (CHANGED, "")]
            assert plain(await taken(recursive), path) == [(CREATED, "/a"), (CHANGED, "")]
        # Servers before 3.6 do not have SetWatches2: without persistent watches SetWatches is used again.
        _, data = await zk.get_and_watch(path)
        mark = proxy.mark()
        proxy.drop()
        assert lists_of(await proxy.seen("setWatches", mark)) == [[path], [], []]
        await zk.ping()
        assert proxy.requests(mark) == ["connect", "setWatches"]


@pytest.mark.since("3.9", "one-shot watches beside a persistent one", raises=pytest.fail.Exception)
async def test_an_event_lost_with_the_connection_leaves_a_resync_pitfall_39(zookeeper: RealServer, path: str) -> None:
    """SetWatches synthesises the event for the one-shot watch beside it, but not for the stream."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await zk.create(path)
        async with zk.events(path, recursive=True) as events:
            await zk.create(f"{path}/a")
            _, one_shot = await zk.get_and_watch(path)
            assert len(await taken(events)) == 1
            mark = proxy.mark()
            hold = proxy.hold_replies()
            await other.set(path, b"1")
            await other.set(f"{path}/a", b"1")
            await proxy.seen(lambda frame: frame.path == f"{path}/a", mark, direction="event")
            proxy.drop()
            hold.release()
            assert await following(events) == Resync()
            assert (await one_shot).type is CHANGED
            assert (await zk.get(f"{path}/a")).data == b"1"
            assert await taken(events) == []


async def test_streams_live_through_a_restart_of_the_server_pitfalls_2_35(zookeeper_own: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper_own.hosts) as zk, zk.events(path, recursive=True) as events:
        _, watch = await zk.exists_and_watch(f"{path}-2")
        for _ in range(2):
            states = zk.states()
            zookeeper_own.kill()
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            await zookeeper_own.start()
            assert await following(events) == Resync()
        await zk.create(path)
        assert plain(await taken(events), path) == [(CREATED, "")]
        await zk.create(f"{path}-2")
        assert (await watch).type is CREATED


async def test_a_second_stream_whose_reply_is_lost_is_set_again_by_both_ways(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zk.events(path) as first:
        lost = proxy.drop_after("addWatch")
        async with zk.events(path) as second:
            assert lost.hits
            await zk.create(path)
            assert plain(await taken(second), path) == [(CREATED, "")]
            assert await anext(first) == Resync()
            assert plain(await taken(first), path) == [(CREATED, "")]


async def test_two_thousand_watches_survive_a_reconnect_none_lost_none_doubled_pitfall_32(
    zookeeper: RealServer, path: str
) -> None:
    count = 400
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
        AsyncExitStack() as stack,
    ):
        await zk.create(path)
        nodes = {
            kind: [f"{path}/{kind}-{number:04d}-{'x' * 200}" for number in range(count)]
            for kind in ("data", "exist", "child", "persistent", "recursive")
        }
        for kind in ("data", "child", "persistent", "recursive"):
            await asyncio.gather(*map(other.create, nodes[kind]))
        data = [watch for _, watch in await asyncio.gather(*map(zk.get_and_watch, nodes["data"]))]
        exist = [watch for _, watch in await asyncio.gather(*map(zk.exists_and_watch, nodes["exist"]))]
        child = [watch for _, watch in await asyncio.gather(*map(zk.get_children_and_watch, nodes["child"]))]
        streams = [zk.events(node) for node in nodes["persistent"]]
        streams += [zk.events(node, recursive=True) for node in nodes["recursive"]]
        await asyncio.gather(*map(stack.enter_async_context, streams))
        for reconnect in (1, 2):
            mark = proxy.mark()
            proxy.drop()
            await proxy.connected(reconnect + 1)
            await zk.ping()
            frames = rearming(proxy, mark)
            assert len(frames) >= 3
            assert max(len(frame.payload) for frame in frames) < SERVER_LIMIT / 4
            set_again = Counter(
                (kind, node)
                for frame in frames
                for kind, paths in zip(nodes, lists_of(frame), strict=False)
                for node in paths
            )
            assert set_again == Counter((kind, node) for kind in nodes for node in nodes[kind])
            assert proxy.connections == reconnect + 1
        assert not any(watch.done() for watch in data + exist + child)
        await asyncio.gather(
            *(other.set(node, b"") for node in nodes["data"]),
            *map(other.create, nodes["exist"]),
            *(other.create(f"{node}/a") for kind in ("child", "persistent", "recursive") for node in nodes[kind]),
        )
        await zk.sync(path)
        assert Counter([(await watch).type for watch in data + exist + child]) == {
            CHANGED: count,
            CREATED: count,
            CHILDREN: count,
        }
        for number, events in enumerate(streams):
            resync, event = await taken(events)
            assert resync == Resync()
            assert isinstance(event, WatchEvent)
            assert event.path.startswith(events.path)
            assert event.type is (CHILDREN if number < count else CREATED)


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


@pytest.mark.parametrize("kind", KINDS)
async def test_the_watch_stays_while_another_stream_needs_it(zookeeper: RealServer, path: str, kind: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, stream(zk, kind, path) as first:
        async with stream(zk, kind, path):
            pass
        await zk.sync(path)
        assert await watched(zookeeper, path)
        assert "removeWatches" not in proxy.requests()
        await zk.create(path)
        assert plain(await taken(first), path) == [(CREATED, "")]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_watch_given_up_beside_a_stream_is_removed_with_it_pitfall_40(
    zookeeper: RealServer, path: str, kind: str
) -> None:
    """Servers before 3.9 would remove the stream's watch too: so the one-shot watch stays until the stream ends."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        async with stream(zk, kind, path):
            for read in (zk.get_and_watch, zk.exists_and_watch, zk.get_children_and_watch):
                watch = (await read(path))[1]
                watch.cancel()
            await zk.sync(path)
            assert "removeWatches" not in proxy.requests()
        await unwatched(zookeeper, path)
        mark = proxy.mark()
        await zk.create(f"{path}/a")
        await zk.delete(f"{path}/a")
        await zk.delete(path)
        assert proxy.events(mark) == []


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
        await end_session(zookeeper, zk)
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


async def before_3_5(peer: Peer) -> None:
    await without_the_operation(peer, ADD_WATCH, 105, REMOVE_WATCHES)


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


async def test_a_server_before_3_5_is_asked_to_remove_a_watch_only_once(path: str) -> None:
    """The server closes the connection for it: a client that often gives up watches would be useless."""
    async with Rogue(before_3_5) as rogue, zkwire.connect(rogue.hosts) as zk:
        _, watch = await zk.exists_and_watch(path)
        watch.cancel()
        await rogue.connected(2)
        for _ in range(3):
            _, watch = await zk.exists_and_watch(path)
            watch.cancel()
        await zk.ping()
        assert rogue.connections == 2
        assert [code for _, code in rogue.requests].count(REMOVE_WATCHES) == 1


async def test_a_server_before_3_9_that_refuses_a_removal_by_kind_does_no_harm(path: str) -> None:
    """The watch stays, its events are ignored, and all watches of the path are removed when none is needed."""
    removals = []

    async def before_3_9(peer: Peer) -> None:
        await peer.handshake()
        while True:
            request = await peer.request()
            if request.opcode == ADD_WATCH:
                await peer.reply(request.xid, bytes(4))
            elif request.opcode == EXISTS:
                await peer.reply(request.xid, err=NO_NODE)
            elif request.opcode == REMOVE_WATCHES:
                (number,) = struct.unpack_from(">i", request.body, len(request.body) - 4)
                removals.append(number)
                await peer.reply(request.xid, err=0 if number <= 3 else MARSHALLING)
                await peer.event(int(CREATED), path)
            else:
                await peer.answer(request)
            if request.opcode == CLOSE_SESSION:
                return

    async with Rogue(before_3_9) as rogue, zkwire.connect(rogue.hosts) as zk:
        async with zk.events(path) as events:
            async with zk.events(path, recursive=True):
                pass
            await zk.ping()
            assert removals == [5]
            assert plain(await taken(events)) == [(CREATED, path)]
        await zk.ping()
        assert removals == [5, 3]
        assert rogue.connections == 1
