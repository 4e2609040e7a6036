"""Reads that find out what became of a write whose answer was lost with its connection.

Two things are easily forgotten, so all recipes share these functions.  The server that answers now may lag behind the
server that carried out the write: hence the sync ahead of each read.  And it may refuse to answer for a while, for
example when it is overloaded: hence the repeated tries.  A recipe that took either for "the write was not carried out"
would leave a node behind that no client knows, and other clients would wait for it until its session ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, TypeVar

from zkwire import Client, GetChildren, GetData, NoNodeError, ServerError, SessionError, Sync

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSE: Final = 0.1  # seconds to wait after a transient refusal, before the next try

_HINT: Final = (
    "the answer to an earlier write was lost, and the client cannot find out what became of that write:"
    " it may have been carried out"
)


async def read(zk: Client, path: str, *reads: GetData | GetChildren) -> list[Any]:
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
