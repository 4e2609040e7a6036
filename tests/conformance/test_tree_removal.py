"""Client.delete_tree deletes a tree, whatever other clients do to it meanwhile."""

import asyncio
from typing import Any

import pytest

import zkwire
from tests.support.client import Server, cancelled, sending_nothing
from tests.support.proxy import Proxy
from zkwire import Client, Create


async def plant(zk: Client, path: str) -> None:
    """Create a tree of several levels, with nodes of every kind."""
    await zk.pipeline(
        [
            Create(path),
            Create(f"{path}/a"),
            Create(f"{path}/a/b", b"data"),
            Create(f"{path}/a/b/c"),
            Create(f"{path}/a/n-", sequential=True, ephemeral=True),
            Create(f"{path}/box", container=True),
            Create(f"{path}/box/x"),
            Create(f"{path}/ttl", ttl=60),
            Create(f"{path}/ttl/x", ephemeral=True),
        ]
    )


async def test_the_node_and_all_nodes_below_it_are_deleted_and_no_others(zk: Client, path: str) -> None:
    await plant(zk, path)
    await zk.create(f"{path}-neighbour")
    await zk.delete_tree(f"{path}/a")
    assert sorted(await zk.get_children(path)) == ["box", "ttl"]
    await zk.delete_tree(path)
    assert await zk.exists(path) is None
    assert await zk.exists(f"{path}-neighbour") is not None


async def test_a_node_without_children_is_deleted(proxy: Proxy, zk: Client, path: str) -> None:
    await zk.create(path)
    mark = proxy.mark()
    await zk.delete_tree(path)
    assert proxy.requests(mark) == ["getChildren2", "multi"]
    assert await zk.exists(path) is None


async def test_a_tree_below_a_chroot_and_the_chroot_itself_are_deleted(zk: Client, path: str, app: Client) -> None:
    await plant(zk, path)
    await app.delete_tree("/a")
    assert await zk.exists(f"{path}/a") is None
    with pytest.raises(zkwire.NoNodeError) as refused:
        await app.delete_tree("/a")
    assert refused.value.path == "/a"
    await app.delete_tree("/")
    assert await zk.exists(path) is None


@pytest.mark.parametrize("bad", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "a", "/a/", None, 5])
async def test_the_nodes_that_no_server_deletes_are_refused_and_nothing_is_sent(server: Server, bad: Any) -> None:
    async with sending_nothing(server) as zk:
        with pytest.raises((ValueError, TypeError)) as refused:
            await zk.delete_tree(bad)
        assert str(bad) in str(refused.value)


async def test_ten_thousand_nodes_are_deleted_in_a_few_transactions(proxy: Proxy, zk: Client, path: str) -> None:
    await zk.create(path)
    for ten in range(10):
        async with zk.transaction() as tx:
            tx.create(f"{path}/{ten}")
            for number in range(999):
                tx.create(f"{path}/{ten}/a-node-with-a-name-{number}")
    mark = proxy.mark()
    await zk.delete_tree(path)
    requests = proxy.requests(mark)
    assert requests.count("multi") == 11
    assert set(requests) - {"sync"} == {"getChildren2", "getChildren", "multi"}  # but for the keepalive
    assert await zk.exists(path) is None


async def test_a_deep_tree_is_deleted(zk: Client, path: str) -> None:
    await zk.ensure_path(path + "/d" * 200)
    await zk.delete_tree(path)
    assert await zk.exists(path) is None


async def test_several_clients_may_delete_the_same_tree_at_the_same_time(zk: Client, other: Client, path: str) -> None:
    await zk.create(path)
    for part in range(3):
        await zk.pipeline([Create(f"{path}/{part}"), *[Create(f"{path}/{part}/{n}") for n in range(300)]])
    outcomes = await asyncio.gather(
        *(client.delete_tree(path) for client in (zk, other, zk, other)), return_exceptions=True
    )
    assert None in outcomes
    assert all(outcome is None or isinstance(outcome, zkwire.NoNodeError) for outcome in outcomes)
    assert await zk.exists(path) is None


async def test_nodes_deleted_and_created_do_not_stop_it(proxy: Proxy, zk: Client, other: Client, path: str) -> None:
    await plant(zk, path)
    hold = proxy.hold_replies()  # so that the tree is listed before another client changes it
    task = asyncio.create_task(zk.delete_tree(path))
    await proxy.seen("getChildren2", direction="reply")
    await other.delete_tree(f"{path}/a/b")
    hold.release()
    await proxy.seen("getChildren", direction="reply")
    await other.create(f"{path}/box/late", make_parents=True)
    await task
    assert await zk.exists(path) is None


async def test_a_new_tree_at_the_path_of_a_deleted_one_stays(
    proxy: Proxy, zk: Client, other: Client, path: str
) -> None:
    await zk.create(f"{path}/a", make_parents=True)
    hold = proxy.hold_replies()
    task = asyncio.create_task(zk.delete_tree(path))
    await proxy.seen("getChildren2", direction="reply")
    hold.release()
    hold = proxy.hold_replies()
    await proxy.seen("getChildren", direction="reply")
    await other.delete_tree(path)
    await other.create(f"{path}/new", make_parents=True)
    hold.release()
    await task
    assert await zk.get_children(path) == ["new"]


async def test_a_node_without_permission_to_delete_stays_and_the_error_names_it(zk: Client, path: str) -> None:
    await zk.create(path)
    await zk.create(f"{path}/open/x", make_parents=True)
    await zk.create(f"{path}/locked/x", make_parents=True)
    await zk.set_acl(f"{path}/locked", [zkwire.ACL(17, "world", "anyone")])
    with pytest.raises(zkwire.NoAuthError) as refused:
        await zk.delete_tree(path)
    assert refused.value.path == f"{path}/locked/x"
    assert await zk.get_children(path) == ["locked"]


async def test_a_node_without_permission_to_read_is_deleted_if_it_has_no_children(zk: Client, path: str) -> None:
    secret = [zkwire.digest_acl("bob", "pw")]
    await zk.create(path)
    await zk.create(f"{path}/secret", acl=secret)
    await zk.delete_tree(path)
    assert await zk.exists(path) is None
    await zk.create(path)
    await zk.create(f"{path}/secret", acl=[*secret, zkwire.ACL(20, "world", "anyone")])
    await zk.create(f"{path}/secret/x")
    with pytest.raises(zkwire.NoAuthError) as refused:
        await zk.delete_tree(path)
    assert (refused.value.path, refused.value.operation) == (f"{path}/secret", "getChildren")


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("opcode", [12, 8, 14], ids=["getChildren2", "getChildren", "multi"])
async def test_it_goes_on_after_a_lost_connection(
    proxy: Proxy, zk: Client, path: str, is_before: bool, opcode: int
) -> None:
    await plant(zk, path)
    fault = (proxy.drop_before if is_before else proxy.drop_after)(opcode)
    await zk.delete_tree(path)
    assert fault.hits == 1
    assert await zk.exists(path) is None


@pytest.mark.parametrize("opcode", ["getChildren2", "getChildren", "multi"])
async def test_it_can_be_cancelled_anywhere_and_called_again(proxy: Proxy, zk: Client, path: str, opcode: str) -> None:
    await plant(zk, path)
    await zk.create(f"{path}-neighbour")
    mark = proxy.mark()
    task = asyncio.create_task(zk.delete_tree(path))
    await proxy.seen(opcode, mark)
    assert not task.done()
    await cancelled(task)
    await zk.ping()
    asked = proxy.requests(mark)
    await zk.ping()
    assert proxy.requests(mark) == asked
    assert asked.count("multi") == (opcode == "multi")
    assert await zk.exists(f"{path}-neighbour") is not None
    if await zk.exists(path) is not None:
        await zk.delete_tree(path)
    assert await zk.exists(path) is None
