"""Certainty: a ticket that could own asks a server whether its session lives, but not a server without a quorum."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

import zkwire
from recipes import Lease, Lock, ReadWriteLock
from recipes.line.locking import Locking
from tests.support import virtual_time
from tests.support.everywhere import below, scene
from tests.support.locks import start_waiting
from tests.support.recipes import no_task_stays, outcome, until, until_armed, until_line, until_state
from tests.support.virtual_time import in_virtual_time
from zkwire import Client, SessionState
from zkwire.testing.memory.machine import Machine

pytestmark = pytest.mark.limit(30)

P = "/recipe"
ROUND_TRIPS = 50


class Stage(NamedTuple):
    """A server, and two clients of it; `zk`, which has connected last, loses its certainty after a second."""

    server: virtual_time.Server
    zk: Client
    other: Client


@asynccontextmanager
async def quick_stage() -> AsyncIterator[Stage]:
    """A stage in virtual time; at the end no node may be left."""
    server = virtual_time.Server(tick_time=0.5)
    async with zkwire.connect("a", open_link=server.open_link) as other:
        async with zkwire.connect("a", 1.0, open_link=server.open_link, read_only=True, locks=False) as zk:
            yield Stage(server, zk, other)
        assert await below(other, P) == []


class Quorum:
    """The server's quorum.  Without it, new connections are read-only; the server carries out writes all the same."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stage = stage
        self._is_there = True
        answer = Machine._answer_connect

        def answering(machine: Any, connection: Any, response: Any, flag: bytes) -> None:
            answer(machine, connection, response, flag if self._is_there else b"\1")

        monkeypatch.setattr(Machine, "_answer_connect", answering)

    async def lose(self) -> None:
        """Lose the quorum; return when the client is not certain any more that its session lives."""
        self._is_there = False
        zk = self._stage.zk
        self._stage.server.drop()
        await until_state(zk, SessionState.READ_ONLY)
        await until(lambda: not zk.certain_for(zk.session_id))

    def regain(self) -> None:
        """Have a quorum again."""
        self._is_there = True
        self._stage.server.drop()


async def questions_meanwhile(zk: Client, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often the recipe asks for certainty while ROUND_TRIPS other requests are answered."""
    count = 0
    certify = zk.certify

    async def counted() -> None:
        nonlocal count
        count += 1
        await certify()

    with monkeypatch.context() as patch:
        patch.setattr(zk, "certify", counted)
        for _ in range(ROUND_TRIPS):
            await zk.exists("/")
    return count


async def waiting_without_quorum(stage: Stage, quorum: Quorum) -> "asyncio.Task[object]":
    """Have the lock of a waiter released while there is no quorum; return the waiter."""
    holder = await Lock(stage.other, P).acquire()
    waiter = asyncio.create_task(outcome(Lock(stage.zk, P).acquire()))
    await until_line(stage.other, P, 2)
    await until_armed(2, stage.zk)
    await quorum.lose()
    await holder.release()
    return waiter


@in_virtual_time
async def test_a_waiter_does_not_ask_a_server_without_a_quorum_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with quick_stage() as stage:
        quorum = Quorum(stage, monkeypatch)
        waiter = await waiting_without_quorum(stage, quorum)
        assert await questions_meanwhile(stage.zk, monkeypatch) <= 2
        assert not waiter.done()
        quorum.regain()
        lease = await waiter
        assert isinstance(lease, Lease)
        lease.check()
        await lease.release()


@pytest.mark.parametrize("kind", [Lock, lambda zk, path: ReadWriteLock(zk, path).read()], ids=["lock", "reader"])
@pytest.mark.parametrize("waits", [False, True])
async def test_the_client_keeps_certain_as_long_as_a_lock_is_held_or_waited_for(
    kind: Callable[[Client, str], Locking[Any]], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene() as stage, no_task_stays():
        zk, needs = stage.zk, 0
        need, let_go = zk.need_certainty, zk.release_certainty

        def counted_need(*, later: bool = False) -> None:
            nonlocal needs
            needs += not later
            need(later=later)

        def counted_release(*, later: bool = False) -> None:
            nonlocal needs
            needs -= not later
            let_go(later=later)

        monkeypatch.setattr(zk, "need_certainty", counted_need)
        monkeypatch.setattr(zk, "release_certainty", counted_release)
        for _ in range(2):
            if waits:
                held = await Lock(stage.other, stage.path).acquire()
                waiter = await start_waiting(stage.other, kind(zk, stage.path), 2)
                assert needs == 1
                await held.release()
                lease = await waiter
            else:
                lease = await kind(zk, stage.path).acquire()
            assert needs == 1
            assert len(zk._session.lifetime.on_uncertain._callbacks) == 1
            await lease.release()
            assert needs == 0
            assert not zk._session.lifetime.on_uncertain._callbacks
        held = await Lock(stage.other, stage.path).acquire()
        cancelled = await start_waiting(stage.other, kind(zk, stage.path), 2)
        cancelled.cancel()
        await outcome(cancelled)
        assert needs == 0
        await held.release()


@in_virtual_time
async def test_a_try_that_is_cancelled_while_it_asks_for_certainty_ends_as_cancelled() -> None:
    async with quick_stage() as stage:
        await until(lambda: not stage.zk.certain_for(stage.zk.session_id))
        stage.server.strike = lambda wire, sent: setattr(stage.server, "is_holding", sent.name == "sync")
        trying = asyncio.create_task(Lock(stage.zk, P).try_acquire())
        await stage.server.until("sync")
        trying.cancel()
        assert isinstance(await outcome(trying), asyncio.CancelledError)
        stage.server.release()
        await until_line(stage.other, P, 0)
