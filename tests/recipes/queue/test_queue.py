"""The queue as a whole: order and priorities, waiting, bad arguments, and what it costs on the wire."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import zkwire
from recipes import Queue
from tests.support.client import Server
from tests.support.everywhere import no_watch_stays
from tests.support.proxy import Proxy
from tests.support.queues import PATH, Counting, clients, drain, numbers, settled
from tests.support.recipes import body_raises, until, until_line, until_watches
from zkwire.testing import RealServer

# -- order ------------------------------------------------------------------------------------------------------------


async def test_more_urgent_items_come_first(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue, urgent = Queue(zk, path), Queue(other, path)
        await queue.put_many(numbers(30))
        assert await queue.get() == b"0"
        await urgent.put(b"later", priority=500)
        await urgent.put(b"now", priority=0)
        await urgent.put(b"soon", priority=99)
        assert [await queue.get() for _ in range(3)] == [b"now", b"soon", b"1"]
        assert (await drain(queue))[-2:] == [b"29", b"later"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"maxsize": 0}, ValueError),
        ({"maxsize": True}, TypeError),
        ({"maxsize": 1.5}, TypeError),
        ({"path": "queue"}, ValueError),
        ({"path": None}, TypeError),
    ],
)
async def test_a_queue_refuses_bad_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    async with clients(1) as (_, (zk,)):
        with pytest.raises(error):
            Queue(zk, **{"path": PATH} | arguments)


async def test_bad_input_is_refused_and_nothing_is_sent() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, 3)
        for bad in ("text", None, 5):
            with pytest.raises(TypeError):
                await queue.put(bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await queue.put(b"", True)
        with pytest.raises(ValueError, match="1000"):
            await queue.put(b"", 1000)
        with pytest.raises(ValueError, match="never find room"):
            await queue.put_many([b""] * 4)
        with pytest.raises(ValueError, match="within"):
            await queue.get(within=-1)
        with pytest.raises(TypeError):
            queue.claim(within="1")  # type: ignore[arg-type]
        assert await zk.exists(PATH) is None


@pytest.mark.parametrize("bad", [{b"a": 1}, {b"a"}, frozenset({b"a"}), "text", b"bytes", b"", bytearray(b"a"), 5, None])
async def test_put_many_takes_only_items_that_have_an_order(bad: Any) -> None:
    async with clients(1) as (_, (zk,)):
        with pytest.raises(TypeError, match=f"put_many takes a list .* of bytes, not {type(bad).__name__}"):
            await Queue(zk, PATH).put_many(bad)
        assert await zk.exists(PATH) is None


# -- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.limit(10)
async def test_a_get_within_0_seconds_takes_what_is_there_and_does_not_wait() -> None:
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await Queue(other, PATH).put_many(numbers(2))
        assert await queue.get(within=0) == b"0"
        async with queue.claim(within=0) as item:
            assert item == b"1"
            with pytest.raises(TimeoutError, match=f"{PATH} had no item within 0 s"):
                await Queue(other, PATH).get(within=0)
        with body_raises(TimeoutError, match=f"{PATH} had no item within 0 s"):
            async with queue.claim(within=0):
                raise AssertionError("no item is left")
        assert await zk.exists(f"{PATH}/consumers") is None
        await settled(zk, PATH)
        await no_watch_stays(server.hosts)


async def test_a_wait_is_bounded_and_its_error_names_the_path(zookeeper: RealServer, path: str) -> None:
    """Pitfall 8."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        with pytest.raises(TimeoutError, match=path):
            await Queue(zk, path).get(within=0.05)
        with body_raises(TimeoutError, match=path):
            async with Queue(zk, path).claim(within=0.05):
                raise AssertionError("nothing was put")
        await settled(zk, path)
        await until_watches(zookeeper, 0)


async def test_closing_the_client_ends_a_wait_and_later_calls_with_an_error() -> None:
    """Pitfall 6."""
    async with clients() as (_, (zk, other)):
        waiting = asyncio.create_task(Queue(zk, PATH).get())
        await until_line(other, f"{PATH}/consumers", 1)
        await zk.close()
        for call in (waiting, Queue(zk, PATH).get(), Queue(zk, PATH).put(b"x")):
            with pytest.raises(zkwire.SessionClosedError):
                await call


async def test_twenty_waiting_consumers_are_no_herd() -> None:
    """An item wakes one consumer, and two more when that one leaves the waiting line."""
    async with AsyncExitStack() as stack:
        server, (zk,) = await stack.enter_async_context(clients(1))
        counts = [Counting() for _ in range(20)]
        waiting = set()
        for number, count in enumerate(counts):
            other = await stack.enter_async_context(zkwire.connect(server.hosts, observer=count))
            waiting.add(asyncio.create_task(Queue(other, PATH).get()))
            if number % 10 == 9:
                await until_line(zk, f"{PATH}/consumers", number + 1)
        # All but the first in the line, which has no one to watch.
        await until(lambda: sum("getData" in count.requests for count in counts) == 19)
        before = sum(len(count.events) for count in counts)
        queue = Queue(zk, PATH)
        served = []
        for data in numbers(10):
            await queue.put(data)
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            served += [task.result() for task in done]
        assert served == numbers(10)
        await queue.put_many(numbers(10, 20))
        served += await asyncio.gather(*waiting)
        assert sorted(served, key=int) == numbers(20)
        events = sum(len(count.events) for count in counts) - before
        # For each item: the first consumer and the two behind it, and now and then once more the first.
        assert events <= 20 * 5
        assert max(len(count.events) for count in counts) <= 8
        await settled(zk, PATH)


async def test_the_nodes_of_an_empty_queue_may_be_deleted_while_a_consumer_waits() -> None:
    """Pitfall 18: in older queues they are containers, which the server deletes when they stay empty."""
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"x")
        await queue.get()
        await settled(zk, PATH)
        waiting = asyncio.create_task(Queue(other, PATH).get())
        await until_line(zk, f"{PATH}/consumers", 1)
        await other.ping()
        await zk.delete(f"{PATH}/taken")
        await zk.delete(f"{PATH}/entries")
        await queue.put(b"y")
        assert await waiting == b"y"


async def test_without_renewal_an_expired_session_ends_the_wait_with_an_error() -> None:
    async with clients() as (server, (zk, _)), zkwire.connect(server.hosts, renew=False) as mortal:
        waiting = asyncio.create_task(Queue(mortal, PATH).get())
        await until_line(zk, f"{PATH}/consumers", 1)
        server.expire(mortal.session_id)
        with pytest.raises(zkwire.SessionExpiredError):
            await waiting
        with pytest.raises(zkwire.SessionExpiredError):
            await Queue(mortal, PATH).get()


# -- on the wire ------------------------------------------------------------------------------------------------------


async def test_the_requests_and_round_trips_of_each_operation(each_server: Server, path: str) -> None:
    async with Proxy(each_server.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        queue = Queue(zk, path)
        await queue.put(b"0")
        mark = proxy.mark()
        await queue.put(b"1")
        assert proxy.requests(mark) == ["multi"]
        mark = proxy.mark()
        await queue.put_many(numbers(2, 30))
        assert proxy.requests(mark) == ["multi"]
        await settled(zk, path)  # the write receipts

        async def cost(*expected: str, writes: int) -> None:
            await until(lambda: len(proxy.requests(mark)) >= len(expected))
            assert proxy.requests(mark) == list(expected)
            assert proxy.segments(mark) == writes

        mark = proxy.mark()
        assert await queue.get() == b"0"
        await cost("getChildren2", "getChildren", "getData", "multi", "delete", writes=4)
        mark = proxy.mark()
        assert await queue.get() == b"1"  # this one was read ahead, with the listing
        await cost("getChildren2", "getChildren", "getData", "multi", "delete", writes=3)
        mark = proxy.mark()
        async with queue.claim() as item:
            await cost("getChildren2", "getChildren", "multi", "getData", "getData", writes=2)
            mark = proxy.mark()
            item.check()
        await cost("multi", writes=1)
        mark = proxy.mark()
        assert await queue.size() == 27
        await cost("getChildren2", "getChildren", writes=1)
