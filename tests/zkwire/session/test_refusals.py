"""Refusals of a server, failures and cancellations of callers, and changes of the list of servers."""

import asyncio

import pytest

import zkwire
from tests.support.client import InOrder, begun, cancelled, turns
from tests.support.virtual_time import Server, a_client, in_virtual_time

# -- refusals -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_answer_that_the_session_has_expired_ends_certainty() -> None:
    """The next handshake shows whether the session has expired: here it has not."""
    async with a_client() as (server, zk):
        seen: list[float] = []
        zk.on_uncertain.add(lambda: seen.append(zk.certain_for(zk.session_id)))
        session_id = zk.session_id
        server.strike = lambda wire, sent: -112 if sent.name == "setData" else None
        with pytest.raises(zkwire.ConnectionLostError):
            await zk.set("/a", b"")
        await turns()
        assert seen == [0.0]
        await zk.certify()
        assert zk.certain_for(session_id) > 0


# -- callers ------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("between_servers", [False, True])
async def test_giving_up_the_resumption_of_a_session_does_not_end_it(between_servers: bool) -> None:
    async with a_client() as (server, zk):
        session_id, password = zk.session_id, zk.session_password
        await zk.close(keep_session=True)
        server.strike = lambda wire, sent: False if sent.name == "auth" else None
        server.names()
        resuming = zkwire.connect(
            "a", session_id=session_id, session_password=password, auth=[("digest", b"a:b")], open_link=server.open_link
        )
        server.refused = {"a"} if between_servers else set()
        task = asyncio.ensure_future(resuming._connect())
        if between_servers:  # as `asyncio.run` does at its end
            await turns()
            server.refused = set()
            await cancelled(*(each for each in asyncio.all_tasks() if each.get_name() == "zkwire session"))
        else:
            await server.until("auth")
        await cancelled(task)
        assert "closeSession" not in server.names()
        assert session_id in server.machine.sessions.by_id


# -- a client that gives up before a server has answered ---------------------------------------------------------------


@in_virtual_time
async def test_an_answer_to_an_attempt_that_was_given_up_begins_no_session() -> None:
    server = Server()
    server.is_silent = True
    connecting = await begun(zkwire.connect("a,b", open_link=server.open_link, rng=InOrder(1))._connect())
    while len(server.writes) < 2:
        await asyncio.sleep(0.001)
    server.go_on()  # of both requests, the handshake and the end of the session
    async with await connecting as zk:
        assert server.names() == ["connect", "closeSession", "connect"]
        assert [*server.machine.sessions.by_id] == [zk.session_id]
