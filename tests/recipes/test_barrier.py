"""The barriers: who is held back and for how long, who is woken, and what stays behind."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes import Barrier, DoubleBarrier
from recipes.double_barrier import to_wait_for
from tests.support.everywhere import (
    Scene,
    below,
    cancel_at_every_moment,
    cut_at_every_step,
    no_watch_stays,
    nothing_stays,
    scene,
)
from tests.support.proxy import Proxy
from tests.support.recipes import outcome, until, until_state, until_watches
from zkwire import Client, SessionState
from zkwire.testing import RealServer
from zkwire.testing.memory.faults import Fault

# -- the barrier ------------------------------------------------------------------------------------------------------


async def test_who_waits_goes_on_when_the_barrier_is_removed(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        barrier = Barrier(zk, f"{path}/a/b")
        await barrier.wait()
        await barrier.create()
        await barrier.create()
        waiting = [asyncio.create_task(Barrier(zk2, barrier.path).wait(within=30)) for _ in range(3)]
        await until_watches(zookeeper, 1)
        assert not any(task.done() for task in waiting)
        await zk.set(barrier.path, b"still there")
        await until_watches(zookeeper, 1)
        assert not any(task.done() for task in waiting)
        await barrier.remove()
        await asyncio.gather(*waiting)
        await barrier.remove()
        assert await zk.get_children(f"{path}/a") == []
        await until_watches(zookeeper, 0)


async def test_a_wait_can_be_bounded(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        barrier = Barrier(zk, path)
        await barrier.create()
        for within in (0, 0.02):
            with pytest.raises(TimeoutError, match=f"{path} was not removed within"):
                await barrier.wait(within=within)
        await until_watches(zookeeper, 0)
        for bad in (-1, True, "1"):
            with pytest.raises((ValueError, TypeError), match="within"):
                await barrier.wait(within=bad)  # type: ignore[arg-type]


async def test_a_barrier_costs_one_request_each(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        barrier = Barrier(zk, path)
        mark = proxy.mark()
        await barrier.create()
        waiting = asyncio.create_task(barrier.wait())
        await until_watches(zookeeper, 1)
        await barrier.remove()
        await waiting
        assert proxy.requests(mark) == ["multi", "getData", "delete", "getData"]


async def test_a_cancelled_create_takes_away_no_barrier_that_others_rely_on() -> None:
    async with scene() as stage:
        with stage.server.hold_replies(path="/b", session=stage.zk.session_id) as making:
            creating = asyncio.create_task(Barrier(stage.zk, "/b").create())
            await making.until_hit()
            await Barrier(stage.other, "/b").create()
            creating.cancel()
            await outcome(creating)
        await stage.zk.ping()
        await stage.zk.ping()  # behind all that the answer to the create may have caused
        assert await stage.other.exists("/b") is not None


@pytest.mark.parametrize("stands_again", [False, True])
async def test_a_barrier_removed_while_we_are_away(stands_again: bool) -> None:
    async with scene() as stage:
        await Barrier(stage.other, "/b").create()
        waiting = asyncio.create_task(Barrier(stage.zk, "/b").wait())
        await until(lambda: len(stage.zk._session.watches) == 1)
        refusal = stage.server.refuse_connections()
        stage.server.drop(stage.zk.session_id)
        await until_state(stage.zk, SessionState.SUSPENDED)
        await Barrier(stage.other, "/b").remove()
        if stands_again:
            await Barrier(stage.other, "/b").create()
        refusal.end()
        await waiting
        await no_watch_stays(stage.server.hosts)


async def test_a_wait_goes_on_in_the_next_session() -> None:
    async with scene() as stage:
        await Barrier(stage.other, "/b").create()
        waiting = asyncio.create_task(Barrier(stage.zk, "/b").wait())
        await until(lambda: len(stage.zk._session.watches) == 1)
        stage.server.expire(stage.zk.session_id)
        await until(lambda: stage.zk.state is SessionState.CONNECTED and len(stage.zk._session.watches) == 1)
        assert not waiting.done()
        await Barrier(stage.other, "/b").remove()
        await waiting


async def test_a_wait_without_another_session_is_told() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as zk:
        await Barrier(zk, "/b").create()
        waiting = asyncio.create_task(Barrier(zk, "/b").wait())
        await until(lambda: len(zk._session.watches) == 1)
        stage.server.expire(zk.session_id)
        with pytest.raises(zkwire.SessionExpiredError):
            await waiting


async def pass_a_barrier(stage: Scene) -> None:
    barrier = Barrier(stage.zk, stage.path)
    await barrier.create()
    waiting = asyncio.create_task(barrier.wait())
    try:
        await stage.zk.ping()
        await barrier.remove()
        await waiting
    finally:
        waiting.cancel()
        await outcome(waiting)


async def test_a_barrier_is_cut_at_every_step() -> None:
    await cut_at_every_step(pass_a_barrier, at_least=3)


async def test_a_barrier_is_cancelled_at_every_moment() -> None:
    await cancel_at_every_moment(pass_a_barrier, afterwards=pass_a_barrier, at_least=5)


# -- who waits for whom at the end ------------------------------------------------------------------------------------


@given(st.sets(st.text("abcdef0123456789", min_size=1), min_size=1), st.data())
def test_a_round_ends_and_each_departure_wakes_one(members: set[str], data: st.DataObject) -> None:
    """Whoever goes, by leaving or by dying, the rest come to an end, and never more than one looks again, but when the
    one for whom all wait has gone."""
    present, waiting = set(members), set(members)
    while waiting:
        choices = {name: to_wait_for(name, sorted(present)) for name in waiting}
        done = {name for name, other in choices.items() if other is None}
        waiting -= done
        present -= done
        present -= {name for name in waiting if present and name != min(present)}
        if waiting:
            assert present
            gone = data.draw(st.sampled_from(sorted(present)))
            woken = [name for name in waiting if to_wait_for(name, sorted(present)) == gone]
            assert len(woken) <= 1 or gone == min(present)
            present.discard(gone)
            if gone != min(members) or data.draw(st.booleans()):
                waiting.discard(gone)


# -- the double barrier -----------------------------------------------------------------------------------------------


async def members(zk: Client, path: str) -> list[str]:
    """The names of the members' nodes."""
    return [node.rpartition("/")[2] for node in await below(zk, path) if not node.endswith("/ready")]


async def until_members(zk: Client, path: str, count: int) -> None:
    async def so_many() -> bool:
        return len(await members(zk, path)) == count

    await until(so_many, what=f"{count} members of {path}")


async def test_members_enter_and_leave_together_again_and_again(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        inside: set[int] = set()
        rounds = 4

        async def take_part(number: int, client: Client) -> None:
            barrier = DoubleBarrier(client, path, 4)
            for turn in range(rounds):
                await barrier.enter(within=30)
                inside.add(turn * 4 + number)
                await barrier.leave(within=30)
                assert len(inside) >= 4 * (turn + 1)  # all have entered before one has left

        await asyncio.gather(*(take_part(n, zk if n % 2 else zk2) for n in range(4)))
        assert len(inside) == 4 * rounds
        assert await zk.get_children(path) == []
        await until_watches(zookeeper, 0)


async def test_nobody_enters_before_all_are_there_nor_leaves_before_all_have_left() -> None:
    async with scene() as stage:
        barriers = [DoubleBarrier(stage.zk, stage.path, 3) for _ in range(3)]
        entering = [asyncio.create_task(barrier.enter()) for barrier in barriers[:2]]
        await until_members(stage.other, stage.path, 2)
        await stage.zk.ping()
        assert not any(task.done() for task in entering)
        await barriers[2].enter()
        await asyncio.gather(*entering)
        leaving = [asyncio.create_task(barrier.leave()) for barrier in barriers[1:]]
        await until_members(stage.other, stage.path, 1 if barriers[0] is lowest(barriers) else 2)
        await stage.zk.ping()
        assert not any(task.done() for task in leaving)
        await barriers[0].leave()
        await asyncio.gather(*leaving)
        await nothing_stays(stage)


def lowest(barriers: list[DoubleBarrier]) -> DoubleBarrier:
    return min(barriers, key=lambda barrier: barrier._own or "")


async def test_one_member_is_alone() -> None:
    async with scene() as stage:
        async with DoubleBarrier(stage.zk, stage.path, 1):
            assert len(await members(stage.zk, stage.path)) == 1
        await nothing_stays(stage)


async def test_those_who_are_too_many_wait_for_the_next_round() -> None:
    async with scene() as stage:
        barriers = [DoubleBarrier(stage.zk, stage.path, 2) for _ in range(4)]
        entering = [asyncio.create_task(barrier.enter()) for barrier in barriers]
        await until_members(stage.other, stage.path, 4)
        await until(lambda: sum(task.done() for task in entering) == 2)
        first = [barrier for barrier, task in zip(barriers, entering, strict=True) if task.done()]
        second = [barrier for barrier in barriers if barrier not in first]
        await stage.zk.ping()
        assert sum(task.done() for task in entering) == 2
        await asyncio.gather(*(barrier.leave() for barrier in first))
        await asyncio.gather(*entering)
        await asyncio.gather(*(barrier.leave() for barrier in second))
        await nothing_stays(stage)


async def test_a_member_that_dies_inside_is_not_waited_for() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts) as third:
        barriers = [DoubleBarrier(zk, stage.path, 3) for zk in (stage.zk, stage.other, third)]
        for dies in barriers:
            await asyncio.gather(*(barrier.enter() for barrier in barriers))
            leaving = [asyncio.create_task(barrier.leave()) for barrier in barriers if barrier is not dies]
            await stage.zk.ping()
            stage.server.expire(dies._zk.session_id)
            await asyncio.gather(*leaving)
            await dies.leave(within=10)
            await until(lambda dies=dies: dies._zk.state is SessionState.CONNECTED)  # type: ignore[misc]
            await nothing_stays(stage)


async def test_a_round_of_which_all_have_died_does_not_let_others_in() -> None:
    async with scene() as stage:
        async with zkwire.connect(stage.server.hosts) as first, zkwire.connect(stage.server.hosts) as second:
            await asyncio.gather(*(DoubleBarrier(zk, stage.path, 2).enter() for zk in (first, second)))
            early = DoubleBarrier(stage.zk, stage.path, 2)
            waiting = asyncio.create_task(early.enter())  # while that round lasts
            await until_members(stage.other, stage.path, 3)
            assert not waiting.done()
        late = DoubleBarrier(stage.other, stage.path, 2)
        await until_members(stage.other, stage.path, 1)
        await stage.zk.ping()
        assert not waiting.done()
        await late.enter(within=10)
        await waiting
        await asyncio.gather(early.leave(), late.leave())
        await nothing_stays(stage)


async def test_ready_of_a_dead_round_does_not_let_others_in() -> None:
    async with scene() as stage:
        await stage.other.create(stage.path)
        await stage.other.create(f"{stage.path}/ready", b"nobody\nelse")
        with pytest.raises(TimeoutError, match=f"2 members did not come to {stage.path} within"):
            await DoubleBarrier(stage.zk, stage.path, 2).enter(within=0.1)
        await nothing_stays(stage)


async def test_waits_that_end_in_time_leave_nothing_and_hold_nobody_up() -> None:
    async with scene() as stage:
        one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        with pytest.raises(TimeoutError):
            await one.enter(within=0.05)
        await nothing_stays(stage)
        await asyncio.gather(one.enter(), two.enter())
        with pytest.raises(TimeoutError, match="did not leave"):
            await one.leave(within=0.05)
        await two.leave(within=10)
        await nothing_stays(stage)


async def test_a_body_that_fails_holds_nobody_up() -> None:
    async with scene() as stage:
        two = DoubleBarrier(stage.other, stage.path, 2)

        async def fail() -> None:
            async with DoubleBarrier(stage.zk, stage.path, 2):
                raise LookupError("failed")

        came, _ = await asyncio.gather(outcome(fail()), two.enter())
        assert isinstance(came, LookupError)
        await two.leave(within=10)
        await nothing_stays(stage)


async def test_bodies_all_of_which_fail_leave_nothing() -> None:
    async with scene() as stage:

        async def fail(zk: Client) -> None:
            async with DoubleBarrier(zk, stage.path, 2):
                raise LookupError("failed")

        came = await asyncio.gather(outcome(fail(stage.zk)), outcome(fail(stage.other)))
        assert all(isinstance(each, LookupError) for each in came)
        await nothing_stays(stage)


async def test_a_session_that_expires_while_entering_enters_anew() -> None:
    """Pitfalls 12 and 13."""
    async with scene() as stage:
        one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        entering = asyncio.create_task(one.enter())
        await until(lambda: len(stage.zk._session.watches) == 2)
        old = await members(stage.other, stage.path)
        stage.server.expire(stage.zk.session_id)
        await until(lambda: stage.zk.state is SessionState.CONNECTED and len(stage.zk._session.watches) == 2)
        assert old != await members(stage.other, stage.path)
        await two.enter(within=10)
        await entering
        await asyncio.gather(one.leave(), two.leave())
        await nothing_stays(stage)


async def test_a_member_whose_node_is_deleted_stands_there_again() -> None:
    async with scene() as stage:
        one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        entering = asyncio.create_task(one.enter())
        await until(lambda: len(stage.zk._session.watches) == 2)
        (name,) = await members(stage.other, stage.path)
        await stage.other.delete(f"{stage.path}/{name}")
        await two.enter(within=10)
        await entering
        await asyncio.gather(one.leave(), two.leave())


async def test_misuse_is_refused() -> None:
    async with scene() as stage:
        for bad in (0, -1, True, "2", 1.5):
            with pytest.raises((ValueError, TypeError), match="count"):
                DoubleBarrier(stage.zk, "/b", bad)  # type: ignore[arg-type]
        barrier = DoubleBarrier(stage.zk, "/b", 1)
        with pytest.raises(RuntimeError, match="has not entered"):
            await barrier.leave()
        await barrier.enter()
        with pytest.raises(RuntimeError, match="has entered already"):
            await barrier.enter()
        await barrier.leave()


async def test_who_comes_between_two_sessions_enters_with_the_others() -> None:
    async with scene() as stage:
        await stage.other.create("/b")
        one, two = DoubleBarrier(stage.zk, "/b", 2), DoubleBarrier(stage.other, "/b", 2)
        expired = asyncio.create_task(until_state(stage.zk, SessionState.EXPIRED))
        await asyncio.sleep(0)
        stage.server.expire(stage.zk.session_id)
        await expired
        assert not stage.zk.session_id
        with stage.server.hold_replies("create", path=re.compile("/b/.*"), times=1) as ticket:
            entering = asyncio.create_task(one.enter(within=5))
            await ticket.until_hit()
            other = asyncio.create_task(two.enter(within=5))
            await other
        await entering
        await asyncio.gather(one.leave(within=5), two.leave(within=5))


def asked(proxy: Proxy, mark: int) -> list[str]:
    """The requests but for the watches given up, for which nobody waits."""
    return [name for name in proxy.requests(mark) if name != "removeWatches"]


async def test_what_entering_and_leaving_cost(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(zookeeper.hosts) as z:
        other = DoubleBarrier(z, path, 2)
        await z.create(path)
        mark = proxy.mark()
        barrier = DoubleBarrier(zk, path, 2)
        entering = asyncio.create_task(barrier.enter())
        await until_watches(zookeeper, 2)
        await other.enter()
        await entering
        assert asked(proxy, mark) == ["create2", "getChildren", "exists", "getData", "getData"]
        mark = proxy.mark()
        leaving = asyncio.create_task(barrier.leave())
        await until_watches(zookeeper, 1)
        await other.leave()
        await leaving
        assert asked(proxy, mark) in (
            ["getChildren", "delete", "getData", "getChildren"],
            ["getChildren", "getData", "getChildren", "multi"],
        )


async def test_what_it_costs_to_be_the_last_to_come(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(zookeeper.hosts) as z:
        first, last = DoubleBarrier(z, path, 2), DoubleBarrier(zk, path, 2)
        entering = asyncio.create_task(first.enter())
        await until_watches(zookeeper, 2)
        mark = proxy.mark()
        await last.enter()
        assert asked(proxy, mark) == ["create2", "getChildren", "multi", "getData"]
        await entering
        await asyncio.gather(first.leave(), last.leave())


async def test_each_departure_wakes_few(zookeeper: RealServer, path: str) -> None:
    count = 8
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        barriers = [DoubleBarrier(zk, path, count) for _ in range(count)]
        await asyncio.gather(*(barrier.enter() for barrier in barriers))
        barriers.sort(key=lambda barrier: barrier._own or "")
        mark = len(proxy.log)
        leaving = []
        for barrier in barriers:
            leaving.append(asyncio.create_task(barrier.leave()))
            await zk.ping()
        await asyncio.gather(*leaving)
        told = [frame for frame in proxy.log[mark:] if frame.direction == "event"]
        # One for the highest, which is the last to leave here, and one, for all watches of this client, for the lowest.
        assert len(told) <= 3


async def take_part(barrier: DoubleBarrier) -> None:
    async with barrier:
        pass


async def meet(stage: Scene) -> None:
    one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
    other = asyncio.create_task(take_part(two))
    try:
        await take_part(one)
        await other
    finally:
        other.cancel()
        await outcome(other)


async def test_a_double_barrier_is_cut_at_every_step() -> None:
    await cut_at_every_step(meet, at_least=5)


async def test_a_double_barrier_is_cancelled_at_every_moment() -> None:
    await cancel_at_every_moment(meet, afterwards=meet, at_least=10, stays=["ready"])


async def expire_when_hit(stage: Scene, fault: Fault) -> None:
    await fault.until_hit()
    stage.server.expire(stage.zk.session_id)


async def test_a_session_expires_at_every_step_of_a_round() -> None:
    """Whoever has lost its session inside is not waited for; who enters enters anew, and finds nobody there if
    the others had begun with it already."""
    for step in range(1, 40):
        async with scene() as stage:
            fault = stage.server.drop_after(session=stage.zk.session_id, nth=step)

            expiring = asyncio.create_task(expire_when_hit(stage, fault))
            one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
            other = asyncio.create_task(take_part(two))
            entering = asyncio.create_task(one.enter())
            async with asyncio.timeout(20):
                await asyncio.wait([entering, other], return_when=asyncio.FIRST_COMPLETED)
                for _ in range(3):
                    await outcome(stage.zk.ping())
                if other.done() and not entering.done():
                    entering.cancel()
                    await outcome(entering)
                else:
                    await entering
                    await one.leave()
                await other
            expiring.cancel()
            await outcome(expiring)
            await nothing_stays(stage, stays=["ready"])
            if not fault.hits:
                break
    else:
        raise AssertionError("there is no end of steps")
