"""Writes: create modes, sequences, paths, versions, the order of errors, multi, and what takes a zxid.

What the recorded captures and the differential test compare with a real server is not repeated here.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.machine_client import EPHEMERAL, OPEN, SEQUENTIAL, Client, World
from zkwire.testing.memory.machine import Settings
from zkwire.wire.multi import ErrorResult, MultiReadRequest, MultiRequest
from zkwire.wire.records import ACL, Stat
from zkwire.wire.requests import (
    Create2Reply,
    Create2Request,
    CreateContainerRequest,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    GetAllChildrenNumberRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataReply,
    GetDataRequest,
    GetEphemeralsRequest,
    ReconfigRequest,
    SetACLRequest,
    SetDataRequest,
    StatReply,
    SyncRequest,
)

CLOSED_TO_ALL = [ACL(0, "world", "anyone")]


@pytest.fixture
def client() -> Client:
    return World().client()


def children(client: Client, path: str) -> list[str]:
    names: list[str] = client.ask(GetChildrenRequest(path, False)).reply.children
    return sorted(names)


# -- the start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "stat"),
    [
        ("/", Stat(0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)),
        ("/zookeeper", Stat(0, 0, 0, 0, 0, -2, 0, 0, 0, 2, 0)),
        ("/zookeeper/quota", Stat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
        ("/zookeeper/config", Stat(0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0)),
    ],
)
def test_the_nodes_that_are_there_from_the_start(client: Client, path: str, stat: Stat) -> None:
    """The four nodes of a new server have fixed Stats and cannot be deleted."""
    assert client.exists(path).reply.stat == stat
    assert client.ask(DeleteRequest(path, -1)).err == -8


# -- create -------------------------------------------------------------------------------------------


def test_sequence_numbers_count_every_child_that_ever_was(client: Client) -> None:
    """Deletes and failed creates do not count, and all prefixes share one counter."""
    client.create("/p")
    assert client.create("/p/a-", flags=SEQUENTIAL).reply.path == "/p/a-0000000000"
    client.create("/p/plain")
    client.create("/p/plain")
    client.ask(DeleteRequest("/p/plain", -1))
    assert client.create("/p/b-", flags=SEQUENTIAL | EPHEMERAL).reply.path == "/p/b-0000000002"
    assert client.create("/p/", flags=SEQUENTIAL).reply.path == "/p/0000000003"
    stat = client.exists("/p").reply.stat
    assert (stat.num_children, stat.cversion) == (3, 4 + 1)


def test_the_sequence_sticks_at_the_largest_number() -> None:
    """Servers from 3.6 on stop at the largest int, and answer that the node exists."""
    world = World()
    client = world.client()
    client.create("/p")
    world.machine.tree.nodes["/p"].creates = 2**31 - 1
    assert client.create("/p/n", flags=SEQUENTIAL).reply.path == "/p/n2147483647"
    assert client.create("/p/n", flags=SEQUENTIAL).err == -110
    assert client.create("/p/m", flags=SEQUENTIAL).reply.path == "/p/m2147483647"


@pytest.mark.parametrize("flags", range(-1, 8))
def test_flags_of_create2(flags: int) -> None:
    """A create with the flags of a container makes a plain node; TTL modes have an opcode of their own."""
    world = World()
    client = world.client()
    answer = client.create("/n", flags=flags)
    if not 0 <= flags <= 4:
        assert answer.err == -8
        return
    path = answer.reply.path
    assert path == ("/n0000000000" if flags & SEQUENTIAL else "/n")
    assert world.machine.tree.nodes[path].owner == (client.session_id if flags & EPHEMERAL and flags < 4 else 0)
    assert answer.reply.stat.ephemeral_owner == world.machine.tree.nodes[path].owner


@pytest.mark.parametrize("flags", range(8))
def test_create_container_makes_a_container_whatever_the_flags(flags: int) -> None:
    world = World()
    answer = world.client().ask(CreateContainerRequest("/c", b"", OPEN, flags))
    assert answer.err == (0 if flags <= 4 else -8)
    if flags <= 4:
        assert world.machine.tree.containers == {answer.reply.path}
        assert answer.reply.stat.ephemeral_owner == 0


@pytest.mark.parametrize(
    ("flags", "ttl", "err"),
    [
        (5, 1, 0),
        (6, 2**40 - 1, 0),
        (5, 2**40, -8),
        (5, 0, -8),
        (5, -1, -8),
        (0, 5, -8),
        (3, -1, -8),
        (4, 5, -8),
        (7, 5, -8),
    ],
)
def test_create_ttl(client: Client, flags: int, ttl: int, err: int) -> None:
    answer = client.ask(CreateTTLRequest("/t", b"", OPEN, flags, ttl))
    assert answer.err == err
    if not err:
        assert answer.reply.stat.ephemeral_owner == 0


def test_ttl_nodes_can_be_switched_off() -> None:
    client = World(Settings(ttl_nodes=False)).client()
    assert client.ask(CreateTTLRequest("/t", b"", OPEN, 5, 0)).err == -6
    assert client.create("/t", flags=5).err == -6


@pytest.mark.parametrize(
    ("path", "err"),
    [
        ("", -8),
        ("x", -8),
        ("/a\0b", -8),
        ("x/y", -101),
        ("/a/", -8),
        ("/a//b", -101),
        ("/a/.", -8),
        ("/a/..", -8),
        ("/missing/..", -101),
        ("//x", -8),
        ("/", -110),
        ("/a", -110),
        ("/a/\x01", -8),
        ("/a/\x7f", -8),
        ("/a/\ue000", -8),
        ("/a/\ufff0", -8),
        ("/a/😀", -8),
        ("/a/...", 0),
        ("/a/ ", 0),
        ("/a/\u00a0", 0),
        ("/a/\uffef", 0),
        ("/a/\uf900", 0),
        ("/zookeeper/mine", 0),
    ],
)
def test_paths(client: Client, path: str, err: int) -> None:
    """Which characters a path may have, and which error comes when the parent is missing, too."""
    client.create("/a")
    assert client.create(path).err == err


def test_errors_of_create_come_in_the_servers_order(client: Client) -> None:
    """A wrong ACL is found before a missing parent, a missing permission before a wrong path."""
    client.create("/closed", acl=CLOSED_TO_ALL)
    client.create("/eph", flags=EPHEMERAL)
    client.create("/there")
    assert client.create("no-slash", flags=9).err == -8
    assert client.create("/a//b", acl=[]).err == -114
    assert client.create("/there", acl=[]).err == -114
    assert client.create("/missing/a", acl=[]).err == -114
    assert client.create("/missing//a").err == -101
    assert client.create("/closed/..").err == -102
    assert client.create("/eph/..").err == -8
    assert client.create("/eph/a").err == -108


def test_versions_wrap(client: Client) -> None:
    """A version is a Java int: after the largest comes the smallest."""
    client.create("/a")
    client.world.machine.tree.nodes["/a"].version = 2**31 - 1
    assert client.set("/a", b"", 2**31 - 1).reply.stat.version == -(2**31)


def test_a_refused_write_takes_a_zxid_and_a_read_none(client: Client) -> None:
    """Each write counts, also one that is refused; a read and an empty multi read do not."""
    assert client.create("/missing/a").zxid == 2
    assert client.ask(ReconfigRequest("a", None, None, -1)).err == -123
    assert client.exists("/missing").zxid == 3
    assert client.ask(SyncRequest("no path")).reply.path == "no path"
    assert client.ask(MultiRequest([])).zxid == 4
    assert client.ask(MultiReadRequest([])).zxid == 4
    assert client.create("/a").zxid == 5


def test_counting_and_listing(client: Client) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        client.create(path, flags=EPHEMERAL if path in ("/a/b/c", "/ab") else 0)
    assert client.ask(GetAllChildrenNumberRequest("/a")).reply.number == 2
    assert client.ask(GetAllChildrenNumberRequest("/")).reply.number == 7
    prefixed: dict[str | None, Any] = {
        prefix: sorted(client.ask(GetEphemeralsRequest(prefix)).reply.ephemerals) for prefix in ("/a", "/a/", "", None)
    }
    assert prefixed == {"/a": ["/a/b/c", "/ab"], "/a/": ["/a/b/c"], "": ["/a/b/c", "/ab"], None: ["/a/b/c", "/ab"]}


def test_children_come_in_no_order_that_one_could_rely_on(client: Client) -> None:
    for number in range(9):
        client.create(f"/{number}")
    first, again = (client.ask(GetChildren2Request("/", False)).reply.children for _ in range(2))
    assert first == again
    assert first != sorted(first)
    assert sorted(first) == [*map(str, range(9)), "zookeeper"]


# -- multi --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "is_container", "kind"),
    [
        (CreateRequest("/n", b"", OPEN, 4), True, 15),
        (Create2Request("/n", b"", OPEN, 4), True, 15),
        (CreateContainerRequest("/n", b"", OPEN, 0), True, 15),
        (CreateTTLRequest("/n", b"", OPEN, 5, 9), False, 15),
        (CreateTTLRequest("/n", b"", OPEN, 0, 9), False, 1),
        (Create2Request("/n", b"", OPEN, 0), False, 15),
        (CreateRequest("/n", b"", OPEN, 0), False, 1),
    ],
)
def test_the_mode_of_a_part_decides_over_its_opcode(part: CreateRequest, is_container: bool, kind: int) -> None:
    """Observed on a real 3.9.5."""
    world = World()
    assert world.client().ask(MultiRequest([part])).reply.types == [kind]
    assert bool(world.machine.tree.containers) is is_container


@pytest.mark.parametrize(
    "part",
    [
        CreateRequest("/n", b"", OPEN, 7),
        Create2Request("/n", b"", OPEN, 5),
        CreateContainerRequest("/n", b"", OPEN, -1),
        GetDataRequest("/", False),
        SetACLRequest("/", OPEN, -1),
        DeleteRequest(None, -1),  # type: ignore[arg-type]
    ],
)
def test_a_part_that_ends_the_whole_multi(client: Client, part: Any) -> None:
    answer = client.ask(MultiRequest([part]))
    assert (answer.err, answer.body, answer.zxid) == (-5, b"", 2)


def test_a_multi_that_fails_leaves_no_trace(client: Client) -> None:
    """Nodes, counters, ephemerals and sizes are as before."""
    client.create("/p")
    client.create("/p/old", b"1")
    client.create("/p/mine", flags=EPHEMERAL)

    def whole() -> Any:
        nodes = client.world.machine.tree.nodes
        kept = {path: (node.stat(), node.creates, node.data, set(node.children or ())) for path, node in nodes.items()}
        tree = client.world.machine.tree
        return kept, {owner: set(paths) for owner, paths in tree.ephemerals.items()}, tree.containers, tree.data_size

    before = whole()
    answer = client.ask(
        MultiRequest(
            [
                CreateRequest("/p/new-", b"", OPEN, SEQUENTIAL | EPHEMERAL),
                SetDataRequest("/p/old", b"2222", 0),
                DeleteRequest("/p/mine", -1),
                CreateRequest("/p/c", b"", OPEN, 4),
                DeleteRequest("/p/old", 1),
                DeleteRequest("/p/none", -1),
                DeleteRequest("/p", -1),
            ]
        )
    )
    assert answer.err == 0
    assert answer.reply.results == [ErrorResult(code) for code in (0, 0, 0, 0, 0, -101, -2)]
    assert whole() == before
    assert client.create("/p/new-", flags=SEQUENTIAL).reply.path == "/p/new-0000000002"


def test_a_multi_read_answers_each_part_for_itself(client: Client) -> None:
    client.create("/closed", acl=CLOSED_TO_ALL)
    client.create("/a", b"1")
    parts = [GetDataRequest(path, True) for path in ("/a", "/missing", "/closed")]
    answer = client.ask(MultiReadRequest([*parts, GetChildrenRequest("/zookeeper", True)]))
    data, missing, closed, names = answer.reply.results
    assert isinstance(data, GetDataReply)
    assert (data.data, missing, closed) == (b"1", ErrorResult(-101), ErrorResult(-102))
    assert sorted(names.children) == ["config", "quota"]
    client.set("/a", b"2")
    assert client.look() == [], "its watch flags do nothing"


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (MultiReadRequest([DeleteRequest("/a", -1)]), "ffffffff 01 ffffffff"),
        (MultiReadRequest([GetDataRequest("/", False), DeleteRequest("/a", -1)]), ""),
    ],
)
def test_a_multi_read_with_a_write_in_it(client: Client, request_: MultiReadRequest, body: str) -> None:
    answer = client.ask(request_)
    assert (answer.err, answer.body) == (-5, bytes.fromhex(body))


# -- invariants ---------------------------------------------------------------------------------------

NAMES = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"])
WRITES = st.one_of(
    st.builds(Create2Request, NAMES, st.binary(max_size=3), st.just(OPEN), st.integers(0, 4)),
    st.builds(DeleteRequest, NAMES, st.integers(-1, 1)),
    st.builds(SetDataRequest, NAMES, st.binary(max_size=3), st.integers(-1, 1)),
)


@given(st.lists(WRITES | st.builds(MultiRequest, st.lists(WRITES, max_size=4)), max_size=25))
def test_the_invariants_of_stats_hold_after_any_writes(writes: list[Any]) -> None:
    """zxids grow by one with each write, czxid is not above mzxid and pzxid, and children are counted right."""
    client = World().client()
    zxid = 1
    given_names: set[str] = set()
    for write in writes:
        answer = client.ask(write)
        assert answer.zxid == zxid + 1
        zxid = answer.zxid
        if isinstance(answer.reply, Create2Reply):
            assert answer.reply.path in client.world.machine.tree.nodes
            given_names.add(answer.reply.path)
        elif isinstance(answer.reply, StatReply):
            assert answer.reply.stat.mzxid == zxid
    nodes = client.world.machine.tree.nodes
    for path in given_names & set(nodes):
        stat = client.exists(path).reply.stat
        assert stat.czxid <= stat.mzxid <= zxid
        assert stat.czxid <= stat.pzxid <= zxid
        names = children(client, path)
        assert stat.num_children == len(names) == len(set(names))
        assert stat.cversion >= stat.num_children
        assert all(f"{path}/{name}" in nodes for name in names)
