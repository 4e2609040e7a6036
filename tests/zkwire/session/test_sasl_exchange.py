"""The exchange of SASL tokens: what is sent, and what a mechanism or a server can do wrong."""

from typing import Any

import pytest

import zkwire
from tests.support.client import drop
from tests.support.recipes import no_task_stays
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import AuthFailedError
from zkwire.testing import Server

AUTH_FAILED = -115


class Scripted:
    """A mechanism that sends `tokens`, one after the other, and records what it is given."""

    def __init__(self, *tokens: Any) -> None:
        self._tokens = tokens
        self.given: list[object] = []
        self._left: list[Any] = []

    def start(self, host: str) -> Any:
        self._left = list(self._tokens)
        return self._next(host)

    def step(self, token: bytes) -> Any:
        return self._next(token)

    def _next(self, given: object) -> Any:
        self.given.append(given)
        token = self._left.pop(0) if self._left else None
        if isinstance(token, Exception):
            raise token
        return token


async def test_tokens_are_exchanged_until_the_mechanism_has_no_more() -> None:
    mechanism = Scripted(b"first", b"second")
    async with Server() as server:
        with server.delay_replies(0, "sasl") as sent:
            async with zkwire.connect(server.hosts, sasl=mechanism) as zk:
                assert await zk.exists("/a") is None
                assert (mechanism.given, sent.hits) == (["127.0.0.1", b"", b""], 2)
                await drop(server, zk)
                assert sent.hits == 4  # on every connection


async def test_a_mechanism_may_have_nothing_to_send() -> None:
    async with Server() as server:
        with server.delay_replies(0, "sasl") as sent:
            async with zkwire.connect(server.hosts, sasl=Scripted(None)) as zk:
                assert await zk.exists("/a") is None
            assert sent.hits == 0


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (("text",), "the mechanism must return bytes or None, and returned str"),
        ((b"first", 7), "the mechanism must return bytes or None, and returned int"),
        ((ValueError("no ticket"),), "no ticket"),
        ((b"first", ValueError("the server lies")), "the server lies"),
    ],
)
async def test_what_a_mechanism_does_wrong_ends_the_session(tokens: tuple[Any, ...], why: str) -> None:
    async with Server() as server, no_task_stays():
        with pytest.raises(AuthFailedError) as failed:
            await zkwire.connect(server.hosts, sasl=Scripted(*tokens))
        assert f"no authentication by SASL with {server.hosts}: {why}" in str(failed.value)
        assert not server.sessions


@in_virtual_time
async def test_no_ping_interrupts_a_slow_exchange() -> None:
    async with a_client(sasl=Scripted(b"first")) as (server, zk):
        server.drop()
        server.latency = lambda: zk.session_timeout * 0.4 if len(server.requests) == 2 else 0.0
        await zk.sync("/")
        assert [sent.name for sent in server.requests][:3] == ["connect", "sasl", "sync"]
