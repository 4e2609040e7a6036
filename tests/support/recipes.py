"""What the tests of recipes share: clients, the tickets of a line, watches, and waits for a condition."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

import pytest

import zkwire
from recipes import Lock
from tests.support.client import Server
from tests.support.proxy import Proxy
from zkwire import Client, NoNodeError, SessionExpiredError, SessionState
from zkwire.testing import RealServer

LIMIT = 15.0
INTERVAL = 0.005

E = TypeVar("E", bound=BaseException)


@asynccontextmanager
async def two_clients(server: Server) -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of the server."""
    async with zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        yield zk, other


@asynccontextmanager
async def proxied(server: Server) -> AsyncIterator[tuple[Proxy, Client, Client]]:
    """A proxy, a client that is connected to the server itself, and one behind the proxy; no task may stay."""
    async with (
        Proxy(server.hosts) as proxy,
        zkwire.connect(server.hosts) as direct,
        zkwire.connect(proxy.hosts) as behind,
        no_task_stays(),
    ):
        yield proxy, direct, behind


async def make_known(zk: Client, path: str) -> None:
    """Use the lock at `path` once: from then on the client knows that its node stands, and creates it no more."""
    async with Lock(zk, path):
        pass


async def until(
    condition: Callable[[], bool | Awaitable[bool]], *, limit: float = LIMIT, what: Callable[[], str] | None = None
) -> None:
    """Return when `condition` holds; fail with what `what` says then when it does not within `limit` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    while True:
        met = condition()
        if not isinstance(met, bool):
            met = await met
        if met:
            return
        if loop.time() > end:
            raise AssertionError(f"not within {limit} s: {what() if what is not None else condition}")
        await asyncio.sleep(INTERVAL)


async def line(zk: Client, path: str) -> list[str]:
    """Return the names of the tickets below `path`, in the order of the line."""
    try:
        names = await zk.get_children(path)
    except NoNodeError:
        return []
    tickets = {name: number for name in names if (number := zkwire.sequence(name)) is not None}
    return sorted(tickets, key=tickets.__getitem__)


async def until_line(zk: Client, path: str, length: int, *, limit: float = LIMIT) -> list[str]:
    """Wait until there are `length` tickets below `path`; return their names."""
    names: list[str] = []

    async def so_many() -> bool:
        nonlocal names
        names = await line(zk, path)
        return len(names) == length

    await until(so_many, limit=limit, what=lambda: f"{len(names)} tickets, not {length}: {names}")
    return names


def all_watches(length: int) -> int:
    """Return how many watches the clients of a line of `length` tickets have set.

    The holder watches its own node, from a tenth of a second on.  Each waiter watches its own node and the last two
    tickets before it, or the only one.
    """
    return sum(min(place, 2) + 1 for place in range(length))


async def until_armed(count: int, *clients: Client) -> None:
    """Wait until the clients together have `count` watches, each confirmed by the server."""

    def found() -> int:
        return sum(len(zk._session.requests.watches) for zk in clients)

    await until(lambda: found() == count, what=lambda: f"{found()} watches, not {count}")


async def watches(server: Server) -> int:
    """Return how many watches the server keeps; several watches of one session on one node count once."""
    values = await zkwire.four_letter_word(server.hosts, "mntr")  # wchs, wchp and wchc leave out watches on children
    assert isinstance(values, dict)
    return int(values["zk_watch_count"])


async def until_watches(server: Server, count: int) -> None:
    """Wait until the server keeps `count` watches."""
    found = -1

    async def so_many() -> bool:
        nonlocal found
        found = await watches(server)
        return found == count

    await until(so_many, what=lambda: f"the server has {found} watches, not {count}")


async def until_state(zk: Client, *states: SessionState) -> None:
    """Wait until the session is in one of `states`."""
    stream = zk.states()
    try:
        async for state in stream:
            if state in states:
                return
    finally:
        stream.close()


async def expire(server: Server | RealServer, zk: Client) -> None:
    """End the session of `zk` at the server, while `zk` still believes in it.

    Other clients take the session over and close it, until it cannot be taken over any more.
    """
    session_id, password = zk.session_id, zk.session_password
    while True:
        try:
            async with zkwire.connect(
                server.hosts, zk.session_timeout, session_id=session_id, session_password=password
            ):
                pass
        except SessionExpiredError:
            return


def make_uncertain(zk: Client, seconds: float = 0.0) -> None:
    """Have so many seconds certain from now on; the next answer through the leader proves more again."""
    lifetime = zk._session.lifetime
    assert lifetime.certainty is not None
    lifetime.certainty.until = asyncio.get_running_loop().time() + seconds
    lifetime.on_uncertain._check_soon()


@asynccontextmanager
async def no_task_stays() -> AsyncIterator[None]:
    """Fail unless every task that was started inside has ended, within a few seconds."""
    before = asyncio.all_tasks()
    yield

    def left() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() - before if not task.done()}

    await until(lambda: not left(), limit=5, what=lambda: f"tasks stay: {left()}")


def body_raises(error: type[E], match: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[E]]:
    """pytest.raises, for bodies of several statements: with a lock it is the body that is tested."""
    return pytest.raises(error, match=match)


def this_task() -> asyncio.Task[Any]:
    """Return the running task."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def outcome(awaitable: Awaitable[Any]) -> object:
    """Return the result of `awaitable`, or the exception that it raises."""
    try:
        return await awaitable
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
        return error
