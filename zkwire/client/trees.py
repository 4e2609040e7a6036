"""The verbs that create a path with all nodes above it, and delete a node with all nodes below it.

A tree is listed level by level, then deleted from the bottom, many nodes at a time.  Other clients may create and
delete nodes of the tree meanwhile, and even create a new tree at its path.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from zkwire import errors, paths
from zkwire.client.operations import Create
from zkwire.client.requester import Requester, Verbs, creation, without_frames
from zkwire.wire import requests as wire
from zkwire.wire.multi import MultiReply, MultiRequest, batched
from zkwire.wire.records import ACL, OPEN_ACL
from zkwire.wire.watch_table import WatchKind

_PROTECTED: Final = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
_MOST_ROUNDS: Final = 10
# The server could take larger transactions.  But all other writes wait while it applies one.
_MOST_DELETES: Final = 1000  # of one transaction
_MOST_BYTES: Final = 256 * 1024  # of one transaction
# Bytes of memory for the paths of a tree: about four million nodes.  A server that lies can list nodes without end.
_MOST_LISTED: Final = 512 * 1024 * 1024
_MOST_UNANSWERED: Final = 10_000  # requests, to bound memory
_NODE_SIZE: Final = 64  # bytes that a path takes beside its characters


class Trees(Verbs):
    """The verbs of a Client that are about a path of nodes, or a tree."""

    async def ensure_path(self, path: str, *, container: bool = False, acl: Sequence[ACL] = OPEN_ACL) -> None:
        """Create the node and every missing node above it, the chroot included; nodes that exist stay as they are.

        What exists is not written: a path that exists needs no permission, and no server that can write.  After a lost
        connection it looks again.  It believes what its server shows: `sync` first if another client may have deleted.

        Args:
            path: The node.
            container: Whether the node itself, if missing, becomes a container; those above are persistent.
            acl: The access control list of the nodes that are created.

        Raises:
            NoAuthError: If the ACL of a node does not allow to create the next one.

        Cancellation:
            The nodes that it has created stay.

        Requests:
            exists for the node and all above it, in one write; then create for those that are missing, in another one.
        """
        await without_frames(self._ensure(self._server_path(path), acl, container=container))

    async def delete_tree(self, path: str) -> None:
        """Delete the node and all nodes below it (requests: getChildren, multi, delete).

        It is not a transaction: other clients may see a part of the tree gone.  It copes with clients that create and
        delete nodes in the tree meanwhile, unless they create without end.  A new node that another client creates at
        the path after the deletion is left alone.

        Args:
            path: The node.

        Raises:
            NoNodeError: If there is no node at the beginning.
            NotEmptyError: If nodes are created faster than they are deleted.
            NoAuthError: If a node may not be deleted; a part of the tree may be deleted already.
            ZooKeeperError: If the tree has more than about four million nodes; nothing is deleted.
            ValueError: If it is the root or /zookeeper, which no server deletes.

        Cancellation:
            The nodes that are not yet deleted stay.
        """
        root = self._server_path(path)
        if root in _PROTECTED:
            raise ValueError(f"{path}: no server deletes its own node {root}; delete the trees below it one by one")
        await without_frames(self._delete_tree(path, root))

    async def _delete_tree(self, path: str, root: str) -> None:
        requester = self._requester
        root_czxid = None
        remaining: list[errors.ZooKeeperError] = []
        for attempt in range(_MOST_ROUNDS):
            try:
                reply = await requester.ask(wire.GetChildren2Request(root, False))
            except errors.NoNodeError:
                if root_czxid is None:
                    raise
                return
            if root_czxid is None:
                root_czxid = reply.stat.czxid
            elif reply.stat.czxid != root_czxid:  # our tree is gone, and another client has made a new node at its path
                return
            listing = _Listing(path, root)
            listing.add(root, reply.children)
            await listing.complete(requester)
            deletes: list[wire.Request[Any]] = [wire.DeleteRequest(node, -1) for node in reversed(listing.tree)]
            if attempt == 0:
                # The usual case: no other client changes the tree, so that transactions succeed.
                batches = batched(deletes, min(_MOST_BYTES, requester.body_limit), _MOST_DELETES)
                if not await _errors(requester, map(MultiRequest, batches)):
                    return
                continue
            # Another client changes the tree: delete each node by itself, so that one refusal does not undo the others.
            failed = await _errors(requester, deletes)
            remaining = [error for error in failed if not isinstance(error, errors.NoNodeError)]
            if not remaining:
                return
            for error in remaining:
                if not isinstance(error, errors.NotEmptyError | errors.ConnectionLostError):
                    raise error
            if listing.refusal is not None:  # nodes that we may not list keep the tree: no attempt can succeed
                raise listing.refusal
        error = remaining[0]
        if isinstance(error, errors.ServerError):
            error.hint = "nodes are created below it as fast as they are deleted"
        raise error

    async def _ensure(self, path: str, acl: Sequence[ACL], *, container: bool = False) -> None:
        """Create the node at the server's `path`, and every missing node above it."""
        above = paths.ancestors(path)
        creates = [creation("", Create(each, container=container and each == path, acl=acl)) for each in above]
        while True:
            found = await self._answers([wire.ExistsRequest(each, False) for each in above])
            missing = [each for each, stat in zip(creates, found, strict=True) if not isinstance(stat, wire.StatReply)]
            # If this is cancelled, nodes that exist by now stay: another client may have found one already.
            answers = await self._answers(missing)
            failures = [
                each
                for each in answers
                if isinstance(each, errors.ZooKeeperError) and not isinstance(each, errors.NodeExistsError)
            ]
            if not failures or failures[-1] is not answers[-1]:
                return
            if isinstance(answers[-1], errors.NoAuthError):
                # The server checks the permission to create first: NoAuth says nothing about whether the node exists.
                with contextlib.suppress(errors.NoNodeError):
                    await self._requester.ask(wire.ExistsRequest(path, False))
                    return
            # NoNode: another client has deleted a node above meanwhile.
            if not isinstance(failures[0], errors.NoNodeError | errors.ConnectionLostError):
                raise failures[0]

    async def _answers(self, requests: Iterable[wire.Request[Any]]) -> list[Any]:
        return await self._requester.ask_all([(request, None, WatchKind.DATA) for request in requests])


class _Listing:
    """The nodes of a tree, as the server lists them.

    Args:
        path: The caller's path of the tree.
        root: The server's path of it.

    Attributes:
        tree: The server's paths of the nodes, parents first.
        refusal: A NoAuthError if the children of some node could not be listed.
    """

    def __init__(self, path: str, root: str) -> None:
        self.tree = [root]
        self.refusal: errors.NoAuthError | None = None
        self._path = path
        self._size = 0
        self._next_level: list[str] = []

    def add(self, parent: str, names: Sequence[str]) -> None:
        """Add the children of `parent`, or raise ZooKeeperError when the tree is too large."""
        self._size += len(names) * (len(parent) + 1 + _NODE_SIZE) + sum(map(len, names))
        if self._size > _MOST_LISTED:
            raise errors.ZooKeeperError(
                f"{self._path}: the tree has too many nodes to be listed at once: delete the trees below it one by one"
            )
        self._next_level += [paths.join(parent, name) for name in names]

    async def complete(self, requester: Requester) -> None:
        """List the tree level by level, from the nodes that were added."""
        while self._next_level:
            level, self._next_level = self._next_level, []
            await ask_each(requester, (wire.GetChildrenRequest(path, False) for path in level), self._listed)

    def _listed(self, request: wire.Request[Any], answer: Any) -> None:
        path = request.subject or ""
        if isinstance(answer, errors.NoNodeError):  # another client was faster
            return
        self.tree.append(path)
        if isinstance(answer, errors.NoAuthError):
            self.refusal = answer  # not the end: if it has no children, the parent's permissions suffice to delete it
        elif isinstance(answer, errors.ZooKeeperError):
            raise answer
        else:
            self.add(path, answer.children)


async def _errors(requester: Requester, requests: Iterable[wire.Request[Any]]) -> list[errors.ZooKeeperError]:
    """Send deletes, or transactions of deletes, all in one write, and return the errors of those that failed."""
    failed: list[errors.ZooKeeperError] = []

    def take(request: wire.Request[Any], answer: Any) -> None:
        if isinstance(answer, MultiReply) and answer.error:
            answer = requester.refusal(answer.error, request)
        if isinstance(answer, errors.ZooKeeperError):
            failed.append(answer)

    await ask_each(requester, requests, take)
    return failed


async def ask_each(
    requester: Requester, requests: Iterable[wire.Request[Any]], take: Callable[[wire.Request[Any], Any], None]
) -> None:
    """Send `requests`, and call `take` with each one and its reply, ServerError or ConnectionLostError, in order.

    Unlike `Requester.ask_all` it keeps no replies, so that they may be many and large, and leaves no more than 10,000
    unanswered.  If `take` raises an error, the requests that are left are abandoned.
    """
    pending: deque[tuple[asyncio.Future[Any], wire.Request[Any]]] = deque()

    async def take_first() -> None:
        future, request = pending[0]
        with contextlib.suppress(errors.ServerError, errors.ConnectionLostError):
            await future
        pending.popleft()
        error = future.exception()
        take(request, future.result() if error is None else requester.failure(error))

    try:
        for request in requests:
            if len(pending) == _MOST_UNANSWERED:
                await take_first()
            pending.append((requester.submit(request, None, WatchKind.DATA), request))
        while pending:
            await take_first()
    except BaseException as error:
        # Those two were given to `take`, and have the caller's path by now.
        if not isinstance(error, errors.ServerError | errors.ConnectionLostError):
            requester.strip(error)
        for future, request in pending:
            requester.let_go(future, request)
        raise
