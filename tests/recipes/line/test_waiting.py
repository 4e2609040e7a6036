"""A ticket that waits: its requests, the hand-over, reconnects, and what others do to its node."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import zkwire
from recipes import Lease, Lock
from recipes.line.known import line_of
from recipes.line.position import Ranking
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.waiting import EvictedError, Rules, WaitingTicket
from tests.support.everywhere import nothing_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import (
    all_watches,
    line,
    make_known,
    no_task_stays,
    outcome,
    proxied,
    two_clients,
    until,
    until_armed,
    until_line,
    until_watches,
)
from zkwire import Client
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(50)


def asked(proxy: Proxy, path: str, since: int, direction: str = "request") -> list[str]:
    """The requests from `since` on: "list" for a list of the line, "watch" for a watch on a ticket, or what else."""
    kinds = []
    for frame in proxy.log[since:]:
        if frame.direction == direction and frame.opcode in ("getData", "getChildren"):
            kinds.append("list" if frame.path == path else "watch")
        elif frame.direction == direction and frame.opcode != "ping":
            kinds.append(frame.opcode)
    return kinds


async def behind_a_holder(
    first: Client, second: Client, path: str, *, within: float | None = None
) -> tuple[Lease, asyncio.Task[Lease], str]:
    """Have `first` hold the lock and `second` wait for it; return lease, waiting task and the path of its node."""
    holder = await Lock(first, path).acquire()
    waiter = asyncio.create_task(Lock(second, path).acquire(within=within))
    names = await until_line(first, path, 2)
    await until_armed(2, second)
    return holder, waiter, f"{path}/{names[1]}"


# -- requests and events ----------------------------------------------------------------------------------------------


async def test_a_waiter_watches_its_own_node_first_and_all_nodes_in_one_write(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, zk, zk2):
        await make_known(zk2, path)
        first = await Lock(zk, path).acquire()
        second = asyncio.create_task(Lock(zk, path).acquire())
        nodes = await until_line(zk, path, 2)
        mark = proxy.mark()
        third = asyncio.create_task(Lock(zk2, path).acquire())
        nodes = await until_line(zk, path, 3)
        await proxy.until(lambda: len(proxy.requests(mark)) >= 5)
        assert asked(proxy, path, mark) == ["create2", "list", "watch", "watch", "watch"]
        frames = [frame for frame in proxy.log[mark:] if frame.direction == "request"]
        assert [frame.path.rpartition("/")[2] for frame in frames[2:]] == [nodes[2], nodes[0], nodes[1]]
        assert len({frame.write for frame in frames[2:]}) == 1
        assert proxy.segments(mark) == 2
        await first.release()
        await (await second).release()
        await (await third).release()


async def test_a_departure_wakes_at_most_two_waiters(zookeeper: RealServer, path: str) -> None:
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(zookeeper.hosts)) for _ in range(6)]
        clients = [await stack.enter_async_context(zkwire.connect(proxy.hosts)) for proxy in proxies]
        watching = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        waiting: list[asyncio.Task[Lease]] = []
        for number, zk in enumerate(clients):
            waiting.append(asyncio.create_task(Lock(zk, path).acquire()))
            await until_line(watching, path, number + 1)
        # One in the middle leaves, then the second; then the line moves to its end.
        for number in (3, 1):
            await until_watches(zookeeper, all_watches(len(waiting)))
            gone = (await line(watching, path))[number]
            marks = [proxy.mark() for proxy in proxies]
            waiting.pop(number).cancel()
            await until_line(watching, path, len(waiting))
            await asyncio.gather(*(zk.ping() for zk in clients))
            events = [
                event
                for proxy, mark in zip(proxies, marks, strict=True)
                for event in proxy.events(mark)
                if event == ("NodeDeleted", f"{path}/{gone}")
            ]
            assert 1 <= len(events) <= 3  # two waiters, and perhaps the one that left
        while waiting:
            # The holder's watch on its own node and the look-ahead may be under way: let them settle.
            await asyncio.gather(*(zk.ping() for zk in clients))
            marks = [proxy.mark() for proxy in proxies]
            holder = waiting.pop(0)
            lease = await holder
            own = clients.index(lease._zk)
            await lease.release()
            if waiting:
                await asyncio.wait([waiting[0]])
            await asyncio.gather(*(zk.ping() for zk in clients))
            woken = {
                number
                for number, (proxy, mark) in enumerate(zip(proxies, marks, strict=True))
                if number != own and ("NodeDeleted", lease.path) in proxy.events(mark)
            }
            assert len(woken) <= 2
            assert not waiting or woken


async def test_the_next_owner_resumes_before_all_other_work_for_the_event(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, zk2):
        order = []
        lease = await Lock(zk, path).acquire()
        _, watch = await zk2.get_and_watch(lease.path)

        async def plainly() -> None:
            await watch
            order.append("watch")

        async def owning() -> None:
            next_lease = await Lock(zk2, path).acquire()
            order.append("owner")
            await next_lease.release()
            order.append("released")

        async with asyncio.TaskGroup() as group:
            group.create_task(plainly())
            group.create_task(owning())
            await until_armed(3, zk2)
            await lease.release()
        assert order == ["owner", "watch", "released"]
        assert await line(zk, path) == []
        assert len(zk2._session.requests.watches) == 0


@pytest.mark.parametrize("turns", range(20))
async def test_a_waiter_that_is_cancelled_at_the_hand_over_lets_the_next_one_own(turns: int) -> None:
    """Pitfalls 10 and 11."""
    async with scene() as stage, no_task_stays():
        held = await Lock(stage.other, stage.path).acquire()
        middle = asyncio.create_task(Lock(stage.zk, stage.path).acquire())
        await until_line(stage.other, stage.path, 2)
        last = asyncio.create_task(Lock(stage.other, stage.path).acquire())
        await until_line(stage.other, stage.path, 3)
        await until_armed(all_watches(3), stage.zk, stage.other)
        releasing = asyncio.create_task(held.release())
        for _ in range(turns):
            await asyncio.sleep(0)
        middle.cancel()
        came = await outcome(middle)
        await releasing
        if isinstance(came, Lease):
            assert not last.done()
            await came.release()
        else:
            assert isinstance(came, asyncio.CancelledError)
        await (await last).release()
        await nothing_stays(stage)


# -- reconnects and sessions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holders", [0, 1])
async def test_a_ticket_of_a_former_session_never_owns(holders: int) -> None:
    """Pitfalls 12, 13 and 17: the wait comes to an end, and the ticket is given up."""
    async with scene() as stage, no_task_stays():
        zk, path = stage.zk, stage.path
        await zk.create(path)
        for _ in range(holders):
            await stage.other.create(f"{path}/lock-", ephemeral=True, sequential=True)
        node, stat = await zk.create_and_stat(f"{path}/lock-", ephemeral=True, sequential=True)
        former = TicketNode(node, node.rpartition("/")[2], stat.czxid, zk.session_id ^ 1)
        waiting = WaitingTicket(
            zk,
            Rules(line_of(zk, path)),
            Ticket(former, zk.guaranteed_delete(node)),
            Ranking(await zk.get_children(path)),
        )
        assert (waiting.owns, waiting.is_first, waiting.is_lost) == (False, not holders, True)
        with pytest.raises(EvictedError):
            await waiting.wait()
        await until_line(stage.other, path, holders)


# -- what others do to our nodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "written over"])
async def test_a_waiter_whose_node_is_taken_from_it_takes_a_new_ticket(
    zookeeper: RealServer, path: str, how: str
) -> None:
    async with two_clients(zookeeper) as (zk, zk2):
        holder, waiter, old = await behind_a_holder(zk, zk2, path, within=30)
        await until_watches(zookeeper, 3)
        await (zk.delete(old) if how == "deleted" else zk.set(old, b"a note"))

        async def is_new() -> bool:
            names = await line(zk, path)
            return len(names) == 2 and not old.endswith(names[1])

        await until(is_new)
        await holder.release()
        lease = await waiter
        assert lease.path != old
        assert (await line(zk, path)) == [lease.path.rpartition("/")[2]]
        await lease.release()


async def test_a_waiter_whose_node_is_written_reads_its_node_and_then_the_list(
    zookeeper: RealServer, path: str
) -> None:
    """As after a reconnect: departures that it has heard of may be later than a deletion of its node."""
    async with proxied(zookeeper) as (proxy, safe, zk):
        held, waiter, own = await behind_a_holder(safe, zk, path)
        await until_watches(zookeeper, 3)
        mark = proxy.mark()
        await safe.set(own, b"a note")
        await until(lambda: "list" in asked(proxy, path, mark))
        reads = [frame.path for frame in proxy.log[mark:] if frame.opcode in ("getData", "getChildren")]
        assert reads[:2] == [own, path]
        await until_armed(2, zk)
        await held.release()
        await (await waiter).release()


async def test_after_a_reconnect_the_line_is_listed_before_the_waiter_owns(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 1 and 17: a reconnect disarms."""
    async with proxied(zookeeper) as (proxy, safe, zk):
        held, waiter, _ = await behind_a_holder(safe, zk, path)
        await until_watches(zookeeper, 3)
        mark = proxy.mark()
        proxy.drop()
        await proxy.connected(2)
        await until_watches(zookeeper, 3)
        await held.release()
        lease = await waiter
        asked = proxy.requests(mark)
        assert asked[:2] == ["connect", "setWatches"]
        assert "getChildren" in asked
        await lease.release()
