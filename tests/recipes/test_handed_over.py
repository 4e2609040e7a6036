"""The last step of acquiring: a lease is given to the caller only while its session is certain to be alive."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkwire
from recipes import Lock, MultiLock, TryLock
from tests.support.everywhere import below
from tests.support.recipes import until, until_armed
from tests.support.virtual_time import Server, block, in_virtual_time
from zkwire import Client, SessionExpiredError

P = "/recipe/lock"


@asynccontextmanager
async def scene(*, renew: bool = True) -> AsyncIterator[tuple[Server, Client]]:
    """A server and a client of it; at the end there must be no ticket and no watch."""
    server = Server(tick_time=0.5)
    async with zkwire.connect("a", 1.0, open_link=server.open_link, renew=renew) as zk:
        yield server, zk
        if renew:
            assert [node for node in await below(zk, "/recipe") if node != P] == []
            await until_armed(0, zk)


async def _body(lock: Any) -> bool:
    """Return whether the lease is certain when the body begins."""
    async with lock as lease:
        certain: bool = lease.is_certain()
        return certain


async def _hand_over(server: Server, zk: Client, *, is_expired: bool) -> bool:
    """Pass a ticket on to the next task, and block the event loop before that task goes on.

    Return whether the lease of that task is certain when its body begins.
    """
    lock = Lock(zk, P, local_passes=5)
    lease = await lock.acquire()
    taker = asyncio.create_task(_body(lock))
    await until(lambda: len(lock._local_queue._waiting) == 1)
    await zk.certify()
    releasing = asyncio.create_task(lease.release())
    asyncio.get_running_loop().call_soon(_strike, server, zk, is_expired)
    await releasing
    return await taker


def _strike(server: Server, zk: Client, is_expired: bool) -> None:
    if is_expired:
        (session_id,) = server.machine.sessions.by_id
        server.machine.expire(session_id)  # the client does not know it yet
    block(zk.certain_for(zk.session_id) + 0.02)  # longer than certainty lasts, but not the session


@pytest.mark.parametrize("is_expired", [False, True])
@in_virtual_time
async def test_a_ticket_that_was_passed_on_is_certain_when_the_next_body_begins(is_expired: bool) -> None:
    """Pitfall 74."""
    async with scene() as (server, zk):
        assert await _hand_over(server, zk, is_expired=is_expired)


@in_virtual_time
async def test_without_renewal_the_next_task_gets_the_end_of_the_session() -> None:
    """Pitfall 74."""
    async with scene(renew=False) as (server, zk):
        with pytest.raises(SessionExpiredError):
            await _hand_over(server, zk, is_expired=True)


@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_multi", [False, True])
@in_virtual_time
async def test_a_try_lock_is_certain_when_the_body_begins(is_expired: bool, is_multi: bool) -> None:
    """Pitfall 74: the loop is blocked between the answer of the server and the step of the caller."""
    async with scene() as (server, zk):
        lock = TryLock(zk, P)
        taking: Any = lock._create
        struck = False

        async def taking_and_blocking(*arguments: Any) -> Any:
            nonlocal struck
            node = await taking(*arguments)
            if not struck:
                struck = True
                _strike(server, zk, is_expired)
            return node

        lock._create = taking_and_blocking  # type: ignore[method-assign]
        assert await _body(MultiLock([lock]) if is_multi else lock)
        assert await zk.exists(P) is None
