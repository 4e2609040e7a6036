"""Closing a client, at any moment, and the states that an iteration over them shows; in virtual time."""

import asyncio
import struct

import pytest

import zkwire
from tests.support.client import begun, cancelled
from tests.support.virtual_time import a_client, in_virtual_time
from tests.zkwire.session.test_transport import timers
from tests.zkwire.session.verbs import every_call
from zkwire import SessionState

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


@in_virtual_time
async def test_closing_without_waiting_asks_for_the_end_of_the_session_anyway() -> None:
    async with a_client() as (server, zk):
        writing = await begun(zk.set("/a", b"x"), 1)
        zk.on_closing.add(pytest.fail)  # there is no time for what it would stop
        await zk.close(within=0)
        with pytest.raises(zkwire.SessionClosedError):
            await writing
        assert len(server.writes) == 1  # of both, before the connection was closed


@in_virtual_time
async def test_calls_after_close_say_that_the_client_is_closed_pitfall_6(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_client() as (server, zk):
        tx = zk.transaction()
        tx.create("/a")
        link = zk._session.requests.link
        assert link is not None
        lost = link.connection_lost
        monkeypatch.setattr(link, "connection_lost", lambda error: server.loop.call_later(0.1, lost, error))  # as TLS
        await zk.close()
        assert (link.closed.done(), timers()) == (True, 0)
        server.names()
        for call in [*every_call(zk, "/a"), tx.commit()]:
            with pytest.raises(zkwire.SessionClosedError, match="closed"):
                await call
        await zk.discard("/a")
        assert [state async for state in zk.states()] == [CLOSED]
        assert server.names() == []


@in_virtual_time
async def test_what_waits_fails_before_close_waits_for_what_is_to_stop() -> None:
    async with a_client() as (server, zk):
        stopping, begins = [server.loop.create_future()], asyncio.Event()
        stopped = stopping[0]
        zk.on_closing.add(lambda: stopping.pop() if stopping else None)
        zk.on_closing.add(pytest.fail)
        zk.on_closing.discard(pytest.fail)
        zk.on_closed.add(begins.set)
        closing = await begun(zk.close())
        assert (begins.is_set(), closing.done()) == (True, False)
        stopped.set_result(None)
        await closing


@in_virtual_time
@pytest.mark.parametrize(("keep_session", "within"), [(False, None), (True, None), (False, 60.0)])
async def test_closing_ends_within_a_session_timeout_whatever_the_server_does_pitfall_83(
    keep_session: bool, within: float | None
) -> None:
    """The server is never silent, and makes so much progress with its frame that the connection is not dead."""

    async def trickle() -> None:
        server.wire.send(struct.pack(">i", 1 << 20))
        while True:
            server.wire.send(bytes(5000))
            await asyncio.sleep(0.1)

    async with a_client(timeout=6.0) as (server, zk):
        server.is_silent = True
        trickling = asyncio.create_task(trickle())
        start = server.loop.time()
        await zk.close(keep_session=keep_session, within=within)
        assert server.loop.time() - start == pytest.approx(6.0, abs=0.01)
        assert zk.state is CLOSED
        await cancelled(trickling)


@in_virtual_time
async def test_a_callback_that_raises_or_has_ended_already_keeps_no_other_one_from_its_end() -> None:
    calls = list[str]()

    def failing() -> None:
        calls.append("failing")
        raise OSError

    def stop() -> "asyncio.Task[None]":
        calls.append("stop")
        following.cancel()
        return following

    async with a_client() as (server, zk):
        following = await begun(asyncio.sleep(60))
        zk.on_closing.add(failing)
        zk.on_closing.add(stop)
        await zk.close()
        complaints: list[str] = server.loop.world.complaints  # type: ignore[attr-defined]
        assert "OSError" in complaints.pop()
    assert calls == ["failing", "stop", "stop"]


@in_virtual_time
async def test_calls_work_inside_an_iteration_over_states_pitfall_50() -> None:
    async with a_client() as (server, zk):
        seen = []
        async for state in zk.states():
            seen.append(state)
            if state is CONNECTED:
                made = await zk.create("/a-", sequential=True)
                if made.endswith("2"):
                    await zk.close()
                else:
                    server.drop()
        assert seen == [CONNECTED, SUSPENDED, CONNECTED, SUSPENDED, CONNECTED, CLOSED]
