"""Certainty: a ticket that could own asks a server whether its session lives, but not a server without a quorum."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import zkwire
from recipes import Lock, ReadWriteLock
from recipes.line.locking import Locking
from recipes.line.waiting import certify
from tests.support.everywhere import scene
from tests.support.locks import start_waiting
from tests.support.recipes import no_task_stays, outcome
from zkwire import Client, SessionState

pytestmark = pytest.mark.limit(30)

P = "/recipe"


class States:
    """Stands for the states of a client that follow each other."""

    def __init__(self) -> None:
        self.following = asyncio.Queue[SessionState]()
        self.is_closed = False

    def __aiter__(self) -> "States":
        return self

    async def __anext__(self) -> SessionState:
        return await self.following.get()

    def close(self) -> None:
        self.is_closed = True


async def test_a_server_without_a_quorum_is_not_asked_and_left_before_the_session_counts_as_certain() -> None:
    """It cannot know whether the session lives: to ask it again and again would only load it."""
    states, asked = States(), list[str]()

    async def ask() -> None:
        asked.append("sync")
        raise zkwire.NotReadOnlyError(zkwire.NotReadOnlyError.code)

    zk: Any = SimpleNamespace(state=SessionState.READ_ONLY, states=lambda: states, certify=ask)
    certifying = asyncio.create_task(certify(zk))
    for state in (SessionState.READ_ONLY, SessionState.READ_ONLY, SessionState.SUSPENDED):
        await asyncio.sleep(0)
        assert not certifying.done()
        states.following.put_nowait(state)
    await certifying
    assert (asked, states.is_closed) == ([], True)
    zk.state = SessionState.CONNECTED
    await certify(zk)
    assert asked == ["sync"]


@pytest.mark.parametrize("kind", [Lock, lambda zk, path: ReadWriteLock(zk, path).read()], ids=["lock", "reader"])
@pytest.mark.parametrize("waits", [False, True])
async def test_the_client_keeps_certain_as_long_as_a_lock_is_held_or_waited_for(
    kind: Callable[[Client, str], Locking[Any]], waits: bool
) -> None:
    async with scene() as stage, no_task_stays():
        zk, lifetime, needs = stage.zk, stage.zk._session.lifetime, stage.zk._session.keepalive._needs
        for _ in range(2):
            if waits:
                held = await Lock(stage.other, stage.path).acquire()
                waiter = await start_waiting(stage.other, kind(zk, stage.path), 2)
                assert needs == [1, 1]
                await held.release()
                lease = await waiter
            else:
                lease = await kind(zk, stage.path).acquire()
            assert (needs, len(lifetime.on_uncertain._callbacks)) == ([1, 0], 1)
            await lease.release()
            assert (needs, len(lifetime.on_uncertain._callbacks)) == ([0, 0], 0)
        held = await Lock(stage.other, stage.path).acquire()
        cancelled = await start_waiting(stage.other, kind(zk, stage.path), 2)
        cancelled.cancel()
        await outcome(cancelled)
        assert needs == [0, 0]
        await held.release()
