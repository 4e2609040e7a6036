"""The session in virtual time: when it reconnects, expires and closes, and what an end from outside leaves."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from operator import gt

import pytest

import zkwire
from tests.support.client import InOrder, begun, given_up, turns
from tests.support.recipes import until_state
from tests.support.virtual_time import Sent, Server, Wire, a_client, block, in_virtual_time, now, tasks
from zkwire import AuthFailedError, SessionClosedError, SessionExpiredError, SessionState
from zkwire.session.transport import Link
from zkwire.testing.memory.machine import Settings

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


# -- expiry -----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_session_that_no_server_confirms_expires_four_thirds_of_its_timeout_after_the_last_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_client(timeout=9.0, locks=False) as (server, zk):
        await zk.create("/e", ephemeral=True)
        old, states = zk.session_id, zk.states()
        await asyncio.sleep(5.0)  # a ping each 2.25 s; the last one was answered after 4.5 s
        await server.cut_off(zk)
        reading = asyncio.ensure_future(zk.get("/e"))
        with pytest.raises(SessionExpiredError) as expired:
            await reading
        assert now() == pytest.approx(4.5 + 12.0, abs=0.05)
        assert str(expired.value).startswith(
            f"session {old:#x} has expired: no server has answered for 12 s, so that the session of 9 s must be gone"
        )
        assert (zk.session_id, zk.certain_until) == (0, float("-inf"))
        assert "no answer within" not in caplog.text  # no attempt is made when no time is left
        assert f"session {old:#x} has expired" in caplog.text
        await asyncio.sleep(20.0)
        assert zk.state is CONNECTING  # there is no session that could expire
        server.refused = set()
        await until_state(zk, CONNECTED)
        assert zk.session_id not in (0, old)
        assert zk.session_timeout == 9.0
        await zk.close()
        assert [state async for state in states] == [CONNECTED, SUSPENDED, EXPIRED, CONNECTING, CONNECTED, CLOSED]


@in_virtual_time
async def test_a_shorter_timeout_that_another_server_grants_counts_from_its_handshake() -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        assert zk.certain_until == pytest.approx(now() + 10.0, abs=0.1)
        server.machine.settings = Settings(max_session_timeout=4.0)
        await asyncio.sleep(1.0)
        server.drop()
        await zk.ping()
        assert zk.session_timeout == 4.0
        assert zk.certain_until == pytest.approx(now() + 4.0, abs=0.1)
        server.refused = {"a", "b"}
        server.drop()
        lost = now()
        await until_state(zk, EXPIRED if zk.state is EXPIRED else CONNECTING)
        assert now() - lost == pytest.approx(4.0 * 4 / 3, abs=0.05)
        assert zk.session_timeout == 10.0  # what the next session asks for


# -- reconnecting -----------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("lasts", [0.9, 1.1])
async def test_after_a_connection_that_has_lasted_the_next_attempt_comes_at_once(lasts: float) -> None:
    """A connection has lasted after a tenth of the session timeout; otherwise each round begins with a pause."""
    async with a_client("a") as (server, zk):
        await asyncio.sleep(lasts)
        server.drop()
        at = now()
        await zk.ping()
        (pause,) = [sent.at - at for sent in server.requests if sent.name == "connect"]
        assert pause == pytest.approx(0.0, abs=0.001) if lasts > 1 else 0.02 < pause < 0.06


@in_virtual_time
async def test_the_pauses_grow_when_every_connection_ends_at_once() -> None:
    """A successful handshake alone must not reset the back-off."""

    def drop(wire: Wire, sent: Sent) -> bool:
        wire.lose(None)
        return False

    async with a_client("a") as (server, zk):
        server.strike = drop
        pinging = asyncio.ensure_future(zk.ping())
        await server.until("connect", 6)
        server.strike = lambda wire, sent: None
        await pinging
        times = [sent.at for sent in server.requests if sent.name == "connect"]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert all(map(gt, pauses, [0.05, 0.1, 0.2, 0.4])), pauses


@in_virtual_time
async def test_a_server_that_was_taken_from_the_list_while_it_was_connected_to_is_left() -> None:
    async with a_client() as (server, zk):
        server.is_silent = True
        server.drop()
        await turns()
        zk.set_hosts("c,d")
        server.go_on()
        await zk.ping()
        while zk.server == "b:2181":
            await asyncio.sleep(0.01)
        await zk.ping()
        assert zk.server.removesuffix(":2181") in "cd"
        assert [sent.host for sent in server.requests if sent.name == "connect"] == ["b", zk.server[0]]


@in_virtual_time
@pytest.mark.parametrize("when", ["while it is opened", "once it is opened"])
async def test_a_connection_that_breaks_at_once_is_followed_by_another(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()

    async def open_link(make: Callable[[], Link], host: str, port: int) -> Link:
        if host == "a" and when == "while it is opened":
            make()
            raise TimeoutError(when)
        link = await server.open_link(make, host, port)
        if host == "a":
            server.drop(TimeoutError(when))
        return link

    async with zkwire.connect("a,b", open_link=open_link, rng=InOrder(1)) as zk:
        assert zk.server == "b:2181"
    assert f"no session with a:2181: TimeoutError: {when}" in caplog.messages


@in_virtual_time
async def test_a_session_that_begins_in_the_last_moment_of_an_attempt_is_kept() -> None:
    """The event loop is blocked: it sees the answer and the end of the attempt in one turn."""
    server, blocked = Server(), iter([0.0, 6.0])

    def latency() -> float:
        block(next(blocked, 0.0))
        return 0.0

    server.latency = latency
    async with zkwire.connect("a,b", open_link=server.open_link) as zk:
        await zk.ping()
        assert server.names("ping", "sync") == ["connect", "connect"]
        assert list(server.machine.sessions.by_id) == [zk.session_id]


@in_virtual_time
async def test_an_attempt_to_begin_a_session_takes_up_to_a_second_however_short_the_session_is_to_be() -> None:
    server = Server()
    server.latency = lambda: 0.4
    async with zkwire.connect("a", 0.01, open_link=server.open_link) as zk:
        assert zk.session_timeout == 4.0


# -- credentials ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_what_arrives_behind_the_refusal_of_a_credential_fails_with_the_session() -> None:
    """In one read: the watch of the read after it would never fire."""
    async with a_client() as (server, zk):
        server.strike = lambda wire, sent: -115 if sent.name == "auth" else None
        server.is_holding = True
        adding = asyncio.ensure_future(zk.add_auth("digest", b"u:p"))
        reading = await begun(zk.exists_and_watch("/a"))
        server.release()
        session_id = zk.session_id
        for task in (adding, reading):
            with pytest.raises(AuthFailedError) as failed:
                await task
            assert str(failed.value).startswith(
                f"a:2181 refuses the credential of scheme 'digest'; session {session_id:#x} is left to expire"
            )
        assert zk.state is AUTH_FAILED
        assert len(zk._session.requests.watches) == 0
        with pytest.raises(AuthFailedError):
            await zk.add_auth("digest", b"u:p")


@in_virtual_time
async def test_a_server_that_demands_an_authentication_ends_the_session(caplog: pytest.LogCaptureFixture) -> None:
    async with a_client() as (server, zk):
        server.strike = lambda wire, sent: zkwire.AuthenticationRequiredError.code if sent.name == "getData" else None
        with pytest.raises(AuthFailedError, match="a:2181 demands an authentication before getData: see `auth`"):
            await zk.get("/")
        assert zk.state is AUTH_FAILED
        assert "demands an authentication before getData" in caplog.text


@in_virtual_time
@pytest.mark.parametrize(("is_refused", "seconds"), [(True, 0.0), (False, 20.0)])
async def test_one_look_ends_with_its_round_or_in_two_timeouts_if_the_server_ignores_a_credential(
    is_refused: bool, seconds: float
) -> None:
    server = Server()
    server.refused = {"a"} if is_refused else set()
    server.strike = lambda wire, sent: False if sent.name == "auth" else None
    with pytest.raises(TimeoutError, match="no session in one round: a:2181: "):
        await zkwire.connect("a", 10.0, within=0, auth=[("digest", b"u:p")], open_link=server.open_link)
    assert now() == pytest.approx(seconds, abs=0.1)
    assert not server.machine.sessions.by_id


@in_virtual_time
async def test_a_credential_whose_caller_is_cancelled_is_shown_only_if_it_was_sent() -> None:
    async with a_client(max_in_flight=1) as (server, zk):
        server.is_holding = True
        for request in (zk.add_auth("digest", b"u:p"), zk.get("/"), zk.add_auth("digest", b"t:p")):
            await given_up(request)
        server.release()
        await zk.ping()
        await server.cut_off(zk)
        await given_up(zk.add_auth("digest", b"v:p"))
        server.refused = set()
        await zk.ping()
        assert server.names() == ["auth", "getData", "ping", "connect", "auth", "ping"]


# -- the end ----------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize(("has_server", "seconds"), [(True, 0.0), (False, 1.0)])
async def test_a_client_whose_task_is_cancelled_from_outside_is_closed(has_server: bool, seconds: float) -> None:
    async with a_client() as (server, zk):
        if not has_server:
            await server.cut_off(zk)
        removed = zk.discard("/a")
        (runner,) = tasks("zkwire session")
        runner.cancel()
        start = now()
        await asyncio.wait({runner})
        assert now() - start == pytest.approx(seconds, abs=0.01)
        assert runner.cancelled()
        assert zk.state is CLOSED
        assert removed.done()
        assert server.names("connect", "multi") == ["delete", "closeSession"] * has_server
        with pytest.raises(SessionClosedError, match="the client is closed"):
            await zk.get("/a")


@in_virtual_time
async def test_a_client_whose_task_is_cancelled_from_outside_before_it_has_a_session_says_so() -> None:
    server = Server()
    server.refused = {"a"}
    connecting = await begun(zkwire.connect("a", within=None, open_link=server.open_link)._connect())
    tasks("zkwire session")[0].cancel()
    with pytest.raises(SessionClosedError, match="was cancelled from outside"):
        await connecting


@in_virtual_time
@pytest.mark.parametrize(("keep_session", "last"), [(False, "closeSession"), (True, "ping")])
async def test_closing_asks_for_the_end_once_and_waits_for_its_answer(keep_session: bool, last: str) -> None:
    async with a_client() as (server, zk):
        await zk.create("/e", ephemeral=True)
        _, watch = await zk.exists_and_watch("/e")
        server.is_holding = True
        reading = asyncio.ensure_future(zk.get("/e"))
        await server.until("getData")
        certain = zk.certain_until
        closing = [asyncio.ensure_future(zk.close(keep_session=keep_session)) for _ in range(2)]
        await asyncio.sleep(1.0)
        watch.cancel()
        assert server.names() == ["create", "exists", "getData", last]
        assert not [task for task in [reading, *closing] if task.done()]
        # A session that is about to end is not certain any more.
        assert zk.certain_until == (certain if keep_session else float("-inf"))
        with pytest.raises(SessionClosedError):
            await zk.ping()
        assert zk.state is CONNECTED
        server.release()
        await asyncio.gather(reading, *closing)
        assert zk.state is CLOSED
        assert zk.certain_until == float("-inf")
        assert len(server.machine.sessions.by_id) == keep_session


@in_virtual_time
@pytest.mark.parametrize(
    ("timeout", "silent_for", "within", "seconds"),
    [(10.0, 0.0, None, 2.0), (10.0, 0.0, 0.5, 0.5), (10.0, 0.0, 60.0, 2.0), (600.0, 15.0, None, 0.5)],
)
@pytest.mark.parametrize("is_connected", [True, False])
async def test_closing_gives_up_when_no_server_is_heard_and_sooner_if_none_was_heard_for_long_before(
    timeout: float, silent_for: float, within: float | None, seconds: float, is_connected: bool
) -> None:
    """A service ends within five seconds although the ensemble is down, also if it leaves two clients in turn."""
    async with a_client(timeout=timeout) as (server, zk):
        await asyncio.sleep(20.0)
        server.is_silent = True
        reading = asyncio.ensure_future(zk.get("/"))  # the server owes an answer from now on
        await turns()
        if not is_connected:
            await server.cut_off(zk)
        await asyncio.sleep(silent_for)
        start = now()
        await zk.close(within=within)
        assert now() - start == pytest.approx(seconds, abs=0.02)
        assert zk.state is CLOSED
        with pytest.raises(SessionClosedError):
            await reading
        server.is_silent = False


@in_virtual_time
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_no_task_of_a_closed_client_is_left_also_if_its_close_is_cancelled(times: int) -> None:
    async with a_client() as (server, zk):
        server.is_silent = True
        closing, second = asyncio.ensure_future(zk.close()), asyncio.ensure_future(zk.close())
        await turns()
        for _ in range(times):
            closing.cancel()
            await turns(1)
        await asyncio.wait({closing})
        assert closing.cancelled()
        await second
        assert tasks("zkwire session") == []
        assert zk.state is CLOSED
        server.is_silent = False
