"""Putting items: each put is carried out once, in order, all or nothing, and within the bound of the queue."""

import asyncio
from typing import Any

import pytest

import zkwire
from recipes import Queue
from tests.support.everywhere import no_watch_stays
from tests.support.locks import watch_count
from tests.support.queues import PATH, Counting, clients, drain, numbers, settled
from tests.support.recipes import line, outcome, until, until_line
from zkwire import Client

# -- order ------------------------------------------------------------------------------------------------------------


async def test_items_are_put_in_the_order_of_the_calls_and_those_of_put_many_all_or_none() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put_many(numbers(10))
        await asyncio.gather(*map(queue.put, numbers(10, 50)))
        await queue.put_many([])
        with pytest.raises(ValueError, match="too large"):
            await queue.put_many([bytes(400_000)] * 3)
        assert await drain(Queue(other, PATH)) == numbers(50)


# -- the bound --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["multi", "setData"])
async def test_a_producer_that_is_refused_for_the_moment_keeps_its_place_in_the_line(operation: str) -> None:
    """Refused is the put itself, or the write of `room` by the first in the line."""
    async with clients(3) as (server, (zk, other, third)):
        await Queue(third, PATH, 1).put(b"0")
        with server.answering(operation, zkwire.ThrottledError, session=zk.session_id, times=1) as refused:
            first = asyncio.create_task(Queue(zk, PATH, 1).put(b"1"))
            if operation == "setData":
                await refused.until_hit()
            else:
                await until_line(third, f"{PATH}/producers", 1)
            second = asyncio.create_task(Queue(other, PATH, 1).put(b"2"))
            await until_line(third, f"{PATH}/producers", 2)
            queue = Queue(third, PATH, 1)
            assert [await queue.get() for _ in range(3)] == numbers(3)
            assert refused.hits == 1
        await first
        await second
        await settled(third, PATH)


async def test_a_producer_does_not_count_the_items_before_it_knows_the_version_of_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The read of the version is refused, that of the count is not; then another producer puts."""
    monkeypatch.setattr("recipes.common.retrying._PAUSE", 0.5)
    async with clients() as (server, (zk, other)):
        faster = Queue(other, PATH, 1)
        await faster.put(b"0")
        assert await faster.get() == b"0"
        with server.answering(
            "getData", zkwire.ThrottledError, path=f"{PATH}/room", session=zk.session_id, times=1
        ) as refused:
            putting = asyncio.create_task(Queue(zk, PATH, 1).put(b"2", within=0))
            await refused.until_hit()
            await faster.put(b"1", within=0)
            assert isinstance(await outcome(putting), TimeoutError)
        assert await drain(faster) == [b"1"]


async def test_the_bound_holds_for_producers_that_race() -> None:
    """Pitfall 21: count and put must not be two steps."""
    async with clients(6) as (_, zks):
        queues = [Queue(zk, PATH, 5) for zk in zks]
        most = 0
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(queues[1:]):
                for count in range(6):
                    group.create_task(queue.put(b"%d-%d" % (number, count)))
            found: list[bytes] = []
            while len(found) < 30:
                stat = await zks[0].exists(f"{PATH}/entries")
                most = max(most, stat.num_children if stat else 0)
                found.append(await queues[0].get())
        assert most <= 5
        assert len(set(found)) == 30
        for number in range(5):
            mine = [int(data.split(b"-")[1]) for data in found if data.startswith(b"%d-" % number)]
            assert mine == list(range(6))
        await settled(zks[0], PATH)


async def test_a_producer_that_knows_of_room_does_not_overtake_a_waiting_one() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH, 4)
        await queue.put(b"0")
        waiting = asyncio.create_task(Queue(other, PATH, 4).put_many(numbers(1, 5)))
        await until_line(zk, f"{PATH}/producers", 1)
        await until(lambda: len(other._session.requests.watches) == 1)  # for room
        with pytest.raises(TimeoutError):
            await queue.put(b"5", within=0.05)
        assert await queue.get() == b"0"
        await waiting
        putting = asyncio.create_task(queue.put(b"5"))
        await until_line(zk, f"{PATH}/producers", 1)
        assert await queue.get() == b"1"
        await putting
        assert await drain(queue) == numbers(2, 6)


@pytest.mark.parametrize(("within", "count"), [(None, 3), (0, 5)])
async def test_a_producer_that_comes_too_late_three_times_enters_the_line_unless_it_must_not_wait(
    within: float | None, count: int
) -> None:
    """There is room each time."""
    async with clients() as (server, (zk, other)):
        queue, faster = Queue(zk, PATH, 9), Queue(other, PATH, 9)
        await faster.put(b"0")
        ours: dict[str, Any] = {"session": zk.session_id, "times": 1}
        looks = [server.hold_replies("getData", path=f"{PATH}/room", nth=1 + n, **ours) for n in range(count)]
        with server.hold_replies("multi", nth=count + 1, **ours) as last:
            putting = asyncio.create_task(queue.put(b"slow", within=within))
            for number, look in enumerate(looks, 1):
                await look.until_hit()
                assert await line(other, f"{PATH}/producers") == []
                await faster.put(b"%d" % number)
                look.release()
            await last.until_hit()
            assert len(await line(other, f"{PATH}/producers")) == (within is None)
        await putting
        assert await drain(queue) == [*numbers(count + 1), b"slow"]


async def test_a_producer_that_waits_for_room_writes_once_and_not_at_each_take() -> None:
    """Its put comes too late, and meanwhile the parent of the items is deleted by hand; it keeps its place."""
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH, 4)
        await queue.put_many(numbers(4))
        waiting = asyncio.create_task(Queue(other, PATH, 4).put_many(numbers(4, 8)))

        async def waits_for_room() -> bool:
            stat = await zk.exists(f"{PATH}/room")
            return stat is not None and stat.version > 1 and watch_count(other) == 1

        for number in range(4):
            await until(waits_for_room)
            assert (await zk.get(f"{PATH}/room")).stat.version == 2
            with server.hold_replies("getChildren", path=f"{PATH}/entries", session=other.session_id) as looking:
                assert await queue.get() == b"%d" % number
                await looking.until_hit()
                if number == 3:
                    await zk.set(f"{PATH}/room", b"4")
                    await zk.delete(f"{PATH}/entries")
        await waiting
        assert (await zk.get(f"{PATH}/room")).stat.version == 4
        assert await drain(queue) == numbers(4, 8)


async def test_a_lone_producer_fills_a_queue_to_its_bound_without_a_look() -> None:
    observer = Counting()
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=observer) as zk:
        await other.create(f"{PATH}/room", make_parents=True)  # without the parent of the items
        server._machine.tree.nodes[f"{PATH}/room"].version = 2**31 - 4  # soon negative
        queue = Queue(zk, PATH, 4)
        await queue.put(b"0")
        before = len(observer.requests)
        await queue.put(b"1")
        await queue.put_many(numbers(2, 4))
        assert [name for name in observer.requests[before:] if name not in ("delete", "ping")] == ["multi", "multi"]
        with pytest.raises(TimeoutError):
            await queue.put(b"4", within=0)
        assert await drain(Queue(other, PATH)) == numbers(4)
        await asyncio.gather(*map(queue.put, numbers(3)))


@pytest.mark.limit(10)
async def test_a_put_within_0_seconds_uses_the_room_that_is_there_and_does_not_wait() -> None:
    async with clients() as (server, (zk, other)):
        queue, full = Queue(zk, PATH, 4), f"{PATH} had no room for 1 more within 0 s"
        await queue.put(b"0", within=0)
        await asyncio.gather(queue.put(b"1", within=0), queue.put(b"2", within=0), Queue(other, PATH, 4).put(b"3"))
        with pytest.raises(TimeoutError, match=full):
            await queue.put(b"4", within=0)
        waiting = asyncio.create_task(queue.put(b"4"))  # by the same object: the next put does not wait for it either
        await until_line(zk, f"{PATH}/producers", 1)
        with pytest.raises(TimeoutError, match=full):
            await queue.put(b"5", within=0)
        assert await queue.get() in (b"1", b"3", b"0")
        await waiting
        assert len(await drain(queue)) == 4
        await settled(zk, PATH)
        await no_watch_stays(server.hosts)


@pytest.mark.parametrize("within", [None, 0])
async def test_a_node_without_a_number_in_the_line_of_the_producers_costs_a_put_nothing(within: float | None) -> None:
    observer = Counting()
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=observer) as zk:
        await Queue(other, PATH, 4).put(b"0")
        await other.create(f"{PATH}/producers/readme", make_parents=True)
        await Queue(zk, PATH, 4).put(b"1", within=within)
        assert observer.requests == ["getData", "getData", "getChildren", "multi"]


async def test_a_put_that_does_not_wait_looks_at_a_few_nodes_in_the_line() -> None:
    async with clients() as (_, (zk, other)):
        ticket = f"{PATH}/producers/_c_{zk.unique_id()}-put-"
        for number in range(17):
            await other.create(f"{PATH}/producers/x-{number:010d}", make_parents=True)
            await other.create(f"{ticket}{number:010d}")
            if number == 0:
                await Queue(zk, PATH, 4).put(b"x", within=0)
        queue = Queue(zk, PATH, 4)
        with pytest.raises(TimeoutError):
            await queue.put(b"0", within=0)
        await other.delete(f"{ticket}{16:010d}")
        await queue.put(b"0", within=0)
        await other.delete(f"{ticket}{15:010d}")
        await other.create(f"{ticket}{15:010d}", ephemeral=True)  # one that waits
        with pytest.raises(TimeoutError):
            await Queue(zk, PATH, 4).put(b"1", within=0)


async def test_a_room_that_is_foreign_or_may_not_be_written_gives_a_clear_error() -> None:
    async with clients(1) as (_, (zk,)):
        await zk.create(f"{PATH}/room", b"x" * 1000 + b"\xff", make_parents=True)
        with pytest.raises(ValueError, match=f"{PATH} has maxsize {'x' * 40}, not 2: give that number"):
            await Queue(zk, PATH, 2).put(b"0")
        await zk.set(f"{PATH}/room", b"2")
        await zk.set_acl(f"{PATH}/room", zkwire.READ_ONLY_ACL)
        with pytest.raises(zkwire.NoAuthError, match=f"{PATH}/room"):
            await Queue(zk, PATH, 2).put(b"0")


# -- names that are taken ---------------------------------------------------------------------------------------------


async def take_names(zk: Client, numbers: range) -> None:
    """Create items by hand, with the names of items that are to come; this uses numbers up, too."""
    for number in numbers:
        await zk.create(f"{PATH}/entries/entry-100-{number:010d}", b"theirs")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
async def test_a_put_leaves_out_taken_names_until_too_many(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves out 1, then 2, then 4 numbers, and here no more."""
    monkeypatch.setattr("recipes.queue.producer._MOST_LEFT_OUT", 4)
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        assert not await queue._producer._is_at_last_number()  # there is no queue
        await queue.put(b"0")
        await take_names(other, range(count + 1, 2 * count + 1))  # from the next number on
        if count > 4:
            with pytest.raises(zkwire.NodeExistsError, match="nodes that another client has created by hand: delete"):
                await queue.put_many(numbers(1, 3))
            assert (await drain(queue)).count(b"theirs") == count
            return
        await queue.put_many(numbers(1, 3))
        await settled(zk, PATH)
        assert sorted(await drain(queue)) == sorted([*numbers(3), *[b"theirs"] * count])


# -- members that do not agree ----------------------------------------------------------------------------------------


async def test_a_changed_maxsize_counts_for_producers_that_put_before_and_for_those_that_wait() -> None:
    async with clients() as (server, (zk, other)):
        queue, next_queue = Queue(zk, PATH, 2), Queue(other, PATH, 3)
        await queue.put(b"0")
        await other.set(f"{PATH}/room", b"3")  # as the documentation says
        with pytest.raises(ValueError, match="has maxsize 3, not 2"):
            await queue.put(b"1")
        await next_queue.put_many([b"1", b"2"])
        waiting = asyncio.create_task(next_queue.put(b"3"))
        await until_line(zk, f"{PATH}/producers", 1)
        await zk.set(f"{PATH}/room", b"1")
        await next_queue.get()
        with pytest.raises(ValueError, match="has maxsize 1, not 3"):
            await waiting
        await settled(zk, PATH)
        await no_watch_stays(server.hosts)


@pytest.mark.limit(10)
async def test_a_waiting_producer_does_not_undo_a_change_of_maxsize() -> None:
    async with clients() as (server, (zk, other)):
        await Queue(zk, PATH, 1).put(b"0")
        # The answer to its second read, in the line, is late: the number changes between its read and its write.
        with server.hold_replies("getData", path=f"{PATH}/room", session=zk.session_id, nth=2) as reading:
            waiting = asyncio.create_task(Queue(zk, PATH, 1).put(b"1"))
            await reading.until_hit()
            await other.set(f"{PATH}/room", b"2")
        with pytest.raises(ValueError, match="has maxsize 2, not 1"):
            await waiting


# -- the end of the numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("maxsize", [None, 5])
async def test_numbers_that_are_used_up_begin_again_when_the_queue_is_empty(maxsize: int | None) -> None:
    async with clients() as (server, (zk, other)):
        queue, last = Queue(zk, PATH, maxsize), 2**31 - 1
        await queue.put(b"0")
        server._machine.tree.nodes[f"{PATH}/entries"].creates = last
        await queue.put(b"1")
        for _ in range(2):
            with pytest.raises(zkwire.NodeExistsError, match=r"after 2147483647; .* take all items out"):
                await queue.put_many([b"2", b"3"])
        assert sorted(await other.get_children(f"{PATH}/entries")) == ["entry-100-0000000000", "entry-100-2147483647"]
        consumer = Queue(other, PATH)
        assert await consumer.get() == b"0"
        async with consumer.claim():
            with pytest.raises(zkwire.NodeExistsError, match="take all items out"):
                await queue.put(b"2")
        await settled(zk, PATH)
        being_taken = await other.create(f"{PATH}/taken/entry-100-0000000001", ephemeral=True)
        with pytest.raises(zkwire.NodeExistsError, match="take all items out"):
            await queue.put_many([b"2", b"3"])
        await other.delete(being_taken)
        waiting = asyncio.create_task(consumer.get())
        await until_line(zk, f"{PATH}/consumers", 1)
        await queue.put(b"2")
        await asyncio.gather(queue.put(b"2"), Queue(other, PATH, maxsize).put(b"2"))
        assert [await waiting, *await drain(queue)] == [b"2"] * 3
        await queue.put_many([b"3", b"4"])
        assert sorted(await other.get_children(f"{PATH}/entries")) == ["entry-100-0000000003", "entry-100-0000000004"]
        await settled(zk, PATH)


async def test_numbers_that_this_client_may_not_renew_give_a_clear_error() -> None:
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"0")
        assert await queue.get() == b"0"
        await settled(zk, PATH)
        server._machine.tree.nodes[f"{PATH}/entries"].creates = 2**31 - 1
        await queue.put(b"1")
        await settled(zk, PATH)
        await other.set_acl(PATH, [zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.DELETE, "world", "anyone")])
        with pytest.raises(zkwire.NoAuthError, match=f"2147483647; .* the permissions CREATE and DELETE on {PATH}"):
            await queue.put(b"2")
        await other.set_acl(PATH, zkwire.OPEN_ACL)
        await other.set_acl(f"{PATH}/entries", zkwire.READ_ONLY_ACL)
        with pytest.raises(zkwire.NoAuthError, match=r"^((?!2147483647).)*$"):
            await Queue(other, PATH).put(b"2")  # which has not met the end
        queue = Queue(other, PATH, acl=[zkwire.ACL(zkwire.Perms.ALL, "digest", "no digest")])
        queue._producer._are_numbers_used_up = True
        with pytest.raises(zkwire.InvalidACLError, match=r"^((?!2147483647).)*$"):
            await queue.put(b"2")
