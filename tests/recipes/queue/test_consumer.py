"""Taking items out: each at most once, none lost by a cut or a cancellation, and no herd among competing consumers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import zkwire
from recipes import Queue
from tests.support.everywhere import Scene, below, cancel_at_every_moment, scene
from tests.support.lost_answers import answer_lost
from tests.support.queues import (
    PATH,
    STAYS,
    Counting,
    clients,
    contents,
    drain,
    hold,
    is_empty,
    numbers,
    settled,
    take_by_claim,
    take_by_get,
    three_are_there,
)
from tests.support.recipes import no_task_stays, outcome, until
from tests.support.virtual_time import Sent, Wire, a_client, in_virtual_time, now
from zkwire import Client
from zkwire.testing import Server, VirtualClock
from zkwire.testing.memory.faults import Hold

# -- lost answers and cancellation ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("idle_receipts_go_soon")
@pytest.mark.parametrize(("take", "again_after"), [(Queue.get, None), (Queue.get, 2), (hold, None)])
async def test_a_take_whose_client_is_closed_upon_the_cancellation_loses_nothing_and_is_no_attempt(
    take: Callable[[Queue], Awaitable[bytes]], again_after: int | None
) -> None:
    found: list[bytes] = []

    async def prepare(stage: Scene) -> None:
        found.clear()
        await three_are_there(stage)
        await stage.other.create(f"{stage.path}/attempts/entry-100-0000000000", b"1", make_parents=True)

    async def act(stage: Scene) -> None:
        async with zkwire.connect(stage.server.hosts) as zk:
            found.append(await take(Queue(zk, stage.path, max_attempts=9)))

    async def afterwards(stage: Scene) -> None:
        assert [*found, *await contents(stage)] == numbers(3)
        left = [(await stage.other.get(node)).data for node in await below(stage.other, f"{stage.path}/attempts")]
        assert left == [b"1"] * (not found)

    await cancel_at_every_moment(
        act, prepare=prepare, afterwards=afterwards, stays=STAYS, again_after=again_after, most=120
    )


@pytest.mark.parametrize("is_deleted", [False, True], ids=["empty for long", "deleted"])
async def test_a_repeated_take_does_not_take_a_later_item_of_the_same_name(is_deleted: bool) -> None:
    clock = VirtualClock()
    async with (
        Server(clock=clock, container_interval=10, max_session_timeout=900) as server,
        zkwire.connect(server.hosts, 600) as zk,
        zkwire.connect(server.hosts, 600) as other,
    ):
        await Queue(zk, PATH).put(b"old")
        with server.drop_before("multi", session=other.session_id) as taking:
            getting = asyncio.create_task(Queue(other, PATH).get())
            await taking.until_hit()
            refusing = server.refuse_connections()
        assert await Queue(zk, PATH).get() == b"old"
        await settled(zk, PATH)
        if is_deleted:
            await zk.delete_tree(PATH)
        else:
            for _ in range(4):
                clock.advance(10)
        assert (await zk.exists(f"{PATH}/entries") is None) is is_deleted
        await Queue(zk, PATH).put(b"new")
        refusing.end()
        assert await getting == b"new"


@asynccontextmanager
async def cancelled_get(server: Server, zk: Client, queue: Queue | None = None) -> AsyncIterator[Hold]:
    """Cancel a get of `zk` whose take was carried out; the answer comes when the fault is released, or at the end."""
    with server.hold_replies("multi", session=zk.session_id, times=1) as taking:
        getting = asyncio.create_task((queue or Queue(zk, PATH)).get())
        await taking.until_hit()
        getting.cancel()
        yield taking
    assert isinstance(await outcome(getting), asyncio.CancelledError)


@pytest.mark.parametrize("fault", ["lost before", "lost after", "refused"])
async def test_an_item_is_put_back_once_whatever_its_first_answer(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(PATH) as stage:
        await three_are_there(stage)
        server, session = stage.server, stage.zk.session_id
        async with cancelled_get(server, stage.zk) as taking:
            if fault == "refused":
                disturbed = server.answering("multi", zkwire.ThrottledError, session=session, times=2)
            else:
                drop = server.drop_after if fault == "lost after" else server.drop_before
                disturbed = drop("multi", session=session)
            with disturbed:
                taking.release()
                await disturbed.until_hit()
        assert await contents(stage) == numbers(3)
        assert "may be lost" not in caplog.text


@pytest.mark.parametrize(("ask", "left"), [("get", []), ("cancelled get", [b"x"]), ("put", [b"x", b"y"])])
@in_virtual_time
async def test_a_time_limit_cuts_off_no_write_that_was_sent(ask: str, left: list[bytes]) -> None:
    """TimeoutError means that nothing was taken, or put.  Also a get that is cancelled ends with its answer."""
    async with a_client() as (server, zk):
        queue = Queue(zk, PATH, 2)
        await queue.put(b"x")

        server.hold_from("multi")
        asking = asyncio.create_task(queue.put(b"y", within=1) if ask == "put" else queue.get(within=1))
        await asyncio.sleep(2)  # of virtual time: the limit passes
        assert server.is_holding
        assert not asking.done()
        if ask == "cancelled get":
            asking.cancel()
        start, server.strike = now(), lambda wire, sent: None
        server.release()
        await asyncio.wait([asking])
        assert (now(), asking.cancelled()) == (start, ask == "cancelled get")
        assert await drain(queue) == left


@in_virtual_time
@pytest.mark.parametrize("maxsize", [None, 5])
async def test_a_time_limit_ends_what_is_repeated_because_it_was_not_carried_out(maxsize: int | None) -> None:
    """The connection breaks at each take, or put."""
    async with a_client() as (server, zk):
        queue = Queue(zk, PATH, maxsize=maxsize)
        await queue.put(b"x")

        def strike(wire: Wire, sent: Sent) -> bool | None:
            if sent.name != "multi":
                return None
            server.loop.call_soon(server.drop)
            return False

        server.strike = strike
        with pytest.raises(TimeoutError):
            await (queue.get(within=1) if maxsize is None else queue.put(b"y", within=1))
        server.strike = lambda wire, sent: None
        assert await queue.get() == b"x"
        assert await queue.size() == 0


@pytest.mark.parametrize("is_taken", [False, True])
@in_virtual_time
async def test_a_cancelled_get_ends_in_a_second_while_its_writes_are_refused_for_the_moment(is_taken: bool) -> None:
    async with a_client() as (server, zk):
        queue = Queue(zk, PATH)
        await queue.put(b"x")
        server.names()

        def strike(wire: Wire, sent: Sent) -> int | None:
            if sent.name == "multi" and is_taken and getting.cancelling() == 0:
                getting.cancel()
                return None
            return zkwire.ThrottledError.code if sent.name == "multi" else None

        server.strike = strike
        getting = asyncio.create_task(queue.get())
        await server.until("multi", 2)
        getting.cancel()
        await asyncio.wait([getting], timeout=1)
        assert getting.cancelled()
        server.strike = lambda wire, sent: None
        assert await queue.get() == b"x"


@pytest.mark.parametrize("why", ["too large", "no permission"])
async def test_an_item_that_cannot_be_put_back_is_returned_by_the_next_get(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A plain create, as kazoo sends it, has room for some bytes more than a transaction."""
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put_many(numbers(3))
        assert await queue.get() == b"0"
        item = bytes(2**20 - 80) if why == "too large" else b"x"
        await other.create(f"{PATH}/entries/entry-050-", item, sequential=True)
        if why == "no permission":
            perms = zkwire.Perms.ALL & ~zkwire.Perms.CREATE
            await other.set_acl(f"{PATH}/entries", [zkwire.ACL(perms, "world", "anyone")])
        async with cancelled_get(server, zk, queue):
            pass
        assert f"an item of {PATH} that a cancelled get had taken is kept for the next get" in caplog.text
        await settled(zk, PATH)  # nothing hides an item
        queue._consumer._kept.append(b"second")
        assert [await queue.get(within=0) for _ in range(4)] == [item, b"second", b"1", b"2"]


@in_virtual_time
async def test_an_item_whose_put_back_may_have_succeeded_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    async with a_client(renew=False) as (server, zk):
        queue = Queue(zk, PATH)
        await queue.put(b"x")
        server.names()

        server.hold_from("multi")
        getting = asyncio.create_task(queue.get())
        await server.until("multi")
        getting.cancel()
        await asyncio.sleep(0)
        server.release()
        await server.until("multi", 2)
        with pytest.raises(asyncio.CancelledError):
            await getting
        await until(lambda: "may be lost" in caplog.text)
        with pytest.raises(zkwire.SessionExpiredError):
            await queue.get(within=0)


async def test_an_item_is_put_back_although_another_one_has_its_number_by_now() -> None:
    """The server gives the last number, 2147483647, again when the item with it has been taken."""
    async with clients() as (server, (zk, other)):
        await Queue(other, PATH).put(b"a")
        assert await Queue(other, PATH).get() == b"a"
        server._machine.tree.nodes[f"{PATH}/entries"].creates = 2**31 - 1
        await Queue(other, PATH).put(b"old")
        async with cancelled_get(server, zk):
            await Queue(other, PATH).put(b"new")
        await settled(other, PATH)
        assert await drain(Queue(other, PATH)) == [b"old", b"new"]


async def test_a_get_that_has_read_an_item_does_not_take_it_from_under_a_claim() -> None:
    async with scene() as stage:
        await three_are_there(stage)
        with stage.server.hold_replies("getData", session=stage.zk.session_id, times=1) as reading:
            getting = asyncio.create_task(Queue(stage.zk, stage.path).get())
            await reading.until_hit()
            async with Queue(stage.other, stage.path).claim() as item:
                assert item.data == b"0"
                reading.release()
                taken = await getting
        assert sorted([taken, *await contents(stage)]) == [b"1", b"2"]


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_get_whose_used_receipt_was_deleted_after_its_answer_was_lost_returns_another_item(
    carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt that other takes have used before shows nothing any more, not even that it was not created."""
    monkeypatch.setattr("recipes.common.receipts._KEPT_FOR", 600.0)
    async with scene() as stage:
        await three_are_there(stage)
        queue = Queue(stage.zk, stage.path)
        assert await queue.get() == b"0"
        async with answer_lost(stage, queue.get(), carried_out=carried_out) as taking:
            (receipt,) = (name for name in await stage.other.get_children(stage.path) if name.startswith("take-"))
            await stage.other.delete(f"{stage.path}/{receipt}")
        assert await taking == b"2"
        assert await drain(Queue(stage.other, stage.path)) == ([] if carried_out else [b"1"])


@pytest.mark.parametrize("has_new_queue", [False, True])
async def test_an_item_is_put_back_although_the_queue_was_deleted_meanwhile(has_new_queue: bool) -> None:
    async with scene(PATH) as stage:
        await three_are_there(stage)
        async with cancelled_get(stage.server, stage.zk):
            await stage.other.delete_tree(stage.path)
            if has_new_queue:
                await Queue(stage.other, stage.path).put(b"new")
        assert await contents(stage) == ([b"0", b"new"] if has_new_queue else [b"0"])


@pytest.mark.parametrize("take", [take_by_get, take_by_claim])
async def test_an_item_whose_take_is_refused_stays_the_first(take: Callable[[Queue], Awaitable[bytes]]) -> None:
    """The list of before would serve for the next take, too, without this item."""
    async with clients() as (server, (zk, other)):
        await Queue(other, PATH).put_many(numbers(3))
        queue = Queue(zk, PATH)
        refusing = server.answering("multi", zkwire.NoAuthError, session=zk.session_id, times=1)
        with refusing, pytest.raises(zkwire.NoAuthError):
            await take(queue)
        assert await take(queue) == b"0"


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_consumer_that_may_not_read_its_own_claim_leaves_the_item_to_others(is_answered: bool) -> None:
    acl = [zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.READ, "world", "anyone")]
    async with clients() as (server, (zk, other)):
        await Queue(other, PATH, max_attempts=1)._nodes.make()
        await Queue(other, PATH).put(b"0")
        if not is_answered:
            server.drop_after("multi", session=zk.session_id)
        with pytest.raises(zkwire.NoAuthError):
            await take_by_claim(Queue(zk, PATH, max_attempts=1, acl=acl))
        await until(lambda: is_empty(other, f"{PATH}/taken"))
        (name,) = await other.get_children(f"{PATH}/attempts")
        await other.set_acl(f"{PATH}/attempts/{name}", zkwire.OPEN_ACL)
        async with Queue(other, PATH, max_attempts=1).claim(within=5) as item:
            assert (item, item.attempt) == (b"0", 1)


# -- peeking ----------------------------------------------------------------------------------------------------------


async def test_a_peek_shows_the_first_item_that_can_be_taken_and_takes_nothing() -> None:
    async with clients() as (server, (zk, other)):
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        assert (await queue.peek(), await queue.size()) == (None, 0)
        await theirs.put_many(numbers(3))
        await theirs.put(b"urgent", priority=1)
        assert (await queue.peek(), await queue.size()) == (b"urgent", 4)
        async with theirs.claim() as item:
            assert item == b"urgent"
            assert (await queue.peek(), await queue.size()) == (b"0", 3)
        with server.hold_replies("getChildren", session=zk.session_id) as looking:
            peeking = asyncio.create_task(queue.peek())
            await looking.until_hit()
            assert await theirs.get() == b"0"
        assert await peeking == b"1"
        assert await drain(theirs) == numbers(1, 3)


# -- the listing ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_claim_whose_item_was_taken_after_the_list_goes_on_with_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is no sign of competition."""
    async with a_client() as (server, zk):
        queue, theirs = Queue(zk, PATH), Queue(zk, PATH)
        await theirs.put_many(numbers(640))  # a list of so many serves for ten takes
        assert [await take_by_claim(queue), await theirs.get()] == numbers(2)
        server.names()
        assert await take_by_claim(queue) == b"2"
        assert server.names() == [*["multi", "getData", "getData"] * 2, "multi"]
        assert queue._consumer.view.listing.window == 0
        assert not caplog.text


async def test_twenty_consumers_of_a_deep_queue_do_not_all_try_the_same_item() -> None:
    count = Counting()
    async with AsyncExitStack() as stack:
        server, (zk,) = await stack.enter_async_context(clients(1))
        await Queue(zk, PATH).put_many(numbers(400))
        others = [await stack.enter_async_context(zkwire.connect(server.hosts, observer=count)) for _ in range(20)]
        found: list[bytes] = []

        async def consume(queue: Queue) -> None:
            found.extend([await queue.get() for _ in range(5)])

        async with no_task_stays():
            await asyncio.gather(*(consume(Queue(other, PATH)) for other in others))
        assert len(set(found)) == 100
        # A take without a rival is one transaction; a consumer mostly notices a rival when it reads the item.
        assert count.requests.count("multi") <= 100 * 2, count.requests.count("multi")
        await settled(others[0], PATH)
        assert len(await below(zk, f"{PATH}/entries")) == 300
