"""Entering a line: the node of a ticket, its parents, and a create whose answer is lost."""

import asyncio
import itertools
import re

import pytest

import zkwire
from recipes import Lease, Lock
from tests.support.everywhere import nothing_stays, scene
from tests.support.proxy import Frame, Proxy
from tests.support.queues import Counting
from tests.support.recipes import (
    line,
    no_task_stays,
    outcome,
    proxied,
    until_line,
)
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(50)


def is_step(frame: Frame) -> bool:
    """Return whether the frame is a request of the recipe."""
    return (
        frame.direction == "request" and frame.opcode not in ("connect", "ping", "closeSession") and frame.path != "/"
    )


# -- nodes ------------------------------------------------------------------------------------------------------------


async def test_data_and_names_are_as_other_clients_expect(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, Lock(zk, path, data=b"host-7:4711") as lease:
        data, _ = await zk.get(lease.path)
        assert data == b"host-7:4711"
        prefix, unique, number = lease.path.rpartition("/")[2].partition("_c_")[2].partition("-lock-")
        assert (len(prefix), unique, len(number)) == (36, "-lock-", 10)


async def test_the_parent_is_a_container_below_persistent_ones(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, Lock(zk, f"{path}/a/b"):
        made = [f for f in proxy.log if f.direction == "reply" and f.opcode.startswith("create") and not f.err]
        assert [frame.path for frame in made[:-1]] == [path, f"{path}/a", f"{path}/a/b"]
        assert [frame.opcode == "createContainer" for frame in made] == [False, False, True, False]


async def steps_of(proxy: Proxy, lock: Lock) -> tuple[list[tuple[str, str]], list[int], int]:
    """Acquire and release; return the requests of the acquire with their paths below the lock's parent, the errors of
    their answers, and the number of writes."""
    mark = proxy.mark()
    lease = await lock.acquire()
    parent = lock.path.rpartition("/")[0]
    steps = [frame for frame in proxy.log[mark:] if is_step(frame)]
    ticket = lease.path.rpartition("-")[0]
    requests = [
        (frame.opcode, (frame.path or "").removeprefix(parent).replace(ticket.removeprefix(parent), "ticket"))
        for frame in steps
    ]
    errors = [frame.err for frame in proxy.log[mark:] if frame.direction == "reply" and frame.err]
    segments = proxy.segments(mark)
    await lease.release()
    return requests, errors, segments


KNOWN = [("create2", "ticket-"), ("getChildren", "/lock")]
NEW = [("createContainer", "/lock"), *KNOWN]


async def test_a_new_path_whose_parent_stands_costs_one_round_trip_and_no_failing_write(
    zookeeper: RealServer, path: str
) -> None:
    async with proxied(zookeeper) as (proxy, safe, zk):
        await safe.create(path)
        assert await steps_of(proxy, Lock(zk, f"{path}/lock")) == (NEW, [], 1)
        assert await steps_of(proxy, Lock(zk, f"{path}/lock")) == (KNOWN, [], 1)


async def test_a_path_that_another_client_has_made_fails_to_be_created_once(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, safe, zk):
        await safe.ensure_path(f"{path}/lock")
        assert await steps_of(proxy, Lock(zk, f"{path}/lock")) == (NEW, [zkwire.NodeExistsError.code], 1)
        assert await steps_of(proxy, Lock(zk, f"{path}/lock")) == (KNOWN, [], 1)


@pytest.mark.parametrize("depth", [1, 3])
async def test_the_tickets_of_a_crowd_at_a_new_path_do_not_each_create_its_node(depth: int) -> None:
    count = Counting()
    async with Server() as server, zkwire.connect(server.hosts, observer=count) as zk:
        path = "/a" * depth
        async with no_task_stays():
            crowd = [asyncio.create_task(Lock(zk, path).acquire()) for _ in range(50)]
            await until_line(zk, path, 50)
            for task in crowd:
                task.cancel()
            for task in crowd:
                if not isinstance(lease := await outcome(task), asyncio.CancelledError):
                    await lease.release()  # type: ignore[attr-defined]
        assert count.requests.count("createContainer") == (1 if depth == 1 else 2)
        assert count.requests.count("create") <= depth


async def test_a_container_that_was_deleted_between_two_uses_is_made_anew(
    zookeeper: RealServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(zookeeper) as (proxy, safe, zk):
        await safe.create(path)
        lock = Lock(zk, f"{path}/lock")
        await steps_of(proxy, lock)
        await safe.delete(lock.path)
        missing = zkwire.NoNodeError.code
        assert await steps_of(proxy, lock) == (KNOWN + NEW, [missing, missing], 2)
        assert await steps_of(proxy, lock) == (KNOWN, [], 1)
        # When it was not used for long, the server has probably deleted it.
        await safe.delete(lock.path)
        monkeypatch.setattr("recipes.line.known._CONTAINER", 0.0)
        await steps_of(proxy, lock)
        await safe.delete(lock.path)
        assert await steps_of(proxy, lock) == (NEW, [], 1)


async def test_missing_parents_cost_one_round_trip_more(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        async with Lock(zk, f"{path}/lock"):
            paths = [frame.path for frame in proxy.log[mark:] if frame.direction == "request"]
            lock, ticket, _ = paths[:3]
            assert paths == [lock, ticket, lock, path, lock, ticket, lock]
            assert lock == f"{path}/lock"
            assert proxy.segments(mark) == 2


async def test_a_new_path_below_a_new_parent_costs_one_round_trip(zookeeper: RealServer, path: str) -> None:
    """A lock for each step of each order: what stands above the orders is known from the first."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        async with Lock(zk, f"{path}/order-1/lock"):
            pass
        requests, errors, segments = await steps_of(proxy, Lock(zk, f"{path}/order-2/lock"))
        assert (requests, errors, segments) == ([("create2", ""), *NEW], [], 1)


async def test_parents_that_were_deleted_are_made_anew(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, safe, zk):
        lock = Lock(zk, f"{path}/a/lock")
        await steps_of(proxy, lock)
        await safe.delete_tree(path)
        async with lock:
            assert len(await line(safe, lock.path)) == 1
        await safe.delete_tree(path)
        async with Lock(zk, f"{path}/a/other"):
            assert len(await line(safe, f"{path}/a/other")) == 1


async def test_the_acl_of_a_container_that_the_lock_has_just_made_is_not_read(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, safe, zk):
        await safe.create(path)
        assert await steps_of(proxy, Lock(zk, f"{path}/lock", acl=zkwire.OPEN_ACL)) == (NEW, [], 1)
        looked = [*KNOWN, ("getACL", "/lock")]
        assert await steps_of(proxy, Lock(zk, f"{path}/lock", acl=zkwire.OPEN_ACL)) == (looked, [], 2)


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_missing_chroot_is_created_in_spite_of_lost_connections(
    is_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall 20: each of the creates is cut in turn."""
    monkeypatch.setattr("zkwire.session.hosts._FIRST_PAUSE", 0.001)
    for nth in itertools.count(1):
        async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app/x") as zk:
            drop = stage.server.drop_before if is_before else stage.server.drop_after
            with drop("create", session=zk.session_id, nth=nth) as cut:
                lease = await Lock(zk, "/l").acquire()
                lease.check()
            assert await line(stage.other, "/app/x/l") == [lease.path.rpartition("/")[2]]
            await lease.release()
        if not cut.hits:
            assert nth > 6
            break


async def test_a_missing_permission_raises_and_leaves_nothing(zookeeper: RealServer, path: str) -> None:
    """Pitfall 9: a lock whose acquire failed can be used again."""
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path, acl=zkwire.READ_ONLY_ACL)
        lock = Lock(zk, path)
        for _ in range(2):
            with pytest.raises(zkwire.NoAuthError):
                await lock.acquire(within=5)
            with pytest.raises(zkwire.NoAuthError):
                await lock.try_acquire()
        with pytest.raises(zkwire.NoAuthError):
            await Lock(zk, f"{path}/below").acquire(within=5)
        assert await line(zk, path) == []


async def test_an_ephemeral_parent_raises(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path, ephemeral=True)
        with pytest.raises(zkwire.NoChildrenForEphemeralsError, match=path):
            await Lock(zk, path).acquire(within=5)
        with pytest.raises(zkwire.NoChildrenForEphemeralsError, match=path):
            await Lock(zk, f"{path}/a/b").acquire(within=5)


# -- a create whose answer is lost ------------------------------------------------------------------------------------


# -- refusals of the create -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "says"), [(zkwire.NodeExistsError, True), (zkwire.QuotaExceededError, False), (zkwire.NoAuthError, False)]
)
async def test_a_ticket_that_cannot_be_created_is_an_error_which_says_what_to_do(
    error: type[zkwire.ServerError], says: bool
) -> None:
    async with scene() as stage, no_task_stays():
        with stage.server.answering("create", error, path=re.compile("/recipe/_c_.*"), times=None):
            with pytest.raises(error) as raised:
                await Lock(stage.zk, stage.path).acquire()
            assert ("the sequence numbers below this parent are used up" in str(raised.value)) is says
        async with Lock(stage.zk, stage.path):
            pass
        await nothing_stays(stage)


@pytest.mark.parametrize("error", [zkwire.ThrottledError, zkwire.QuotaExceededError])
async def test_a_missing_chroot_that_is_refused_for_the_moment_is_created_later(
    error: type[zkwire.ServerError],
) -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app/x") as zk, no_task_stays():
        with stage.server.answering("create", error, path="/app", times=1) as refused:
            came = await outcome(Lock(zk, "/l").acquire())
        assert refused.hits == 1
        if error is zkwire.QuotaExceededError:
            assert isinstance(came, error)
            came = await Lock(zk, "/l").acquire()
        assert isinstance(came, Lease)
        came.check()
        await came.release()
        assert [(await stage.other.get_acl(at))[0] for at in ("/app", "/app/x/l")] == [list(zkwire.OPEN_ACL)] * 2


@pytest.mark.parametrize("loses_its_answer", [False, True])
async def test_a_lock_whose_node_allows_more_than_its_acl_is_reported(
    loses_its_answer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the answer to its create was lost."""
    acl = [*zkwire.READ_ONLY_ACL, zkwire.ACL(zkwire.Perms.CREATE | zkwire.Perms.DELETE, "world", "anyone")]
    async with scene() as stage, no_task_stays():
        await stage.other.create(stage.path)
        lock = Lock(stage.zk, stage.path, acl=acl)
        if loses_its_answer:
            with stage.server.drop_after("create", session=stage.zk.session_id):
                lease = await lock.acquire()
        else:
            lease = await lock.acquire()
        assert len([text for text in caplog.messages if "ACL that allows more" in text]) == 1
        assert (await stage.other.get_acl(lease.path))[0] == acl
        await lease.release()
        caplog.clear()
        async with Lock(stage.zk, f"{stage.path}-new", acl=acl):  # this one it has made itself
            assert caplog.messages == []
        await nothing_stays(stage)


async def test_a_ticket_whose_name_is_shared_is_not_taken_for_ours_and_is_searched_for_by_its_own_id() -> None:
    """Each create, also the one after an expired session, has a new id."""
    async with scene() as stage, no_task_stays():
        names = set()
        for _ in range(2):
            lease = await Lock(stage.zk, stage.path).acquire()
            names.add(lease.path.partition("-lock-")[0])
            await lease.release()
        with stage.server.drop_after("create", session=stage.zk.session_id) as cut:
            refusal = stage.server.refuse_connections()
            acquiring = asyncio.create_task(Lock(stage.zk, stage.path).acquire())
            await cut.until_hit()
        (old,) = await until_line(stage.other, stage.path, 1)
        stage.server.expire(stage.zk.session_id)
        refusal.end()
        lease = await acquiring
        names |= {lease.path.partition("-lock-")[0], f"{stage.path}/{old}".partition("-lock-")[0]}
        assert len(names) == 4
        assert await line(stage.other, stage.path) == [lease.path.rpartition("/")[2]]
        assert lease.ticket.node.session_id == stage.zk.session_id
        await lease.release()
        await nothing_stays(stage)
