"""The look at what has become of a write whose answer was lost with its connection.

Here is, once for all recipes, what is easily forgotten: the server that answers now may be behind the one that carried
the write out, and may refuse to answer for the time being.  Whoever took either for "it was not carried out" would
leave a node behind that nobody knows of, and that others wait for as long as its session lives.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, TypeVar

from zkwire import Client, GetChildren, GetData, NoNodeError, ServerError, SessionError, Sync

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSE: Final = 0.1  # seconds, before what was refused for the time being is asked again

_UNKNOWN: Final = (
    "the answer to a write was lost before, and what became of it cannot be found out: it may have been carried out"
)


async def read(zk: Client, path: str, *reads: GetData | GetChildren) -> list[Any]:
    """Return what each of `reads` gives now, as `Client.pipeline` does; refusals that pass are waited for to pass.

    Arguments: `path`, whose history is to be known up to now.  That takes a sync; one that was refused, as by a server
    without a quorum, leaves the reads behind it worth nothing.
    Raises: SessionError.
    """
    while True:
        answers = await zk.pipeline([Sync(path), *reads])
        if not any(isinstance(answer, ServerError) and answer.is_transient for answer in answers):
            result(answers[0])
            return answers[1:]
        await asyncio.sleep(_PAUSE)


def result(answer: Any) -> Any:
    """Return what a look has found, None for no node.  Raises: the refusal that it met instead, and what that means."""
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, ServerError):
        answer.hint = _UNKNOWN
    if isinstance(answer, BaseException):
        raise answer
    return answer


def late_result(searching: asyncio.Task[T]) -> T | None:
    """Return what a task has found whose caller was cancelled; its error is logged, as nobody else hears of it."""
    if searching.cancelled():
        return None
    error = searching.exception()
    if error is None:
        return searching.result()
    if not isinstance(error, SessionError):  # with its session goes whatever there may be
        _log.warning("who would be told this was cancelled: %s", error)
    return None
