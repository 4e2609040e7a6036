"""The read/write lock: who holds beside whom, in which order, what it costs, and what a task may not ask for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError, ReadWriteLock, WriteLease
from recipes.line import ticket_data
from recipes.line.locking import Locking
from recipes.read_write_lock import Preference
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, line, no_task_stays, outcome, until, until_line
from zkwire import Client
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)

PREFERENCES: list[Preference | None] = [None, "readers", "writers"]


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of one server in memory, which keeps no watch at the end."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        yield zk, other
        await no_watch_stays(server.hosts)


async def waiting(zk: Client, path: str, locking: Locking[Any], tickets: int) -> asyncio.Task[Any]:
    """Start to acquire, and return the task once so many tickets stand in the line."""
    task = asyncio.create_task(locking.acquire())
    await until_line(zk, path, tickets)
    await zk.ping()
    return task


async def tickets(zk: Client, path: str) -> list[str]:
    return [name for name in await line(zk, path) if zkwire.sequence(name) is not None]


# -- who holds beside whom --------------------------------------------------------------------------------------------


async def test_readers_hold_together_and_a_writer_alone_in_the_order_of_tickets(
    zookeeper: RealServer, path: str
) -> None:
    """Pitfall 4: a reader waits for the writers before it and for no other."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        rw, rw2 = ReadWriteLock(zk, path), ReadWriteLock(other, path)
        first = await rw.read().acquire()
        second = await rw2.read().acquire()
        writer = await waiting(zk, path, rw2.write(), 3)
        third = await waiting(zk, path, ReadWriteLock(zk, path).read(), 4)
        fourth = await waiting(zk, path, ReadWriteLock(zk, path).read(), 5)
        assert await ReadWriteLock(zk, path).read().try_acquire() is None  # there is a writer before it
        await first.release()
        assert not writer.done()
        await second.release()
        written = await writer
        assert not third.done()
        assert not fourth.done()
        await written.release()
        leases = [await third, await fourth]
        assert first.token < second.token < written.token < leases[0].token < leases[1].token
        for lease in leases:
            await lease.release()
        assert await line(zk, path) == []


async def test_several_tasks_read_through_one_object_at_once() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        inside = 0
        everybody = asyncio.Event()

        async def read() -> None:
            nonlocal inside
            async with rw.read():
                inside += 1
                if inside == 5:
                    everybody.set()
                await everybody.wait()

        await asyncio.gather(*(read() for _ in range(5)))
        assert await line(other, "/rw") == []


async def test_several_tasks_write_through_one_object_in_turn() -> None:
    async with two() as (zk, _):
        rw = ReadWriteLock(zk, "/rw")
        inside = 0

        async def write() -> None:
            nonlocal inside
            async with rw.write():
                inside += 1
                assert inside == 1
                await zk.ping()
                inside -= 1

        await asyncio.gather(*(write() for _ in range(5)))


@pytest.mark.parametrize(
    "foreign", ["lock-", "_c_x-__WRIT__", "7f__lock__", "_c_x-lease-", "_c_x-__READ__", "7f__rlock__"]
)
async def test_who_is_not_known_for_a_reader_counts_as_a_writer(foreign: str) -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        node = await other.create(f"/rw/{foreign}", ephemeral=True, sequential=True, make_parents=True)
        assert await rw.write().try_acquire() is None
        lease = await rw.read().try_acquire()
        assert (lease is not None) == ("__READ__" in foreign or "__rlock__" in foreign)
        if lease is None:
            reader = await waiting(other, "/rw", rw.read(), 2)
            await other.delete(node)
            lease = await reader
        await lease.release()


async def test_a_lock_and_a_read_write_lock_exclude_each_other() -> None:
    async with two() as (zk, other):
        async with Lock(other, "/rw"):
            assert await ReadWriteLock(zk, "/rw").read().try_acquire() is None
            assert await ReadWriteLock(zk, "/rw").write().try_acquire() is None
        async with ReadWriteLock(zk, "/rw").read():
            assert await Lock(other, "/rw").try_acquire() is None


async def test_names_are_curators() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw", data=b"host-7")
        async with rw.read() as lease:
            assert lease.path.partition("-__READ__")[2] == "0000000000"
            assert (await other.get(lease.path)).data == b"host-7"
        async with rw.write() as lease:
            assert lease.path.partition("-__WRIT__")[2] == "0000000001"
        assert lease.path.startswith("/rw/_c_")


# -- what a task may not ask for --------------------------------------------------------------------------------------


async def test_no_silent_upgrade_and_no_wait_for_oneself(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        rw = ReadWriteLock(zk, path)
        for mine, locking in ((rw.read(), rw.write()), (rw.write(), rw.write()), (rw.write(), rw.read())):
            async with mine:
                mark = proxy.mark()
                for asked in (locking.acquire(), locking.try_acquire(), locking.acquire(within=5)):
                    with pytest.raises(
                        RuntimeError, match=f"this task holds the .* lock {path}, and would wait for it"
                    ):
                        await asked
                assert proxy.requests(mark) == []
        async with rw.write():  # and afterwards it may
            pass


async def test_who_reads_may_read_again_even_behind_a_writer() -> None:
    """Pitfall 7: counted, as the re-entrant lock is."""
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        async with rw.read() as lease:
            writer = await waiting(other, "/rw", ReadWriteLock(other, "/rw").write(), 2)
            async with rw.read() as again:
                assert again is lease
            assert await rw.read().try_acquire() is lease
            await lease.release()
            lease.check()
            assert not writer.done()
        await (await writer).release()


async def test_another_task_is_another_reader() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        async with rw.read() as lease:
            taken = await asyncio.create_task(rw.read().acquire())
            assert taken is not lease
            writer = asyncio.create_task(rw.write().acquire())  # another task may wait for the write lock
            await until_line(other, "/rw", 3)
        await taken.release()
        await (await writer).release()


async def test_a_lost_lease_is_no_longer_held() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        lease = await rw.read().acquire()
        losing = asyncio.create_task(lease.lost())
        await other.delete(lease.path)
        assert isinstance(await losing, LockLostError)
        async with rw.write():
            pass
        await lease.release()


@pytest.mark.parametrize("bad", ["reader", "", True, 1, b"readers"])
async def test_a_bad_preference(bad: Any) -> None:
    async with two() as (zk, _):
        with pytest.raises(ValueError, match="prefer must be None"):
            ReadWriteLock(zk, "/rw", prefer=bad)
        with pytest.raises(ValueError, match="bad path"):
            ReadWriteLock(zk, "rw")


async def test_bounds_name_what_was_waited_for() -> None:
    """Pitfall 8."""
    async with two() as (zk, other), ReadWriteLock(other, "/rw").write():
        with pytest.raises(TimeoutError, match=r"the read lock /rw was not free within 0\.01 s"):
            await ReadWriteLock(zk, "/rw").read().acquire(within=0.01)
        with pytest.raises(TimeoutError, match=r"the write lock /rw was not free within 0\.01 s"):
            async with ReadWriteLock(zk, "/rw").write().hold(within=0.01):
                raise AssertionError("the body must not run")
        await until_line(other, "/rw", 1)


# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ReadWriteLock.read, ReadWriteLock.write])
async def test_uncontended_acquire_and_release_are_two_writes(
    zookeeper: RealServer, path: str, kind: Callable[[ReadWriteLock], Locking[Any]]
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(path, container=True)
        mark = proxy.mark()
        async with kind(ReadWriteLock(zk, path)):
            assert proxy.segments(mark) == 1
        assert proxy.requests(mark) == ["create2", "getChildren", "delete"]
        assert proxy.segments(mark) == 2


async def test_what_preferences_cost(zookeeper: RealServer, path: str) -> None:
    """Those who are preferred pay nothing; a reader that yields pays a list, a writer that does its place outside."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/writers", make_parents=True)
        plain = ["create2", "getChildren", "delete"]
        for prefer, read, write in (
            ("readers", plain, [*plain[:2], "getChildren", *plain[:2], "delete", "delete"]),
            ("writers", ["getChildren", *plain], plain),
        ):
            rw = ReadWriteLock(zk, path, prefer="readers" if prefer == "readers" else "writers")
            mark = proxy.mark()
            async with rw.read():
                pass
            assert proxy.requests(mark) == read
            mark = proxy.mark()
            async with rw.write():
                pass
            assert proxy.requests(mark) == write


async def test_the_hand_over_to_readers_sends_nothing(zookeeper: RealServer, path: str) -> None:
    """Pitfall 19."""
    async with (
        Proxy(zookeeper.hosts) as proxy,
        zkwire.connect(zookeeper.hosts) as zk,
        zkwire.connect(proxy.hosts) as zk2,
    ):
        writer = await ReadWriteLock(zk, path).write().acquire()
        mark = proxy.mark()
        rw = ReadWriteLock(zk2, path)
        readers = [asyncio.create_task(rw.read().acquire()) for _ in range(3)]
        await proxy.until(lambda: replies(proxy, mark).count("getData") == 6)
        mark = proxy.mark()
        await writer.release()
        leases = [await reader for reader in readers]
        assert proxy.requests(mark) == []
        assert proxy.events(mark) == [("NodeDeleted", writer.path)]
        for lease in leases:
            await lease.release()


def replies(proxy: Proxy, since: int) -> list[str]:
    return [frame.opcode for frame in proxy.log[since:] if frame.direction == "reply" and not frame.err]


async def test_readers_hear_only_of_the_last_writer_before_them(zookeeper: RealServer, path: str) -> None:
    """No herd: while another writer stands between, none of them can act."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(zookeeper.hosts))
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        zk2 = await stack.enter_async_context(zkwire.connect(proxy.hosts))
        first = await ReadWriteLock(zk, path).write().acquire()
        second = await waiting(zk, path, ReadWriteLock(zk, path).write(), 2)
        mark = proxy.mark()
        rw = ReadWriteLock(zk2, path)
        readers = [asyncio.create_task(rw.read().acquire()) for _ in range(5)]
        await proxy.until(lambda: replies(proxy, mark).count("getData") == 10)
        mark = proxy.mark()
        await first.release()
        lease = await second
        await zk2.ping()
        assert proxy.events(mark) == []
        assert proxy.requests(mark) == []
        await lease.release()
        for reader in readers:
            await (await reader).release()


async def test_a_downgrade_is_one_request_and_one_for_each_reader(zookeeper: RealServer, path: str) -> None:
    async with (
        Proxy(zookeeper.hosts) as proxy,
        Proxy(zookeeper.hosts) as theirs,
        zkwire.connect(proxy.hosts) as zk,
        zkwire.connect(theirs.hosts) as zk2,
    ):
        lease = await ReadWriteLock(zk, path).write().acquire()
        mark = theirs.mark()
        rw = ReadWriteLock(zk2, path)
        readers = [asyncio.create_task(rw.read().acquire()) for _ in range(3)]
        await theirs.until(lambda: replies(theirs, mark).count("getData") == 6)
        await until(lambda: lease.ticket.is_watched)  # the holder's own watch, which the change uses up
        mark, since = proxy.mark(), theirs.mark()
        read = await lease.downgrade()
        assert proxy.requests(mark)[:1] == ["setData"]
        leases = [await reader for reader in readers]
        assert theirs.requests(since) == ["getData"] * 3
        for each in (read, *leases):
            await each.release()


# -- downgrade --------------------------------------------------------------------------------------------------------


async def test_a_downgrade_lets_readers_in_and_no_writer(zookeeper: RealServer, path: str) -> None:
    """Pitfall 16: the writer that waits has a lower number than any ticket that the reader could take."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        rw, rw2 = ReadWriteLock(zk, path, data=b"host-7"), ReadWriteLock(other, path)
        written = await rw.write().acquire()
        assert isinstance(written, WriteLease)
        before = await waiting(zk, path, rw2.read(), 2)
        writer = await waiting(zk, path, rw2.write(), 3)
        behind = await waiting(zk, path, rw2.read(), 4)
        read = await written.downgrade()
        beside = await before
        assert not writer.done()
        assert not behind.done()
        assert (read.path, read.token) == (written.path, written.token)
        read.check()
        assert (await other.get(read.path)).data.endswith(b"host-7")
        await written.release()  # does nothing
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


async def test_readers_that_come_after_a_downgrade_enter_at_once() -> None:
    async with two() as (zk, other):
        lease = await ReadWriteLock(zk, "/rw").write().acquire()
        assert isinstance(lease, WriteLease)
        read = await lease.downgrade()
        async with ReadWriteLock(other, "/rw").read().hold(within=5):
            pass
        assert await ReadWriteLock(other, "/rw").write().try_acquire() is None
        await read.release()


@pytest.mark.parametrize("prefer", PREFERENCES)
async def test_a_reader_that_tries_after_a_downgrade_has_it(prefer: Preference | None) -> None:
    async with two() as (zk, other):
        lease = await ReadWriteLock(zk, "/rw").write().acquire()
        reading = ReadWriteLock(other, "/rw", prefer=prefer).read()
        assert await reading.try_acquire() is None
        read = await lease.downgrade()
        tried = await reading.try_acquire()
        assert tried is not None
        tried.check()
        await tried.release()
        writer = await waiting(zk, "/rw", ReadWriteLock(zk, "/rw").write(), 2)
        assert await reading.try_acquire() is None  # it would stand behind the writer that waits
        await read.release()
        await (await writer).release()
        assert await line(other, "/rw") == []


async def test_a_reader_that_tries_while_the_writer_goes_has_it() -> None:
    """What the list has shown is gone when it is read, or has no mark: nobody is left, or somebody is."""
    async with scene() as stage:
        lease = await ReadWriteLock(stage.other, stage.path).write().acquire()
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id) as held:
            trying = asyncio.create_task(ReadWriteLock(stage.zk, stage.path).read().try_acquire())
            await held.until_hit()
            await lease.release()
        tried = await trying
        assert tried is not None
        await tried.release()


async def test_a_reader_that_tries_and_cannot_read_the_writers_node_leaves_nothing() -> None:
    async with scene() as stage, no_task_stays():
        lease = await ReadWriteLock(stage.other, stage.path).write().acquire()
        reading = ReadWriteLock(stage.zk, stage.path).read()
        for error in (zkwire.NoAuthError, zkwire.ThrottledError):
            with stage.server.answering("getData", error, session=stage.zk.session_id) as refusing:
                came = await outcome(reading.try_acquire())
                assert refusing.hits == 1
            assert came is None if error is zkwire.NoAuthError else isinstance(came, error)
            await until_line(stage.other, stage.path, 1)
        await lease.release()


async def test_a_reader_that_tries_is_cut_and_cancelled_at_every_step() -> None:
    """Pitfalls 9, 10 and 13: behind a writer that has let readers in, and behind one that has not."""

    async def play(stage: Scene) -> None:
        written = await ReadWriteLock(stage.other, stage.path).write().acquire()
        lease: Lease = written
        reading = ReadWriteLock(stage.zk, stage.path).read()
        try:
            assert await reading.try_acquire() is None
            lease = await written.downgrade()
            tried = await reading.try_acquire()
            assert tried is not None
            await tried.release()
        finally:
            await lease.release()

    await cut_at_every_step(play, at_least=8)
    await cancel_at_every_moment(play)


async def test_a_downgrade_inside_of_the_block() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        async with rw.write() as lease:
            read = await lease.downgrade()
            async with rw.read() as again:  # the task reads now
                assert again is read
            with pytest.raises(RuntimeError, match="this task holds the read lock"):
                await rw.write().acquire()
            async with ReadWriteLock(other, "/rw").read():
                pass
            read.check()
        assert read.is_released
        assert await line(other, "/rw") == []


async def test_the_loss_of_the_read_lease_cancels_the_body_of_the_write_lease() -> None:
    """Pitfall 14."""
    async with two() as (zk, other):
        with body_raises(LockLostError, match="somebody else has deleted it"):
            async with ReadWriteLock(zk, "/rw").write() as lease:
                read = await lease.downgrade()
                await other.delete(read.path)
                await asyncio.Event().wait()
        assert await line(other, "/rw") == []


async def test_data_that_looks_like_a_mark_is_none() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw", data=ticket_data.shared(b""))
        async with rw.write():
            assert await ReadWriteLock(other, "/rw").read().try_acquire() is None
            reader = await waiting(other, "/rw", ReadWriteLock(other, "/rw").read(), 2)
            await other.ping()
            assert not reader.done()
        await (await reader).release()


async def test_a_downgrade_of_a_node_that_somebody_has_written_into() -> None:
    async with two() as (zk, other), ReadWriteLock(zk, "/rw").write() as lease:
        await other.set(lease.path, b"by hand")
        read = await lease.downgrade()
        assert (await other.get(read.path)).data == ticket_data.shared(b"by hand")


async def test_a_downgrade_of_what_is_lost_or_released() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw")
        lost = await rw.write().acquire()
        released = await asyncio.create_task(ReadWriteLock(zk, "/rw2").write().acquire())
        await other.delete(lost.path)
        with pytest.raises(LockLostError):
            await lost.downgrade()
        await lost.release()
        await released.release()
        with pytest.raises(RuntimeError, match="was released"):
            await released.downgrade()


async def test_a_downgrade_and_the_end_of_the_session() -> None:
    """Pitfalls 13 and 17."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        rw = ReadWriteLock(zk, "/rw")
        lease = await rw.write().acquire()
        server.expire(zk.session_id)
        with pytest.raises(LockLostError):
            await lease.downgrade()
        await lease.release()
        async with ReadWriteLock(other, "/rw").write():
            pass
        async with rw.write():
            pass


# -- preferences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", PREFERENCES)
async def test_every_preference_excludes(prefer: Preference | None) -> None:
    async with two() as (zk, other):
        inside: list[str] = []

        async def use(client: Client, kind: str) -> None:
            rw = ReadWriteLock(client, "/rw", prefer=prefer)
            locking: Locking[Any] = rw.read() if kind == "r" else rw.write()
            for _ in range(3):
                async with locking:
                    inside.append(kind)
                    assert inside == ["w"] or set(inside) == {"r"}
                    await client.ping()
                    inside.remove(kind)

        await asyncio.gather(*(use((zk, other)[number % 2], "rrw"[number % 3]) for number in range(9)))
        await until_tickets(other, "/rw", 0)


async def until_tickets(zk: Client, path: str, count: int) -> None:
    async def so_many() -> bool:
        return len(await tickets(zk, path)) == count

    await until(so_many)


async def test_preferred_readers_come_in_while_a_writer_waits() -> None:
    async with two() as (zk, other):
        rw = ReadWriteLock(zk, "/rw", prefer="readers")
        first = await rw.read().acquire()
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
        reader = asyncio.create_task(rw.read().acquire())  # stands before the second writer, who is outside
        await until_tickets(zk, "/rw", 2)
        await lease.release()
        await (await reader).release()
        for writer in writers:
            await (await writer).release()


async def test_preferred_writers_come_before_readers_that_wait_longer() -> None:
    async with two() as (zk, other):
        rw, rw2 = (ReadWriteLock(client, "/rw", prefer="writers") for client in (zk, other))
        first = await rw.write().acquire()
        reader = asyncio.create_task(rw2.read().acquire())
        await asyncio.create_task(outcome(rw2.read().acquire(within=0.01)))
        assert await asyncio.create_task(rw.read().try_acquire()) is None
        second = await waiting(other, "/rw", rw2.write(), 2)
        assert not reader.done()
        await first.release()
        lease = await second
        assert not reader.done()
        await lease.release()
        await (await reader).release()


async def test_preferred_writers_that_downgrade_let_readers_in() -> None:
    async with two() as (zk, other):
        rw, rw2 = (ReadWriteLock(client, "/rw", prefer="writers") for client in (zk, other))
        lease = await rw.write().acquire()
        reader = asyncio.create_task(rw2.read().acquire())
        await other.ping()
        read = await lease.downgrade()
        await (await reader).release()
        await read.release()


async def test_the_line_of_writers_goes_with_the_lock(zookeeper: RealServer, path: str) -> None:
    """The node below which writers wait is no contender, and a container, as the lock's own node."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        async with ReadWriteLock(zk, f"{path}/rw", prefer="readers").write(), Lock(zk, f"{path}/rw/writers").hold():
            pass
        made = {f.path: f.opcode for f in proxy.log if f.direction == "reply" and f.opcode.startswith("create")}
        assert made[path] == "create2"
        assert made[f"{path}/rw"] == made[f"{path}/rw/writers"] == "createContainer"


async def test_a_session_that_ends_outside_of_the_line() -> None:
    """Pitfall 17: who waits outside goes on in the session that follows."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        for prefer, holding in (("readers", ReadWriteLock.read), ("writers", ReadWriteLock.write)):
            path = f"/rw-{prefer}"
            held = await asyncio.create_task(holding(ReadWriteLock(other, path)).acquire())
            rw = ReadWriteLock(zk, path, prefer="readers" if prefer == "readers" else "writers")
            other_kind: Locking[Any] = rw.write() if prefer == "readers" else rw.read()
            task = asyncio.create_task(other_kind.acquire())
            await zk.ping()
            await zk.ping()
            server.expire(zk.session_id)
            await until(lambda: zk.state is zkwire.SessionState.CONNECTED)
            await held.release()
            await (await task).release()


# -- cuts and cancellations -------------------------------------------------------------------------------------------


def acquiring(kind: str, prefer: Preference | None) -> Callable[[Scene], Awaitable[None]]:
    async def play(stage: Scene) -> None:
        rw = ReadWriteLock(stage.zk, stage.path, prefer=prefer)
        locking: Locking[Any] = rw.read() if kind == "read" else rw.write()
        async with locking:
            pass

    return play


def contending(kind: str, prefer: Preference | None) -> Callable[[Scene], Awaitable[None]]:
    """Behind a reader and a writer that leave while it waits."""

    async def play(stage: Scene) -> None:
        rw, others = ReadWriteLock(stage.zk, stage.path, prefer=prefer), ReadWriteLock(stage.other, stage.path)
        first = await others.read().acquire()
        second = asyncio.create_task(others.write().acquire())
        await until_line(stage.other, stage.path, 2)
        locking: Locking[Any] = rw.read() if kind == "read" else rw.write()
        task = asyncio.create_task(locking.acquire())
        await until(lambda: bool(len(stage.zk._session.watches)) or task.done())
        await first.release()
        await (await second).release()
        lease = await task
        lease.check()
        await lease.release()

    return play


async def downgrading(stage: Scene) -> None:
    """With a reader and then a writer behind."""
    others = ReadWriteLock(stage.other, stage.path)
    async with ReadWriteLock(stage.zk, stage.path).write() as lease:
        reader = asyncio.create_task(others.read().acquire())
        await until_line(stage.other, stage.path, 2)
        writer = asyncio.create_task(others.write().acquire())
        await until_line(stage.other, stage.path, 3)
        read = await lease.downgrade()
        beside = await reader
        read.check()
        assert not writer.done()
        await beside.release()
    await (await writer).release()


@pytest.mark.parametrize("prefer", PREFERENCES)
@pytest.mark.parametrize("kind", ["read", "write"])
async def test_an_acquire_is_cut_at_every_step(kind: str, prefer: Preference | None) -> None:
    """Pitfalls 1, 10, 13 and 20."""
    await cut_at_every_step(acquiring(kind, prefer), stays=["writers"], at_least=3)
    await cut_at_every_step(contending(kind, prefer), stays=["writers"], at_least=4)


@pytest.mark.parametrize("prefer", PREFERENCES)
@pytest.mark.parametrize("kind", ["read", "write"])
async def test_an_acquire_is_cancelled_at_every_moment(kind: str, prefer: Preference | None) -> None:
    """Pitfalls 9, 10, 11 and 24."""
    play = acquiring(kind, prefer)
    await cancel_at_every_moment(play, afterwards=acquiring("write", None), stays=["writers"])


@pytest.mark.parametrize("prefer", PREFERENCES)
async def test_a_wait_is_cancelled_at_every_moment(prefer: Preference | None) -> None:
    """Pitfalls 9, 10 and 11: behind a writer that does not leave, or outside of the line."""
    held: list[Lease] = []

    async def hold(stage: Scene) -> None:
        held.append(await asyncio.create_task(ReadWriteLock(stage.other, stage.path).write().acquire()))

    async def let_go(stage: Scene) -> None:
        await held.pop().release()
        await acquiring("write", None)(stage)

    for kind in ("read", "write"):
        play = acquiring(kind, prefer)
        await cancel_at_every_moment(play, prepare=hold, afterwards=let_go, stays=["writers"], most=50)


async def test_a_downgrade_is_cut_at_every_step() -> None:
    """Pitfalls 10, 16 and 20: a lost answer is looked into, and no writer comes in."""
    assert await cut_at_every_step(downgrading, at_least=4) < 20


async def test_a_downgrade_is_cancelled_at_every_moment() -> None:
    """Pitfalls 11 and 16: the end of the block lets go, whether readers were let in or not."""
    held: list[WriteLease] = []

    async def hold(stage: Scene) -> None:
        held[:] = [await asyncio.create_task(ReadWriteLock(stage.zk, stage.path).write().acquire())]

    async def downgrade(stage: Scene) -> None:
        lease: Lease = held[0]
        try:
            lease = await held[0].downgrade()
        finally:
            await lease.release()

    async def see(stage: Scene) -> None:
        await held[0].release()  # perhaps it has not even begun
        await acquiring("write", None)(stage)

    await cancel_at_every_moment(downgrade, prepare=hold, afterwards=see)


async def test_a_cancelled_downgrade_certifies_nothing_and_can_be_called_again() -> None:
    async with scene() as stage, no_task_stays():
        async with ReadWriteLock(stage.zk, stage.path).write() as lease:
            with stage.server.hold_replies("setData", session=stage.zk.session_id):
                task = asyncio.create_task(lease.downgrade())
                await asyncio.sleep(0)
                task.cancel()
                assert isinstance(await outcome(task), asyncio.CancelledError)
            assert not lease.is_certain()
            with pytest.raises(RuntimeError, match="was downgraded"):
                lease.check()
            read = await lease.downgrade()
            read.check()
            async with ReadWriteLock(stage.other, stage.path).read():
                pass
        assert await line(stage.other, stage.path) == []
