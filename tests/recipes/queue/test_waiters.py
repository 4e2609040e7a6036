"""The tasks of one queue object that wait: one of them has a place in the line, and all are served in their order."""

import asyncio

import pytest

import zkwire
from recipes import Queue
from tests.support.queues import PATH, Counting, clients, numbers
from tests.support.recipes import until_line
from tests.support.virtual_time import a_client, in_virtual_time


@pytest.mark.parametrize("refused", ["getData", "multi", None])
@pytest.mark.parametrize("is_put", [False, True])
@in_virtual_time
async def test_tasks_whose_session_ends_have_another_ticket_and_keep_their_order(
    is_put: bool, refused: str | None
) -> None:
    """Also if the first has found an item, or room, which is gone when it asks again."""
    async with a_client("c") as (server, other), a_client(server=server) as (_, zk):
        most = 1 if is_put else None
        queue, theirs, line = Queue(zk, PATH, most), Queue(other, PATH, most), "producers" if is_put else "consumers"
        await theirs.put(b"0")
        if not is_put:
            await theirs.get()
        asking = [asyncio.create_task(queue.put(b"%d" % n) if is_put else queue.get()) for n in range(1, 4)]
        (former,) = await until_line(other, f"{PATH}/{line}", 1)
        await asyncio.sleep(1)
        codes = {refused: zkwire.ThrottledError.code}
        server.strike = lambda wire, sent: codes.get(sent.name) if wire.host != "c" else None
        if refused:
            await (theirs.get() if is_put else theirs.put(b"0"))
        await asyncio.sleep(0.05)
        await server.cut_off(zk)
        codes.clear()
        await asyncio.sleep(0.2)  # of virtual time: the pause after the refusal
        server.machine.expire(zk.session_id)
        if refused:
            await (theirs.put(b"0") if is_put else theirs.get())
        server.refused = set()
        assert await until_line(other, f"{PATH}/{line}", 1) != [former]
        if is_put:
            assert [await theirs.get() for _ in range(4)] == numbers(4)
        else:
            await theirs.put_many(numbers(3))
        assert await asyncio.gather(*asking) == ([None] * 3 if is_put else numbers(3))


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


@in_virtual_time
async def test_a_task_that_is_called_in_vain_waits_again() -> None:
    async with a_client() as (server, zk):
        queue = Queue(zk, PATH)
        waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(1)
        server.names()
        queue._call(1, 2)
        await asyncio.sleep(1)
        assert server.names("ping") == ["getChildren2", "getChildren"]
        await queue.put_many(numbers(2))
        assert await asyncio.gather(*waiting) == numbers(2)
