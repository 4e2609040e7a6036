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

from zkwire import (
    Client,
    GetChildren,
    GetChildrenAndStat,
    GetData,
    Node,
    NoNodeError,
    ServerError,
    SessionError,
    Sync,
    join_path,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_AT_A_TIME: Final = 16  # nodes that are read: each may have a megabyte of data
_PAUSE: Final = 0.1  # seconds to wait after a transient refusal, before the next try

_HINT: Final = (
    "the answer to an earlier write was lost, and the client cannot find out what became of that write:"
    " it may have been carried out"
)


class Found(NamedTuple):
    """A node that was found after the answer to its create was lost.

    Attributes: its `name` and its `node`; `answers`, what each of the reads got that looked for it.
    """

    name: str
    node: Node
    answers: list[Any]


async def read(zk: Client, path: str, *reads: GetData | GetChildren | GetChildrenAndStat) -> list[Any]:
    """Return the answer to each of `reads`, as `Client.pipeline` does, after a sync; wait while refusals are transient.

    Arguments: `path`, for the sync: everything that was written there before this call is seen by the reads.  If the
    sync is refused, for example by a server without a quorum, the answers to the reads behind it prove nothing.
    Raises: SessionError; the error with which the sync was refused.
    """
    while True:
        answers = await zk.pipeline([Sync(path), *reads])
        if not any(isinstance(answer, ServerError) and answer.is_transient for answer in answers):
            result(answers[0])
            return answers[1:]
        await asyncio.sleep(_PAUSE)


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
        error.hint = _HINT
        raise
    # Other clients may create nodes of that name, too: go on until one belongs to our session (pitfall 89).
    other: Found | None = None
    refused: dict[str, ServerError] = {}
    names = [name for name in result(answers[0]) or () if name.startswith(unique)]
    for start in range(0, len(names), _MOST_AT_A_TIME):
        batch = names[start : start + _MOST_AT_A_TIME]
        reads = [GetData(join_path(path, name)) for name in batch]
        for name, asked, answer in zip(batch, reads, await read(zk, path, *reads), strict=True):
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


def result(answer: Any) -> Any:
    """Return an answer of `read`, None if the node does not exist.

    Raises: the error if the server refused the read, with a hint that the earlier write may have been carried out.
    """
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, ServerError):
        answer.hint = _HINT
    if isinstance(answer, BaseException):
        raise answer
    return answer


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
