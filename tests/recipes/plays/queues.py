"""Plays of the queue: each item is put once, taken once at most, and none is lost."""

import asyncio
import contextlib
from typing import Final

import zkwire
from recipes import LockLostError, Queue
from tests.recipes.plays.entry import CANCEL, CUT, EVERY, EXPIRE, FORBID, REFUSE, Entry
from tests.support.everywhere import Scene
from tests.support.queues import STAYS, contents, numbers, settled, three_are_there
from tests.support.recipes import body_raises, until_line

# -- put --------------------------------------------------------------------------------------------------------------


async def put_three(stage: Scene) -> None:
    queue = Queue(stage.zk, stage.path)
    for data in numbers(3):
        await queue.put(data)
    assert await contents(stage) == numbers(3)


async def put_while_another_client_takes(stage: Scene) -> None:
    """Pitfall 23, from the other side: the item may be gone before its producer looks for it."""
    taking = asyncio.create_task(Queue(stage.other, stage.path).get())
    await Queue(stage.zk, stage.path).put(b"0")
    assert await taking == b"0"
    assert await contents(stage) == []


async def put_within_a_bound(stage: Scene) -> None:
    queue = Queue(stage.zk, stage.path, 2)
    await queue.put_many([b"0", b"1"])
    waiting = asyncio.create_task(queue.put(b"2"))
    await until_line(stage.other, f"{stage.path}/producers", 1)
    assert await Queue(stage.other, stage.path).get() == b"0"
    await waiting
    assert await contents(stage) == [b"1", b"2"]


async def put_with_numbers_used_up(stage: Scene) -> None:
    queue = Queue(stage.zk, stage.path)
    await Queue(stage.other, stage.path).put(b"0")
    assert await contents(stage) == [b"0"]
    stage.server._machine.tree.nodes[f"{stage.path}/entries"].creates = 2**31 - 1
    await queue.put_many(numbers(3))
    assert await contents(stage) == numbers(3)


async def put_two(stage: Scene) -> None:
    await Queue(stage.zk, stage.path).put_many(numbers(2))


async def put_one_within_a_bound(stage: Scene) -> None:
    await Queue(stage.zk, stage.path, 2).put(b"0")


async def both_or_none_are_there(stage: Scene) -> None:
    assert await contents(stage) in (numbers(2), [])


async def one_or_none_is_there(stage: Scene) -> None:
    assert await contents(stage) in (numbers(1), [])


async def fill(stage: Scene) -> None:
    await Queue(stage.other, stage.path, 1).put(b"0")


async def put_without_room(stage: Scene) -> None:
    await Queue(stage.zk, stage.path, 1).put(b"1")


async def put_with_room(stage: Scene) -> None:
    assert await contents(stage) == [b"0"]
    await Queue(stage.zk, stage.path, 1).put(b"2", within=5)
    assert await contents(stage) == [b"2"]


# -- get --------------------------------------------------------------------------------------------------------------


async def get_two(stage: Scene) -> None:
    """Pitfall 23."""
    queue = Queue(stage.zk, stage.path)
    assert await queue.get() == b"0"
    assert await queue.get() == b"1"
    assert await contents(stage) == [b"2"]


async def wait_and_get(stage: Scene) -> None:
    taking = asyncio.create_task(Queue(stage.zk, stage.path).get())
    await until_line(stage.other, f"{stage.path}/consumers", 1)
    await Queue(stage.other, stage.path).put(b"0")
    assert await taking == b"0"
    assert await contents(stage) == []


async def fill_with_three(stage: Scene) -> None:
    stage.kept.update(queue=Queue(stage.zk, stage.path), found=[])
    await three_are_there(stage)


async def get_one(stage: Scene) -> None:
    stage.kept["found"].append(await stage.kept["queue"].get())


async def get_the_others(stage: Scene) -> None:
    """Pitfall 9: the queue is as good as before, also for the consumer that was cancelled."""
    found = stage.kept["found"]
    await settled(stage.other, stage.path)
    assert found in ([], [b"0"])
    assert [*found, await stage.kept["queue"].get()] == [b"0", b"1"][: len(found) + 1]
    assert await contents(stage) == numbers(3)[len(found) + 1 :]


async def one_at_most_is_lost(stage: Scene) -> None:
    """The item that the expired session took may be lost; the consumer got the next one then."""
    (first,) = stage.kept["found"]
    left = await contents(stage)
    assert (first, left) in ((b"0", [b"1", b"2"]), (b"1", [b"2"]))


async def get_with_others(stage: Scene) -> None:
    """The cancelled task may be the one that has to list the items for the tasks before and after it."""
    stage.kept["others"] = [asyncio.create_task(stage.kept["queue"].get())]
    await asyncio.sleep(0)
    stage.kept["others"].append(asyncio.create_task(stage.kept["queue"].get()))
    await get_one(stage)


async def all_get_an_item(stage: Scene) -> None:
    found = [*stage.kept["found"], *await asyncio.gather(*stage.kept.pop("others", ()))]
    assert sorted([*found, *await contents(stage)]) == numbers(3)


async def get_nothing(stage: Scene) -> None:
    await Queue(stage.zk, stage.path).get()


async def put_by_another(stage: Scene) -> None:
    await settled(stage.other, stage.path)
    await Queue(stage.other, stage.path).put(b"0")
    assert await contents(stage) == [b"0"]


# -- claim ------------------------------------------------------------------------------------------------------------


async def claim_one(stage: Scene) -> None:
    """Pitfall 24."""
    async with Queue(stage.zk, stage.path).claim() as item:
        assert item.data == b"0"
        assert await Queue(stage.other, stage.path).size() == 2
    assert await contents(stage) == [b"1", b"2"]


async def claim_and_hand_back(stage: Scene) -> None:
    with body_raises(KeyError):
        async with Queue(stage.zk, stage.path).claim():
            raise KeyError
    assert await contents(stage) == numbers(3)


async def claim_and_handle(stage: Scene) -> None:
    async with Queue(stage.zk, stage.path).claim() as item:
        await asyncio.sleep(0)
        stage.kept["found"].append(item.data)


async def nothing_is_lost(stage: Scene) -> None:
    left = await contents(stage)
    assert left == numbers(3) or (left == [b"1", b"2"] and stage.kept["found"] == [b"0"])


# -- attempts ---------------------------------------------------------------------------------------------------------


async def one_is_there(stage: Scene) -> None:
    stage.kept["bodies"] = 0
    await Queue(stage.other, stage.path).put(b"0")


async def fail_twice(stage: Scene) -> None:
    queue = Queue(stage.zk, stage.path, max_attempts=2)
    for _ in range(4):
        with contextlib.suppress(KeyError, TimeoutError):
            if await queue.failed():
                break
            async with queue.claim(within=1):
                stage.kept["bodies"] += 1
                raise KeyError


async def cancel_twice_and_fail(stage: Scene) -> None:
    """A body that was cancelled is no attempt; one that raises CancelledError by itself is."""
    for most in (2, 1):
        queue = Queue(stage.zk, stage.path, max_attempts=most)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, queue.claim() as item:
                assert item.attempt == 1
                limit.reschedule(0.0)
                await asyncio.Event().wait()
        assert await queue.failed() == []
    with body_raises(asyncio.CancelledError):
        async with queue.claim():
            raise asyncio.CancelledError
    assert [failed.attempts for failed in await queue.failed()] == [1]


async def fail_twice_and_retry(stage: Scene) -> None:
    await fail_twice(stage)
    queue = Queue(stage.zk, stage.path)
    (failed,) = await queue.failed()
    assert (failed.attempts, stage.kept["bodies"]) == (2, 2)
    await queue.retry(failed)
    assert await queue.failed() == []
    assert await contents(stage) == [b"0"]


async def it_is_in_one_place(stage: Scene) -> None:
    """It was not claimed once more than it may be, and is in the queue or has failed."""
    await settled(stage.other, stage.path)
    failed = await Queue(stage.other, stage.path).failed()
    assert stage.kept["bodies"] <= 2
    assert [*(item.data for item in failed), *await contents(stage)] == [b"0"]
    assert not failed or failed[0].attempts == 2


async def it_has_failed(stage: Scene) -> None:
    stage.kept["bodies"] = 2
    queue = stage.kept["queue"] = Queue(stage.zk, stage.path)
    await Queue(stage.other, stage.path).put(b"0")
    for _ in range(2):
        with body_raises(KeyError):
            async with Queue(stage.other, stage.path, max_attempts=2).claim():
                raise KeyError
    (stage.kept["failed"],) = await queue.failed()


async def retry(stage: Scene) -> None:
    await stage.kept["queue"].retry(stage.kept["failed"])


# -- delay ------------------------------------------------------------------------------------------------------------


async def put_delayed(stage: Scene) -> None:
    await Queue(stage.zk, stage.path).put(b"0", delay=0.01)


async def one_or_none_comes(stage: Scene) -> None:
    await asyncio.sleep(0.015)
    await Queue(stage.other, stage.path).size()
    await one_or_none_is_there(stage)


async def put_delayed_and_get(stage: Scene) -> None:
    await put_delayed(stage)
    assert await Queue(stage.zk, stage.path).get() == b"0"
    assert await contents(stage) == []


async def one_is_due(stage: Scene) -> None:
    stage.kept["found"] = []
    await Queue(stage.other, stage.path).put(b"0", delay=0.001)


async def get_what_is_due(stage: Scene) -> None:
    stage.kept["found"].append(await Queue(stage.zk, stage.path).get())


async def it_came_once(stage: Scene) -> None:
    await settled(stage.other, stage.path)
    await Queue(stage.other, stage.path).size()
    assert [*stage.kept["found"], *await contents(stage)] == [b"0"]


# Nothing shows any more whether it was written.
_UNKNOWN: Final = (zkwire.ConnectionLostError, zkwire.SessionExpiredError)

ENTRIES: Final = [
    Entry("queue, put", put_three, {CUT, REFUSE}, stays=STAYS, steps=5),
    Entry("queue, put while another client takes", put_while_another_client_takes, {CUT}, stays=STAYS),
    Entry("queue, put within a bound", put_within_a_bound, {CUT}, stays=STAYS, steps=8, is_slow=True),
    Entry("queue, put with numbers used up", put_with_numbers_used_up, {CUT}, stays=STAYS, steps=2, is_slow=True),
    Entry("queue, put two", put_two, afterwards=both_or_none_are_there, stays=STAYS, lost=_UNKNOWN),
    Entry(
        "queue, put one within a bound", put_one_within_a_bound, EVERY, None, one_or_none_is_there, STAYS, lost=_UNKNOWN
    ),
    Entry("queue, no room", put_without_room, {CANCEL}, prepare=fill, afterwards=put_with_room, stays=STAYS, most=40),
    Entry("queue, get", get_two, {CUT}, prepare=three_are_there, stays=STAYS, steps=8),
    Entry("queue, wait and get", wait_and_get, {CUT, REFUSE}, stays=STAYS, steps=8),
    Entry("queue, get one", get_one, {CANCEL, CUT}, fill_with_three, get_the_others, stays=STAYS),
    Entry("queue, get one, refused", get_one, {REFUSE}, fill_with_three, get_the_others, STAYS),
    Entry("queue, get one, expired", get_one, {EXPIRE}, fill_with_three, one_at_most_is_lost, stays=STAYS),
    Entry("queue, several get", get_with_others, {CANCEL}, fill_with_three, all_get_an_item, stays=STAYS),
    Entry("queue, nothing to get", get_nothing, {CANCEL}, afterwards=put_by_another, stays=STAYS, most=40),
    Entry("queue, claim", claim_one, {CUT}, prepare=three_are_there, stays=STAYS, steps=5),
    Entry("queue, hand back", claim_and_hand_back, {CUT}, three_are_there, stays=STAYS, steps=5, is_slow=True),
    Entry(
        "queue, claim and handle",
        claim_and_handle,
        EVERY - {FORBID},
        fill_with_three,
        nothing_is_lost,
        STAYS,
        lost=(LockLostError,),
    ),
    Entry("queue, fail twice and retry", fail_twice_and_retry, {CUT}, one_is_there, stays=STAYS, steps=12),
    Entry("queue, cancel twice and fail", cancel_twice_and_fail, {CUT}, one_is_there, stays=STAYS, steps=9),
    Entry(
        "queue, fail twice",
        fail_twice,
        prepare=one_is_there,
        afterwards=it_is_in_one_place,
        stays=STAYS,
        lost=(LockLostError, zkwire.SessionExpiredError),
    ),
    Entry("queue, put delayed and get", put_delayed_and_get, {CUT, REFUSE}, stays=STAYS, steps=8),
    Entry("queue, put delayed", put_delayed, {CANCEL, EXPIRE}, None, one_or_none_comes, STAYS, lost=_UNKNOWN),
    Entry("queue, get delayed", get_what_is_due, {CANCEL, CUT}, one_is_due, it_came_once, STAYS, steps=5),
    Entry("queue, retry", retry, EVERY, it_has_failed, it_is_in_one_place, STAYS, lost=_UNKNOWN),
]
