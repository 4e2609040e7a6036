"""Many requests at once: order, one write per turn, large lists."""

import asyncio

import zkwire
from tests.support.client import Server
from tests.support.proxy import Proxy
from zkwire import Client


async def test_a_thousand_sets_and_gets_are_executed_and_answered_in_order(proxy: Proxy, zk: Client, path: str) -> None:
    await zk.create(path)
    mark = proxy.mark()
    answered: list[int] = []

    async def put(number: int) -> int:
        version = (await zk.set(path, b"%d" % number)).version
        answered.append(number)
        return version

    async def look() -> tuple[bytes, int]:
        data, stat = await zk.get(path)
        return data, stat.version

    results = await asyncio.gather(*map(put, range(1000)), *(look() for _ in range(1000)))
    assert results == [*range(1, 1001), *[(b"999", 1000)] * 1000]
    assert answered == list(range(1000))
    assert proxy.requests(mark) == ["setData"] * 1000 + ["getData"] * 1000


async def test_requests_of_one_turn_of_the_event_loop_leave_in_one_write(proxy: Proxy, zk: Client, path: str) -> None:
    await zk.create(path)
    mark = proxy.mark()
    await asyncio.gather(
        zk.get(path),
        zk.exists(path),
        zk.get_children(path),
        zk.set(path, b""),
        zk.create(f"{path}/n-", sequential=True),
        *(zk.get(path) for _ in range(20)),
    )
    assert len(proxy.requests(mark)) == 25
    assert proxy.segments(mark) == 1


async def test_no_more_than_max_in_flight_are_unanswered_at_a_time(server: Server, path: str) -> None:
    async with Proxy(server.hosts) as proxy, zkwire.connect(proxy.hosts, max_in_flight=3) as zk:
        await zk.create(path)
        mark = proxy.mark()
        hold = proxy.hold_replies()
        tasks = [asyncio.create_task(zk.set(path, b"%d" % number)) for number in range(10)]
        await proxy.until(lambda: len(proxy.requests(mark)) == 3)
        await proxy.until(lambda: sum(frame.direction == "reply" for frame in proxy.log[mark:]) == 3)
        assert proxy.requests(mark) == ["setData"] * 3
        hold.release()
        assert [stat.version for stat in await asyncio.gather(*tasks)] == list(range(1, 11))
