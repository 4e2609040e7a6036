"""Streams of events, of a node and of all nodes below it: which events they give, how often and in which order."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import zkwire
from tests.support.client import PATIENCE, Server, cancelled, turns
from zkwire import Client, EventStream, Resync, Watch, WatchEvent, WatchEventType

CREATED, DELETED, CHANGED, CHILDREN = WatchEventType

Seen = tuple[WatchEventType, str]

# ZOOKEEPER-4466: older servers keep one watch per path and session: the last one set displaces the others.
MIXED = "watches of several modes on one path"

CHANGES = [
    "create",
    "set",
    "create /a",
    "set /a",
    "create /a/b",
    "set /a/b",
    "delete /a/b",
    "delete /a",
    "delete",
    "create",
]
EVENTS: dict[str, list[Seen]] = {
    "persistent": [(CREATED, ""), (CHANGED, ""), (CHILDREN, ""), (CHILDREN, ""), (DELETED, ""), (CREATED, "")],
    "recursive": [
        (CREATED, ""),
        (CHANGED, ""),
        (CREATED, "/a"),
        (CHANGED, "/a"),
        (CREATED, "/a/b"),
        (CHANGED, "/a/b"),
        (DELETED, "/a/b"),
        (DELETED, "/a"),
        (DELETED, ""),
        (CREATED, ""),
    ],
}
KINDS = list(EVENTS)


def stream(zk: Client, kind: str, path: str) -> EventStream:
    return zk.events(path, recursive=kind == "recursive")


async def change(zk: Client, what: str, path: str) -> None:
    deed, _, below = what.partition(" ")
    if deed == "create":
        await zk.create(path + below)
    elif deed == "set":
        await zk.set(path + below, b"same")
    else:
        await zk.delete(path + below)


async def taken(events: EventStream) -> list[WatchEvent | Resync]:
    """Return the events that have arrived already."""
    found: list[WatchEvent | Resync] = []
    while True:
        task = asyncio.ensure_future(anext(events))
        await turns(2)
        if not task.done():
            await cancelled(task)
            return found
        found.append(task.result())


def plain(events: list[WatchEvent | Resync], path: str = "") -> list[Seen]:
    """Return the types and paths of events, none of which may be a Resync."""
    found = []
    for event in events:
        assert isinstance(event, WatchEvent)
        found.append((event.type, event.path.removeprefix(path)))
    return found


async def following(stream: AsyncIterator[Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await anext(stream)


# Which events


@pytest.mark.since("3.6", "addWatch")
@pytest.mark.parametrize("by", ["own", "another's"])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_of_stream_gives_its_events(zk: Client, other: Client, path: str, kind: str, by: str) -> None:
    async with stream(zk, kind, path) as events:
        for what in CHANGES:
            await change(zk if by == "own" else other, what, path)
        await other.create(f"{path}-neighbour")
        await zk.sync(path)
        assert plain(await taken(events), path) == EVENTS[kind]


@pytest.mark.since("3.6", "addWatch")
async def test_the_deletions_at_the_end_of_a_session_are_events(server: Server, zk: Client, path: str) -> None:
    await zk.create(path)
    async with zk.events(path, recursive=True) as events:
        async with zkwire.connect(server.hosts) as owner:
            await owner.create(f"{path}/a", ephemeral=True)
        assert plain([await following(events) for _ in range(2)], path) == [(CREATED, "/a"), (DELETED, "/a")]


@pytest.mark.since("3.6", "addWatch")
async def test_the_events_of_a_transaction_come_in_the_order_of_its_operations(zk: Client, path: str) -> None:
    async with zk.events(path, recursive=True) as events:
        async with zk.transaction() as tx:
            tx.create(path)
            tx.create(f"{path}/b")
            tx.create(f"{path}/a")
            tx.set(f"{path}/b", b"1")
            tx.delete(f"{path}/a")
        assert plain(await taken(events), path) == [
            (CREATED, ""),
            (CREATED, "/b"),
            (CREATED, "/a"),
            (CHANGED, "/b"),
            (DELETED, "/a"),
        ]


@pytest.mark.since("3.6", "addWatch")
async def test_a_stream_below_a_chroot_uses_paths_below_it(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as outside:
        await outside.create(path)
        async with (
            zkwire.connect(server.hosts + path) as zk,
            zk.events("/", recursive=True) as below,
            zk.events("/a") as alone,
        ):
            await zk.create("/a", b"")
            await outside.set(path, b"")
            await outside.create(f"{path}-neighbour")
            await zk.create("/a/b", b"")
            assert plain(await taken(below)) == [(CREATED, "/a"), (CHANGED, "/"), (CREATED, "/a/b")]
            assert plain(await taken(alone)) == [(CREATED, "/a"), (CHILDREN, "/a")]


# Several watchers at once, of mixed kinds


async def one_shots(zk: Client, path: str) -> dict[str, Watch]:
    return {
        "exist": (await zk.exists_and_watch(path))[1],
        "data": (await zk.get_and_watch(path))[1],
        "child": (await zk.get_children_and_watch(path))[1],
    }


@pytest.mark.since("3.6", "addWatch")
@pytest.mark.since("3.9", MIXED, raises=AssertionError)
@pytest.mark.parametrize("first", ["one-shot", "lasting"])
async def test_watches_of_several_kinds_on_one_path_do_not_disturb_each_other_pitfall_40(
    zk: Client, other: Client, path: str, first: str
) -> None:
    await zk.create(path)
    persistent, recursive = zk.events(path), zk.events(path, recursive=True)
    watches = await one_shots(zk, path) if first == "one-shot" else {}
    async with persistent, recursive:
        watches = watches or await one_shots(zk, path)
        for what, fires in [
            ("set", {"exist", "data"}),
            ("create /a", {"child"}),
            ("delete /a", {"child"}),
            ("delete", {"exist", "data", "child"}),
        ]:
            await change(other, what, path)
            await zk.sync(path)
            assert {kind for kind, watch in watches.items() if watch.done()} == fires, what
            for watch in watches.values():
                watch.cancel()
            if what != "delete":
                watches = await one_shots(zk, path)
        await other.create(path)
        await zk.sync(path)
        expected = [(CHANGED, ""), (CHILDREN, ""), (CHILDREN, ""), (DELETED, ""), (CREATED, "")]
        assert plain(await taken(persistent), path) == expected
        expected = [(CHANGED, ""), (CREATED, "/a"), (DELETED, "/a"), (DELETED, ""), (CREATED, "")]
        assert plain(await taken(recursive), path) == expected


@pytest.mark.since("3.6", "addWatch")
async def test_a_recursive_stream_does_not_give_the_events_of_a_child_watch(zk: Client, path: str) -> None:
    """The CHILDREN event of the child watch comes on the same connection, and is for the child watch alone."""
    await zk.create(path)
    await zk.create(f"{path}/a")
    async with zk.events(path, recursive=True) as recursive, zk.events(f"{path}/a") as persistent:
        _, child = await zk.get_children_and_watch(f"{path}/a")
        await zk.create(f"{path}/a/b")
        assert (await child).type is CHILDREN
        assert plain(await taken(recursive), path) == [(CREATED, "/a/b")]
        assert plain(await taken(persistent), path) == [(CHILDREN, "/a")]


@pytest.mark.since("3.6", "addWatch")
@pytest.mark.parametrize("kind", KINDS)
async def test_many_streams_of_one_node_each_get_every_event_once(zk: Client, path: str, kind: str) -> None:
    async with stream(zk, kind, path) as one, stream(zk, kind, path) as two:
        async with stream(zk, kind, path) as three:
            await zk.create(path)
            assert plain(await taken(three), path) == [(CREATED, "")]
        await zk.set(path, b"")
        await zk.delete(path)
        for events in (one, two):
            assert plain(await taken(events), path) == [(CREATED, ""), (CHANGED, ""), (DELETED, "")]


@pytest.mark.since("3.6", "addWatch")
@pytest.mark.since("3.9", MIXED, raises=AssertionError)
@pytest.mark.parametrize("left", KINDS)
async def test_leaving_one_stream_keeps_others_of_the_same_path_pitfall_40(zk: Client, path: str, left: str) -> None:
    stays = "persistent" if left == "recursive" else "recursive"
    await zk.create(path)
    watches = await one_shots(zk, path)
    async with stream(zk, stays, path) as events:
        async with stream(zk, left, path):
            pass
        await zk.create(f"{path}/a")
        await zk.set(path, b"")
        assert all(watch.done() for watch in watches.values())
        expected = [CHILDREN, CHANGED] if stays == "persistent" else [CREATED, CHANGED]
        assert [type for type, _ in plain(await taken(events))] == expected


# Entering, iterating, leaving


@pytest.mark.since("3.6", "addWatch")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_right_after_the_entering_is_an_event_pitfall_34(zk: Client, path: str, kind: str) -> None:
    events = stream(zk, kind, path)
    entering = asyncio.create_task(events.__aenter__())
    creating = asyncio.create_task(zk.create(path))
    assert await entering is events
    await creating
    assert plain(await taken(events), path) == [(CREATED, "")]
    await events.__aexit__(None, None, None)


@pytest.mark.since("3.6", "addWatch")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_gives_nothing_after_its_block_and_another_is_new(zk: Client, path: str, kind: str) -> None:
    async with stream(zk, kind, path) as events:
        await zk.create(path)
    assert [event async for event in events] == []
    await zk.set(path, b"")
    async with stream(zk, kind, path) as again:
        await zk.delete(path)
        assert plain(await taken(again), path) == [(DELETED, "")]


@pytest.mark.since("3.6", "addWatch")
async def test_cancelling_the_wait_for_an_event_loses_none(zk: Client, path: str) -> None:
    async with zk.events(path) as events:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(events)
        task = asyncio.ensure_future(anext(events))
        await turns()
        writing = asyncio.create_task(zk.create(path))
        await zk.sync(path)
        task.cancel()
        await writing
        await zk.set(path, b"")
        seen = [] if task.cancelled() else [task.result()]
        assert plain(seen + await taken(events), path) == [(CREATED, ""), (CHANGED, "")]


@pytest.mark.since("3.6", "addWatch")
async def test_misuse_of_a_stream_is_refused(zk: Client, path: str) -> None:
    for backlog in (0, -1):
        with pytest.raises(ValueError, match="backlog"):
            zk.events(path, backlog=backlog)
    events = zk.events(path)
    with pytest.raises(RuntimeError, match="enter the events"):
        async for _ in events:
            pass
    async with events:
        with pytest.raises(RuntimeError, match="entered already"):
            await events.__aenter__()
        task = asyncio.ensure_future(anext(events))
        await turns()
        with pytest.raises(RuntimeError, match="waits for the next event of"):
            await anext(events)
        await cancelled(task)
    with pytest.raises(RuntimeError, match="entered already"):
        await events.__aenter__()


@pytest.mark.since("3.6", "addWatch")
async def test_events_beyond_the_backlog_are_replaced_by_one_resync(zk: Client, path: str) -> None:
    async with zk.events(path, backlog=3) as events:
        await zk.create(path)
        await zk.set(path, b"1")
        await zk.set(path, b"2")
        assert plain(await taken(events), path) == [(CREATED, ""), (CHANGED, ""), (CHANGED, "")]
        for _ in range(3):
            await zk.set(path, b"")
        await zk.delete(path)
        first, *others = await taken(events)
        assert first == Resync()
        assert plain(others, path) == [(DELETED, "")]
        await zk.create(path)
        assert plain(await taken(events), path) == [(CREATED, "")]


@pytest.mark.since("3.6", "addWatch")
async def test_the_end_of_the_client_is_raised_after_the_last_event(server: Server, path: str) -> None:
    zk = await zkwire.connect(server.hosts)
    async with zk.events(path) as events, zk.events(path) as waited:
        await zk.create(path)
        await following(waited)
        waiting = asyncio.ensure_future(anext(waited))
        await turns()
        await zk.close()
        with pytest.raises(zkwire.SessionClosedError):
            await waiting
        assert plain([await anext(events)], path) == [(CREATED, "")]
        for _ in range(2):
            with pytest.raises(zkwire.SessionClosedError):
                await anext(events)
    with pytest.raises(zkwire.SessionClosedError):
        async with zk.events(path):
            pass
