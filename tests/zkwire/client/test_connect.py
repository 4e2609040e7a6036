"""The options of `connect`: limits of requests and replies, memory for requests in flight, and the missing await."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import zkwire
from tests.support.everywhere import scene
from zkwire import GetData
from zkwire.testing import Server, ServerProcess

MiB = 1024 * 1024

MANY_SETS = """
import asyncio, resource, sys
import zkwire

async def main() -> None:
    async with zkwire.connect(sys.argv[1]) as zk:
        data = bytes(1_000_000)
        await zk.create("/a", data)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stats = await asyncio.gather(*(zk.set("/a", data) for _ in range(100)))
        assert [stat.version for stat in stats] == list(range(1, 101))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main())
"""


def test_a_hundred_sets_of_a_megabyte_take_the_memory_of_a_few() -> None:
    with ServerProcess() as server:
        child = [sys.executable, "-c", MANY_SETS, server.hosts]
        done = subprocess.run(child, check=True, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) * 1024 < 40 * MiB


async def test_large_requests_that_wait_are_sent_in_their_order_and_small_ones_do_not_overtake() -> None:
    async with scene() as stage:
        await stage.zk.create("/a")
        writes = [stage.zk.set("/a", bytes(size)) for size in (1_000_000, 1, 900_000, 2) * 5]
        stats = await asyncio.gather(*writes)
        assert [stat.version for stat in stats] == list(range(1, 21))
        assert stats[-1].data_length == 2


async def test_a_request_that_is_larger_than_all_that_may_be_in_flight_is_sent_alone() -> None:
    limit = 16 * MiB
    async with Server(max_buffer=limit) as server, zkwire.connect(server.hosts, request_limit=limit) as zk:
        data = bytes(8 * MiB)
        _, first, second, node = await asyncio.gather(
            zk.create("/a", data), zk.get("/a"), zk.set("/a", data), zk.get("/a")
        )
        assert (first.data, second.version, node.stat) == (data, 1, second)


async def test_requests_up_to_the_request_limit_are_sent_and_larger_ones_are_refused() -> None:
    async with Server(max_buffer=2000) as server, zkwire.connect(server.hosts, request_limit=2000) as zk:
        await zk.create("/a")
        overhead = 8 + 4 + len("/a") + 4 + 4
        await zk.set("/a", bytes(2000 - overhead))
        with pytest.raises(ValueError, match=r"set.* /a: the request has 2001 bytes, but a server accepts 2000"):
            await zk.set("/a", bytes(2001 - overhead))
        assert (await zk.get("/a")).stat.version == 1


async def test_a_credential_that_is_larger_than_a_request_is_refused_and_breaks_no_later_connection() -> None:
    async with Server() as server:
        too_large = ("digest", b"bob:" + bytes(2 * MiB))
        with pytest.raises(ValueError, match=r"auth: the request has .* bytes, but a server accepts"):
            zkwire.connect(server.hosts, auth=[too_large])
        async with zkwire.connect(server.hosts) as zk, asyncio.timeout(5):
            with pytest.raises(ValueError, match=r"auth: the request has .* bytes, but a server accepts"):
                await zk.add_auth(*too_large)
            server.drop()
            await zk.get("/")


async def test_a_watch_whose_path_is_too_long_to_be_set_again_is_refused() -> None:
    async with Server(max_buffer=2000) as server, zkwire.connect(server.hosts, request_limit=2000) as zk:
        longest = "/" + "a" * (2000 - 8 - 4 - 1 - 27 - 1)
        with pytest.raises(ValueError, match=r"exists.* a server accepts 2000"):
            await zk.exists_and_watch(longest + "a")
        _, watch = await zk.exists_and_watch(longest)
        async with asyncio.timeout(5):
            server.drop()
            await zk.ping()
        watch.cancel()


async def test_with_a_small_request_limit_reads_trees_and_watches_are_sent_in_more_requests() -> None:
    async with Server(max_buffer=2000) as server, zkwire.connect(server.hosts, request_limit=2000) as zk:
        paths = [f"/a/{'n' * 90}-{number}" for number in range(40)]
        await zk.create("/a")
        for path in paths:
            await zk.create(path)
        assert len(await zk.get_many([GetData(path) for path in paths])) == 40
        with zkwire.WatchSet() as watches:
            for path in paths:
                await zk.get_and_watch(path, into=watches)
            server.drop_before(session=zk.session_id, nth=1)
            await zk.delete_tree("/a")  # the connection breaks, and the watches are set again
            assert {(await watches.next()).path for _ in paths} == set(paths)


async def test_a_reply_above_the_reply_limit_fails_the_read_that_asked_for_it() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, reply_limit=10_000) as zk:
        await stage.other.create("/a", bytes(9_000))
        await stage.other.create("/b", bytes(10_000))
        assert len((await zk.get("/a")).data) == 9_000
        with pytest.raises(zkwire.ProtocolError, match=r"getData /b: .*10000 are accepted.*`reply_limit`"):
            await zk.get("/b")
        assert len((await zk.get("/a")).data) == 9_000


@pytest.mark.parametrize("name", ["request_limit", "reply_limit"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(1023, ValueError), (2**31, ValueError), (-1, ValueError), (1e6, TypeError), (True, TypeError), ("1", TypeError)],
)
def test_a_limit_that_is_no_number_of_bytes_is_refused(name: str, value: object, error: type[Exception]) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(error, match=name):
        zkwire.connect("localhost", **options)


async def test_a_client_that_was_not_awaited_says_so() -> None:
    not_awaited: Any = zkwire.connect("localhost")
    for name in ("get", "session_id"):
        with pytest.raises(AttributeError, match="await it, or use `async with`"):
            getattr(not_awaited, name)
    assert not hasattr(not_awaited, "nothing")
    with pytest.warns(RuntimeWarning, match="never awaited"):
        del not_awaited
