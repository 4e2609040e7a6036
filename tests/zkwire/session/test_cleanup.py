"""The removal of nodes at paths that other clients use too, and the search for nodes whose create lost its answer."""

import asyncio

import pytest

import zkwire
from tests.support.client import begun, cancelled, given_up, turns
from tests.support.everywhere import scene
from tests.support.virtual_time import Sent, Wire, a_client, cleaned_up, in_virtual_time


@pytest.mark.parametrize("how", ["answered", "silent", "dropped"])
async def test_a_node_that_a_closing_client_may_leave_is_logged(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        with stage.server.hold_replies("create", session=stage.zk.session_id) as held:
            creating = asyncio.ensure_future(stage.zk.create("/x", protected=True))
            await held.until_hit()
            creating.cancel()
            closing = asyncio.ensure_future(stage.zk.close(within=0.0 if how == "silent" else None))
            await asyncio.sleep(0)  # it begins to close before the answer comes, in any event loop
            if how == "silent":
                await closing
            if how == "dropped":
                stage.server.drop(stage.zk.session_id)
        await closing
        (left,) = set(await stage.other.get_children("/")) - {"zookeeper"}
    assert f"the node that a cancelled create of /{left} left" in caplog.text


async def test_a_repeated_removal_comes_ahead_of_the_calls_that_wait() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, max_in_flight=1) as zk:
        await zk.create("/a")
        with stage.server.drop_after("delete", session=zk.session_id):
            gone = zk.discard("/a")
            await zk.create("/a")
            await gone
        assert await stage.other.exists("/a") is not None


# -- only what is surely ours is removed -----------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("is_ephemeral", [True, False])
@pytest.mark.parametrize("with_stat", [True, False])
@pytest.mark.parametrize("is_answered", [True, False])
async def test_another_node_in_place_of_that_of_a_cancelled_create_stays_pitfall_72(
    is_answered: bool, with_stat: bool, is_ephemeral: bool
) -> None:
    async with a_client() as (server, zk), zkwire.connect("c", open_link=server.open_link) as other:
        server.is_holding = True
        creating = await begun((zk.create_and_stat if with_stat else zk.create)("/a", ephemeral=True))
        replacing = [await begun(other.delete("/a")), await begun(other.create("/a", ephemeral=is_ephemeral))]
        looking = await begun(zk.exists("/a"))
        if is_answered:
            server.release()
            await turns(1)  # the client knows the zxid of the other node, too
        await cancelled(creating)
        server.release()
        assert await looking is not None
        await asyncio.gather(*replacing)
        await cleaned_up(zk)
        assert await zk.exists("/a") is not None


@in_virtual_time
@pytest.mark.parametrize("now", ["sent", "waiting", "searched for"])
async def test_the_next_node_of_the_same_client_stays_when_its_create_is_sent_behind_the_look(now: str) -> None:
    """`now`: where it is when the clean-up has found the node of the cancelled create, and is about to delete it."""
    async with a_client(max_in_flight=1 if now == "waiting" else 1000) as (server, zk):
        server.is_holding = True
        creating = asyncio.ensure_future(zk.create("/a", ephemeral=True))
        await server.until("create")
        await cancelled(creating)
        if now == "searched for":
            server.drop()

        def strike(_: Wire, sent: Sent) -> None:
            if sent.name == "exists":
                server.is_holding, server.strike = now != "waiting", lambda *_: None

        server.strike = strike
        server.release()
        await server.until("exists")
        again = asyncio.gather(zk.delete("/a"), zk.create("/a", b"next"), zk.create("/b"), return_exceptions=True)
        if now != "waiting":
            await server.until("create", 3)
        server.release()
        assert (await again)[1] == "/a"
        while zk._session.requests.is_cleaning_up:
            await zk.ping()
        assert ((await zk.get("/a")).data, zk._session.requests.cleanup.deletes.creates) == (b"next", {})


@in_virtual_time
@pytest.mark.parametrize("is_answered", [True, False])
async def test_the_ephemeral_nodes_of_a_cancelled_transaction_are_removed(is_answered: bool) -> None:
    """The persistent one stays."""
    async with a_client() as (server, zk):
        await zk.create("/a")
        kept = await zk.create("/a/s-", ephemeral=True, sequential=True)
        transaction = zk.transaction()
        transaction.create("/a/stays")
        transaction.create("/a/e", ephemeral=True)
        transaction.create("/a/s-", ephemeral=True, sequential=True)
        server.is_holding = True
        await given_up(transaction.commit(), 2)
        if not is_answered:
            server.drop()
        server.release()
        await zk.ping()
        await cleaned_up(zk)
        assert sorted(await zk.get_children("/a")) == sorted([kept.removeprefix("/a/"), "stays"])


@in_virtual_time
async def test_a_search_goes_on_over_several_lost_connections_pitfall_10() -> None:
    async with a_client() as (server, zk):
        lost: list[str] = []

        def strike(wire: Wire, sent: Sent) -> None:
            if sent.name in ("create", "sync", "getChildren", "exists", "delete") and sent.name not in lost:
                lost.append(sent.name)
                for each in (task, *zk._session.requests.cleanup.search_tasks):  # as if all tasks were cancelled
                    each.cancel()
                server.loop.call_soon(wire.lose, None)  # when it is carried out, and before the answer is read

        server.strike = strike
        task = asyncio.ensure_future(zk.create("/n-", ephemeral=True, sequential=True))
        await server.until("delete")
        await cleaned_up(zk)
        assert lost == ["create", "sync", "getChildren", "exists", "delete"]
        assert await zk.get_children("/") == ["zookeeper"]
