"""A stream of the states of a session, without a server."""

import asyncio
import gc

import pytest

from tests.support.client import begun, given_up, no_collector, turns
from zkwire import SessionState
from zkwire.client.streams import StateStream
from zkwire.session.observer import States

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


def stream() -> tuple[States, StateStream]:
    states = States()
    return states, StateStream(states, asyncio.get_running_loop())


async def test_a_slow_reader_misses_no_state_and_the_end_follows_closed() -> None:
    states, seen = stream()
    for state in (CONNECTED, SUSPENDED, CONNECTED, CLOSED):
        states.enter(state)
    assert [state async for state in seen] == [CONNECTING, CONNECTED, SUSPENDED, CONNECTED, CLOSED]
    with pytest.raises(StopAsyncIteration):
        await anext(seen)
    assert states._listeners == []


async def test_a_waiting_reader_gets_each_state_once_also_after_a_cancelled_wait() -> None:
    states, seen = stream()
    assert await anext(seen) is CONNECTING
    waiting = await begun(anext(seen))
    assert not waiting.done()
    states.enter(CONNECTED)
    states.enter(SUSPENDED)  # before the reader could go on
    assert await waiting is CONNECTED
    assert await anext(seen) is SUSPENDED
    await given_up(asyncio.wait_for(anext(seen), 60))
    states.enter(CONNECTED)
    assert await anext(seen) is CONNECTED


async def test_a_task_that_nobody_keeps_goes_on_waiting_for_the_next_state() -> None:
    states, got = States(), []

    async def follow() -> None:
        async for state in StateStream(states, asyncio.get_running_loop()):
            got.append(state)
            if state is CONNECTED:
                return

    asyncio.ensure_future(follow())  # noqa: RUF006 - on purpose
    await turns()
    gc.collect()
    states.enter(CONNECTED)
    await turns()
    assert got == [CONNECTING, CONNECTED]
    gc.collect()
    assert states._listeners == []


async def test_closing_ends_a_wait_and_drops_what_was_not_read() -> None:
    states, seen = stream()
    await anext(seen)
    waiting = await begun(anext(seen))
    seen.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    states.enter(CONNECTED)
    seen.close()
    with pytest.raises(StopAsyncIteration):
        await anext(seen)
    other = StateStream(states, asyncio.get_running_loop())
    await other.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(other)
    async with StateStream(states, asyncio.get_running_loop()) as third:
        assert await anext(third) is CONNECTED
    assert states._listeners == []


async def test_a_stream_that_was_left_and_dropped_listens_no_more_without_the_garbage_collector() -> None:
    states, seen = stream()
    async for state in seen:
        assert state is CONNECTING
        break
    with no_collector():
        del seen
        states.enter(CONNECTED)
        assert states._listeners == []
