"""The connection is cut at every step of acquire and release in turn, before the request arrives and after it was
applied; the steps are counted, not named, so that none is missed.

Pitfalls 1, 10, 12, 13, 17, 20 and 23: afterwards each live contender has exactly one node, the line moves, nobody
waits for ever, and there is never more than one owner.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError
from tests.support.proxy import Frame, Proxy
from tests.support.recipes import (
    all_watches,
    expire,
    line,
    no_task_stays,
    outcome,
    until,
    until_armed,
    until_line,
    until_state,
    until_watches,
)
from zkwire import Client, SessionState
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(50)

MOST_STEPS = 40


class Scene(NamedTuple):
    """The path of a lock; a client that is left alone; one whose connection is cut, and its proxy."""

    path: str
    safe: Client
    cut: Client
    proxy: Proxy
    server: RealServer


def is_step(frame: Frame) -> bool:
    """Whether the frame is a request that belongs to what is under test."""
    return (
        frame.direction == "request" and frame.opcode not in ("connect", "ping", "closeSession") and frame.path != "/"
    )


async def uncontended(scene: Scene) -> None:
    """Acquire, release."""
    async with Lock(scene.cut, scene.path):
        assert len(await line(scene.safe, scene.path)) == 1
    assert await line(scene.safe, scene.path) == []


async def missing_parents(scene: Scene) -> None:
    """Acquire where nothing is there yet, release."""
    path = f"{scene.path}/a/b"
    async with Lock(scene.cut, path):
        assert len(await line(scene.safe, path)) == 1
    assert await line(scene.safe, path) == []


async def trying(scene: Scene) -> None:
    """Try in vain, then with success."""
    held = await Lock(scene.safe, scene.path).acquire()
    assert await Lock(scene.cut, scene.path).try_acquire() is None
    await until_line(scene.safe, scene.path, 1)
    await held.release()
    lease = None
    while lease is None:  # after a cut one may not be certain enough at once
        lease = await Lock(scene.cut, scene.path).try_acquire()
        await until_line(scene.safe, scene.path, 0 if lease is None else 1)
    await lease.release()
    assert await line(scene.safe, scene.path) == []


async def waiting(scene: Scene) -> None:
    """Wait behind three, of whom the middle one leaves; one more comes behind; the line moves to its end."""
    order: list[str] = []

    async def contender(zk: Client, name: str) -> None:
        async with Lock(zk, scene.path) as lease:
            order.append(name)
            nodes = await line(scene.safe, scene.path)
            assert lease.path == f"{scene.path}/{nodes[0]}"

    held = await Lock(scene.safe, scene.path).acquire()
    tasks = []
    for number, (zk, name) in enumerate(
        [(scene.safe, "first"), (scene.safe, "leaver"), (scene.cut, "cut"), (scene.safe, "last")]
    ):
        tasks.append(asyncio.create_task(contender(zk, name)))
        await until_line(scene.safe, scene.path, number + 2)
    await until_armed(all_watches(5), scene.safe, scene.cut)
    tasks[1].cancel()
    await until_line(scene.safe, scene.path, 4)
    await until_armed(all_watches(4), scene.safe, scene.cut)
    await held.release()
    await asyncio.wait(tasks)
    assert [await outcome(task) for task in (tasks[0], *tasks[2:])] == [None] * 3
    assert sorted(order) == ["cut", "first", "last"]
    assert order.index("first") < order.index("last")
    assert await until_line(scene.safe, scene.path, 0) == []


async def looking_ahead(scene: Scene) -> None:
    """Wait behind two; the one before the one before goes first, and the list is read ahead of the hand-over."""
    leases = [await Lock(scene.safe, scene.path).acquire()]
    tasks: list[asyncio.Task[Lease]] = []
    for zk in (scene.safe, scene.safe, scene.cut):
        tasks.append(asyncio.create_task(Lock(zk, scene.path).acquire()))
        await until_line(scene.safe, scene.path, len(tasks) + 1)
    await until_armed(all_watches(4), scene.safe, scene.cut)
    await leases[0].release()
    await (await tasks[0]).release()
    third = await tasks[1]
    # It is armed by now, or becomes so over a new connection; only one owns meanwhile.
    await until_armed(all_watches(2), scene.safe, scene.cut)
    assert not tasks[2].done()
    await third.release()
    await (await tasks[2]).release()
    assert await line(scene.safe, scene.path) == []


async def guarded(scene: Scene) -> None:
    """Hold for so long that the holder's own node is watched; its data is changed, so that it is watched again."""
    async with Lock(scene.cut, scene.path) as lease:
        await until_watches(scene.server, 1)
        await scene.safe.set(lease.path, b"note")
        await until_watches(scene.server, 1)
        lease.check()
    assert await line(scene.safe, scene.path) == []


STORIES: list[Callable[[Scene], Awaitable[None]]] = [
    uncontended,
    missing_parents,
    trying,
    waiting,
    looking_ahead,
    guarded,
]


async def play(server: RealServer, path: str, story: Callable[[Scene], Awaitable[None]], fault: str, step: int) -> bool:
    """Play the story with a cut at the `step`th request; return whether there were so many."""
    async with Proxy(server.hosts) as proxy, zkwire.connect(server.hosts) as safe:
        async with zkwire.connect(proxy.hosts) as zk, no_task_stays():
            if story is not missing_parents:
                await safe.create(path, container=True)
            place = {"after": proxy.cut_after, "after, reset": proxy.cut_after, "before": proxy.cut_before}[fault]
            place(is_step, step, reset=fault.endswith("reset"))
            try:
                async with asyncio.timeout(20):
                    await story(Scene(path, safe, zk, proxy, server))
            except TimeoutError:
                shown = [(f.opcode, f.path[-30:], f.err, f.dropped) for f in proxy.log]
                raise AssertionError(f"{story.__name__}, cut {fault} step {step}: hangs: {shown}") from None
            except AssertionError as error:
                shown = [(f.opcode, f.path[-30:], f.err, f.dropped) for f in proxy.log]
                raise AssertionError(f"{story.__name__}, cut {fault} step {step}: {error}: {shown}") from error
            # Whatever may still be under way: then no node is left, and no watch.
            await zk.sync("/")
            await until_line(safe, path if story is not missing_parents else f"{path}/a/b", 0)
            await until_watches(server, 0)
            assert proxy.connections <= 2
        return proxy.connections == 2


@pytest.mark.parametrize("fault", ["after", "after, reset", "before"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_cut_at_every_step(
    zookeeper: RealServer, path: str, story: Callable[[Scene], Awaitable[None]], fault: str
) -> None:
    """Pitfalls 1, 10, 13, 20."""
    for step in range(1, MOST_STEPS):
        if not await play(zookeeper, f"{path}-{step}", story, fault, step):
            assert step > 3  # create2, getChildren and delete at least
            return
    raise AssertionError("there is no end of steps")


@pytest.mark.parametrize("first", range(1, 5))
async def test_two_cuts_running(zookeeper: RealServer, path: str, first: int) -> None:
    """Pitfalls 10 and 20: the search for the node whose create lost its answer is cut off as well."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as safe:
        async with zkwire.connect(proxy.hosts) as zk, no_task_stays():
            await safe.create(path)
            cuts = [proxy.cut_after("create2"), proxy.cut_after(is_step, 2 + first), proxy.cut_after("delete")]
            async with Lock(zk, path).hold(within=20):
                assert len(await line(safe, path)) == 1
            assert await line(safe, path) == []
            assert [cut.done() for cut in (cuts[0], cuts[2])] == [True, True]
        assert proxy.connections >= 3


async def test_every_reply_is_cut_until_it_gets_through(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 10 and 20: five lost answers to create2 running, and five to delete, leave one node and then none."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
    ):
        await safe.create(path)
        before = [proxy.cut_before("create2", n) for n in range(1, 4)]
        after = [proxy.cut_after("delete", n) for n in range(1, 4)]
        async with Lock(zk, path).hold(within=40):
            assert len(await line(safe, path)) == 1
        assert await line(safe, path) == []
        assert all(cut.done() for cut in before)
        assert sum(cut.done() for cut in after) >= 1


async def test_a_lost_create_and_a_bound_that_ends_before_the_next_connection(zookeeper: RealServer, path: str) -> None:
    """Pitfall 10: the node whose create lost its answer goes when the acquire gives up looking for it."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        await safe.create(path)
        cut = proxy.cut_after("create2")
        proxy.refuse()
        acquiring = asyncio.create_task(Lock(zk, path).acquire(within=0.5))
        await cut
        with pytest.raises(TimeoutError, match=path):
            await acquiring
        assert len(await line(safe, path)) == 1
        proxy.accept()
        await until_line(safe, path, 0)
        assert zk.state is SessionState.CONNECTED


@pytest.mark.parametrize("turns", range(6))
async def test_a_lost_create_and_a_cancellation_at_the_same_moment(
    zookeeper: RealServer, path: str, turns: int
) -> None:
    """Pitfalls 10 and 11: cancelled so many turns of the loop behind the loss of the answer."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        await safe.create(path)
        cut = proxy.cut_after("create2")
        loop = asyncio.get_running_loop()

        def cancel_in(left: int) -> None:
            if left:
                loop.call_soon(cancel_in, left - 1)
            else:
                acquiring.cancel()

        def listener(state: SessionState) -> None:
            if state is SessionState.SUSPENDED:
                cancel_in(turns)

        zk._session.states.listen(listener)
        acquiring = asyncio.create_task(Lock(zk, path).acquire())
        await cut
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        zk._session.states.unlisten(listener)
        await zk.ping()
        await until_line(safe, path, 0)


async def test_a_create_whose_answer_is_lost_in_a_new_session(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 12, 13 and 20: entered anew after an expiry, while there is no session yet; the first create of the new
    session loses its answer."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        held = await Lock(safe, path).acquire()
        waiter = asyncio.create_task(Lock(zk, path).acquire(within=30))
        await until_line(safe, path, 2)
        await until_watches(zookeeper, 3)
        session = zk.session_id
        cut = proxy.cut_after("create2")
        await expire(zookeeper, zk)
        await cut
        await until(lambda: zk.state is SessionState.CONNECTED and zk.session_id != session)
        await until_watches(zookeeper, 3)
        assert len(await line(safe, path)) == 2
        await held.release()
        await (await waiter).release()
        assert await line(safe, path) == []


async def test_a_session_that_dies_while_its_lost_create_is_looked_for(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 12, 13 and 17: no node of the dying session is adopted."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        await safe.create(path)
        cut = proxy.cut_after("create2")
        proxy.refuse()
        waiter = asyncio.create_task(Lock(zk, path).acquire(within=30))
        await cut
        old = (await until_line(safe, path, 1))[0]
        await until_state(zk, SessionState.SUSPENDED)
        session = zk.session_id
        await expire(zookeeper, zk)
        proxy.accept()
        lease = await waiter
        assert zk.session_id != session
        assert await line(safe, path) == [lease.path.rpartition("/")[2]]
        assert not lease.path.endswith(old)
        lease.check()
        await lease.release()


async def test_reconnects_without_end_while_waiting(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 1 and 2: connected, suspended, connected, over and over; the waiters keep their places."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
        no_task_stays(),
    ):
        held = await Lock(safe, path).acquire()
        waiters = []
        for number, client in enumerate((zk, zk2, zk, zk2)):
            waiters.append(asyncio.create_task(Lock(client, path).acquire()))
            await until_line(safe, path, number + 2)
        nodes = await line(safe, path)
        for _ in range(3):
            connections = proxy.connections
            proxy.cut()
            await proxy.connected(connections + 2)
            await asyncio.gather(zk.ping(), zk2.ping())
        assert await line(safe, path) == nodes
        await until_armed(all_watches(5), safe, zk, zk2)
        await held.release()
        for waiter, node in zip(waiters, nodes[1:], strict=True):
            lease = await waiter
            assert lease.path == f"{path}/{node}"
            await lease.release()


async def test_own_node_and_the_blocker_go_while_the_connection_is_lost(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 13 and 17: what a reconnect brings at once comes in no order; who has lost its node does not own."""
    for attempt in range(4):  # the order of the events is that of the paths, which are random
        at = f"{path}-{attempt}"
        async with (
            Proxy(zookeeper.hosts) as proxy,
            zkwire.connect(zookeeper.hosts) as safe,
            zkwire.connect(proxy.hosts) as zk,
            no_task_stays(),
        ):
            held = await Lock(safe, at).acquire()
            waiter = asyncio.create_task(Lock(zk, at).acquire())
            node = (await until_line(safe, at, 2))[1]
            await until_watches(zookeeper, 3)
            proxy.refuse()
            proxy.cut()
            await until_state(zk, SessionState.SUSPENDED)
            await safe.delete(f"{at}/{node}")
            await held.release()
            other = await Lock(safe, at).acquire()
            proxy.accept()
            await until_line(safe, at, 2)
            await until_watches(zookeeper, 3)
            assert not waiter.done()
            await other.release()
            lease = await waiter
            assert not lease.path.endswith(node)
            await lease.release()


async def test_after_a_reconnect_the_line_is_listed_before_anybody_owns(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 1 and 17: a reconnect disarms."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        held = await Lock(safe, path).acquire()
        waiter = asyncio.create_task(Lock(zk, path).acquire())
        await until_watches(zookeeper, 3)
        mark = proxy.mark()
        proxy.cut()
        await proxy.connected(2)
        await until_watches(zookeeper, 3)
        await held.release()
        lease = await waiter
        asked = proxy.requests(mark)
        assert asked[:2] == ["connect", "setWatches"]
        assert "getChildren" in asked
        await lease.release()


@pytest.mark.parametrize("turns", [1, 3, 10, 30, None])
async def test_the_search_for_a_lost_create_is_cancelled(zookeeper: RealServer, path: str, turns: int | None) -> None:
    """Pitfalls 10 and 11: what it would have found goes; None: its answers are held back when it is cancelled."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        await safe.create(path)
        cut = proxy.cut_after("create2")
        acquiring = asyncio.create_task(Lock(zk, path).acquire())
        await cut
        mark = proxy.mark()
        if turns is None:
            await proxy.seen("sync", mark)
            proxy.hold_replies()
            await asyncio.sleep(0)
        else:
            await proxy.seen("sync", mark, direction="request")
            for _ in range(turns):
                await asyncio.sleep(0)
        assert len(await line(safe, path)) == 1
        acquiring.cancel()
        came = await outcome(acquiring)
        proxy.release_replies()
        if isinstance(came, Lease):
            assert turns is not None
            await came.release()
        else:
            assert isinstance(came, asyncio.CancelledError)
        await until_line(safe, path, 0)


async def test_a_holder_over_a_cut_keeps_its_lease(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as safe,
        zkwire.connect(proxy.hosts) as zk,
        no_task_stays(),
    ):
        lease = await Lock(zk, path).acquire()
        await until_watches(zookeeper, 1)
        for number in range(3):
            proxy.cut(reset=number == 1)
            await proxy.connected(number + 2)
            await zk.ping()
            lease.check()
        await safe.delete(lease.path)  # and it is watched still
        error = await lease.lost()
        assert isinstance(error, LockLostError)
        assert error.why == "somebody else has deleted it"
        await lease.release()
