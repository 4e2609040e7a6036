"""Helpers of the conformance and fault tests: kinds of servers, bounded waits, a fixed order of hosts."""

import asyncio
import gc
import itertools
import random
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

import zkwire
from tests.support.proxy import Proxy
from zkwire import Client, SessionState, testing

T = TypeVar("T")

PATIENCE = 15.0  # seconds: the limit of every wait; only a failing test reaches it


class Server(Protocol):
    """The part of a server that the conformance tests use."""

    @property
    def hosts(self) -> str: ...


class InOrder(random.Random):
    """Randomness that does not shuffle, so that hosts are tried in the order of the connect string."""

    def shuffle(self, x: Any) -> None:
        pass


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` returns true."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.005)


async def states_until(states: AsyncIterator[SessionState], *wanted: SessionState) -> list[SessionState]:
    """Return the next states, up to the first of `wanted`."""
    seen: list[SessionState] = []
    async with asyncio.timeout(PATIENCE):
        async for state in states:
            seen.append(state)
            if state in wanted:
                break
    return seen


async def turns(count: int = 5) -> None:
    """Let the event loop run everything that is ready, without waiting for the network."""
    for _ in range(count):
        await asyncio.sleep(0)


async def begun(call: Awaitable[T], count: int = 5) -> "asyncio.Task[T]":
    """Start `call` as a task, and return it after so many turns, in which it can send its request."""
    task = asyncio.ensure_future(call)
    await turns(count)
    return task


async def given_up(call: Awaitable[object], count: int = 5) -> None:
    """Start `call`, and cancel it after so many turns."""
    await cancelled(await begun(call, count))


async def reconnected(states: AsyncIterator[SessionState]) -> None:
    """Wait until the connection is lost and there is another one."""
    await states_until(states, SessionState.SUSPENDED)
    await states_until(states, SessionState.CONNECTED)


async def drop(server: "testing.Server", zk: Client) -> None:
    """Lose the connection, and wait until there is another one."""
    states = zk.states()
    server.drop()
    await reconnected(states)


async def watched(server: testing.RealServer, path: str) -> bool:
    """Return whether any connection has a watch on `path`."""
    return path in (await server.four_letter_word("wchp")).splitlines()


@asynccontextmanager
async def sending_nothing(server: Server) -> AsyncIterator[Client]:
    """Connect a client, which must have sent no request by the end of the block."""
    async with Proxy(server.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        yield zk
        await zk.ping()
        assert proxy.requests(mark) == []


@contextmanager
def no_collector() -> Iterator[None]:
    """Let objects be freed with the last reference to them only, and not by the garbage collector."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fail if the block needs as many bytes of memory at any moment."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """Cancel `task`, and check that it ends as cancelled."""
    assert task.cancel()
    await asyncio.wait({task})
    assert task.cancelled(), task


async def cancel_connects(connect: Callable[[], Awaitable[Client]]) -> None:
    """Cancel `connect()` after 1, 2 ... turns of the loop, and then later and later, until it has ended."""
    for count in itertools.count(1):
        connecting = asyncio.ensure_future(connect())
        await (turns(count) if count < 16 else asyncio.wait({connecting}, timeout=0.0003 * 1.2 ** (count - 16)))
        if connecting.done():
            await connecting.result().close()
            return
        connecting.cancel()
        await asyncio.wait({connecting})
        assert connecting.cancelled(), connecting


async def no_session_stays(hosts: str) -> None:
    """Wait until the server has no session, and no connection but that of the question."""

    async def none_left() -> bool:
        values = await zkwire.four_letter_word(hosts, "mntr")
        assert isinstance(values, dict)
        return values["zk_global_sessions"] == 0 and values["zk_num_alive_connections"] == 1

    await eventually(none_left)
