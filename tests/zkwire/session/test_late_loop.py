"""An event loop that was blocked: its connection is kept if it lives, no write is lost with it, a warning says why."""

import asyncio
import time

import pytest

import zkwire
from tests.support.client import states_until
from tests.support.proxy import Proxy
from zkwire import SessionState
from zkwire.testing import ServerProcess

WARNING = "this event loop did not run for"


def block(seconds: float) -> None:
    """Keep the event loop from running, as code does that should be in a thread."""
    time.sleep(seconds)


@pytest.mark.slow("it blocks the event loop for two seconds, twice")
async def test_a_connection_survives_a_blocked_event_loop_and_a_warning_names_the_cause_pitfall_75(
    memory: ServerProcess, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with zkwire.connect(memory.hosts, 4.0) as zk:
        states = zk.states()
        for _ in range(2):
            await asyncio.sleep(0.9)  # the ping is due next
            block(2.2)
            assert await zk.create(f"{path}-", sequential=True)
        await zk.close()
        assert [state async for state in states] == [SessionState.CONNECTED, SessionState.CLOSED]
    assert caplog.text.count(WARNING) == 1
    assert "lost the connection" not in caplog.text


async def test_a_write_in_the_turn_in_which_a_dead_link_is_noticed_goes_to_the_next_one_pitfall_75(
    memory: ServerProcess, path: str
) -> None:
    async with Proxy(memory.hosts) as proxy, zkwire.connect(proxy.hosts, 4.0) as zk:
        await zk.ping()
        proxy.pause()
        await asyncio.sleep(1.5)  # a ping is unanswered
        block(1.2)
        creating = asyncio.create_task(zk.create(path))
        removing = zk.discard(f"{path}-none")
        await states_until(zk.states(), SessionState.SUSPENDED)
        assert not creating.done()
        proxy.resume()
        assert await creating == path
        await removing
        assert proxy.requests().count("create") == proxy.requests().count("delete") == 1


async def test_a_slow_handshake_does_not_make_the_event_loop_late(
    memory: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(memory.hosts) as proxy:
        proxy.pause()
        asyncio.get_running_loop().call_later(1.7, proxy.resume)
        async with zkwire.connect(proxy.hosts, 4.0) as zk:
            await zk.ping()
    assert WARNING not in caplog.text


async def test_an_event_loop_that_is_in_time_is_not_warned_of(
    memory: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with zkwire.connect(memory.hosts, 4.0) as zk:
        await zk.ping()
        block(0.4)
        await asyncio.sleep(1.2)
        await zk.ping()
    assert WARNING not in caplog.text
