"""Client.pipeline: several operations in one write, each with a result of its own."""

from typing import Any

import pytest

import zkwire
from tests.support.proxy import Proxy
from zkwire import Client, Create, GetChildren, GetData, Sync, WatchEventType, WatchSet


async def test_all_operations_leave_in_one_write_and_each_result_is_that_of_its_verb(
    proxy: Proxy, zk: Client, path: str
) -> None:
    mark = proxy.mark()
    (made, stat), (child, owned), node, names, synced = await zk.pipeline(
        [
            Create(path, b"data"),
            Create(f"{path}/n-", ephemeral=True, sequential=True),
            GetData(path),
            GetChildren(path),
            Sync(path),
        ]
    )
    assert (made, child, names, synced) == (path, f"{path}/n-0000000000", ["n-0000000000"], None)
    assert owned.ephemeral_owner == zk.session_id
    assert node.data == b"data"
    assert node.stat.czxid == stat.czxid
    assert proxy.segments(mark) == 1
    assert await zk.pipeline([]) == []


async def test_the_error_of_an_operation_is_its_result_and_stops_no_other(zk: Client, path: str) -> None:
    outcomes = await zk.pipeline([GetData(path), Create(path), Create(path), Create(f"{path}/a/b"), GetData(path)])
    assert [type(outcome) for outcome in outcomes] == [
        zkwire.NoNodeError,
        tuple,
        zkwire.NodeExistsError,
        zkwire.NoNodeError,
        zkwire.Node,
    ]
    assert [outcomes[at].path for at in (0, 2, 3)] == [path, path, f"{path}/a/b"]


async def test_paths_are_below_the_chroot(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    (made, _), refused, names = await app.pipeline([Create("/", sequential=True), Create("/a/b"), GetChildren("/")])
    assert made == "/0000000000"
    assert refused.path == "/a/b"
    assert names == ["0000000000"]


async def test_watches_are_set_by_the_reads_that_succeed(zk: Client, path: str) -> None:
    await zk.create(path)
    with WatchSet() as watches:
        await zk.pipeline(
            [GetChildren(path, into=watches), GetData(path, into=watches), GetData(f"{path}/none", into=watches)]
        )
        await zk.create(f"{path}/none")
        await zk.set(path, b"")
        assert [(event.type, event.path) for event in watches.take()] == [
            (WatchEventType.CHILDREN, path),
            (WatchEventType.CHANGED, path),
        ]


async def test_bad_operations_are_refused_and_nothing_is_sent(proxy: Proxy, zk: Client, path: str) -> None:
    strange: Any = "/a"
    bad: list[Any] = [
        strange,
        None,
        Create("a"),
        Create("/a", strange),
        Create("/a", container=True, ephemeral=True),
        Create("/a", acl=strange),
        Create("/a", bytes(1_048_575)),
        GetData("/a/"),
        GetChildren(""),
        Sync("//"),
    ]
    mark = proxy.mark()
    for operation in bad:
        with WatchSet() as watches, pytest.raises((ValueError, TypeError)):
            await zk.pipeline([Create(path), GetData(path, into=watches), operation])
    await zk.ping()
    assert set(proxy.requests(mark)) <= {"removeWatches"}
    assert await zk.exists(path) is None
