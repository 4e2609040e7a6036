"""The lock without a queue: its requests, how it is lost, and which client a node belongs to when an answer is lost."""

import asyncio
import re
from typing import Any

import pytest

import zkwire
from recipes import LockLostError, LockTakenError, TryLock
from recipes.common import this_process
from tests.support.client import given_up
from tests.support.everywhere import nothing_stays, scene
from tests.support.locks import taken
from tests.support.proxy import Proxy
from tests.support.recipes import expire, make_uncertain, no_task_stays, outcome, until, until_state, until_watches
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import SessionExpiredError, SessionState
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(30)

P = "/recipe/job"


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


@pytest.mark.usefixtures("unwatched")
async def test_taking_it_and_releasing_it_cost_one_request_each(zookeeper: RealServer, path: str) -> None:
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
            assert proxy.requests(mark) == ["create2", "exists", "create", "create2"]


@pytest.mark.parametrize("bad", ["", "job", "/a//b", "/a/", "/"])
async def test_bad_arguments_are_refused(memory: Any, path: str, bad: str) -> None:
    async with zkwire.connect(memory.hosts) as zk:
        with pytest.raises(ValueError, match=re.escape(repr(bad)) if bad != "/" else "root"):
            TryLock(zk, bad)
        wrong: Any = "host-1"
        with pytest.raises(TypeError, match="host-1"):
            TryLock(zk, path, data=wrong)
        with pytest.raises(ValueError, match="within"):
            await TryLock(zk, path).acquire(within=-1)
        assert await zk.exists(path) is None


async def test_the_nodes_have_the_acl_that_is_given_or_only_the_holder_may_write() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"us:secret")]) as us:
        async with TryLock(us, "/given/job", acl=zkwire.CREATOR_ALL_ACL):
            for path in ("/given", "/given/job"):
                assert (await us.get_acl(path))[0] == [zkwire.digest_acl("us", "secret")]
        async with TryLock(us, "/usual/job", data=b"host-1"):
            assert (await us.get_acl("/usual"))[0] == list(zkwire.OPEN_ACL)
            assert (await stage.other.get("/usual/job")).data == b"host-1"
            with pytest.raises(zkwire.NoAuthError):
                await stage.other.set("/usual/job", b"host-2")
        async with TryLock(us, "/job", acl=zkwire.OPEN_ACL):
            assert (await stage.other.get("/job")).data == this_process.describe()


# -- losing -----------------------------------------------------------------------------------------------------------


async def test_a_node_of_another_client_in_its_place_is_a_loss_and_stays(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 13 and 14: the node is replaced before we have a watch on it, or after that."""
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
            stat = (await other.get(path)).stat
            assert stat.ephemeral_owner == other.session_id
            await other.delete(path)
        await until_watches(zookeeper, 0)


async def test_an_expired_session_is_a_loss_and_the_next_holders_node_stays(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 12, 13 and 14: neither a release nor a transaction of the old lease reaches the new node."""
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


# -- answers that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_release_whose_answer_is_lost_does_not_delete_the_next_holders_node(is_carried_out: bool) -> None:
    """Pitfall 10, and its opposite: the delete is repeated only while the node at the path is ours."""
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


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_of_several_tries_that_lose_their_answers_one_succeeds(is_carried_out: bool) -> None:
    """Pitfalls 12, 20 and 21: the name of the node is not unique, so each try could take it for its own."""
    async with scene() as stage:
        await stage.other.create("/recipe")
        drop = stage.server.drop_after if is_carried_out else stage.server.drop_before
        drop("create", session=stage.zk.session_id)
        locks = [TryLock(stage.zk, P), *(TryLock(stage.zk, f"/{number}") for number in range(1000))]  # one for each job
        locks[1:] = TryLock(stage.zk, P), TryLock(stage.zk, P)
        assert len({lock._order for lock in locks}) == 1
        leases = await asyncio.gather(*(lock.try_acquire() for lock in locks))
        held = [lease for lease in leases if lease is not None]
        assert len(held) == 1
        held[0].check()
        stat = (await stage.other.get(P)).stat
        assert held[0].token == stat.czxid
        await held[0].release()
        assert await stage.other.exists(P) is None


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_lost_answer_is_not_taken_for_an_older_node_of_the_same_session(is_carried_out: bool) -> None:
    """Pitfall 13: the session owns the node, but this try has not created it."""
    async with scene() as stage:
        lease = await taken(TryLock(stage.zk, P))
        (stage.server.drop_after if is_carried_out else stage.server.drop_before)("create", session=stage.zk.session_id)
        assert await TryLock(stage.zk, P).try_acquire() is None
        lease.check()
        await lease.release()


async def test_a_try_that_is_cancelled_behind_its_create_leaves_no_node() -> None:
    """With `acl`, the ACL of the parent is looked up behind the create."""
    async with scene() as stage, no_task_stays():
        lock = TryLock(stage.zk, P, acl=zkwire.OPEN_ACL)
        with stage.server.hold_replies("getACL", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(lock.try_acquire())
            await held.until_hit()
            assert await stage.other.exists(P) is not None
            trying.cancel()
            assert isinstance(await outcome(trying), asyncio.CancelledError)
        await nothing_stays(stage)
        await (await taken(lock)).release()


async def test_a_try_whose_node_another_client_has_replaced_before_its_session_is_certain_is_in_vain() -> None:
    async with scene() as stage:
        with stage.server.hold_replies("getACL", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(TryLock(stage.zk, P, acl=zkwire.OPEN_ACL).try_acquire())
            await held.until_hit()
            await stage.other.delete(P)
            following = await taken(TryLock(stage.other, P))
            make_uncertain(stage.zk)
        assert await trying is None
        await following.release()


@in_virtual_time
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("refusal", [zkwire.NoAuthError, zkwire.NodeExistsError])
async def test_what_a_cancelled_try_cannot_raise_any_more_is_logged_unless_its_session_has_ended(
    is_closed: bool, refusal: type[zkwire.ServerError], caplog: pytest.LogCaptureFixture
) -> None:
    async with a_client() as (server, zk):
        server.is_holding = True
        server.strike = lambda wire, sent: refusal.code if sent.name.startswith("create") else None
        await given_up(TryLock(zk, "/p").try_acquire())
        if is_closed:
            await zk.close()
        server.release()
    is_error = refusal is zkwire.NoAuthError and not is_closed
    assert ("before this error could be raised" in caplog.text) is is_error


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_session_that_expires_behind_the_create_gives_a_lease_of_the_next_or_none(is_cancelled: bool) -> None:
    async with scene(session_timeout=1.0) as stage, no_task_stays():
        with stage.server.hold_replies("getACL", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(TryLock(stage.zk, P, acl=zkwire.OPEN_ACL).try_acquire())
            await held.until_hit()
            old = stage.zk.session_id
            stage.server.expire(old)
            if is_cancelled:
                following = await taken(TryLock(stage.other, P))
            stage.server.drop(old)
            await until_state(stage.zk, SessionState.EXPIRED)
            if is_cancelled:
                trying.cancel()
            await until(lambda: stage.zk.session_id not in (0, old))
        if is_cancelled:
            assert isinstance(await outcome(trying), asyncio.CancelledError)
            assert (await stage.zk.get(P)).stat.czxid == following.token
            await following.release()
            return
        lease = await trying
        assert lease is not None
        lease.check()
        stat = (await stage.other.get(P)).stat
        assert (stat.czxid, stat.ephemeral_owner) == (lease.token, stage.zk.session_id)
        assert stage.zk.session_id != old
        await lease.release()
