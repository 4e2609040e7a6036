"""What a session writes into the log: each message once, and repeated at growing intervals; docs/logging.md."""

import logging

import pytest

import zkwire
from tests.support.client import states_until
from zkwire import SessionState
from zkwire.session.session_log import Repetitions
from zkwire.testing import Server

LOGGER = "zkwire.session.session_log"
CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zkwire")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == LOGGER]


async def test_a_session_is_logged_from_its_beginning_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server:
        async with zkwire.connect(server.hosts, 7.0) as zk:
            session = f"0x{zk.session_id:x}"
            states = zk.states()
            server.drop()
            await states_until(states, SUSPENDED)
            await states_until(states, CONNECTED)
            hosts = server.hosts
        messages = logged(caplog)
    assert messages[0] == ("INFO", f"connected to {hosts}: new session {session}, with a timeout of 7 s")
    assert messages[1][0] == "WARNING"
    assert messages[1][1].startswith(f"lost the connection to {hosts}: ")
    assert messages[2] == ("INFO", f"connected to {hosts}: resumed session {session}, with a timeout of 7 s")
    assert messages[3:] == [("INFO", f"closed session {session}")]


async def test_an_expired_session_and_its_successor_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        session = zk.session_id
        states = zk.states()
        server.expire(session)
        await states_until(states, SessionState.EXPIRED)
        await states_until(states, CONNECTED)
        levels = [level for level, message in logged(caplog) if f"session 0x{session:x} has expired" in message]
        assert levels == ["ERROR"]
        assert logged(caplog)[-1][1].startswith(f"connected to {server.hosts}: new session 0x{zk.session_id:x}")


async def test_a_resumed_session_of_another_client_is_logged_as_resumed(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        await zk.close(keep_session=True)
        caplog.clear()
        async with zkwire.connect(server.hosts, session_id=zk.session_id, session_password=zk.session_password):
            assert "resumed session" in logged(caplog)[0][1]


async def test_a_close_that_no_server_has_answered_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        with server.paused():
            await zk.close(within=0.05)
        level, message = logged(caplog)[-1]
    assert level == "WARNING"
    assert message.startswith(f"closed, but no server has answered: session 0x{zk.session_id:x}")


async def test_an_ensemble_that_is_down_is_logged_once_for_each_server(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        states = zk.states()
        with server.refuse_connections() as refusing:
            server.drop()
            await refusing.until_hit(6)
        await states_until(states, SUSPENDED)
        await states_until(states, CONNECTED)
        failures = [message for level, message in logged(caplog) if message.startswith("no session with")]
        assert len(failures) == 1


def test_a_message_is_repeated_at_growing_intervals_with_a_count() -> None:
    """For an hour of failures, one each second."""
    repetitions = Repetitions()
    logged = {now: added for now in range(3600) if (added := repetitions.note("kind", float(now))) is not None}
    assert list(logged) == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert list(logged.values())[:3] == ["", " (10 times in the last 10 s)", " (20 times in the last 20 s)"]


def test_messages_of_another_kind_and_those_after_a_success_are_logged_at_once() -> None:
    repetitions = Repetitions()
    assert [repetitions.note(kind, 0.0) for kind in ("one", "one", "two")] == ["", None, ""]
    repetitions.forget()
    assert repetitions.note("one", 0.1) == ""
