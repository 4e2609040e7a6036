"""The one policy of asking again: what a recipe does when a request is refused for the moment, cut off or outlived.

A transient refusal says something about the server's present state and nothing about the nodes: the server is
overloaded, for example, or has no quorum for the moment.  A recipe that took it for an answer would give up its place,
or leave a node that no client knows.  So the same request is sent again after a pause.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import zkwire
from zkwire import Client, GetChildren, GetChildrenAndStat, GetData, Node, NoNodeError, ServerError, SessionState, Sync

T = TypeVar("T")

_PAUSE: Final = 0.1  # seconds
_FINAL_STATES: Final = (SessionState.EXPIRED, SessionState.CLOSED, SessionState.AUTH_FAILED)
_HINT: Final = (
    "the answer to an earlier write was lost, and the client cannot find out what became of that write:"
    " it may have been carried out"
)


async def until_answered(
    zk: Client, ask: Callable[[], Awaitable[T]], *, repeats: bool = False, renews: bool = True
) -> T:
    """Return the result of `ask`, which is called again as long as its errors say nothing about the nodes.

    It is called again after a pause if the server has refused the request for the moment, and at once if the connection
    was lost before the request was carried out, or if the session has expired and the client begins another one.

    Args:
        repeats: Whether it is harmless to carry the request out twice: then it is also repeated if the lost connection
            leaves open whether it was carried out.
        renews: Whether to go on in the next session.

    Raises:
        ConnectionLostError: if the request may have been carried out, unless `repeats`.
        SessionExpiredError: if there is no next session, or without `renews`.

    Every other error of `ask` is raised, too.
    """
    while True:
        try:
            return await ask()
        except zkwire.ConnectionLostError as lost:
            if lost.maybe_applied and not repeats:
                raise
        except zkwire.SessionExpiredError:
            if not renews:
                raise
            raise_unless_renewed(zk)
        except ServerError as refusal:
            if not await pause_if_transient(refusal):
                raise
        await asyncio.sleep(0)  # an `ask` that fails without waiting must not block the event loop


async def read(
    zk: Client, *operations: Sync | GetData | GetChildren | GetChildrenAndStat, in_order: bool = False
) -> list[Any]:
    """Return the answer to each of `operations`, as `Client.pipeline` does, none of them a transient refusal.

    Only the refused ones are asked again.  So a few refusals among many reads do not keep the caller for ever, and a
    read that was answered leaves one watch.

    Args:
        in_order: Whether each answer must be at least as new as those before it: then the operations after a refused
            one are asked again, too.

    Raises:
        SessionError: if the session has ended.
    """
    answers: list[Any] = await zk.pipeline(operations)
    while refused := [index for index, answer in enumerate(answers) if is_transient(answer)]:
        await pause()
        to_ask = range(refused[0], len(operations)) if in_order else refused
        again = await zk.pipeline([operations[index] for index in to_ask])
        for index, answer in zip(to_ask, again, strict=True):
            answers[index] = answer
    return answers


async def read_synced(zk: Client, path: str, *operations: GetData | GetChildren | GetChildrenAndStat) -> list[Any]:
    """Do the same as `read`, after a sync: the answers show everything that was written at `path` before this call.

    The server that answers may not have yet what another one has carried out.  If it refuses the sync, the answers
    to the reads after it prove nothing, and are not believed.

    Raises:
        SessionError: if the session has ended.
        ServerError: if the server refuses the sync.
    """
    synced, *answers = await read(zk, Sync(path), *operations, in_order=True)
    result_after_loss(synced)
    return answers


async def read_after_loss(zk: Client, path: str) -> Node | None:
    """Return the node, None if it is missing, as it is after an earlier write whose answer was lost.

    It raises what `read_synced` and `result_after_loss` raise.
    """
    node: Node | None = result_after_loss((await read_synced(zk, path, GetData(path)))[0])
    return node


def result_after_loss(answer: Any) -> Any:
    """Do the same as `result`, with a hint in the ServerError that an earlier write may have been carried out."""
    if isinstance(answer, ServerError):
        answer.hint = _HINT
    return result(answer)


def result(answer: Any) -> Any:
    """Return an answer of `read`, None if the node does not exist.

    Raises:
        ServerError: if the server refused the read.
    """
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def is_transient(answer: object) -> bool:
    """Return whether `answer`, a result or an error, is a refusal after which the same request may succeed."""
    return isinstance(answer, ServerError) and answer.is_transient


def any_transient(answers: Iterable[object]) -> bool:
    """Return whether one of `answers` is a transient refusal."""
    return any(map(is_transient, answers))


async def pause() -> None:
    """Wait until it is time to ask again after a transient refusal."""
    await asyncio.sleep(_PAUSE)


async def pause_if_transient(answer: object) -> bool:
    """Return whether `answer`, a result or an error, is a transient refusal; then it is time to ask again."""
    is_refusal = is_transient(answer)
    if is_refusal:
        await pause()
    return is_refusal


def raise_unless_renewed(zk: Client) -> None:
    """Raise the SessionExpiredError that is being handled, unless the client begins a new session.

    To be called in an `except` block.  With `renew=False` the client stays in the state EXPIRED, and a client may also
    have been closed since, or its credentials refused: every later request would fail as well.
    """
    if zk.state in _FINAL_STATES:
        raise
