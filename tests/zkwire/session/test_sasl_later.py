"""A SASL mechanism that cannot go on now, or has to wait for something else than the server."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import TypeVar

import pytest

import zkwire
import zkwire.testing
from tests.support.client import states_until
from tests.support.virtual_time import Server, a_client, in_virtual_time, now
from zkwire import SessionState

T = TypeVar("T")

AWAY = ConnectionError("no KDC answers")


class Slow:
    """An asynchronous mechanism with one token; each call waits for `pause` seconds, and raises the next of `errors`.

    `given` are the arguments of the calls, and `cancelled` those of the calls that were cancelled.
    """

    def __init__(self, pause: float = 0.1, errors: Sequence[Exception | None] = ()) -> None:
        self.pause, self.errors = pause, list(errors)
        self.given: list[str | bytes] = []
        self.cancelled: list[str | bytes] = []

    async def start(self, host: str) -> bytes:
        return await self._waited(host, b"token")

    async def step(self, token: bytes) -> bytes | None:
        return await self._waited(token, None)

    async def _waited(self, given: str | bytes, token: T) -> T:
        self.given.append(given)
        try:
            await asyncio.sleep(self.pause)
        except asyncio.CancelledError:
            self.cancelled.append(given)
            raise
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return token


@in_virtual_time
async def test_a_client_is_known_before_a_request_and_waits_for_what_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """The principal is proven before any request: while a KDC is away, the client tries again, and sends nothing."""
    loop, mechanism = asyncio.get_running_loop(), Slow()
    async with a_client(hosts="a", sasl=mechanism) as (server, zk):
        session, watch = zk.session_id, (await zk.exists_and_watch("/a"))[1]
        server.requests.clear()
        mechanism.given.clear()
        unreachable = OSError(errno.EHOSTUNREACH, "No route to host")
        mechanism.errors = [TimeoutError(), AWAY, socket.gaierror(socket.EAI_AGAIN, "no DNS answers"), unreachable]
        with caplog.at_level(logging.WARNING):
            server.drop()
            began = loop.time()
            await zk.create("/a")
        assert [sent.name for sent in server.requests][:4] == ["connect", "sasl", "setWatches", "create"]
        assert (zk.session_id, (await watch).type) == (session, zkwire.WatchEventType.CREATED)
        assert mechanism.given == ["a"] * 5 + [b""]
        assert loop.time() - began > 6 * mechanism.pause + 3 * 0.05 + 0.5  # the pauses of the client grow
        assert [text for text in caplog.messages if "SASL" in text] == [
            "no session with a:2181: ConnectionError: no authentication by SASL with a:2181 now: no answer in time"
        ]


@in_virtual_time
async def test_a_client_that_gives_up_while_the_exchange_fails_for_now_leaves_no_session() -> None:
    """A new session is known to no caller, so it is ended; the next attempt begins another one, which serves locks."""
    server, mechanism = Server(), Slow(errors=[None, TimeoutError()] * 100)
    with pytest.raises(TimeoutError, match=r"SASL with .:2181 now: no answer in time"):
        await zkwire.connect("a", open_link=server.open_link, sasl=mechanism, within=5.0)
    assert mechanism.given[:4] == ["a", b""] * 2
    assert not server.machine.sessions.by_id
    mechanism = Slow(errors=[None, AWAY])
    async with a_client(server=server, sasl=mechanism) as (_, zk):
        session = zk.session_id
        assert list(server.machine.sessions.by_id) == [session]
        assert zk.is_certain(session)
        mechanism.errors = [None, AWAY]
        server.drop()
        await zk.sync("/")
        assert zk.session_id == session  # which the caller knows
    server.strike = lambda wire, sent: False if sent.name == "sasl" else None
    start = now()
    with pytest.raises(TimeoutError, match="a:2181: no answer yet"):
        await zkwire.connect("a", open_link=server.open_link, sasl=Slow(), within=1.0)
    assert now() - start == pytest.approx(1.0, abs=0.01)
    assert not server.machine.sessions.by_id


@in_virtual_time
@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError, ssl.SSLCertVerificationError])
async def test_what_is_wrong_and_not_away_ends_the_session(kind: type[OSError]) -> None:
    mechanism = Slow()
    async with a_client(sasl=mechanism) as (server, zk):
        mechanism.errors = [kind(1, "the keytab is unfit")]  # one that does not pass
        server.drop()
        with pytest.raises(zkwire.AuthFailedError, match=r"SASL with .:2181: .*the keytab is unfit"):
            await zk.sync("/")
        assert zk.state is SessionState.AUTH_FAILED
        assert [sent.name for sent in server.requests] == []


@in_virtual_time
async def test_a_mechanism_that_waits_for_too_long_is_cancelled_and_begins_anew() -> None:
    mechanism = Slow()
    async with a_client(hosts="a", sasl=mechanism) as (server, zk):
        mechanism.given.clear()
        mechanism.pause = 60.0
        states = zk.states()
        server.drop()
        await states_until(states, SessionState.SUSPENDED)
        await asyncio.sleep(6.0)  # an attempt to connect may take half of the session timeout
        assert (mechanism.given, mechanism.cancelled) == (["a", "a"], ["a"])
        mechanism.pause = 0.1
        await zk.sync("/")
        assert mechanism.given == ["a", "a", "a", b""]


async def test_the_error_of_a_start_names_what_is_away_or_hangs() -> None:
    async with zkwire.testing.Server() as server:
        with pytest.raises(TimeoutError, match=r"no session within 0\.3 s: .* now: no KDC answers; check"):
            await zkwire.connect(server.hosts, sasl=Slow(0.0, [AWAY] * 1000), within=0.3)
        with pytest.raises(TimeoutError, match=r"no first token of the SASL mechanism within 1 s"):
            await zkwire.connect(server.hosts, 0.3, sasl=Slow(60.0), within=1.3)
        assert not server.sessions
        with server.delay_replies(5.0, "sasl"), pytest.raises(TimeoutError, match=r"no answer within 1 s"):
            await zkwire.connect(server.hosts, 0.3, sasl=Slow(0.0), within=1.5)
