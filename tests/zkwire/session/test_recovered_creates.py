"""Creates whose answers are lost with the connection and whose callers wait: `recover` and `protected`."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

import zkwire
from tests.support.client import begun, cancelled, turns
from tests.support.observer import Records
from tests.support.proxy import Proxy
from tests.support.recipes import outcome
from tests.support.virtual_time import Sent, Server, Wire, a_client, cleaned_up, in_virtual_time
from tests.zkwire.session.test_cleanup_at_each_moment import how_many, throttled
from zkwire import ConnectionLostError, Create, NoAuthError, NodeExistsError, SessionExpiredError
from zkwire.testing import RealServer

UNIQUE: Final = "11111111-2222-4333-8444-555555555555"
KINDS: Final[dict[str, dict[str, Any]]] = {
    "ephemeral": {"ephemeral": True},
    "ephemeral sequential": {"ephemeral": True, "sequential": True},
    "persistent": {"protected": True},
    "persistent sequential": {"protected": True, "sequential": True},
    "container": {"protected": True, "container": True},
    "TTL": {"protected": True, "ttl": 60.0},
    "TTL sequential": {"protected": True, "ttl": 60.0, "sequential": True},
}


async def lose(server: Server, *calls: Any, carried_out: bool = True) -> list[asyncio.Task[Any]]:
    """Start the calls, and lose the connection when the server has their requests."""
    if carried_out:
        server.is_holding = True
    else:
        server.strike = lambda wire, sent: False if sent.name.startswith("create") else None
    tasks = [asyncio.ensure_future(call) for call in calls]
    await turns()
    server.drop_held()
    server.strike = throttled()
    return tasks


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_create_that_was_carried_out_returns_its_path_and_stat_although_the_answer_is_lost(kind: str) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        for with_stat in (False, True):
            verb: Callable[..., Any] = zk.create_and_stat if with_stat else zk.create
            (task,) = await lose(server, verb("/p/n-", b"data", recover=True, **KINDS[kind]))
            result = await task
            path = result[0] if with_stat else result
            node = await zk.get(path)
            assert node.data == b"data"
            assert not with_stat or result[1] == node.stat
            await zk.delete(path)
        assert await zk.get_children("/p") == []


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_create_that_was_not_carried_out_is_sent_again_if_it_is_protected(kind: str) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        (task,) = await lose(server, zk.create("/p/n-", recover=True, **KINDS[kind]), carried_out=False)
        if "protected" not in KINDS[kind]:
            with pytest.raises(ConnectionLostError, match=r"create2 /p/n-: .*it was not carried out") as lost:
                await task
            assert not lost.value.maybe_applied
            (task,) = await lose(server, zk.create("/p/n-", **{**KINDS[kind], "protected": True}), carried_out=False)
        made = await task
        assert await zk.get_children("/p") == [made.rpartition("/")[2]]


@in_virtual_time
async def test_the_name_of_a_protected_node_begins_as_curators_do() -> None:
    async with a_client("a,b/app") as (_, zk):
        await zk.ensure_path("/")
        for path, number in (("/lock-", "0000000000"), ("/a/b", ""), ("/a/", "0000000001")):
            made = await zk.create(path, protected=True, sequential=bool(number), make_parents=True)
            parent, _, name = made.rpartition("/")
            assert parent == path.rpartition("/")[0]
            assert name[:3] == "_c_"
            assert name[39:] == f"-{path.rpartition('/')[2]}{number}"


@in_virtual_time
async def test_a_node_with_neither_an_owner_nor_a_unique_id_cannot_be_recovered() -> None:
    async with a_client() as (server, zk):
        for options in ({}, {"sequential": True}, {"container": True}, {"ttl": 1.0}):
            with pytest.raises(ValueError, match="unique id"):
                await zk.create(f"/{UNIQUE}/n", recover=True, **options)
        with pytest.raises(ValueError, match="unique id"):
            await zk.pipeline([Create("/n", recover=True)])
        with pytest.raises(ValueError, match=r"bad path 'n'"):
            await zk.create("n", protected=True)
        assert server.names() == []
        assert await zk.create(f"/n-{UNIQUE}", recover=True) == f"/n-{UNIQUE}"


@pytest.mark.parametrize("kind", ["ephemeral", "persistent"])
@in_virtual_time
async def test_the_end_of_the_session_ends_the_wait(kind: str) -> None:
    async with a_client() as (server, zk):
        (task,) = await lose(server, zk.create("/n", recover=True, **KINDS[kind]))
        server.strike = throttled("sync")
        await server.until("sync")
        server.machine.expire(zk.session_id)
        server.drop()
        server.strike = throttled()
        with pytest.raises(SessionExpiredError):
            await task
        await zk.ping()
        await cleaned_up(zk)
        assert "delete" not in server.names()
        (task,) = await lose(server, zk.create("/n", recover=True, **KINDS[kind]))
        server.strike = throttled("sync")
        await server.until("sync")
        closing = asyncio.ensure_future(zk.close())
        with pytest.raises(zkwire.SessionClosedError):
            await task
        await closing


@pytest.mark.parametrize("moment", ["answered", "in flight", "lost", "searching", "found", "expired", "deleting"])
@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_caller_that_is_cancelled_leaves_no_node(kind: str, moment: str) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.is_holding = True
        task = await begun(zk.create("/p/n-", recover=True, **KINDS[kind]))
        if moment in ("answered", "in flight", "deleting"):
            await cancelled(task)
        if moment == "deleting":
            server.strike = throttled("delete")
        elif moment != "answered":
            server.drop()
        server.release()
        await turns(1)
        if moment == "lost":
            await cancelled(task)
        elif moment == "searching":
            server.strike = throttled("sync")
            await server.until("sync")
            await cancelled(task)
            server.strike = throttled()
        elif moment == "expired":
            await cancelled(task)
            server.machine.expire(zk.session_id)
        elif moment == "deleting":
            await server.until("delete")
            server.machine.expire(zk.session_id)
            server.drop()
            server.strike = throttled()
        elif moment == "found":
            # In the step in which the future of the create is settled: the task has not continued yet.
            recovered = zk._session.requests.recovered

            def recover(call: Any) -> None:
                recovered(call)
                task.cancel()

            zk._session.requests.recovered = recover  # type: ignore[method-assign]
            assert isinstance(await outcome(task), asyncio.CancelledError)
        await cleaned_up(zk)
        is_left = "ephemeral" not in kind
        assert server.names().count("delete") == {"expired": is_left, "deleting": 1 + is_left}.get(moment, 1)
        assert await zk.get_children("/p") == []


@in_virtual_time
async def test_a_thousand_sequential_creates_that_are_lost_at_once_share_one_list() -> None:
    others = how_many("_Search", "LostCreate")  # of earlier tests, whose clients were killed
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.names()
        creates = [zk.create("/p/n-", ephemeral=True, sequential=True, protected=True) for _ in range(1000)]
        made = [await task for task in await lose(server, *creates)]
        names = server.names()
        assert names.count("sync") == names.count("getChildren") == 1
        assert names.count("exists") == names.count("create2") == 1000
        assert sorted(made) == sorted(f"/p/{name}" for name in await zk.get_children("/p"))
        await turns()
        assert (how_many("_Search", "LostCreate"), zk._session.requests.cleanup.search_tasks) == (others, set())


@pytest.mark.parametrize("refused", range(5))
@in_virtual_time
async def test_creates_of_the_same_name_get_their_nodes_in_the_order_in_which_they_were_sent(refused: int) -> None:
    """The second one has no caller any more.  If one was not carried out, it is not known which: all are in doubt."""
    async with a_client() as (server, zk):
        count = 0

        def strike(wire: Wire, sent: Sent) -> int | None:
            nonlocal count
            count += sent.name == "create2"
            return zkwire.ThrottledError.code if count == refused + 1 else None

        server.strike, server.is_holding = strike, True
        tasks = [
            asyncio.ensure_future(zk.create("/n-", b"%d" % n, ephemeral=True, sequential=True, recover=True))
            for n in range(4)
        ]
        await turns()
        tasks[1].cancel()
        server.drop()
        server.is_holding, server.strike = False, throttled()
        made: list[Any] = [await outcome(tasks[number]) for number in (0, 2, 3)]
        if refused < 4:
            assert all(isinstance(error, ConnectionLostError) and error.maybe_applied for error in made)
        else:
            assert [(await zk.get(path)).data for path in made] == [b"0", b"2", b"3"]
        await cleaned_up(zk)
        assert len(await zk.get_children("/")) == 4


@pytest.mark.parametrize(("ephemeral", "refused"), [(True, "nothing"), (True, "delete"), (False, "nothing")])
@in_virtual_time
async def test_a_node_of_which_create_is_unknown_is_removed_before_they_are_repeated_if_it_is_ephemeral(
    ephemeral: bool, refused: str
) -> None:
    async with a_client() as (server, zk):
        tasks = await lose(server, *(zk.create(f"/{UNIQUE}", ephemeral=ephemeral, recover=True) for _ in range(2)))
        tasks[0].cancel()
        server.strike = throttled(refused)
        is_removed = ephemeral and refused != "delete"
        with pytest.raises(ConnectionLostError, match="it was not carried" if is_removed else "not all carried out"):
            await tasks[1]
        assert (await zk.exists(f"/{UNIQUE}") is None) == is_removed


@in_virtual_time
async def test_the_node_of_a_former_client_of_the_session_is_not_taken_for_the_one_of_the_first_create() -> None:
    async with a_client() as (server, former):
        await former.create("/n", b"former", ephemeral=True)
        key: dict[str, Any] = {"session_id": former.session_id, "session_password": former.session_password}
        await former.close(keep_session=True)
        async with zkwire.connect("a", open_link=server.open_link, **key) as zk:
            (task,) = await lose(server, zk.create("/n", ephemeral=True, recover=True))
            with pytest.raises(ConnectionLostError, match="may have been carried out: the node may be from before"):
                await task
            assert (await zk.get("/n")).data == b"former"


@in_virtual_time
async def test_a_list_that_the_client_cannot_take_ends_the_search() -> None:
    """Each answer to the search breaks the connection, and with it all other calls."""
    async with a_client(reply_limit=20_000) as (server, zk):
        await zk.create("/p")
        await asyncio.gather(*(zk.create(f"/p/{'x' * 50}-{number}") for number in range(500)))
        (task,) = await lose(server, zk.create("/p/n-", protected=True, sequential=True))
        with pytest.raises(ConnectionLostError, match=r"cannot find out .* 20000 are accepted") as lost:
            await task
        assert lost.value.maybe_applied
        await zk.ping()
        assert server.names().count("getChildren") == 2


@in_virtual_time
async def test_of_creates_of_one_path_the_first_one_that_was_sent_gets_the_node() -> None:
    """It is in its search while the second one is lost, too: one of both has the node, and not both."""
    async with a_client() as (server, zk):
        (first,) = await lose(server, zk.create("/n", b"1", ephemeral=True, recover=True))
        server.strike = throttled("sync")
        await server.until("sync")
        (second,) = await lose(server, zk.create("/n", b"2", ephemeral=True, recover=True))
        server.strike = throttled()
        assert await first == "/n"
        with pytest.raises(ConnectionLostError, match="not carried out"):
            await second
        with pytest.raises(NodeExistsError):
            await zk.create("/n", b"2", ephemeral=True, recover=True)


@in_virtual_time
async def test_a_create_that_is_lost_while_the_list_of_another_one_is_asked_gets_its_node() -> None:
    async with a_client() as (server, zk):
        (first,) = await lose(server, zk.create("/n-", ephemeral=True, sequential=True, recover=True))
        server.strike = throttled("exists")
        await server.until("exists")
        (second,) = await lose(server, zk.create("/n-", ephemeral=True, sequential=True, recover=True))
        server.strike = throttled()
        assert [await first, await second] == ["/n-0000000000", "/n-0000000001"]


@pytest.mark.parametrize("kind", ["ephemeral", "ephemeral sequential", "persistent sequential"])
@in_virtual_time
async def test_twins_of_the_name_are_not_taken_for_the_node_pitfall_89(kind: str) -> None:
    async with a_client() as (server, zk), zkwire.connect("c", open_link=server.open_link) as other:
        await zk.create("/p")
        path = f"/p/{UNIQUE}-"
        options = {**KINDS[kind], "protected": False, "recover": True}
        older = await other.create(path, b"twin", ephemeral=True, sequential="sequential" in kind)
        wire = server.wires[0]
        server.strike = lambda at, sent: False if at is wire and sent.name == "create2" else None
        task = await begun(zk.create(path, b"own", **options))
        wire.lose(None)
        with pytest.raises(ConnectionLostError, match="not carried out"):
            await task
        if "sequential" not in kind:
            return
        server.strike = throttled()
        server.is_holding = True
        task = await begun(zk.create(path, b"own", **options))
        twin = await begun(other.create(path, b"twin", ephemeral=True, sequential=True))
        server.drop()
        server.release()
        assert (await zk.get(await task)).data == b"own"
        assert sorted(await zk.get_children("/p")) == sorted(made[3:] for made in (older, await task, await twin))


@pytest.mark.parametrize("is_unique", [False, True])
@in_virtual_time
async def test_a_node_that_may_not_be_read_is_named_and_removed_if_its_name_is_unique(is_unique: bool) -> None:
    async with a_client() as (server, zk):
        path = f"/{UNIQUE}-" if is_unique else "/n-"
        (task,) = await lose(server, zk.create(path, ephemeral=True, sequential=True, recover=True))
        server.strike = lambda wire, sent: NoAuthError.code if sent.name == "exists" else None
        with pytest.raises(NoAuthError, match=rf"exists {path}0000000000: .* it may have been carried out"):
            await task
        await turns()
        assert len(await zk.get_children("/")) == 2 - is_unique


@in_virtual_time
async def test_a_twin_that_may_not_be_read_is_left_alone_if_the_node_is_found() -> None:
    async with a_client() as (server, zk):
        twin = await zk.create(f"/{UNIQUE}-", sequential=True)
        (task,) = await lose(server, zk.create(f"/{UNIQUE}-", ephemeral=True, sequential=True, recover=True))
        server.strike = lambda wire, sent: NoAuthError.code if (sent.name, sent.path) == ("exists", twin) else None
        assert await task == f"/{UNIQUE}-0000000001"
        server.strike = throttled()
        assert await zk.exists(twin) is not None


@pytest.mark.parametrize("operation", ["sync", "getChildren"])
@in_virtual_time
async def test_a_search_that_is_refused_for_good_fails_each_caller_with_an_error_of_its_own(operation: str) -> None:
    async with a_client("a,b/app") as (server, zk):
        await zk.ensure_path("/")
        creates = [zk.create("/n-", ephemeral=True, sequential=True, recover=True) for _ in range(2)]
        tasks = await lose(server, *creates)
        server.strike = lambda wire, sent: NoAuthError.code if sent.name == operation else None
        first, second = [await outcome(task) for task in tasks]
        assert isinstance(first, NoAuthError)
        assert isinstance(second, NoAuthError)
        assert first is not second
        assert str(first) == str(second)
        assert str(first).startswith(f"{operation} /: ")
        assert "it may have been carried out" in str(first)


@pytest.mark.parametrize("carried_out", [False, True])
@in_virtual_time
async def test_in_a_pipeline_the_result_is_in_the_place_of_the_create(carried_out: bool) -> None:
    async with a_client() as (server, zk):
        operations: list[Any] = [
            zkwire.GetChildren("/"),
            Create("/n-", b"x", ephemeral=True, sequential=True, protected=True),
        ]
        (task,) = await lose(server, zk.pipeline([*operations, zkwire.GetChildren("/")]), carried_out=carried_out)
        before, created, after = await task
        assert "zookeeper" in before
        if carried_out:
            path, stat = created
            assert path[1:] in after
            assert stat == (await zk.get(path)).stat
        else:
            assert isinstance(created, ConnectionLostError)
            assert not created.maybe_applied


@in_virtual_time
async def test_the_observer_sees_one_end_of_a_recovered_create() -> None:
    seen = Records()
    async with a_client(observer=seen) as (server, zk):
        for carried_out in (True, False):
            (task,) = await lose(server, zk.create("/n", ephemeral=True, recover=True), carried_out=carried_out)
            await outcome(task)
            if carried_out:
                await zk.delete("/n")
        await turns()
        ends = [error for operation, _, error in seen.requests if operation == "create2"]
        assert ends == ["", "ConnectionLostError"]


# -- on a real server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "TTL" not in kind])
@pytest.mark.parametrize("is_carried_out", [False, True])
async def test_a_create_over_a_cut_connection_makes_one_node(
    zookeeper: RealServer, path: str, kind: str, is_carried_out: bool
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path)
        opcode = "createContainer" if kind == "container" else "create2"
        cut = proxy.drop_after(opcode) if is_carried_out else proxy.drop_before(opcode)
        options = {"protected": True, **KINDS[kind]}
        made, stat = await zk.create_and_stat(f"{path}/n-", b"data", **options)
        assert cut.hits == 1
        assert await zk.get(made) == (b"data", stat)
        assert await zk.get_children(path) == [made.rpartition("/")[2]]
