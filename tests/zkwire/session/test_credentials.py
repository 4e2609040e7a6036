"""Credentials that are shown later, and what becomes of those whose caller was cancelled."""

import asyncio
from typing import Any

import pytest

import zkwire
from tests.support.client import cancelled, states_until, turns
from zkwire import SessionState
from zkwire.session.credentials import Identity, checked
from zkwire.testing import Server
from zkwire.wire.requests import AuthRequest


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


@pytest.mark.parametrize(
    ("scheme", "data", "names"),
    [("digest", "text", "str and str"), (7, b"x", "int and bytes"), (None, None, "NoneType and NoneType")],
)
def test_a_credential_of_other_types_is_refused_without_its_values(scheme: Any, data: Any, names: str) -> None:
    with pytest.raises(TypeError, match=f"a credential is a scheme and bytes, not {names}$"):
        checked(scheme, data, request_limit=1000)


@pytest.mark.parametrize("data", [b"ann:1", bytearray(b"ann:1"), memoryview(b"ann:1")])
def test_the_data_of_a_credential_may_be_any_bytes(data: Any) -> None:
    assert checked("digest", data, request_limit=1000) == Identity("digest", b"ann:1")


@pytest.mark.parametrize(
    ("scheme", "says"),
    [("", "needs a scheme"), ("ann:1", "contains ':'"), ("sasl", "use connect")],
)
def test_a_scheme_that_cannot_be_right_is_refused(scheme: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked(scheme, b"ann:1", request_limit=1000)


def test_a_credential_is_as_large_as_a_request_may_be() -> None:
    size = len(AuthRequest(0, "digest", b"ann:1").encode()) + 8
    checked("digest", b"ann:1", request_limit=size)
    with pytest.raises(ValueError, match=r"larger than a server accepts|limit"):
        checked("digest", b"ann:1", request_limit=size - 1)
