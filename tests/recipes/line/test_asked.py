"""Asking a holder to give way: the holder is told, and nothing is taken."""

import asyncio

import pytest

import zkwire
from recipes import Election, Lock, LockLostError, ReadWriteLock, TimedLease, TimedLock
from recipes.line.ticket import ASKED
from tests.recipes.line.test_foreign_data import every_kind
from tests.support.everywhere import nothing_stays, scene
from tests.support.locks import Make, hung, limit, start_waiting, watch_count
from tests.support.recipes import outcome, two_clients, until, until_line
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import Client
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(40)


@every_kind
async def test_the_holder_is_told_and_nothing_is_taken(zookeeper: RealServer, path: str, make: Make) -> None:
    """The holder is told; nothing is taken."""
    async with two_clients(zookeeper) as (zk, other):
        lease = await make(zk, path).acquire()
        asked = asyncio.create_task(lease.asked())
        (holder,) = await make(other, path).contenders()
        for _ in range(3):
            assert await holder.ask()
        await other.set(lease.path, b"__REVOKE__")  # as Curator's Revoker does
        assert await asked
        assert await lease.asked()
        lease.check()
        await lease.release()
        assert not await holder.ask()


async def test_who_is_not_asked_hears_of_the_end() -> None:
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        cancelled, waiting = (asyncio.create_task(lease.asked()) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert isinstance(await outcome(cancelled), asyncio.CancelledError)
        await lease.release()
        assert not await waiting
        assert not await lease.asked()
        with pytest.raises(RuntimeError, match=lease.path):
            await asyncio.to_thread(asyncio.run, lease.asked())
        await nothing_stays(stage)


async def test_a_waiter_keeps_its_place_and_is_told_when_it_holds() -> None:
    async with scene() as stage, asyncio.TaskGroup() as tasks:
        first = await Lock(stage.other, stage.path).acquire()
        waiter = await start_waiting(stage.zk, Election(stage.zk, stage.path, b"host-1"), 2)
        (_, waits) = await Lock(stage.other, stage.path).contenders()
        await waits.ask()
        last = tasks.create_task(Lock(stage.other, stage.path).acquire())
        await until_line(stage.other, stage.path, 3)
        await first.release()
        term = await waiter
        assert (term.path, await term.asked(), last.done()) == (waits.path, True, False)
        await until_data(stage.other, term.path, b"host-1")
        await term.release()
        await (await last).release()


async def until_data(zk: Client, path: str, data: bytes) -> None:
    async def is_there() -> bool:
        return (await zk.get(path)).data.startswith(data)

    await until(is_there)


async def test_what_a_holder_has_written_is_written_again_and_its_next_write_is_made() -> None:
    async with scene() as stage:
        term = await Election(stage.zk, stage.path, b"host-1").acquire()
        for data in b"host-1", b"ready":
            await stage.other.set(term.path, ASKED)
            if data == b"ready":
                await term.set(data)  # does not know of the request yet
                assert (await stage.other.get(term.path)).data == data
                assert await term.asked()
                await stage.other.set(term.path, ASKED)
            await until_data(stage.other, term.path, data)
        with pytest.raises(ValueError, match="store less"):
            await term.set(bytes(2**21))
        await stage.other.set(term.path, ASKED)
        await until_data(stage.other, term.path, b"ready")  # and not what was refused
        await term._write(term._writer, lambda _: ASKED)  # its own data is no request, whatever it is
        await until(lambda: term._ticket.is_watched)
        await stage.zk.ping()
        assert (await stage.other.get(term.path)).data == ASKED
        await term.release()
        timed = await TimedLock(stage.zk, stage.path, 60.5, data=b"").acquire()
        for _ in range(2):
            await stage.other.set(timed.path, ASKED)
            await until_data(stage.other, timed.path, b"zkwire limit 60.")
        await stage.other.set(timed.path, ASKED)
        await timed.extend(45.5)
        await until_data(stage.other, timed.path, b"zkwire limit 45.")
        await timed.release()


@pytest.mark.parametrize("is_timed", [True, False])
@in_virtual_time
async def test_a_write_that_is_cancelled_after_it_has_met_a_request_leaves_no_request(is_timed: bool) -> None:
    async with a_client() as (server, zk):
        lease = await (TimedLock(zk, "/t", 60.5) if is_timed else Election(zk, "/t")).acquire()
        await asyncio.sleep(0.01)
        await zk.set(lease.path, ASKED)  # before the lease watches its node
        writes = iter([None, zkwire.ThrottledError.code])
        server.strike = lambda _, sent: next(writes, None) if sent.name == "setData" else None
        writing = asyncio.create_task(lease.extend(45.5) if isinstance(lease, TimedLease) else lease.set(b"host-2"))
        await asyncio.sleep(0.01)
        writing.cancel()
        await until_data(zk, lease.path, b"zkwire limit 45." if is_timed else b"host-2")
        await lease.release()


@pytest.mark.parametrize("is_extended", [False, True])
@in_virtual_time
async def test_a_hung_holder_that_is_asked_is_taken_over_unless_it_may_have_promised_more(is_extended: bool) -> None:
    async with a_client() as (server, zk), zkwire.connect("a", open_link=server.open_link) as other:
        node = await hung(other, "/t", 1.0)
        waiter = await start_waiting(zk, Lock(zk, "/t"), 2)
        await until(lambda: watch_count(zk) == 2)
        server.is_holding = True  # the waiter does not read the limit between the two
        writes = [other.set(node, data) for data in ([limit(2, 60.0)] if is_extended else []) + [ASKED]]
        writing = asyncio.gather(*writes)
        await asyncio.sleep(0.1)
        server.release()
        await writing
        await asyncio.sleep(1.2)
        assert waiter.done() is not is_extended
        if is_extended:
            await other.delete(node)
        await (await waiter).release()


async def test_a_writer_lets_readers_in_however_it_is_asked_until_its_proofs_are_used_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recipes.read_write_lock._LINKS", 12)
    async with scene() as stage:
        writer = await ReadWriteLock(stage.zk, stage.path).write().acquire()
        for _ in range(3):
            await stage.other.set(writer.path, ASKED)
        read_lease = await writer.downgrade()
        theirs = ReadWriteLock(stage.other, stage.path)
        for _ in range(2):
            async with theirs.read().hold(within=5):
                assert [each.owns for each in await theirs.contenders()] == [True, True]
                await stage.other.set(writer.path, ASKED)
                await until_data(stage.other, writer.path, b"zkwire shared")
        assert "had too many" not in caplog.text
        while "lets no more readers in: it had too many requests to give way" not in caplog.text:
            await stage.other.set(writer.path, ASKED)
            await stage.zk.ping()  # the holder has heard of it, and writes again
        await read_lease.release()
        assert not isinstance(await read_lease.lost(), LockLostError)
