"""The tree by itself: undoing, what is due to go, and what it keeps count of."""

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zkwire.testing.memory.tree import CONTAINER, Node, Tree, as_int, ttl_owner
from zkwire.wire.records import OPEN_ACL, Stat

SESSION = 1 << 56
OWNERS = [0, SESSION, CONTAINER, ttl_owner(1000)]


def picture(tree: Tree) -> Any:
    """All that a client could ever see of it, and the counters behind it."""
    nodes = {path: (node.stat(), node.data, node.creates, set(node.names())) for path, node in tree.nodes.items()}
    owned = {owner: set(paths) for owner, paths in tree.ephemerals.items()}
    return nodes, owned, set(tree.containers), set(tree.ttls), tree.data_size


def play(tree: Tree, steps: list[tuple[int, int, int]], zxid: int) -> None:
    """Steps on a handful of paths, left out where they cannot be done."""
    names = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"]
    for kind, which, owner in steps:
        path = names[which]
        parent = path.rpartition("/")[0]
        node = tree.nodes.get(path)
        if kind == 0 and node is None and parent in tree.nodes:
            tree.create(path, b"d" * which, OPEN_ACL, OWNERS[owner], zxid, zxid)
        elif kind == 1 and node is not None and not node.children:
            tree.delete(path, zxid)
        elif kind == 2 and node is not None:
            tree.set_data(path, None if owner else b"longer", zxid, zxid)
        zxid += 1


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 3)), max_size=20)


@given(STEPS, STEPS)
def test_a_rollback_undoes_everything_since_begin(before: list[tuple[int, int, int]], undone: list[Any]) -> None:
    tree = Tree()
    play(tree, before, 1)
    kept = picture(tree)
    tree.begin()
    play(tree, undone, 100)
    tree.rollback()
    assert picture(tree) == kept


@given(STEPS, STEPS)
def test_what_is_committed_is_as_if_done_one_by_one(before: list[tuple[int, int, int]], done: list[Any]) -> None:
    tree, other = Tree(), Tree()
    for each in (tree, other):
        play(each, before, 1)
    tree.begin()
    play(tree, done, 100)
    tree.commit()
    play(other, done, 100)
    assert picture(tree) == picture(other)
    tree.rollback()
    assert picture(tree) == picture(other)


@given(STEPS)
def test_the_size_is_that_of_all_paths_and_data(steps: list[tuple[int, int, int]]) -> None:
    tree = Tree()
    play(tree, steps, 1)
    assert tree.data_size == sum(len(path) + len(node.data or b"") for path, node in tree.nodes.items() if path[1:])


def test_which_nodes_the_clean_up_deletes() -> None:
    """Containers go when they are empty after having had a child, TTL nodes when they are empty and old enough."""
    tree = Tree()
    for path, owner in (("/c", CONTAINER), ("/never", CONTAINER), ("/t", ttl_owner(1000)), ("/full", ttl_owner(1))):
        tree.create(path, b"", OPEN_ACL, owner, 1, 5000)
    for path in ("/c/x", "/full/x"):
        tree.create(path, b"", OPEN_ACL, 0, 2, 5000)
    assert list(tree.expired(6000)) == []
    tree.delete("/c/x", 3)
    assert list(tree.expired(6000)) == ["/c"]
    assert list(tree.expired(6001)) == ["/c", "/t"]


def test_the_kinds_of_owner() -> None:
    """A Stat shows an owner only if it is a session."""
    shown = [Node(b"", OPEN_ACL, owner, 7, 8) for owner in OWNERS]
    assert [Stat.decode(node.stat(), 0)[0].ephemeral_owner for node in shown] == [0, SESSION, 0, 0]
    assert [node.is_ephemeral for node in shown] == [False, True, False, False]
    assert [node.ttl for node in shown] == [None, None, None, 1000]
    assert ttl_owner(2**40 - 1) < 0


def test_the_server_counts_the_root_twice() -> None:
    """The real server finds its root under "/" and under ""."""
    assert Tree().count == 5


def test_numbers_wrap_as_javas() -> None:
    assert [as_int(number) for number in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1)] == [
        2**31 - 1,
        -(2**31),
        -(2**31),
        2**31 - 1,
    ]


def test_a_node_without_children_keeps_no_empty_container_for_them() -> None:
    tree = Tree()
    tree.create("/a", b"", OPEN_ACL, SESSION, 1, 1)
    assert tree.nodes["/a"].children is None
    tree.delete("/a", 2)
    assert tree.ephemerals == {}


def test_a_node_takes_less_than_a_kilobyte() -> None:
    """100,000 nodes are to fit into 200 MB with 1,000 sessions; half of these nodes are ephemeral."""
    count = 10_000
    tree = Tree()
    tracemalloc.start()
    try:
        for number in range(count):
            data = b"data of node %d" % number
            tree.create(f"/node-{number:010d}", data, OPEN_ACL, number % 2 and SESSION + number, number, 1000 + number)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tree.count == count + 5
    assert size / count < 1000
