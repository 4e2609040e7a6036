"""Items that a consumer skips because no consumer, or not this one, can take them.

Any client that may create nodes below the queue's node can make such an item, or hide an item with a node in `taken`.
Without this, such an item would be the first one for ever, and the items after it would not be served.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import zkwire
from recipes.common.retrying import read, result, until_answered
from recipes.common.warn_once import WarnOnce
from recipes.queue.nodes import Nodes
from zkwire import GetData, Node, ZooKeeperError, join_path

_log = logging.getLogger(__name__)

# In seconds.  A cause may be removed by hand, and no event reports that, so the item is tried again by then, by a
# consumer that waits, too.
_TRIED_AGAIN_AFTER: Final = 60.0
# In seconds: the longest pause between two tries of an item that is too large.
_LONGEST_PAUSE: Final = 3600.0
# Taken nodes to read at a time, each with its data.
_MOST_READ: Final = 16

UNREADABLE: Final = "may not be read by this client (its ACL)"
UNWRITABLE: Final = "may not be written by this client (its ACL)"
TOO_LARGE: Final = "cannot be read: its data may be larger than the `reply_limit` of zkwire.connect"
TOO_LONG: Final = "does not fit into a transaction, with its name"
HAS_CHILDREN: Final = "has children, so that it cannot be deleted: delete them, or the item with delete_tree"


class UnusableItemError(ZooKeeperError):
    """The item cannot be taken, and is skipped; never raised to the caller of a queue.

    Args:
        why: The end of a sentence that begins with the item's path.
    """


def checked(item: object) -> Node | None:
    """Return the item that was read, None if it is gone, or raise the error of its read.

    Raises:
        UnusableItemError: if it cannot be taken.
    """
    if isinstance(item, zkwire.NoAuthError):
        raise UnusableItemError(UNREADABLE)
    if isinstance(item, zkwire.ProtocolError):
        raise UnusableItemError(TOO_LARGE)
    node: Node | None = result(item)
    if node is not None and node.stat.num_children:
        raise UnusableItemError(HAS_CHILDREN)
    return node


class Quarantine:
    """The items that one consumer skips.

    Each is reported once in the log.  After a minute it is tried again; one that is too large ever more seldom, at
    last once an hour.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._until: dict[str, float] = {}  # by the item's name, on the loop's clock
        # Of the items that were too large, in seconds.  Each try breaks the connection, and so fails the writes that
        # other tasks have in flight.
        self._pauses: dict[str, float] = {}
        # The items whose taken nodes were read, and until when they are believed to be a consumer's: that consumer may
        # go, and another client may create a persistent node of that name.
        self._claimed: dict[str, float] = {}
        self._warnings = WarnOnce(_log, f"the queue {nodes.path}")

    def add(self, name: str, why: str) -> None:
        """Skip the item `name` from now on."""
        pause = _TRIED_AGAIN_AFTER
        if why.endswith(TOO_LARGE):
            pause = self._pauses[name] = min(2 * self._pauses.get(name, pause / 2), _LONGEST_PAUSE)
        self._until[name] = asyncio.get_running_loop().time() + pause
        self._warnings.warn(self._nodes.entry(name), f"{why}; this consumer skips it, and takes the items after it")

    def among(self, names: Iterable[str]) -> set[str]:
        """Return those of the listed `names` to skip, and forget the items that are not listed any more."""
        if not self._until and not self._pauses:
            return set()
        now = asyncio.get_running_loop().time()
        listed = (self._until.keys() | self._pauses.keys()) & set(names)
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in listed}
        self._until = {name: until for name, until in self._until.items() if name in listed and until > now}
        return set(self._until)

    @property
    def next_try(self) -> float | None:
        """When to try an item again, or to read again what hides it, on the loop's clock; None if there is none."""
        now = asyncio.get_running_loop().time()
        # A claim of the past is read again only if a listing still shows that all items are claimed.
        claims = [until for until in self._claimed.values() if until > now]
        return min([*self._until.values(), *claims], default=None)

    async def free_hidden(self, names: Iterable[str], taken: Iterable[str]) -> None:
        """Free the items that a persistent node in `taken` hides; the watch on `taken` reports each that was freed.

        The taken nodes of consumers, kazoo's too, are ephemeral: a persistent one would hide its item for ever.

        Args:
            names: The names of all items, as listed.
            taken: The names of all nodes in `taken`, as listed.
        """
        hidden, now = set(names).intersection(taken), asyncio.get_running_loop().time()
        self._claimed = {name: until for name, until in self._claimed.items() if until > now}
        unknown = sorted(hidden - self._claimed.keys())
        for first in range(0, len(unknown), _MOST_READ):
            some = unknown[first : first + _MOST_READ]
            nodes = await read(self._nodes.zk, *(GetData(self._nodes.taken_node(name)) for name in some))
            for name, node in zip(some, nodes, strict=True):
                if _is_persistent(node):
                    await self._free(name)
                self._claimed[name] = now + _TRIED_AGAIN_AFTER

    async def _free(self, name: str) -> None:
        """Delete the persistent node that hides the item, if this client may."""
        path = self._nodes.taken_node(name)
        try:
            await until_answered(self._nodes.zk, lambda: self._delete(path), repeats=True)
        except (zkwire.TransactionError, ValueError) as refused:  # ValueError: its name is too long
            # Read it once more: a delete whose answer was lost may have been carried out, and the ACL of a consumer's
            # node refuses a child before the server looks at its kind.
            (node,) = await read(self._nodes.zk, GetData(path))
            if _is_persistent(node):
                why = f"cannot be deleted: {getattr(refused, 'cause', refused)}"
                self._warnings.warn(path, f"is not ephemeral, so it hides an item for ever, and {why}")
        else:
            self._warnings.warn(path, "was not ephemeral, so no consumer has made it; it was deleted, to free its item")

    async def _delete(self, path: str) -> None:
        # Since the read, another client may have deleted the node, and a consumer may have taken the item.  So the
        # transaction proves that the node is not ephemeral: an ephemeral node cannot have a child.
        child = join_path(path, "is-not-ephemeral")
        transaction = self._nodes.zk.transaction()
        transaction.create(child)
        transaction.delete(child)
        transaction.delete(path)
        await transaction.commit()


def _is_persistent(node: object) -> bool:
    """Return whether the read of a node has shown that it belongs to no session."""
    return isinstance(node, Node) and not node.stat.ephemeral_owner
