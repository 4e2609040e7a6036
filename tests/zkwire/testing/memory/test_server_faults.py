"""The faults of the in-memory server, as a client meets them."""

from __future__ import annotations

import asyncio
import logging

import pytest

import zkwire
from zkwire.testing import Server, VirtualClock


async def test_a_hold_of_one_reply_lets_earlier_ones_out_and_keeps_later_ones() -> None:
    clock = VirtualClock()  # no time passes
    async with Server(clock=clock) as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        held = server.hold_replies("create", path="/b")
        before, it, after = (asyncio.create_task(zk.create(path)) for path in ("/a", "/b", "/c"))
        await held.until_hit()
        assert await before == "/a"
        while await other.exists("/c") is None:
            pass
        assert not it.done()
        assert not after.done()
        held.release()
        assert (await it, await after) == ("/b", "/c")
        await zk.create("/d")


async def test_delayed_replies_wait_for_the_servers_clock() -> None:
    clock = VirtualClock()
    async with Server(clock=clock) as server, zkwire.connect(server.hosts) as zk:
        with server.delay_replies(5, "create") as fault:
            delayed = asyncio.create_task(zk.create("/a"))
            after = asyncio.create_task(zk.exists("/a"))
            await fault.until_hit()
            clock.advance(4.9)
        async with zkwire.connect(server.hosts) as other:
            assert await other.exists("/a") is not None
        assert not delayed.done()
        assert not after.done()
        clock.advance(0.2)
        assert await delayed == "/a"
        assert await after is not None


async def test_a_paused_server_answers_nothing_until_it_is_resumed() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with server.paused():
            reading = asyncio.create_task(zk.exists("/"))
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # as the kernel takes it in
            writer.write(b"ruok")
            answer = asyncio.create_task(reader.read())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not reading.done()
            assert not answer.done()
        assert await reading is not None
        assert await answer == b"imok"
        writer.close()


async def test_sessions_whose_timeout_passed_in_a_pause_expire_at_its_end() -> None:
    clock = VirtualClock()
    async with Server(clock=clock) as server, zkwire.connect(server.hosts, session_timeout=10) as zk:
        session = zk.session_id
        with server.paused():
            clock.advance(60)
            assert server.sessions == [session]
        assert server.sessions == []


async def test_garbage_ends_a_connection_and_not_a_session() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        session = zk.session_id
        states = zk.states()
        server.send_garbage(session)
        async for state in states:
            if state is zkwire.SessionState.SUSPENDED:
                break
        assert await zk.exists("/") is not None
        assert zk.session_id == session
        with pytest.raises(LookupError, match="has no connection"):
            server.send_garbage(77)


async def test_a_fault_that_hit_nothing_says_so_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server:
        with caplog.at_level(logging.WARNING, "zkwire.testing"), server.drop_before("create") as fault:
            pass
        assert fault.hits == 0
        assert caplog.messages == ["the fault drop_before never hit anything"]


async def test_ending_all_faults_lets_everything_out() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        held = server.hold_replies()
        server.refuse_connections()
        reading = asyncio.create_task(zk.exists("/"))
        await held.until_hit()
        server.pause()
        server.end_faults()
        assert await reading is not None
        assert held.is_over
