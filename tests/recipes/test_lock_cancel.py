"""acquire and release are cancelled at every moment in turn: after k turns of the loop, for k = 0, 1, 2, ... until they
come to their end unharmed; with the replies passed on one by one, so that each wait is wide enough to be hit.

Pitfalls 3, 9, 10, 11 and 24: no node stays, no watch, no task; the next in line gets its turn; the lock object is as
good as before.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

import zkwire
from recipes import Lease, Lock, ReentrantLock
from tests.support.proxy import Proxy
from tests.support.recipes import (
    all_watches,
    line,
    no_task_stays,
    outcome,
    until,
    until_armed,
    until_line,
    until_watches,
    watches,
)
from zkwire import Client
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


def moments() -> Iterator[int]:
    """Every number of turns of the loop, and further apart once there are many: a slow server takes thousands."""
    count = 0
    while count < 20_000:
        yield count
        count += 1 + count // 50


@dataclass
class Scene:
    """A lock of a client behind a proxy, which is acquired and cancelled, and another client that is left alone."""

    server: RealServer
    path: str
    proxy: Proxy
    zk: Client
    other: Client
    lock: Lock
    around: AsyncExitStack
    others: int = 0  # tickets that stand there all the time
    watches: int = 0  # and the watches that stand with them


Setting = Callable[[Scene], Awaitable[None]]


async def uncontended(scene: Scene) -> None:
    await scene.other.create(scene.path, container=True)


async def missing_parents(scene: Scene) -> None:
    scene.path += "/a/b"
    scene.lock = Lock(scene.zk, scene.path)


async def release_later(scene: Scene, lease: Lease) -> None:
    """Have a lease that is held go when the story is over."""

    async def release() -> None:
        await lease.release()

    scene.around.push_async_callback(release)


async def contended(scene: Scene) -> None:
    """Behind one that does not leave."""
    await release_later(scene, await Lock(scene.other, scene.path).acquire())
    scene.others = 1


async def contended_by_many(scene: Scene) -> None:
    """Behind four that do not leave, so that two of them are watched, ahead of a list."""
    await contended(scene)
    for number in range(3):
        task = asyncio.create_task(Lock(scene.other, scene.path).acquire())
        await until_line(scene.other, scene.path, number + 2)

        async def leave(task: asyncio.Task[Lease] = task) -> None:
            task.cancel()
            await outcome(task)

        scene.around.push_async_callback(leave)
    scene.others = 4


async def local(scene: Scene) -> None:
    """Behind a task of the same process that shares the lock."""
    await release_later(scene, await scene.lock.acquire())
    scene.others = 1


@asynccontextmanager
async def setting(server: RealServer, path: str, prepare: Setting) -> AsyncIterator[Scene]:
    async with (
        Proxy(server.hosts) as proxy,
        zkwire.connect(server.hosts) as other,
        zkwire.connect(proxy.hosts) as zk,
        AsyncExitStack() as around,
    ):
        scene = Scene(server, path, proxy, zk, other, Lock(zk, path), around)
        await prepare(scene)
        await until_armed(all_watches(scene.others), zk, other)
        scene.watches = await watches(server)
        yield scene


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def slow(proxy: Proxy, since: int) -> None:
    """Pass the replies on one after the other, some turns of the loop apart."""
    while True:
        proxy.hold_replies()
        await turns(4)
        proxy.release_replies()
        await asyncio.sleep(0)


async def check_nothing_stays(scene: Scene) -> None:
    assert len(await until_line(scene.other, scene.path, scene.others)) == scene.others
    await until_watches(scene.server, scene.watches)


SETTINGS: list[Setting] = [uncontended, missing_parents, contended, contended_by_many, local]


@pytest.mark.parametrize("within", [None, 30.0])
@pytest.mark.parametrize("prepare", SETTINGS, ids=lambda prepare: prepare.__name__)
async def test_acquire_is_cancelled_at_every_moment(
    zookeeper: RealServer, path: str, prepare: Setting, within: float | None
) -> None:
    """Pitfalls 9, 10, 11 and 24."""
    async with setting(zookeeper, path, prepare) as scene:
        idle = 0
        for count in moments():
            async with no_task_stays():
                mark = scene.proxy.mark()
                slowing = asyncio.create_task(slow(scene.proxy, mark))
                acquiring = asyncio.create_task(scene.lock.acquire(within=within))
                await turns(count)
                served = acquiring.done()
                acquiring.cancel()
                came = await outcome(acquiring)
                slowing.cancel()
                await outcome(slowing)
                scene.proxy.release_replies()
                if served:
                    assert isinstance(came, Lease)
                    await came.release()
                else:
                    assert isinstance(came, asyncio.CancelledError), repr(came)
                await check_nothing_stays(scene)
            if prepare is missing_parents and not served:
                await remove(scene)
            if served:
                assert not scene.others
                assert count > 5
                break
            # With somebody ahead it is never served: go on until it has waited for some time without a request.
            idle = idle + 1 if scene.others and is_waiting(scene, mark, prepare) else 0
            if idle > 10:
                break
        else:
            raise AssertionError("there is no end")
        await scene.around.aclose()
        async with scene.lock.hold(within=10):  # the lock is as good as before
            pass
        assert await line(scene.other, scene.path) == []


def is_waiting(scene: Scene, mark: int, prepare: Setting) -> bool:
    """Whether the last acquire had got as far as waiting for those before it."""
    if prepare is local:
        return True
    frames = [f for f in scene.proxy.log[mark:] if f.path.startswith(f"{scene.path}/") and f.opcode.startswith("get")]
    asked = [f.xid for f in frames if f.direction == "request"]
    told = [f.xid for f in frames if f.direction == "reply"]
    return len(asked) == len(told) == min(scene.others, 2) + 1


async def remove(scene: Scene) -> None:
    """Have the parents be missing again."""
    parent = scene.path
    while parent != "":
        await outcome(scene.other.delete(parent))
        parent = parent.rpartition("/")[0]


@pytest.mark.parametrize("count", range(20))
async def test_the_next_waiter_gets_its_turn(zookeeper: RealServer, path: str, count: int) -> None:
    """Pitfalls 10 and 11: the one in the middle is cancelled around the moment of the hand-over."""
    async with setting(zookeeper, path, uncontended) as scene, no_task_stays():
        held = await Lock(scene.other, path).acquire()
        middle = asyncio.create_task(scene.lock.acquire())
        await until_line(scene.other, path, 2)
        last = asyncio.create_task(Lock(scene.other, path).acquire())
        await until_line(scene.other, path, 3)
        await until_armed(all_watches(3), scene.zk, scene.other)
        releasing = asyncio.create_task(held.release())
        await turns(count)
        middle.cancel()
        came = await outcome(middle)
        await releasing
        if isinstance(came, Lease):
            assert not last.done()
            await came.release()
        else:
            assert isinstance(came, asyncio.CancelledError)
        await (await last).release()
        await until_line(scene.other, path, 0)
        await until_watches(zookeeper, 0)


@pytest.mark.parametrize("reentrant", [False, True])
async def test_a_hold_is_cancelled_at_every_moment(zookeeper: RealServer, path: str, reentrant: bool) -> None:
    """Pitfall 11: acquire, body and release alike; the next in line owns afterwards."""
    async with setting(zookeeper, path, uncontended) as scene:
        lock = ReentrantLock(scene.zk, path) if reentrant else scene.lock
        for count in moments():
            async with no_task_stays():
                entered = left = False

                async def use() -> None:
                    nonlocal entered, left
                    async with lock:
                        entered = True
                        await turns(2)
                    left = True

                slowing = asyncio.create_task(slow(scene.proxy, 0))
                using = asyncio.create_task(use())
                await turns(count)
                was_over = using.done()
                using.cancel()
                came = await outcome(using)
                slowing.cancel()
                await outcome(slowing)
                scene.proxy.release_replies()
                assert came is None if was_over else isinstance(came, asyncio.CancelledError)
                assert left == was_over
                async with Lock(scene.other, path).hold(within=10):
                    await until_line(scene.other, path, 1)
                await check_nothing_stays(scene)
            if was_over:
                assert entered
                assert count > 8
                break
        else:
            raise AssertionError("there is no end")


async def test_trying_is_cancelled_at_every_moment(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 3 and 11."""
    for prepare in (uncontended, contended):
        async with setting(zookeeper, f"{path}-{prepare.__name__}", prepare) as scene:
            for count in moments():
                async with no_task_stays():
                    slowing = asyncio.create_task(slow(scene.proxy, 0))
                    trying = asyncio.create_task(scene.lock.try_acquire())
                    await turns(count)
                    was_over = trying.done()
                    trying.cancel()
                    came = await outcome(trying)
                    slowing.cancel()
                    await outcome(slowing)
                    scene.proxy.release_replies()
                    if not was_over:
                        assert isinstance(came, asyncio.CancelledError)
                    elif prepare is contended:
                        assert came is None
                    else:
                        assert isinstance(came, Lease)
                        await came.release()
                    await check_nothing_stays(scene)
                if was_over:
                    assert count > 5
                    break
            else:
                raise AssertionError("there is no end")
            assert scene.lock._local_queue.is_free


@pytest.mark.parametrize("cut", ["create2", "getChildren", "getData"])
async def test_acquire_is_cancelled_at_every_moment_around_a_cut(zookeeper: RealServer, path: str, cut: str) -> None:
    """Pitfalls 3, 10 and 11: the answer to a step is lost, and the acquire is cancelled so many turns of the loop
    after the client has noticed, up to the time when it is connected again and stands in line."""
    for count in [*range(12), 25, 60]:
        async with setting(zookeeper, f"{path}-{count}", contended) as scene, no_task_stays():
            lost = scene.proxy.cut_after(cut)
            acquiring = asyncio.create_task(scene.lock.acquire())
            await lost
            await turns(count)
            acquiring.cancel()
            assert isinstance(await outcome(acquiring), asyncio.CancelledError)
            await scene.zk.ping()
            await check_nothing_stays(scene)
            assert scene.proxy.connections == 2


async def test_bounds_that_end_at_every_moment(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 8 and 10: the same with `within`."""
    async with setting(zookeeper, path, contended) as scene:
        for step in range(25):
            async with no_task_stays():
                slowing = asyncio.create_task(slow(scene.proxy, 0))
                with pytest.raises(TimeoutError, match=path):
                    await scene.lock.acquire(within=step / 2000)
                slowing.cancel()
                await outcome(slowing)
                scene.proxy.release_replies()
                await check_nothing_stays(scene)


@pytest.mark.parametrize("reset", [False, True])
async def test_cancelled_while_there_is_no_connection(zookeeper: RealServer, path: str, reset: bool) -> None:
    """Pitfalls 3 and 10: a waiter and one that has not entered yet are cancelled; the clean-up waits for a server."""
    async with setting(zookeeper, path, contended) as scene, no_task_stays():
        waiter = asyncio.create_task(scene.lock.acquire())
        await until_line(scene.other, path, 2)
        await until_watches(zookeeper, 3)
        scene.proxy.refuse()
        scene.proxy.cut(reset=reset)
        await until(lambda: scene.zk.state is zkwire.SessionState.SUSPENDED)
        entering = asyncio.create_task(Lock(scene.zk, path).acquire())
        with pytest.raises(TimeoutError):
            await Lock(scene.zk, path).acquire(within=0.05)
        for task in (waiter, entering):
            task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
        assert len(await line(scene.other, path)) == 2
        scene.proxy.accept()
        await check_nothing_stays(scene)
        assert "create2" not in scene.proxy.requests(len(scene.proxy.log) - 1)
