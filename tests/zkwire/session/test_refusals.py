"""What a session makes of servers that refuse, mumble or tell too much, and of callers who change their mind."""

import asyncio
import random
import struct
from functools import partial
from typing import Any

import pytest

import zkwire
from tests.support import rogue
from tests.support.client import cancelled, states_until, turns
from tests.support.everywhere import scene
from tests.support.recipes import until, until_state
from tests.support.rogue import Peer, Rogue
from zkwire import SessionState, ThrottledError, WatchEventType, WatchSet
from zkwire.testing import Server

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
SESSION_EXPIRED = -112
SASL = 102


class InOrder(random.Random):
    """Shuffles nothing."""

    def shuffle(self, x: Any) -> None:
        pass


# -- refusals -----------------------------------------------------------------------------------------------------


async def test_watches_that_are_not_set_again_cost_the_connection() -> None:
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
    """And the next handshake tells whether it has: here it has not."""
    async with scene() as stage:
        zk = stage.zk
        told: list[float] = []
        zk.on_uncertain.add(lambda: told.append(zk.certain_for(zk.session_id)))
        states = zk.states()
        with (
            stage.server.answering("setData", SESSION_EXPIRED, session=zk.session_id, times=1),
            pytest.raises(zkwire.ConnectionLostError),
        ):
            await zk.set("/a", b"")
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        await until(lambda: bool(told))
        assert told == [0.0]
        await until_state(zk, CONNECTED)
        assert zk.certain_for(zk.session_id) > 0


async def test_the_servers_of_the_ensemble_are_followed_behind_a_throttled_answer() -> None:
    async with Server() as server:
        with server.answering("getData", ThrottledError, path="/zookeeper/config", times=1) as throttled:
            async with zkwire.connect(server.hosts, follow_config=True):
                await throttled.until_hit()
                with server.hold_replies("getData", path="/zookeeper/config") as asked:
                    await asked.until_hit()


# -- nonsense -----------------------------------------------------------------------------------------------------


async def test_a_read_whose_answer_is_nonsense_each_time_ends_with_a_protocol_error() -> None:
    async def cut_short(peer: Peer) -> None:
        await peer.handshake()
        while True:
            request = await peer.request()
            if request.opcode == rogue.GET_DATA:
                await peer.reply(request.xid, struct.pack(">i", 5) + b"rog")
            else:
                await peer.answer(request)

    async with Rogue(cut_short) as bad, zkwire.connect(bad.hosts, 4.0) as zk:
        with pytest.raises(zkwire.ProtocolError, match=r"getData /a: .* cannot be decoded"):
            await zk.get("/a")
        assert bad.connections == 2
        await zk.ping()


async def test_nonsense_behind_the_last_word_of_sasl_is_not_taken_for_a_connection() -> None:
    class Mechanism:
        def start(self, host: str) -> bytes:
            return b"?"

        def step(self, challenge: bytes) -> bytes | None:
            return None

    async def talk(peer: Peer, *, behind: bytes) -> None:
        await peer.handshake()
        while True:
            request = await peer.request()
            if request.opcode == SASL:
                payload = struct.pack(">iqii", request.xid, 0, 0, 2) + b"ok"
                await peer.send(struct.pack(">i", len(payload)) + payload + behind)
            else:
                await peer.answer(request)

    async with Rogue(partial(talk, behind=b"\xff" * 8), partial(talk, behind=b"")) as server:
        async with zkwire.connect(server.hosts, 4.0, sasl=Mechanism()) as zk:
            assert server.connections == 2
            states = zk.states()
            await zk.get("/a")
            assert zk.state is CONNECTED
        assert [state async for state in states] == [CONNECTED, SessionState.CLOSED]


async def test_a_server_that_tells_and_never_answers_is_left_for_another() -> None:
    async def talker(peer: Peer) -> None:
        await peer.handshake()
        while True:
            await peer.event(3, "/nobody")
            await asyncio.sleep(0.05)  # the pace of the talk

    async with (
        Rogue(talker) as bad,
        Rogue(rogue.honest) as good,
        zkwire.connect(f"{bad.hosts},{good.hosts}", 0.8, rng=InOrder()) as zk,
    ):
        assert (await zk.get("/a")).data == rogue.DATA
        assert zk.server == good.hosts


# -- callers ------------------------------------------------------------------------------------------------------


async def test_who_is_told_of_an_event_and_fails_harms_nobody_else() -> None:
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


async def test_a_watch_that_is_given_up_over_an_event_does_not_hear_of_it() -> None:
    async with scene() as stage:
        zk, watches = stage.zk, WatchSet()
        await zk.create("/a")
        await zk.get_and_watch("/a", into=watches)
        await zk.get_children_and_watch("/a", into=watches)
        _, third = await zk.get_and_watch("/a")
        told: list[int] = []

        def give_all_up() -> None:
            told.append(len(told))
            watches.cancel()
            third.cancel()

        watches.set_callback(give_all_up)
        await stage.other.delete("/a")
        await zk.ping()
        assert told == [0]
        assert len(watches.take()) == 1
        with pytest.raises(RuntimeError, match="given up"):
            await third


async def test_what_is_given_up_without_a_connection_takes_no_memory() -> None:
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


async def test_a_client_whose_task_is_cancelled_with_all_others_lets_nobody_wait() -> None:
    """As asyncio.run does it at the end of a main function that has left a client open."""
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


async def test_whoever_gives_up_resuming_a_session_does_not_end_it() -> None:
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


async def test_a_server_that_is_taken_off_the_list_while_it_is_asked_is_left() -> None:
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


async def test_another_list_of_servers_does_not_keep_a_client_from_closing() -> None:
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
        assert await other.get_children("/") == ["zookeeper"]


@pytest.mark.parametrize("wished", [2.0, 60.0])
async def test_pauses_go_by_the_timeout_that_was_granted(wished: float) -> None:
    async with Server(tick_time=0.1, max_session_timeout=2.0) as server, zkwire.connect(server.hosts, wished) as zk:
        assert zk._session._hosts.longest_pause == pytest.approx(0.2)
        server.expire(zk.session_id)
        await until_state(zk, SessionState.EXPIRED)
        await until_state(zk, CONNECTED)
        assert zk._session._hosts.longest_pause == pytest.approx(0.2)


async def test_a_lost_read_only_connection_does_not_wait_for_another_servers_word() -> None:
    asked, done = asyncio.Event(), asyncio.Event()

    async def reading_only(peer: Peer) -> None:
        handshake = await peer.connect_request()
        await peer.send_frame(rogue.connect_response(handshake.timeout, 0x77) + b"\1")
        await asked.wait()

    async def wordless(peer: Peer) -> None:
        asked.set()
        await done.wait()

    async with Rogue(reading_only) as there, Rogue(wordless, rogue.honest) as other:
        hosts = f"{there.hosts},{other.hosts}"
        async with zkwire.connect(hosts, 40.0, read_only=True, rng=InOrder()) as zk:
            assert zk.state is SessionState.READ_ONLY
            await until_state(zk, CONNECTED)  # long before the word would have been waited for
            assert zk.server == other.hosts
        done.set()
