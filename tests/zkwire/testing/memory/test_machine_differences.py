"""Differences from the real server that were found by playing to both, each with the test that keeps it mended."""

import copy

import pytest

from zkwire.testing.memory.quotas import moved
from zkwire.testing.memory.tree import Tree
from zkwire.wire.records import OPEN_ACL

PLACE = "/zookeeper/quota/a"
LIMITS, STATISTICS = f"{PLACE}/zookeeper_limits", f"{PLACE}/zookeeper_stats"


def limited_tree() -> Tree:
    """A tree with a quota on /a, in which there are two nodes with three bytes."""
    tree = Tree()
    for zxid, (path, data) in enumerate({"/a": b"1", "/a/x": b"22", PLACE: b"", LIMITS: b"", STATISTICS: b""}.items()):
        tree.create(path, data, OPEN_ACL, 0, zxid, zxid)
    return tree


def test_what_is_below_a_quota_is_counted_from_when_the_statistics_are_made() -> None:
    # zkCli's listquota showed 0 nodes.
    tree = limited_tree()
    assert tree.nodes[STATISTICS].data == b"count=2,bytes=3"
    tree.create("/a/y", b"333", OPEN_ACL, 0, 10, 10)
    tree.set_data("/a", None, 11, 11)
    tree.delete("/a/x", 12)
    assert tree.nodes[STATISTICS].data == b"count=2,bytes=3"
    tree.delete("/a/y", 13)
    assert tree.nodes[STATISTICS].data == b"count=1,bytes=0"
    assert tree.nodes[STATISTICS].mzxid == 4


def test_a_node_whose_name_begins_like_that_of_a_limited_one_is_not_counted() -> None:
    tree = limited_tree()
    tree.create("/ab", b"1", OPEN_ACL, 0, 10, 10)
    assert tree.nodes[STATISTICS].data == b"count=2,bytes=3"


def test_the_innermost_quota_counts() -> None:
    tree = limited_tree()
    for name in ("", "/zookeeper_limits", "/zookeeper_stats"):
        tree.create(f"{PLACE}/x{name}", b"", OPEN_ACL, 0, 10, 10)
    tree.create("/a/x/y", b"4444", OPEN_ACL, 0, 11, 11)
    assert tree.nodes[STATISTICS].data == b"count=2,bytes=3"
    assert tree.nodes[f"{PLACE}/x/zookeeper_stats"].data == b"count=2,bytes=6"


def test_no_quota_is_made_by_limits_directly_below_the_node_of_quotas() -> None:
    tree = limited_tree()
    tree.create("/zookeeper/quota/zookeeper_limits", b"", OPEN_ACL, 0, 10, 10)
    tree.create("/zookeeper/quota/zookeeper_stats", b"", OPEN_ACL, 0, 11, 11)
    tree.create("/b", b"1", OPEN_ACL, 0, 12, 12)
    assert tree.nodes["/zookeeper/quota/zookeeper_stats"].data == b""


def test_limits_without_statistics_count_nowhere() -> None:
    tree = limited_tree()
    tree.delete(STATISTICS, 10)
    tree.create("/a/y", b"1", OPEN_ACL, 0, 11, 11)
    tree.create(STATISTICS, b"", OPEN_ACL, 0, 12, 12)
    assert tree.nodes[STATISTICS].data == b"count=3,bytes=4"


def test_a_refused_multi_undoes_the_counting_and_the_quotas_too() -> None:
    tree = limited_tree()
    size, nodes = tree.data_size, copy.deepcopy({path: node.data for path, node in tree.nodes.items()})
    tree.begin()
    tree.create("/a/y", b"333", OPEN_ACL, 0, 10, 10)
    tree.delete(LIMITS, 10)
    tree.create("/a/z", b"1", OPEN_ACL, 0, 10, 10)
    for name in ("", "/zookeeper_limits", "/zookeeper_stats"):
        tree.create(f"/zookeeper/quota/b{name}", b"", OPEN_ACL, 0, 10, 10)
    tree.create("/b", b"1", OPEN_ACL, 0, 10, 10)
    tree.rollback()
    assert (tree.data_size, {path: node.data for path, node in tree.nodes.items()}) == (size, nodes)
    tree.create("/b", b"1", OPEN_ACL, 0, 11, 11)
    tree.create("/a/y", b"1", OPEN_ACL, 0, 12, 12)
    assert tree.nodes[STATISTICS].data == b"count=3,bytes=4"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (b"count=1,bytes=2", b"count=2,bytes=12"),
        (b"count=-1,bytes=-1=;byteHardLimit=-1", b"count=0,bytes=9"),
        (b"", b"count=0,bytes=9"),
        (None, b"count=0,bytes=9"),
        (b"no statistics", b"count=0,bytes=9"),
    ],
)
def test_the_text_of_statistics(text: bytes | None, meant: bytes) -> None:
    assert moved(text, 1, 10) == meant
