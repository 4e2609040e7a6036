"""Helpers for the tests of locks: two clients, tasks that wait in a line, cancelled waits, and expired sessions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import zkwire
from recipes import Lease, LockLostError
from recipes.line.locking import Locking
from tests.support.everywhere import Play, Scene, cancel_at_every_moment, no_watch_stays, nothing_stays, scene
from tests.support.recipes import no_task_stays, outcome, until, until_line
from zkwire import Client
from zkwire.testing import Server


@asynccontextmanager
async def two_clients() -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of one in-memory server; fail if the server still has a watch at the end."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        yield zk, other
        await no_watch_stays(server.hosts)


def watch_count(zk: Client) -> int:
    """Return how many watches the client has set."""
    return len(zk._session.requests.watches)


async def start_waiting(zk: Client, locking: Locking[Any], tickets: int) -> asyncio.Task[Any]:
    """Start to acquire `locking`; return the task when it watches its blockers and `zk` sees `tickets` in the line."""
    before = watch_count(locking.client)
    task = asyncio.create_task(locking.acquire())
    await until_line(zk, locking.path, tickets)
    await until(lambda: watch_count(locking.client) >= before + 2 or task.done())  # its own node and a blocker
    await locking.client.ping()
    return task


async def taken(locking: Locking[Any]) -> Any:
    """Return the lease of a lock that must be free."""
    lease = await locking.try_acquire()
    assert lease is not None
    return lease


async def release(*leases: Any) -> None:
    """Release the leases one after the other."""
    for lease in leases:
        await lease.release()


async def cancel_every_wait(
    act: Play,
    *,
    hold: Callable[[Scene], Awaitable[Sequence[Lease]]],
    afterwards: Play,
    while_held: Play | None = None,
    stays: Collection[str] = (),
    most: int = 50,
) -> None:
    """Cancel `act` at every moment while it waits for the leases of `hold`; then release them and play `afterwards`.

    Arguments: `while_held`, played after the cancellation and before the release; `stays`, the same as for
    `cut_at_every_step`; `most`, the number of turns of the event loop to try.
    """
    held: list[Lease] = []

    async def prepare(stage: Scene) -> None:
        held[:] = await hold(stage)

    async def release_and_play(stage: Scene) -> None:
        for lease in held:
            lease.check()
        if while_held is not None:
            await while_held(stage)
        await release(*held)
        await afterwards(stage)

    await cancel_at_every_moment(act, prepare=prepare, afterwards=release_and_play, stays=stays, most=most)


async def expire_at_every_step(play: Play, *, steps: int, afterwards: Play) -> None:
    """Play with the session of `zk` expired behind its first request, its second and so on, each time on a new server.

    The play may lose its lock, and must leave nothing else behind; `afterwards` is played in the new session.
    """
    for step in range(1, steps + 1):
        async with scene() as stage, no_task_stays():
            await _expire_behind(stage, play, step)
            await outcome(stage.zk.ping())
            await afterwards(stage)
            await nothing_stays(stage)


async def _expire_behind(stage: Scene, play: Play, step: int) -> None:
    with stage.server.hold_replies(session=stage.zk.session_id, nth=step, times=1) as held:
        playing = asyncio.create_task(outcome(play(stage)))
        await until(lambda: bool(held.hits) or playing.done())
        stage.server.expire(stage.zk.session_id)
        held.end()
        came = await playing
    assert came is None or isinstance(came, LockLostError), repr(came)
