"""The read/write lock: which leases exclude each other, their order, their requests, and what one task may ask for."""

import asyncio
from typing import Any

import pytest

import zkwire
from recipes import Lock, LockLostError, ReadWriteLock, WriteLease
from recipes.line.locking import Locking
from recipes.read_write_lock import Preference
from tests.support.client import Server
from tests.support.everywhere import no_watch_stays, scene
from tests.support.locks import release, start_waiting, taken, two_clients
from tests.support.proxy import Proxy
from tests.support.queues import Counting
from tests.support.recipes import body_raises, line, no_task_stays, outcome, proxied, until, until_armed, until_line
from zkwire import Client, testing

pytestmark = pytest.mark.limit(30)


async def until_tickets(zk: Client, path: str, count: int) -> None:
    """Wait until `count` tickets are in the line; the node below which writers queue is not counted."""

    async def has_so_many() -> bool:
        return sum(zkwire.sequence(name) is not None for name in await line(zk, path)) == count

    await until(has_so_many)


# -- which leases exclude each other ----------------------------------------------------------------------------------


async def test_readers_hold_together_and_a_writer_alone_in_ticket_order(each_server: Server, path: str) -> None:
    """Pitfall 4: a reader waits for the writers before it, not for readers and not for writers behind it."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        rw, rw2 = ReadWriteLock(zk, path), ReadWriteLock(other, path)
        first = await rw.read().acquire()
        second = await rw2.read().acquire()
        writer = await start_waiting(zk, rw2.write(), 3)
        third = await start_waiting(zk, ReadWriteLock(zk, path).read(), 4)
        fourth = await start_waiting(zk, ReadWriteLock(zk, path).read(), 5)
        assert await ReadWriteLock(zk, path).read().try_acquire() is None  # a writer is before it
        await first.release()
        assert not writer.done()
        await second.release()
        written = await writer
        assert not third.done()
        assert not fourth.done()
        await written.release()
        leases = [await third, await fourth]
        assert first.token < second.token < written.token < leases[0].token < leases[1].token
        await release(*leases)
        assert await line(zk, path) == []


@pytest.mark.parametrize(
    "foreign", ["lock-", "_c_x-__WRIT__", "7f__lock__", "_c_x-lease-", "_c_x-__READ__", "7f__rlock__"]
)
async def test_a_ticket_without_the_name_of_a_reader_counts_as_a_writer(foreign: str) -> None:
    async with two_clients() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        node = await other.create(f"/rw/{foreign}", ephemeral=True, sequential=True, make_parents=True)
        assert await rw.write().try_acquire() is None
        lease = await rw.read().try_acquire()
        assert (lease is not None) == ("__READ__" in foreign or "__rlock__" in foreign)
        if lease is None:
            reader = await start_waiting(other, rw.read(), 2)
            await other.delete(node)
            lease = await reader
        await lease.release()


# -- what a task may not ask for --------------------------------------------------------------------------------------


async def test_a_task_that_would_wait_for_itself_gets_an_error_and_sends_nothing() -> None:
    path = "/rw"
    async with testing.Server() as server, Proxy(server.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        rw = ReadWriteLock(zk, path)
        for mine, locking in ((rw.read(), rw.write()), (rw.write(), rw.write()), (rw.write(), rw.read())):
            async with mine:
                mark = proxy.mark()
                for asked in (locking.acquire(), locking.try_acquire(), locking.acquire(within=5)):
                    with pytest.raises(
                        RuntimeError, match=f"this task holds the .* lock {path}, and would wait for itself"
                    ):
                        await asked
                assert proxy.requests(mark) == []
        async with rw.write():  # allowed again after the release
            pass


async def test_a_task_that_reads_may_read_again_although_a_writer_waits() -> None:
    """Pitfall 7: its read lease is counted, like that of a re-entrant lock."""
    async with two_clients() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        async with rw.read() as lease:
            writer = await start_waiting(other, ReadWriteLock(other, "/rw").write(), 2)
            async with rw.read() as again:
                assert again is lease
            assert await rw.read().try_acquire() is lease
            await lease.release()
            lease.check()
            assert not writer.done()
        await (await writer).release()


@pytest.mark.parametrize("bad", ["reader", "", True, 1, b"readers"])
async def test_an_unknown_preference_or_a_bad_path_is_refused(bad: Any) -> None:
    async with two_clients() as (zk, _):
        with pytest.raises(ValueError, match="prefer must be None"):
            ReadWriteLock(zk, "/rw", prefer=bad)
        with pytest.raises(ValueError, match="bad path"):
            ReadWriteLock(zk, "rw")


# -- requests ---------------------------------------------------------------------------------------------------------


_PLAIN = ["create2", "getChildren", "delete"]


@pytest.mark.parametrize(
    ("prefer", "read", "write"),
    [
        (None, _PLAIN, _PLAIN),
        ("readers", _PLAIN, [*_PLAIN[:2], "getChildren2", *_PLAIN[:2], "delete", "delete"]),
        ("writers", ["getChildren2", *_PLAIN], _PLAIN),
    ],
)
async def test_uncontended_requests(
    each_server: Server, path: str, prefer: Preference | None, read: list[str], write: list[str]
) -> None:
    """Acquire and release are one write each; only the side without preference pays for a preference."""
    async with Proxy(each_server.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        rw = ReadWriteLock(zk, path, prefer=prefer)
        for locking in (rw.read(), rw.write()):
            async with locking:  # from now on the client knows that the nodes stand
                pass
        for locking, requests in ((rw.read(), read), (rw.write(), write)):
            mark = proxy.mark()
            async with locking:
                assert requests != _PLAIN or proxy.segments(mark) == 1
            assert proxy.requests(mark) == requests
            assert requests != _PLAIN or proxy.segments(mark) == 2


async def test_readers_get_events_of_the_last_writer_before_them_only(each_server: Server, path: str) -> None:
    """No herd: while another writer is between, none of the readers could do anything."""
    async with proxied(each_server) as (proxy, zk, zk2):
        first = await ReadWriteLock(zk, path).write().acquire()
        second = await start_waiting(zk, ReadWriteLock(zk, path).write(), 2)
        rw = ReadWriteLock(zk2, path)
        readers = [asyncio.create_task(rw.read().acquire()) for _ in range(5)]
        await until_armed(10, zk2)
        mark = proxy.mark()
        await first.release()
        lease = await second
        await zk2.ping()
        assert proxy.events(mark) == []
        assert proxy.requests(mark) == []
        await lease.release()
        for reader in readers:
            await (await reader).release()


# -- downgrade --------------------------------------------------------------------------------------------------------


async def test_a_downgrade_lets_readers_in_and_no_writer(each_server: Server, path: str) -> None:
    """Pitfall 16: the waiting writer has a lower number than any new ticket that the holder could take to read."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        rw, rw2 = ReadWriteLock(zk, path, data=b"host-7"), ReadWriteLock(other, path)
        written = await rw.write().acquire()
        assert isinstance(written, WriteLease)
        before = await start_waiting(zk, rw2.read(), 2)
        writer = await start_waiting(zk, rw2.write(), 3)
        behind = await start_waiting(zk, rw2.read(), 4)
        read = await written.downgrade()
        beside = await before
        assert not writer.done()
        assert not behind.done()
        assert (read.path, read.token) == (written.path, written.token)
        read.check()
        assert (await other.get(read.path)).data.endswith(b"host-7")
        await written.release()  # has no effect
        read.check()
        assert await written.lost() is None
        assert not written.is_certain()
        for use in (written.check, written.transaction):
            with pytest.raises(RuntimeError, match="was downgraded"):
                use()
        with pytest.raises(RuntimeError, match="was downgraded"):
            await written.downgrade()
        await beside.release()
        assert not writer.done()
        await read.release()
        await (await writer).release()
        await (await behind).release()
        assert await line(zk, path) == []


async def test_a_downgrade_inside_the_body() -> None:
    async with two_clients() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        async with rw.write() as lease:
            read = await lease.downgrade()
            async with rw.read() as again:  # the task counts as a reader now
                assert again is read
            with pytest.raises(RuntimeError, match="this task holds the read lock"):
                await rw.write().acquire()
            async with ReadWriteLock(other, "/rw").read():
                pass
            assert await ReadWriteLock(other, "/rw").write().try_acquire() is None
            before = await zk.get("/rw")
            assert await ReadWriteLock(other, "/rw").write().try_acquire() is None
            assert await zk.get("/rw") == before  # the second one has taken no ticket
            read.check()
        assert read.is_released
        assert await line(other, "/rw") == []


async def test_the_loss_of_the_read_lease_cancels_the_body_of_the_write_lease() -> None:
    """Pitfall 14."""
    async with two_clients() as (zk, other):
        with body_raises(LockLostError, match="deleted"):
            async with ReadWriteLock(zk, "/rw").write() as lease:
                read = await lease.downgrade()
                await other.delete(read.path)
                await asyncio.Event().wait()
        assert await line(other, "/rw") == []
        assert not zk.on_closing._callbacks


@pytest.mark.parametrize("how", ["deleted", "expired"])
async def test_a_lost_write_lease_cannot_be_downgraded(how: str) -> None:
    """Pitfalls 13 and 17."""
    async with testing.Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        rw = ReadWriteLock(zk, "/rw")
        lease = await rw.write().acquire()
        if how == "expired":
            server.expire(zk.session_id)
        else:
            await other.delete(lease.path)
        with pytest.raises(LockLostError):
            await lease.downgrade()
        with pytest.raises(LockLostError):
            lease.check()
        await lease.release()
        async with ReadWriteLock(other, "/rw").write():
            pass
        async with rw.write() as again:
            pass
        with pytest.raises(RuntimeError, match="was released"):
            await again.downgrade()


@pytest.mark.parametrize("was_written", [False, True])
async def test_a_lease_that_is_released_while_it_is_downgraded_gives_no_read_lease(was_written: bool) -> None:
    async with scene() as stage, no_task_stays():
        rw = ReadWriteLock(stage.zk, stage.path)
        lease = await rw.write().acquire()
        if was_written:  # the downgrade learns of that, and then that the node is gone
            await stage.other.set(lease.path, b"by hand")
        with stage.server.hold_replies("setData", session=stage.zk.session_id) as writing:
            downgrading = asyncio.create_task(lease.downgrade())
            await writing.until_hit()
            releasing = asyncio.create_task(lease.release())
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match=f"{lease.path} was released while it was downgraded"):
            await downgrading
        await releasing
        await until_line(stage.other, stage.path, 0)
        async with rw.write():
            pass


async def test_a_downgrade_that_the_server_refuses_lets_no_reader_in_and_can_be_repeated() -> None:
    async with scene() as stage, no_task_stays(), ReadWriteLock(stage.zk, stage.path).write() as lease:
        with stage.server.answering("setData", zkwire.NoAuthError, session=stage.zk.session_id) as refusing:
            with pytest.raises(zkwire.NoAuthError):
                await lease.downgrade()
            assert refusing.hits == 1
        assert not lease.is_certain()
        assert await ReadWriteLock(stage.other, stage.path).read().try_acquire() is None
        read = await lease.downgrade()
        async with ReadWriteLock(stage.other, stage.path).read():
            read.check()


# -- preferences ------------------------------------------------------------------------------------------------------


async def test_preferred_readers_get_in_while_writers_wait() -> None:
    async with two_clients() as (zk, other):
        rw = ReadWriteLock(zk, "/rw", prefer="readers")
        first = await (await rw.write().acquire()).downgrade()
        writers = [asyncio.create_task(ReadWriteLock(other, "/rw", prefer="readers").write().acquire()) for _ in "12"]
        await until_line(zk, "/rw/writers", 2)
        await other.ping()
        second = await asyncio.create_task(rw.read().acquire(within=5))
        await first.release()
        await other.ping()
        assert not any(writer.done() for writer in writers)
        await second.release()
        done, _ = await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
        lease = done.pop().result()
        assert await rw.write().try_acquire() is None
        reader = asyncio.create_task(rw.read().acquire())  # its ticket is before the one of the second writer
        await until_tickets(zk, "/rw", 2)
        await lease.release()
        for task in (reader, *writers):
            await release(await task)


async def test_preferred_writers_get_in_before_readers_that_came_earlier() -> None:
    async with two_clients() as (zk, other):
        rw, rw2 = (ReadWriteLock(client, "/rw", prefer="writers") for client in (zk, other))
        first = await rw.write().acquire()
        reader = asyncio.create_task(rw2.read().acquire())
        await asyncio.create_task(outcome(rw2.read().acquire(within=0.01)))
        assert await asyncio.create_task(rw.read().try_acquire()) is None
        second = await start_waiting(other, rw2.write(), 2)
        assert not reader.done()
        await first.release()
        lease = await second
        assert not reader.done()
        await lease.release()
        await release(await reader, await rw.read().acquire(within=5))


async def test_a_reader_waits_for_the_last_of_several_preferred_writers_only() -> None:
    """One watch and one list, and not one for each writer that leaves."""
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        writers = [await ReadWriteLock(stage.other, stage.path).write().acquire()]
        waiting = [
            await start_waiting(stage.zk, ReadWriteLock(stage.zk, stage.path).write(), tickets) for tickets in (2, 3, 4)
        ]
        reader = asyncio.create_task(ReadWriteLock(zk, stage.path, prefer="writers").read().acquire())
        await until_armed(1, zk)
        for task in waiting:
            await writers[-1].release()
            writers.append(await task)
            await zk.ping()
        assert not reader.done()
        assert [name for name in count.requests if name != "ping"] == ["getChildren2", "getData"]
        await writers[-1].release()
        await (await reader).release()
        assert [name for name in count.requests if name != "ping"][:3] == ["getChildren2", "getData", "getChildren2"]
        assert count.requests.count("getData") == 1


@pytest.mark.parametrize("prefer", ["readers", "writers"])
async def test_what_is_not_ephemeral_is_not_preferred(prefer: Preference, caplog: pytest.LogCaptureFixture) -> None:
    async with two_clients() as (zk, other):
        kind = "__READ__" if prefer == "readers" else "__WRIT__"
        node = await other.create(f"/rw/_c_x-{kind}", sequential=True, make_parents=True)
        rw = ReadWriteLock(zk, "/rw", prefer=prefer)
        locking: Locking[Any] = rw.write() if prefer == "readers" else rw.read()
        await release(await taken(locking))
        await release(await locking.acquire(within=5))
        assert sum(node in text for text in caplog.messages) == 1


async def test_a_reader_that_must_not_read_a_preferred_ticket_waits(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage, no_task_stays():
        writer = await ReadWriteLock(stage.other, stage.path).write().acquire()
        reading = ReadWriteLock(stage.zk, stage.path, prefer="writers").read()
        with stage.server.answering("getData", zkwire.NoAuthError, session=stage.zk.session_id) as refusing:
            assert await reading.try_acquire() is None
            assert refusing.hits == 1
            reader = asyncio.create_task(reading.acquire())
            await until_armed(1, stage.zk)
            await stage.other.create(f"{stage.path}/note")  # wakes the reader, which then waits again
            await refusing.until_hit(3)
            await until_armed(1, stage.zk)
            assert not reader.done()
            assert await line(stage.other, stage.path) == [writer.path.rpartition("/")[2]]
            await writer.release()
            lease = await reader
        lease.check()
        await lease.release()
        assert sum(writer.path in text for text in caplog.messages) == 1
        await no_watch_stays(stage.server.hosts)


async def test_a_preferred_writer_that_leaves_while_it_is_looked_at_is_not_waited_for() -> None:
    """Behind the list, and behind the refused read."""
    async with scene() as stage, no_task_stays():
        reading = ReadWriteLock(stage.zk, stage.path, prefer="writers").read()
        for ask in (reading.try_acquire, reading.acquire):
            writer = await ReadWriteLock(stage.other, stage.path).write().acquire()
            with stage.server.hold_replies("getChildren", session=stage.zk.session_id) as listing:
                asking = asyncio.create_task(ask())
                await listing.until_hit()
                await writer.release()
            lease = await asking
            assert lease is not None
            await lease.release()
        writer = await ReadWriteLock(stage.other, stage.path).write().acquire()
        with (
            stage.server.answering("getData", zkwire.NoAuthError, session=stage.zk.session_id),
            stage.server.hold_replies("getData", session=stage.zk.session_id) as looking,
        ):
            asking = asyncio.create_task(reading.acquire())
            await looking.until_hit()
            await writer.release()
            looking.end()
            lease = await asking
        await release(lease)
        writer = await ReadWriteLock(stage.other, stage.path).write().acquire()
        with stage.server.answering("getData", zkwire.NoNodeError, session=stage.zk.session_id, times=1) as gone:
            asking = asyncio.create_task(reading.acquire())
            await gone.until_hit()
            await until_armed(1, stage.zk)  # it lists again before it takes a ticket
        assert len(await line(stage.other, stage.path)) == 1
        await writer.release()
        await release(await asking)
        await no_watch_stays(stage.server.hosts)


async def test_a_preferred_writer_that_downgrades_lets_readers_in() -> None:
    async with two_clients() as (zk, other):
        rw, rw2 = (ReadWriteLock(client, "/rw", prefer="writers") for client in (zk, other))
        lease = await rw.write().acquire()
        reader = asyncio.create_task(rw2.read().acquire())
        await other.ping()
        read = await lease.downgrade()
        await (await reader).release()
        await read.release()


async def test_the_node_where_writers_queue_is_a_container_and_no_ticket(each_server: Server, path: str) -> None:
    async with Proxy(each_server.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        async with ReadWriteLock(zk, f"{path}/rw", prefer="readers").write(), Lock(zk, f"{path}/rw/writers").hold():
            pass
        made = {f.path: f.opcode for f in proxy.log if f.direction == "reply" and f.opcode.startswith("create")}
        assert made[path] == "create2"
        assert made[f"{path}/rw"] == made[f"{path}/rw/writers"] == "createContainer"


@pytest.mark.parametrize("prefer", ["readers", "writers"])
async def test_a_try_that_lets_others_pass_takes_no_ticket(prefer: Preference) -> None:
    async with scene() as stage:
        theirs, ours = ReadWriteLock(stage.other, stage.path), ReadWriteLock(stage.zk, stage.path, prefer=prefer)
        holding, trying = (theirs.read(), ours.write()) if prefer == "readers" else (theirs.write(), ours.read())
        async with holding:
            with stage.server.delay_replies(0, "create", session=stage.zk.session_id) as creating:
                assert await trying.try_acquire() is None
                assert creating.hits == 0
