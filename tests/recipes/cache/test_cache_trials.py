"""Caches of one tree in several processes, while others write and the connections are cut, on a real server."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

import zkwire
from recipes import Cache
from tests.support import processes
from tests.support.processes import report
from tests.support.proxy import Proxy
from tests.support.recipes import no_task_stays, until, until_watches
from zkwire import Client, Node, NoNodeError, ServerError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


async def write(hosts: str, path: str, seed: int, count: int) -> None:
    """In a process: create, set and delete nodes at random."""
    rng = random.Random(seed)
    async with zkwire.connect(hosts) as zk:
        for number in range(count):
            where = path + "".join(f"/{rng.choice('abcd')}" for _ in range(rng.randrange(1, 4)))
            try:
                match rng.randrange(4):
                    case 0 | 1:
                        await zk.create(where, b"%d" % number, make_parents=True)
                    case 2:
                        await zk.set(where, b"%d" % number)
                    case 3:
                        await zk.delete_tree(where)
            except ServerError:
                pass  # another writer came first


async def keep(hosts: str, path: str) -> None:
    """In a process: keep a cache; when the node "end" exists and the cache is current, report what it shows."""
    async with zkwire.connect(hosts) as zk, Cache(zk, path) as cache:
        report("complete")
        async for change in cache.changes(initial=True):
            if change.path == f"{path}/end":
                break
        await until(lambda: cache.is_current)
        report("shown", nodes=listed(cache, path))
        await asyncio.Event().wait()


def listed(cache: Cache, path: str) -> list[tuple[str, str, int, int]]:
    node = cache.get(path)
    assert node is not None
    found = [described(path, node)]
    for name in cache.children(path) or ():
        found += listed(cache, f"{path}/{name}")
    return sorted(found)


async def read(zk: Client, path: str) -> list[tuple[str, str, int, int]]:
    try:
        found = [described(path, await zk.get(path))]
        for name in await zk.get_children(path):
            found += await read(zk, f"{path}/{name}")
    except NoNodeError:
        return []
    return sorted(found)


def described(path: str, node: Node) -> tuple[str, str, int, int]:
    return path, node.data.decode(), node.stat.mzxid, node.stat.pzxid


@pytest.mark.since("3.6.0", "persistent watches", raises=AssertionError)  # in the workers
async def test_caches_in_several_processes_agree_with_the_tree(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 33, 34 and 39: all connections of the caches are cut again and again."""
    rng = random.Random(5)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(no_task_stays())
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        proxy = await stack.enter_async_context(Proxy(zookeeper.hosts))
        await zk.create(path)
        keepers = [
            await stack.enter_async_context(processes.start(keep, hosts=proxy.hosts, path=path)) for _ in range(3)
        ]
        writers = [
            await stack.enter_async_context(
                processes.start(write, hosts=zookeeper.hosts, path=path, seed=seed, count=250)
            )
            for seed in range(3)
        ]
        ends = [asyncio.ensure_future(writer.end()) for writer in writers]
        while not all(end.done() for end in ends):
            await asyncio.wait(ends, timeout=rng.uniform(0.01, 0.15))
            proxy.drop(reset=rng.random() < 0.5)
        await asyncio.gather(*ends)
        await zk.create(f"{path}/end")
        there = await read(zk, path)
        for keeper in keepers:
            shown = (await keeper.until("shown"))["nodes"]
            assert [tuple(node) for node in shown] == there
    await until_watches(zookeeper, 0)
