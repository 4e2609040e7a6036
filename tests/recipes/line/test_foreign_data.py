"""Data in tickets that their own client has not written: it is not believed, and it ends the lease."""

import asyncio

import pytest

from recipes import Election, TryLock
from tests.support import locks
from tests.support.everywhere import scene
from tests.support.locks import Make, start_waiting
from tests.support.recipes import outcome, two_clients, until, until_armed
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(40)

KINDS: dict[str, Make] = locks.KINDS | {"try lock": lambda zk, path: TryLock(zk, path)}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())

FORGED_LIMITS = [b"zkwire limit 0.000\n", b"zkwire limit 0.000 " + b"0" * 64 + b"\n"]


# -- the holder -------------------------------------------------------------------------------------------------------


@every_kind
async def test_what_another_client_writes_into_the_holders_node_ends_the_lease(
    zookeeper: RealServer, path: str, make: Make
) -> None:
    async with two_clients(zookeeper) as (zk, other):
        lease = await make(zk, path).acquire()
        await other.set(lease.path, b"forged")
        error = await lease.lost()
        assert error.why == "another client has written into it"
        assert lease.path in str(error)

        async def is_gone() -> bool:
            return await other.exists(lease.path) is None

        await until(is_gone)
        await lease.release()


async def test_a_write_that_was_cancelled_or_cut_off_is_not_taken_for_another_clients() -> None:
    async with scene() as stage:
        term = await Election(stage.zk, stage.path).acquire()
        await until_armed(1, stage.zk)
        with stage.server.hold_replies("setData", session=stage.zk.session_id) as held:
            writing = asyncio.create_task(term.set(b"cancelled"))
            await held.until_hit()
            writing.cancel()
            assert isinstance(await outcome(writing), asyncio.CancelledError)
        await until_armed(1, stage.zk)
        await stage.zk.ping()
        term.check()
        for cut in (stage.server.drop_after, stage.server.drop_before):
            with cut("setData", session=stage.zk.session_id):
                await term.set(b"cut")
            await until_armed(1, stage.zk)
            term.check()
        await term.set(b"last")
        assert await Election(stage.other, stage.path).candidates() == [b"last"]
        term.check()
        await term.resign()


# -- waiting clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [KINDS["lock"], KINDS["write lock"], KINDS["semaphore"], KINDS["election"]])
@pytest.mark.parametrize("forged", FORGED_LIMITS)
async def test_a_forged_limit_does_not_have_a_living_holder_deleted(make: Make, forged: bytes) -> None:
    async with scene() as stage:
        lease = await make(stage.zk, stage.path).acquire()
        waiter = await start_waiting(stage.other, make(stage.other, stage.path), 2)
        watched = len(stage.other._session.requests.watches)
        async with stage.server.hold_replies(session=stage.zk.session_id):
            await stage.other.set(lease.path, forged)
            await until_armed(watched, stage.other)  # it has read the node again
            await stage.other.ping()
            assert await stage.other.exists(lease.path) is not None
            assert lease.is_certain()
            assert not waiter.done()
        assert await lease.lost() is not None
        await (await waiter).release()
