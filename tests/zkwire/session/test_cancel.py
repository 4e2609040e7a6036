"""Cancelling every verb at every point leaves nothing behind: no watch on the server and no node."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import zkwire
from tests.support.client import cancelled, eventually, states_until, turns, watched
from tests.support.proxy import Proxy
from zkwire import Client, SessionState
from zkwire.testing import RealServer

Verb = Callable[[Client, str], Coroutine[Any, Any, object]]

# Each verb with the opcode that it sends; `path` exists and has the child "child".
READS: dict[str, tuple[str, Verb]] = {
    "exists": ("exists", lambda zk, path: zk.exists(path)),
    "get": ("getData", lambda zk, path: zk.get(path)),
    "get_children": ("getChildren", lambda zk, path: zk.get_children(path)),
    "get_children_and_stat": ("getChildren2", lambda zk, path: zk.get_children_and_stat(path)),
    "sync": ("sync", lambda zk, path: zk.sync(path)),
}
WATCHES: dict[str, tuple[str, Verb]] = {
    "exists_and_watch": ("exists", lambda zk, path: zk.exists_and_watch(path)),
    "exists_and_watch of nothing": ("exists", lambda zk, path: zk.exists_and_watch(f"{path}/none")),
    "get_and_watch": ("getData", lambda zk, path: zk.get_and_watch(path)),
    "get_and_watch of nothing": ("getData", lambda zk, path: zk.get_and_watch(f"{path}/none")),
    "get_children_and_watch": ("getChildren", lambda zk, path: zk.get_children_and_watch(path)),
}
CREATES: dict[str, tuple[str, Verb]] = {
    "create": ("create", lambda zk, path: zk.create(f"{path}/new")),
    "create ephemeral": ("create", lambda zk, path: zk.create(f"{path}/new", ephemeral=True)),
    "create sequential": ("create", lambda zk, path: zk.create(f"{path}/n-", sequential=True)),
    "create both": ("create", lambda zk, path: zk.create(f"{path}/n-", sequential=True, ephemeral=True)),
    "create container": ("createContainer", lambda zk, path: zk.create(f"{path}/new", container=True)),
    "create_and_stat": ("create2", lambda zk, path: zk.create_and_stat(f"{path}/new")),
    "create_and_stat both": (
        "create2",
        lambda zk, path: zk.create_and_stat(f"{path}/n-", sequential=True, ephemeral=True),
    ),
    "create make_parents": ("create", lambda zk, path: zk.create(f"{path}/new", make_parents=True)),
    "create ttl": ("createTTL", lambda zk, path: zk.create(f"{path}/new", ttl=60.0)),
}
WRITES: dict[str, tuple[str, Verb]] = {
    "set": ("setData", lambda zk, path: zk.set(path, b"x")),
    "delete": ("delete", lambda zk, path: zk.delete(f"{path}/child")),
    "transaction": ("multi", lambda zk, path: in_transaction(zk, path)),
    "set_acl": ("setACL", lambda zk, path: zk.set_acl(path, zkwire.OPEN_ACL)),
}
OF_SEVERAL_REQUESTS: dict[str, tuple[str, Verb]] = {
    "ensure_path": ("create", lambda zk, path: zk.ensure_path(f"{path}/new")),
    "delete_tree": ("getChildren2", lambda zk, path: zk.delete_tree(f"{path}/child")),
}
ALL = READS | WATCHES | CREATES | WRITES | OF_SEVERAL_REQUESTS

EPHEMERAL = [verb for verb in CREATES if "ephemeral" in verb or "both" in verb]


async def in_transaction(zk: Client, path: str) -> None:
    async with zk.transaction() as tx:
        tx.set(path, b"x")


async def only_the_child(zk: Client, path: str) -> None:
    async def is_so() -> bool:
        return await zk.get_children(path) == ["child"]

    await eventually(is_so)


async def unwatched(server: RealServer, proxy: Proxy, verb: str, path: str) -> None:
    """Wait until the server has no watch on `path` and its child "none"; of child watches only the proxy can tell."""
    if "children" in verb:
        removed = await proxy.seen("removeWatches", direction="reply")
        assert (removed.path, removed.err) == (path, 0)

    async def is_so() -> bool:
        return not (await watched(server, path) or await watched(server, f"{path}/none"))

    await eventually(is_so)


@pytest.mark.parametrize("verb", ALL)
async def test_what_is_cancelled_while_it_waits_for_a_connection_is_never_sent(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        proxy.refuse()
        proxy.cut()
        await states_until(zk.states(), SessionState.SUSPENDED)
        held = asyncio.create_task(ALL[verb][1](zk, path))
        await turns(3)
        await cancelled(held)
        mark = proxy.mark()
        proxy.accept()
        await zk.ping()
        await zk.ping()
        assert proxy.requests(mark) in (["connect"], ["connect", "removeWatches"])


@pytest.mark.parametrize("verb", [verb for verb in ALL if verb != "ensure_path"])
async def test_what_is_cancelled_in_the_turn_in_which_it_is_asked_is_never_sent(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        soon = asyncio.create_task(ALL[verb][1](zk, path))
        await turns(1)
        await cancelled(soon)
        await zk.ping()
        await zk.ping()
        assert proxy.requests(mark) in ([], ["removeWatches"])


@pytest.mark.parametrize("verb", ALL)
async def test_a_task_cancelled_before_it_ran_sends_nothing(zookeeper: RealServer, path: str, verb: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        proxy.refuse()
        proxy.cut()
        await states_until(zk.states(), SessionState.SUSPENDED)
        task = asyncio.create_task(ALL[verb][1](zk, path))
        await cancelled(task)
        proxy.accept()
        await zk.ping()
        assert proxy.requests(mark) == ["connect"]


@pytest.mark.parametrize("verb", READS | WRITES)
async def test_what_is_cancelled_unanswered_leaves_the_connection_in_order(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    opcode, call = ALL[verb]
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        mark = proxy.mark()
        proxy.hold_replies()
        task = asyncio.create_task(call(zk, path))
        await proxy.seen(opcode, mark, direction="reply")
        await cancelled(task)
        proxy.release_replies()
        assert await zk.exists(path) is not None
        assert proxy.connections == 1
        assert proxy.requests(mark) == [opcode, "exists"]


@pytest.mark.parametrize("verb", WATCHES)
async def test_a_watch_cancelled_unanswered_is_removed_from_the_server(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    opcode, call = WATCHES[verb]
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        mark = proxy.mark()
        proxy.hold_replies()
        task = asyncio.create_task(call(zk, path))
        await proxy.seen(opcode, mark, direction="reply")
        if "get_and_watch of" not in verb and "children" not in verb:
            assert await watched(zookeeper, path) or await watched(zookeeper, f"{path}/none")
        await cancelled(task)
        proxy.release_replies()
        await unwatched(zookeeper, proxy, verb, path)


@pytest.mark.parametrize("verb", [verb for verb in WATCHES if "get_and_watch of" not in verb])
async def test_a_watch_whose_caller_is_cancelled_in_the_turn_of_the_answer_is_removed(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    opcode, call = WATCHES[verb]
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        task = await cancelled_in_the_turn_of_its_answer(proxy, zk, lambda: call(zk, path), opcode)
        assert task.cancelled()
        await unwatched(zookeeper, proxy, verb, path)


@pytest.mark.parametrize("verb", [verb for verb in WATCHES if "get_and_watch of" not in verb])
async def test_a_watch_whose_wait_is_cancelled_is_removed_from_the_server(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        outcome = await WATCHES[verb][1](zk, path)
        assert isinstance(outcome, tuple)
        watch = outcome[1]

        async def wait() -> None:
            await watch

        waiting = asyncio.create_task(wait())
        await turns(1)
        assert "children" in verb or await watched(zookeeper, path) or await watched(zookeeper, f"{path}/none")
        await cancelled(waiting)
        await unwatched(zookeeper, proxy, verb, path)


async def cancelled_in_the_turn_of_its_answer(
    proxy: Proxy, zk: Client, call: Callable[[], Awaitable[object]], opcode: str
) -> "asyncio.Task[object]":
    """Start `call` and cancel it when its answer has come, but before its task has gone on."""

    async def run() -> object:
        return await call()

    async def cancel_in_time() -> None:
        await zk.sync("/")  # is answered in the same read, and goes on first
        assert task.cancel()

    mark = proxy.mark()
    proxy.hold_replies()
    first = asyncio.create_task(cancel_in_time())
    task = asyncio.create_task(run())
    await proxy.seen(opcode, mark, direction="reply")
    proxy.release_replies()
    await asyncio.wait({first, task})
    await first
    return task


@pytest.mark.parametrize("verb", CREATES)
async def test_a_node_whose_create_is_cancelled_unanswered_is_removed(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    opcode, call = CREATES[verb]
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        mark = proxy.mark()
        proxy.hold_replies()
        task = asyncio.create_task(call(zk, path))
        await proxy.seen(opcode, mark, direction="reply")
        async with zkwire.connect(zookeeper.hosts) as other:
            await proxy.until(lambda: sum(frame.direction == "reply" for frame in proxy.log[mark:]) >= 1)
            await cancelled(task)
            proxy.release_replies()
            await only_the_child(other, path)


@pytest.mark.parametrize("verb", CREATES)
async def test_a_node_whose_creator_is_cancelled_in_the_turn_of_the_answer_is_removed(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    opcode, call = CREATES[verb]
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        task = await cancelled_in_the_turn_of_its_answer(proxy, zk, lambda: call(zk, path), opcode)
        assert task.cancelled()
        await only_the_child(zk, path)


@pytest.mark.parametrize("when", ["unanswered", "in the turn of the answer"])
async def test_what_a_cancelled_ensure_path_has_made_stays(zookeeper: RealServer, path: str, when: str) -> None:
    """Another task may have seen it, and be about to create something below."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        if when == "unanswered":
            mark = proxy.mark()
            proxy.hold_replies()
            task = asyncio.create_task(zk.ensure_path(f"{path}/new/one"))
            await proxy.until(lambda: proxy.requests(mark).count("create") == 3)
            await cancelled(task)
            proxy.release_replies()
        else:
            await cancelled_in_the_turn_of_its_answer(proxy, zk, lambda: zk.ensure_path(f"{path}/new/one"), "create")
        await zk.ping()
        await zk.ping()
        assert sorted(await zk.get_children(path)) == ["child", "new"]
        assert await zk.get_children(f"{path}/new") == ["one"]
        assert "delete" not in proxy.requests()


@pytest.mark.parametrize("when", ["unanswered", "in the turn of the answer"])
async def test_a_cancelled_pipeline_leaves_no_node_and_no_watch(zookeeper: RealServer, path: str, when: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        watches = zkwire.WatchSet()
        operations: list[zkwire.GetData | zkwire.GetChildren | zkwire.Create | zkwire.Sync] = [
            zkwire.GetData(f"{path}/none", into=watches),
            zkwire.Create(f"{path}/n-", ephemeral=True, sequential=True),
            zkwire.Create(f"{path}/child"),
            zkwire.GetData(path, into=watches),
            zkwire.GetChildren(f"{path}/child", into=watches),
        ]
        if when == "unanswered":
            mark = proxy.mark()
            proxy.hold_replies()
            task = asyncio.create_task(zk.pipeline(operations))
            await proxy.seen("getChildren", mark, direction="reply")
            await cancelled(task)
            proxy.release_replies()
        else:
            await cancelled_in_the_turn_of_its_answer(proxy, zk, lambda: zk.pipeline(operations), "getChildren")
        await only_the_child(zk, path)
        removed = await proxy.seen(
            lambda frame: frame.opcode == "removeWatches" and frame.path == f"{path}/child", direction="reply"
        )
        assert removed.err == 0
        assert not await watched(zookeeper, path)


async def test_a_cut_off_pipeline_tells_each_loss_and_repeats_the_reads(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        lost = proxy.cut_after("create2")
        before, created, node = await zk.pipeline([zkwire.GetData("/"), zkwire.Create(path), zkwire.GetData(path)])
        assert lost.done()
        assert isinstance(before, zkwire.Node)
        assert isinstance(created, zkwire.ConnectionLostError)
        assert isinstance(node, zkwire.Node)  # it was created: that is what maybe means
        assert proxy.requests().count("create2") == 1


async def test_an_ensure_path_cancelled_in_the_turn_of_refusals_is_silent(zookeeper: RealServer, path: str) -> None:
    """Nobody is left to look at the errors; the event loop must not complain."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.ensure_path(f"{path}/a/b")
        for _ in range(2):
            task = await cancelled_in_the_turn_of_its_answer(proxy, zk, lambda: zk.ensure_path(f"{path}/a/b"), "create")
            assert task.cancelled()
        assert await zk.exists(f"{path}/a/b") is not None


@pytest.mark.parametrize("keep_session", [False, True])
async def test_a_cancelled_create_is_removed_before_a_close(
    zookeeper: RealServer, path: str, keep_session: bool
) -> None:
    """The answer comes while the client is closing: the node must not outlive the client, nor stay in the session."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(zookeeper.hosts) as other:
        await other.create(f"{path}/child", make_parents=True)
        zk = await zkwire.connect(proxy.hosts)
        proxy.hold_replies()
        task = asyncio.create_task(zk.create(f"{path}/new", ephemeral=keep_session))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        closing = asyncio.create_task(zk.close(keep_session=keep_session))
        await turns(2)
        proxy.release_replies()
        await closing
        await other.sync(path)
        assert await other.get_children(path) == ["child"]


# Cancelled and cut off: only the session's janitor can find what was made


@pytest.mark.parametrize("verb", EPHEMERAL)
async def test_an_ephemeral_node_whose_create_is_cancelled_and_cut_off_is_removed_pitfall_10(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    opcode, call = CREATES[verb]
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(f"{path}/child", make_parents=True)
        proxy.hold_replies()
        lost = proxy.cut_after(opcode)
        task = asyncio.create_task(call(zk, path))
        await proxy.seen(opcode, direction="reply")
        assert len(await other.get_children(path)) == 2
        await cancelled(task)
        proxy.release_replies()
        await lost
        await only_the_child(other, path)
        await zk.ping()
        assert zk.state is SessionState.CONNECTED


@pytest.mark.parametrize("verb", EPHEMERAL)
async def test_one_cancelled_in_the_turn_in_which_the_cut_is_told_is_removed_too(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    """The create has failed already, but whoever would have looked for the node is gone."""
    opcode, call = CREATES[verb]
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(f"{path}/child", make_parents=True)
        proxy.hold_replies()

        async def first() -> None:
            with pytest.raises(zkwire.ConnectionLostError):
                await zk.set(path, b"")
            assert task.cancel()

        before = asyncio.create_task(first())
        task = asyncio.create_task(call(zk, path))
        await proxy.seen(opcode, direction="reply")
        proxy.cut()
        proxy.release_replies()
        await before
        await asyncio.wait({task})
        assert task.cancelled()
        await only_the_child(other, path)


async def test_the_janitor_searches_across_several_cuts(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(f"{path}/child", make_parents=True)
        proxy.hold_replies()
        cuts = [proxy.cut_after(opcode) for opcode in ("create", "sync", "getChildren", "exists", "delete")]
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        proxy.release_replies()
        await asyncio.gather(*cuts)
        await only_the_child(other, path)


async def test_the_janitor_touches_nothing_that_others_or_answered_creates_have_made(
    zookeeper: RealServer, path: str
) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(path)
        kept = [
            await zk.create(f"{path}/n-", ephemeral=True, sequential=True),
            await other.create(f"{path}/n-", ephemeral=True, sequential=True),
            await zk.create(f"{path}/n-", sequential=True),
            await zk.create(f"{path}/n-x-", ephemeral=True, sequential=True),
            await zk.create(f"{path}/n-", b"", ephemeral=True, sequential=True),
        ]
        proxy.hold_replies()
        lost = proxy.cut_after("create", 1)
        mark = proxy.mark()
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        await proxy.seen("create", mark, direction="reply")
        kept.append(await other.create(f"{path}/n-", ephemeral=True, sequential=True))  # newer than the lost one
        await cancelled(task)
        proxy.release_replies()
        await lost
        candidates = 6  # of those that remain, one has another prefix; and the lost one
        await proxy.until(
            lambda: (
                sum(frame.opcode == "exists" and frame.direction == "reply" for frame in proxy.log[mark:]) >= candidates
            )
        )
        await proxy.seen("delete", mark, direction="reply")
        await zk.sync(path)
        assert sorted(f"{path}/{name}" for name in await zk.get_children(path)) == sorted(kept)
        assert proxy.requests(mark).count("delete") == 1


async def test_the_janitor_leaves_a_lost_node_of_another_prefix_to_its_owner(zookeeper: RealServer, path: str) -> None:
    """Both answers are lost; the create that was not cancelled has a caller who was told to look for it."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await zk.create(path)
        proxy.hold_replies()
        mark = proxy.mark()
        doomed = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        wanted = asyncio.create_task(zk.create(f"{path}/n-x-", ephemeral=True, sequential=True))
        await proxy.until(lambda: sum(frame.direction == "reply" for frame in proxy.log[mark:]) == 2)
        await cancelled(doomed)
        proxy.cut()
        proxy.release_replies()
        with pytest.raises(zkwire.ConnectionLostError):
            await wanted
        await proxy.seen("delete", mark, direction="reply")
        for _ in range(3):
            await zk.sync(path)
        assert await other.get_children(path) == ["n-x-0000000001"]


@pytest.mark.parametrize("applied", [True, False])
async def test_the_janitor_does_not_take_a_repeated_create_for_the_lost_one(
    zookeeper: RealServer, path: str, applied: bool
) -> None:
    """The second create waits in line when the first is cut off; the janitor must look before it is carried out."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, max_in_flight=1) as zk:
        await zk.create(path)
        mark = proxy.mark()
        proxy.hold_replies()
        lost = (proxy.cut_after if applied else proxy.cut_before)("create")
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        again = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        fixed = asyncio.create_task(zk.create(f"{path}/fixed", ephemeral=True))
        await turns(2)
        assert task.cancel()
        if applied:
            await proxy.seen("create", mark, direction="reply")
        proxy.release_replies()
        await lost
        made = [await again, await fixed]
        await proxy.seen("getChildren", mark, direction="reply")
        if applied:
            await proxy.seen("delete", mark, direction="reply")
        await zk.sync(path)
        await zk.sync(path)
        assert sorted(f"{path}/{name}" for name in await zk.get_children(path)) == sorted(made)


async def test_the_janitor_does_not_take_a_repeated_create_of_the_same_name_for_the_lost_one(
    zookeeper: RealServer, path: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, max_in_flight=1) as zk:
        lost = proxy.cut_before("create")
        task = asyncio.create_task(zk.create(path, ephemeral=True))
        again = asyncio.create_task(zk.create(path, ephemeral=True))
        await turns(2)
        assert task.cancel()
        await lost
        assert await again == path
        await proxy.seen("exists", direction="reply")
        for _ in range(3):
            await zk.sync(path)
        assert await zk.exists(path) is not None
        assert "delete" not in proxy.requests()


async def test_a_removal_cut_off_does_not_remove_what_others_put_there_meanwhile(
    zookeeper: RealServer, path: str
) -> None:
    """The delete was carried out, its answer lost, and somebody else made a node of that name."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        proxy.hold_replies()
        lost = proxy.cut_after("delete")
        task = asyncio.create_task(zk.create(path))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        proxy.release_replies()
        proxy.refuse()
        await lost
        await other.create(path, b"of others")
        mark = proxy.mark()
        proxy.accept()
        await proxy.seen(lambda frame: frame.opcode in ("exists", "delete"), mark, direction="reply")
        for _ in range(3):
            await zk.sync(path)
        assert (await other.get(path)).data == b"of others"


async def test_a_removal_cut_off_before_it_was_carried_out_is_repeated(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        proxy.hold_replies()
        cuts = [proxy.cut_before("delete"), proxy.cut_before("delete", 2)]
        task = asyncio.create_task(zk.create(path))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        proxy.release_replies()
        await asyncio.gather(*cuts)
        stat, watch = await other.exists_and_watch(path)
        if stat is not None:
            await watch
        assert await other.exists(path) is None


async def test_a_discard_is_repeated_over_cuts(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        cuts = [proxy.cut_before("delete"), proxy.cut_before("delete", 2), proxy.cut_after("delete", 3)]
        await zk.discard(path)
        assert [cut.done() for cut in cuts] == [True] * 3
        assert await zk.exists(path) is None
        assert proxy.requests().count("delete") == 4


async def test_a_search_ends_with_the_client(zookeeper: RealServer, path: str) -> None:
    """The janitor's tasks do not outlive it, and nothing complains."""
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts)
        lost = proxy.cut_before("create")
        task = asyncio.create_task(zk.create(path, ephemeral=True, sequential=True))
        await turns(2)
        assert task.cancel()
        proxy.refuse()
        await lost
        await states_until(zk.states(), SessionState.SUSPENDED)
        await zk.close()
