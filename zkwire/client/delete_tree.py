"""Deleting a tree: listed level by level, deleted from below, many nodes at a time.

Knows what others may do meanwhile: create, delete, and put another tree in the place of the one that went.
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
# A transaction holds up all other writes while it is applied, so that it should not take what it could.
_MOST_AT_ONCE: Final = 1000
_MOST_BYTES: Final = 256 * 1024
_IN_MEMORY: Final = 10_000  # requests whose answers are waited for at a time


async def delete_tree(requester: Requester, path: str) -> None:
    """Delete the node and all that is below it; see Client.delete_tree."""
    root = requester.server_path(path)
    if root in _PROTECTED:
        raise ValueError(f"{path}: no server deletes its own node {root}; delete the trees below it one by one")
    born = None
    error: ZooKeeperError | None = None
    for attempt in range(_MOST_ROUNDS):
        try:
            top = await requester.ask(GetChildren2Request(root, False))
        except NoNodeError:
            if born is None:
                raise
            return
        if born is None:
            born = top.stat.czxid
        elif top.stat.czxid != born:  # the tree is gone: what stands here is somebody's new one
            return
        nodes, hidden = await _below(requester, root, top.children)
        deletes: list[Request[Any]] = [DeleteRequest(node, -1) for node in reversed(nodes)]
        if attempt == 0:
            # As nearly always, nobody else is at work here.
            if await _delete_together(requester, deletes):
                return
            continue
        # Somebody is: each delete for itself, so that no refused one holds up the others.
        errors = [error for error in await _all(requester, deletes) if isinstance(error, ZooKeeperError)]
        left = [error for error in errors if not isinstance(error, NoNodeError)]
        if not left:
            return
        for error in left:
            if not isinstance(error, NotEmptyError | ConnectionLostError):
                raise error
        if hidden is not None:
            raise hidden
        error = left[0]
    if isinstance(error, ServerError):
        error.hint = "nodes are created below it as fast as they are deleted"
    assert error is not None
    raise error


async def _below(requester: Requester, root: str, names: Sequence[str]) -> tuple[list[str], NoAuthError | None]:
    """Return the server's paths of the whole tree, parents first, and the refusal if some could not be listed."""
    found = [root]
    hidden = None
    level = [paths.join(root, name) for name in names]
    while level:
        lists = await _all(requester, [GetChildrenRequest(path, False) for path in level])
        below: list[str] = []
        for path, answer in zip(level, lists, strict=True):
            if isinstance(answer, NoNodeError):
                continue
            found.append(path)
            if isinstance(answer, NoAuthError):
                hidden = answer  # to delete it, the permission of its parent is enough, if it has no children
            elif isinstance(answer, ZooKeeperError):
                raise answer
            else:
                below += [paths.join(path, name) for name in answer.children]
        level = below
    return found, hidden


async def _delete_together(requester: Requester, deletes: Sequence[Request[Any]]) -> bool:
    """Delete in transactions, all of them sent at once; return whether every one was carried out."""
    answers = await _all(requester, [MultiRequest(batch) for batch in batched(deletes, _MOST_BYTES, _MOST_AT_ONCE)])
    return all(
        not isinstance(answer, ZooKeeperError) and not any(isinstance(each, ErrorResult) for each in answer.results)
        for answer in answers
    )


async def _all(requester: Requester, requests: Sequence[Request[Any]]) -> list[Any]:
    answers: list[Any] = []
    for at in range(0, len(requests), _IN_MEMORY):
        answers += await requester.ask_all(requests[at : at + _IN_MEMORY])
    return answers
