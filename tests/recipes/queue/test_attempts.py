"""Attempts: which claims of an item count, and what becomes of an item that has failed for the last time."""

import asyncio
import contextlib
import logging
import re

import pytest

import zkwire
from recipes import LockLostError, Queue
from recipes.queue.attempts import move_abandoned, read_number, take_back
from tests.support.client import Server as AnyServer
from tests.support.client import begun
from tests.support.queues import PATH, Counting, clients, drain, hold, is_empty, numbers, settled
from tests.support.recipes import body_raises, outcome, until
from zkwire import Client, Perms


async def fail(queue: Queue) -> int:
    """Claim the first item, fail, and return the number of the attempt."""
    with body_raises(KeyError):
        async with queue.claim(within=5) as item:
            raise KeyError
    return item.attempt


async def children(zk: Client, path: str) -> dict[str, int]:
    return {name: len(await zk.get_children(f"{path}/{name}")) for name in ("entries", "taken", "attempts", "failed")}


async def test_an_item_that_has_failed_for_the_last_time_moves(each_server: AnyServer, path: str) -> None:
    """An item that failed n times moves to `failed` in one transaction and is claimed no more."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queues = [Queue(client, path, max_attempts=3) for client in (zk, other)]
        await queues[0].put(b"bad", 7)
        assert [await fail(queue) for queue in (*queues, queues[0])] == [1, 2, 3]
        (failed,) = await queues[1].failed()
        assert (failed.data, failed.attempts, failed.name) == (b"bad", 3, "entry-007-0000000000")
        stat = (await zk.get(failed.path)).stat
        assert (await zk.get(f"{path}/entries")).stat.pzxid == stat.czxid
        assert failed.since.timestamp() * 1000 == pytest.approx(stat.ctime)
        for queue in queues:
            with pytest.raises(TimeoutError):
                await queue.claim(within=0).__aenter__()
        assert await children(zk, path) == {"entries": 0, "taken": 0, "attempts": 0, "failed": 1}

        await queues[0].put_many([b"more", b"less"], 7)
        await queues[1].retry(failed)
        assert await queues[1].failed() == []
        for data in (b"more", b"less", b"bad"):
            async with queues[0].claim(within=5) as item:
                assert (item, item.attempt) == (data, 1)
        with pytest.raises(zkwire.NoNodeError, match=re.escape(failed.path)):
            await queues[0].retry(failed)
        await settled(zk, path)
        assert set((await children(zk, path)).values()) == {0}


@pytest.mark.parametrize("has_failed", [True, False])  # the node: it may be deleted by hand
async def test_a_consumer_that_dies_in_its_body_used_one(caplog: pytest.LogCaptureFixture, has_failed: bool) -> None:
    """A consumer that crashes in the body counts as an attempt: the claim itself has counted it."""
    async with clients() as (server, (zk, other)):
        dying, queue = Queue(zk, PATH, max_attempts=2), Queue(other, PATH, max_attempts=2)
        await queue.put_many([b"bad", b"good"])
        for attempt in (1, 2):
            with body_raises(LockLostError):
                async with dying.claim(within=5) as item:
                    assert (item, item.attempt) == (b"bad", attempt)
                    server.expire(zk.session_id)
                    await asyncio.Event().wait()
        if not has_failed:
            await other.delete(f"{PATH}/failed")
        moving = server.drop_before("multi", session=other.session_id, nth=2)
        with caplog.at_level(logging.WARNING, "recipes.queue.attempts"), moving:
            async with queue.claim(within=5) as item:
                assert (item, item.attempt) == (b"good", 1)
        (failed,) = await queue.failed()
        assert (failed.data, failed.attempts) == (b"bad", 2)
        assert f"{item.entry[:-1]}0 has failed 2 times, and was moved to {PATH}/failed" in caplog.text
        await settled(zk, PATH)
        assert await children(zk, PATH) == {"entries": 0, "taken": 0, "attempts": 0, "failed": 1}


@pytest.mark.parametrize("closes", [False, True])  # the client, as Ctrl-C does with the consumers' tasks
async def test_a_claim_that_ends_before_its_body_takes_its_attempt_back(closes: bool) -> None:
    async with clients() as (server, (zk, other)):
        await Queue(other, PATH).put(b"a")
        assert await fail(Queue(other, PATH, max_attempts=3)) == 1
        server.drop_before("setData")
        with server.hold_replies("multi", session=zk.session_id, nth=2, times=1) as held:
            claiming = asyncio.create_task(hold(Queue(zk, PATH, max_attempts=3)))
            await held.until_hit()
            _ = await begun(zk.close()) if closes else claiming.cancel()
        await outcome(claiming)
        await settled(other, PATH)
        assert await fail(Queue(other, PATH, max_attempts=3)) == 2


async def test_what_was_taken_back_does_not_count_out_a_later_claim() -> None:
    """The write that takes an attempt back is repeated after a lost answer; another consumer has claimed by then."""
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=9)
        await queue.put(b"a")
        assert [await fail(queue), await fail(queue)] == [1, 2]
        name = (await zk.get_children(f"{PATH}/attempts"))[0]
        await take_back(queue._nodes, name, 1, 0)
        assert await fail(queue) == 3
        await take_back(queue._nodes, name, 3, 2)
        assert await fail(queue) == 3


@pytest.mark.usefixtures("unwatched")
async def test_counting_costs_an_item_that_has_not_failed_no_request() -> None:
    counts = []
    for most in (None, 5):
        observer = Counting()
        async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=observer) as zk:
            await Queue(other, PATH, max_attempts=most).put_many(numbers(4))
            await Queue(other, PATH, max_attempts=5)._nodes.make()
            observer.requests.clear()
            for _ in range(3):
                async with Queue(zk, PATH, max_attempts=most).claim() as item:
                    assert item.attempt == bool(most)
                    assert len(await other.get_children(f"{PATH}/attempts")) == bool(most)
            counts.append([name for name in observer.requests if name not in ("sync", "ping")])  # on a busy machine
    assert counts[0] == counts[1]


async def test_nodes_that_were_deleted_by_hand_keep_no_item(caplog: pytest.LogCaptureFixture) -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=1)
        await queue.put_many(numbers(3))
        for number in range(3):
            async with queue.claim(within=5) as item:
                await zk.delete_tree(f"{PATH}/attempts")
                if number:
                    await zk.delete(f"{PATH}/failed")
                if number > 1:
                    await zk.delete(item.entry)  # it counts as handled
            assert (item, item.attempt) == (b"%d" % number, 1)
        await queue.put_many(numbers(2))
        for child in ("attempts", "failed"):
            with body_raises(KeyError):
                async with queue.claim(within=5):
                    await zk.delete_tree(f"{PATH}/{child}")
                    raise KeyError
        assert sum((await children(zk, PATH)).values()) == len(await queue.failed()) == 1 + (child == "attempts")
        assert f"entry-100-0000000003 has failed 1 times, and was moved to {PATH}/failed" in caplog.text


@pytest.mark.parametrize("data", [b"", b"many", b"-1", b"9" * 5000])
async def test_a_number_that_a_stranger_has_written_is_none(data: bytes) -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=2)
        await queue.put(b"a")
        assert await fail(queue) == 1
        await zk.set(f"{PATH}/attempts/{(await zk.get_children(f'{PATH}/attempts'))[0]}", data)
        assert [await fail(queue), await fail(queue)] == [1, 2]
        assert [item.attempts for item in await queue.failed()] == [2]


@pytest.mark.parametrize("lacks", [None, ("failed", Perms.CREATE), ("attempts", Perms.DELETE)])
async def test_an_item_that_cannot_move_is_skipped_and_the_bodys_error_is_raised(
    caplog: pytest.LogCaptureFixture, lacks: tuple[str, Perms] | None
) -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=1)
        await queue.put_many([b"bad", b"good"])
        await queue._nodes.make()
        if lacks is None:  # the name of the next node in `failed` is taken
            await zk.create(f"{PATH}/failed/entry-100-0000000000-1-0000000001")
        else:
            await zk.set_acl(f"{PATH}/{lacks[0]}", [zkwire.ACL(Perms.ALL & ~lacks[1], "world", "anyone")])
        assert await fail(queue) == 1
        with caplog.at_level(logging.WARNING, "recipes"):
            async with Queue(zk, PATH, max_attempts=1).claim(within=5) as item:
                assert item == b"good"
                await zk.set_acl(f"{PATH}/attempts", zkwire.OPEN_ACL)
        assert caplog.text.count("failed for the last time, and cannot be moved to") == 1
        await settled(zk, PATH)
        assert await children(zk, PATH) == {"entries": 1, "taken": 0, "attempts": 1, "failed": lacks is None}


async def test_other_consumers_share_the_items_and_a_get_forgets_the_attempts() -> None:
    """kazoo's consumers, and those without `max_attempts`, take an item as before, and leave its number."""
    async with clients(1) as (_, (zk,)):
        counting, plain = Queue(zk, PATH, max_attempts=2), Queue(zk, PATH)
        await counting.put_many(numbers(3))
        assert [await fail(counting), await fail(plain)] == [1, 0]
        assert sorted([await counting.get(), await counting.get()]) == [b"1", b"2"]
        assert await children(zk, PATH) == {"entries": 1, "taken": 0, "attempts": 1, "failed": 0}
        assert await counting.get() == b"0"
        await until(lambda: is_empty(zk, f"{PATH}/attempts"))


@pytest.mark.parametrize(
    ("perms", "child", "why"), [(0, "", "not be read"), (Perms.READ, "", "not be written"), (31, "/x", "has children")]
)
async def test_an_item_that_cannot_be_counted_is_not_claimed_and_hides_no_other(
    each_server: AnyServer, path: str, caplog: pytest.LogCaptureFixture, perms: int, child: str, why: str
) -> None:
    async with zkwire.connect(each_server.hosts) as zk:
        queue = Queue(zk, path, max_attempts=9)
        await queue.put_many(numbers(2))
        acl = [zkwire.ACL(perms, "world", "anyone"), zkwire.digest_acl("other", "x")]
        number = f"{path}/attempts/{min(await zk.get_children(f'{path}/entries'))}"
        await zk.create(number, make_parents=True, acl=acl)
        if child:
            await zk.create(number + child)
        with caplog.at_level(logging.WARNING, "recipes"):
            async with queue.claim(within=5) as item:
                assert item == b"1"
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await queue.claim(within=0).__aenter__()
        (warning,) = caplog.messages
        assert f"{number}, which counts its claims, " in warning
        assert why in warning


async def test_the_number_of_a_former_item_of_the_same_name_does_not_count() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=3)
        for _ in range(2):
            await queue.put(b"a")
            assert [await fail(queue), await fail(queue)] == [1, 2]
            await zk.delete_tree(f"{PATH}/entries")
        (name,) = await zk.get_children(f"{PATH}/attempts")
        assert (await read_number(queue._nodes, name)).attempts == 2  # while there is no parent of items


async def test_a_number_that_has_changed_since_it_was_read_is_read_again() -> None:
    async with clients() as (server, (zk, other)):
        theirs = Queue(other, PATH, max_attempts=9)
        await theirs.put(b"a")
        assert await fail(theirs) == 1
        number = re.compile(f"{PATH}/attempts/.*")
        with server.hold_replies("getData", path=number, session=zk.session_id, times=1) as held:
            failing = asyncio.create_task(fail(Queue(zk, PATH, max_attempts=9)))
            await held.until_hit()
            assert await fail(theirs) == 2
        assert await failing == 3
        (name,) = await zk.get_children(f"{PATH}/attempts")
        await zk.set(f"{PATH}/attempts/{name}", b"9" * 9)
        found = await read_number(theirs._nodes, name)
        await asyncio.gather(*(move_abandoned(theirs._nodes, name, found) for _ in range(2)))
        assert [item.attempts for item in await theirs.failed()] == [999_999_999]


@pytest.mark.parametrize(("has_number", "swallows"), [(True, False), (False, False), (True, True)])
async def test_a_claim_whose_body_was_cancelled_is_no_attempt(has_number: bool, swallows: bool) -> None:
    """Its item comes after the others; a body that ends normally anyway has handled it."""
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=2)
        await queue.put_many(numbers(2))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, queue.claim():
                if not has_number:
                    await zk.delete_tree(f"{PATH}/attempts")
                limit.reschedule(0.0)
                with contextlib.suppress(*[asyncio.CancelledError] * swallows):
                    await asyncio.Event().wait()
        for data in (b"1",) if swallows else (b"1", b"0"):
            async with queue.claim(within=5) as item:
                assert (item, item.attempt) == (data, 1)
        assert await queue.size() == 0


async def test_strangers_nodes_hide_no_failed_item() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, max_attempts=1)
        assert await queue.failed() == []
        await queue.put_many(numbers(12))
        for _ in range(11):
            assert await fail(queue) == 1
        for name in ("entry", "entry-0000000001", "entry-x-0000000002", "5-0000000004", f"x-{'9' * 5000}-0000000005"):
            await zk.create(f"{PATH}/failed/{name}")
        acl = [zkwire.ACL(Perms.ALL, "digest", "other:x")]
        await zk.create(f"{PATH}/failed/entry-100-0000000000-1-0000000003", acl=acl)
        assert [item.data for item in await queue.failed()] == numbers(11)


async def test_a_retried_item_waits_for_room() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, 1, max_attempts=1)
        await queue.put(b"a")
        assert await fail(queue) == 1
        await queue.put(b"b")
        (failed,) = await queue.failed()
        with pytest.raises(TimeoutError, match="no room"):
            await queue.retry(failed, within=0.01)
        assert await queue.failed() == [failed]
        assert await drain(queue) == [b"b"]
        await queue.retry(failed, within=0)
        assert await drain(queue) == [b"a"]
