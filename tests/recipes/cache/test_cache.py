"""The cache against servers: what it shows and reports, what that costs, and how it recovers."""

import asyncio
import gc
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes import Cache, CacheChange, ChangeStream
from recipes.cache.mirror import Mirror, differs
from tests.support.client import states_until
from tests.support.everywhere import no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, no_task_stays, outcome, until, watches
from tests.support.trees import shown, tree, until_equal
from tests.support.virtual_time import Sent, Wire, a_client, in_virtual_time
from tests.support.virtual_time import Server as VirtualServer
from zkwire import Client, Node, SessionState, Stat, WatchEventType
from zkwire.testing import RealServer, Server, ServerProcess

pytestmark = pytest.mark.limit(30)

CREATED, DELETED, CHANGED = WatchEventType.CREATED, WatchEventType.DELETED, WatchEventType.CHANGED


since_3_6 = pytest.mark.since("3.6.0", "addWatch")


@pytest.fixture(params=[pytest.param("zookeeper", marks=since_3_6), pytest.param("memory", marks=pytest.mark.memory)])
def hosts(request: pytest.FixtureRequest) -> str:
    """One of the servers."""
    server: RealServer | ServerProcess = request.getfixturevalue(request.param)
    return server.hosts


async def until_stat(cache: Cache, zk: Client) -> None:
    """Wait until the cache shows its own node as it is at the server."""

    async def is_equal() -> bool:
        return cache.get(cache.path) == await zk.get(cache.path)

    await until(is_equal)


async def take(changes: ChangeStream, count: int) -> list[CacheChange]:
    return [await anext(changes) for _ in range(count)]


def described(changes: list[CacheChange]) -> list[tuple[str, str, bytes | None, bytes | None]]:
    return [(c.type.name, c.path, c.before and c.before.data, c.after and c.after.data) for c in changes]


# -- what it shows and reports ----------------------------------------------------------------------------------------


async def test_a_tree_is_complete_when_it_is_entered_and_follows_changes(hosts: str, path: str) -> None:
    async with zkwire.connect(hosts) as zk, zkwire.connect(hosts) as other:
        await other.create(f"{path}/a/b", b"b", make_parents=True)
        await other.create(f"{path}/c", b"c")
        async with Cache(zk, path) as cache:
            assert cache.is_current
            assert shown(cache) == await tree(other, path)
            assert cache.children(path) == ["a", "c"]
            assert cache.children(f"{path}/c") == []
            assert cache.children(f"{path}/d") is None
            assert cache.get(f"{path}/d") is None
            node = cache.get(f"{path}/a/b")
            assert node is not None
            assert (node.data, node.stat.version) == (b"b", 0)
            existing = await take(cache.changes(initial=True), 4)
            assert [(c.type, c.before) for c in existing] == [(CREATED, None)] * 4
            assert {c.path: c.after for c in existing} == shown(cache)
            assert [c.path for c in existing if c.path != f"{path}/c"] == [path, f"{path}/a", f"{path}/a/b"]
            changes = cache.changes()
            await other.set(f"{path}/a/b", b"B")
            await other.create(f"{path}/a/b/x", b"x")
            assert described(await take(changes, 2)) == [
                ("CHANGED", f"{path}/a/b", b"b", b"B"),
                ("CREATED", f"{path}/a/b/x", None, b"x"),
            ]
            await until_equal(cache, other)  # including the Stats of nodes whose children have changed
            await other.delete_tree(f"{path}/a")
            assert described(await take(changes, 3)) == [
                ("DELETED", f"{path}/a/b/x", b"x", None),
                ("DELETED", f"{path}/a/b", b"B", None),
                ("DELETED", f"{path}/a", b"", None),
            ]
            await until_equal(cache, other)
        assert cache.get(f"{path}/c") is not None  # as last known
        assert not cache.is_current


async def test_a_cache_of_depth_0_has_the_node_alone(hosts: str, path: str) -> None:
    async with zkwire.connect(hosts) as zk, zkwire.connect(hosts) as other, Cache(zk, path, depth=0) as cache:
        changes = cache.changes()
        await other.create(f"{path}/a", make_parents=True)
        assert described(await take(changes, 1)) == [("CREATED", path, None, b"")]
        await until(lambda: (node := cache.get(path)) is not None and node.stat.num_children == 1)
        assert cache.children(path) is None
        with pytest.raises(ValueError, match="not in the cache"):
            cache.get("/")
        assert cache.get(f"{path}/a") is None
        await other.set(path, b"1")
        await until_stat(cache, other)
        await other.delete(f"{path}/a")
        await until_stat(cache, other)
        await other.delete(path)
        await until(lambda: cache.get(path) is None)
        assert described(await take(changes, 1)) == [("DELETED", path, b"", None)]


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({}, 3),
        ({"recursive": False}, 1),
        ({"recursive": False, "depth": 1}, 1),
        ({"recursive": False, "depth": 0}, 0),
        ({"depth": 0}, 0),
        ({"depth": 2}, 2),
    ],
)
async def test_how_many_levels_a_cache_has(given: dict[str, Any], levels: int) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/a/1/2/3", make_parents=True)
        async with Cache(zk, "/a", **given) as cache:
            assert list(cache._mirror.nodes) == ["/a", "/a/1", "/a/1/2", "/a/1/2/3"][: levels + 1]


async def test_the_root_of_the_server_can_be_cached(path: str) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, Cache(zk, "/", depth=1) as cache:
        await zk.create("/a", b"1")
        await until(lambda: cache.children("/") == ["a", "zookeeper"])
        assert shown(cache) == {path: await zk.get(path) for path in ("/", "/a", "/zookeeper")}


@pytest.mark.parametrize("data", [True, False])
async def test_a_node_that_may_not_be_read_is_not_shown_and_its_siblings_are(hosts: str, path: str, data: bool) -> None:
    async with zkwire.connect(hosts) as zk, zkwire.connect(hosts, auth=[("digest", b"me:pw")]) as owner:
        await owner.create(f"{path}/mine/too", make_parents=True)
        await owner.create(f"{path}/yours")
        await owner.set_acl(f"{path}/mine", zkwire.CREATOR_ALL_ACL)
        async with Cache(zk, path, data=data) as cache:
            assert sorted(shown(cache)) == [path, f"{path}/yours"]
            changes = cache.changes()
            await owner.set_acl(f"{path}/mine", zkwire.OPEN_ACL)  # no event reports this
            await owner.set(f"{path}/mine", b"")
            assert [(c.type, c.path) for c in await take(changes, 2)] == [
                (CREATED, f"{path}/mine"),
                (CREATED, f"{path}/mine/too"),
            ]
        await owner.set_acl(path, zkwire.CREATOR_ALL_ACL)
        with pytest.raises(zkwire.NoAuthError) as refused:
            async with Cache(zk, path, data=data):
                pass
        assert refused.value.path == path


async def test_a_refusal_of_a_read_is_raised_at_once() -> None:
    async with scene() as stage:
        with stage.server.answering("multiRead", zkwire.QuotaExceededError, session=stage.zk.session_id) as refused:
            with pytest.raises(zkwire.QuotaExceededError):
                async with Cache(stage.zk, "/"):
                    pass
            assert refused.hits == 1


# -- what is left out -------------------------------------------------------------------------------------------------


async def test_what_is_left_out_is_neither_read_nor_kept(hosts: str, path: str) -> None:
    """Nor is anything below it asked for, nor any node asked about that is known."""
    async with Proxy(hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(hosts) as other:
        await other.create(f"{path}/tmp/deep/deeper", make_parents=True)
        await other.create(f"{path}/a/tmp", make_parents=True)
        asked = []

        def where(each: str) -> bool:
            asked.append(each)
            return not each.endswith("/tmp")

        since = proxy.mark()
        async with Cache(zk, path, where=where) as cache:
            assert proxy.requests(since) == ["addWatch"] + 2 * ["multiRead"]
            assert sorted(asked) == [f"{path}/a", f"{path}/a/tmp", f"{path}/tmp"]  # each once, and none below
            assert list(shown(cache)) == list(cache._mirror.nodes) == [path, f"{path}/a"]
            for each in (f"{path}/tmp", f"{path}/tmp/deep"):
                assert cache.get(each) is None
                assert cache.children(each) is None
            changes = cache.changes()
            since = proxy.mark()
            await other.set(f"{path}/tmp", b"1")
            await other.create(f"{path}/tmp/deep/b")
            await other.delete_tree(f"{path}/tmp/deep")
            await other.set(f"{path}/a", b"1")
            assert described(await take(changes, 1)) == [("CHANGED", f"{path}/a", b"", b"1")]
            assert proxy.requests(since) == ["multiRead"]
            proxy.drop()
            await other.create(f"{path}/a/b")
            await other.create(f"{path}/b")
            await until(lambda: sorted(shown(cache)) == [path, f"{path}/a", f"{path}/a/b", f"{path}/b"])
            assert not [each for each in asked if "tmp/" in each]
            assert asked.count(f"{path}/a") == 1


async def test_without_data_only_stats_are_read_and_a_change_of_data_is_reported_by_them(hosts: str, path: str) -> None:
    async with Proxy(hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(hosts) as other:
        await other.create(f"{path}/a/b", b"123", make_parents=True)
        since = proxy.mark()
        async with Cache(zk, path, data=False) as cache:
            assert proxy.requests(since) == ["addWatch"] + 3 * ["getChildren2"]
            assert cache.get(f"{path}/a/b") == Node(b"", (await other.get(f"{path}/a/b")).stat)
            changes = cache.changes()
            since = proxy.mark()
            await other.set(f"{path}/a/b", b"12")
            assert described(await take(changes, 1)) == [("CHANGED", f"{path}/a/b", b"", b"")]
            assert proxy.requests(since) == ["exists"]
            proxy.drop()
            await other.delete(f"{path}/a/b")
            await other.create(f"{path}/a/c", b"1")
            await until_equal(cache, other, data=False)
        since = proxy.mark()
        async with Cache(zk, path, depth=1, data=False) as cache:
            assert proxy.requests(since)[-3:] == ["addWatch", "getChildren2", "exists"]
            assert list(shown(cache)) == [path, f"{path}/a"]


async def test_many_nodes_are_read_without_data_at_a_time() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await asyncio.gather(*(zk.create(f"/a/{number}", make_parents=True) for number in range(100)))
        async with server.hold_replies("exists") as held:
            entering = asyncio.create_task(Cache(zk, "/a", depth=1, data=False).__aenter__())
            await until(lambda: held.hits == 100, limit=3)  # before the client connects again
        await (await entering).__aexit__(None, None, None)
        async with Cache(zk, "/b", depth=0, data=False) as cache:
            assert cache.get("/b") is None
        await zk.get_children_and_stat("/")
        await no_watch_stays(server.hosts)


class WrongError(Exception):
    def __init__(self, path: str, why: str) -> None:  # so it can be neither copied nor pickled
        super().__init__(f"{path}: {why}")


@pytest.mark.parametrize("error", [WrongError("/r/b", "wrong"), asyncio.CancelledError(), zkwire.NoAuthError(-102)])
async def test_an_error_of_where_is_raised_by_entering_by_changes_and_by_the_block(error: BaseException) -> None:
    """It is the cause if it would be taken for a cancellation or a server's; the block's own error comes first."""

    def where(path: str) -> bool:
        if path != "/r/a":
            raise error
        return True

    raised = WrongError if isinstance(error, WrongError) else RuntimeError
    async with Server() as server, zkwire.connect(server.hosts) as zk, no_task_stays():
        await zk.create("/r/a", make_parents=True)
        for last in (raised, KeyError):
            with body_raises(last):
                async with Cache(zk, "/r", where=where) as cache:
                    changes = cache.changes()
                    await zk.create("/r/b")
                    with pytest.raises(raised) as first:
                        await anext(changes)
                    assert error in (first.value, first.value.__cause__)
                    assert not cache.is_current
                    assert list(shown(cache)) == ["/r", "/r/a"]
                    if last is KeyError:
                        raise KeyError
                    await zk.delete("/r/b")
        with pytest.raises(raised):
            await Cache(zk, "/r", where=where).__aenter__()
        await no_watch_stays(server.hosts)


# -- use and misuse ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"path": "a"}, ValueError),
        ({"path": b"/a"}, TypeError),
        ({"depth": -1}, ValueError),
        ({"depth": True}, TypeError),
        ({"depth": 1.0}, TypeError),
        ({"depth": 2, "recursive": False}, ValueError),
        ({"within": -1}, ValueError),
        ({"within": True}, TypeError),
        ({"where": "/a/b"}, TypeError),
        ({"where": take}, TypeError),
        ({"where": type("Asking", (), {"__call__": take})()}, TypeError),
        ({"data": b""}, TypeError),
    ],
)
async def test_bad_arguments_are_refused_at_once(given: dict[str, Any], error: type[Exception]) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with pytest.raises(error):
            Cache(zk, **{"path": "/a"} | given)


async def test_a_cache_must_be_entered_and_refuses_paths_outside() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        cache = Cache(zk, "/a")
        late = Cache(zk, "/a", within=0.01)
        with server.hold_replies("multiRead"), pytest.raises(TimeoutError):
            await late.__aenter__()
        for use in (late.changes, cache.changes, lambda: cache.get("/a"), lambda: cache.children("/a")):
            with pytest.raises(RuntimeError, match="enter the cache of /a first"):
                use()
        assert not cache.is_current
        async with cache:
            for path in ("/", "/ab", "/b/a"):
                with pytest.raises(ValueError, match="not in the cache of /a"):
                    cache.get(path)
                with pytest.raises(ValueError, match="not in the cache of /a"):
                    cache.children(path)
            with pytest.raises(ValueError, match="must not end"):
                cache.get("/a/")
            with pytest.raises(RuntimeError, match="entered already"):
                await cache.__aenter__()
            changes = cache.changes()
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task waits"):
                await anext(changes)
            other = cache.changes()
            other.close()
            assert [change async for change in other] == []
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert [change async for change in cache.changes()] == []
        with pytest.raises(RuntimeError, match="entered already"):
            await cache.__aenter__()
        await no_watch_stays(server.hosts)


async def test_a_loop_that_is_left_keeps_nothing_and_a_cancelled_wait_loses_nothing() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, Cache(zk, "/a") as cache:
        await zk.create("/a")
        async for change in cache.changes(initial=True):
            assert change.path == "/a"
            break
        gc.collect()
        assert not cache._streams
        changes = cache.changes()
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        waiting.cancel()
        assert isinstance(await outcome(waiting), asyncio.CancelledError)
        await zk.set("/a", b"1")
        assert (await anext(changes)).type is CHANGED
        closed = cache.changes()
        for data in (b"2", b"3"):
            await zk.set("/a", data)
            await anext(changes)
            closed.close()  # which drops what is pending; nothing is added later
        with pytest.raises(StopAsyncIteration):
            await anext(closed)


@pytest.mark.limit(20)
async def test_entering_within_0_seconds_reads_once_and_does_not_wait_for_another_connection() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, no_task_stays():
        async with Cache(zk, "/a", within=0) as cache:
            assert cache.get("/a") is None
        async with server.hold_replies("multiRead") as held:
            entering = asyncio.create_task(Cache(zk, "/a", within=0).__aenter__())
            await held.until_hit()
            async with server.stopped():
                with pytest.raises(TimeoutError, match="the cache of /a was not complete within 0 s"):
                    await entering
        await no_watch_stays(server.hosts)


@in_virtual_time
async def test_a_cache_whose_last_answer_comes_just_before_a_break_is_entered_when_it_is_current() -> None:
    for turns in range(2):
        async with a_client() as (server, zk):

            def drop(left: int, server: VirtualServer = server) -> None:
                server.loop.call_soon(*((drop, left - 1) if left else (server.drop,)))

            def strike(wire: Wire, sent: Sent, turns: int = turns, server: VirtualServer = server) -> None:
                if sent.name == "multiRead":
                    server.strike = lambda wire, sent: None
                    drop(turns)

            server.strike = strike
            async with Cache(zk, "/a") as cache:
                assert cache.is_current


async def test_a_server_before_3_6_raises_with_the_version_needed() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, no_task_stays():
        refusing = server.answering("addWatch", zkwire.UnimplementedError)
        with refusing, pytest.raises(zkwire.UnimplementedError, match=r"3\.6\.0 or newer"):
            await Cache(zk, "/a").__aenter__()


# -- what it costs ----------------------------------------------------------------------------------------------------


async def test_the_requests_of_entering_and_of_each_change(hosts: str, path: str) -> None:
    async with Proxy(hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(hosts) as other:
        await other.create(f"{path}/a/b", make_parents=True)
        await other.create(f"{path}/c")
        since = proxy.mark()
        async with Cache(zk, path) as cache:
            assert proxy.requests(since) == ["addWatch"] + 3 * ["multiRead"]  # one for each level of the tree
            changes = cache.changes()
            for change in (other.set(f"{path}/c", b"1"), other.create(f"{path}/d"), other.delete(f"{path}/d")):
                since = proxy.mark()
                await change
                await anext(changes)
                await until_equal(cache, other)
                assert proxy.requests(since) == ["multiRead"]
            since = proxy.mark()
            async with other.transaction() as tx:
                for number in range(50):
                    tx.create(f"{path}/a/{number}")
            await take(changes, 50)
            await until_equal(cache, other)
            assert len(proxy.requests(since)) <= 3  # a burst is read in one request, or in very few as it arrives


async def test_nodes_larger_than_a_server_accepts_by_default_are_read_in_smaller_parts(path: str) -> None:
    """With the default limit of answers, the nodes are larger than a megabyte."""
    async with Server() as server, zkwire.connect(server.hosts, reply_limit=700_000) as zk:
        await zk.create(path)
        for number in range(16):
            await zk.create(f"{path}/{number}", bytes(50_000))
        cache = Cache(zk, path)
        cache._nodes_per_request = 16
        async with cache:
            assert len(shown(cache)) == 17
            assert cache._nodes_per_request == 8


async def test_a_node_above_the_reply_limit_ends_the_cache_with_an_error_that_names_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkwire.session.hosts._FIRST_PAUSE", 0.001)  # each attempt breaks the connection
    async with (
        Server() as server,
        zkwire.connect(server.hosts) as other,
        zkwire.connect(f"{server.hosts}/app", reply_limit=20_000) as zk,
    ):
        await other.create(f"/app{path}/large", bytes(30_000), make_parents=True)
        await other.create(f"/app{path}/small", b"1")
        with pytest.raises(zkwire.ProtocolError, match=rf"multiRead {path}/large: .*`reply_limit`") as raised:
            async with Cache(zk, path):
                pytest.fail("the cache cannot be filled")
        assert raised.value.path == f"{path}/large"


# -- lost connections and sessions ------------------------------------------------------------------------------------


async def test_changes_missed_without_a_connection_are_reported(hosts: str, path: str) -> None:
    """Pitfalls 37 and 39: meanwhile the last known state stays readable, and `is_current` is false."""
    async with Proxy(hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(hosts) as other:
        await other.create(f"{path}/a/b", b"1", make_parents=True)
        await other.create(f"{path}/c", b"1")
        async with Cache(zk, path) as cache:
            changes = cache.changes()
            before = shown(cache)
            refusal = proxy.refuse_connections()
            proxy.drop()
            await until(lambda: not cache.is_current)
            assert shown(cache) == before
            await other.delete_tree(f"{path}/a")
            await other.set(f"{path}/c", b"2")
            await other.create(f"{path}/d/e", b"", make_parents=True)
            assert shown(cache) == before
            refusal.end()
            assert sorted(described(await take(changes, 5))) == [
                ("CHANGED", f"{path}/c", b"1", b"2"),
                ("CREATED", f"{path}/d", None, b""),
                ("CREATED", f"{path}/d/e", None, b""),
                ("DELETED", f"{path}/a", b"", None),
                ("DELETED", f"{path}/a/b", b"1", None),
            ]
            await until_equal(cache, other)


async def test_after_a_reconnect_it_is_not_current_before_everything_is_read_again() -> None:
    """The state of the session is CONNECTED some turns of the event loop before the cache can know what it missed."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        await other.create("/a", b"1")
        async with Cache(zk, "/a") as cache:
            with server.refuse_connections():
                server.drop(zk.session_id)
                await until(lambda: not cache.is_current)
                await other.set("/a", b"2")
            while not cache.is_current:
                await asyncio.sleep(0)
            assert shown(cache) == await tree(other, "/a")
            await other.set_acl("/a", [zkwire.digest_acl("bob", "pw")])
            server.drop(zk.session_id)
            await until(lambda: not shown(cache))  # what may not be read any more is left out


async def test_it_is_never_current_without_a_connection() -> None:
    """Also in a task that hears of the loss of the connection before the cache does."""
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/a", b"1")
        cache = Cache(zk, "/a")

        async def follow() -> bool:
            await states_until(zk.states(), SessionState.SUSPENDED)
            return cache.is_current

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        async with cache:
            server.drop(zk.session_id)
            assert not await following


async def test_it_goes_on_in_the_next_session() -> None:
    """Pitfall 35: the server keeps as many watches then as at first, and not one more for each session."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        await other.create("/a", b"1")
        await zk.create("/a/e", ephemeral=True)
        async with Cache(zk, "/a") as cache:
            changes = cache.changes()
            at_first = await watches(server)
            for number in range(2):
                session = zk.session_id
                server.expire(session)
                await other.set("/a", b"after %d" % number)
                await until_equal(cache, other)
                assert zk.session_id != session
            assert await watches(server) == at_first
            last = {change.path: change.after and change.after.data for change in await take(changes, 2)}
            assert last == {"/a": b"after 1", "/a/e": None}


async def test_it_follows_an_ensemble_that_has_lost_its_data() -> None:
    async with Server(tick_time=0.2) as server, zkwire.connect(server.hosts, session_timeout=0.8) as zk:
        for number in range(20):
            await zk.set("/", b"%d" % number)  # so that the zxids are far beyond those after the loss
        await zk.create("/config", b"old")
        async with Cache(zk, "/config") as cache:
            changes = cache.changes()
            refusing = server.refuse_connections()
            await server.restart(lose_data=True)
            refusing.end()
            async with zkwire.connect(server.hosts) as other:
                await other.create("/config", b"new")
                await until_equal(cache, other)
                await other.set("/config", b"newer")
                await until_equal(cache, other)
            seen = [await anext(changes)]
            assert (seen[0].before and seen[0].before.data, seen[0].after and seen[0].after.data) == (b"old", b"newer")


async def test_the_end_of_the_session_is_reported_behind_the_last_change() -> None:
    async with Server() as server, zkwire.connect(server.hosts, renew=False) as zk:
        await zk.create("/a", b"1")
        async with Cache(zk, "/a") as cache:
            changes = cache.changes()
            await zk.set("/a", b"2")
            await until(lambda: (node := cache.get("/a")) is not None and node.data == b"2")
            server.expire(zk.session_id)
            assert described([await anext(changes)]) == [("CHANGED", "/a", b"1", b"2")]
            for stream in (changes, cache.changes()):
                with pytest.raises(zkwire.SessionExpiredError):
                    await anext(stream)
            assert not cache.is_current
            assert cache.children("/a") == []


# -- the stream of changes --------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32))
async def test_a_reader_of_any_speed_gets_the_last_state_in_a_valid_order(seed: int) -> None:
    """The pending changes are bounded by the nodes that the reader has seen plus those that exist."""
    rng = random.Random(seed)
    mirror = Mirror("/r")
    cache: Any = CacheOf(mirror)
    stream = ChangeStream(cache, ())
    seen: dict[str, Node] = {}
    paths = ["/r", "/r/a", "/r/b", "/r/a/a", "/r/a/b"]
    for zxid in range(1, 200):
        path = rng.choice(paths)
        if rng.randrange(3) == 0:
            stream._deliver(mirror._remove(path))
        elif path == "/r" or path.rpartition("/")[0] in mirror.nodes:
            there = mirror.nodes.get(path)
            czxid = there.stat.czxid if there is not None else zxid
            node = Node(b"", Stat(czxid, zxid, 0, 0, 0, 0, 0, 0, 0, 0, zxid))
            again = seen.get(path, node) if there is None else node  # as it was, before it could not be read
            stream._deliver(mirror._put(path, again))
        assert len(stream._pending) <= len(set(seen) | set(mirror.nodes))
        while stream._pending and (rng.randrange(4) == 0 or zxid == 199):
            change = await anext(stream)
            assert differs(change.before, change.after)
            assert seen.get(change.path) == change.before
            if change.after is None:
                del seen[change.path]
                assert not [other for other in seen if other.startswith(f"{change.path}/")]
            else:
                assert change.path == "/r" or change.path.rpartition("/")[0] in seen
                seen[change.path] = change.after
    assert seen == mirror.nodes


async def test_a_reader_of_many_changes_lets_other_tasks_run() -> None:
    cache: Any = CacheOf(Mirror("/r"))
    stream, other = ChangeStream(cache, ["/r", "/r/a"]), asyncio.create_task(asyncio.sleep(0))
    assert [change.path for change in await take(stream, 2)] == ["/r", "/r/a"]
    assert other.done()


class CacheOf:
    """The part of a cache that a ChangeStream uses."""

    def __init__(self, mirror: Mirror) -> None:
        self.path = mirror.root
        self.get = mirror.nodes.get


async def test_a_watch_that_is_refused_in_a_new_session_ends_the_cache() -> None:
    """What is in it is kept, but it is not current any more."""
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/data", b"1")
        async with Cache(zk, "/data") as cache:
            changes = cache.changes()
            with server.answering("addWatch", zkwire.NoAuthError):
                server.expire(zk.session_id)
                with pytest.raises(zkwire.NoAuthError):
                    await anext(changes)
            for _ in range(2):
                with pytest.raises(zkwire.NoAuthError):
                    await anext(cache.changes())
            assert not cache.is_current
            assert cache.get("/data") == await zk.get("/data")
