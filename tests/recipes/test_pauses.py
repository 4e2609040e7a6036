"""After a refusal that may pass, every recipe waits for a pause before it asks again.

An overloaded server that is asked again at once has even more to do.  Here the pauses never end: so after a refusal
nothing is asked any more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recipes import Cache, Lock, Partitioner, ReadWriteLock, Semaphore, TimedLock
from tests.support.everywhere import Scene, scene
from tests.support.locks import hung
from tests.support.recipes import no_task_stays, outcome
from zkwire import Client, ThrottledError

pytestmark = pytest.mark.limit(30)

P = "/recipe"
PAUSES = ("recipes.common.retrying._PAUSE", "zkwire.session.cleanup.PAUSE")


@pytest.fixture(autouse=True)
def _endless(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in PAUSES:
        monkeypatch.setattr(pause, 3600.0)


async def asks_no_more(stage: Scene, operation: str, act: Callable[[], Awaitable[Any]]) -> None:
    """Check that `act` asks nothing more after the server has refused `operation`, and goes on waiting."""
    with stage.server.answering(operation, ThrottledError, session=stage.zk.session_id) as refused:
        acting = asyncio.ensure_future(act())
        await refused.until_hit()
        for _ in range(5):
            await stage.zk.ping()
        hits = refused.hits  # of several requests in one write; what was sent at once may be followed by a list
        for _ in range(20):
            await stage.zk.ping()
        assert refused.hits == hits
        assert not acting.done()
    acting.cancel()
    assert isinstance(await outcome(acting), asyncio.CancelledError)


async def use_cache(zk: Client) -> None:
    async with Cache(zk, P):
        await asyncio.Event().wait()


async def use_partitioner(zk: Client) -> None:
    async with Partitioner(zk, P, ["a", "b"]):
        await asyncio.Event().wait()


def yields_to_writers(zk: Client) -> ReadWriteLock:
    return ReadWriteLock(zk, P, prefer="writers")


TRIES: dict[str, tuple[str, Callable[[Client], Awaitable[Any]]]] = {
    "ticket": ("create", lambda zk: Lock(zk, P).acquire()),
    "line": ("getChildren", lambda zk: Lock(zk, P).acquire()),
    "tickets ahead": ("getData", lambda zk: Lock(zk, P).acquire()),
    "list of preferred tickets, wait": ("getChildren", lambda zk: yields_to_writers(zk).read().acquire()),
    "list of preferred tickets, try": ("getChildren", lambda zk: yields_to_writers(zk).read().try_acquire()),
    "preferred ticket, wait": ("getData", lambda zk: yields_to_writers(zk).read().acquire()),
    "preferred ticket, try": ("getData", lambda zk: yields_to_writers(zk).read().try_acquire()),
    "number of permits": ("getData", lambda zk: Semaphore(zk, P, 2).acquire()),
    "number of permits to write": ("setData", lambda zk: Semaphore(zk, P, 2).acquire()),
    "resize, look": ("getData", lambda zk: Semaphore(zk, P, 2).resize(3)),
    "resize, write": ("multi", lambda zk: Semaphore(zk, P, 2).resize(3)),
    "cache": ("multiRead", use_cache),
    "members of a partitioner": ("getChildren", use_partitioner),
}


@pytest.mark.parametrize(("operation", "act"), TRIES.values(), ids=TRIES.keys())
async def test_nothing_is_asked_in_a_pause(operation: str, act: Callable[[Client], Awaitable[Any]]) -> None:
    async with scene(P) as stage, no_task_stays():
        writer = await ReadWriteLock(stage.other, P).write().acquire()
        await asks_no_more(stage, operation, lambda: act(stage.zk))
        await writer.release()


async def test_no_limit_and_no_downgrade_is_written_and_no_holder_deleted_in_a_pause() -> None:
    async with scene(P) as stage, no_task_stays():
        node = await hung(stage.other, P, 0.01)
        await asks_no_more(stage, "delete", lambda: Lock(stage.zk, P).acquire())
        await stage.other.delete(node)
        written = await ReadWriteLock(stage.zk, P).write().acquire()
        await asks_no_more(stage, "setData", written.downgrade)
        await written.release()
        timed = await TimedLock(stage.zk, P, 60).acquire()
        await asks_no_more(stage, "setData", lambda: timed.extend(60))
        await timed.release()
