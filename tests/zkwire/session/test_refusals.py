"""Refusals of a server, failures and cancellations of callers, and changes of the list of servers."""

import asyncio
import struct
from typing import Any

import pytest

import zkwire
from tests.support import rogue
from tests.support.client import InOrder, cancelled, states_until, turns
from tests.support.everywhere import scene
from tests.support.recipes import outcome, until, until_state
from tests.support.rogue import CLOSE_SESSION, Peer, Rogue
from zkwire import SessionState, ThrottledError, WatchEventType, WatchSet
from zkwire.session import attempt
from zkwire.testing import Server

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
SESSION_EXPIRED = -112


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.limit(10)
async def test_the_connection_is_dropped_when_the_server_refuses_to_set_watches_again() -> None:
    async with scene() as stage:
        zk = stage.zk
        await zk.create("/a")
        _, watch = await zk.get_and_watch("/a")
        async with zk.events("/a") as events:
            with stage.server.answering("setWatches", ThrottledError, times=2) as refused:
                stage.server.drop(zk.session_id)
                await refused.until_hit(2)
            assert isinstance(await anext(events), zkwire.Resync)
            await stage.other.set("/a", b"x")
            assert (await watch).type is WatchEventType.CHANGED
            event = await anext(events)
            while isinstance(event, zkwire.Resync):
                event = await anext(events)
            assert event.type is WatchEventType.CHANGED


async def test_the_answer_that_the_session_has_expired_ends_certainty() -> None:
    """The next handshake shows whether the session has expired: here it has not."""
    async with scene() as stage:
        zk = stage.zk
        zk.need_certainty()
        seen: list[float] = []
        zk.on_uncertain.add(lambda: seen.append(zk.certain_for(zk.session_id)))
        states = zk.states()
        with (
            stage.server.answering("setData", SESSION_EXPIRED, session=zk.session_id, times=1),
            pytest.raises(zkwire.ConnectionLostError),
        ):
            await zk.set("/a", b"")
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        await until(lambda: bool(seen))
        assert seen == [0.0]
        await until_state(zk, CONNECTED)
        await until(lambda: zk.certain_for(zk.session_id) > 0)


async def test_an_answer_that_arrives_behind_the_end_of_the_session_sets_no_watch() -> None:
    """The refusal of a credential overtakes other answers; what it ends must include those in the same read."""

    async def together(peer: Peer) -> None:
        await peer.handshake()
        auth, read = await peer.request(), await peer.request()
        refusal = struct.pack(">iqi", auth.xid, 0, -115)
        node = struct.pack(">iqi", read.xid, 1, 0) + struct.pack(">i", 0) + bytes(68)
        await peer.send(b"".join(struct.pack(">i", len(frame)) + frame for frame in (refusal, node)))
        await peer.serve()

    async with Rogue(together) as rogue:
        zk = await zkwire.connect(rogue.hosts)
        adding = asyncio.create_task(outcome(zk.add_auth("no-such-scheme", b"")))
        reading = asyncio.create_task(outcome(zk.get_and_watch("/a")))
        assert isinstance(await adding, zkwire.AuthFailedError)
        assert isinstance(await reading, zkwire.AuthFailedError)
        assert len(zk._session.requests.watches) == 0
        await zk.close()


async def test_follow_config_goes_on_after_a_throttled_answer() -> None:
    async with Server() as server:
        with server.answering("getData", ThrottledError, path="/zookeeper/config", times=1) as throttled:
            async with zkwire.connect(server.hosts, follow_config=True):
                await throttled.until_hit()
                with server.hold_replies("getData", path="/zookeeper/config") as asked:
                    await asked.until_hit()


# -- callers ------------------------------------------------------------------------------------------------------


async def test_a_watch_callback_that_raises_does_not_affect_other_callers() -> None:
    loop = asyncio.get_running_loop()
    handler, complaints = loop.get_exception_handler(), []
    async with scene() as stage:
        zk, watches = stage.zk, WatchSet()
        await zk.create("/a")
        await zk.get_and_watch("/a", into=watches)
        _, second = await zk.get_and_watch("/a")

        def fail() -> None:
            raise ZeroDivisionError

        watches.set_callback(fail)
        loop.set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        try:
            changed, node, _ = await asyncio.gather(zk.set("/a", b"x"), zk.get("/a"), zk.exists("/b"))
        finally:
            loop.set_exception_handler(handler)
        assert (changed.version, node.data) == (1, b"x")
        assert (await second).type is WatchEventType.CHANGED
        assert [type(error) for error in complaints] == [ZeroDivisionError]
        assert zk.state is CONNECTED
        assert len(watches.take()) == 1


async def test_a_watch_cancelled_in_a_callback_of_the_same_event_does_not_get_it() -> None:
    async with scene() as stage:
        zk, watches = stage.zk, WatchSet()
        await zk.create("/a")
        await zk.get_and_watch("/a", into=watches)
        await zk.get_children_and_watch("/a", into=watches)
        _, third = await zk.get_and_watch("/a")
        seen: list[int] = []

        def give_all_up() -> None:
            seen.append(len(seen))
            watches.cancel()
            third.cancel()

        watches.set_callback(give_all_up)
        await stage.other.delete("/a")
        await zk.ping()
        assert seen == [0]
        assert len(watches.take()) == 1
        with pytest.raises(RuntimeError, match="given up"):
            await third


async def test_calls_cancelled_without_a_connection_take_no_memory() -> None:
    async with scene() as stage:
        with stage.server.refuse_connections():
            stage.server.drop(stage.zk.session_id)
            await until_state(stage.zk, SUSPENDED)
            waiting = asyncio.create_task(stage.zk.create("/a"))
            for _ in range(500):
                task = asyncio.create_task(stage.zk.set("/a", bytes(1000)))
                await turns(1)
                await cancelled(task)
            assert len(stage.zk._session.requests._unsent) < 150
        assert await waiting == "/a"


async def test_cancelling_the_sessions_task_fails_every_call() -> None:
    """asyncio.run cancels all tasks at the end of a main function that has left a client open."""
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        await zk.create("/a")
        with server.refuse_connections():
            server.drop()
            await until_state(zk, SUSPENDED)
            gone = zk.discard("/a")
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if task.get_name() == "zkwire session":
                    task.cancel()
            await gone
        with pytest.raises(zkwire.SessionClosedError):
            await zk.get("/a")
        await zk.close()


async def test_giving_up_the_resumption_of_a_session_does_not_end_it() -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        await zk.create("/a", ephemeral=True)
        session_id, password = zk.session_id, zk.session_password
        await zk.close(keep_session=True)
        with server.hold_replies("auth") as asked:
            resuming = asyncio.ensure_future(
                _entered(
                    zkwire.connect(
                        server.hosts, 1.0, session_id=session_id, session_password=password, auth=[("digest", b"a:b")]
                    )
                )
            )
            await asked.until_hit()
            await cancelled(resuming)
        async with zkwire.connect(server.hosts, session_id=session_id, session_password=password) as zk:
            assert await zk.exists("/a") is not None


async def _entered(connecting: Any) -> zkwire.Client:
    client: zkwire.Client = await connecting
    return client


# -- hosts --------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_removed_during_the_handshake_is_left() -> None:
    greeted = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await greeted.wait()
        await rogue.honest(peer)

    async with (
        Rogue(rogue.honest) as first,
        Rogue(slow) as old,
        Rogue(rogue.honest) as new,
        zkwire.connect(first.hosts) as zk,
    ):
        zk.set_hosts(old.hosts)
        await old.connected(1)
        zk.set_hosts(new.hosts)
        greeted.set()
        await new.connected(1)
        await until_state(zk, CONNECTED)
        await until(lambda: zk.server == new.hosts)


async def test_a_new_list_of_servers_does_not_disturb_a_close() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as other:
        zk = await zkwire.connect(server.hosts)
        session_id = zk.session_id
        await zk.create("/e", ephemeral=True)
        with server.hold_replies("create", session=session_id) as held:
            task = asyncio.create_task(zk.create("/p"))
            await held.until_hit()
            await cancelled(task)
            closing = asyncio.create_task(zk.close())
            await turns(3)
            zk.set_hosts("127.0.0.1:1")
            await turns(3)
        await closing
        assert session_id not in server.sessions
        assert sorted(await other.get_children("/")) == ["p", "zookeeper"]


@pytest.mark.parametrize("wished", [2.0, 60.0])
async def test_the_pauses_depend_on_the_timeout_that_the_server_granted(wished: float) -> None:
    async with Server(tick_time=0.1, max_session_timeout=2.0) as server, zkwire.connect(server.hosts, wished) as zk:
        assert zk._session._hosts.longest_pause == pytest.approx(0.2)
        server.expire(zk.session_id)
        await until_state(zk, SessionState.EXPIRED)
        await until_state(zk, CONNECTED)
        assert zk._session._hosts.longest_pause == pytest.approx(0.2)


async def test_a_lost_read_only_connection_does_not_wait_for_the_answer_of_another_server() -> None:
    asked, done = asyncio.Event(), asyncio.Event()

    async def reading_only(peer: Peer) -> None:
        handshake = await peer.connect_request()
        await peer.send_frame(rogue.connect_response(handshake.timeout, 0x77) + b"\1")
        await asked.wait()

    async def unanswering(peer: Peer) -> None:
        asked.set()
        await done.wait()

    async with Rogue(reading_only) as there, Rogue(unanswering, rogue.honest) as other:
        hosts = f"{there.hosts},{other.hosts}"
        async with zkwire.connect(hosts, 40.0, read_only=True, rng=InOrder()) as zk:
            assert zk.state is SessionState.READ_ONLY
            await until_state(zk, CONNECTED)  # long before the question would have timed out
            assert zk.server == other.hosts
        done.set()


# -- a client that gives up before a server has answered ---------------------------------------------------------------


@pytest.mark.limit(20)
async def test_a_cancelled_connect_asks_the_server_to_end_the_session_and_waits_until_it_has_closed_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "_FAREWELL", 60.0)
    begun, seen = asyncio.Event(), list[tuple[int, bool]]()

    async def slow(peer: Peer) -> None:
        await peer.connect_request()
        begun.set()
        request = await peer.request()
        await turns(20)
        seen.append((request.opcode, connecting.done()))

    async with Rogue(slow) as rogue:
        connecting = asyncio.ensure_future(zkwire.connect(rogue.hosts)._connect())
        await begun.wait()
        await cancelled(connecting)
    assert seen == [(CLOSE_SESSION, False)]


@pytest.mark.limit(20)
async def test_a_cancelled_connect_waits_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_FAREWELL", 0.01)
    begun = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.connect_request()
        begun.set()
        await peer.ignore()

    async with Rogue(silent) as rogue:
        connecting = asyncio.ensure_future(zkwire.connect(rogue.hosts)._connect())
        await begun.wait()
        await cancelled(connecting)
