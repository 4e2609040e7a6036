"""Delayed items: when they come, by whose clock, in which order, and what they cost."""

import asyncio
import logging
import math
from typing import Any

import pytest

import zkwire
from recipes import Queue
from recipes.queue import delayed
from tests.support.client import Server as AnyServer
from tests.support.queues import PATH, Counting, clients, drain, numbers, settled
from tests.support.recipes import until_line
from tests.support.virtual_time import a_client, in_virtual_time

LONG = 3600.0


async def test_a_delayed_item_comes_in_its_time_to_a_consumer_that_waits(each_server: AnyServer, path: str) -> None:
    """A delayed item is not given before its time, by the clock of the ensemble's leader."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue, loop, found = Queue(other, path), asyncio.get_running_loop(), []
        waiting = asyncio.create_task(queue.get(within=30))
        await until_line(zk, f"{path}/consumers", 1)
        start = loop.time()
        await Queue(zk, path).put(b"late", 7, delay=0.6)
        await Queue(zk, path).put_many([b"1", b"2"], delay=0.3)
        await Queue(zk, path).put(b"never", 0, delay=LONG)
        for number in range(3):
            found.append(await (queue.get(within=30) if number else waiting))
            assert loop.time() - start >= (0.6 if found[-1] == b"late" else 0.3)
        assert [data for data in found if data != b"late"] == [b"1", b"2"]
        assert (await queue.size(), await queue.peek(), len(await zk.get_children(f"{path}/delayed"))) == (0, None, 1)
        await settled(zk, path)


@in_virtual_time
async def test_a_consumer_that_waits_looks_when_the_next_item_is_due_and_once_a_minute() -> None:
    async with a_client() as (server, zk):
        queue, loop = Queue(zk, PATH), asyncio.get_running_loop()
        start = loop.time()
        await queue.put_many([b"a", b"b"], delay=90.25)
        async with queue.claim() as item:
            assert item == b"a"
            assert 90.25 <= loop.time() - start < 90.3
            assert sum(sent.name == "setData" for sent in server.requests) == 3 + 1  # one finds no node
            await queue.put(b"c", delay=0.3)
            start = loop.time()
            assert [await queue.get(), await queue.get()] == [b"b", b"c"]
            assert 0.3 <= loop.time() - start < 0.35  # though all other items are claimed


@pytest.mark.parametrize(("jump", "is_due"), [(-60, False), (0, False), (29, False), (30.1, True)])
async def test_a_leader_whose_clock_is_wrong_gives_items_by_so_much_earlier_or_later(jump: float, is_due: bool) -> None:
    async with clients(1) as (server, (zk,)):
        await Queue(zk, PATH).put(b"a", delay=30)
        server._machine._wall_offset += jump
        assert await Queue(zk, PATH).size() == is_due


async def test_a_queue_that_is_asked_again_and_again_lists_the_delayed_items_when_others_have_come() -> None:
    observer, counts = Counting(), []
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=observer) as zk:
        await Queue(other, PATH).put(b"a")
        queue = Queue(zk, PATH)
        for delay in (0.0, LONG, 0.0, LONG):
            for _ in range(2):
                observer.requests.clear()
                assert await queue.size() == 1
                counts.append(len(observer.requests))
            if delay:
                await Queue(other, PATH).put(b"b", delay=delay)
    assert counts == [2, 2, 2, 2, 4, 2, 2, 2]


async def test_items_that_are_due_together_come_once_each() -> None:
    async with clients(4) as (_, zks):
        queues = [Queue(zk, PATH) for zk in zks]
        await queues[0].put_many(numbers(40), delay=0.01)
        await zks[0].create(f"{PATH}/delayed/100-0000000001")  # by hand: it is none
        getting = [asyncio.create_task(queue.get(within=30)) for queue in queues for _ in range(10)]
        assert sorted(await asyncio.gather(*getting)) == sorted(numbers(40))
        assert await zks[0].get_children(f"{PATH}/delayed") == ["100-0000000001"]


async def test_an_item_that_cannot_be_moved_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH)
        await queue.put_many(numbers(2), delay=0.01)
        first = min(await zk.get_children(f"{PATH}/delayed"))
        await zk.delete(f"{PATH}/delayed/{first}")
        await zk.create(f"{PATH}/delayed/{first}", acl=[zkwire.digest_acl("other", "x")])
        with caplog.at_level(logging.WARNING, delayed.__name__):
            assert [await queue.get(within=5), await queue.size(), await queue.size()] == [b"1", 0, 0]
            with pytest.raises(TimeoutError):
                await queue.get(within=0.05)
        assert [first in record.getMessage() for record in caplog.records] == [True]
        known = queue._consumer.view.delayed
        assert list(known._due) == [first]
        assert known.next_look is not None
        assert 50 < known.next_look - asyncio.get_running_loop().time() <= 60


async def test_delayed_items_are_found_when_the_numbers_of_the_others_have_begun_again() -> None:
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"late", delay=0.01)
        server._machine.tree.nodes[f"{PATH}/entries"].creates = 2**31 - 1
        await queue.put_many([b"1", b"2"])  # makes `entries` again
        while await Queue(other, PATH).size() < 3:
            await asyncio.sleep(0.001)
        assert await drain(Queue(other, PATH)) == [b"1", b"2", b"late"]


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e9 + 1, "1", None, True])
async def test_a_delay_that_is_none_is_refused_before_anything_is_sent(delay: Any) -> None:
    observer = Counting()
    async with clients(1) as (server, _), zkwire.connect(server.hosts, observer=observer) as zk:
        observer.requests.clear()
        with pytest.raises((TypeError, ValueError), match="delay is a number of seconds from 0 to 1e9"):
            await Queue(zk, PATH).put(b"a", delay=delay)
        with pytest.raises(ValueError, match="a maxsize takes no delay"):
            await Queue(zk, PATH, 3).put_many([b"a"], delay=1)
        assert observer.requests == []


async def test_a_client_that_may_only_read_sees_the_other_items_beside_delayed_ones() -> None:
    async with clients() as (_, (zk, other)):
        await zk.add_auth("digest", b"bob:secret")
        queue = Queue(zk, PATH, acl=(*zkwire.CREATOR_ALL_ACL, *zkwire.READ_ONLY_ACL))
        await asyncio.gather(queue.put(b"1"), queue.put(b"late", delay=LONG))
        assert (await Queue(other, PATH).size(), await Queue(other, PATH).peek()) == (1, b"1")
