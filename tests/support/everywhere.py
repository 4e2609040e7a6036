"""Runs a recipe many times: its connection is cut at every request, or its task is cancelled at every turn of the loop.

Afterwards nothing may be left: no node but the expected ones, no watch on the server, no task.  This is checked here,
so a play checks only its own result.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

import zkwire
from tests.support.recipes import no_task_stays, outcome, until
from zkwire import Client, NoNodeError
from zkwire.testing import Server
from zkwire.testing.memory.faults import Fault

LIMIT: Final = 20.0
PATIENCE = 5.0  # seconds within which all nodes and watches must be gone
MOST_STEPS: Final = 120
MOST_TURNS: Final = 600


@dataclass
class Scene:
    """The stage of a play: the client `zk`, whose connection is cut or whose task is cancelled; `other`, an undisturbed
    client; and the recipe's `path`, below which there is no node at the beginning."""

    server: Server
    zk: Client
    other: Client
    path: str


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


async def cut_at_every_step(play: Play, *, stays: Collection[str] = (), at_least: int = 1) -> int:
    """Cut the connection of `zk` at its first request, in the next run at its second, and so on, each on a new server.

    Each request is cut twice: before it is carried out, and after that in place of the reply.  Returns the number of
    requests.

    Arguments: `stays`, paths relative to the recipe's path that may be left at the end, with all nodes below them; the
    recipe's own node always may.  `at_least`, how many requests the play must have: fewer mean that it did not run.
    """
    # A first pause of 1 ms before reconnecting: otherwise the runs spend most of their time in pauses.
    with patch("zkwire.session.hosts._FIRST_PAUSE", 0.001):
        steps = [await _cut(play, stays, is_before=is_before) for is_before in (True, False)]
    assert min(steps) >= at_least, f"{play} has {steps} steps only"
    return max(steps)


async def _cut(play: Play, stays: Collection[str], *, is_before: bool) -> int:
    for step in range(1, MOST_STEPS):
        what = f"cut {'before' if is_before else 'after'} request {step}"
        async with scene() as stage:
            drop = stage.server.drop_before if is_before else stage.server.drop_after
            fault = drop(session=stage.zk.session_id, nth=step)
            async with _noted(what), no_task_stays():
                await play(stage)
            hits = fault.hits
            fault.end()
            async with _noted(what):
                await nothing_stays(stage, stays)
        if not hits:
            return step - 1
    raise AssertionError(f"the play has not ended after {MOST_STEPS} requests")


async def expire_at_every_step(play: Play, *, stays: Collection[str] = (), at_least: int = 1) -> None:
    """Play with the session of `zk` expired at its first request, its second and so on, each time on a new server.

    The request is carried out, the connection is cut before its answer, and the session expires at once.  The play goes
    on in the next session, and must not raise an error.
    Arguments: as for `cut_at_every_step`.
    """
    for step in range(1, MOST_STEPS):
        async with scene() as stage:
            fault = stage.server.drop_after(session=stage.zk.session_id, nth=step)
            expiring = asyncio.create_task(_expire_when_hit(stage, fault))
            async with _noted(f"expired after request {step}"), no_task_stays():
                await play(stage)
                expiring.cancel()
                await outcome(expiring)
            hits = fault.hits
            async with _noted(f"expired after request {step}"):
                await nothing_stays(stage, stays)
        if not hits:
            assert step > at_least, f"{play} has {step - 1} steps only"
            return
    raise AssertionError(f"there is no end of steps: {MOST_STEPS}")


async def _expire_when_hit(stage: Scene, fault: Fault) -> None:
    await fault.until_hit()
    stage.server.expire(stage.zk.session_id)


async def cancel_at_every_moment(
    act: Play,
    *,
    afterwards: Play | None = None,
    prepare: Play | None = None,
    stays: Collection[str] = (),
    at_least: int = 3,
    most: int | None = None,
    again_after: int | None = None,
) -> int:
    """Run `act` and cancel its task after 0, 1, 2 ... turns of the loop, until it ends before it is cancelled.

    Each run has another path on one server.  Returns the number of turns of the last run.

    Arguments: `prepare`, run before and never cancelled; `afterwards`, run after the cancellation, to see that the
    recipe still works; `stays`, as for `cut_at_every_step`; `most`, the last number of turns, for an `act` that waits
    for ever; `again_after`, how many turns later to cancel the task a second time, None for once only.
    """
    async with scene() as stage:
        for count in itertools.count():
            stage.path = f"/recipe-{count}"
            async with _noted(f"cancelled after {count} turns"):
                async with no_task_stays():
                    if prepare is not None:
                        await prepare(stage)
                    task = asyncio.ensure_future(_awaited(act, stage))
                    for _ in range(count):
                        await asyncio.sleep(0)
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
            if is_over or count == most:
                assert count >= at_least, f"{act} takes {count} turns only"
                return count
            assert count < MOST_TURNS, f"the play has not ended after {count} turns"
    raise AssertionError("unreachable")


async def _awaited(act: Play, stage: Scene) -> None:
    await act(stage)


async def nothing_stays(stage: Scene, stays: Collection[str] = ()) -> None:
    """Wait until no node but the allowed ones is left below the recipe's path, and no watch on the server."""
    await stage.zk.ping()
    allowed = [f"{stage.path}/{name}" for name in stays]
    left: list[str] = []

    async def none_left() -> bool:
        nonlocal left
        nodes = await below(stage.other, stage.path)
        left = [node for node in nodes if not any(node == path or node.startswith(f"{path}/") for path in allowed)]
        return not left

    try:
        await until(none_left, limit=PATIENCE)
    except AssertionError:
        raise AssertionError(f"nodes stay: {left}") from None
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

    try:
        await until(none_left, limit=PATIENCE)
    except AssertionError:
        raise AssertionError(f"{count} watches stay") from None


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
