"""Nodes with a time to live (TTL)."""

import asyncio
from typing import Any

import pytest

import zkwire
from tests.support.client import Server, cancelled, sending_nothing
from tests.support.proxy import Proxy
from zkwire import Client, Create, Stat

LONGEST = (2**40 - 1) / 1000


async def test_a_ttl_node_looks_like_a_persistent_node(proxy: Proxy, zk: Client, path: str) -> None:
    mark = proxy.mark()
    assert await zk.create(path, b"data", ttl=60.0) == path
    assert proxy.requests(mark) == ["createTTL"]
    data, stat = await zk.get(path)
    assert (data, stat.ephemeral_owner) == (b"data", 0)
    assert await zk.create(f"{path}/child") == f"{path}/child"


async def test_a_ttl_node_may_be_sequential(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    assert await app.create("/n-", ttl=60, sequential=True) == "/n-0000000000"
    made, stat = await app.create_and_stat("/", ttl=60, sequential=True)
    assert (made, stat) == ("/0000000001", await zk.exists(f"{path}/0000000001"))


async def test_transactions_and_pipelines_can_create_ttl_nodes(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    async with app.transaction() as tx:
        tx.create("/a", b"1", ttl=60)
        tx.create("/a/n-", ttl=60, sequential=True)
        tx.create("/b", ttl=0.001)
    assert tx.results == ["/a", "/a/n-0000000000", "/b"]
    made, refused = await app.pipeline([Create("/c", ttl=60), Create("/a", ttl=60)])
    assert made == ("/c", await zk.exists(f"{path}/c"))
    assert isinstance(refused, zkwire.NodeExistsError)
    assert refused.path == "/a"


async def test_parents_of_a_ttl_node_are_persistent(proxy: Proxy, zk: Client, path: str) -> None:
    mark = proxy.mark()
    await zk.create(f"{path}/a/b", ttl=60, make_parents=True)
    assert proxy.requests(mark) == ["createTTL", "exists", "exists", "create", "create", "createTTL"]


@pytest.mark.parametrize("ttl", [0.001, 0.0014, 1, 1.5, LONGEST, 2**40 // 1000])
async def test_the_server_accepts_the_shortest_and_the_longest_ttl(zk: Client, path: str, ttl: float) -> None:
    assert isinstance((await zk.create_and_stat(path, ttl=ttl))[1], Stat)


@pytest.mark.parametrize(
    "ttl",
    [0, -0.0, -1, 0.0009, *map(float, ["nan", "inf", "-inf"]), LONGEST + 0.001, 2**40, 10**400, "5", b"5", True, [5]],
)
async def test_a_bad_ttl_is_refused_and_nothing_is_sent(server: Server, path: str, ttl: Any) -> None:
    async with sending_nothing(server) as zk:
        with pytest.raises((ValueError, TypeError)) as refused:
            await zk.create(path, ttl=ttl)
        shown = repr(ttl) if refused.type is ValueError else type(ttl).__name__
        assert str(refused.value).endswith(f"not {shown}")
        with pytest.raises((ValueError, TypeError)):
            await zk.create_and_stat(path, ttl=ttl)
        with pytest.raises((ValueError, TypeError)):
            await zk.pipeline([Create(path, ttl=ttl)])
        with pytest.raises((ValueError, TypeError)):
            zk.transaction().create(path, ttl=ttl)


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_ttl_node_of_a_cancelled_create_stays_and_its_clean_up_deletes_no_other_node(
    proxy: Proxy, zk: Client, path: str, sequential: bool, is_lost: bool
) -> None:
    """Pitfall 72: another client may have written into it by then; its time to live ends it.

    The mode of a TTL node is a number of its own, not a sum of the flags for ephemeral and sequential nodes.
    """
    await zk.create(path)
    await zk.create(f"{path}/n0000000009", ephemeral=True)
    mark = proxy.mark()
    hold = proxy.hold_replies()
    task = asyncio.create_task(zk.create(f"{path}/n", ttl=60, sequential=sequential))
    await proxy.seen("createTTL", direction="reply")
    await cancelled(task)
    if is_lost:
        proxy.drop()
    hold.release()
    await zk.ping()
    await zk.ping()
    assert set(proxy.requests(mark)) <= {"createTTL", "connect"}
    names = await zk.get_children(path)
    assert "n0000000009" in names
    assert len(names) == 2
