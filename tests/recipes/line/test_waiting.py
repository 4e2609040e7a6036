"""A ticket that waits: its requests, the hand-over, reconnects, and what others do to its node."""

import asyncio

import pytest

from recipes import Lease, Lock
from recipes.line.known import line_of
from recipes.line.position import Ranking
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.waiting import EvictedError, Rules, WaitingTicket
from tests.support.client import Server
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import all_watches, line, no_task_stays, outcome, two_clients, until, until_armed, until_line

pytestmark = pytest.mark.limit(50)


# -- requests and events ----------------------------------------------------------------------------------------------


async def test_the_next_owner_resumes_before_all_other_work_for_the_event(each_server: Server, path: str) -> None:
    async with two_clients(each_server) as (zk, zk2):
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
        assert not line_of(stage.zk, stage.path).children.tickets


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
async def test_a_waiter_whose_node_is_taken_takes_a_new_ticket(each_server: Server, path: str, how: str) -> None:
    async with two_clients(each_server) as (zk, zk2):
        holder = await Lock(zk, path).acquire()
        waiter = asyncio.create_task(Lock(zk2, path).acquire(within=30))
        old = f"{path}/{(await until_line(zk, path, 2))[1]}"
        await until_armed(2, zk2)
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
