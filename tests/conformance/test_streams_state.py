"""Streams of values: a node's data and the names of its children, now and after each change."""

import asyncio

import pytest

import zkwire
from tests.conformance.test_streams import following
from tests.support.client import PATIENCE, Server, cancelled, turns
from zkwire import ChildrenStream, Client, DataStream

STREAMS = ["data", "children"]


def stream(zk: Client, kind: str, path: str) -> DataStream | ChildrenStream:
    return zk.data(path) if kind == "data" else zk.children(path)


async def disturb(zk: Client, kind: str, path: str, name: str) -> None:
    """Make a change for which a stream of that kind gives a new value."""
    if kind == "data":
        await zk.set(path, name.encode())
    else:
        await zk.create(f"{path}/{name}")


async def value(stream: DataStream) -> bytes | None:
    node = await following(stream)
    return None if node is None else bytes(node.data)


async def names(stream: ChildrenStream) -> list[str] | None:
    found = await following(stream)
    return None if found is None else sorted(found)


async def test_data_gives_the_value_now_and_after_each_change(zk: Client, other: Client, path: str) -> None:
    async with zk.data(path) as nodes:
        assert await value(nodes) is None
        await other.create(path, b"0")
        node = await following(nodes)
        assert node == await zk.get(path)
        for data in (b"1", b"", b"2", b"2"):
            await other.set(path, data)
            assert await value(nodes) == data
        await other.delete(path)
        assert await value(nodes) is None
        await other.create(path, b"again")
        assert await value(nodes) == b"again"


async def test_children_gives_names_now_and_after_each_change_pitfall_36(zk: Client, other: Client, path: str) -> None:
    """The stream uses getChildren2, which sets a child watch just as getChildren does."""
    async with zk.children(path) as lists:
        assert await names(lists) is None
        await other.create(path)
        assert await names(lists) == []
        await other.create(f"{path}/a")
        assert await names(lists) == ["a"]
        await other.create(f"{path}/b")
        assert await names(lists) == ["a", "b"]
        await other.delete(f"{path}/a")
        assert await names(lists) == ["b"]
        await other.delete(f"{path}/b")
        assert await names(lists) == []
        await other.delete(path)
        assert await names(lists) is None


@pytest.mark.parametrize("kind", STREAMS)
async def test_other_changes_give_no_value(zk: Client, path: str, kind: str) -> None:
    await zk.create(path)
    async with stream(zk, kind, path) as states:
        await following(states)
        task = asyncio.ensure_future(anext(states))
        if kind == "data":
            await zk.create(f"{path}/a")
        else:
            await zk.set(path, b"x")
        await zk.create(f"{path}/b")
        await zk.create(f"{path}/b/c")
        await zk.set(f"{path}/b", b"x")
        await zk.sync(path)
        await turns()
        assert task.done() == (kind == "children")
        if not task.done():
            await cancelled(task)


@pytest.mark.parametrize("kind", STREAMS)
async def test_the_last_of_many_quick_changes_is_never_missed(zk: Client, other: Client, path: str, kind: str) -> None:
    await zk.create(path, b"0")
    seen: list[int] = []

    async def follow() -> None:
        async with asyncio.timeout(PATIENCE):
            if kind == "data":
                async for node in zk.data(path):
                    assert node is not None
                    seen.append(int(node.data))
                    if node.data == b"100":
                        break
            else:
                async for found in zk.children(path):
                    assert found is not None
                    assert sorted(map(int, found)) == list(range(1, len(found) + 1))  # a state that there was
                    seen.append(len(found))
                    if len(found) == 100:
                        break

    task = asyncio.create_task(follow())
    for number in range(1, 101):
        await disturb(other, kind, path, str(number))
    await task
    assert seen == sorted(set(seen))
    assert len(seen) > 2


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_change_that_was_undone_before_the_read_gives_no_value(zk: Client, path: str, kind: str) -> None:
    async with stream(zk, kind, path) as states:
        assert await following(states) is None
        async with zk.transaction() as tx:
            tx.create(path)
            tx.delete(path)
        task = asyncio.ensure_future(anext(states))
        await zk.sync(path)
        await zk.sync(path)
        await zk.sync(path)
        await turns()
        assert not task.done()
        await zk.create(path)
        assert await task is not None


@pytest.mark.parametrize("kind", STREAMS)
async def test_one_task_at_a_time_may_wait_and_the_next_after_a_cancelled_one(zk: Client, path: str, kind: str) -> None:
    await zk.create(path)
    async with stream(zk, kind, path) as states:
        await following(states)
        for _ in range(2):
            task = asyncio.ensure_future(anext(states))
            await zk.sync(path)
            await turns()
            await cancelled(task)
        await disturb(zk, kind, path, "1")
        assert await following(states)
        task = asyncio.ensure_future(anext(states))
        await turns(1)
        await cancelled(task)
        await disturb(zk, kind, path, "2")
        assert await following(states)
        task = asyncio.ensure_future(anext(states))
        await turns()
        with pytest.raises(RuntimeError, match=f"next state of {path}"):
            await anext(states)
        await disturb(zk, kind, path, "3")
        assert await task is not None


@pytest.mark.parametrize("kind", STREAMS)
async def test_the_end_of_the_client_ends_the_iteration_with_an_error(server: Server, path: str, kind: str) -> None:
    zk = await zkwire.connect(server.hosts)
    states, idle = stream(zk, kind, path), stream(zk, kind, path)
    for each in (states, idle):
        await following(each)
    task = asyncio.ensure_future(anext(states))
    await turns()
    await zk.close()
    with pytest.raises(zkwire.SessionClosedError):
        await task
    for each in (states, idle, stream(zk, kind, path)):
        with pytest.raises(zkwire.SessionClosedError):
            await anext(each)


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_refused_read_raises_and_the_iteration_can_be_continued(zk: Client, path: str, kind: str) -> None:
    await zk.create(path, acl=[zkwire.ACL(zkwire.Perms.DELETE, "world", "anyone")])
    states = stream(zk, kind, path)
    for _ in range(2):
        with pytest.raises(zkwire.NoAuthError, match=path):
            await anext(states)
    await zk.delete(path)
    assert await following(states) is None


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_stream_below_a_chroot_uses_paths_below_it(server: Server, path: str, kind: str) -> None:
    async with zkwire.connect(server.hosts) as outside:
        await outside.create(path)
        async with zkwire.connect(server.hosts + path) as zk, stream(zk, kind, "/a") as states:
            assert await following(states) is None
            await outside.create(f"{path}/a")
            assert await following(states) is not None
            await outside.delete(f"{path}/a")
            assert await following(states) is None
