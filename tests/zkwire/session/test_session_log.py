"""What a session writes into the log: each message once, and repeated at growing intervals; docs/production.md."""

import asyncio
import logging
import ssl

import pytest

import zkwire
from tests.support.client import drop
from tests.support.virtual_time import in_virtual_time
from zkwire import SessionState
from zkwire.errors import ProtocolError
from zkwire.session.session_log import Repetitions, SessionLog
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
            await drop(server, zk)
            hosts = server.hosts
        messages = logged(caplog)
    assert messages[0] == ("INFO", f"connected to {hosts}: new session {session}, with a timeout of 7 s")
    assert messages[1][0] == "WARNING"
    assert messages[1][1].startswith(f"lost the connection to {hosts}: ")
    assert messages[2] == ("WARNING", f"connected to {hosts}: resumed session {session}, with a timeout of 7 s")
    assert messages[3:] == [("INFO", f"closed session {session}")]


async def test_a_close_that_no_server_has_answered_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        with server.paused():
            await zk.close(within=0.05)
        level, message = logged(caplog)[-1]
    assert level == "WARNING"
    assert message.startswith(f"closed, but no server has answered: session 0x{zk.session_id:x}")


def test_a_message_is_repeated_at_growing_intervals_with_a_count() -> None:
    """For an hour of failures, one each second."""
    repetitions = Repetitions()
    logged = {now: added for now in range(3600) if (added := repetitions.note("kind", float(now))) is not None}
    assert list(logged) == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert list(logged.values())[:3] == ["", " (10 times in the last 10 s)", " (20 times in the last 20 s)"]
    assert [repetitions.note("kind", now) for now in (9000.0, 9999.0)][1] == " (once in the last 999 s)"


@in_virtual_time
@pytest.mark.parametrize("how", ["lost", "failed", "dropped", "ended"])
async def test_after_a_connection_that_has_failed_the_log_does_not_leave_out_the_next_one(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The last message would be that there is no session."""
    log = SessionLog(1)
    for error in (ProtocolError("a"), ConnectionRefusedError(), TimeoutError()):
        log.connected("a:1", 1, 4.0, is_read_only=False)
        getattr(log, how)(*["a:1"][how == "ended" :], error)
    log.connected("a:1", 1, 4.0, is_read_only=False)
    assert logged(caplog)[-1] == ("WARNING", "connected to a:1: resumed session 0x1, with a timeout of 4 s")


@in_virtual_time
async def test_a_loss_after_a_connection_that_lasted_is_always_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And so is what follows it; a connection counts as one that has lasted after ten seconds."""
    log = SessionLog(1)
    for seconds in (9.5, 9.5, 10.0, 10.0):
        log.connected("a:1", 1, 4.0, is_read_only=False)
        await asyncio.sleep(seconds)
        log.lost("a:1", ConnectionResetError("reset"))
    levels = [level for level, _ in logged(caplog)]
    # The second loss is the first repetition, after 9.5 s: it is left out.
    assert levels == ["INFO", "WARNING", "WARNING", "INFO", "WARNING", "WARNING", "WARNING"]
    assert "times" not in str(logged(caplog)[4:])


@in_virtual_time
async def test_a_failed_attempt_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    log = SessionLog(1)
    no_tls = ssl.SSLError(1, "wrong")
    no_tls.reason = "WRONG_VERSION_NUMBER"
    for error in (ConnectionRefusedError(), TimeoutError("late"), no_tls, ConnectionRefusedError()):
        log.failed("a:1", error)
    await asyncio.sleep(10)
    log.failed("a:1", ConnectionRefusedError())
    assert logged(caplog) == [
        ("WARNING", "no session with a:1: ConnectionRefusedError: the connection was refused"),
        ("WARNING", "no session with a:1: TimeoutError: late"),
        (
            "WARNING",
            "no session with a:1: SSLError: the server does not answer with TLS: the port may be one without TLS, or of"
            " another service",
        ),
        (
            "WARNING",
            "no session with a:1: ConnectionRefusedError: the connection was refused (2 times in the last 10 s)",
        ),
    ]
