"""A lease: its state, its loss and the signals of it, release, and a silent server."""

import asyncio
import gc
import time

import pytest

import zkwire
from recipes import Election, Lease, Lock, LockLostError
from tests.support.proxy import Proxy
from tests.support.recipes import (
    all_watches,
    body_raises,
    expire,
    line,
    proxied,
    two_clients,
    until,
    until_armed,
    until_line,
    until_watches,
)
from zkwire import ACL, Perms, ThrottledError, TransactionError
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)

DELETED = "somebody else has deleted it"


# -- state and use ----------------------------------------------------------------------------------------------------


async def test_a_lease_is_certain_until_it_is_released(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts, session_timeout=4.0) as zk:
        lease = await Lock(zk, path).acquire()
        lease.check()
        assert lease.is_certain()
        assert 3.0 < lease.certain_for() <= 4.0  # a new session: the timeout, from the sending of the handshake
        assert not lease.is_released
        losing = asyncio.create_task(lease.lost())
        await lease.release()
        assert await losing is None
        assert await lease.lost() is None
        assert lease.is_released
        assert not lease.is_certain()
        assert lease.certain_for() == 0
        with pytest.raises(RuntimeError, match=lease.path):
            lease.check()
        await lease.release()  # once more does no harm
        assert await line(zk, path) == []


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


async def test_releasing_again_does_not_free_the_next_holder(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        first = await lock.acquire()
        await first.release()
        second = await lock.acquire()
        await first.release()
        assert await lock.try_acquire() is None
        second.check()
        await second.release()


@pytest.mark.parametrize("end", ["deleted", "released"])
async def test_its_transaction_commits_only_while_the_node_exists(zookeeper: RealServer, path: str, end: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        lease = await Lock(zk, path).acquire()
        async with lease.transaction() as transaction:
            transaction.create(f"{path}-order", b"1")
        assert await zk.exists(f"{path}-order") is not None
        await (other.delete(lease.path) if end == "deleted" else lease.release())
        with pytest.raises(TransactionError) as error:
            async with lease.transaction() as transaction:
                transaction.set(f"{path}-order", b"2")
        assert error.value.index == 0
        assert (await zk.get(f"{path}-order")).data == b"1"
        assert isinstance(await lease.lost(), LockLostError) == (end == "deleted")
        await lease.release()


# -- deletion by somebody else ----------------------------------------------------------------------------------------


async def test_a_deleted_node_is_a_loss(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14."""
    async with two_clients(zookeeper) as (zk, other):
        lock = Lock(zk, path)
        lease = await lock.acquire()
        await other.delete(lease.path)
        error = await lease.lost()
        assert isinstance(error, LockLostError)
        assert error.path == lease.path
        assert error.why == DELETED
        assert lease.path in str(error)
        assert not lease.is_certain()
        assert lease.certain_for() == 0
        checks = []
        for _ in range(3):
            with pytest.raises(LockLostError, match=DELETED) as raised:
                lease.check()
            checks.append(raised.value)
        # One object for all would get a longer traceback with each, for a program that checks again and again.
        assert len({id(each) for each in (error, *checks)}) == 4
        await lease.release()
        assert await lease.lost() is error
        async with lock:  # the lock can be used again
            pass


async def test_a_deletion_after_changes_of_data_is_noticed(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        lease = await Election(zk, path).acquire()
        for note in (b"1", b"2"):
            await until_watches(zookeeper, 1)
            await lease.set(note)
        await until_watches(zookeeper, 1)
        lease.check()
        await other.delete(lease.path)
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()


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
        error = await lease.lost()
        assert error is not None
        assert error.why == DELETED
        await lease.release()


async def test_the_deletion_of_a_node_that_has_waited_is_noticed(zookeeper: RealServer, path: str) -> None:
    async with two_clients(zookeeper) as (zk, other):
        first = await Lock(other, path).acquire()
        waiter = asyncio.create_task(Lock(zk, path).acquire())
        await until_watches(zookeeper, 3)
        await first.release()
        lease = await waiter
        await other.delete(lease.path)
        assert isinstance(await lease.lost(), LockLostError)
        await lease.release()


async def test_a_node_that_the_holder_may_not_read_is_a_loss(zookeeper: RealServer, path: str) -> None:
    """Its deletion by somebody else would go unnoticed."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path, acl=[ACL(Perms.ALL & ~Perms.READ, "world", "anyone")])
        await zk.create(path)
        with pytest.raises(LockLostError, match=f"{path}.*the ACL does not allow the operation"):
            async with lock:
                await asyncio.get_running_loop().create_future()
        assert await line(zk, path) == []


async def test_a_server_that_throttles_is_asked_for_the_watch_again() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with server.answering("getData", ThrottledError, times=2) as throttled:
            lease = await Lock(zk, "/lock").acquire()
            await throttled.until_hit(2)
        await until_armed(1, zk)
        lease.check()
        await zk.delete(lease.path)
        assert str(await lease.lost()).count(DELETED) == 1


async def test_a_cut_of_the_connection_is_no_loss_and_the_node_is_watched_still(
    zookeeper: RealServer, path: str
) -> None:
    async with proxied(zookeeper) as (proxy, safe, zk):
        lease = await Lock(zk, path).acquire()
        await until_watches(zookeeper, 1)
        for number in range(3):
            proxy.drop(reset=number == 1)
            await proxy.connected(number + 2)
            await zk.ping()
            lease.check()
        await safe.delete(lease.path)  # it is still watched
        error = await lease.lost()
        assert isinstance(error, LockLostError)
        assert error.why == "somebody else has deleted it"
        await lease.release()


# -- the end of the session -------------------------------------------------------------------------------------------


async def test_an_expired_session_is_a_loss(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        lock = Lock(zk, path)
        lease = await lock.acquire()
        session = zk.session_id
        await expire(zookeeper, zk)
        assert isinstance(await lease.lost(), LockLostError)
        with pytest.raises(LockLostError):
            lease.check()
        await lease.release()
        async with lock.hold(within=10) as again:  # in a new session
            assert again.token > lease.token
        assert zk.session_id != session


async def test_an_expired_session_that_is_not_renewed_is_a_loss(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts, renew=False) as zk:
        with body_raises(LockLostError):
            async with Lock(zk, path):
                await expire(zookeeper, zk)
                await asyncio.Event().wait()


async def test_closing_the_client_is_a_loss(zookeeper: RealServer, path: str) -> None:
    """Pitfall 6."""
    zk = await zkwire.connect(zookeeper.hosts)
    with body_raises(LockLostError):
        async with Lock(zk, path):
            await until_watches(zookeeper, 1)
            closing = asyncio.create_task(zk.close())
            await asyncio.Event().wait()
    await closing


async def test_closing_the_client_ends_certainty_before_the_server_answers(zookeeper: RealServer, path: str) -> None:
    """The next owner owns before the server has answered."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as other:
        for watched in (True, False):
            zk = await zkwire.connect(proxy.hosts)
            lease = await Lock(zk, path).acquire()
            if watched:
                await until_armed(1, zk)
            waiter = asyncio.create_task(Lock(other, path).acquire())
            await until_armed(2, other)
            losing = asyncio.create_task(lease.lost())
            await asyncio.sleep(0)
            hold = proxy.hold_replies()
            closing = asyncio.create_task(zk.close())
            await (await waiter).release()
            assert not closing.done()
            assert not lease.is_certain()
            assert ("the client is closed" if watched else "its session is over") in str(await losing)
            hold.release()
            await closing


# -- a silent server --------------------------------------------------------------------------------------------------


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


async def test_a_server_that_grants_a_shorter_timeout_ends_certainty_sooner(
    zookeeper_own: RealServer, path: str
) -> None:
    """The timeout is negotiated with each connection, and the newest one counts."""
    loop = asyncio.get_running_loop()
    async with zkwire.connect(zookeeper_own.hosts, session_timeout=8.0) as zk:
        paused = loop.time() + 60
        with body_raises(LockLostError, match="may have expired"):
            async with Lock(zk, path) as lease:
                await until_watches(zookeeper_own, 1)
                zookeeper_own.kill()
                settings = zookeeper_own.folder / "zoo.cfg"
                settings.write_text(settings.read_text().replace("maxSessionTimeout=60000", "maxSessionTimeout=1000"))
                await zookeeper_own.start()
                await until(lambda: zk.session_timeout == 1.0)
                assert lease.certain_for() <= 1.0
                zookeeper_own.pause()
                paused = loop.time()
                await asyncio.Event().wait()
        assert loop.time() - paused <= 1.0 + 0.25
        zookeeper_own.resume()


async def test_a_short_silence_is_no_loss(zookeeper_own: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper_own.hosts, session_timeout=6.0) as zk:
        async with Lock(zk, path) as lease:
            zookeeper_own.pause()
            await asyncio.sleep(0.5)
            zookeeper_own.resume()
            await zk.ping()
            lease.check()
        assert await line(zk, path) == []


async def test_a_waiter_whose_loop_was_blocked_asks_a_server_before_it_owns(
    zookeeper_own: RealServer, path: str
) -> None:
    """Pitfall 17: the loop was blocked for longer than certainty lasts."""
    async with (
        zkwire.connect(zookeeper_own.hosts) as other,
        zkwire.connect(zookeeper_own.hosts, session_timeout=2.0) as zk,
    ):
        first = await Lock(other, path).acquire()

        async def wait() -> bool:
            async with Lock(zk, path) as lease:
                return lease.is_certain()

        waiter = asyncio.create_task(wait())
        await until_watches(zookeeper_own, 3)
        await zk.ping()
        asked = asyncio.create_task(first.release())
        await asyncio.sleep(0)  # the delete is written; its event comes while the loop is blocked
        asyncio.get_running_loop().call_soon(time.sleep, 1.6)
        assert await waiter
        await asked
