"""The queue with its connection cut at every step and its tasks cancelled at every moment, on the server in memory.

What is put is there once; what is taken is taken once; what is not taken is there still, in its place.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from recipes import LockLostError, Queue
from recipes.queue.order import in_order
from tests.support.everywhere import Scene, below, cancel_at_every_moment, cut_at_every_step, scene
from tests.support.recipes import body_raises, outcome, until, until_line
from zkwire import GetData, SessionState


@pytest.fixture(autouse=True)
def _traces_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each play waits for them."""
    monkeypatch.setattr("recipes.common.trace._KEPT_FOR", 0.01)


# What may stand at the end, and is looked into by `settled`.
STAYS = ("entries", "taken", "consumers", "producers", "room")


async def settled(stage: Scene) -> None:
    """Wait until nothing is held any more: no claim, no trace of a put, no place in a line."""

    lasting = {f"{stage.path}/{name}" for name in STAYS}

    async def free() -> bool:
        nodes = await below(stage.other, stage.path)
        return lasting.issuperset(node for node in nodes if not node.startswith(f"{stage.path}/entries/"))

    await until(free, what=f"nodes stay below {stage.path}")


async def contents(stage: Scene) -> list[bytes]:
    """Take out, by the client that is left alone, all that is in the queue."""
    await settled(stage)
    try:
        names = in_order(await stage.other.get_children(f"{stage.path}/entries"))
    except zkwire.NoNodeError:
        return []
    nodes = await stage.other.get_many([GetData(f"{stage.path}/entries/{name}") for name in names])
    for name in names:
        await stage.other.delete(f"{stage.path}/entries/{name}")
    return [node.data for node in nodes]


# -- cut --------------------------------------------------------------------------------------------------------------


async def put_three(stage: Scene) -> None:
    queue = Queue(stage.zk, stage.path)
    for data in (b"0", b"1", b"2"):
        await queue.put(data)
    assert await contents(stage) == [b"0", b"1", b"2"]


async def put_while_somebody_takes(stage: Scene) -> None:
    """Pitfall 23, from the other side: an item may be gone before its producer looks for it."""
    consumer, queue = Queue(stage.other, stage.path), Queue(stage.zk, stage.path)
    taking = asyncio.create_task(consumer.get())
    await queue.put(b"0")
    assert await taking == b"0"
    assert await contents(stage) == []


async def put_many(stage: Scene) -> None:
    await Queue(stage.zk, stage.path).put_many([b"0", b"1", b"2"])
    assert await contents(stage) == [b"0", b"1", b"2"]


async def put_within_a_bound(stage: Scene) -> None:
    queue = Queue(stage.zk, stage.path, 2)
    await queue.put_many([b"0", b"1"])
    waiting = asyncio.create_task(queue.put(b"2"))
    await until_line(stage.other, f"{stage.path}/producers", 1)
    assert await Queue(stage.other, stage.path).get() == b"0"
    await waiting
    assert await contents(stage) == [b"1", b"2"]


async def get_two(stage: Scene) -> None:
    """Pitfall 23."""
    await Queue(stage.other, stage.path).put_many([b"0", b"1", b"2"])
    queue = Queue(stage.zk, stage.path)
    assert await queue.get() == b"0"
    assert await queue.get() == b"1"
    assert await contents(stage) == [b"2"]


async def get_what_is_waited_for(stage: Scene) -> None:
    taking = asyncio.create_task(Queue(stage.zk, stage.path).get())
    await until_line(stage.other, f"{stage.path}/consumers", 1)
    await Queue(stage.other, stage.path).put(b"0")
    assert await taking == b"0"
    assert await contents(stage) == []


async def claim_one(stage: Scene) -> None:
    """Pitfall 24."""
    await Queue(stage.other, stage.path).put_many([b"0", b"1"])
    async with Queue(stage.zk, stage.path).claim() as item:
        assert item.data == b"0"
        assert await Queue(stage.other, stage.path).size() == 1
    assert await contents(stage) == [b"1"]


async def claim_and_hand_back(stage: Scene) -> None:
    await Queue(stage.other, stage.path).put_many([b"0", b"1"])
    with body_raises(KeyError):
        async with Queue(stage.zk, stage.path).claim():
            raise KeyError
    assert await contents(stage) == [b"0", b"1"]


@pytest.mark.parametrize(
    ("play", "steps"),
    [
        (put_three, 5),
        (put_while_somebody_takes, 1),
        (put_many, 3),
        (put_within_a_bound, 8),
        (get_two, 8),
        (get_what_is_waited_for, 8),
        (claim_one, 6),
        (claim_and_hand_back, 5),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_cut_at_every_step(play: Callable[[Scene], Awaitable[None]], steps: int) -> None:
    assert await cut_at_every_step(play, stays=STAYS, at_least=steps) < 60


# -- cancelled --------------------------------------------------------------------------------------------------------


async def three_are_there(stage: Scene) -> None:
    await Queue(stage.other, stage.path).put_many([b"0", b"1", b"2"])


async def test_a_put_that_is_cancelled_is_made_once_or_not() -> None:
    async def put(stage: Scene) -> None:
        await Queue(stage.zk, stage.path).put(b"0")

    async def afterwards(stage: Scene) -> None:
        assert await contents(stage) in ([b"0"], [])

    await cancel_at_every_moment(put, afterwards=afterwards, stays=STAYS)


async def test_puts_of_many_that_are_cancelled_are_made_all_or_none() -> None:
    async def put(stage: Scene) -> None:
        await Queue(stage.zk, stage.path).put_many([b"0", b"1"])

    async def afterwards(stage: Scene) -> None:
        assert await contents(stage) in ([b"0", b"1"], [])

    await cancel_at_every_moment(put, afterwards=afterwards, stays=STAYS)


async def test_a_get_that_is_cancelled_loses_nothing() -> None:
    """Pitfall 9, too: the queue is as good as before, for the consumer that was cancelled as well."""
    found: list[bytes] = []
    queues: list[Queue] = []

    async def prepare(stage: Scene) -> None:
        found.clear()
        queues[:] = [Queue(stage.zk, stage.path)]
        await three_are_there(stage)

    async def get(stage: Scene) -> None:
        found.append(await queues[0].get())

    async def afterwards(stage: Scene) -> None:
        await settled(stage)
        assert found in ([], [b"0"])
        assert [*found, await queues[0].get()] == [b"0", b"1"][: len(found) + 1]
        assert await contents(stage) == [b"0", b"1", b"2"][len(found) + 1 :]

    await cancel_at_every_moment(get, prepare=prepare, afterwards=afterwards, stays=STAYS, at_least=5)


async def test_a_get_whose_client_is_closed_upon_the_cancellation_loses_nothing() -> None:
    for turns in range(30):
        async with scene() as stage:
            await three_are_there(stage)
            taking = asyncio.create_task(Queue(stage.zk, stage.path).get())
            for _ in range(turns):
                await asyncio.sleep(0)
            taking.cancel()
            came = await outcome(taking)
            await stage.zk.close()
            async with zkwire.connect(stage.server.hosts) as zk:
                left = await contents(Scene(stage.server, zk, stage.other, stage.path))
        assert left == [b"1", b"2"] if came == b"0" else [b"0", b"1", b"2"], turns


async def test_a_wait_that_is_cancelled_leaves_nothing() -> None:
    async def get(stage: Scene) -> None:
        await Queue(stage.zk, stage.path).get()

    async def afterwards(stage: Scene) -> None:
        await settled(stage)
        await Queue(stage.other, stage.path).put(b"0")
        assert await contents(stage) == [b"0"]

    await cancel_at_every_moment(get, afterwards=afterwards, stays=STAYS, most=40)


async def test_a_claim_that_is_cancelled_loses_nothing() -> None:
    handled: list[bytes] = []

    async def claim(stage: Scene) -> None:
        handled.clear()
        async with Queue(stage.zk, stage.path).claim() as item:
            await asyncio.sleep(0)
            handled.append(item.data)

    async def afterwards(stage: Scene) -> None:
        left = await contents(stage)
        assert left in ([b"0", b"1", b"2"], [b"1", b"2"])
        if left == [b"1", b"2"]:
            assert handled == [b"0"]

    await cancel_at_every_moment(claim, prepare=three_are_there, afterwards=afterwards, stays=STAYS, at_least=8)


async def test_a_put_that_waits_for_room_and_is_cancelled_leaves_nothing() -> None:
    async def fill(stage: Scene) -> None:
        await Queue(stage.other, stage.path, 1).put(b"0")

    async def put(stage: Scene) -> None:
        await Queue(stage.zk, stage.path, 1).put(b"1")

    async def afterwards(stage: Scene) -> None:
        assert await contents(stage) == [b"0"]
        queue = Queue(stage.zk, stage.path, 1)
        await queue.put(b"2", within=5)
        assert await contents(stage) == [b"2"]

    await cancel_at_every_moment(put, prepare=fill, afterwards=afterwards, stays=STAYS, most=40)


async def test_a_bounded_put_that_is_cancelled_is_made_once_or_not() -> None:
    async def put(stage: Scene) -> None:
        await Queue(stage.zk, stage.path, 2).put(b"0")

    async def afterwards(stage: Scene) -> None:
        assert await contents(stage) in ([b"0"], [])

    await cancel_at_every_moment(put, afterwards=afterwards, stays=STAYS)


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_put_whose_session_ends_before_it_is_known_is_told_to_be_in_doubt() -> None:
    for drop_after in (False, True):
        async with scene() as stage:
            queue = Queue(stage.zk, stage.path)
            await queue.put(b"0")
            drop = stage.server.drop_after if drop_after else stage.server.drop_before
            with drop("multi", session=stage.zk.session_id), stage.server.refuse_connections():
                putting = asyncio.create_task(queue.put(b"1"))
                await until(lambda: stage.zk.state is SessionState.SUSPENDED)
                stage.server.expire(stage.zk.session_id)
            with pytest.raises(zkwire.ConnectionLostError) as caught:
                await putting
            assert caught.value.maybe_applied
            await queue.put(b"2")
            assert await contents(stage) == ([b"0", b"1", b"2"] if drop_after else [b"0", b"2"])


async def test_a_get_whose_session_ends_in_the_middle_goes_on_with_the_next() -> None:
    """At most once: what was taken by the session that ended is lost, and nothing else."""
    for drop_after in (False, True):
        async with scene() as stage:
            await three_are_there(stage)
            drop = stage.server.drop_after if drop_after else stage.server.drop_before
            with drop("multi", session=stage.zk.session_id), stage.server.refuse_connections():
                taking = asyncio.create_task(Queue(stage.zk, stage.path).get())
                await until(lambda: stage.zk.state is SessionState.SUSPENDED)
                stage.server.expire(stage.zk.session_id)
            first = await taking
            rest = await contents(stage)
            assert [first, *rest] == ([b"1", b"2"] if drop_after else [b"0", b"1", b"2"])


async def handle(stage: Scene, ready: asyncio.Event, going_on: asyncio.Event) -> None:
    async with Queue(stage.zk, stage.path).claim():
        ready.set()
        await going_on.wait()


async def test_a_claim_whose_session_ends_before_its_end_is_known_is_told() -> None:
    for drop_after in (False, True):
        async with scene() as stage:
            await three_are_there(stage)
            drop = stage.server.drop_after if drop_after else stage.server.drop_before

            ready, going_on = asyncio.Event(), asyncio.Event()
            handling = asyncio.create_task(handle(stage, ready, going_on))
            await ready.wait()
            with drop("multi", session=stage.zk.session_id), stage.server.refuse_connections():
                going_on.set()
                await until(lambda: stage.zk.state is SessionState.SUSPENDED)
                stage.server.expire(stage.zk.session_id)
            with pytest.raises(LockLostError, match="handled again"):
                await handling
            assert await contents(stage) == ([b"1", b"2"] if drop_after else [b"0", b"1", b"2"])
