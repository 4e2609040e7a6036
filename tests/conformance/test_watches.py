"""One-shot watches: which change fires which watch, how often, and in which order."""

import asyncio

import pytest

import zkwire
from tests.support.client import Server
from zkwire import Client, Watch, WatchEventType, WatchSet

CREATED, DELETED, CHANGED, CHILDREN = WatchEventType

WATCHES = ["exist on a missing node", "exist", "data", "child"]
CHANGES = ["create", "set", "delete", "create child", "delete child", "set child", "create deeper", "delete deeper"]
FIRES = {
    ("exist on a missing node", "create"): CREATED,
    ("exist", "set"): CHANGED,
    ("exist", "delete"): DELETED,
    ("data", "set"): CHANGED,
    ("data", "delete"): DELETED,
    ("child", "delete"): DELETED,
    ("child", "create child"): CHILDREN,
    ("child", "delete child"): CHILDREN,
}


async def watch_by(zk: Client, kind: str, path: str) -> Watch:
    if kind.startswith("exist"):
        return (await zk.exists_and_watch(path))[1]
    if kind == "data":
        return (await zk.get_and_watch(path))[1]
    return (await zk.get_children_and_watch(path))[1]


async def change(zk: Client, what: str, path: str) -> None:
    deed, _, where = what.partition(" ")
    node = {"": path, "child": f"{path}/child", "deeper": f"{path}/child/deeper"}[where]
    if deed == "set":
        await zk.set(node, b"changed")
    elif deed == "create":
        await zk.create(node)
    else:
        await zk.delete(node)


async def prepare(zk: Client, what: str, path: str) -> None:
    """Create the nodes that `change` needs."""
    if what in ("create", "delete"):
        if what == "delete":
            await zk.create(path)
        return
    await zk.create(path)
    if what != "create child" and what != "set":
        await zk.create(f"{path}/child")
    if what == "delete deeper":
        await zk.create(f"{path}/child/deeper")


@pytest.mark.parametrize("by", ["own", "another's"])
@pytest.mark.parametrize("kind", WATCHES)
async def test_a_watch_fires_for_its_changes_alone(zk: Client, other: Client, path: str, kind: str, by: str) -> None:
    for number, what in enumerate(CHANGES):
        if (kind == "exist on a missing node") != (what == "create"):
            continue
        node = f"{path}-{number}"
        await prepare(zk, what, node)
        watch = await watch_by(zk, kind, node)
        assert not watch.done()
        changer = zk if by == "own" else other
        await change(changer, what, node)
        await zk.sync(node)
        expected = FIRES.get((kind, what))
        assert watch.done() == (expected is not None), what
        if expected is not None:
            event = await watch
            assert (event.type, event.path) == (expected, node)
        watch.cancel()


async def test_an_event_has_the_zxid_of_the_change_if_the_server_sends_it(zk: Client, path: str) -> None:
    watch = await watch_by(zk, "exist", path)
    _, stat = await zk.create_and_stat(path)
    assert (await watch).zxid in (None, stat.czxid)


async def test_the_event_of_an_own_change_comes_before_the_reply(zk: Client, path: str) -> None:
    await zk.create(path)
    order = []

    async def wait(watch: Watch) -> None:
        await watch
        order.append("event")

    watch = await watch_by(zk, "data", path)
    task = asyncio.create_task(wait(watch))
    await zk.set(path, b"1")
    assert watch.done()
    order.append("reply")
    await task
    assert order == ["event", "reply"]


async def test_an_event_comes_before_any_reply_that_shows_the_change(zk: Client, other: Client, path: str) -> None:
    await zk.create(path, b"0")
    for value in (b"1", b"2", b"3"):
        watch = await watch_by(zk, "data", path)
        setting = asyncio.create_task(other.set(path, value))
        while (await zk.get(path)).data != value:
            pass
        assert watch.done()
        await setting


async def test_an_event_right_after_the_reply_that_set_the_watch_is_not_lost_pitfall_34(zk: Client, path: str) -> None:
    await zk.create(path)
    (_, watch), _ = await asyncio.gather(zk.get_and_watch(path), zk.set(path, b""))
    assert (await watch).type is CHANGED
    (_, watch), _ = await asyncio.gather(zk.get_children_and_watch(path), zk.create(f"{path}/a"))
    assert (await watch).type is CHILDREN
    (_, watch), _ = await asyncio.gather(zk.exists_and_watch(f"{path}/b"), zk.create(f"{path}/b"))
    assert (await watch).type is CREATED


async def test_many_watches_of_one_client_on_one_node_all_fire(zk: Client, path: str) -> None:
    await zk.create(path)
    watches = [await watch_by(zk, kind, path) for kind in ("exist", "data", "child", "data", "child")]
    await zk.delete(path)
    assert [(await watch).type for watch in watches] == [DELETED] * 5


async def test_cancelling_a_watch_keeps_other_watches_of_the_same_node(zk: Client, path: str) -> None:
    await zk.create(path)
    for kind in ("exist", "data", "child"):
        first, second = await watch_by(zk, kind, path), await watch_by(zk, kind, path)
        first.cancel()
        first.cancel()
        await zk.sync(path)
        await (zk.create(f"{path}/a") if kind == "child" else zk.set(path, b""))
        await second
        assert first.done()


async def test_a_watch_set_gives_events_in_the_order_of_the_changes(zk: Client, other: Client, path: str) -> None:
    nodes = [f"{path}-{number}" for number in range(5)]
    with WatchSet() as watches:
        for node in nodes:
            await zk.exists_and_watch(node, into=watches)
        for node in reversed(nodes):
            await other.create(node)
        assert [(await watches.next()).path for _ in nodes] == nodes[::-1]
        assert not watches.was_rearmed
        await zk.get_and_watch(nodes[0], into=watches)
        await zk.set(nodes[0], b"")
        assert [event.type for event in watches.take()] == [CHANGED]
        assert watches.take() == []


async def test_a_watch_and_a_watch_set_raise_session_closed_at_the_end_of_the_client(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as zk:
        watch, unawaited = await watch_by(zk, "exist", path), await watch_by(zk, "exist", path)
        watches = WatchSet()
        await zk.exists_and_watch(path, into=watches)
        waiting = asyncio.create_task(watches.next())
        await zk.ping()
        with pytest.raises(RuntimeError, match="waits for this WatchSet already"):
            await watches.next()
    with pytest.raises(zkwire.SessionClosedError):
        await waiting
    with pytest.raises(zkwire.SessionClosedError):
        await watch
    assert unawaited.done()
    with pytest.raises(zkwire.SessionClosedError):
        watches.take()


async def test_cancelling_the_wait_gives_a_watch_up_and_loses_no_event_of_a_watch_set(zk: Client, path: str) -> None:
    watch = await watch_by(zk, "exist", path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await watch
    assert watch.done()
    with WatchSet() as watches:
        await zk.exists_and_watch(path, into=watches)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await watches.next()
        await zk.create(path)
        assert (await watches.next()).type is CREATED


# -- urgent waits ---------------------------------------------------------------------------------------------------


async def test_an_urgent_deletion_runs_the_waiting_task_before_all_else(zk: Client, other: Client, path: str) -> None:
    await zk.create(path)
    order: list[object] = []
    with WatchSet() as watches:
        _, watch = await zk.get_and_watch(path)
        await zk.get_and_watch(path, into=watches)

        async def usually() -> None:
            order.append((await watch).type)

        async def urgently() -> None:
            order.append(await watches.ready(urgent=[path]))
            order.append(watches.take())

        async with asyncio.TaskGroup() as group:
            group.create_task(usually())
            group.create_task(urgently())
            await asyncio.sleep(0)
            await other.delete(path)
        assert order == [path, [], DELETED]
        assert [(event.type, event.path) for event in watches.take()] == [(DELETED, path)]


async def test_other_events_are_not_urgent(zk: Client, other: Client, path: str) -> None:
    await zk.create(path)
    with WatchSet() as watches:
        await zk.get_and_watch(path, into=watches)
        arrival = watches.ready(urgent=[path, "/not watched"])
        await other.set(path, b"new")
        assert await arrival is None
        assert [event.type for event in watches.take()] == [CHANGED]
        await zk.get_and_watch(path, into=watches)
        arrival = watches.ready()
        await other.delete(path)
        assert await arrival is None
        assert [event.type for event in watches.take()] == [DELETED]


async def test_a_cancelled_urgent_wait_leaves_no_callback(zk: Client, other: Client, path: str) -> None:
    await zk.create(path)
    with WatchSet() as watches:
        await zk.get_and_watch(path, into=watches)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await watches.ready(urgent=[path])
        assert zk._session.requests.link is not None
        assert zk._session.requests.link.connection.urgent
    assert not zk._session.requests.link.connection.urgent
    with WatchSet() as watches:
        await zk.get_and_watch(path, into=watches)
        watches.ready(urgent=[path]).cancel()
        await other.delete(path)
        assert (await watches.next()).type is DELETED
    assert not zk._session.requests.link.connection.urgent


async def test_the_callback_of_a_watch_set_is_called_for_events_and_for_the_end(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as zk:
        watches = WatchSet()
        calls: list[object] = []
        await zk.exists_and_watch(path, into=watches)
        watches.set_callback(lambda: calls.append(watches.take()[0].type))
        await zk.create(path)
        assert calls == [CREATED]
        watches.set_callback(None)
        await zk.get_and_watch(path, into=watches)
        await zk.set(path, b"")
        assert calls == [CREATED]
        watches.set_callback(lambda: calls.append(watches.take()[0].type))
        assert calls == [CREATED], "for earlier events it is called a turn later"
        await asyncio.sleep(0)
        assert calls == [CREATED, CHANGED]
        await zk.get_and_watch(path, into=watches)
        ended: list[bool] = []
        watches.set_callback(lambda: ended.append(True))
    assert ended == [True]


async def test_children_stat_and_watch_come_in_one_request(zk: Client, path: str) -> None:
    await zk.create(path)
    await zk.create(f"{path}/a")
    names, stat, watch = await zk.get_children_stat_and_watch(path)
    assert (names, stat) == await zk.get_children_and_stat(path)
    await zk.create(f"{path}/b")
    event = await watch
    assert (event.type, event.path) == (WatchEventType.CHILDREN, path)
    with zkwire.WatchSet() as watches:
        await zk.get_children_stat_and_watch(path, into=watches)
        await zk.delete(f"{path}/b")
        assert (await watches.next()).type is WatchEventType.CHILDREN
        with pytest.raises(zkwire.NoNodeError):
            await zk.get_children_stat_and_watch(f"{path}/none", into=watches)
