"""The tree of nodes: what a transaction does to it, and how a failed multi is undone.

The caller gives the zxid and the wall time (in ms) of each change.  The tree knows a session only as the number that
owns an ephemeral node, and knows no connection and no watch.  It checks nothing: the caller has done all the checks.
"""

import struct
from typing import Any, Final

from zkwire.wire.records import ACL, OPEN_ACL, READ_ONLY_ACL

# The owner of a node that is not ephemeral, as the real server stores it: 0 for a plain node, these for the others.
# They are negative, so they never equal a session id of a standalone server.
CONTAINER: Final = -(1 << 63)
_TTL: Final = -(1 << 56)
LONGEST_TTL: Final = (1 << 40) - 1

CONFIG_NODE: Final = "/zookeeper/config"
_QUOTA_NODE: Final = "/zookeeper/quota"
PROTECTED: Final = frozenset(("/", "/zookeeper", _QUOTA_NODE, CONFIG_NODE))

_MAX_INT: Final = 2**31 - 1
_STAT: Final = struct.Struct(">qqqqiiiqiiq")


def as_int(number: int) -> int:
    """Return `number` as Java's int keeps it: wrapped round to 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


def ttl_owner(ttl: int) -> int:
    """Return the owner number that encodes a time to live of `ttl` ms."""
    return _TTL | ttl


class Node:
    """One node.

    `creates` counts the children that were ever created: it gives the next sequence number and enters into cversion.
    `children` has the names as keys, in the order of creation.
    """

    def __init__(self, data: bytes | None, acl: tuple[ACL, ...], owner: int, zxid: int, time: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = zxid
        self.mzxid: int = zxid
        self.pzxid: int = zxid
        self.ctime = time
        self.mtime: int = time
        self.version = self.aversion = self.creates = 0
        self.children: dict[str, None] = {}

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node belongs to a session."""
        return self.owner > 0

    def is_due(self, now: int) -> bool:
        """Return whether a container or TTL node without children must be deleted at the wall time `now`, in ms."""
        if self.owner == CONTAINER:
            return self.creates > 0  # a container that never had a child stays
        return now - self.mtime > self.owner - _TTL

    def stat(self) -> bytes:
        """Return the node's Stat as it goes over the wire."""
        cversion = 2 * self.creates - len(self.children)
        return _STAT.pack(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            as_int(cversion),
            self.aversion,
            self.owner if self.owner > 0 else 0,
            len(self.data or b""),
            len(self.children),
            self.pzxid,
        )

    def names(self) -> list[str]:
        """Return the names of the children.

        The order is the same in every run, but neither alphabetical nor the order of creation: the real server promises
        no order, and a program that relies on one should fail in its tests.
        """
        names = list(self.children)
        return names[1::2] + names[::2]


class Tree:
    """Every node by its path; the root is found under "" too, as the real server's own index has it.

    Quotas are not counted.
    """

    def __init__(self) -> None:
        root = Node(b"", OPEN_ACL, 0, 0, 0)
        self.nodes: dict[str, Node] = {"": root, "/": root}
        # In a multi, each node that it has changed so far, and the values that the node had before.
        self._before: dict[str, tuple[Node | None, dict[str, Any]]] | None = None
        for path in ("/zookeeper", _QUOTA_NODE, CONFIG_NODE):
            self.create(path, b"", OPEN_ACL, 0, 0, 0)
        for path in ("", "/zookeeper"):  # the real server does not count its own nodes, which makes cversions below 0
            self.nodes[path].creates = 0
        config = self.nodes[CONFIG_NODE]
        config.acl = READ_ONLY_ACL
        config.aversion = -1

    def create(self, path: str, data: bytes | None, acl: tuple[ACL, ...], owner: int, zxid: int, time: int) -> Node:
        """Add the node `path`, which has its parent, and return it."""
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes[parent_path]
        self._remember(parent_path)
        self._remember(path)
        # At the largest int the counter of the real server stops, and then pzxid no longer changes either.
        if parent.creates < _MAX_INT:
            parent.creates += 1
            parent.pzxid = zxid
        node = self.nodes[path] = Node(data, acl, owner, zxid, time)
        parent.children[name] = None
        return node

    def delete(self, path: str, zxid: int) -> Node:
        """Remove the node `path`, which has no children, and return it."""
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes[parent_path]
        self._remember(parent_path)
        self._remember(path)
        node = self.nodes.pop(path)
        parent.pzxid = max(zxid, parent.pzxid)
        del parent.children[name]
        return node

    def set_data(self, path: str, data: bytes | None, zxid: int, time: int) -> None:
        """Give the node `path` new data."""
        node = self.nodes[path]
        self._remember(path)
        node.data = data
        node.version = as_int(node.version + 1)
        node.mzxid = zxid
        node.mtime = time

    def descendants(self, path: str) -> int:
        """Return how many nodes are below `path`."""
        if path == "/":
            return len(self.nodes) - 2
        prefix = path + "/"
        return sum(1 for other in self.nodes if other.startswith(prefix))

    def ephemerals(self, session_id: int) -> list[str]:
        """Return the paths of the nodes that a session owns, in the order of their creation."""
        return [path for path, node in self.nodes.items() if node.owner == session_id]

    def expired(self, now: int) -> list[str]:
        """Return the containers and TTL nodes that must be deleted at the wall time `now`, in ms."""
        return sorted(
            path for path, node in self.nodes.items() if node.owner < 0 and not node.children and node.is_due(now)
        )

    # -- a multi: all or nothing --------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to remember each node before its first change."""
        self._before = {}

    def commit(self) -> None:
        """Keep the changes since `begin`."""
        self._before = None

    def rollback(self) -> None:
        """Undo the changes since `begin`, changes of the sequence counters included."""
        before, self._before = self._before or {}, None
        for path, (node, values) in before.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                vars(node).update(values)
                self.nodes[path] = node

    def _remember(self, path: str) -> None:
        path = path or "/"
        if self._before is not None and path not in self._before:
            node = self.nodes.get(path)
            self._before[path] = node, {} if node is None else {**vars(node), "children": dict(node.children)}
