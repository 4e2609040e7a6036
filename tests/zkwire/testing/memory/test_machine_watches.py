"""Watches: which operation sends which event to which watch, re-registration, removal, and permissions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.machine_client import CHANGED, CHILDREN, CREATED, DELETED, EPHEMERAL, OPEN, Client, World
from zkwire.wire.multi import MultiRequest
from zkwire.wire.records import ACL
from zkwire.wire.requests import (
    AddWatchRequest,
    AuthRequest,
    CheckWatchesRequest,
    CloseSessionRequest,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    RemoveWatchesRequest,
    SetACLRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    WatcherType,
)

SET: dict[str, Any] = {
    "exist": lambda path: ExistsRequest(path, True),
    "data": lambda path: GetDataRequest(path, True),
    "child": lambda path: GetChildrenRequest(path, True),
    "child2": lambda path: GetChildren2Request(path, True),
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


# The columns: set X, set a child, create a child, delete that, create below a child, set X again,
# delete X.  "-" is no event.
LIFE: list[tuple[str, list[str]]] = [
    ("exist", ["changed /x", "-", "-", "-", "-", "-", "-"]),
    ("data", ["changed /x", "-", "-", "-", "-", "-", "-"]),
    ("child", ["-", "-", "children /x", "-", "-", "-", "-"]),
    ("child2", ["-", "-", "children /x", "-", "-", "-", "-"]),
    ("persistent", ["changed /x", "-", "children /x", "children /x", "-", "changed /x", "deleted /x"]),
    (
        "recursive",
        ["changed /x", "changed /x/c", "created /x/n", "deleted /x/n", "created /x/c/d", "changed /x", "deleted /x"],
    ),
]
NAMES = {CREATED: "created", DELETED: "deleted", CHANGED: "changed", CHILDREN: "children"}


def said(client: Client) -> str:
    return ", ".join(f"{NAMES[kind]} {path}" for kind, path in client.look()) or "-"


@pytest.mark.parametrize(("kind", "expected"), LIFE, ids=[kind for kind, _ in LIFE])
def test_the_events_of_each_kind_of_watch(client: Client, watcher: Client, kind: str, expected: list[str]) -> None:
    client.create("/x")
    client.create("/x/c")
    assert watcher.ask(SET[kind]("/x")).err == 0
    heard = []
    for request in (
        SetDataRequest("/x", b"", -1),
        SetDataRequest("/x/c", b"", -1),
        CreateRequest("/x/n", b"", OPEN, 0),
        DeleteRequest("/x/n", -1),
        CreateRequest("/x/c/d", b"", OPEN, 0),
        SetDataRequest("/x", b"", -1),
    ):
        assert client.ask(request).err == 0
        heard.append(said(watcher))
    client.ask(DeleteRequest("/x/c/d", -1))
    client.ask(DeleteRequest("/x/c", -1))
    said(watcher)
    client.ask(DeleteRequest("/x", -1))
    assert [*heard, said(watcher)] == expected


@pytest.mark.parametrize("kind", ["exist", "persistent", "recursive"])
def test_a_watch_on_a_missing_node_reports_its_creation(client: Client, watcher: Client, kind: str) -> None:
    watcher.ask(SET[kind]("/x"))
    client.create("/x")
    assert watcher.look() == [(CREATED, "/x")]
    client.set("/x")
    assert watcher.look() == ([] if kind == "exist" else [(CHANGED, "/x")])


@pytest.mark.parametrize("kind", ["data", "child"])
def test_a_failed_read_sets_no_watch(client: Client, watcher: Client, kind: str) -> None:
    assert watcher.ask(SET[kind]("/x")).err == -101
    client.create("/x")
    client.create("/x/c")
    assert watcher.look() == []


def test_one_trigger_is_one_frame_and_uses_all_one_shot_watches_up(client: Client, watcher: Client) -> None:
    """A deleted node sends one event to a connection, however many watches it has there."""
    client.create("/x")
    for kind in ("exist", "data", "child", "persistent", "recursive"):
        watcher.ask(SET[kind]("/x"))
    watcher.ask(GetChildrenRequest("/", True))
    client.ask(DeleteRequest("/x", -1))
    assert watcher.look() == [(DELETED, "/x"), (CHILDREN, "/")]
    for used_up in (WatcherType.CHILDREN, WatcherType.DATA):
        assert watcher.ask(CheckWatchesRequest("/x", used_up)).err == -121
    for kept in (WatcherType.PERSISTENT, WatcherType.PERSISTENT_RECURSIVE):
        assert watcher.ask(CheckWatchesRequest("/x", kept)).err == 0


def test_an_event_comes_before_the_reply_that_shows_the_change(client: Client) -> None:
    """`ask` takes the last frame for the reply, so the event was in front of it."""
    client.exists("/x", watch=True)
    made = client.create("/x")
    assert client.look() == [(CREATED, "/x")]
    assert client.event_zxids == [made.zxid]


def test_a_multi_sends_its_events_in_the_order_of_its_parts(client: Client, watcher: Client) -> None:
    watcher.ask(AddWatchRequest("/", 1))
    client.ask(MultiRequest([CreateRequest("/x", b"", OPEN, 0), SetDataRequest("/x", b"", 0), DeleteRequest("/x", 1)]))
    assert watcher.look() == [(CREATED, "/x"), (CHANGED, "/x"), (DELETED, "/x")]
    client.ask(MultiRequest([CreateRequest("/x", b"", OPEN, 0), DeleteRequest("/none", 1)]))
    assert watcher.look() == []


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

HELD = ["data", "child", "persistent", "recursive"]
TYPE_OF = {
    "data": WatcherType.DATA,
    "child": WatcherType.CHILDREN,
    "persistent": WatcherType.PERSISTENT,
    "recursive": WatcherType.PERSISTENT_RECURSIVE,
}


@pytest.mark.parametrize("removed", HELD)
def test_each_kind_is_removed_for_itself(client: Client, watcher: Client, removed: str) -> None:
    """On servers from 3.9."""
    client.create("/x")
    for kind in HELD:
        watcher.ask(SET[kind]("/x"))
        client.ask(SET[kind]("/x"))
    assert watcher.ask(RemoveWatchesRequest("/x", TYPE_OF[removed])).err == 0
    assert watcher.ask(RemoveWatchesRequest("/x", TYPE_OF[removed])).err == -121
    for kind in HELD:
        assert watcher.ask(CheckWatchesRequest("/x", TYPE_OF[kind])).err == (-121 if kind == removed else 0)
        assert client.ask(CheckWatchesRequest("/x", TYPE_OF[kind])).err == 0


def test_any_removes_all(client: Client, watcher: Client) -> None:
    client.create("/x")
    for kind in HELD:
        watcher.ask(SET[kind]("/x"))
    assert watcher.ask(CheckWatchesRequest("/x", WatcherType.ANY)).err == 0
    assert watcher.ask(RemoveWatchesRequest("/x", WatcherType.ANY)).err == 0
    assert watcher.ask(CheckWatchesRequest("/x", WatcherType.ANY)).err == -121
    client.ask(DeleteRequest("/x", -1))
    assert watcher.look() == []


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
