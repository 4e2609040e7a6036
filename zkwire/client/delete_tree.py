"""The deletion of a tree: lists it level by level, then deletes it from the bottom, many nodes at a time.

Other clients may create and delete nodes of the tree meanwhile, and even create a new tree at its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from zkwire import paths
from zkwire.client.requester import Requester
from zkwire.errors import (
    ConnectionLostError,
    NoAuthError,
    NoNodeError,
    NotEmptyError,
    ServerError,
    ZooKeeperError,
)
from zkwire.wire.multi import ErrorResult, MultiRequest, batched
from zkwire.wire.requests import DeleteRequest, GetChildren2Request, GetChildrenRequest, Request

_PROTECTED: Final = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
_MOST_ROUNDS: Final = 10
# The server could take larger transactions.  But all other writes wait while it applies one.
_MOST_DELETES: Final = 1000  # of one transaction
_MOST_BYTES: Final = 256 * 1024  # of one transaction
_MOST_UNANSWERED: Final = 10_000  # requests under way at a time, to bound memory
# Bytes of memory for the paths of a tree: about four million nodes.  A server that lies can list nodes without end.
_MOST_LISTED: Final = 512 * 1024 * 1024
_NODE_SIZE: Final = 64  # bytes that a path takes beside its characters


async def delete_tree(requester: Requester, path: str) -> None:
    """Delete the node and all nodes below it; see Client.delete_tree."""
    root = requester.server_path(path)
    if root in _PROTECTED:
        raise ValueError(f"{path}: no server deletes its own node {root}; delete the trees below it one by one")
    root_czxid = None
    error: ZooKeeperError | None = None
    for attempt in range(_MOST_ROUNDS):
        try:
            reply = await requester.ask(GetChildren2Request(root, False))
        except NoNodeError:
            if root_czxid is None:
                raise
            return
        if root_czxid is None:
            root_czxid = reply.stat.czxid
        elif reply.stat.czxid != root_czxid:  # our tree is gone, and another client has created a new node at its path
            return
        listing = _Listing(path, root)
        listing.add(root, reply.children)
        await listing.complete(requester)
        nodes, refusal = listing.tree, listing.refusal
        deletes: list[Request[Any]] = [DeleteRequest(node, -1) for node in reversed(nodes)]
        if attempt == 0:
            # The usual case: no other client changes the tree, so that transactions succeed.
            if await _delete_in_transactions(requester, deletes):
                return
            continue
        # Another client changes the tree: delete each node by itself, so that one refusal does not undo the others.
        remaining: list[ZooKeeperError] = []

        def keep(answer: Any, remaining: list[ZooKeeperError] = remaining) -> None:
            if isinstance(answer, ZooKeeperError) and not isinstance(answer, NoNodeError):
                remaining.append(answer)

        await requester.ask_each(deletes, _MOST_UNANSWERED, keep)
        if not remaining:
            return
        for error in remaining:
            if not isinstance(error, NotEmptyError | ConnectionLostError):
                raise error
        if refusal is not None:  # the tree is not empty because of nodes that we may not list: no attempt can succeed
            raise refusal
        error = remaining[0]
    if isinstance(error, ServerError):
        error.hint = "nodes are created below it as fast as they are deleted"
    assert error is not None
    raise error


class _Listing:
    """The nodes of a tree, as the server lists them.

    Arguments: `path`, the caller's path of the tree; `root`, the server's.
    `tree` contains the server's paths of the nodes, parents first.  `refusal` is a NoAuthError if the children of some
    node could not be listed.
    """

    def __init__(self, path: str, root: str) -> None:
        self.tree = [root]
        self.refusal: NoAuthError | None = None
        self._path = path
        self._size = 0
        self._next_level: list[str] = []

    def add(self, parent: str, names: Sequence[str]) -> None:
        """Take the names of the children of `parent`.  Raises: ZooKeeperError when the tree is too large."""
        self._size += len(names) * (len(parent) + 1 + _NODE_SIZE) + sum(map(len, names))
        if self._size > _MOST_LISTED:
            raise ZooKeeperError(
                f"{self._path}: the tree has too many nodes to be listed at once: delete the trees below it one by one"
            )
        self._next_level += [paths.join(parent, name) for name in names]

    async def complete(self, requester: Requester) -> None:
        """List the tree level by level, from the nodes that were added."""
        while self._next_level:
            level, self._next_level = self._next_level, []
            asked = iter(level)

            def take(answer: Any, asked: Iterator[str] = asked) -> None:
                self._listed(next(asked), answer)

            await requester.ask_each((GetChildrenRequest(path, False) for path in level), _MOST_UNANSWERED, take)

    def _listed(self, path: str, answer: Any) -> None:
        if isinstance(answer, NoNodeError):  # another client was faster
            return
        self.tree.append(path)
        if isinstance(answer, NoAuthError):
            self.refusal = answer  # not the end: if it has no children, the parent's permissions suffice to delete it
        elif isinstance(answer, ZooKeeperError):
            raise answer
        else:
            self.add(path, answer.children)


async def _delete_in_transactions(requester: Requester, deletes: Sequence[Request[Any]]) -> bool:
    """Send the deletes as transactions, all in one write; return whether every transaction has succeeded."""
    batches = batched(deletes, min(_MOST_BYTES, requester.body_limit), _MOST_DELETES)
    refused = False

    def take(answer: Any) -> None:
        nonlocal refused
        if isinstance(answer, ZooKeeperError) or any(isinstance(each, ErrorResult) for each in answer.results):
            refused = True

    await requester.ask_each(map(MultiRequest, batches), _MOST_UNANSWERED, take)
    return not refused
