"""Runs a recipe many times, each time with a fault at its next request or a cancellation at the next turn of the loop.

The connection is cut, the session expires, the server refuses, or the task is cancelled.  Afterwards nothing may be
left: no node but the expected ones, no watch on the server, no task.  This is checked here, so a play checks only its
own result.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, TypedDict, Unpack
from unittest.mock import patch

import zkwire
from tests.support.examples import stride
from tests.support.recipes import no_task_stays, outcome, until
from zkwire import Client, NoAuthError, NoNodeError, ServerError
from zkwire.testing import Server
from zkwire.testing.memory.faults import Fault

LIMIT: Final = 20.0
PATIENCE = 5.0  # seconds within which all nodes and watches must be gone
MOST_STEPS: Final = 120
MOST_TURNS: Final = 600
# The requests that an ACL can forbid: create, get, set, list, multi, multiRead and addWatch.  Without the permission to
# delete, nodes stay until the session ends, so deletes are left out.
NEEDING_PERMISSION: Final = frozenset({1, 4, 5, 8, 12, 14, 15, 19, 21, 22, 106})
# What is not repeated by the session when an answer is lost: create, delete, set, multi and removeWatches.
WRITES: Final = frozenset({1, 2, 5, 7, 14, 15, 18, 19, 21})


@dataclass
class Scene:
    """The stage of a play.

    `zk` is the client that is disturbed, `other` an undisturbed one; below the recipe's `path` there is no node at the
    beginning.  In `kept` the parts of one play keep what they share.
    """

    server: Server
    zk: Client
    other: Client
    path: str
    kept: dict[str, Any] = field(default_factory=dict, kw_only=True)


Play = Callable[[Scene], Awaitable[object]]


@asynccontextmanager
async def scene(path: str = "/recipe", *, session_timeout: float = 10.0) -> AsyncIterator[Scene]:
    """Start a server, and two clients of it."""
    async with (
        Server() as server,
        zkwire.connect(server.hosts, session_timeout) as other,
        zkwire.connect(server.hosts, session_timeout) as zk,
    ):
        yield Scene(server, zk, other, path)


class Played(TypedDict, total=False):
    """How a play goes on.

    Args:
        prepare: played before, without any fault.
        afterwards: played after the fault (in the next session), to see that the recipe still works.
        stays: patterns of paths relative to the recipe's path that may be left at the end; the recipe's own node
            always may.
        at_least: how many requests `act` must have: fewer mean that it did not run.
        may_raise: the errors that `act` may raise.
    """

    prepare: Play | None
    afterwards: Play | None
    stays: Collection[str]
    at_least: int
    may_raise: tuple[type[Exception], ...]


async def cut_at_every_step(act: Play, **played: Unpack[Played]) -> None:
    """Cut the connection of `zk` at its first request, in the next run at its second, and so on, each at another path.

    Each request is cut before it is carried out, and each write also after that, in place of the reply: whether a read
    was carried out makes no difference to anything.  `act` checks its own result.
    """
    await _at_every_step(act, "cut before request", _drop_before, **played)
    played["at_least"] = 0  # not every play writes
    await _at_every_step(act, "cut after write", _drop_after_write, **played)


def _drop_before(stage: Scene, step: int) -> Fault:
    return stage.server.drop_before(session=stage.zk.session_id, nth=step)


def _drop_after(stage: Scene, step: int) -> Fault:
    return stage.server.drop_after(session=stage.zk.session_id, nth=step)


def _drop_after_write(stage: Scene, step: int) -> Fault:
    fault = _drop_after(stage, step)
    fault._opcodes = WRITES
    return fault


async def expire_at_every_step(act: Play, **played: Unpack[Played]) -> None:
    """Play with the session of `zk` expired at its first request, its second and so on, each at another path.

    The request is carried out, the connection is cut before its answer, and the session expires at once.  The play goes
    on in the next session.
    """
    await _at_every_step(act, "expired after request", _drop_after, expires=True, **played)


async def refuse_at_every_step(act: Play, error: type[ServerError], **played: Unpack[Played]) -> None:
    """Play with the first request of `zk` refused by `error`, then with its second and so on, each at another path."""

    def refuse(stage: Scene, step: int) -> Fault:
        fault = stage.server.answering(None, error, session=stage.zk.session_id, nth=step, times=1)
        if error is NoAuthError:
            fault._opcodes = NEEDING_PERMISSION
        return fault

    with patch("recipes.common.retrying._PAUSE", 0.001):
        await _at_every_step(act, f"{error.__name__} at request", refuse, **played)


async def _at_every_step(
    act: Play,
    what: str,
    make_fault: Callable[[Scene, int], Fault],
    *,
    prepare: Play | None = None,
    afterwards: Play | None = None,
    stays: Collection[str] = (),
    at_least: int = 1,
    may_raise: tuple[type[Exception], ...] = (),
    expires: bool = False,
) -> None:
    # No pause before reconnecting: otherwise the runs spend most of their time in pauses.
    with patch("zkwire.session.hosts._FIRST_PAUSE", 0.0):
        async with scene() as stage:
            for step in range(1, MOST_STEPS, stride()):
                stage.path = f"/recipe-{step}"
                stage.kept.clear()
                async with _noted(f"{what} {step}"):
                    if prepare is not None:
                        await prepare(stage)
                    async with no_task_stays():
                        fault = make_fault(stage, step)
                        expiring = asyncio.create_task(_expire_when_hit(stage, fault)) if expires else None
                        try:
                            await act(stage)
                        except may_raise:
                            assert fault.hits
                        finally:
                            if expiring is not None:
                                expiring.cancel()
                                await outcome(expiring)
                        hits = fault.hits
                        fault.end()
                        if afterwards is not None and hits:
                            await outcome(stage.zk.ping())  # the session may have expired with the last request
                            await afterwards(stage)
                    await nothing_stays(stage, stays)
                if not hits:
                    assert step > at_least, f"{act} has {step - 1} steps only"
                    return
    raise AssertionError(f"the play has not ended after {MOST_STEPS} requests")


async def _expire_when_hit(stage: Scene, fault: Fault) -> None:
    await fault.until_hit()
    stage.server.expire(stage.zk.session_id)


async def cancel_at_every_moment(
    act: Play,
    *,
    afterwards: Play | None = None,
    prepare: Play | None = None,
    stays: Collection[str] = (),
    at_least: int = 2,
    most: int = MOST_TURNS,
    again_after: int | None = None,
) -> None:
    """Run `act` and cancel its task at its first moment, in the next run at its second, until it ends before.

    A moment is a turn of the event loop, unless all tasks wait for the same as in the turn before.  Each run has
    another path on one server.

    Args:
        act: what is played and cancelled.
        prepare: played before, and never cancelled.
        afterwards: played after the cancellation, to see that the recipe still works.
        stays: the same as for `cut_at_every_step`.
        at_least: how many moments `act` must have.
        most: the last turn, for an `act` that waits for ever.
        again_after: how many turns later to cancel the task a second time; None for once only.
    """
    async with scene() as stage:
        for count in range(0, most + stride(), stride()):
            stage.path = f"/recipe-{count}"
            async with _noted(f"cancelled at moment {count}"):
                async with no_task_stays():
                    if prepare is not None:
                        await prepare(stage)
                    task = asyncio.ensure_future(act(stage))
                    turns = await _until_moment(count, task, stage.zk, most)
                    is_over = task.done()
                    task.cancel()
                    if again_after is not None:
                        for _ in range(again_after):
                            await asyncio.sleep(0)
                        task.cancel()
                    came = await outcome(task)
                    assert is_over or isinstance(came, asyncio.CancelledError) or came is None, repr(came)
                    if is_over and isinstance(came, BaseException):
                        raise came
                    if afterwards is not None:
                        await afterwards(stage)
                await nothing_stays(stage, stays)
            if is_over or turns == most:
                assert count >= at_least, f"{act} has {count} moments only"
                assert turns < MOST_TURNS, f"the play has not ended after {turns} turns"
                return


async def _until_moment(count: int, task: asyncio.Future[object], zk: Client, most: int) -> int:
    """Return, after `most` turns at the latest, when so many moments have passed; return the number of turns."""
    turns = moments = 0
    before: object = None
    while moments < count and turns < most and not task.done():
        await asyncio.sleep(0)
        turns += 1
        now = _awaited_by_all(zk)
        if now is None or now != before:
            moments += 1
        before = now
    return turns


def _awaited_by_all(zk: Client) -> object:
    """Return what the tasks wait for, None if one of them is about to run or `zk` is about to write a request."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    awaited = {task._fut_waiter for task in others}  # type: ignore[attr-defined]
    is_busy = zk._session.requests.unsent or any(future is None or future.done() for future in awaited)
    return None if is_busy else awaited


async def nothing_stays(stage: Scene, stays: Collection[str] = ()) -> None:
    """Wait until no node but the allowed ones is left below the recipe's path, and no watch on the server."""
    await stage.zk.ping()
    left: list[str] = []

    async def none_left() -> bool:
        nonlocal left
        nodes = await below(stage.other, stage.path)
        left = [node for node in nodes if not any(fnmatchcase(node, f"{stage.path}/{name}") for name in stays)]
        return not left

    await until(none_left, limit=PATIENCE, what=lambda: f"nodes stay: {left}")
    if stage.server._machine.watches.by_path:
        await no_watch_stays(stage.server.hosts)


async def no_watch_stays(hosts: str) -> None:
    """Wait until the server has no watch."""
    count = 0

    async def none_left() -> bool:
        nonlocal count
        values = await zkwire.four_letter_word(hosts, "mntr")
        assert isinstance(values, dict)
        count = int(values["zk_watch_count"])
        return not count

    await until(none_left, limit=PATIENCE, what=lambda: f"{count} watches stay")


async def below(zk: Client, path: str) -> list[str]:
    """Return the paths of all nodes below `path`."""
    try:
        names = await zk.get_children(path)
    except NoNodeError:
        return []
    found = []
    for name in names:
        child = f"{path.rstrip('/')}/{name}"
        found += [child, *await below(zk, child)]
    return found


@asynccontextmanager
async def _noted(what: str) -> AsyncIterator[None]:
    """Add to a failure at which request or turn it came; a run that takes too long fails."""
    try:
        async with asyncio.timeout(LIMIT):
            yield
    except (Exception, asyncio.CancelledError) as error:
        error.add_note(what)
        raise
