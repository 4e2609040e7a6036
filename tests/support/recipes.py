"""What the tests of recipes share: who stands in a line, what is watched, and waits that end when a condition holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

import pytest

import zkwire
from zkwire import Client, NoNodeError, SessionExpiredError, SessionState
from zkwire.testing import RealServer

LIMIT = 15.0
INTERVAL = 0.005

E = TypeVar("E", bound=BaseException)


async def until(condition: Callable[[], bool | Awaitable[bool]], *, limit: float = LIMIT, what: str = "") -> None:
    """Return when `condition` holds; fail when it does not within `limit` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    while True:
        met = condition()
        if not isinstance(met, bool):
            met = await met
        if met:
            return
        if loop.time() > end:
            raise AssertionError(f"not within {limit} s: {what or condition}")
        await asyncio.sleep(INTERVAL)


async def line(zk: Client, path: str) -> list[str]:
    """The names of the tickets below `path`, in their order."""
    try:
        names = await zk.get_children(path)
    except NoNodeError:
        return []
    return sorted(names, key=lambda name: zkwire.sequence(name) or 0)


async def until_line(zk: Client, path: str, length: int, *, limit: float = LIMIT) -> list[str]:
    """Wait until `length` tickets stand below `path`; return them."""
    names: list[str] = []

    async def so_many() -> bool:
        nonlocal names
        names = await line(zk, path)
        return len(names) == length

    try:
        await until(so_many, limit=limit)
    except AssertionError:
        raise AssertionError(f"{len(names)} tickets after {limit} s, not {length}: {names}") from None
    return names


def all_watches(length: int) -> int:
    """How many watches stand in a line of so many: the holder's on itself, from a tenth of a second on; those of each
    waiter on itself and on two, or on the only one, before it."""
    return sum(min(place, 2) + 1 for place in range(length))


async def until_armed(count: int, *clients: Client) -> None:
    """Wait until the clients together wait for `count` watches, which the server has taken."""

    def found() -> int:
        return sum(len(zk._session.watches) for zk in clients)

    try:
        await until(lambda: found() == count)
    except AssertionError:
        raise AssertionError(f"{found()} watches, not {count}") from None


async def watches(server: RealServer) -> int:
    """How many watches the server keeps; several of one session for one node count once."""
    answer = await server.four_letter_word("mntr")  # wchs, wchp and wchc leave out watches on children
    return int(answer.partition("zk_watch_count\t")[2].split()[0])


async def until_watches(server: RealServer, count: int) -> None:
    """Wait until the server keeps `count` watches."""
    found = -1

    async def so_many() -> bool:
        nonlocal found
        found = await watches(server)
        return found == count

    try:
        await until(so_many)
    except AssertionError:
        raise AssertionError(f"the server has {found} watches, not {count}") from None


async def until_state(zk: Client, *states: SessionState) -> None:
    """Wait until the session is in one of `states`."""
    stream = zk.states()
    try:
        async for state in stream:
            if state in states:
                return
    finally:
        stream.close()


async def expire(server: RealServer, zk: Client) -> None:
    """Have the session of `zk` end at the server while `zk` believes in it: other clients take it over and close it,
    until it cannot be taken over any more."""
    session_id, password = zk.session_id, zk.session_password
    while True:
        try:
            async with zkwire.connect(
                server.hosts, zk.session_timeout, session_id=session_id, session_password=password
            ):
                pass
        except SessionExpiredError:
            return


@asynccontextmanager
async def no_task_stays() -> AsyncIterator[None]:
    """Fail unless the tasks at the end are those of the beginning, bounded."""
    before = asyncio.all_tasks()
    yield

    def none_left() -> bool:
        return not {task for task in asyncio.all_tasks() - before if not task.done()}

    try:
        await until(none_left, limit=5)
    except AssertionError:
        raise AssertionError(f"tasks stay: {asyncio.all_tasks() - before}") from None


def body_raises(error: type[E], match: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[E]]:
    """pytest.raises around the body of a lock: of several statements, for it is the body that is tested."""
    return pytest.raises(error, match=match)


def this_task() -> asyncio.Task[Any]:
    """The task that runs."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def outcome(awaitable: Awaitable[Any]) -> object:
    """What comes of it: the result, or the exception."""
    try:
        return await awaitable
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
        return error
