"""The tasks of one queue object that wait: one of them has a place in the line, and all are served in their order."""

import asyncio

import zkwire
from recipes import Queue
from tests.support.queues import PATH, Counting, clients, numbers, settled
from tests.support.recipes import until, until_line
from zkwire.testing import RealServer


async def test_tasks_that_wait_have_one_ticket_and_get_the_items_in_the_order_of_their_calls(
    zookeeper: RealServer, path: str
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        queue = Queue(other, path)
        waiting = [asyncio.create_task(queue.get()) for _ in range(10)]
        (ticket,) = await until_line(zk, f"{path}/consumers", 1)
        await other.ping()
        assert await zk.get_children(f"{path}/consumers") == [ticket]
        await Queue(zk, path).put_many(numbers(10))
        assert await asyncio.gather(*waiting) == numbers(10)
        await settled(zk, path)


async def test_tasks_keep_their_order_when_the_session_expires() -> None:
    async with clients(2) as (server, (zk, other)):
        queue = Queue(other, PATH)
        waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
        (former,) = await until_line(zk, f"{PATH}/consumers", 1)
        await other.ping()
        server.expire(other.session_id)

        async def has_another_ticket() -> bool:
            return await zk.get_children(f"{PATH}/consumers") not in ([], [former])

        await until(has_another_ticket)
        await other.ping()
        await Queue(zk, PATH).put_many(numbers(3))
        assert await asyncio.gather(*waiting) == numbers(3)
        await settled(zk, PATH)


async def test_tasks_that_wait_do_not_keep_another_process_from_its_turn() -> None:
    async with clients(3) as (_, (zk, busy, other)):
        queue = Queue(busy, PATH)
        waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
        await until_line(zk, f"{PATH}/consumers", 1)
        behind = asyncio.create_task(Queue(other, PATH).get())
        await until_line(zk, f"{PATH}/consumers", 2)
        await Queue(zk, PATH).put(b"0")
        assert await waiting[0] == b"0"
        await until_line(zk, f"{PATH}/consumers", 2)
        await Queue(zk, PATH).put(b"1")
        assert await behind == b"1"
        await until_line(zk, f"{PATH}/consumers", 1)
        await Queue(zk, PATH).put_many(numbers(2, 4))
        assert await asyncio.gather(*waiting[1:]) == numbers(2, 4)


async def test_as_many_waiting_tasks_take_at_the_same_time_as_there_are_items() -> None:
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        queue = Queue(other, PATH)
        waiting = [asyncio.create_task(queue.get()) for _ in range(5)]
        await until_line(zk, f"{PATH}/consumers", 1)
        await other.ping()
        before = len(count.requests)
        with server.hold_replies("multi", session=other.session_id) as taking:
            await Queue(zk, PATH).put_many(numbers(3))
            await taking.until_hit(3)
            # One look of the first task for all of them, and a read of each item.
            assert count.requests[before:] == ["getChildren2", "getChildren", *["getData"] * 3]
        assert await asyncio.gather(*waiting[:3]) == numbers(3)
        await Queue(zk, PATH).put_many(numbers(3, 5))
        assert await asyncio.gather(*waiting[3:]) == numbers(3, 5)


async def test_a_task_that_is_called_in_vain_waits_again() -> None:
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        queue = Queue(other, PATH)
        waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
        await until_line(zk, f"{PATH}/consumers", 1)
        queue._call(1, 2)
        await zk.sync(PATH)
        before = len(count.requests)
        for _ in range(20):
            await zk.sync(PATH)
        assert len(count.requests) - before < 10
        await Queue(zk, PATH).put_many(numbers(2))
        assert await asyncio.gather(*waiting) == numbers(2)
