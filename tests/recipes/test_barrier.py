"""The barrier: tasks wait while its node exists, and go on once it was removed, whatever happens in between."""

import asyncio

import pytest

import zkwire
from recipes import Barrier
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import outcome, until, until_armed, until_state, until_watches
from zkwire import SessionState
from zkwire.testing import RealServer


async def test_waiting_tasks_go_on_when_the_barrier_is_removed(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        barrier = Barrier(zk, f"{path}/a/b")
        await barrier.wait()
        await barrier.create()
        await barrier.create()
        waiting = [asyncio.create_task(Barrier(zk2, barrier.path).wait(within=30)) for _ in range(3)]
        await until_watches(zookeeper, 1)
        assert not any(task.done() for task in waiting)
        await zk.set(barrier.path, b"another value")
        await until_watches(zookeeper, 1)
        assert not any(task.done() for task in waiting)
        await barrier.remove()
        await asyncio.gather(*waiting)
        await barrier.remove()
        assert await zk.get_children(f"{path}/a") == []
        await until_watches(zookeeper, 0)


async def test_a_wait_can_be_limited(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        barrier = Barrier(zk, path)
        await barrier.wait(within=0)  # one look finds no barrier
        await barrier.create()
        for within in (0, 0.02):
            with pytest.raises(TimeoutError, match=f"{path} was not removed within"):
                await barrier.wait(within=within)
        await until_watches(zookeeper, 0)
        for bad in (-1, True, "1"):
            with pytest.raises((ValueError, TypeError), match="within"):
                await barrier.wait(within=bad)  # type: ignore[arg-type]


async def test_create_wait_and_remove_cost_one_request_each(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        barrier = Barrier(zk, path)
        start = proxy.mark()
        await barrier.create()
        waiting = asyncio.create_task(barrier.wait())
        await until_watches(zookeeper, 1)
        await barrier.remove()
        await waiting
        assert proxy.requests(start) == ["multi", "getData", "delete", "getData"]


async def test_a_cancelled_create_does_not_remove_the_barrier_of_another_client() -> None:
    async with scene() as stage:
        with stage.server.hold_replies(path="/b", session=stage.zk.session_id) as held:
            creating = asyncio.create_task(Barrier(stage.zk, "/b").create())
            await held.until_hit()
            await Barrier(stage.other, "/b").create()
            creating.cancel()
            await outcome(creating)
        await stage.zk.ping()
        await stage.zk.ping()  # answered after every request that the cancelled create may have caused
        assert await stage.other.exists("/b") is not None


@pytest.mark.parametrize("created_again", [False, True])
async def test_a_wait_ends_if_the_barrier_was_removed_during_a_disconnection(created_again: bool) -> None:
    async with scene() as stage:
        await Barrier(stage.other, "/b").create()
        waiting = asyncio.create_task(Barrier(stage.zk, "/b").wait())
        await until_armed(1, stage.zk)
        refusal = stage.server.refuse_connections()
        stage.server.drop(stage.zk.session_id)
        await until_state(stage.zk, SessionState.SUSPENDED)
        await Barrier(stage.other, "/b").remove()
        if created_again:
            await Barrier(stage.other, "/b").create()
        refusal.end()
        await waiting
        await no_watch_stays(stage.server.hosts)


async def test_a_wait_goes_on_in_the_next_session() -> None:
    async with scene() as stage:
        await Barrier(stage.other, "/b").create()
        waiting = asyncio.create_task(Barrier(stage.zk, "/b").wait())
        await until_armed(1, stage.zk)
        stage.server.expire(stage.zk.session_id)
        await until(lambda: stage.zk.state is SessionState.CONNECTED and len(stage.zk._session.requests.watches) == 1)
        assert not waiting.done()
        await Barrier(stage.other, "/b").remove()
        await waiting


async def test_a_wait_fails_when_an_expired_session_is_not_renewed() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as zk:
        await Barrier(zk, "/b").create()
        waiting = asyncio.create_task(Barrier(zk, "/b").wait())
        await until_armed(1, zk)
        stage.server.expire(zk.session_id)
        with pytest.raises(zkwire.SessionExpiredError):
            await waiting


async def pass_a_barrier(stage: Scene) -> None:
    barrier = Barrier(stage.zk, stage.path)
    await barrier.create()
    waiting = asyncio.create_task(barrier.wait())
    try:
        await stage.zk.ping()
        await barrier.remove()
        await waiting
    finally:
        waiting.cancel()
        await outcome(waiting)


async def test_the_connection_is_cut_at_every_request() -> None:
    await cut_at_every_step(pass_a_barrier, at_least=3)


async def test_the_task_is_cancelled_at_every_moment() -> None:
    await cancel_at_every_moment(pass_a_barrier, afterwards=pass_a_barrier, at_least=5)


# -- other clients' nodes ---------------------------------------------------------------------------------------------


async def test_a_barrier_is_removed_with_the_nodes_that_other_clients_have_put_below_it(
    zookeeper: RealServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as stranger:
        barrier = Barrier(zk, path, acl=zkwire.OPEN_ACL)
        await barrier.create()
        await stranger.create(f"{path}/a/b", make_parents=True)
        await barrier.remove()
        await barrier.wait(within=0)
        assert [record.getMessage() for record in caplog.records] == [
            f"a barrier: {path} has nodes below it, which are removed with it"
        ]


async def test_an_ephemeral_node_is_no_barrier(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as stranger:
        await stranger.create(path, ephemeral=True)
        with pytest.raises(zkwire.NodeExistsError, match="it is ephemeral, and so it is not a barrier"):
            await Barrier(zk, path).create()
