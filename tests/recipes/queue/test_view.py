"""What the tasks of a process know of the items: lists that they share, and items that are read ahead."""

import asyncio

import pytest

import zkwire
from recipes import Queue
from tests.support.client import turns
from tests.support.queues import PATH, Counting, clients, numbers, settled
from tests.support.recipes import until_armed
from tests.support.virtual_time import a_client, in_virtual_time

# -- shared lists -----------------------------------------------------------------------------------------------------


async def test_tasks_that_get_at_the_same_time_share_a_list_and_are_served_in_the_order_of_their_calls() -> None:
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        await Queue(zk, PATH).put_many(numbers(64))
        queue = Queue(other, PATH)
        for first in (0, 32):
            assert await asyncio.gather(*(queue.get() for _ in range(32))) == numbers(first, first + 32)
        # Each time one of the first task, which has asked before the others, and one of all others.
        assert count.requests.count("getChildren2") <= 4
        assert count.requests.count("multi") == 64  # no two tasks have tried the same item
        await settled(zk, PATH)


@pytest.mark.parametrize("has_put", [False, True])
async def test_a_list_that_was_asked_for_before_a_get_or_an_own_put_does_not_serve_it(has_put: bool) -> None:
    """The most urgent item may have been put in between; a list of 2,000 items serves for several takes."""
    async with clients(2) as (server, (zk, other)):
        queue = Queue(other, PATH)
        await Queue(zk, PATH).put_many(numbers(2000))
        with server.hold_replies("getChildren", session=other.session_id) as looking:
            first = asyncio.create_task(queue.get())
            await looking.until_hit()
            putting = asyncio.create_task((queue if has_put else Queue(zk, PATH)).put(b"urgent", 0))
            if not has_put:
                await putting
            later = asyncio.create_task(queue.get())
            await turns(10)
        await putting
        assert {await first, await later} == {b"0", b"urgent"}


async def test_a_waiting_consumer_watches_the_claims_only_while_all_items_are_claimed() -> None:
    """Otherwise it would be woken whenever another consumer takes an item."""
    count, lists = Counting(), ["getChildren2", "getChildren"]
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=count) as zk:
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        await theirs.put(b"0")
        async with theirs.claim():
            waiting = asyncio.create_task(queue.get())
            await until_armed(3, zk)  # the items twice, and the claims
            assert count.requests[-4:] == [*lists, *lists]
            await theirs.put(b"1")
            assert await waiting == b"1"
            assert [name for name in count.requests if name not in ("ping", "removeWatches", "delete")][5:] == [
                *[*lists, *lists],
                *[*lists, "getData", "multi"],
            ]


async def test_a_consumer_whose_queue_is_too_long_for_an_answer_gets_the_error() -> None:
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, reply_limit=5_000) as zk:
        await Queue(other, PATH).put_many(numbers(300))
        with pytest.raises(zkwire.ProtocolError):
            await Queue(zk, PATH).get(within=5)
        assert await Queue(other, PATH).size() == 300


# -- items that were read ahead ---------------------------------------------------------------------------------------


async def test_items_of_a_long_queue_are_read_ahead_with_the_list() -> None:
    """A get is one round trip then.  A list of so many items serves for 19 takes."""
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        await Queue(zk, PATH, acl=zkwire.OPEN_ACL).put_many(numbers(1279))
        queue = Queue(other, PATH)

        async def reads(*range_of_items: int) -> list[int]:
            found = []
            for data in numbers(*range_of_items):
                before = count.requests.count("getData")
                assert await queue.get() == data
                found.append(count.requests.count("getData") - before)
            return found

        # The first items are read one by one.  The second list comes with one, which shows how large they are.
        assert await reads(0, 38) == [1] * 38
        assert await reads(38, 76) == [19, *[0] * 18, 19, *[0] * 18]
        await queue.get()
        name = min(await zk.get_children(f"{PATH}/entries"))
        await zk.set(f"{PATH}/entries/{name}", b"changed")  # after it was read ahead
        assert await queue.get() == b"changed"
        # Which item a consumer takes that competes is not known.
        queue._consumer.view.listing.lost(is_fresh=True)
        queue._consumer.view.listing.expire()
        before = count.requests.count("getData")
        await queue.get()
        assert count.requests.count("getData") - before == 1


@in_virtual_time
async def test_a_list_and_what_was_read_ahead_with_it_are_believed_for_a_second() -> None:
    """Meanwhile the queue is made again, with items of the same names; or a more urgent item is put."""
    async with a_client() as (_, zk):
        queue, theirs = Queue(zk, PATH), Queue(zk, PATH)
        await theirs.put_many(numbers(640))
        assert [await queue.get() for _ in range(22)] == numbers(22)  # three lists, each for ten takes
        await asyncio.sleep(0.9)
        await theirs.put(b"urgent", 0)
        assert await queue.get() == b"22"
        await asyncio.sleep(0.2)
        assert [await queue.get(), await queue.get()] == [b"urgent", b"23"]
        await asyncio.sleep(1.1)
        await zk.delete_tree(PATH)
        await theirs.put_many(numbers(5000, 5100))
        assert [await queue.get() for _ in range(30)] == numbers(5000, 5030)


@in_virtual_time
async def test_a_list_that_has_taken_long_is_believed_no_longer_than_another() -> None:
    async with a_client(timeout=30.0) as (server, zk):
        queue, theirs = Queue(zk, PATH), Queue(zk, PATH)
        await theirs.put_many(numbers(640))
        assert [await queue.get() for _ in range(19)] == numbers(19)  # two lists, for ten takes and for nine
        server.names()
        server.is_silent = True
        getting = asyncio.create_task(queue.get())
        await asyncio.sleep(8)
        server.go_on()
        assert await getting == b"19"
        assert server.names().count("getData") == 9 + 1  # what was read ahead is read again
        await theirs.put(b"urgent", 0)
        assert await queue.get() == b"urgent"
