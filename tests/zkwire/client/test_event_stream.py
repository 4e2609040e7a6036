"""Streams of events under faults: watches are set again, gaps give a Resync, and nothing stays."""

import asyncio
import contextlib

import pytest

import zkwire
from tests.conformance.test_streams import following, plain, stream, taken
from tests.support.client import states_until, turns
from tests.support.everywhere import Play, Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.rogue import CLOSE_SESSION, PING, UNIMPLEMENTED, Peer, Rogue
from zkwire import Resync, SessionState, WatchEventType
from zkwire.testing import Server

CREATED, DELETED, CHANGED, CHILDREN = WatchEventType
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
KINDS = ["persistent", "recursive"]
SERVER_LIMIT = 1_048_575
ADD_WATCH, REMOVE_WATCHES, EXISTS = 106, 18, 3
NO_NODE, MARSHALLING = -101, -5


# Reconnects


@pytest.mark.parametrize("kind", KINDS)
async def test_reconnects_without_an_event_between_give_one_resync_pitfalls_31_37_39(kind: str) -> None:
    """While the connection is lost the stream gives nothing; `zk.states()` shows the loss."""
    async with scene() as stage, stream(stage.zk, kind, stage.path) as events:
        states = stage.zk.states()
        await stage.other.create(stage.path)
        assert plain([await following(events)], stage.path) == [(CREATED, "")]
        with stage.server.refuse_connections():
            stage.server.drop(stage.zk.session_id)
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            await stage.other.set(stage.path, b"lost")  # no server keeps events for a client that is away
            waiting = asyncio.ensure_future(anext(events))
            await turns()
            assert not waiting.done()
        assert await waiting == Resync()
        for _ in range(2):
            stage.server.drop(stage.zk.session_id)
            await states_until(states, SUSPENDED)
            assert (await stage.zk.get(stage.path)).data == b"lost"
        await stage.other.delete(stage.path)
        await stage.zk.ping()
        resync, deleted = await taken(events)
        assert resync == Resync()
        assert plain([deleted], stage.path) == [(DELETED, "")]


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


# The end of the session


async def test_a_stream_left_while_another_task_sets_it_in_a_new_session_is_not_set_again() -> None:
    async with Server() as server, zkwire.connect(server.hosts, 1.0) as zk:
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
        # On a busy machine a proof of the session may follow.
        assert [code for _, code in rogue.requests if code != PING][:4] == [EXISTS, ADD_WATCH, 101, EXISTS]
        assert rogue.connections == 2


async def test_a_stream_that_is_entered_while_the_session_ends_begins_in_the_next_one() -> None:
    async def entered(zk: zkwire.Client) -> zkwire.EventStream:
        events = zk.events(stage.path)
        with stage.server.refuse_connections():
            stage.server.drop(zk.session_id)
            await states_until(zk.states(), SUSPENDED)
            entering = asyncio.ensure_future(events.__aenter__())
            await turns()
            stage.server.expire(zk.session_id)
        return await entering

    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as not_renewed:
        old = stage.zk.session_id
        async with contextlib.aclosing(await entered(stage.zk)) as events:
            assert stage.zk.session_id not in (0, old)
            await stage.other.create(stage.path)
            assert plain([await following(events)], stage.path) == [(CREATED, "")]
        with pytest.raises(zkwire.SessionExpiredError):
            await entered(not_renewed)
