"""The tree by itself: a multi that fails is undone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zkwire.testing.memory.tree import CONTAINER, Tree, ttl_owner
from zkwire.wire.records import OPEN_ACL

SESSION = 1 << 56
OWNERS = [0, SESSION, CONTAINER, ttl_owner(1000)]


def picture(tree: Tree) -> Any:
    """All that a client could ever see of it, and its counters."""
    nodes = {path: (node.stat(), node.data, node.creates, set(node.names())) for path, node in tree.nodes.items()}
    return nodes, set(tree.ephemerals(SESSION))


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
