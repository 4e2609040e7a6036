"""Reads that find out what became of a write whose answer was lost with its connection.

Two things are easily forgotten, so all recipes share these functions.  The server that answers now may lag behind the
server that carried out the write: hence the sync ahead of each read.  And it may refuse to answer for a while, for
example when it is overloaded: hence the repeated tries.  A recipe that took either for "the write was not carried out"
would leave a node behind that no client knows, and other clients would wait for it until its session ends.

That the write is not carried out after the read is the session's affair: see zkwire/session/late_writes.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

from recipes.common.retrying import read_synced, result
from zkwire import Client, GetData, Node, ServerError, SessionError, join_path

__all__ = ["Found", "find_created", "late_result", "read", "result"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

read = read_synced

_MOST_AT_A_TIME: Final = 16  # nodes that are read: each may have a megabyte of data


class Found(NamedTuple):
    """A node that was found after the answer to its create was lost.

    Attributes: its `name` and its `node`; `answers`, what each of the reads got that looked for it.
    """

    name: str
    node: Node
    answers: list[Any]


async def find_created(zk: Client, path: str, unique: str, look: Callable[[], Awaitable[list[Any]]]) -> Found | None:
    """Look for the node below `path` whose name begins with `unique`; None if it was never created, or is gone.

    It belongs to the present session if any such node does; otherwise to a session that has expired since, or to
    another client: compare `stat.ephemeral_owner`.
    Arguments: `look`, which calls `read` with the list of the children of `path` first, and returns the answers.
    Raises: the refusal of the server to show the node, if none that it shows is ours; those refused are removed.
    Cancellation: the search goes on in a task of its own, and removes the node.
    """
    searching = asyncio.get_running_loop().create_task(_search(zk, path, unique, look))
    try:
        return await asyncio.shield(searching)
    except asyncio.CancelledError:
        searching.add_done_callback(lambda _: _discard_found(zk, path, searching))
        raise


def _discard_found(zk: Client, path: str, searching: asyncio.Task[Found | None]) -> None:
    found = late_result(searching)
    if found is not None:
        zk.discard(join_path(path, found.name))


async def _search(zk: Client, path: str, unique: str, look: Callable[[], Awaitable[list[Any]]]) -> Found | None:
    try:
        answers = await look()
    except ServerError as error:
        result(error)
        raise
    # Other clients may create nodes of that name, too: go on until one belongs to our session (pitfall 89).
    other: Found | None = None
    refused: dict[str, ServerError] = {}
    names = [name for name in result(answers[0]) or () if name.startswith(unique)]
    for start in range(0, len(names), _MOST_AT_A_TIME):
        batch = names[start : start + _MOST_AT_A_TIME]
        reads = [GetData(join_path(path, name)) for name in batch]
        for name, asked, answer in zip(batch, reads, await read_synced(zk, path, *reads), strict=True):
            try:
                node: Node | None = result(answer)
            except ServerError as error:
                refused[asked.path] = error
                continue
            if node is not None:
                found = Found(name, node, answers)
                if node.stat.ephemeral_owner == zk.session_id:
                    return found
                if other is None:
                    other = found
    for at in refused:  # one of them may be ours
        zk.discard(at)
    for refusal in refused.values():
        raise refusal
    return other


def late_result(search: asyncio.Task[T]) -> T | None:
    """Return the result of a finished `search` whose caller was cancelled, None if it failed or was cancelled itself.

    An error is logged, because there is no caller left that could receive it.
    """
    if search.cancelled():
        return None
    error = search.exception()
    if error is None:
        return search.result()
    if not isinstance(error, SessionError):  # when the session ends, the server deletes what the write created
        _log.warning("the caller was cancelled before this error could be raised: %s", error)
    return None
