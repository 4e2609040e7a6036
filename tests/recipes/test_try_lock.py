"""The lock that gives up: what it costs, whose node it is when an answer is lost, and whose it is not."""

import asyncio
import re
from typing import Any

import pytest

import zkwire
from recipes import Lease, LockLostError, LockTakenError, TryLock
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import (
    body_raises,
    expire,
    no_task_stays,
    outcome,
    this_task,
    until,
    until_state,
    until_watches,
)
from zkwire import SessionClosedError, SessionExpiredError, SessionState, TransactionError
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)

P = "/recipe/job"


async def taken(lock: TryLock) -> Lease:
    lease = await lock.try_acquire()
    assert lease is not None
    return lease


# -- use --------------------------------------------------------------------------------------------------------------


async def test_the_node_is_the_path_itself(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        where = f"{path}/a/job"
        lock, others = TryLock(zk, where, data=b"host-1"), TryLock(other, where)
        async with lock as lease:
            data, stat = await zk.get(where)
            assert data == b"host-1"
            assert stat.ephemeral_owner == zk.session_id
            assert lease.path == where
            assert lease.token == stat.czxid
            assert lease.is_certain()
            assert await lock.try_acquire() is None
            assert await others.try_acquire() is None
            for form in (others.acquire(), others.acquire(within=5), others.hold().__aenter__(), others.__aenter__()):
                with pytest.raises(LockTakenError, match=f"{where} is taken") as error:
                    await form
                assert error.value.path == where
        assert await zk.exists(where) is None
        lease = await others.acquire()
        await lease.release()
        async with others.hold(within=5) as lease:
            lease.check()
        assert await zk.get_children(f"{path}/a") == []


async def test_it_takes_one_request_and_one_to_release(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        for attempt in range(2):
            mark = proxy.mark()
            lease = await taken(TryLock(zk, path))
            assert proxy.requests(mark) == ["create2"]
            assert await TryLock(zk, path).try_acquire() is None
            assert proxy.requests(mark) == ["create2", "create2"]
            await lease.release()
            assert proxy.requests(mark) == ["create2", "create2", "delete"], attempt
            assert proxy.events(mark) == []
        mark = proxy.mark()
        async with TryLock(zk, f"{path}-parent/job"):
            assert proxy.requests(mark) == ["create2", "create", "create2"]


async def test_below_a_chroot_that_is_missing(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as whole, zkwire.connect(f"{zookeeper.hosts}{path}/a") as zk:
        async with TryLock(zk, "/job") as lease:
            assert lease.path == "/job"
            assert await whole.exists(f"{path}/a/job") is not None
        assert await whole.exists(f"{path}/a/job") is None


async def test_one_of_many_has_it(zookeeper: RealServer, path: str) -> None:
    """Pitfall 21: those that share a client, and those that do not."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        shared = TryLock(zk, path)
        locks = [shared, shared, TryLock(zk, path), TryLock(zk, path), TryLock(other, path), TryLock(other, path)]
        for _ in range(5):
            leases = await asyncio.gather(*(lock.try_acquire() for lock in locks))
            held = [lease for lease in leases if lease is not None]
            assert len(held) == 1
            await held[0].release()


@pytest.mark.parametrize("bad", ["", "job", "/a//b", "/a/", "/"])
async def test_bad_paths(memory: Any, bad: str) -> None:
    async with zkwire.connect(memory.hosts) as zk:
        with pytest.raises(ValueError, match=re.escape(repr(bad)) if bad != "/" else "root"):
            TryLock(zk, bad)


async def test_bad_data_and_bounds(memory: Any, path: str) -> None:
    async with zkwire.connect(memory.hosts) as zk:
        wrong: Any = "host-1"
        with pytest.raises(TypeError, match="host-1"):
            TryLock(zk, path, data=wrong)
        with pytest.raises(ValueError, match="within"):
            await TryLock(zk, path).acquire(within=-1)
        assert await zk.exists(path) is None


async def test_on_a_closed_client() -> None:
    """Pitfall 6."""
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        lock = TryLock(zk, P)
        await zk.close()
        for asked in (lock.acquire(), lock.try_acquire()):
            assert isinstance(await outcome(asked), SessionClosedError)


async def test_what_the_server_refuses_is_told() -> None:
    async with scene() as stage:
        await stage.other.create("/nothing-below", acl=zkwire.READ_ONLY_ACL)
        with pytest.raises(zkwire.NoAuthError):
            await TryLock(stage.zk, "/nothing-below/job").acquire()


# -- losing -----------------------------------------------------------------------------------------------------------


async def test_deletion_by_somebody_else_is_told(zookeeper: RealServer, path: str) -> None:
    """Pitfall 14."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        with body_raises(LockLostError, match="deleted"):
            async with TryLock(zk, path) as lease:
                await until_watches(zookeeper, 1)
                await other.set(path, b"a note")
                await until_watches(zookeeper, 1)
                lease.check()
                await other.delete(path)
                await asyncio.Event().wait()
        assert this_task().cancelling() == 0
        await until_watches(zookeeper, 0)


async def test_another_one_in_its_place_is_told_and_left_alone(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 13 and 14: the node is deleted and made anew before ours is watched, and while it is."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        for is_watched in (False, True):
            lease = await taken(TryLock(zk, path))
            if is_watched:
                await until_watches(zookeeper, 1)
            async with other.transaction() as transaction:
                transaction.delete(path)
                transaction.create(path, ephemeral=True)
            error = await lease.lost()
            assert isinstance(error, LockLostError)
            assert "deleted" in error.why
            await lease.release()
            await zk.ping()
            stat = await other.exists(path)
            assert stat is not None
            assert stat.ephemeral_owner == other.session_id
            await other.delete(path)
        await until_watches(zookeeper, 0)


async def test_expiry_is_told_and_the_next_holder_left_alone(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 12, 13 and 14: neither release nor transaction of the old session's lease touch the new node."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        lease = await taken(TryLock(zk, path))
        transaction = lease.transaction()
        transaction.create(f"{path}-work")
        losing = asyncio.create_task(lease.lost())
        await expire(zookeeper, zk)
        following = await taken(TryLock(other, path))
        assert isinstance(await losing, LockLostError)
        await until_state(zk, SessionState.CONNECTED)
        assert await TryLock(zk, path).try_acquire() is None
        await lease.release()
        with pytest.raises(SessionExpiredError):
            await transaction.commit()
        with pytest.raises(SessionExpiredError):
            async with lease.transaction() as late:
                late.create(f"{path}-work")
        await zk.ping()
        following.check()
        assert await other.exists(f"{path}-work") is None
        assert following.token > lease.token
        async with following.transaction() as good:
            good.create(f"{path}-work")
        await following.release()
        async with TryLock(zk, path) as again:
            assert again.token > following.token


async def test_a_transaction_after_a_deletion_is_refused(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        lease = await taken(TryLock(zk, path))
        await other.delete(path)
        with pytest.raises(TransactionError):
            async with lease.transaction() as transaction:
                transaction.create(f"{path}-work")
        assert isinstance(await lease.lost(), LockLostError)


# -- answers that are lost --------------------------------------------------------------------------------------------


async def test_a_release_whose_answer_is_lost_does_not_delete_the_next_holders_node() -> None:
    """Pitfall 10, and its opposite: the delete is repeated only as long as the node is the one that it was for."""
    for is_carried_out in (True, False):
        async with scene() as stage:
            lease = await taken(TryLock(stage.zk, P))
            server = stage.server
            drop = server.drop_after if is_carried_out else server.drop_before
            with server.refuse_connections() as refusing:
                with drop("delete", session=stage.zk.session_id):
                    releasing = asyncio.create_task(lease.release())
                    await until_state(stage.zk, SessionState.SUSPENDED)
                following = await TryLock(stage.other, P).try_acquire()
                assert (following is not None) is is_carried_out
                refusing.end()
            await releasing
            await stage.zk.ping()
            if following is None:
                following = await taken(TryLock(stage.other, P))
            following.check()
            assert await stage.other.exists(P) is not None
            await following.release()


async def test_of_several_tries_that_lose_their_answers_one_believes() -> None:
    """Pitfalls 12, 20 and 21: the node has no name of its own, so that each could take it for its own."""
    for is_carried_out in (True, False):
        async with scene() as stage:
            await stage.other.create("/recipe")
            drop = stage.server.drop_after if is_carried_out else stage.server.drop_before
            drop("create", session=stage.zk.session_id)
            locks = [TryLock(stage.zk, P), TryLock(stage.zk, P), TryLock(stage.zk, P)]
            leases = await asyncio.gather(*(lock.try_acquire() for lock in locks))
            held = [lease for lease in leases if lease is not None]
            assert len(held) == 1
            held[0].check()
            stat = await stage.other.exists(P)
            assert stat is not None
            assert held[0].token == stat.czxid
            await held[0].release()
            assert await stage.other.exists(P) is None


async def test_a_lost_answer_is_not_taken_for_an_older_node_of_the_same_session() -> None:
    """Pitfall 13: that the session owns the node does not mean that this try has made it."""
    for is_carried_out in (True, False):
        async with scene() as stage:
            lease = await taken(TryLock(stage.zk, P))
            (stage.server.drop_after if is_carried_out else stage.server.drop_before)(
                "create", session=stage.zk.session_id
            )
            assert await TryLock(stage.zk, P).try_acquire() is None
            lease.check()
            await lease.release()


async def test_a_lost_answer_and_an_expired_session() -> None:
    """Pitfalls 12 and 13: it was carried out, and went with the session; the next one takes it anew."""
    async with scene() as stage:
        await stage.other.create("/recipe")
        with stage.server.refuse_connections() as refusing:
            with stage.server.drop_after("create", session=stage.zk.session_id):
                trying = asyncio.create_task(TryLock(stage.zk, P).try_acquire())
                await until_state(stage.zk, SessionState.SUSPENDED)
            old = stage.zk.session_id
            stage.server.expire(old)
            refusing.end()
        lease = await trying
        assert lease is not None
        stat = await stage.other.exists(P)
        assert stat is not None
        assert stat.ephemeral_owner == stage.zk.session_id != old
        await lease.release()


async def test_one_that_is_cancelled_gives_back_and_the_next_of_this_client_waits_for_that() -> None:
    """Pitfalls 9 and 10."""
    async with scene() as stage, no_task_stays():
        await stage.other.create("/recipe")
        with stage.server.hold_replies("create", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(TryLock(stage.zk, P).try_acquire())
            await held.until_hit()
            trying.cancel()
            assert isinstance(await outcome(trying), asyncio.CancelledError)
        await until_absent(stage)
        await (await taken(TryLock(stage.zk, P))).release()


async def test_a_bound_holds_while_no_server_answers() -> None:
    """Pitfall 8."""
    async with scene() as stage, no_task_stays():
        with stage.server.paused(), pytest.raises(TimeoutError, match=P):
            await TryLock(stage.zk, P).acquire(within=0.05)
        await until_absent(stage)
        await no_watch_stays(stage.server.hosts)


async def until_absent(stage: Scene) -> None:
    async def is_absent() -> bool:
        return await stage.other.exists(P) is None

    await stage.zk.ping()
    await until(is_absent)


# -- everywhere -------------------------------------------------------------------------------------------------------


async def take_and_release(stage: Scene) -> None:
    async with TryLock(stage.zk, f"{stage.path}/job"):
        pass


async def find_it_taken(stage: Scene) -> None:
    async with TryLock(stage.other, f"{stage.path}/job") as lease:
        assert await TryLock(stage.zk, f"{stage.path}/job").try_acquire() is None
        lease.check()


async def take_watch_and_release(stage: Scene) -> None:
    async with TryLock(stage.zk, f"{stage.path}/job") as lease:
        await until(lambda: len(stage.zk._session.watches) == 1)
        lease.check()


@pytest.mark.parametrize(("play", "steps"), [(take_and_release, 2), (find_it_taken, 1), (take_watch_and_release, 3)])
async def test_cut_at_every_step(play: Any, steps: int) -> None:
    """Pitfalls 3, 12, 13 and 20."""
    await cut_at_every_step(play, at_least=steps)


@pytest.mark.parametrize("play", [take_and_release, find_it_taken])
async def test_cancelled_at_every_moment(play: Any) -> None:
    """Pitfalls 3, 9 and 10."""

    async def afterwards(stage: Scene) -> None:
        async def is_free() -> bool:
            return await stage.other.exists(f"{stage.path}/job") is None

        await stage.zk.ping()  # behind what a cancelled try has sent
        await until(is_free)
        await take_and_release(stage)

    await cancel_at_every_moment(play, afterwards=afterwards)


async def test_expired_at_every_step() -> None:
    """Pitfalls 12, 13 and 14."""
    for step in range(1, 6):
        async with scene() as stage, no_task_stays():
            with stage.server.hold_replies(session=stage.zk.session_id, nth=step, times=1) as held:
                playing = asyncio.create_task(outcome(take_and_release(stage)))
                await wait_for_hit_or_end(held, playing)
                stage.server.expire(stage.zk.session_id)
                held.end()
                came = await playing
                assert came is None or isinstance(came, LockLostError)
            await outcome(stage.zk.ping())
            assert await stage.other.exists("/recipe/job") is None


async def wait_for_hit_or_end(held: Any, playing: asyncio.Task[Any]) -> None:
    await until(lambda: bool(held.hits) or playing.done())
