"""Watches: which operation sends which event to which watch, re-registration, removal, and permissions.

What the recorded captures and the differential test compare with a real server is not repeated here.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.machine_client import CHANGED, CHILDREN, CREATED, DELETED, EPHEMERAL, OPEN, Client, World
from zkwire.wire.records import ACL
from zkwire.wire.requests import (
    AddWatchRequest,
    AuthRequest,
    CheckWatchesRequest,
    CloseSessionRequest,
    ExistsRequest,
    RemoveWatchesRequest,
    SetACLRequest,
    SetWatches2Request,
    SetWatchesRequest,
    WatcherType,
)

SET: dict[str, Any] = {
    "exist": lambda path: ExistsRequest(path, True),
    "persistent": lambda path: AddWatchRequest(path, 0),
    "recursive": lambda path: AddWatchRequest(path, 1),
}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


@pytest.fixture
def watcher(world: World) -> Client:
    return world.client()


def test_an_event_comes_before_the_reply_that_shows_the_change(client: Client) -> None:
    """`ask` takes the last frame for the reply, so the event was in front of it."""
    client.exists("/x", watch=True)
    made = client.create("/x")
    assert client.look() == [(CREATED, "/x")]
    assert client.event_zxids == [made.zxid]


def test_watches_end_with_their_connection(world: World, client: Client, watcher: Client) -> None:
    for kind in ("exist", "persistent", "recursive"):
        watcher.ask(SET[kind]("/x"))
    world.machine.lost(watcher.connection, world.now)
    world.machine.lost(watcher.connection, world.now)
    assert not world.machine.watches.data.by_path
    assert not world.machine.watches.child.by_path
    again = Client(world)
    again.connect(resume=watcher)
    client.create("/x")
    assert again.look() == watcher.look() == []


def test_the_last_events_of_a_session_are_those_of_its_own_nodes(world: World, client: Client, watcher: Client) -> None:
    """The deletions of its ephemeral nodes come before the reply to closeSession, under its zxid."""
    client.create("/e1", flags=EPHEMERAL)
    client.create("/e2", flags=EPHEMERAL)
    for who in (client, watcher):
        who.ask(AddWatchRequest("/", 1))
    closing = client.ask(CloseSessionRequest())
    assert sorted(client.look()) == sorted(watcher.look()) == [(DELETED, "/e1"), (DELETED, "/e2")]
    assert {*client.event_zxids, *watcher.event_zxids} == {closing.zxid}
    assert client.is_closed
    assert watcher.exists("/").reply.stat.pzxid == closing.zxid


# -- permissions --------------------------------------------------------------------------------------


def test_a_client_that_may_not_read_a_node_gets_no_events_of_it(client: Client, watcher: Client) -> None:
    """A one-shot watch is used up all the same."""
    watcher.exists("/x", watch=True)
    watcher.ask(AddWatchRequest("/x", 0))
    client.create("/x", acl=[ACL(30, "world", "anyone")])
    client.set("/x")
    client.create("/x/c")
    assert watcher.look() == []
    assert watcher.ask(CheckWatchesRequest("/x", WatcherType.DATA)).err == -121
    client.ask(SetACLRequest("/x", OPEN, -1))
    client.set("/x")
    assert watcher.look() == [(CHANGED, "/x")]


def test_an_identity_gained_later_counts(client: Client, watcher: Client) -> None:
    watcher.ask(AddWatchRequest("/x", 0))
    client.ask(AuthRequest(0, "digest", b"bob:pw"))
    client.create("/x", acl=[ACL(31, "auth", "")])
    assert watcher.look() == []
    watcher.ask(AuthRequest(0, "digest", b"bob:pw"))
    client.set("/x")
    assert watcher.look() == [(CHANGED, "/x")]


# -- removal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 6, -1])
def test_unknown_types_and_modes(watcher: Client, number: int) -> None:
    assert watcher.ask(CheckWatchesRequest("/x", number)).err == -5
    assert watcher.ask(RemoveWatchesRequest("/x", number)).err == -5
    assert watcher.ask(AddWatchRequest("/x", number or 2)).err == -5


# -- setWatches ---------------------------------------------------------------------------------------


def test_each_list_of_set_watches(client: Client, watcher: Client) -> None:
    """Changes since the given zxid come at once, in the order of the lists, without a zxid of their own."""
    for path in ("/old", "/new", "/parent"):
        client.create(path)
    since = client.exists("/").zxid
    client.set("/new")
    client.create("/parent/c")
    everything = ["/old", "/new", "/parent", "/gone"]
    reply = watcher.ask(SetWatchesRequest(since, everything, everything, everything))
    assert (reply.err, reply.body) == (0, b"")
    assert watcher.look() == [
        (CHANGED, "/new"),
        (DELETED, "/gone"),
        (CREATED, "/old"),
        (CREATED, "/new"),
        (CREATED, "/parent"),
        (CHILDREN, "/parent"),
        (DELETED, "/gone"),
    ]
    assert set(watcher.event_zxids) == {-1}
    for path in ("/old", "/new", "/parent"):
        client.set(path)
    client.create("/gone")
    client.create("/old/c")
    assert watcher.look() == [(CHANGED, "/old"), (CHANGED, "/parent"), (CREATED, "/gone"), (CHILDREN, "/old")]


def test_the_watches_that_stay_never_fire_at_once(client: Client, watcher: Client) -> None:
    client.create("/p")
    client.create("/r")
    assert watcher.ask(SetWatches2Request(0, [], [], [], ["/p"], ["/r"])).err == 0
    assert watcher.look() == []
    for path in ("/p/c", "/r/c", "/r/c/d"):
        client.create(path)
    assert watcher.look() == [(CHILDREN, "/p"), (CREATED, "/r/c"), (CREATED, "/r/c/d")]


def test_null_lists_are_refused(watcher: Client) -> None:
    assert watcher.ask(SetWatchesRequest(0, [], [], []), body=bytes(8) + b"\xff" * 12).err == -5


PATHS = st.lists(st.sampled_from(["/a", "/b", "/c"]), max_size=3, unique=True)


@given(PATHS, PATHS, PATHS, PATHS)
def test_after_set_watches_each_path_has_sent_an_event_or_is_watched(
    there: list[str], data: list[str], exist: list[str], child: list[str]
) -> None:
    """No change is lost: a path has either sent an event or still has its watch."""
    world = World()
    client, watcher = world.client(), world.client()
    since = 2
    for path in there:
        client.create(path)
    watcher.ask(SetWatchesRequest(since, data, exist, child))
    told = [path for _, path in watcher.look()]
    assert len(told) + sum(map(len, world.machine.watches.data.by_path.values())) + sum(
        map(len, world.machine.watches.child.by_path.values())
    ) >= len({*data, *exist}) + len(child)
    for path in data:
        assert (path in told) or watcher.ask(CheckWatchesRequest(path, WatcherType.DATA)).err == 0
    for path in exist:
        assert (path in told) or watcher.ask(CheckWatchesRequest(path, WatcherType.DATA)).err == 0
    for path in child:
        assert (path in told) or watcher.ask(CheckWatchesRequest(path, WatcherType.CHILDREN)).err == 0
