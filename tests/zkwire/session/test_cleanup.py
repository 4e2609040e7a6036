"""The removal of nodes at paths that other clients use too, and the search for nodes whose create lost its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import zkwire
from tests.support.client import cancelled, eventually, turns
from tests.support.everywhere import Scene, scene
from tests.support.proxy import Proxy
from tests.support.recipes import until, until_state
from zkwire import Client, SessionState
from zkwire.testing import RealServer


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_removal_spares_the_next_node_at_its_path(is_carried_out: bool) -> None:
    """The answer to the delete is lost; before the next attempt, another client may have created a node there."""
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        drop = stage.server.drop_after if is_carried_out else stage.server.drop_before
        with stage.server.refuse_connections() as refusing:
            with drop("delete", session=stage.zk.session_id):
                gone = stage.zk.discard("/a", newest_zxid=old.czxid)
                await until_state(stage.zk, SessionState.SUSPENDED)
            if is_carried_out:
                _, new = await stage.other.create_and_stat("/a")
            refusing.end()
        await gone
        there = await stage.other.exists("/a")
        if is_carried_out:
            assert there is not None
            assert there.czxid == new.czxid
        else:
            assert there is None


@pytest.mark.limit(10)
async def test_a_removal_syncs_before_it_looks_again() -> None:
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        with (
            stage.server.drop_after("delete", session=stage.zk.session_id),
            stage.server.hold_replies("sync", session=stage.zk.session_id) as syncing,
        ):
            gone = stage.zk.discard("/a", newest_zxid=old.czxid)
            await syncing.until_hit()
            assert not gone.done()
        await gone


async def test_removals_are_sent_in_the_order_of_the_calls() -> None:
    async with scene() as stage:
        await stage.zk.create("/a")
        first = stage.zk.discard("/a")
        creating = asyncio.ensure_future(stage.zk.create("/a"))
        await asyncio.sleep(0)
        second = stage.zk.discard("/a")
        await creating
        await asyncio.gather(first, second)
        assert await stage.other.exists("/a") is None


async def test_a_repeated_removal_comes_ahead_of_the_calls_that_wait() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, max_in_flight=1) as zk:
        await zk.create("/a")
        with stage.server.drop_after("delete", session=zk.session_id):
            gone = zk.discard("/a")
            await zk.create("/a")
            await gone
        assert await stage.other.exists("/a") is not None


# -- only what is surely ours is removed -----------------------------------------------------------------------------

PERSISTENT: dict[str, Callable[[Client], Coroutine[Any, Any, object]]] = {
    "persistent": lambda zk: zk.create("/a/n"),
    "sequential": lambda zk: zk.create("/a/n", sequential=True),
    "container": lambda zk: zk.create("/a/n", container=True),
    "with a TTL": lambda zk: zk.create("/a/n", ttl=60.0),
    "create_and_stat": lambda zk: zk.create_and_stat("/a/n"),
    "pipeline": lambda zk: zk.pipeline([zkwire.Create("/a/n")]),
    "transaction": lambda zk: transaction(zk, persistent="/a/n"),
}


async def transaction(zk: Client, *, ephemeral: str = "", sequential: str = "", persistent: str = "") -> None:
    async with zk.transaction() as tx:
        if persistent:
            tx.create(persistent)
        if ephemeral:
            tx.create(ephemeral, ephemeral=True)
        if sequential:
            tx.create(sequential, ephemeral=True, sequential=True)


async def cancelled_before_the_answer(
    stage: Scene, call: Coroutine[Any, Any, object], meanwhile: Callable[[], Awaitable[object]]
) -> None:
    """Send the request of `call`, hold its answer back, cancel it, do something `meanwhile`, and let the answer out."""
    with stage.server.hold_replies(session=stage.zk.session_id) as hold:
        task = asyncio.ensure_future(call)
        await hold.until_hit()
        await cancelled(task)
        await meanwhile()
    for _ in range(3):
        await stage.zk.sync("/")


@pytest.mark.parametrize("kind", PERSISTENT)
async def test_a_persistent_node_of_a_cancelled_create_stays_with_what_others_have_written_pitfall_72(
    kind: str,
) -> None:
    async with scene() as stage:
        await stage.other.create("/a")

        async def write() -> None:
            (name,) = await stage.other.get_children("/a")
            await stage.other.set(f"/a/{name}", b"of others")

        await cancelled_before_the_answer(stage, PERSISTENT[kind](stage.zk), write)
        (name,) = await stage.other.get_children("/a")
        assert (await stage.other.get(f"/a/{name}")).data == b"of others"


@pytest.mark.parametrize("is_ephemeral", [True, False])
@pytest.mark.parametrize("with_stat", [True, False])
async def test_another_node_in_place_of_that_of_a_cancelled_create_stays_pitfall_72(
    with_stat: bool, is_ephemeral: bool
) -> None:
    async with scene() as stage:

        async def replace() -> None:
            await stage.other.delete("/a")
            await stage.other.create("/a", b"of others", ephemeral=is_ephemeral)

        create = stage.zk.create_and_stat if with_stat else stage.zk.create
        await cancelled_before_the_answer(stage, create("/a", ephemeral=True), replace)
        assert (await stage.other.get("/a")).data == b"of others"


@pytest.mark.parametrize("how", ["answered", "lost"])
async def test_the_ephemeral_nodes_of_a_cancelled_transaction_are_removed(how: str) -> None:
    """The persistent one stays."""
    async with scene() as stage:
        await stage.other.create("/a")
        kept = await stage.zk.create("/a/s-", ephemeral=True, sequential=True)
        call = transaction(stage.zk, persistent="/a/stays", ephemeral="/a/e", sequential="/a/s-")
        if how == "answered":
            await cancelled_before_the_answer(stage, call, stage.other.ping)
        else:
            with stage.server.drop_after("multi", session=stage.zk.session_id) as lost:
                task = asyncio.ensure_future(call)
                await turns(2)
                await cancelled(task)
                await lost.until_hit()

        async def is_clean() -> bool:
            return sorted(await stage.other.get_children("/a")) == sorted([kept.removeprefix("/a/"), "stays"])

        await until(is_clean)


# -- searches and removals over lost connections, on a real server ---------------------------------------------------


async def only_the_child(zk: Client, path: str) -> None:
    async def is_so() -> bool:
        return await zk.get_children(path) == ["child"]

    await eventually(is_so)


async def test_a_search_goes_on_over_several_lost_connections_pitfall_10(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(f"{path}/child", make_parents=True)
        hold = proxy.hold_replies()
        cuts = [proxy.drop_after(opcode) for opcode in ("create", "sync", "getChildren", "exists", "delete")]
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        hold.release()
        await asyncio.gather(*(cut.until_hit() for cut in cuts))
        await only_the_child(other, path)
