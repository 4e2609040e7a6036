"""The queue as a whole: order and priorities, waiting, bad arguments, and what it costs on the wire."""

import asyncio
import math
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, cast

import pytest

import zkwire
from recipes import FailedItem, Queue
from tests.support.client import Server
from tests.support.everywhere import no_watch_stays
from tests.support.proxy import Proxy
from tests.support.queues import PATH, Counting, clients, drain, numbers, settled
from tests.support.recipes import body_raises, until, until_line

# -- order ------------------------------------------------------------------------------------------------------------


async def test_more_urgent_items_come_first(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue, urgent = Queue(zk, path), Queue(other, path)
        await queue.put_many(numbers(30))
        assert await queue.get() == b"0"
        await urgent.put(b"later", priority=999)
        await urgent.put(b"now", priority=0)
        await urgent.put(b"soon", priority=99)
        assert [await queue.get() for _ in range(3)] == [b"now", b"soon", b"1"]
        assert (await drain(queue))[-2:] == [b"29", b"later"]


async def test_bad_values_are_refused_before_anything_is_sent() -> None:
    observer, make = Counting(), cast("Any", Queue)
    async with clients(1) as (server, _), zkwire.connect(server.hosts, observer=observer) as zk:
        observer.requests.clear()
        queue, bounded = make(zk, PATH), make(zk, PATH, 3)
        item = FailedItem(path=f"{PATH}/failed/x-1-", data=b"", attempts=1, name="x", since=datetime.now(UTC))
        calls: list[tuple[type[Exception], str, Any, list[Any]]] = [
            (ValueError, "maxsize is a whole number from 1", lambda bad: make(zk, PATH, bad), [0, -1]),
            (TypeError, "maxsize is a whole number from 1", lambda bad: make(zk, PATH, bad), [True, 1.5]),
            (ValueError, "max_attempts is a whole", lambda bad: make(zk, PATH, max_attempts=bad), [0, -1]),
            (TypeError, "max_attempts is a whole", lambda bad: make(zk, PATH, max_attempts=bad), [2.0, True, "3"]),
            (ValueError, "'queue'", lambda bad: make(zk, bad), ["queue"]),
            (TypeError, "None", lambda bad: make(zk, bad), [None]),
            (TypeError, "data is bytes", queue.put, ["text", None, 5]),
            (TypeError, "a priority is", lambda bad: queue.put(b"", bad), [True, 1.0, "1", None]),
            (ValueError, "a priority is", lambda bad: queue.put(b"", bad), [-1, 1000]),
            (ValueError, "delay is a", lambda bad: queue.put(b"", delay=bad), [-1, math.nan, math.inf, 1e9 + 1]),
            (TypeError, "delay is a", lambda bad: queue.put(b"", delay=bad), ["1", None, True]),
            (ValueError, "a maxsize takes no delay", lambda bad: bounded.put_many([b""], delay=bad), [1]),
            (ValueError, "never find room", bounded.put_many, [[b""] * 4]),
            (TypeError, "put_many takes a list .* of bytes, not (dict|set)", queue.put_many, [{b"a": 1}, {b"a"}]),
            (TypeError, "put_many .* not (frozenset|str)", queue.put_many, [frozenset({b"a"}), "text"]),
            (TypeError, "put_many .* not (bytes|bytearray)", queue.put_many, [b"bytes", b"", bytearray(b"a")]),
            (TypeError, "put_many .* not (int|NoneType)", queue.put_many, [5, None]),
            (ValueError, "within", lambda bad: queue.get(within=bad), [-1]),
            (TypeError, "within", lambda bad: queue.claim(within=bad), ["1"]),
            (TypeError, "an item that failed", queue.retry, [item.path]),
            (ValueError, "not a failed item of the queue /other", make(zk, "/other").retry, [item]),
            (ValueError, "within", lambda bad: queue.retry(item, within=bad), [-1]),
        ]
        for error, why, call, values in calls:
            for bad in values:
                with pytest.raises(error, match=why):
                    await call(bad)
        assert observer.requests == []


# -- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.limit(10)
async def test_a_get_within_0_seconds_takes_what_is_there_and_does_not_wait() -> None:
    """Pitfall 8."""
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


@pytest.mark.parametrize("error", [zkwire.SessionClosedError, zkwire.SessionExpiredError])
async def test_the_end_of_the_client_ends_a_wait_and_later_calls_with_an_error(error: type[Exception]) -> None:
    """Pitfall 6."""
    async with clients() as (server, (other, _)), zkwire.connect(server.hosts, renew=False) as zk:
        waiting = asyncio.create_task(Queue(zk, PATH).get())
        await until_line(other, f"{PATH}/consumers", 1)
        if error is zkwire.SessionClosedError:
            await zk.close()
        else:
            server.expire(zk.session_id)
        for call in (waiting, Queue(zk, PATH).get(), Queue(zk, PATH).put(b"x")):
            with pytest.raises(error):
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
        # All but the first in the line, which has no one to watch; the one that made the queue's nodes has read, too.
        await until(lambda: sum("getData" in count.requests for count in counts) >= 19)
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
