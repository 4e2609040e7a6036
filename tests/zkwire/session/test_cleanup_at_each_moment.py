"""The searches of the clean-up in virtual time: what they send, whose nodes they spare, and when they end."""

import asyncio
import gc
from typing import Any

import pytest

import zkwire
from tests.support.client import begun, cancelled, given_up, turns
from tests.support.observer import Records
from tests.support.recipes import outcome
from tests.support.virtual_time import Sent, Server, Wire, a_client, cleaned_up, in_virtual_time, tasks
from zkwire import Client, SessionState, ThrottledError


def throttled(*operations: str, path: str | None = None) -> Any:
    """Return a `strike` that refuses these operations for the moment, on `path` or on every node."""

    def strike(wire: Wire, sent: Sent) -> int | None:
        return ThrottledError.code if sent.name in operations and path in (None, sent.path) else None

    return strike


async def lose_a_create(server: Server, zk: Client, path: str, *, sequential: bool, carried_out: bool = True) -> None:
    """Send the create of an ephemeral node, cancel its caller, and lose the answer with the connection."""
    if carried_out:
        server.is_holding = True
    else:
        server.strike = lambda wire, sent: False if sent.name == "create" else None
    await given_up(zk.create(path, ephemeral=True, sequential=sequential))
    server.drop_held()
    server.strike = lambda wire, sent: None
    await turns(1)


def how_many(*classes: str) -> int:
    """Return how many objects of these classes are kept."""
    gc.collect()
    return sum(type(each).__name__ in classes for each in gc.get_objects())


@in_virtual_time
@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize(("ttl", "name"), [(None, "create"), (60.0, "createTTL")])
async def test_after_a_cancelled_create_of_a_node_that_is_not_ephemeral_nothing_is_asked(
    ttl: float | None, name: str, is_answered: bool
) -> None:
    """Others may use it by then.  The flags of a node with a time to live look like an ephemeral one's."""
    async with a_client() as (server, zk):
        server.is_holding = True
        await given_up(zk.create("/a", ttl=ttl))
        if not is_answered:
            server.drop_held()
        server.release()
        for _ in range(3):
            await zk.ping()
        assert server.names("ping") == [name] + ["connect", "multi"] * (not is_answered)
        assert await zk.exists("/a") is not None


# -- searches ---------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("sequential", [True, False])
async def test_a_search_removes_the_node_asks_behind_a_sync_and_leaves_no_watch(sequential: bool) -> None:
    seen = Records()
    async with a_client(observer=seen) as (server, zk):
        await zk.create("/p")
        kept = await zk.create("/p/n-", ephemeral=True, sequential=True)
        server.names()
        await lose_a_create(server, zk, "/p/n-", sequential=sequential)
        await cleaned_up(zk)
        create, connect, proof, *asked = [(sent.name, sent.path) for sent in server.requests]
        assert (create, connect, proof) == (("create", "/p/n-"), ("connect", None), ("multi", None))
        if sequential:
            lost = "/p/n-0000000001"
            assert asked[:2] == [("sync", "/p"), ("getChildren", "/p")]
            assert sorted(asked[2:4]) == [("exists", kept), ("exists", lost)]
            assert asked[4:] == [("exists", lost), ("delete", lost)]
        else:
            lost = "/p/n-"
            assert asked == [("sync", "/p"), *[("exists", lost)] * 2, ("delete", lost)]
        await zk.create(lost)
        await zk.delete(lost)
        await zk.delete(kept)
        assert await zk.get_children("/p") == []
        assert seen.events == []


@in_virtual_time
@pytest.mark.parametrize("sequential", [True, False])
async def test_a_search_spares_newer_nodes_of_others_and_names_that_are_no_numbers(sequential: bool) -> None:
    """The lost create may have been refused, and another client may have made the node that is there."""
    async with a_client() as (server, zk), zkwire.connect("c", open_link=server.open_link) as other:
        await zk.create("/p")
        path = "/p/n-" if sequential else "/p/n-0000000007"
        # Some end in a number as the server writes it, and the others in what only looks like one.
        names = ["n-0000000007", "n--1000000000", "n--000000001", "n--0000000001", "n-10000000000"]
        names += ["n-abcdefghij", "n-00000x0001", "n-+000000001", "n-" + "\u0661" * 10, "n-0000000001x", "n"]
        server.is_holding = True
        made = [asyncio.ensure_future(other.create(f"/p/{name}", ephemeral=True)) for name in names]
        await given_up(zk.create(path, ephemeral=True, sequential=sequential))
        server.wires[0].lose(None)
        server.release()
        await asyncio.gather(*made)
        await cleaned_up(zk)
        assert server.names().count("delete") == sequential
        assert sorted(await zk.get_children("/p")) == sorted(names)


@in_virtual_time
@pytest.mark.parametrize(("sequential", "carried_out"), [(True, True), (True, False), (False, False)])
async def test_a_search_spares_the_node_of_a_create_that_waited_in_a_queue(sequential: bool, carried_out: bool) -> None:
    """The second create waits in the queue when the first is cut off; the search must be sent before it."""
    async with a_client(max_in_flight=1) as (server, zk):
        await zk.create("/p")
        server.is_holding = carried_out
        server.strike = lambda wire, sent: None if carried_out else False
        lost, again = (
            asyncio.ensure_future(zk.create("/p/n-", ephemeral=True, sequential=sequential)) for _ in range(2)
        )
        await turns()
        await cancelled(lost)
        server.drop_held()
        server.strike = throttled()
        made = await again
        await cleaned_up(zk)
        assert await zk.get_children("/p") == [made.rpartition("/")[2]]
        assert server.names().count("delete") == carried_out


@in_virtual_time
async def test_a_search_spares_lost_nodes_of_other_prefixes() -> None:
    """The creates that were not cancelled fail, and their callers are to look for the nodes."""
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.is_holding = True
        *wanted, doomed = (
            asyncio.ensure_future(zk.create(f"/p/{prefix}", ephemeral=True, sequential=True))
            for prefix in ("n-x-", "n-1", "n--", "n-")
        )
        await turns()
        await cancelled(doomed)
        server.drop_held()
        for create in wanted:
            with pytest.raises(zkwire.ConnectionLostError):
                await create
        await cleaned_up(zk)
        assert sorted(await zk.get_children("/p")) == ["n--0000000002", "n-10000000001", "n-x-0000000000"]


@in_virtual_time
async def test_a_search_finds_a_node_whose_number_is_negative() -> None:
    """Servers before 3.6 count past the largest number of 32 bits."""
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.is_holding = True
        creating = [asyncio.ensure_future(zk.create("/p/n-", ephemeral=True, sequential=True)) for _ in range(3)]
        server.strike = lambda wire, sent: False if sent.name == "create" else None
        await turns()
        await asyncio.gather(*map(cancelled, creating))
        thief = zkwire.connect(
            "c", open_link=server.open_link, session_id=zk.session_id, session_password=zk.session_password
        )
        server.drop_held()
        server.strike = lambda wire, sent: None
        server.refused = {"a", "b"}
        other = await thief
        for name in ("n--1999999999", "n--000000002"):
            await other.create(f"/p/{name}", ephemeral=True)
        await other.close(keep_session=True)
        server.refused = set()
        await server.until("delete", 2)
        await zk.ping()
        assert await zk.get_children("/p") == []


@in_virtual_time
@pytest.mark.parametrize(("sequential", "operation"), [(True, "exists"), (True, "getChildren"), (False, "exists")])
async def test_a_search_is_repeated_each_tenth_of_a_second_if_it_is_refused_for_the_moment_and_else_reported(
    sequential: bool, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.names()
        await lose_a_create(server, zk, "/p/n-", sequential=sequential)
        server.strike = throttled(operation)
        await server.until(operation, 3)
        server.strike = throttled()
        await server.until("delete")
        times = [sent.at for sent in server.requests if sent.name == operation][:4]
        assert [later - times[0] for later in times] == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=0.01)
        await zk.ping()
        assert await zk.get_children("/p") == []
        await lose_a_create(server, zk, "/p/n-", sequential=sequential)
        server.strike = lambda wire, sent: zkwire.NoAuthError.code if sent.name == operation else None
        await cleaned_up(zk)
        (report,) = [text for text in caplog.messages if "cannot look for the node" in text]
        assert "that a cancelled create of /p/n- left: " in report


def behind_and_overloaded(wire: Wire, sent: Sent) -> int | None:
    """Refuse each sync, and know nothing of the node that is asked for."""
    if sent.name == "sync":
        return ThrottledError.code
    return zkwire.NoNodeError.code if sent.name in ("exists", "getChildren") else None


@in_virtual_time
@pytest.mark.parametrize("sequential", [False, True])
async def test_a_search_believes_no_answer_behind_a_refused_sync_pitfall_10(
    sequential: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal itself is out of date, too: its zxid is older than the lost create."""
    async with a_client() as (server, zk):
        await zk.create("/p")
        reply = server.machine.reply

        def stale(connection: Any, xid: int, zxid: int, code: int = 0, *body: Any) -> None:
            reply(connection, xid, 1 if code else zxid, code, *body)

        monkeypatch.setattr(server.machine, "reply", stale)
        await lose_a_create(server, zk, "/p/n-", sequential=sequential)
        server.names()
        server.strike = behind_and_overloaded
        await server.until("sync", 2)
        server.strike = throttled()
        await server.until("delete")
        await zk.ping()
        assert await zk.get_children("/p") == []


@in_virtual_time
@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_search_that_is_refused_spares_nodes_that_callers_have_got_meanwhile(carried_out: bool) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        await lose_a_create(server, zk, "/p/n-", sequential=True, carried_out=carried_out)
        server.names()
        server.strike = throttled("sync")
        await server.until("sync")
        made = [await zk.create("/p/n-", ephemeral=True, sequential=True) for _ in range(2)]
        server.strike = throttled()
        await cleaned_up(zk)
        assert sorted(await zk.get_children("/p")) == [each.rpartition("/")[2] for each in made]
        assert server.names().count("delete") == carried_out


@in_virtual_time
@pytest.mark.parametrize("how", ["closed", "closing in a pause", "answered", "expired", "expired in a pause"])
async def test_a_search_ends_with_its_session_and_is_silent(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.strike = throttled("getChildren")
        await lose_a_create(server, zk, "/p/n-", sequential=True, carried_out=how != "answered")
        server.strike = throttled("getChildren")
        await server.until("getChildren")
        old = zk.session_id
        if "expired" not in how:
            server.is_holding = how != "closed"
            if how == "answered":  # in the read that ends the session
                server.strike = lambda wire, sent: -115 if sent.name == "auth" else None
                await server.until("getChildren", 2)
                adding = await begun(zk.add_auth("digest", b"u:p"))
                server.release()
                assert isinstance(await outcome(adding), zkwire.AuthFailedError)
            await zk.close()
            gc.collect()  # the task of a search that has failed
            assert not [task for task in asyncio.all_tasks() if "_Search" in repr(task.get_coro())]
        else:
            if how == "expired":
                server.is_silent = True
                await asyncio.sleep(0.3)  # the search has asked again, and nothing is answered
            server.machine.expire(old)
            server.drop()
            server.strike = throttled()
            server.is_silent = False
            async for state in zk.states():
                if state is SessionState.CONNECTED and zk.session_id != old:
                    break
            assert not zk._session.requests.is_cleaning_up
            server.names()
            await asyncio.sleep(1.0)
            assert server.names("ping") == []
        assert "a cancelled create" not in caplog.text


@in_virtual_time
async def test_no_search_begins_once_the_client_is_being_closed() -> None:
    """The end of the session removes the node."""
    async with a_client() as (server, zk):
        server.is_holding = True
        await given_up(zk.create("/a", ephemeral=True))
        closing = await begun(zk.close())
        server.drop_held()
        await closing
        assert server.names() == ["create", "closeSession", "connect"]
        assert tasks("zkwire session") == []
