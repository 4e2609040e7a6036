"""The start of a client: how long `connect` tries, what its errors say, and that nothing stays."""

import asyncio
import gc
import inspect
import re
import warnings

import pytest

import zkwire
from tests.support.client import InOrder, cancel_connects, no_session_stays
from tests.support.recipes import no_task_stays
from tests.support.rogue import Rogue, garbage_handshake, silent_handshake
from zkwire.testing import RealServer, Server

REFUSED = "127.0.0.1:1"  # a port on which nothing listens


def test_the_defaults_are_those_of_the_documentation() -> None:
    of_connect = inspect.signature(zkwire.connect).parameters
    assert {name: of_connect[name].default for name in list(of_connect)[1:]} == {
        "session_timeout": 10.0,
        "within": 15.0,
        "session_id": 0,
        "session_password": b"",
        "least_timeout": None,
        "locks": True,
        "renew": True,
        "max_in_flight": 1000,
        "request_limit": 1_048_575,
        "reply_limit": 64 * 1024 * 1024,
        "read_only": False,
        "ssl": None,
        "auth": (),
        "sasl": None,
        "follow_config": False,
        "request_timeout": None,
        "observer": None,
        "rng": None,
        "open_link": None,
    }
    assert inspect.signature(zkwire.four_letter_word).parameters["within"].default == 5.0


async def test_the_error_names_every_server_with_its_last_cause_and_says_what_to_do() -> None:
    async with no_task_stays(), Rogue(garbage_handshake) as bad, Rogue(silent_handshake) as silent:
        hosts = f"{REFUSED},{bad.hosts},{silent.hosts},127.0.0.1:2"
        with pytest.raises(TimeoutError) as raised:
            await zkwire.connect(hosts, within=0.5, rng=InOrder())
        await silent.disconnected(1)
        text = str(raised.value)
        assert text.startswith(f"no session within 0.5 s: {REFUSED}: ")
        assert "Connect call failed" in text
        assert f"; {bad.hosts}: a frame of " in text
        assert f"; {silent.hosts}: no answer yet; 127.0.0.1:2: not tried yet; " in text
        assert text.endswith("give zkwire.connect a longer `within`, or None to wait for ever")


async def test_a_session_that_was_to_be_resumed_survives_a_connect_that_gives_up() -> None:
    async with no_task_stays(), Server() as server:
        zk = await zkwire.connect(server.hosts)
        session_id, password = zk.session_id, zk.session_password
        await zk.close(keep_session=True)
        with server.hold_replies(), pytest.raises(TimeoutError):
            await zkwire.connect(server.hosts, within=0.2, session_id=session_id, session_password=password)
        assert server.sessions == [session_id]


async def test_a_connect_that_is_cancelled_at_any_moment_leaves_no_session(zookeeper_own: RealServer) -> None:
    async with no_task_stays():
        await cancel_connects(lambda: zkwire.connect(zookeeper_own.hosts, 60.0))
    await no_session_stays(zookeeper_own.hosts)


async def test_a_server_that_was_stopped_and_goes_on_ends_the_session_of_a_client_that_gave_up(
    zookeeper_own: RealServer,
) -> None:
    zookeeper_own.pause()
    try:
        with pytest.raises(TimeoutError):
            await zkwire.connect(zookeeper_own.hosts, 60.0, within=0.2)
    finally:
        zookeeper_own.resume()
    await no_session_stays(zookeeper_own.hosts)


async def test_one_look_tries_every_server_once(caplog: pytest.LogCaptureFixture) -> None:
    async with no_task_stays(), Server() as server:
        with server.refuse_connections():
            with pytest.raises(TimeoutError, match=f"no session in one round: {REFUSED}: .*{server.hosts}: "):
                await zkwire.connect(f"{REFUSED},{server.hosts}", within=0, rng=InOrder())
            tried = [record.getMessage().partition(": ")[0] for record in caplog.records]
            assert tried == [f"no session with {REFUSED}", f"no session with {server.hosts}"]
        async with zkwire.connect(f"{REFUSED},{server.hosts}", within=0) as zk:
            assert await zk.exists("/")


async def test_without_a_bound_connect_waits_for_the_first_server() -> None:
    async with Server() as server:
        with server.refuse_connections() as refusing:
            connecting = asyncio.ensure_future(zkwire.connect(server.hosts, within=None)._connect())
            await refusing.until_hit(3)
            assert not connecting.done()
        async with await connecting as zk:
            assert await zk.exists("/")


@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.filterwarnings("always")
async def test_a_client_that_is_dropped_without_a_close_warns_once(
    is_closed: bool, limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    # A list of warnings would keep the client.
    monkeypatch.setattr(warnings, "showwarning", lambda text, kind, file, *_: seen.append(f"{file}: {text}"))
    async with Server() as server:
        zk = await zkwire.connect(server.hosts, request_timeout=limit)
        session, what = zk._session, rf"{__file__}: .* 0x{zk.session_id:x} .* `await zk.close\(\)`.*`async with "
        if is_closed:
            await zk.close()
        del zk
        gc.collect()
        assert [re.match(what, each) is not None for each in seen] == [True] * (not is_closed)
        await session.close()


async def test_a_thread_without_an_event_loop_is_sent_to_the_clients_loop() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        for call in (lambda: zk.discard("/a"), lambda: zk.set_hosts("zk1")):
            with pytest.raises(RuntimeError, match=r"belongs to another event loop.*use it in the loop"):
                await asyncio.to_thread(call)
