"""A lease: its state, its loss and the signals of it, release, and a silent server."""

import asyncio
import gc
from unittest.mock import patch

import pytest

import zkwire
from recipes import Election, Lease, Lock, LockLostError
from tests.support.everywhere import nothing_stays, scene
from tests.support.locks import start_waiting
from tests.support.queues import Counting
from tests.support.recipes import all_watches, body_raises, line, make_uncertain, until, until_armed, until_line
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)

DELETED = "another client has deleted it"


# -- state and use ----------------------------------------------------------------------------------------------------


async def test_a_lease_that_is_over_needs_no_garbage_collector() -> None:
    """Its memory is free as soon as the lock has another one: no object refers to it in a circle."""
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        lock = Lock(zk, "/lock")
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                async with lock as lease:
                    lease.check()
            kept = [
                each for each in gc.get_objects() if isinstance(each, Lease) and each._zk is zk and each is not lease
            ]
        finally:
            gc.enable()
        assert kept == []


# -- deletion by somebody else ----------------------------------------------------------------------------------------


async def written(zk: zkwire.Client, path: str, data: bytes) -> bool:
    """Return whether the node has this data."""
    return (await zk.get(path)).data == data


async def test_a_deletion_is_noticed_after_a_change_that_came_together_with_the_answer_to_the_watch() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        lease = await Election(zk, "/lock").acquire()
        await until_armed(1, zk)
        with server.hold_replies("getData", session=zk.session_id, times=1) as held:
            await lease.set(b"1")
            await held.until_hit()
            second = asyncio.create_task(lease.set(b"2"))
            await until(lambda: written(other, lease.path, b"2"))
        await second
        lease.check()
        await other.delete(lease.path)
        assert getattr(await lease.lost(), "why", "") == DELETED
        await lease.release()


# -- the end of the session -------------------------------------------------------------------------------------------


# -- the end of a lease, in all its forms -----------------------------------------------------------------------------


async def test_all_that_a_lease_says_of_itself_from_acquiring_to_release(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        (name,) = await line(stage.other, stage.path)
        assert lease.path == f"{stage.path}/{name}"
        assert lease.token == (await stage.other.get(lease.path)).stat.czxid
        assert (lease.is_released, lease.is_over, lease.is_certain()) == (False, False, True)
        assert 0 < lease.certain_for() == pytest.approx(stage.zk.certain_for(stage.zk.session_id), abs=0.5)
        assert f"{stage.path}/{name}, held, certain for " in repr(lease)
        lease.check()
        assert lease._find_loss() is None
        losing = [asyncio.create_task(lease.lost()) for _ in range(2)]
        await asyncio.sleep(0)
        losing[0].cancel()  # harmless for the other one
        await asyncio.wait(losing[:1])
        await lease.release()
        assert await losing[1] is None
        assert await lease.lost() is None
        assert (lease.is_released, lease.is_over, lease.is_certain(), lease.certain_for()) == (True, True, False, 0)
        with pytest.raises(RuntimeError, match=f"^the lock node {lease.path} was released$"):
            lease.check()
        assert lease._find_loss() is None
        assert ", released, token" in repr(lease)
        await lease.release()
        assert caplog.messages == []
        await nothing_stays(stage)


@pytest.mark.parametrize("is_watched", [False, True])
async def test_all_a_lease_says_of_itself_when_it_is_lost(is_watched: bool, caplog: pytest.LogCaptureFixture) -> None:
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        lock = Lock(zk, stage.path)
        if is_watched:  # from the time of waiting
            held = await Lock(stage.other, stage.path).acquire()
            waiter = await start_waiting(stage.other, lock, 2)
            await held.release()
            lease = await waiter
        else:
            lease = await lock.acquire()
        waiting = asyncio.create_task(lock.acquire())  # in the local queue
        losing = asyncio.create_task(lease.lost())
        await asyncio.sleep(0)
        count.requests.clear()
        await stage.other.delete(lease.path)
        error = await losing
        assert error is not None
        assert (error.path, error.why) == (lease.path, DELETED)
        assert str(error) == (
            f"the lock node {lease.path} is lost: {DELETED}; stop, and acquire it again before you go on"
        )
        assert await lease.lost() is lease._find_loss() is error
        assert (lease.is_released, lease.is_over, lease.is_certain(), lease.certain_for()) == (False, True, False, 0)
        assert f"{lease.path}, lost: {DELETED}, token {lease.token}, session 0x" in repr(lease)
        with pytest.raises(LockLostError, match=DELETED):
            lease.check()
        assert caplog.messages == [f"lost the lock {lease.path}: {DELETED}"]
        assert "delete" not in count.requests  # it is gone already
        assert not waiting.done()
        await lease.release()
        assert lease.is_released
        with pytest.raises(LockLostError, match=DELETED):
            lease.check()
        assert await lease.lost() is error
        again = await waiting  # the turn was passed on, without the ticket
        assert again.token > lease.token
        await again.release()
        await nothing_stays(stage)


async def test_a_node_whose_lease_is_lost_for_lack_of_certainty_is_deleted_at_once() -> None:
    """The session may be alive on the server, and others wait for the node."""
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        await until_armed(1, stage.zk)
        make_uncertain(stage.zk)
        assert await lease.lost() is not None
        await until_line(stage.other, stage.path, 0)
        await until_armed(0, stage.zk)
        await nothing_stays(stage)


@pytest.mark.parametrize("why", ["its session is over", "has expired"])
async def test_of_a_lease_whose_session_is_over_nothing_is_deleted(why: str) -> None:
    """The node goes with the session: a delete in the next session would be in vain."""
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        lease = await Lock(zk, stage.path).acquire()
        session = zk.session_id
        await until_armed(int(why == "has expired"), zk)  # then the watch says more
        stage.server.expire(session)
        assert why in str(await lease.lost())
        await until(lambda: zk.session_id != session)
        await zk.ping()
        await lease.release()
        await zk.ping()
        assert "delete" not in count.requests


async def test_a_ticket_is_passed_on_only_while_it_is_certain() -> None:
    async with scene() as stage:
        lock = Lock(stage.zk, stage.path, local_passes=5)
        lease = await lock.acquire()
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        with patch.object(type(stage.zk), "certain_for", lambda *_: 0.0):
            await lease.release()
        passed = await waiting
        assert passed.path != lease.path
        await passed.release()
        await nothing_stays(stage)


async def test_a_lease_is_certain_to_the_last_moment() -> None:
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        left = 0.001
        with patch.object(type(stage.zk), "certain_for", lambda *_: left):
            assert (lease.is_certain(), lease.certain_for()) == (True, left)
            lease.check()
            assert lease._find_loss() is None
            left = 0.0
            assert (lease.is_certain(), lease.certain_for()) == (False, 0.0)
            error = lease._find_loss()
        assert "the session may have expired" in str(error)
        await lease.release()
        await nothing_stays(stage)


async def test_the_body_is_cancelled_before_the_session_can_expire(zookeeper_own: RealServer, path: str) -> None:
    """Pitfalls 14, 37 and 63: the server is paused, and the loss is noticed within the timeout."""
    timeout = 2.0
    loop = asyncio.get_running_loop()
    async with zkwire.connect(zookeeper_own.hosts, session_timeout=timeout) as zk:
        lock = Lock(zk, path)
        waiters: list[asyncio.Task[Lease]] = []
        with body_raises(LockLostError, match="has not confirmed it"):
            async with lock as lease:
                waiters.append(asyncio.create_task(Lock(zk, path).acquire()))
                await until_armed(all_watches(2), zk)
                # What the handshake has proven is used up; one proof after the other keeps half of the timeout certain.
                await until(lambda: lease.certain_for() <= 0.65 * timeout)
                zookeeper_own.pause()
                paused = loop.time()
                await asyncio.Event().wait()
        noticed = loop.time()
        assert noticed - paused <= 0.65 * timeout + 0.25  # nothing was answered after the pause
        assert not lease.is_certain()
        assert not waiters[0].done()
        zookeeper_own.resume()
        again = await waiters[0]
        again.check()
        assert again.token > lease.token
        await again.release()
        await until_line(zk, path, 0)
