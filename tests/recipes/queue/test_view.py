"""What the tasks of a process know of the items: looks that they share, and lists that are only confirmed."""

import asyncio

import pytest

import zkwire
from recipes import Queue
from tests.support.client import Server, turns
from tests.support.everywhere import Scene, scene
from tests.support.queues import PATH, Counting, clients, contents, numbers, settled
from tests.support.recipes import body_raises, until_armed


class Looks(Counting):
    """Counts the lists of all items."""

    lists = 0

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        super().request_done(operation, path, seconds, error)
        self.lists += operation == "getChildren" and path == f"{PATH}/entries"


# -- shared looks -----------------------------------------------------------------------------------------------------


async def test_tasks_that_get_at_the_same_time_share_a_look_and_are_served_in_the_order_of_their_calls() -> None:
    looks = Looks()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=looks) as other:
        await Queue(zk, PATH).put_many(numbers(64))
        queue = Queue(other, PATH)
        assert await asyncio.gather(*(queue.get() for _ in range(32))) == numbers(32)
        assert looks.lists <= 2  # of the first task, which has asked before the others, and of all others
        assert await asyncio.gather(*(queue.get() for _ in range(32))) == numbers(32, 64)
        assert looks.lists <= 4
        await settled(zk, PATH)


async def test_a_look_that_was_sent_before_a_get_does_not_serve_it() -> None:
    """The most urgent item may have been put in between."""
    async with clients(2) as (server, (zk, other)):
        queue = Queue(other, PATH)
        await Queue(zk, PATH).put_many(numbers(4))
        with server.hold_replies("getChildren", session=other.session_id) as looking:
            first = asyncio.create_task(queue.get())
            await looking.until_hit()
            await Queue(zk, PATH).put(b"urgent", 0)
            later = asyncio.create_task(queue.get())
            await asyncio.sleep(0)
        assert [await first, await later] == [b"0", b"urgent"]


async def test_a_get_behind_an_own_put_finds_the_item_although_a_look_was_under_way_meanwhile() -> None:
    """A list of so many items serves for several takes."""
    async with clients(2) as (server, (zk, other)):
        queue = Queue(other, PATH)
        await Queue(zk, PATH).put_many(numbers(2000))
        with server.hold_replies("getChildren", session=other.session_id) as looking:
            first = asyncio.create_task(queue.get())
            await looking.until_hit()
            putting = asyncio.create_task(queue.put(b"urgent", 0))
            await turns(10)
        await putting
        assert [await queue.get(), await first] == [b"urgent", b"0"]


# -- confirmed lists --------------------------------------------------------------------------------------------------


class Asked(zkwire.Observer):
    """Records the requests of a client, each with the node that it is about; leaves out what goes on behind them."""

    def __init__(self) -> None:
        self._requests: list[str] = []

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        if operation not in ("ping", "removeWatches", "delete"):
            node = (path or "").removeprefix(f"{PATH}/")
            self._requests.append(f"{operation} {'item' if node.startswith('entries/') else node}".rstrip())

    def new(self) -> list[str]:
        """Return the requests since the last call."""
        new, self._requests = self._requests, []
        return new


LISTED = ["getChildren2 entries", "getChildren taken", "getData item", "multi"]
CONFIRMED = ["getData entries", "getChildren taken", "getData item", "multi"]


@pytest.mark.parametrize("earlier", [0, 2**30])
async def test_the_requests_of_each_get_from_a_long_queue(earlier: int) -> None:
    asked = Asked()
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=asked) as zk:
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        await theirs.put_many(numbers(100))
        server._machine.tree.nodes[f"{PATH}/entries"].creates += earlier  # type: ignore[union-attr]
        number = 0

        async def costs(*expected: list[str]) -> None:
            nonlocal number
            for requests in expected:
                assert await queue.get() == b"%d" % number
                assert asked.new() == requests, number
                number += 1

        await costs(LISTED, LISTED, CONFIRMED, CONFIRMED)
        assert await theirs.get() == b"4"
        number += 1
        # The look that does not confirm the list has read the item that is gone.  Then it is not tried for a while.
        await costs([*CONFIRMED[:-1], *LISTED[:-1], "getData item", "multi"], *[LISTED] * 15, CONFIRMED)
        async with theirs.claim() as item:
            assert item == b"%d" % number
            number += 1
            await costs([*CONFIRMED[:-1], "getData item", "multi"], CONFIRMED)
            async with queue.claim() as item:
                assert item == b"%d" % number
                number += 1
                asked.new()
                await costs(LISTED, CONFIRMED)
                await queue.put(b"urgent", 1)
                assert asked.new() == ["multi"]
                assert await queue.get() == b"urgent"
                assert asked.new() == [*LISTED[:-1], "getData item", "multi"]
                await costs(CONFIRMED, CONFIRMED)
        asked.new()
        await costs([*CONFIRMED[:-1], *LISTED], LISTED)


async def test_a_waiting_consumer_watches_the_claims_only_while_all_items_are_claimed() -> None:
    """Otherwise it would be woken whenever another consumer takes an item."""
    asked = Asked()
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=asked) as zk:
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        await theirs.put(b"0")
        async with theirs.claim():
            waiting = asyncio.create_task(queue.get())
            await until_armed(3, zk)  # the items twice, and the claims
            lists = ["getChildren2 entries", "getChildren taken"]
            assert asked.new()[-4:] == [*lists, *lists]
            await theirs.put(b"1")
            assert await waiting == b"1"
            assert asked.new() == [*lists, "getData item", "multi"]


async def test_a_look_while_an_own_take_is_under_way_does_not_hide_what_another_client_puts_next() -> None:
    """The count of the changes that it reads may include that take, or not."""
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await Queue(other, PATH).put_many(numbers(100))
        assert [await queue.get() for _ in range(3)] == numbers(3)
        with server.hold_replies("multi", session=zk.session_id, times=1) as taking:
            first = asyncio.create_task(queue.get())
            await taking.until_hit()
            second = asyncio.create_task(queue.get())
            await turns(20)
            await other.ping()
        assert [await first, await second] == numbers(3, 5)
        await Queue(other, PATH).put(b"urgent", 1)
        assert await queue.get() == b"urgent"


async def test_a_consumer_whose_queue_is_too_long_for_an_answer_gets_the_error() -> None:
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, reply_limit=5_000) as zk:
        await Queue(other, PATH).put_many(numbers(300))
        with pytest.raises(zkwire.ProtocolError):
            await Queue(zk, PATH).get(within=5)
        assert await Queue(other, PATH).size() == 300


async def test_items_of_a_long_queue_are_read_ahead_until_the_next_look() -> None:
    """A get is one round trip then."""
    count = Counting()
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, observer=count) as other:
        await Queue(zk, PATH).put_many(numbers(1279))
        queue = Queue(other, PATH)
        reads = []
        for number in range(60):
            before = count.requests.count("getData")
            assert await queue.get() == b"%d" % number
            reads.append(count.requests.count("getData") - before)
        # A list of so many items serves for 19 takes.  The first one reads how large they are, the others read 19 items
        # ahead, and the last two confirm the list.
        assert reads == [1] * 19 + [19] + [0] * 18 + [20] + [0] * 18 + [20, 0, 0]


async def test_a_confirmed_list_misses_nothing_that_other_clients_do(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue, theirs = Queue(zk, path), Queue(other, path)
        await theirs.put_many(numbers(127))
        number = 0

        async def get_some() -> None:
            nonlocal number
            for _ in range(20):  # more than the looks after which a list is confirmed again
                assert await queue.get() == b"%d" % number
                number += 1

        await get_some()
        await theirs.put(b"urgent", priority=1)
        assert await queue.get() == b"urgent"
        await get_some()
        assert await theirs.get() == b"%d" % number
        number += 1
        await get_some()
        async with theirs.claim() as item:  # taken between two looks
            assert item == b"%d" % number
            number += 1
            await get_some()
        await get_some()


async def test_an_item_that_is_handed_back_is_in_the_next_list(each_server: Server, path: str) -> None:
    """Neither its claim nor its return changes the children of `entries`."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue = Queue(zk, path)
        await queue.put_many(numbers(100))
        for _ in range(2):
            await queue.get()
        with body_raises(KeyError):
            async with Queue(other, path).claim() as item:
                assert item == b"2"
                assert [await queue.get() for _ in range(5)] == numbers(3, 8)
                raise KeyError
        assert [await queue.get(), await queue.get()] == [b"2", b"8"]


async def test_a_queue_that_was_made_again_is_listed_again() -> None:
    async with clients(2) as (_, (zk, other)):
        queue = Queue(other, PATH)
        await Queue(zk, PATH).put_many(numbers(50))
        assert [await queue.get() for _ in range(10)] == numbers(10)
        await settled(zk, PATH)
        await zk.delete_tree(PATH)
        await Queue(zk, PATH).put_many(numbers(100, 160))
        for _ in range(10):  # the server counts as many changes as in the former queue
            await zk.delete(f"{PATH}/entries/{min(await zk.get_children(f'{PATH}/entries'))}")
        assert [await queue.get() for _ in range(10)] == numbers(110, 120)


# -- items that were read ahead ---------------------------------------------------------------------------------------


async def _hold_some_read_ahead(stage: Scene, queue: Queue) -> None:
    """Have the queue read items ahead, and wait longer than it may believe them."""
    await Queue(stage.other, stage.path).put_many(numbers(640))
    assert [await queue.get() for _ in range(12)] == numbers(12)  # two looks, each for ten takes
    await asyncio.sleep(1.1)  # recipes.queue.view._AHEAD_FOR, and a little more


async def test_data_that_was_read_ahead_is_not_given_out_for_an_item_of_the_next_queue() -> None:
    """A person deletes the queue, and its producers make it again: its items have the names of the former ones."""
    async with scene() as stage:
        queue = Queue(stage.zk, stage.path)
        await _hold_some_read_ahead(stage, queue)
        await stage.other.delete_tree(stage.path)
        await Queue(stage.other, stage.path).put_many(numbers(5000, 5100))
        taken = [await queue.get() for _ in range(10)]
        assert sorted([*taken, *await contents(stage)]) == numbers(5000, 5100)


async def test_an_item_that_was_changed_after_it_was_read_ahead_is_read_again(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue = Queue(zk, path, acl=zkwire.OPEN_ACL)
        await queue.put_many(numbers(640))
        assert [await queue.get() for _ in range(12)] == numbers(12)  # two looks, each for ten takes
        names = sorted(await other.get_children(f"{path}/entries"))[:10]
        for name in names:
            await other.set(f"{path}/entries/{name}", name.encode())
        assert [await queue.get() for _ in range(10)] == [name.encode() for name in names]
