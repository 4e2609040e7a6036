"""Credentials that are shown later, and what becomes of those whose caller was cancelled."""

import asyncio

import zkwire
from tests.support.client import cancelled, states_until, turns
from zkwire import SessionState
from zkwire.testing import Server


async def _users(zk: zkwire.Client) -> set[str]:
    return {each.user for each in await zk.whoami() if each.scheme == "digest"}


async def test_a_credential_that_was_not_sent_before_its_call_was_cancelled_is_never_shown() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        states = zk.states()
        with server.refuse_connections():
            server.drop()
            await states_until(states, SessionState.SUSPENDED)
            adding = asyncio.create_task(zk.add_auth("digest", b"bob:secret"))
            await turns()
            await cancelled(adding)
        await states_until(states, SessionState.CONNECTED)
        assert await _users(zk) == set()


async def test_a_credential_that_was_sent_before_its_call_was_cancelled_is_shown_on_later_connections_too() -> None:
    """The server may have accepted it, and requests that rely on it may have been made since."""
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        states = zk.states()
        with server.hold_replies("auth") as held:
            adding = asyncio.create_task(zk.add_auth("digest", b"bob:secret"))
            await held.until_hit()
            await cancelled(adding)
        assert await _users(zk) == {"bob"}
        server.drop()
        await states_until(states, SessionState.SUSPENDED, SessionState.CONNECTED)
        assert await _users(zk) == {"bob"}


async def test_a_credential_that_waits_for_its_turn_when_its_call_is_cancelled_is_never_sent() -> None:
    async with Server() as server, zkwire.connect(server.hosts, max_in_flight=1) as zk:
        with server.hold_replies("exists"), server.delay_replies(0, "auth") as shown:
            asking = asyncio.create_task(zk.exists("/a"))
            adding = asyncio.create_task(zk.add_auth("digest", b"bob:secret"))
            await turns()
            await cancelled(adding)
        assert await asking is None
        assert await _users(zk) == set()
        assert shown.hits == 0
