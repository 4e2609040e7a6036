"""Cancelling a verb at any moment leaves no node and no watch; lost connections make that hard."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from tests.support.client import cancelled, eventually, states_until, turns, watched
from tests.support.everywhere import Scene, cancel_at_every_moment
from tests.support.proxy import Proxy
from tests.zkwire.session.verbs import ALL, CREATES, READS, WATCHES, WRITES, Verb
from zkwire import Client, ConnectionLostError, NoNodeError, SessionState
from zkwire.testing import RealServer

EPHEMERAL = [verb for verb in CREATES if "ephemeral" in verb or "both" in verb]


async def only_the_child(zk: Client, path: str) -> None:
    async def is_so() -> bool:
        return await zk.get_children(path) == ["child"]

    await eventually(is_so)


async def unwatched(server: RealServer, proxy: Proxy, verb: str, path: str) -> None:
    """Wait until the server has no watch on `path` and its child "none"; child watches are seen by the proxy only."""
    if "children" in verb:
        removed = await proxy.seen("removeWatches", direction="reply")
        assert (removed.path, removed.err) == (path, 0)

    async def is_so() -> bool:
        return not (await watched(server, path) or await watched(server, f"{path}/none"))

    await eventually(is_so)


@pytest.mark.parametrize("verb", ALL)
async def test_a_request_cancelled_while_it_waits_for_a_connection_is_never_sent(
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
async def test_a_request_cancelled_in_the_turn_of_its_submission_is_never_sent(
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


@pytest.mark.parametrize("verb", READS | WRITES)
async def test_a_request_cancelled_unanswered_leaves_the_connection_in_order(
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


@pytest.mark.parametrize("verb", WATCHES)
async def test_a_watch_cancelled_at_any_moment_is_removed_from_the_server(verb: str) -> None:
    async def act(stage: Scene) -> None:
        with contextlib.suppress(NoNodeError):
            outcome = await WATCHES[verb][1](stage.zk, stage.path)
            assert isinstance(outcome, tuple)
            await outcome[1]

    await cancel_at_every_moment(act, prepare=with_child, stays=["child"], most=20)


@pytest.mark.parametrize("verb", CREATES)
async def test_the_node_of_a_create_cancelled_at_any_moment_is_removed(verb: str) -> None:
    await removed_at_every_moment(CREATES[verb][1])


async def test_a_pipeline_cancelled_at_any_moment_leaves_no_node_and_no_watch() -> None:
    async def pipeline(zk: Client, path: str) -> None:
        watches = zkwire.WatchSet()
        await zk.pipeline(
            [
                zkwire.GetData(f"{path}/none", into=watches),
                zkwire.Create(f"{path}/n-", ephemeral=True, sequential=True),
                zkwire.Create(f"{path}/child"),
                zkwire.GetData(path, into=watches),
                zkwire.GetChildren(f"{path}/child", into=watches),
            ]
        )
        watches.cancel()

    await removed_at_every_moment(pipeline)


@pytest.mark.parametrize("verb", EPHEMERAL)
async def test_the_ephemeral_node_of_a_create_cancelled_at_any_moment_and_cut_off_is_removed_pitfall_10(
    verb: str,
) -> None:
    """Its answer is lost: a search finds the node, also if the caller is cancelled in the turn of the loss."""
    await removed_at_every_moment(CREATES[verb][1], cut=True)


async def removed_at_every_moment(call: Verb, *, cut: bool = False) -> None:
    """Cancel `call`, which creates a node, at every moment; only the node of a call that was not cancelled may stay.

    Arguments: `cut`, whether the create is carried out and the connection then cut, ahead of the answer.
    """
    is_over = False
    cuts = []

    async def prepare(stage: Scene) -> None:
        await with_child(stage)
        if cut:
            cuts.append(stage.server.drop_after("create", session=stage.zk.session_id))

    async def act(stage: Scene) -> None:
        nonlocal is_over
        with contextlib.suppress(ConnectionLostError):
            await call(stage.zk, stage.path)
        is_over = True

    async def afterwards(stage: Scene) -> None:
        for each in cuts:
            each.end()
        if is_over:
            for name in set(await stage.other.get_children(stage.path)) - {"child"}:
                await stage.other.delete(f"{stage.path}/{name}")

    await cancel_at_every_moment(act, prepare=prepare, afterwards=afterwards, stays=["child"])
    assert is_over
    assert not cuts or cuts[-1].hits == 1


async def with_child(stage: Scene) -> None:
    await stage.other.create(f"{stage.path}/child", make_parents=True)


async def cancelled_in_the_turn_of_its_answer(
    proxy: Proxy, zk: Client, call: Callable[[], Awaitable[object]], opcode: str
) -> "asyncio.Task[object]":
    """Start `call` and cancel it when its answer has arrived, but before its task continues."""

    async def run() -> object:
        return await call()

    async def cancel_in_time() -> None:
        await zk.sync("/")  # answered in the same read, and this task continues first
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


@pytest.mark.parametrize("when", ["unanswered", "in the turn of the answer"])
async def test_nodes_that_a_cancelled_ensure_path_has_made_stay(zookeeper: RealServer, path: str, when: str) -> None:
    """Another client may have seen them, and be about to create nodes below."""
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


async def test_a_cut_off_pipeline_returns_each_loss_and_repeats_the_reads(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        lost = proxy.cut_after("create2")
        before, created, node = await zk.pipeline([zkwire.GetData("/"), zkwire.Create(path), zkwire.GetData(path)])
        assert lost.done()
        assert isinstance(before, zkwire.Node)
        assert isinstance(created, zkwire.ConnectionLostError)
        assert isinstance(node, zkwire.Node)  # the create was carried out: that is what `maybe_applied` means
        assert proxy.requests().count("create2") == 1


async def test_an_ensure_path_cancelled_in_the_turn_of_refusals_is_silent(zookeeper: RealServer, path: str) -> None:
    """No task retrieves the errors; the event loop must not log them."""
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
    """The answer comes while the client is closing: the node must not outlive it, nor stay in the kept session."""
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


# -- cancelled and cut off: only a search can find the node ---------------------------------------------------------


async def test_a_search_goes_on_over_several_lost_connections(zookeeper: RealServer, path: str) -> None:
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


async def test_a_search_spares_the_nodes_of_other_clients_and_of_answered_creates(
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
        candidates = 6  # five of the six in `kept`, one of which has another prefix, and the lost one
        await proxy.until(
            lambda: (
                sum(frame.opcode == "exists" and frame.direction == "reply" for frame in proxy.log[mark:]) >= candidates
            )
        )
        await proxy.seen("delete", mark, direction="reply")
        await zk.sync(path)
        assert sorted(f"{path}/{name}" for name in await zk.get_children(path)) == sorted(kept)
        assert proxy.requests(mark).count("delete") == 1


async def test_a_search_spares_a_lost_node_of_another_prefix(zookeeper: RealServer, path: str) -> None:
    """Both answers are lost; the create that was not cancelled fails, and its caller is to look for the node."""
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
async def test_a_search_spares_the_node_of_a_create_that_waited_in_the_queue(
    zookeeper: RealServer, path: str, applied: bool
) -> None:
    """The second create waits in the queue when the first is cut off; the search must be sent ahead of it."""
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


async def test_a_search_spares_the_node_of_the_same_name_of_a_create_that_waited(
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


async def test_a_removal_cut_off_spares_the_next_node_at_its_path(zookeeper: RealServer, path: str) -> None:
    """The delete was carried out, its answer lost, and another client has created a node of that name."""
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


async def test_a_discard_is_repeated_over_lost_connections(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        cuts = [proxy.cut_before("delete"), proxy.cut_before("delete", 2), proxy.cut_after("delete", 3)]
        await zk.discard(path)
        assert [cut.done() for cut in cuts] == [True] * 3
        assert await zk.exists(path) is None
        assert proxy.requests().count("delete") == 4


async def test_a_search_ends_with_the_client(zookeeper: RealServer, path: str) -> None:
    """Its task does not outlive the client, and the event loop logs nothing."""
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
