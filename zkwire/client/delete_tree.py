"""The deletion of a tree: lists it level by level, then deletes it from the bottom, many nodes at a time.

Other clients may create and delete nodes of the tree meanwhile, and even create a new tree at its path.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        nodes, refusal = await _list_tree(requester, root, reply.children)
        deletes: list[Request[Any]] = [DeleteRequest(node, -1) for node in reversed(nodes)]
        if attempt == 0:
            # The usual case: no other client changes the tree, so that transactions succeed.
            if await _delete_in_transactions(requester, deletes):
                return
            continue
        # Another client changes the tree: delete each node by itself, so that one refusal does not undo the others.
        errors = [answer for answer in await _ask_all(requester, deletes) if isinstance(answer, ZooKeeperError)]
        remaining = [error for error in errors if not isinstance(error, NoNodeError)]
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


async def _list_tree(requester: Requester, root: str, names: Sequence[str]) -> tuple[list[str], NoAuthError | None]:
    """Return the server's paths of the whole tree, parents first, and a NoAuthError if some could not be listed.

    Arguments: `names`, the names of the children of `root`.
    """
    tree = [root]
    refusal = None
    level = [paths.join(root, name) for name in names]
    while level:
        answers = await _ask_all(requester, [GetChildrenRequest(path, False) for path in level])
        next_level: list[str] = []
        for path, answer in zip(level, answers, strict=True):
            if isinstance(answer, NoNodeError):  # another client was faster
                continue
            tree.append(path)
            if isinstance(answer, NoAuthError):
                refusal = answer  # not the end: if it has no children, the parent's permissions suffice to delete it
            elif isinstance(answer, ZooKeeperError):
                raise answer
            else:
                next_level += [paths.join(path, name) for name in answer.children]
        level = next_level
    return tree, refusal


async def _delete_in_transactions(requester: Requester, deletes: Sequence[Request[Any]]) -> bool:
    """Send the deletes as transactions, all in one write; return whether every transaction has succeeded."""
    batches = batched(deletes, min(_MOST_BYTES, requester.body_limit), _MOST_DELETES)
    answers = await _ask_all(requester, [MultiRequest(batch) for batch in batches])
    return all(
        not isinstance(answer, ZooKeeperError) and not any(isinstance(each, ErrorResult) for each in answer.results)
        for answer in answers
    )


async def _ask_all(requester: Requester, requests: Sequence[Request[Any]]) -> list[Any]:
    answers: list[Any] = []
    for start in range(0, len(requests), _MOST_UNANSWERED):
        answers += await requester.ask_all(requests[start : start + _MOST_UNANSWERED])
    return answers
