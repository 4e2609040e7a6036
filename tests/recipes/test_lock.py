"""The fair lock: every form of use, input, its requests, bounds, and cuts and cancellations at every step."""

import asyncio
from typing import Any

import pytest

import zkwire
from recipes import Lock, ReentrantLock
from tests.support.client import Server
from tests.support.everywhere import scene
from tests.support.locks import release, taken
from tests.support.proxy import Proxy
from tests.support.recipes import expire, line, make_known, no_task_stays, two_clients, until_line, until_watches
from zkwire import SessionClosedError, SessionExpiredError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(20)


# -- forms of use -----------------------------------------------------------------------------------------------------


async def test_a_lock_below_a_chroot_and_below_the_root(zookeeper: RealServer, path: str) -> None:
    async with (
        zkwire.connect(zookeeper.hosts) as whole,
        zkwire.connect(f"{zookeeper.hosts}{path}") as zk,
        zkwire.connect(f"{zookeeper.hosts}{path}") as zk2,
    ):
        lease = await Lock(zk, "/").acquire()
        waiter = asyncio.create_task(Lock(zk2, "/").acquire())
        await until_line(whole, path, 2)
        assert lease.path.startswith("/_c_")
        await lease.release()
        await (await waiter).release()
        async with Lock(zk, "/deep/er/lock") as lease:
            assert lease.path.startswith("/deep/er/lock/_c_")
            assert await line(whole, f"{path}/deep/er/lock") == [lease.path.rpartition("/")[2]]


async def test_tokens_grow_even_if_the_parent_is_deleted_in_between(zookeeper: RealServer, path: str) -> None:
    """Pitfall 18: a parent that was deleted is simply created again."""
    async with two_clients(zookeeper) as (zk, other):
        tokens = []
        for number in range(6):
            async with Lock((zk, other)[number % 2], path) as lease:
                tokens.append(lease.token)
            if number % 2:
                await zk.delete(path)
        assert tokens == sorted(set(tokens))


# -- input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, -0.001, float("nan"), float("-inf"), "5", True, b"1"])
@pytest.mark.parametrize("kind", [Lock, ReentrantLock])
async def test_bad_arguments_are_refused_and_nothing_is_sent(kind: type[Lock], bad: Any) -> None:
    async with scene() as stage:
        lock = kind(stage.zk, "/l")
        with stage.server.delay_replies(0, session=stage.zk.session_id) as sent:
            error = ValueError if type(bad) in (int, float) else TypeError
            with pytest.raises(error, match=f"within is a number.*not {bad!r}"):
                await lock.acquire(within=bad)
            with pytest.raises(error, match=f"within is a number.*not {bad!r}"):
                lock.hold(within=bad)
            with pytest.raises(ValueError, match="local_passes is at least 0, not -1"):
                kind(stage.zk, "/l", local_passes=-1)
            assert sent.hits == 0


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unwatched")
async def test_every_form_of_use_costs_the_same_requests(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await make_known(zk, path)
        for lock in (Lock(zk, path), ReentrantLock(zk, path)):
            mark = proxy.mark()
            async with lock:
                pass
            async with lock.hold(within=5):
                pass
            await release(await taken(lock))
            assert proxy.requests(mark) == ["create2", "getChildren", "delete"] * 3
            assert proxy.segments(mark) == 6


# -- trying -----------------------------------------------------------------------------------------------------------


async def test_a_try_that_fails_leaves_the_turn_to_the_other_tasks() -> None:
    async with scene() as stage, no_task_stays():
        shared = Lock(stage.zk, "/locks/a")
        async with Lock(stage.other, "/locks/a"):
            for _ in range(2):
                assert await shared.try_acquire() is None
        for operation in ("try_acquire", "acquire"):
            with (
                stage.server.answering("create", zkwire.NoAuthError, session=stage.zk.session_id),
                pytest.raises(zkwire.NoAuthError),
            ):
                await getattr(shared, operation)()
            await release(await taken(shared))


# -- the end of the session -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "error"), [("close", SessionClosedError), ("expire", SessionExpiredError)])
async def test_the_end_of_the_client_ends_every_wait(
    each_server: Server, path: str, ends: str, error: type[zkwire.SessionError]
) -> None:
    """Pitfall 6: the waits in the local queue and in ZooKeeper's line."""
    async with (
        zkwire.connect(each_server.hosts) as zk,
        zkwire.connect(each_server.hosts, renew=False) as zk2,
        Lock(zk, path),
    ):
        shared = Lock(zk2, path)
        waiters = [asyncio.create_task(shared.acquire()) for _ in range(3)]
        await until_line(zk, path, 2)
        await until_watches(each_server, 3)
        await (zk2.close() if ends == "close" else expire(each_server, zk2))
        for use in (*waiters, shared.acquire(), shared.try_acquire()):
            with pytest.raises(error):
                await use
        await until_line(zk, path, 1)
