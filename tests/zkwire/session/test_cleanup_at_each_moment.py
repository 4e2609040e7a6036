"""The removals and searches of the clean-up in virtual time: what they send, when callers wait, and when they end."""

import asyncio
import gc
from typing import Any

import pytest

import zkwire
from tests.simulation.loop import Machine
from tests.support.client import cancelled, turns
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time, tasks
from zkwire import Client, SessionState, ThrottledError


class Events(zkwire.Observer):
    """Takes note of the events of a client."""

    def __init__(self) -> None:
        self.arrived: list[str] = []

    def event_arrived(self, type: zkwire.WatchEventType, path: str, zxid: int | None) -> None:
        self.arrived.append(path)


def now() -> float:
    return asyncio.get_running_loop().time()


def throttled(*operations: str, path: str | None = None) -> Any:
    """Return a `strike` that refuses these operations for the moment, on `path` or on every node."""

    def strike(wire: Wire, sent: Sent) -> int | None:
        return ThrottledError.code if sent.name in operations and path in (None, sent.path) else None

    return strike


async def lose_a_create(server: Server, zk: Client, path: str, *, sequential: bool, carried_out: bool = True) -> None:
    """Send the create of an ephemeral node, cancel its caller, and lose the answer with the connection."""
    if carried_out:
        server.is_holding = True
    else:
        server.strike = lambda wire, sent: False if sent.name == "create" else None
    creating = asyncio.ensure_future(zk.create(path, ephemeral=True, sequential=sequential))
    await turns()
    await cancelled(creating)
    server.drop()
    server.is_holding = False
    server.strike = lambda wire, sent: None
    await turns(1)


def how_many(*classes: str) -> int:
    """Return how many objects of these classes are kept."""
    gc.collect()
    return sum(type(each).__name__ in classes for each in gc.get_objects())


@in_virtual_time
@pytest.mark.parametrize("kind", ["create", "create_and_stat", "transaction"])
async def test_after_a_cancelled_create_that_was_refused_nothing_is_asked(kind: str) -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        server.names()
        server.is_holding = True
        if kind == "transaction":
            tx = zk.transaction()
            tx.create("/b", ephemeral=True)
            tx.create("/a", ephemeral=True)
            creating: asyncio.Future[Any] = asyncio.ensure_future(tx.commit())
        else:
            creating = asyncio.ensure_future(getattr(zk, kind)("/a", ephemeral=True))
        await turns()
        assert creating.cancel()
        await asyncio.wait({creating})
        server.release()
        for _ in range(3):
            await zk.ping()
        assert len(server.names("ping")) == 1


@in_virtual_time
@pytest.mark.parametrize("is_answered", [True, False])
async def test_after_a_cancelled_create_of_a_node_with_a_time_to_live_nothing_is_asked(is_answered: bool) -> None:
    """It is no ephemeral node, although its flags look like one's."""
    async with a_client() as (server, zk):
        server.is_holding = True
        creating = asyncio.ensure_future(zk.create("/a", ttl=60.0))
        await turns()
        await cancelled(creating)
        if not is_answered:
            server.drop()
        server.is_holding = False
        server.release()
        for _ in range(3):
            await zk.ping()
        assert server.names("ping") == ["createTTL"] + ["connect"] * (not is_answered)


# -- removals ---------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_callers_wait_for_a_removal_as_long_as_one_of_the_removals_ends_each_second() -> None:
    async with a_client() as (server, zk):
        for name in "abcd":
            await zk.create(f"/{name}")
        server.strike = throttled("delete", path="/a")
        start = now()
        first = zk.discard("/a")
        for second in (0.5, 1.5):
            await asyncio.sleep(start + second - now())
            await zk.discard("/b" if second == 0.5 else "/c")
            assert not first.done()
        await asyncio.sleep(start + 2.99 - now())
        assert not first.done()
        await first
        assert now() - start == pytest.approx(3.0, abs=0.01)
        # While none ends, a new one is not waited for either.
        server.strike = throttled("delete")
        server.names()
        assert zk.discard("/d").done()
        assert zk.discard("/d").done()
        await turns()
        assert server.names("ping") == ["delete"] * 2
        # They go on all the same, and callers wait again as soon as one has ended.
        server.strike = throttled("delete", path="/a")
        await asyncio.sleep(0.2)
        assert sorted(await zk.get_children("/")) == ["a", "zookeeper"]
        await zk.create("/b")
        removed = zk.discard("/b")
        assert not removed.done()
        await removed
        server.strike = throttled()
        await asyncio.sleep(0.2)
        assert await zk.get_children("/") == ["zookeeper"]


@in_virtual_time
async def test_after_an_idle_time_a_removal_that_does_not_end_is_waited_for_as_long_as_the_first_one() -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        for idle in (0.0, 5.0, 5.0):
            await asyncio.sleep(idle)
            await zk.discard("/none")
            await asyncio.sleep(2.0)
            server.strike = throttled("delete")
            start = now()
            await zk.discard("/a")
            assert now() - start == pytest.approx(1.0, abs=0.01)
            server.strike = throttled()


@in_virtual_time
async def test_a_removal_that_is_refused_for_the_moment_is_sent_again_each_tenth_of_a_second() -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        server.names()
        server.strike = throttled("delete")
        start = now()
        removed = zk.discard("/a")
        await asyncio.sleep(0.25)
        server.strike = throttled()
        await removed
        assert [sent.at - start for sent in server.requests] == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=0.01)
        assert server.names() == ["delete"] * 4


@in_virtual_time
async def test_a_removal_that_is_refused_for_good_is_reported_and_one_of_a_missing_node_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_client() as (server, zk):
        await zk.create("/a/b", make_parents=True)
        await zk.discard("/a")
        await zk.discard("/none")
        assert server.names()[-2:] == ["delete", "delete"]
    (report,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert report.startswith("a node that should be deleted remains: delete /a: ")


@in_virtual_time
async def test_a_removal_whose_answer_is_lost_looks_behind_a_sync_whether_the_node_is_the_same() -> None:
    async with a_client() as (server, zk):
        _, stat = await zk.create_and_stat("/n/a", make_parents=True)
        server.is_silent = True
        removed = zk.discard("/n/a", newest_zxid=stat.czxid)
        server.names()
        await turns()
        server.drop()
        server.is_silent = False
        await removed
        assert [(sent.name, sent.path) for sent in server.requests] == [
            ("connect", None),
            ("sync", "/n"),
            ("exists", "/n/a"),
            ("delete", "/n/a"),
        ]


@in_virtual_time
@pytest.mark.parametrize("newest", [None, 1 << 40])
async def test_a_removal_that_goes_on_while_the_client_closes_ends_with_the_session(newest: int | None) -> None:
    """Nothing can be asked any more: the session ends, and its ephemeral nodes with it."""
    async with a_client() as (server, zk):
        await zk.create("/a", ephemeral=True)
        server.strike = throttled("delete")
        removed = zk.discard("/a", newest_zxid=newest)
        server.is_holding = True
        closing = asyncio.ensure_future(zk.close())
        await turns()
        assert not removed.done()
        server.drop()  # the delete fails, and cannot be followed by another request
        await turns()
        assert removed.done()
        server.is_holding = False
        await closing
        assert server.names("create")[:3] == ["delete", "closeSession", "connect"]


@in_virtual_time
async def test_a_client_that_is_closed_while_a_removal_is_unanswered_has_no_timer_left() -> None:
    async with a_client() as (server, zk):
        server.is_silent = True
        removed = zk.discard("/a")
        await zk.close(within=0)
        assert removed.done()
        assert zk.discard("/b").done()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Machine)
        assert not [line for line in loop.left() if "_look_for_progress" in line]
        server.is_silent = False


# -- searches ---------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("sequential", [True, False])
async def test_a_search_removes_the_node_asks_behind_a_sync_and_leaves_no_watch(sequential: bool) -> None:
    seen = Events()
    async with a_client(observer=seen) as (server, zk):
        await zk.create("/p")
        kept = await zk.create("/p/n-", ephemeral=True, sequential=True)
        server.names()
        await lose_a_create(server, zk, "/p/n-", sequential=sequential)
        while zk._session.requests.cleanup.is_busy:
            await asyncio.sleep(0.01)
        create, connect, *asked = [(sent.name, sent.path) for sent in server.requests]
        assert (create, connect) == (("create", "/p/n-"), ("connect", None))
        if sequential:
            lost = "/p/n-0000000001"
            assert asked[:2] == [("sync", "/p"), ("getChildren", "/p")]
            assert sorted(asked[2:4]) == [("exists", kept), ("exists", lost)]
            assert asked[4:] == [("delete", lost)]
        else:
            lost = "/p/n-"
            assert asked == [("sync", "/p"), ("exists", lost), ("delete", lost)]
        await zk.create(lost)
        await zk.delete(lost)
        await zk.delete(kept)
        assert await zk.get_children("/p") == []
        assert seen.arrived == []


@in_virtual_time
async def test_a_search_for_a_node_that_was_not_made_leaves_no_watch() -> None:
    seen = Events()
    async with a_client(observer=seen) as (server, zk):
        await lose_a_create(server, zk, "/a", sequential=False, carried_out=False)
        await zk.ping()
        assert server.names("ping") == ["create", "connect", "sync", "exists"]
        await zk.create("/a")
        await zk.delete("/a")
        assert seen.arrived == []


@in_virtual_time
@pytest.mark.parametrize("sequential", [True, False])
async def test_a_search_spares_newer_nodes_of_others_and_names_that_are_no_numbers(sequential: bool) -> None:
    """The lost create may have been refused, and another client may have made the node that is there."""
    async with a_client() as (server, zk), zkwire.connect("c", open_link=server.open_link) as other:
        await zk.create("/p")
        path = "/p/n-" if sequential else "/p/n-0000000007"
        # Some end in a number as the server writes it, and the others in what only looks like one.
        names = ["n-0000000007", "n--1000000000", "n--000000001", "n--0000000001", "n-10000000000"]
        names += ["n-abcdefghij", "n-00000x0001", "n-+000000001", "n-" + "\u0661" * 10, "n-0000000001x", "n"]
        server.is_holding = True
        made = [asyncio.ensure_future(other.create(f"/p/{name}", ephemeral=True)) for name in names]
        creating = asyncio.ensure_future(zk.create(path, ephemeral=True, sequential=sequential))
        await turns()
        await cancelled(creating)
        server.wires[0].lose(None)
        server.release()
        await asyncio.gather(*made)
        while zk._session.requests.cleanup.is_busy:
            await asyncio.sleep(0.01)
        assert server.names().count("delete") == sequential
        assert sorted(await zk.get_children("/p")) == sorted(names)


@in_virtual_time
async def test_a_create_that_is_lost_while_a_search_below_the_same_node_goes_on_gets_a_search_of_its_own() -> None:
    """The first search has its list already, which cannot show the new node."""
    async with a_client() as (server, zk):
        await zk.create("/p")
        await lose_a_create(server, zk, "/p/n-", sequential=True)
        server.strike = throttled("exists")
        await server.until("exists")
        await lose_a_create(server, zk, "/p/n-", sequential=True)
        while zk._session.requests.cleanup.is_busy:
            await asyncio.sleep(0.01)
        assert server.names().count("getChildren") == 2
        assert await zk.get_children("/p") == []


@in_virtual_time
@pytest.mark.parametrize("sequential", [True, False])
async def test_creates_that_are_lost_before_the_search_is_written_share_it(sequential: bool) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        paths = ["/p/n-", "/p/m-", "/p/n-"] if sequential else ["/p/n"] * 3
        server.is_holding = True
        creating = [asyncio.ensure_future(zk.create(path, ephemeral=True, sequential=sequential)) for path in paths]
        await turns()
        await asyncio.gather(*map(cancelled, creating))
        server.names()
        server.drop()
        server.is_holding = False
        await server.until("delete", 3 if sequential else 1)
        names = server.names()
        assert names[:3] == ["connect", "sync", "getChildren" if sequential else "exists"]
        assert names.count("sync") == 1
        await zk.ping()
        assert await zk.get_children("/p") == []


@in_virtual_time
async def test_nothing_is_kept_of_searches_that_have_ended() -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        before = how_many("_Search", "LostCreate")
        for sequential in (True, False):
            await lose_a_create(server, zk, "/p/n-", sequential=sequential)
            while zk._session.requests.cleanup.is_busy:
                await asyncio.sleep(0.01)
        assert how_many("_Search", "LostCreate") == before


@in_virtual_time
async def test_a_search_finds_a_node_whose_number_is_negative() -> None:
    """Servers before 3.6 count past the largest number of 32 bits."""
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.is_holding = True
        creating = asyncio.ensure_future(zk.create("/p/n-", ephemeral=True, sequential=True))
        server.strike = lambda wire, sent: False if sent.name == "create" else None
        await turns()
        await cancelled(creating)
        thief = zkwire.connect(
            "c", open_link=server.open_link, session_id=zk.session_id, session_password=zk.session_password
        )
        server.drop()
        server.is_holding = False
        server.strike = lambda wire, sent: None
        server.refused = {"a", "b"}
        other = await thief
        for name in ("n--1999999999", "n--000000002"):
            await other.create(f"/p/{name}", ephemeral=True)
        await other.close(keep_session=True)
        server.refused = set()
        await server.until("delete", 2)
        await zk.ping()
        assert await zk.get_children("/p") == []


@in_virtual_time
@pytest.mark.parametrize("operation", ["exists", "getChildren"])
async def test_a_search_that_is_refused_for_the_moment_is_repeated_each_tenth_of_a_second(operation: str) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.names()
        server.strike = throttled(operation)
        await lose_a_create(server, zk, "/p/n-", sequential=True)
        server.strike = throttled(operation)
        await server.until(operation, 3)
        server.strike = throttled()
        await server.until("delete")
        times = [sent.at for sent in server.requests if sent.name == operation]
        assert [later - times[0] for later in times] == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=0.01)
        await zk.ping()
        assert await zk.get_children("/p") == []


def behind_and_overloaded(wire: Wire, sent: Sent) -> int | None:
    """Refuse each sync, and know nothing of the node that is asked for."""
    if sent.name == "sync":
        return ThrottledError.code
    return zkwire.NoNodeError.code if sent.name in ("exists", "getChildren") else None


@in_virtual_time
@pytest.mark.parametrize("sequential", [False, True])
async def test_a_search_believes_no_answer_behind_a_refused_sync_pitfall_10(
    sequential: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal itself is out of date, too: its zxid is older than the lost create."""
    async with a_client() as (server, zk):
        await zk.create("/p")
        monkeypatch.setattr(
            server.machine, "refuse", lambda connection, xid, code: server.machine.reply(connection, xid, 1, code)
        )
        await lose_a_create(server, zk, "/p/n-", sequential=sequential)
        server.names()
        server.strike = behind_and_overloaded
        await server.until("sync", 2)
        server.strike = throttled()
        await server.until("delete")
        await zk.ping()
        assert await zk.get_children("/p") == []


@in_virtual_time
async def test_a_search_that_is_refused_spares_a_node_that_a_caller_has_got_meanwhile() -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        await lose_a_create(server, zk, "/p/n-", sequential=True)
        server.names()
        server.strike = throttled("sync")
        await server.until("sync")
        made = await zk.create("/p/n-", ephemeral=True, sequential=True)
        server.strike = throttled()
        await server.until("delete")
        await zk.ping()
        assert await zk.get_children("/p") == [made.rpartition("/")[2]]
        assert server.names().count("delete") == 1


@in_virtual_time
async def test_a_removal_believes_no_answer_behind_a_refused_sync() -> None:
    """It would leave a node that its server does not know yet, or delete one that took the place of its own."""
    async with a_client() as (server, zk):
        _, stat = await zk.create_and_stat("/n/a", make_parents=True)
        server.is_silent = True
        removed = zk.discard("/n/a", newest_zxid=stat.czxid)
        await turns()
        server.drop()
        server.is_silent = False
        server.strike = behind_and_overloaded
        server.names()
        await server.until("sync", 2)
        server.strike = throttled("sync")
        await server.until("exists", 4)
        assert "delete" not in server.names()
        server.strike = throttled()
        await removed
        assert await zk.exists("/n/a") is None


@in_virtual_time
@pytest.mark.parametrize("how", ["closed", "expired", "expired in a pause"])
async def test_a_search_ends_with_its_session_and_is_silent(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with a_client() as (server, zk):
        await zk.create("/p")
        server.strike = throttled("getChildren")
        await lose_a_create(server, zk, "/p/n-", sequential=True)
        server.strike = throttled("getChildren")
        await server.until("getChildren")
        old = zk.session_id
        if how == "closed":
            await zk.close()
            assert not [task for task in asyncio.all_tasks() if "_Search" in repr(task.get_coro())]
        else:
            if how == "expired":
                server.is_silent = True
                await asyncio.sleep(0.3)  # the search has asked again, and nothing is answered
            server.machine.expire(old, now())
            server.drop()
            server.strike = throttled()
            server.is_silent = False
            async for state in zk.states():
                if state is SessionState.CONNECTED and zk.session_id != old:
                    break
            assert not zk._session.requests.cleanup.is_busy
            server.names()
            await asyncio.sleep(1.0)
            assert server.names("ping") == []
        assert "cannot look for the node" not in caplog.text


@in_virtual_time
async def test_no_search_begins_once_the_client_is_being_closed() -> None:
    """The end of the session removes the node."""
    async with a_client() as (server, zk):
        server.is_holding = True
        creating = asyncio.ensure_future(zk.create("/a", ephemeral=True))
        await turns()
        await cancelled(creating)
        closing = asyncio.ensure_future(zk.close())
        await turns()
        server.drop()
        server.is_holding = False
        await closing
        assert server.names() == ["create", "closeSession", "connect"]
        assert tasks("zkwire session") == []
