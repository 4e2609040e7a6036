"""The removal of nodes at paths that other clients use too, and the search for nodes whose create lost its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import zkwire
from tests.support.client import cancelled, eventually, states_until, turns
from tests.support.everywhere import Scene, scene
from tests.support.proxy import Proxy
from tests.support.queues import Counting
from tests.support.recipes import until, until_state
from zkwire import Client, ServerError, SessionState, ThrottledError
from zkwire.testing import RealServer, Server

TRANSIENT = [
    ThrottledError,
    zkwire.NotReadOnlyError,
    zkwire.OperationTimeoutError,
    zkwire.RequestTimeoutError,
    zkwire.SystemServerError,
]


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_removal_spares_the_next_node_at_its_path(is_carried_out: bool) -> None:
    """The answer to the delete is lost; before the next attempt, another client may have created a node there."""
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        drop = stage.server.drop_after if is_carried_out else stage.server.drop_before
        with stage.server.refuse_connections() as refusing:
            with drop("delete", session=stage.zk.session_id):
                gone = stage.zk.discard("/a", newest_zxid=old.czxid)
                await until_state(stage.zk, SessionState.SUSPENDED)
            if is_carried_out:
                _, new = await stage.other.create_and_stat("/a")
            refusing.end()
        await gone
        there = await stage.other.exists("/a")
        if is_carried_out:
            assert there is not None
            assert there.czxid == new.czxid
        else:
            assert there is None


@pytest.mark.limit(10)
async def test_a_removal_syncs_before_it_looks_again() -> None:
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        with (
            stage.server.drop_after("delete", session=stage.zk.session_id),
            stage.server.hold_replies("sync", session=stage.zk.session_id) as syncing,
        ):
            gone = stage.zk.discard("/a", newest_zxid=old.czxid)
            await syncing.until_hit()
            assert not gone.done()
        await gone


@pytest.mark.parametrize("refusal", TRANSIENT, ids=lambda error: error.__name__)
async def test_a_removal_goes_on_after_a_transient_refusal(refusal: type[ServerError]) -> None:
    async with scene() as stage:
        await stage.zk.create("/a")
        with stage.server.answering("delete", refusal, times=2) as refused:
            await stage.zk.discard("/a")
            assert refused.hits == 2
        assert await stage.other.exists("/a") is None


@pytest.mark.parametrize("refusal", TRANSIENT, ids=lambda error: error.__name__)
async def test_a_removal_looks_again_after_a_transient_refusal(refusal: type[ServerError]) -> None:
    """The node of another client stays."""
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        with stage.server.answering("exists", refusal, session=stage.zk.session_id, times=2) as refused:
            with stage.server.refuse_connections() as refusing:
                with stage.server.drop_after("delete", session=stage.zk.session_id):
                    gone = stage.zk.discard("/a", newest_zxid=old.czxid)
                    await until_state(stage.zk, SessionState.SUSPENDED)
                await stage.other.create("/a")
                refusing.end()
            await gone
            assert refused.hits == 2
        assert await stage.other.exists("/a") is not None


async def test_removals_are_sent_in_the_order_of_the_calls() -> None:
    async with scene() as stage:
        await stage.zk.create("/a")
        first = stage.zk.discard("/a")
        creating = asyncio.ensure_future(stage.zk.create("/a"))
        await asyncio.sleep(0)
        second = stage.zk.discard("/a")
        await creating
        await asyncio.gather(first, second)
        assert await stage.other.exists("/a") is None


async def test_a_repeated_removal_comes_ahead_of_the_calls_that_wait() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, max_in_flight=1) as zk:
        await zk.create("/a")
        with stage.server.drop_after("delete", session=zk.session_id):
            gone = zk.discard("/a")
            await zk.create("/a")
            await gone
        assert await stage.other.exists("/a") is not None


async def cancelled_and_cut_off(stage: Scene, path: str, *, sequential: bool) -> None:
    """Create a node, cancel the caller, and lose the answer."""
    with stage.server.drop_after("create", session=stage.zk.session_id) as lost:
        task = asyncio.create_task(stage.zk.create(path, ephemeral=True, sequential=sequential))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await lost.until_hit()
    assert task.cancelled()


@pytest.mark.parametrize(
    ("sequential", "refused"), [(True, "getChildren"), (True, "exists"), (False, "exists")], ids=str
)
async def test_a_search_goes_on_after_a_transient_refusal_pitfall_10(sequential: bool, refused: str) -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        with stage.server.answering(refused, ThrottledError, session=stage.zk.session_id, times=2) as throttled:
            await cancelled_and_cut_off(stage, "/a/n-", sequential=sequential)
            await throttled.until_hit(2)
        await until(lambda: stage.zk.state is SessionState.CONNECTED)

        async def is_empty() -> bool:
            return await stage.other.get_children("/a") == []

        await until(is_empty)


async def test_a_search_after_a_refusal_spares_nodes_made_meanwhile() -> None:
    async with scene() as stage:
        await stage.other.create("/a")
        with stage.server.answering("getChildren", ThrottledError, session=stage.zk.session_id, times=1) as throttled:
            with stage.server.drop_before("create", session=stage.zk.session_id) as lost:
                task = asyncio.create_task(stage.zk.create("/a/n-", ephemeral=True, sequential=True))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                await lost.until_hit()
            await throttled.until_hit()
            made = await stage.zk.create("/a/n-", ephemeral=True, sequential=True)
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id, times=1) as looking:
            await looking.until_hit()
        for _ in range(3):  # what the search asks after the list
            await stage.zk.ping()
        assert await stage.other.exists(made) is not None


async def test_after_a_cancelled_create_of_a_persistent_node_nothing_is_asked() -> None:
    """It stays: others may use it by then."""
    async with scene() as stage:
        session = stage.zk.session_id
        with (
            stage.server.hold_replies("create", session=session) as held,
            stage.server.delay_replies(0, "sync", session=session) as synced,
            stage.server.delay_replies(0, "exists", session=session) as looked,
        ):
            creating = asyncio.create_task(stage.zk.create("/a"))
            await held.until_hit()
            await cancelled(creating)
            held.release()
            for _ in range(3):
                await stage.zk.ping()
            assert (synced.hits, looked.hits) == (0, 0)
        assert await stage.other.exists("/a") is not None


async def test_a_removal_that_waits_when_its_session_ends_deletes_nothing_in_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its node went with the session, and another client may have created one at the same path."""
    goes_on = asyncio.Event()
    continue_ = zkwire.Removal._continue

    def note(removal: zkwire.Removal) -> None:
        continue_(removal)
        goes_on.set()

    monkeypatch.setattr(zkwire.Removal, "_continue", note)
    monkeypatch.setattr("zkwire.session.cleanup._PAUSE", 1.0)
    async with scene() as stage:
        first = stage.zk.session_id
        await stage.zk.create("/e", ephemeral=True)
        with stage.server.answering("delete", ThrottledError, session=first, times=1) as refused:
            removed = stage.zk.discard("/e")
            await refused.until_hit()
            await stage.zk.ping()
        stage.server.expire(first)
        await stage.other.create("/e")
        await until(lambda: stage.zk.session_id not in (0, first))
        await removed
        await goes_on.wait()
        await stage.zk.ping()
        assert await stage.other.exists("/e") is not None


# -- only what is surely ours is removed -----------------------------------------------------------------------------

PERSISTENT: dict[str, Callable[[Client], Coroutine[Any, Any, object]]] = {
    "persistent": lambda zk: zk.create("/a/n"),
    "sequential": lambda zk: zk.create("/a/n", sequential=True),
    "container": lambda zk: zk.create("/a/n", container=True),
    "with a TTL": lambda zk: zk.create("/a/n", ttl=60.0),
    "create_and_stat": lambda zk: zk.create_and_stat("/a/n"),
    "pipeline": lambda zk: zk.pipeline([zkwire.Create("/a/n")]),
    "transaction": lambda zk: transaction(zk, persistent="/a/n"),
}


async def transaction(zk: Client, *, ephemeral: str = "", sequential: str = "", persistent: str = "") -> None:
    async with zk.transaction() as tx:
        if persistent:
            tx.create(persistent)
        if ephemeral:
            tx.create(ephemeral, ephemeral=True)
        if sequential:
            tx.create(sequential, ephemeral=True, sequential=True)


async def cancelled_before_the_answer(
    stage: Scene, call: Coroutine[Any, Any, object], meanwhile: Callable[[], Awaitable[object]]
) -> None:
    """Send the request of `call`, hold its answer back, cancel it, do something `meanwhile`, and let the answer out."""
    with stage.server.hold_replies(session=stage.zk.session_id) as hold:
        task = asyncio.ensure_future(call)
        await hold.until_hit()
        await cancelled(task)
        await meanwhile()
    for _ in range(3):
        await stage.zk.sync("/")


@pytest.mark.parametrize("kind", PERSISTENT)
async def test_a_persistent_node_of_a_cancelled_create_stays_with_what_others_have_written_pitfall_72(
    kind: str,
) -> None:
    async with scene() as stage:
        await stage.other.create("/a")

        async def write() -> None:
            (name,) = await stage.other.get_children("/a")
            await stage.other.set(f"/a/{name}", b"of others")

        await cancelled_before_the_answer(stage, PERSISTENT[kind](stage.zk), write)
        (name,) = await stage.other.get_children("/a")
        assert (await stage.other.get(f"/a/{name}")).data == b"of others"


@pytest.mark.parametrize("is_ephemeral", [True, False])
@pytest.mark.parametrize("with_stat", [True, False])
async def test_another_node_in_place_of_that_of_a_cancelled_create_stays_pitfall_72(
    with_stat: bool, is_ephemeral: bool
) -> None:
    async with scene() as stage:

        async def replace() -> None:
            await stage.other.delete("/a")
            await stage.other.create("/a", b"of others", ephemeral=is_ephemeral)

        create = stage.zk.create_and_stat if with_stat else stage.zk.create
        await cancelled_before_the_answer(stage, create("/a", ephemeral=True), replace)
        assert (await stage.other.get("/a")).data == b"of others"


async def test_a_newer_node_of_the_same_session_in_place_of_that_of_a_cancelled_create_stays() -> None:
    """The answers to both creates come in one read."""
    async with scene() as stage:
        with stage.server.hold_replies(session=stage.zk.session_id) as hold:
            doomed = asyncio.create_task(stage.zk.create("/a", ephemeral=True))
            await hold.until_hit(1)
            await cancelled(doomed)
            await stage.other.delete("/a")
            newer = asyncio.create_task(stage.zk.create("/a", b"newer", ephemeral=True))
            await hold.until_hit(2)
        await newer
        for _ in range(3):
            await stage.zk.sync("/")
        assert (await stage.other.get("/a")).data == b"newer"


@pytest.mark.parametrize("how", ["answered", "lost"])
async def test_the_ephemeral_nodes_of_a_cancelled_transaction_are_removed(how: str) -> None:
    """The persistent one stays."""
    async with scene() as stage:
        await stage.other.create("/a")
        kept = await stage.zk.create("/a/s-", ephemeral=True, sequential=True)
        call = transaction(stage.zk, persistent="/a/stays", ephemeral="/a/e", sequential="/a/s-")
        if how == "answered":
            await cancelled_before_the_answer(stage, call, stage.other.ping)
        else:
            with stage.server.drop_after("multi", session=stage.zk.session_id) as lost:
                task = asyncio.ensure_future(call)
                await turns(2)
                await cancelled(task)
                await lost.until_hit()

        async def is_clean() -> bool:
            return sorted(await stage.other.get_children("/a")) == sorted([kept.removeprefix("/a/"), "stays"])

        await until(is_clean)


# -- searches and removals over lost connections, on a real server ---------------------------------------------------


async def only_the_child(zk: Client, path: str) -> None:
    async def is_so() -> bool:
        return await zk.get_children(path) == ["child"]

    await eventually(is_so)


async def test_a_search_goes_on_over_several_lost_connections(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await other.create(f"{path}/child", make_parents=True)
        hold = proxy.hold_replies()
        cuts = [proxy.drop_after(opcode) for opcode in ("create", "sync", "getChildren", "exists", "delete")]
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        hold.release()
        await asyncio.gather(*(cut.until_hit() for cut in cuts))
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
        hold = proxy.hold_replies()
        lost = proxy.drop_after("create", nth=1)
        mark = proxy.mark()
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        await proxy.seen("create", mark, direction="reply")
        kept.append(await other.create(f"{path}/n-", ephemeral=True, sequential=True))  # newer than the lost one
        await cancelled(task)
        hold.release()
        await lost.until_hit()
        candidates = 6  # the five in `kept` with this prefix, and the lost one
        await proxy.until(
            lambda: (
                sum(frame.opcode == "exists" and frame.direction == "reply" for frame in proxy.log[mark:]) >= candidates
            )
        )
        await proxy.seen("delete", mark, direction="reply")
        await zk.sync(path)
        assert sorted(f"{path}/{name}" for name in await zk.get_children(path)) == sorted(kept)
        assert proxy.requests(mark).count("delete") == 1


@pytest.mark.parametrize("prefix", ["n-x-", "n-1", "n--"])
async def test_a_search_spares_a_lost_node_of_another_prefix(zookeeper: RealServer, path: str, prefix: str) -> None:
    """Both answers are lost; the create that was not cancelled fails, and its caller is to look for the node."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        await zk.create(path)
        hold = proxy.hold_replies()
        mark = proxy.mark()
        doomed = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        wanted = asyncio.create_task(zk.create(f"{path}/{prefix}", ephemeral=True, sequential=True))
        await proxy.until(lambda: sum(frame.direction == "reply" for frame in proxy.log[mark:]) == 2)
        await cancelled(doomed)
        proxy.drop()
        hold.release()
        with pytest.raises(zkwire.ConnectionLostError):
            await wanted
        await proxy.seen("delete", mark, direction="reply")
        for _ in range(3):
            await zk.sync(path)
        assert await other.get_children(path) == [f"{prefix}0000000001"]


@pytest.mark.parametrize("is_cancelled_first", [True, False])
@pytest.mark.parametrize("prefix", ["n-", "n{}-"], ids=["one prefix", "each its own"])
async def test_many_lost_creates_below_one_node_share_a_search(prefix: str, is_cancelled_first: bool) -> None:
    """Of 500 tickets of one client each would list 500 nodes, behind a sync, which the leader answers."""
    count = Counting()
    async with (
        Server() as server,
        zkwire.connect(server.hosts) as other,
        zkwire.connect(server.hosts, observer=count) as zk,
    ):
        await other.create("/p")
        kept = await zk.create("/p/n-", ephemeral=True, sequential=True)
        names = [f"/p/{prefix.format(number)}" for number in range(50)]
        with server.hold_replies("create", session=zk.session_id):
            tasks = [asyncio.create_task(zk.create(name, ephemeral=True, sequential=True)) for name in names]
            tasks.append(asyncio.create_task(zk.create("/p/fixed", ephemeral=True)))
            await eventually(lambda: length(other, 52))
            count.requests.clear()
            if is_cancelled_first:
                await asyncio.gather(*map(cancelled, tasks))
            else:  # in the turn of the loop in which their requests fail
                zk._session.states.listen(lambda _: [task.cancel() for task in tasks].clear())
            server.drop(zk.session_id)
            await until_state(zk, SessionState.SUSPENDED)
        await eventually(lambda: length(other, 1))
        assert await other.get_children("/p") == [kept.removeprefix("/p/")]
        requests = [name for name in count.requests if name != "create"]
        assert [requests.count(name) for name in ("sync", "getChildren", "delete")] == [2, 1, 51]
        assert requests.count("exists") == (52 if prefix == "n-" else 51)


async def length(zk: Client, count: int) -> bool:
    return len(await zk.get_children("/p")) == count


@pytest.mark.parametrize("applied", [True, False])
async def test_a_search_spares_the_node_of_a_create_that_waited_in_the_queue(
    zookeeper: RealServer, path: str, applied: bool
) -> None:
    """The second create waits in the queue when the first is cut off; the search must be sent ahead of it."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, max_in_flight=1) as zk:
        await zk.create(path)
        mark = proxy.mark()
        hold = proxy.hold_replies()
        lost = (proxy.drop_after if applied else proxy.drop_before)("create")
        task = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        again = asyncio.create_task(zk.create(f"{path}/n-", ephemeral=True, sequential=True))
        fixed = asyncio.create_task(zk.create(f"{path}/fixed", ephemeral=True))
        await turns(2)
        assert task.cancel()
        if applied:
            await proxy.seen("create", mark, direction="reply")
        hold.release()
        await lost.until_hit()
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
        lost = proxy.drop_before("create")
        task = asyncio.create_task(zk.create(path, ephemeral=True))
        again = asyncio.create_task(zk.create(path, ephemeral=True))
        await turns(2)
        assert task.cancel()
        await lost.until_hit()
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
        hold = proxy.hold_replies()
        lost = proxy.drop_after("delete")
        task = asyncio.create_task(zk.create(path, ephemeral=True))
        await proxy.seen("create", direction="reply")
        await cancelled(task)
        hold.release()
        refusal = proxy.refuse_connections()
        await lost.until_hit()
        await other.create(path, b"of others")
        mark = proxy.mark()
        refusal.end()
        await proxy.seen(lambda frame: frame.opcode in ("exists", "delete"), mark, direction="reply")
        for _ in range(3):
            await zk.sync(path)
        assert (await other.get(path)).data == b"of others"


async def test_a_discard_is_repeated_over_lost_connections(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        cuts = [proxy.drop_before("delete", times=2), proxy.drop_after("delete", nth=3)]
        await zk.discard(path)
        assert [cut.hits for cut in cuts] == [2, 1]
        assert await zk.exists(path) is None
        assert proxy.requests().count("delete") == 4


async def test_a_search_ends_with_the_client(zookeeper: RealServer, path: str) -> None:
    """Its task does not outlive the client, and the event loop logs nothing."""
    async with Proxy(zookeeper.hosts) as proxy:
        zk = await zkwire.connect(proxy.hosts, 1.0)
        lost = proxy.drop_before("create")
        task = asyncio.create_task(zk.create(path, ephemeral=True, sequential=True))
        await turns(2)
        assert task.cancel()
        proxy.refuse_connections()
        await lost.until_hit()
        await states_until(zk.states(), SessionState.SUSPENDED)
        await zk.close()
