"""The queue: order, priorities, the two modes of taking, waiting, the bound; what it costs on the wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import zkwire
from recipes import Item, LockLostError, Queue
from tests.support.everywhere import below, no_watch_stays
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, expire, no_task_stays, outcome, until, until_line, until_watches
from zkwire import Client, SessionState, WatchEventType
from zkwire.testing import RealServer, Server, VirtualClock

PATH = "/queue"


@asynccontextmanager
async def clients(count: int = 2, **options: Any) -> AsyncIterator[tuple[Server, list[Client]]]:
    """A server in memory and its clients."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        yield (
            server,
            [await stack.enter_async_context(zkwire.connect(server.hosts, **options)) for _ in range(count)],
        )


async def drain(queue: Queue) -> list[bytes]:
    """Take all that is to be had."""
    found = []
    while await queue.size():
        found.append(await queue.get())
    return found


async def ephemerals(zk: Client, path: str) -> list[str]:
    """The ephemeral nodes below `path`, of whatever client: on servers before 3.6 one has to look at each node."""
    found = []
    try:
        names = await zk.get_children(path)
    except zkwire.NoNodeError:
        return []
    for name in names:
        node = f"{path}/{name}"
        stat = await zk.exists(node)
        if stat is not None and stat.ephemeral_owner:
            found.append(node)
        elif stat is not None:
            found += await ephemerals(zk, node)
    return found


async def until_nothing_is_held(path: str, zk: Client) -> None:
    """Wait until no ephemeral node is left, of whatever client, and nobody stands in a line."""

    async def free() -> bool:
        await zk.sync(path)
        return not await ephemerals(zk, path)

    await until(free)


# -- order ------------------------------------------------------------------------------------------------------------


async def test_first_in_first_out_on_a_real_server(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        producer, consumer = Queue(zk, path), Queue(other, path)
        for number in range(20):
            await producer.put(b"%d" % number)
        assert await consumer.size() == 20
        assert await consumer.peek() == b"0"
        assert [await consumer.get() for _ in range(20)] == [b"%d" % number for number in range(20)]
        assert await consumer.size() == 0
        assert await consumer.peek() is None
        await until_nothing_is_held(path, zk)


async def test_the_more_urgent_go_first_whatever_came_before(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        queue, urgent = Queue(zk, path), Queue(other, path)
        await queue.put_many([b"%d" % number for number in range(30)])
        assert await queue.get() == b"0"
        await urgent.put(b"later", priority=500)
        await urgent.put(b"now", priority=0)
        await urgent.put(b"soon", priority=99)
        assert [await queue.get() for _ in range(3)] == [b"now", b"soon", b"1"]
        assert (await drain(queue))[-2:] == [b"29", b"later"]


async def test_many_are_put_together_or_not_at_all_and_keep_their_order() -> None:
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put_many([b"%d" % number for number in range(50)])
        await queue.put_many([])
        with server.answering("multi", zkwire.NoAuthError, times=1), pytest.raises(zkwire.NoAuthError):
            await queue.put_many([b"x", b"y"])
        with pytest.raises(ValueError, match="too large"):
            await queue.put_many([bytes(400_000)] * 3)
        assert await drain(Queue(other, PATH)) == [b"%d" % number for number in range(50)]
        await until_nothing_is_held(PATH, zk)


async def test_puts_sent_together_keep_their_order() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"0")
        async with asyncio.TaskGroup() as group:
            for number in range(1, 200):
                group.create_task(queue.put(b"%d" % number))
        assert await drain(Queue(other, PATH)) == [b"%d" % number for number in range(200)]
        await until_nothing_is_held(PATH, zk)


async def test_iterating_takes_for_ever_and_leaves_nothing_behind() -> None:
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put_many([b"a", b"b", b"c"])
        found = []
        async for data in Queue(other, PATH):
            found.append(data)
            if len(found) == 2:
                break
        assert found == [b"a", b"b"]
        assert await queue.size() == 1
        await until_nothing_is_held(PATH, zk)
        await no_watch_stays(server.hosts)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"maxsize": 0}, ValueError),
        ({"maxsize": True}, TypeError),
        ({"maxsize": 1.5}, TypeError),
        ({"path": "queue"}, ValueError),
        ({"path": None}, TypeError),
    ],
)
async def test_a_queue_of_bad_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    async with clients(1) as (_, (zk,)):
        with pytest.raises(error):
            Queue(zk, **{"path": PATH} | arguments)


async def test_bad_input_is_told_before_anything_is_sent() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, 3)
        for bad in ("text", None, 5):
            with pytest.raises(TypeError):
                await queue.put(bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await queue.put(b"", True)
        with pytest.raises(ValueError, match="1000"):
            await queue.put(b"", 1000)
        with pytest.raises(ValueError, match="never find room"):
            await queue.put_many([b""] * 4)
        with pytest.raises(ValueError, match="within"):
            await queue.get(within=-1)
        with pytest.raises(TypeError):
            queue.claim(within="1")  # type: ignore[arg-type]
        assert await zk.exists(PATH) is None


# -- waiting ----------------------------------------------------------------------------------------------------------


async def test_who_waits_is_given_what_comes_in_the_order_of_the_waiting(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        waiting = []
        for number in range(5):
            waiting.append(asyncio.create_task(Queue(other, path).get()))
            await until_line(zk, f"{path}/consumers", number + 1)
        queue = Queue(zk, path)
        for number in range(5):
            await queue.put(b"%d" % number)
            assert await waiting[number] == b"%d" % number
        await until_nothing_is_held(path, zk)
        await until_watches(zookeeper, 0)


async def test_a_wait_is_bounded_and_says_where(zookeeper: RealServer, path: str) -> None:
    """Pitfall 8."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        with pytest.raises(TimeoutError, match=path):
            await Queue(zk, path).get(within=0.05)
        with body_raises(TimeoutError, match=path):
            async with Queue(zk, path).claim(within=0.05):
                raise AssertionError("nothing was put")
        await until_nothing_is_held(path, zk)
        await until_watches(zookeeper, 0)


async def test_a_closed_client_tells_at_once_and_so_does_one_that_is_closed_meanwhile() -> None:
    """Pitfall 6."""
    async with clients() as (_, (zk, other)):
        waiting = asyncio.create_task(Queue(zk, PATH).get())
        await until_line(other, f"{PATH}/consumers", 1)
        await zk.close()
        with pytest.raises(zkwire.SessionClosedError):
            await waiting
        with pytest.raises(zkwire.SessionClosedError):
            await Queue(zk, PATH).get()
        with pytest.raises(zkwire.SessionClosedError):
            await Queue(zk, PATH).put(b"x")


class Counting(zkwire.Observer):
    """Counts events, and requests by name."""

    def __init__(self) -> None:
        self.events: list[tuple[WatchEventType, str]] = []
        self.requests: list[str] = []

    def event_arrived(self, type: WatchEventType, path: str, zxid: int | None) -> None:
        self.events.append((type, path))

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        self.requests.append(operation)


async def test_fifty_waiting_consumers_are_no_herd() -> None:
    """An item that comes tells one consumer; that it leaves the line, two more."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        zk = await stack.enter_async_context(zkwire.connect(server.hosts))
        counts = [Counting() for _ in range(50)]
        waiting = set()
        for number, count in enumerate(counts):
            other = await stack.enter_async_context(zkwire.connect(server.hosts, observer=count))
            waiting.add(asyncio.create_task(Queue(other, PATH).get()))
            if number % 10 == 9:
                await until_line(zk, f"{PATH}/consumers", number + 1)
        await until(lambda: all("getData" in count.requests for count in counts[1:]))
        before = sum(len(count.events) for count in counts)
        queue = Queue(zk, PATH)
        served = []
        for number in range(25):
            await queue.put(b"%d" % number)
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            served += [task.result() for task in done]
        assert served == [b"%d" % number for number in range(25)]
        await queue.put_many([b"%d" % number for number in range(25, 50)])
        served += await asyncio.gather(*waiting)
        assert sorted(served, key=int) == [b"%d" % number for number in range(50)]
        told = sum(len(count.events) for count in counts) - before
        # For each item the one that is first and the two behind it, and now and then once more the one that is first.
        assert told <= 50 * 5
        assert max(len(count.events) for count in counts) <= 8
        await until_nothing_is_held(PATH, zk)


async def test_an_item_that_is_handed_back_goes_to_who_waits() -> None:
    """Nothing appears among the items then."""
    async with clients(3) as (server, (zk, other, third)):
        queue = Queue(zk, PATH)
        await queue.put(b"x")
        with body_raises(KeyError):
            async with queue.claim():
                waiting = asyncio.create_task(Queue(other, PATH).get())
                behind = asyncio.create_task(Queue(third, PATH).get())
                await until_line(zk, f"{PATH}/consumers", 2)
                await zk.ping()
                raise KeyError
        done, pending = await asyncio.wait({waiting, behind}, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b"x"]
        for task in pending:
            task.cancel()
            await outcome(task)
        await until_nothing_is_held(PATH, zk)
        await no_watch_stays(server.hosts)


async def test_the_nodes_of_an_empty_queue_may_go_while_somebody_waits() -> None:
    """Pitfall 18: in older queues they are containers, which the server deletes when they have been empty for a
    while."""
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"x")
        await queue.get()
        await until_nothing_is_held(PATH, zk)
        waiting = asyncio.create_task(Queue(other, PATH).get())
        await until_line(zk, f"{PATH}/consumers", 1)
        await other.ping()
        await zk.delete(f"{PATH}/taken")
        await zk.delete(f"{PATH}/entries")
        await queue.put(b"y")
        assert await waiting == b"y"


@pytest.mark.parametrize("is_deleted", [False, True], ids=["empty for long", "deleted"])
async def test_who_comes_back_to_take_an_item_does_not_take_a_later_one_for_it(is_deleted: bool) -> None:
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
        await until_nothing_is_held(PATH, zk)
        if is_deleted:
            await zk.delete_tree(PATH)
        else:
            for _ in range(4):
                clock.advance(10)
        assert (await zk.exists(f"{PATH}/entries") is None) is is_deleted
        await Queue(zk, PATH).put(b"new")
        refusing.end()
        assert await getting == b"new"


async def test_a_first_put_that_is_cancelled_takes_away_no_node_that_others_use() -> None:
    async with clients() as (server, (zk, other)):
        with server.hold_replies(path=f"{PATH}/entries", session=zk.session_id) as making:
            putting = asyncio.create_task(Queue(zk, PATH).put(b"a"))
            await making.until_hit()
            await Queue(other, PATH).put(b"b")
            assert await Queue(other, PATH).get() == b"b"
            await until_nothing_is_held(PATH, other)
            putting.cancel()
            await outcome(putting)
        await zk.ping()
        await zk.ping()  # behind all that the answer to the create may have caused
        await Queue(other, PATH).put(b"c")
        assert await other.get_children(f"{PATH}/entries") == ["entry-100-0000000001"]


async def test_a_session_that_expires_while_waiting_is_replaced(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts, session_timeout=1.0) as short:
        waiting = asyncio.create_task(Queue(short, path).get())
        (old,) = await until_line(zk, f"{path}/consumers", 1)
        await expire(zookeeper, short)

        async def again() -> bool:
            return [old] != await zk.get_children(f"{path}/consumers") != []

        await until(again)
        await Queue(zk, path).put(b"x")
        assert await waiting == b"x"
        await until_nothing_is_held(path, zk)


async def test_without_renewal_an_expired_session_is_told() -> None:
    async with clients() as (server, (zk, _)), zkwire.connect(server.hosts, renew=False) as mortal:
        waiting = asyncio.create_task(Queue(mortal, PATH).get())
        await until_line(zk, f"{PATH}/consumers", 1)
        server.expire(mortal.session_id)
        with pytest.raises(zkwire.SessionExpiredError):
            await waiting


@pytest.mark.limit(10)
async def test_the_bound_of_a_get_holds_though_the_connection_is_lost_while_it_puts_back() -> None:
    async with clients() as (server, (zk, other)):
        await Queue(other, PATH).put(b"x")
        with server.hold_replies("multi", session=zk.session_id) as taking:
            getting = asyncio.create_task(Queue(zk, PATH).get(within=0.05))
            await taking.until_hit()
            await until(lambda: getting.cancelling() > 0)  # by the bound; it waits until the item is back
            with server.refuse_connections():
                server.drop(zk.session_id)
                with pytest.raises(TimeoutError):
                    await getting
        assert await Queue(other, PATH).get() == b"x"


# -- claims -----------------------------------------------------------------------------------------------------------


async def test_a_claimed_item_is_hidden_and_deleted_at_the_end(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        queue, theirs = Queue(zk, path), Queue(other, path)
        await queue.put_many([b"a", b"b"])
        async with queue.claim() as item:
            assert item == item.data == b"a"
            assert item.is_certain()
            assert item.certain_for() > 0
            item.check()
            assert await theirs.size() == 1
            assert await theirs.peek() == b"b"
            async with theirs.claim() as second:
                assert second.data == b"b"
                assert second.token > item.token
            transaction = item.transaction()
            transaction.create(f"{path}-result", b"done")
            await transaction.commit()
        assert await item.lost() is None
        assert await theirs.size() == 0
        assert await zk.get_children(f"{path}/entries") == []
        assert (await zk.get(f"{path}-result")).data == b"done"
        await until_nothing_is_held(path, zk)
        await until_watches(zookeeper, 0)


async def test_what_a_body_fails_with_goes_back_to_its_place(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        queue = Queue(zk, path)
        await queue.put_many([b"a", b"b", b"c"])
        with body_raises(KeyError):
            async with queue.claim() as item:
                raise KeyError(item.data)
        assert await drain(Queue(other, path)) == [b"a", b"b", b"c"]
        await until_nothing_is_held(path, zk)


async def test_a_body_that_is_cancelled_hands_back() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"a")
        inside = asyncio.Event()

        async def handle() -> None:
            async with queue.claim():
                inside.set()
                await asyncio.Event().wait()

        handling = asyncio.create_task(handle())
        await inside.wait()
        handling.cancel()
        assert isinstance(await outcome(handling), asyncio.CancelledError)
        assert await Queue(other, PATH).get() == b"a"
        await until_nothing_is_held(PATH, zk)


async def test_claims_of_one_item_have_growing_tokens() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH)
        await queue.put(b"a")
        tokens = []
        for _ in range(5):
            with body_raises(KeyError):
                async with queue.claim() as item:
                    tokens.append(item.token)
                    raise KeyError
        assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("signal", ["expiry", "deleted"])
async def test_a_lost_claim_interrupts_its_body_and_leaves_the_next_one_alone(signal: str) -> None:
    """Pitfall 24: what is lost must not delete, nor free, what somebody else has claimed since."""
    async with clients() as (server, (zk, other)):
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        await queue.put(b"a")
        inside: asyncio.Future[Item] = asyncio.get_running_loop().create_future()

        async def handle() -> None:
            async with queue.claim() as item:
                inside.set_result(item)
                await asyncio.Event().wait()

        handling = asyncio.create_task(handle())
        item = await inside
        if signal == "expiry":
            server.expire(zk.session_id)
        else:
            mark = f"{PATH}/taken/{item.entry.rpartition('/')[2]}"
            transaction = other.transaction()
            transaction.delete(item.path)
            transaction.delete(mark)
            await transaction.commit()
        async with theirs.claim() as second:
            with pytest.raises(LockLostError):
                await handling
            assert second.data == b"a"
            assert second.token > item.token
            await zk.ping()
            second.check()
            assert await queue.size() == 0
        assert await other.get_children(f"{PATH}/entries") == []
        await until_nothing_is_held(PATH, zk)


async def test_a_body_that_did_not_notice_is_told_at_its_end() -> None:
    async with clients() as (server, (zk, other)):
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        await queue.put(b"a")
        with body_raises(LockLostError):
            async with queue.claim():
                server.expire(zk.session_id)
                await_uninterrupted = asyncio.ensure_future(theirs.get())
                while not await_uninterrupted.done():
                    try:
                        await asyncio.shield(await_uninterrupted)
                    except asyncio.CancelledError:
                        continue
        assert await_uninterrupted.result() == b"a"
        await until(lambda: zk.state is SessionState.CONNECTED)
        assert await other.get_children(f"{PATH}/entries") == []


async def test_an_item_deleted_by_hand_is_handled() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"a")
        async with queue.claim() as item:
            await other.delete(item.entry)
        await until_nothing_is_held(PATH, zk)


# -- the bound --------------------------------------------------------------------------------------------------------


async def test_producers_wait_for_room_in_their_order(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        queue = Queue(zk, path, 2)
        await queue.put_many([b"0", b"1"])
        with pytest.raises(TimeoutError, match=path):
            await queue.put(b"never", within=0.05)
        waiting = []
        for number in range(2, 6):
            waiting.append(asyncio.create_task(Queue(other, path, 2).put(b"%d" % number)))
            await until_line(zk, f"{path}/producers", number - 1)
        for number in range(6):
            assert await queue.size() == 2 or number > 4
            assert await queue.get() == b"%d" % number
            if number < 4:
                await waiting[number]
        await until_nothing_is_held(path, zk)
        await until_watches(zookeeper, 0)


async def test_the_bound_holds_for_producers_that_race() -> None:
    """Pitfall 21: count and put are not two steps."""
    async with clients(6) as (_, zks):
        queues = [Queue(zk, PATH, 5) for zk in zks]
        most = 0
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(queues[1:]):
                for count in range(20):
                    group.create_task(queue.put(b"%d-%d" % (number, count)))
            found: list[bytes] = []
            while len(found) < 100:
                stat = await zks[0].exists(f"{PATH}/entries")
                most = max(most, stat.num_children if stat else 0)
                found.append(await queues[0].get())
        assert most <= 5
        assert len(set(found)) == 100
        for number in range(5):
            mine = [int(data.split(b"-")[1]) for data in found if data.startswith(b"%d-" % number)]
            assert mine == list(range(20))
        await until_nothing_is_held(PATH, zks[0])


async def test_a_claimed_item_keeps_its_room() -> None:
    async with clients(1) as (_, (zk,)):
        queue = Queue(zk, PATH, 1)
        await queue.put(b"a")
        async with queue.claim():
            with pytest.raises(TimeoutError):
                await queue.put(b"b", within=0.05)
        await queue.put(b"b", within=5)
        assert await queue.get() == b"b"


async def test_many_at_once_wait_until_there_is_room_for_all() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH, 3)
        await queue.put_many([b"0", b"1"])
        waiting = asyncio.create_task(Queue(other, PATH, 3).put_many([b"2", b"3"]))
        await until_line(zk, f"{PATH}/producers", 1)
        assert await queue.get() == b"0"
        await waiting
        assert await drain(queue) == [b"1", b"2", b"3"]


async def test_a_put_that_is_given_up_takes_away_no_room_that_others_count_by() -> None:
    async with clients() as (server, (zk, other)):
        for name in ("entries", "taken"):
            await other.ensure_path(f"{PATH}/{name}")
        patient = Queue(other, PATH, 3)
        with server.hold_replies(path=f"{PATH}/room", session=zk.session_id, nth=2) as making:
            putting = asyncio.create_task(Queue(zk, PATH, 3).put(b"a"))
            await making.until_hit()
            await patient.put(b"b")
            putting.cancel()
            await outcome(putting)
        await zk.ping()
        await zk.ping()  # behind all that the answer to the create may have caused
        await Queue(zk, PATH, 3).put(b"c")
        with pytest.raises(TimeoutError):
            await patient.put_many([b"d", b"e"], within=0.05)
        assert await patient.size() == 2


async def test_who_has_put_without_a_wait_does_not_go_ahead_of_who_waits_for_room() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH, 4)
        await queue.put(b"0")
        waiting = asyncio.create_task(Queue(other, PATH, 4).put_many([b"1", b"2", b"3", b"4"]))
        await until_line(zk, f"{PATH}/producers", 1)
        await until(lambda: len(other._session.watches) == 1)  # for room
        with pytest.raises(TimeoutError):
            await queue.put(b"5", within=0.05)
        assert await queue.get() == b"0"
        await waiting
        putting = asyncio.create_task(queue.put(b"5"))
        await until_line(zk, f"{PATH}/producers", 1)
        assert await queue.get() == b"1"
        await putting
        assert await drain(queue) == [b"2", b"3", b"4", b"5"]


# -- on the wire ------------------------------------------------------------------------------------------------------


async def test_what_a_queue_costs(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        queue = Queue(zk, path)
        await queue.put(b"0")
        mark = proxy.mark()
        await queue.put(b"1")
        assert proxy.requests(mark) == ["multi"]
        mark = proxy.mark()
        await queue.put_many([b"%d" % number for number in range(2, 30)])
        assert proxy.requests(mark) == ["multi"]
        await until_nothing_is_held(path, zk)  # the traces

        async def cost(*expected: str, writes: int) -> None:
            await until(lambda: len(proxy.requests(mark)) >= len(expected))
            assert proxy.requests(mark) == list(expected)
            assert proxy.writes(mark) == writes

        mark = proxy.mark()
        assert await queue.get() == b"0"
        await cost("getChildren", "getChildren", "getData", "multi", "delete", writes=4)
        mark = proxy.mark()
        assert await queue.get() == b"1"  # what comes next was read with the list
        await cost("getChildren", "getChildren", "getData", "multi", "delete", writes=3)
        mark = proxy.mark()
        async with queue.claim() as item:
            await cost("getChildren", "getChildren", "multi", "getData", "getData", writes=2)
            mark = proxy.mark()
            item.check()
        await cost("multi", "delete", writes=1)
        mark = proxy.mark()
        assert await queue.size() == 27
        await cost("getChildren", "getChildren", writes=1)


async def test_a_bounded_put_of_a_lone_producer_is_one_request(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        queue = Queue(zk, path, 100)
        await queue.put(b"0")
        mark = proxy.mark()
        for number in range(1, 20):
            await queue.put(b"%d" % number)
        assert [name for name in proxy.requests(mark) if name != "delete"] == ["multi"] * 19
        assert await queue.size() == 20


async def test_a_deep_queue_is_not_listed_for_each_take() -> None:
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        await Queue(zk, PATH).put_many([b"%d" % number for number in range(2560)])
        queue = Queue(other, PATH)
        for number in range(30):
            assert await queue.get() == b"%d" % number
        assert 2 * 3 <= count.requests.count("getChildren") <= 2 * 5


async def test_consumers_that_take_one_after_the_other_keep_the_order() -> None:
    async with clients(4) as (_, (zk, *others)):
        await Queue(zk, PATH).put_many([b"%d" % number for number in range(1600)])
        queues = [Queue(other, PATH) for other in others]
        for number in range(60):
            assert await queues[number % 2].get() == b"%d" % number
        for number in range(60, 70):  # and one that has not been here for a while
            assert await queues[2 if number % 5 == 0 else number % 2].get() == b"%d" % number


async def test_a_list_that_is_long_out_of_date_is_not_tried_to_its_end() -> None:
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        await Queue(zk, PATH).put_many([b"%d" % number for number in range(2000)])
        queue = Queue(other, PATH)
        assert await queue.get() == b"0"
        for name in await zk.get_children(f"{PATH}/entries"):
            await zk.delete(f"{PATH}/entries/{name}")
        await Queue(zk, PATH).put(b"new")
        before = len(count.requests)
        assert await queue.get() == b"new"
        assert len(count.requests) - before <= 10


async def test_fifty_consumers_of_a_deep_queue_do_not_all_run_after_the_same_item() -> None:
    count = Counting()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        zk = await stack.enter_async_context(zkwire.connect(server.hosts))
        await Queue(zk, PATH).put_many([b"%d" % number for number in range(1000)])
        others = [await stack.enter_async_context(zkwire.connect(server.hosts, observer=count)) for _ in range(50)]
        found: list[bytes] = []

        async def consume(queue: Queue) -> None:
            found.extend([await queue.get() for _ in range(5)])

        async with no_task_stays():
            await asyncio.gather(*(consume(Queue(other, PATH)) for other in others))
        assert len(set(found)) == 250
        # Each take is one transaction, if nobody was there before; the others notice mostly when they read.
        assert count.requests.count("multi") <= 250 * 2, count.requests.count("multi")
        await until_nothing_is_held(PATH, others[0])
        left = await below(zk, f"{PATH}/entries")
        assert len(left) == 750
