"""Trials of the queue: producers and consumers in several processes, on a real server; consumers are killed."""

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack

import pytest

import zkwire
from recipes import LockLostError, Queue
from tests.support.processes import Worker, report, start
from tests.support.recipes import until, until_watches
from zkwire import Client
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(90)

END = b"end"
LAST = 999  # the priority of END, which stops a consumer: behind all other items


async def produce(hosts: str, path: str, first: int, producers: int, items: int, maxsize: int | None = None) -> None:
    """In a process: run producers that each put `items` items, singly and by tens."""
    async with zkwire.connect(hosts) as zk:

        async def one(number: int) -> None:
            queue = Queue(zk, path, maxsize)
            count = 0
            while count < items:
                many = 10 if count % 3 != 2 and count + 10 <= items else 1
                data = [b"%d-%d" % (number, item) for item in range(count, count + many)]
                if many == 1:
                    await queue.put(data[0])
                else:
                    await queue.put_many(data)
                count += many

        await asyncio.gather(*(one(first + number) for number in range(producers)))


async def consume(hosts: str, path: str, consumers: int) -> None:
    """In a process: run consumers until each finds END; report the items of each."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(zkwire.connect(hosts)) for _ in range(consumers)]

        async def one(zk: Client) -> None:
            found = []
            async for data in Queue(zk, path):
                if data == END:
                    break
                found.append(data.decode())
            report("found", items=found)

        await asyncio.gather(*map(one, clients))


async def handle(hosts: str, path: str, timeout: float, hold: float = 0.002) -> None:
    """In a process: claim items until END; report each one when it is claimed, handled or lost."""
    async with zkwire.connect(hosts, timeout) as zk:
        queue = Queue(zk, path)
        while True:
            try:
                async with queue.claim() as item:
                    if item.data == END:
                        return
                    report("claimed", item=item.data.decode(), token=item.token)
                    await asyncio.sleep(hold)
                    item.check()
                    report("handled", item=item.data.decode(), token=item.token)
            except LockLostError as error:
                report("lost", why=error.why)


async def nothing_stays(server: RealServer, zk: Client, path: str) -> None:
    """Wait until no item, claim, waiting ticket, trace or watch is left."""
    for parent in ("entries", "taken", "consumers", "producers"):

        async def is_empty(parent: str = parent) -> bool:
            return await zk.exists(f"{path}/{parent}") is None or not await zk.get_children(f"{path}/{parent}")

        await until(is_empty, what=f"{path}/{parent} is not empty")

    async def has_no_traces() -> bool:
        return not [name for name in await zk.get_children(path) if name.startswith("put-")]

    await until(has_no_traces)
    await until_watches(server, 0)


def found_by(workers: list[Worker]) -> list[list[str]]:
    return [entry["items"] for worker in workers for entry in worker.all("found")]


@pytest.mark.parametrize("maxsize", [None, 50])
async def test_ten_producers_and_ten_consumers_lose_no_item_and_double_none(
    zookeeper: RealServer, path: str, maxsize: int | None
) -> None:
    items = 500 if maxsize is None else 20
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        consumers = [
            await stack.enter_async_context(start(consume, hosts=zookeeper.hosts, path=path, consumers=5))
            for _ in range(2)
        ]
        producers = [
            await stack.enter_async_context(
                start(produce, hosts=zookeeper.hosts, path=path, first=5 * n, producers=5, items=items, maxsize=maxsize)
            )
            for n in range(2)
        ]
        for worker in producers:
            await worker.end()
        await Queue(zk, path).put_many([END] * 10, LAST)
        for worker in consumers:
            await worker.end()
        found = Counter(item for items in found_by(consumers) for item in items)
        assert set(found) == {f"{producer}-{item}" for producer in range(10) for item in range(items)}
        assert max(found.values()) == 1
        await nothing_stays(zookeeper, zk, path)


async def test_a_lone_consumer_gets_the_items_of_each_producer_in_their_order(zookeeper: RealServer, path: str) -> None:
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        consumer = await stack.enter_async_context(start(consume, hosts=zookeeper.hosts, path=path, consumers=1))
        producers = [
            await stack.enter_async_context(
                start(produce, hosts=zookeeper.hosts, path=path, first=2 * n, producers=2, items=30)
            )
            for n in range(2)
        ]
        for worker in producers:
            await worker.end()
        await Queue(zk, path).put(END, LAST)
        await consumer.end()
        (found,) = found_by([consumer])
        for number in range(4):
            mine = [item for item in found if item.startswith(f"{number}-")]
            assert mine == [f"{number}-{item}" for item in range(30)]
        await nothing_stays(zookeeper, zk, path)


async def test_killed_consumers_leave_no_item_unhandled(zookeeper: RealServer, path: str) -> None:
    """Pitfall 24: an item that a killed consumer had claimed is claimed again, with a greater token."""
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        orders = {"hosts": zookeeper.hosts, "path": path, "timeout": 1.0}
        lasting = [await stack.enter_async_context(start(handle, **orders)) for _ in range(2)]
        doomed = [await stack.enter_async_context(start(handle, **orders)) for _ in range(3)]
        queue = Queue(zk, path)
        everything = [b"%d" % number for number in range(150)]
        for begin in range(0, 150, 50):
            await queue.put_many(everything[begin : begin + 50])
        for number, worker in enumerate(doomed):
            await worker.until("claimed", 5 + 5 * number)
            worker.signal(signal.SIGKILL)
        handled: Counter[str] = Counter()

        def is_all_handled() -> bool:
            handled.clear()
            handled.update(entry["item"] for worker in (*lasting, *doomed) for entry in worker.all("handled"))
            return len(handled) == 150

        await until(is_all_handled, limit=60)

        async def is_all_deleted() -> bool:  # a consumer killed between the report and the delete has handled the item
            return not await zk.get_children(f"{path}/entries")

        await until(is_all_deleted, limit=30)
        is_all_handled()
        await queue.put_many([END] * 2, LAST)
        for worker in lasting:
            await worker.end()
        # Only an item that was claimed by a consumer when it was killed may have been handled twice.
        assert sum(handled.values()) <= 150 + len(doomed)
        tokens: dict[str, list[int]] = {}
        for worker in (*lasting, *doomed):
            for entry in worker.all("claimed"):
                tokens.setdefault(entry["item"], []).append(entry["token"])
        assert all(len(set(each)) == len(each) for each in tokens.values())
        await nothing_stays(zookeeper, zk, path)


async def test_a_consumer_that_slept_past_its_session_does_not_delete_an_item_claimed_by_another(
    zookeeper: RealServer, path: str
) -> None:
    """Pitfall 24."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        queue = Queue(zk, path)
        async with start(handle, hosts=zookeeper.hosts, path=path, timeout=1.0, hold=60.0) as worker:
            await queue.put(b"0")
            claimed = await worker.until("claimed")
            worker.signal(signal.SIGSTOP)
            async with queue.claim(within=30) as item:
                assert item.data == b"0"
                assert item.token > claimed["token"]
                worker.signal(signal.SIGCONT)
                await worker.until("lost")
                item.check()
                assert await queue.size() == 0
            await queue.put(END)
            await worker.end()
            assert not worker.all("handled")
        await nothing_stays(zookeeper, zk, path)
