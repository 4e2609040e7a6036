"""Streams of events under faults: watches are set again, gaps give a Resync, and nothing stays."""

import asyncio
import contextlib

import pytest

import zkwire
from tests.conformance.test_streams import following, plain, stream, taken
from tests.support.client import begun, states_until, turns
from tests.support.everywhere import Play, Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from zkwire import Resync, SessionState, WatchEventType
from zkwire.testing import Server

CREATED, DELETED, CHANGED, CHILDREN = WatchEventType
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
KINDS = ["persistent", "recursive"]


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
            waiting = await begun(anext(events))
            assert not waiting.done()
        assert await waiting == Resync()
        await stage.other.set(stage.path, b"seen")
        for _ in range(2):
            assert (await stage.zk.get(stage.path)).data == b"seen"
            stage.server.drop(stage.zk.session_id)
            await states_until(states, SUSPENDED)
        await stage.zk.ping()
        await stage.other.delete(stage.path)
        await stage.zk.ping()
        changed, resync, deleted = await taken(events)
        assert resync == Resync()
        assert plain([changed, deleted], stage.path) == [(CHANGED, ""), (DELETED, "")]


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


@pytest.mark.parametrize(("leaves", "expires"), [(True, True), (True, False), (False, True)])
async def test_a_stream_left_while_it_is_set_in_a_new_session_has_no_watch(leaves: bool, expires: bool) -> None:
    """If that session expires too, and the stream is not left, it has one Resync for both."""
    async with Server() as server, zkwire.connect(server.hosts, 1.0) as zk:
        states = zk.states()
        async with zk.events("/a") as events:
            waiting = await begun(anext(events))
            held = server.hold_replies("addWatch")
            server.expire(zk.session_id)
            await held.until_hit()
            if leaves:
                events.close()
            if expires:
                server.expire(session_id := zk.session_id)
                server.drop(session_id)
                for _ in range(2):
                    await states_until(states, EXPIRED)
            held.end()
            if leaves:
                with pytest.raises(StopAsyncIteration):
                    await waiting
            else:
                assert await waiting == Resync()
                await zk.create("/a")
                assert plain([await following(events)]) == [(CREATED, "/a")]
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


async def test_a_stream_that_is_entered_while_the_session_ends_begins_in_the_next_one() -> None:
    async def entered(zk: zkwire.Client) -> zkwire.EventStream:
        events = zk.events(stage.path)
        with stage.server.refuse_connections():
            stage.server.drop(zk.session_id)
            await states_until(zk.states(), SUSPENDED)
            entering = await begun(events.__aenter__())
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
