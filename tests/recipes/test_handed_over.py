"""The last step of acquiring: a lease is given to the caller only while its session is certain to be alive."""

import asyncio
import time
from typing import Any

import pytest

import zkwire
from recipes import Lock, MultiLock, TryLock
from tests.support.everywhere import Scene, nothing_stays
from tests.support.recipes import no_task_stays, until
from zkwire import SessionExpiredError
from zkwire.testing import Server

pytestmark = pytest.mark.limit(20)

P = "/recipe/lock"
TIMEOUT = 1.0


async def _body(lock: Any) -> bool:
    """Return whether the lease is certain when the body begins."""
    async with lock as lease:
        certain: bool = lease.is_certain()
        return certain


async def _hand_over(stage: Scene, *, is_expired: bool) -> bool:
    """Pass a ticket on to the next task, and block the event loop before that task goes on.

    Return whether the lease of that task is certain when its body begins.
    """
    lock = Lock(stage.zk, P, local_passes=5)
    lease = await lock.acquire()
    taker = asyncio.create_task(_body(lock))
    await until(lambda: len(lock._local_queue._waiting) == 1)
    await stage.zk.certify()
    releasing = asyncio.create_task(lease.release())
    asyncio.get_running_loop().call_soon(_strike, stage, is_expired)
    await releasing
    return await taker


def _strike(stage: Scene, is_expired: bool) -> None:
    if is_expired:
        stage.server.expire(stage.zk.session_id)  # the client does not know it yet
    time.sleep(stage.zk.certain_for(stage.zk.session_id) + 0.02)  # longer than certainty lasts, but not the session


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_ticket_that_was_passed_on_is_certain_when_the_next_body_begins(is_expired: bool) -> None:
    """Pitfall 74."""
    async with (
        Server(tick_time=0.5) as server,
        zkwire.connect(server.hosts) as other,
        zkwire.connect(server.hosts, session_timeout=TIMEOUT) as zk,
        no_task_stays(),
    ):
        stage = Scene(server, zk, other, P)
        assert await _hand_over(stage, is_expired=is_expired)
        await nothing_stays(stage)


async def test_without_renewal_the_next_task_gets_the_end_of_the_session() -> None:
    """Pitfall 74."""
    async with (
        Server(tick_time=0.5) as server,
        zkwire.connect(server.hosts) as other,
        zkwire.connect(server.hosts, session_timeout=TIMEOUT, renew=False) as zk,
        no_task_stays(),
    ):
        with pytest.raises(SessionExpiredError):
            await _hand_over(Scene(server, zk, other, P), is_expired=True)


@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_multi", [False, True])
async def test_a_try_lock_is_certain_when_the_body_begins(
    monkeypatch: pytest.MonkeyPatch, is_expired: bool, is_multi: bool
) -> None:
    """Pitfall 74: the loop is blocked between the answer of the server and the step of the caller."""
    async with (
        Server(tick_time=0.5) as server,
        zkwire.connect(server.hosts) as other,
        zkwire.connect(server.hosts, session_timeout=TIMEOUT) as zk,
        no_task_stays(),
    ):
        stage = Scene(server, zk, other, P)
        lock = TryLock(zk, P)
        taking = lock._take
        struck = False

        async def taking_and_blocking(*arguments: Any) -> Any:
            nonlocal struck
            node = await taking(*arguments)
            if not struck:
                struck = True
                _strike(stage, is_expired)
            return node

        monkeypatch.setattr(lock, "_take", taking_and_blocking)
        assert await _body(MultiLock([lock]) if is_multi else lock)
        await nothing_stays(stage)
