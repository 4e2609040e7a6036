"""A recipe's play, cut at every step in turn and cancelled at every moment in turn, on the server in memory.

Afterwards nothing stays: no node that is not meant to, no watch at the server, no task.  That is checked here, so that
a play only has to check what it is about.
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
PATIENCE = 5.0  # seconds in which what is to go has gone
MOST_STEPS: Final = 120
MOST_TURNS: Final = 600


@dataclass
class Scene:
    """Where a play takes place: the client `zk`, whose connection is cut or whose task is cancelled; `other`, which is
    left alone; and the recipe's `path`, below which nothing is at the beginning."""

    server: Server
    zk: Client
    other: Client
    path: str


Play = Callable[[Scene], Awaitable[object]]


@asynccontextmanager
async def scene(path: str = "/recipe", *, session_timeout: float = 10.0) -> AsyncIterator[Scene]:
    """A server of its own and two clients of it."""
    async with (
        Server() as server,
        zkwire.connect(server.hosts, session_timeout) as other,
        zkwire.connect(server.hosts, session_timeout) as zk,
    ):
        yield Scene(server, zk, other, path)


async def cut_at_every_step(play: Play, *, stays: Collection[str] = (), at_least: int = 1) -> int:
    """Play with the connection of `zk` cut at its first request, its second and so on, each time on a new server:
    before the request is carried out, and after it was, ahead of the answer.  Returns how many steps there were.

    Arguments: `stays`, paths below the recipe's, relative to it, that may stand at the end, with all that is below
    them; the recipe's own node always may. `at_least`, how many requests the play has: fewer mean that it was not
    played.
    """
    with patch(
        "zkwire.session.hosts._FIRST_PAUSE", 0.001
    ):  # seconds: of all the time this takes, most went by in pauses
        steps = [await _cut(play, stays, is_before=is_before) for is_before in (True, False)]
    assert min(steps) >= at_least, f"{play} has {steps} steps only"
    return max(steps)


async def _cut(play: Play, stays: Collection[str], *, is_before: bool) -> int:
    for step in range(1, MOST_STEPS):
        what = f"cut {'before' if is_before else 'after'} request {step}"
        async with scene() as stage:
            drop = stage.server.drop_before if is_before else stage.server.drop_after
            fault = drop(session=stage.zk.session_id, nth=step)
            async with _told(what), no_task_stays():
                await play(stage)
            hits = fault.hits
            fault.end()
            async with _told(what):
                await nothing_stays(stage, stays)
        if not hits:
            return step - 1
    raise AssertionError(f"there is no end of steps: {MOST_STEPS}")


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
            async with _told(f"expired after request {step}"), no_task_stays():
                await play(stage)
                expiring.cancel()
                await outcome(expiring)
            hits = fault.hits
            async with _told(f"expired after request {step}"):
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
) -> int:
    """Act and cancel the task after 0, 1, 2 ... turns of the loop, each time at another path of one server, until it
    comes to its end unharmed.  Returns after how many turns that was.

    Arguments: `prepare`, played ahead, by whom nobody cancels; `afterwards`, played behind, to see that all is as good
    as before; `stays`, as for `cut_at_every_step`, at the end of it; `most`, the number of turns to end with, for what
    waits for ever.
    """
    async with scene() as stage:
        for count in itertools.count():
            stage.path = f"/recipe-{count}"
            async with _told(f"cancelled after {count} turns"):
                async with no_task_stays():
                    if prepare is not None:
                        await prepare(stage)
                    task = asyncio.ensure_future(_awaited(act, stage))
                    for _ in range(count):
                        await asyncio.sleep(0)
                    is_over = task.done()
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
            assert count < MOST_TURNS, f"there is no end of turns: {count}"
    raise AssertionError("unreachable")


async def _awaited(act: Play, stage: Scene) -> None:
    await act(stage)


async def nothing_stays(stage: Scene, stays: Collection[str] = ()) -> None:
    """Wait until no node is left below the recipe's path but those that may be, and no watch at the server."""
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
    """Wait until the server keeps no watch."""
    count = 0

    async def none_left() -> bool:
        nonlocal count
        told = await zkwire.four_letter_word(hosts, "mntr")
        assert isinstance(told, dict)
        count = int(told["zk_watch_count"])
        return not count

    try:
        await until(none_left, limit=PATIENCE)
    except AssertionError:
        raise AssertionError(f"{count} watches stay") from None


async def below(zk: Client, path: str) -> list[str]:
    """The paths of all nodes below `path`."""
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
async def _told(what: str) -> AsyncIterator[None]:
    """Have a failure tell at which step it came; what takes too long has failed."""
    try:
        async with asyncio.timeout(LIMIT):
            yield
    except (Exception, asyncio.CancelledError) as error:
        error.add_note(what)
        raise
