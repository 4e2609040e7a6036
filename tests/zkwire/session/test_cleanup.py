"""The removal of nodes at paths that other clients use too, and the search for nodes whose create lost its answer."""

import asyncio

import pytest

import zkwire
from tests.support.everywhere import Scene, scene
from tests.support.recipes import until, until_state
from zkwire import ServerError, SessionState, ThrottledError

TRANSIENT = [
    ThrottledError,
    zkwire.NotReadOnlyError,
    zkwire.OperationTimeoutError,
    zkwire.RequestTimeoutError,
    zkwire.SystemServerError,
]


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


@pytest.mark.parametrize("refusal", TRANSIENT, ids=lambda error: error.__name__)
async def test_a_removal_goes_on_after_a_transient_refusal(refusal: type[ServerError]) -> None:
    async with scene() as stage:
        await stage.zk.create("/a")
        with stage.server.answering("delete", refusal, times=2) as refused:
            await stage.zk.discard("/a")
            assert refused.hits == 2
        assert await stage.other.exists("/a") is None


@pytest.mark.parametrize("refusal", TRANSIENT, ids=lambda error: error.__name__)
async def test_a_removal_looks_again_after_a_transient_refusal(refusal: type[ServerError]) -> None:
    """The node of another client stays."""
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        with stage.server.answering("exists", refusal, session=stage.zk.session_id, times=2) as refused:
            with stage.server.refuse_connections() as refusing:
                with stage.server.drop_after("delete", session=stage.zk.session_id):
                    gone = stage.zk.discard("/a", newest_zxid=old.czxid)
                    await until_state(stage.zk, SessionState.SUSPENDED)
                await stage.other.create("/a")
                refusing.end()
            await gone
            assert refused.hits == 2
        assert await stage.other.exists("/a") is not None


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


async def cancelled_and_cut_off(stage: Scene, path: str, *, sequential: bool) -> None:
    """Create a node, cancel the caller, and lose the answer."""
    with stage.server.drop_after("create", session=stage.zk.session_id) as lost:
        task = asyncio.create_task(stage.zk.create(path, ephemeral=True, sequential=sequential))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await lost.until_hit()
    assert task.cancelled()


@pytest.mark.parametrize(
    ("sequential", "refused"), [(True, "getChildren"), (True, "exists"), (False, "exists")], ids=str
)
async def test_a_search_goes_on_after_a_transient_refusal_pitfall_10(sequential: bool, refused: str) -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        with stage.server.answering(refused, ThrottledError, session=stage.zk.session_id, times=2) as throttled:
            await cancelled_and_cut_off(stage, "/a/n-", sequential=sequential)
            await throttled.until_hit(2)
        await until(lambda: stage.zk.state is SessionState.CONNECTED)

        async def is_empty() -> bool:
            return await stage.other.get_children("/a") == []

        await until(is_empty)


async def test_a_search_after_a_refusal_spares_nodes_made_meanwhile() -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        with stage.server.answering("getChildren", ThrottledError, session=stage.zk.session_id, times=1) as throttled:
            with stage.server.drop_before("create", session=stage.zk.session_id) as lost:
                task = asyncio.create_task(stage.zk.create("/a/n-", ephemeral=True, sequential=True))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                await lost.until_hit()
            await throttled.until_hit()
            made = await stage.zk.create("/a/n-", ephemeral=True, sequential=True)
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id, times=1) as looking:
            await looking.until_hit()
        for _ in range(3):  # what the search asks after the list
            await stage.zk.ping()
        assert await stage.other.exists(made) is not None
