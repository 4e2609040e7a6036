"""The barrier: tasks wait while its node exists, and go on once it was removed, whatever happens in between."""

import asyncio

import pytest

import zkwire
from recipes import Barrier
from tests.support.client import Server
from tests.support.everywhere import scene
from tests.support.proxy import Proxy
from tests.support.recipes import two_clients, until_watches
from zkwire.testing import RealServer


async def test_waiting_tasks_go_on_when_the_barrier_is_removed(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as zk2:
        barrier = Barrier(zk, f"{path}/a/b")
        await barrier.wait()
        await barrier.create()
        await barrier.create()
        waiting = [asyncio.create_task(Barrier(zk2, barrier.path).wait(within=30)) for _ in range(3)]
        await until_watches(each_server, 1)
        assert not any(task.done() for task in waiting)
        await zk.set(barrier.path, b"another value")
        await until_watches(each_server, 1)
        assert not any(task.done() for task in waiting)
        await barrier.remove()
        await asyncio.gather(*waiting)
        await barrier.remove()
        assert await zk.get_children(f"{path}/a") == []
        await until_watches(each_server, 0)


async def test_a_wait_can_be_limited(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk:
        barrier = Barrier(zk, path)
        await barrier.wait(within=0)  # one look finds no barrier
        await barrier.create()
        for within in (0, 0.02):
            with pytest.raises(TimeoutError, match=f"{path} was not removed within"):
                await barrier.wait(within=within)
        await until_watches(each_server, 0)
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
        assert proxy.requests(start) == ["create", "getData", "delete", "getData"]


async def test_a_barrier_that_is_removed_while_it_is_created_is_there_afterwards() -> None:
    """The server has refused the create, because the barrier stood; by the next request it is gone."""
    async with scene() as stage:
        await Barrier(stage.other, "/b").create()
        with stage.server.hold_replies("create", path="/b", session=stage.zk.session_id) as refused:
            creating = asyncio.create_task(Barrier(stage.zk, "/b").create())
            await refused.until_hit()
            await Barrier(stage.other, "/b").remove()
        await creating
        assert await stage.other.exists("/b") is not None


# -- other clients' nodes ---------------------------------------------------------------------------------------------


async def test_a_node_that_has_others_below_it_is_no_barrier_and_is_not_removed(each_server: Server, path: str) -> None:
    async with two_clients(each_server) as (zk, stranger):
        await stranger.create(f"{path}/a/b", make_parents=True)
        barrier = Barrier(zk, path)
        await barrier.create()
        with pytest.raises(zkwire.NotEmptyError, match="a barrier has no nodes below it"):
            await barrier.remove()
        assert await stranger.exists(f"{path}/a/b")


async def test_an_ephemeral_node_is_no_barrier(each_server: Server, path: str) -> None:
    async with two_clients(each_server) as (zk, stranger):
        await stranger.create(path, ephemeral=True)
        with pytest.raises(zkwire.NodeExistsError, match="it is ephemeral, and so it is not a barrier"):
            await Barrier(zk, path).create()


async def test_the_nodes_of_a_barrier_have_the_acl_that_is_given_or_only_its_creator_may_write() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"us:secret")]) as us:
        ours = [zkwire.digest_acl("us", "secret")]
        await Barrier(us, "/given/b", acl=zkwire.CREATOR_ALL_ACL).create()
        for path in ("/given", "/given/b"):
            assert (await us.get_acl(path))[0] == ours
        await Barrier(us, "/usual/b").create()
        assert (await us.get_acl("/usual"))[0] == list(zkwire.OPEN_ACL)
        await us.set("/usual/b", b"ours")
        assert (await stage.other.get("/usual/b")).data == b"ours"
        with pytest.raises(zkwire.NoAuthError):
            await stage.other.set("/usual/b", b"theirs")


async def test_a_barrier_that_stands_with_a_wider_acl_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"us:secret")]) as us:
        await stage.other.create("/b")
        await Barrier(us, "/b").create()
        assert not [text for text in caplog.messages if "acl=" in text]
        for _ in range(2):
            await Barrier(us, "/b", acl=zkwire.CREATOR_ALL_ACL).create()
        (warning,) = (text for text in caplog.messages if "acl=" in text)
        assert "/b exists with an ACL that allows more than acl= asks for: world:anyone" in warning


async def test_a_barrier_directly_below_a_missing_chroot_is_created() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as zk:
        await Barrier(zk, "/b").create()
        assert await stage.other.exists("/app/b") is not None
