"""Client.get_many: data and children of many nodes in one request."""

from typing import Any

import pytest

import zkwire
from tests.support.client import Server, sending_nothing
from tests.support.proxy import Proxy
from zkwire import Client, Create, GetChildren, GetData, Node, WatchSet


@pytest.mark.since("3.6", "multiRead")
async def test_all_reads_go_in_one_request_and_a_result_is_that_of_its_verb(
    proxy: Proxy, zk: Client, path: str
) -> None:
    await zk.pipeline([Create(path, b"data"), Create(f"{path}/a", b"1"), Create(f"{path}/b")])
    mark = proxy.mark()
    node, names, a, none = await zk.get_many(
        [GetData(path), GetChildren(path), GetData(f"{path}/a"), GetChildren(f"{path}/b")]
    )
    assert proxy.requests(mark) == ["multiRead"]
    assert isinstance(node, Node)
    assert (node, a) == (await zk.get(path), await zk.get(f"{path}/a"))
    assert sorted(names) == ["a", "b"]
    assert none == []
    data, stat = node
    assert (data, stat.num_children) == (b"data", 2)


@pytest.mark.since("3.6", "multiRead")
async def test_the_error_of_a_read_is_its_result(server: Server, zk: Client, path: str) -> None:
    nothing: Any = None
    await zk.create(path, nothing)
    await zk.create(f"{path}/locked", acl=[zkwire.digest_acl("bob", "pw")])
    missing, node, locked, names = await zk.get_many(
        [GetData(f"{path}/none"), GetData(path), GetChildren(f"{path}/locked"), GetChildren(path)]
    )
    assert isinstance(missing, zkwire.NoNodeError)
    assert (missing.path, missing.operation, missing.server) == (f"{path}/none", "getData", zk.server)
    assert isinstance(locked, zkwire.NoAuthError)
    assert (locked.path, locked.operation) == (f"{path}/locked", "getChildren")
    assert isinstance(node, Node)
    assert (node.data, names) == (b"", ["locked"])  # null data is read as empty bytes


@pytest.mark.since("3.6", "multiRead")
async def test_paths_are_below_the_chroot(zk: Client, path: str, app: Client) -> None:
    await zk.create(f"{path}/a", b"1", make_parents=True)
    names, node, missing = await app.get_many([GetChildren("/"), GetData("/a"), GetData("/b")])
    assert names == ["a"]
    assert node.data == b"1"
    assert missing.path == "/b"
    assert path not in str(missing)


@pytest.mark.since("3.6", "multiRead")
async def test_too_many_reads_for_one_request_go_in_several_of_one_write(proxy: Proxy, zk: Client, path: str) -> None:
    await zk.create(path, b"data")
    long = f"{path}/{'x' * 1000}"
    await zk.create(long, b"long")
    mark = proxy.mark()
    results = await zk.get_many([GetData(path), *[GetData(long)] * 1500, GetChildren(path)])
    assert len(results) == 1502
    assert results[0].data == b"data"
    assert {result.data for result in results[1:-1]} == {b"long"}
    assert results[-1] == ["x" * 1000]
    assert proxy.requests(mark) == ["multiRead", "multiRead"]


async def test_bad_reads_are_refused_and_nothing_is_sent(server: Server, path: str) -> None:
    strange: Any
    async with sending_nothing(server) as zk:
        assert await zk.get_many([]) == []
        with WatchSet() as watches:
            for strange in (
                None,
                "/a",
                Create("/a"),
                zkwire.Sync("/a"),
                GetData("/a/"),
                GetData("/" + "x" * 1_048_575),
                GetChildren(""),
                GetData("/a", into=watches),
                GetChildren("/a", into=watches),
            ):
                with pytest.raises((ValueError, TypeError)):
                    await zk.get_many([GetData(path), strange])


@pytest.mark.since("3.6", "multiRead")
async def test_a_get_many_that_is_cut_off_is_repeated(proxy: Proxy, zk: Client, path: str) -> None:
    await zk.create(path, b"data")
    proxy.drop_after("multiRead")
    (node,) = await zk.get_many([GetData(path)])
    assert isinstance(node, zkwire.Node)
    assert node.data == b"data"
