"""The shared value: every write is carried out exactly once, whatever breaks."""

import asyncio

import pytest

import zkwire
from recipes import SharedValue
from tests.support.client import Server
from tests.support.everywhere import below, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import outcome, until
from zkwire.testing import RealServer


async def test_a_value_is_shared(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        shared, other = SharedValue(zk, path, b"first"), SharedValue(zk2, path, b"ignored")
        assert await shared.get() == (b"first", 0)
        assert await other.compare_and_set(b"second", version=0) is True
        assert await shared.compare_and_set(b"lost", version=0) is False
        await shared.set(b"third")
        await zk2.sync(path)
        assert await other.get() == (b"third", 2)

        async def has_no_trace() -> bool:
            return not await below(zk, path)

        await until(has_no_trace)


async def test_any_method_creates_a_missing_value() -> None:
    async with scene() as stage:
        replaced = SharedValue(stage.zk, "/a/v", b"x")
        assert await replaced.compare_and_set(b"y", version=0) is True
        assert await replaced.get() == (b"y", 1)
        assert await replaced.compare_and_set(b"z", version=0) is False
        assert await replaced.get() == (b"y", 1)
        stage.server._machine.tree.nodes["/a/v"].version = 2**31 - 1
        await replaced.set(b"a")
        assert await replaced.compare_and_set(b"b", version=-(2**31))
        await SharedValue(stage.zk, "/a/w").set(b"z")
        assert await SharedValue(stage.zk, "/a/w").get() == (b"z", 1)
        assert await SharedValue(stage.zk, "/a/u").compare_and_set(b"y", version=1) is False


async def test_bad_values_and_versions_are_refused() -> None:
    async with scene() as stage:
        shared = SharedValue(stage.zk, "/v")
        with pytest.raises(TypeError, match="bytes"):
            SharedValue(stage.zk, "/v", "text")  # type: ignore[arg-type]
        for bad in ("text", bytearray(b"x"), None):
            with pytest.raises(TypeError, match="bytes"):
                await shared.set(bad)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="bytes"):
                await shared.compare_and_set(bad, version=0)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="version"):
            await shared.compare_and_set(b"", version=True)
        with pytest.raises(ValueError, match="version"):
            await shared.compare_and_set(b"", version=-1)
        assert await stage.zk.exists("/v") is None


async def test_each_operation_is_one_request(each_server: Server, path: str) -> None:
    async with Proxy(each_server.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        shared = SharedValue(zk, path)
        await shared.get()
        mark = proxy.mark()
        assert await shared.get() == (b"", 0)
        await shared.set(b"1")
        assert await shared.compare_and_set(b"2", version=1)
        assert not await shared.compare_and_set(b"3", version=1)
        assert not await shared.compare_and_set(b"3", version=0)  # it looks whether the node has to be created
        requests = [name for name in proxy.requests(mark) if name != "delete"]
        assert requests == ["getData", "multi", "multi", "multi", "multi", "getData"]


# -- lost answers -----------------------------------------------------------------------------------------------------


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_a_value_is_watched_and_created_when_it_is_missing() -> None:
    async with scene() as stage:
        shared, other = SharedValue(stage.zk, "/v", b"a"), SharedValue(stage.other, "/v")
        seen = []
        async for value, version in shared.watch():
            seen.append((value, version))
            if len(seen) == 3:
                break
            if version:
                await stage.other.delete_tree("/v")
            else:
                assert await other.compare_and_set(b"b", version=version)
        assert seen == [(b"a", 0), (b"b", 1), (b"a", 0)]
        await no_watch_stays(stage.server.hosts)


async def test_an_iteration_whose_first_wait_was_cancelled_goes_on() -> None:
    async with scene() as stage:
        values = SharedValue(stage.zk, "/v", b"a").watch()
        with stage.server.drop_before(path="/v", session=stage.zk.session_id, nth=3) as making:  # behind two reads
            waiting = asyncio.create_task(anext(values))
            await making.until_hit()
            waiting.cancel()
            await outcome(waiting)
        assert await stage.other.exists("/v") is None
        assert await asyncio.wait_for(anext(values), 5) == (b"a", 0)
        values.close()
