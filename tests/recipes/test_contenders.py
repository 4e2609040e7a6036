"""Who holds a lock and who waits for it: `contenders` of all kinds of locks, and the claims of a queue."""

import asyncio
import logging
import re
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest

import zkwire
from recipes import (
    Contender,
    Election,
    Lock,
    LockLostError,
    MultiLock,
    Queue,
    ReadWriteLock,
    Semaphore,
    TimedLease,
    TimedLock,
    TryLock,
    only_one,
)
from recipes.common.this_process import describe
from recipes.line.diagnostics import DIAGNOSTICS
from recipes.line.locking import Locking
from tests.support.client import Server
from tests.support.everywhere import scene
from tests.support.locks import start_waiting, two_clients
from tests.support.queues import Counting
from tests.support.recipes import outcome, until
from tests.support.recipes import two_clients as two_real_clients
from zkwire import Client, SessionClosedError

P = "/recipe"

ALL: dict[str, Callable[[Client, str], Locking[Any]]] = {
    "lock": lambda zk, path: Lock(zk, path),
    "write lock": lambda zk, path: ReadWriteLock(zk, path).write(),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1),
    "election": only_one,  # that of an Election is for its observers
    "timed lock": lambda zk, path: TimedLock(zk, path, 30),
}


def _owners(found: list[Contender]) -> list[bool]:
    return [each.owns for each in found]


@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
async def test_the_holder_comes_first_then_those_that_wait(
    make: Callable[[Client, str], Locking[Any]], each_server: Server, path: str
) -> None:
    async with two_real_clients(each_server) as (zk, other):
        assert await make(zk, path).contenders() == []
        async with make(zk, path) as lease:
            waiting = await start_waiting(zk, make(other, path), 2)
            for client in (zk, other):
                await client.sync(path)
                holder, waiter = await make(client, path).contenders()
                assert (holder.path, holder.token) == (lease.path, lease.token)
                assert [holder.owns, waiter.owns] == [True, False]
                assert (holder.is_mine, waiter.is_mine) == (client is zk, client is other)
                assert (holder.session, waiter.session) == (hex(zk.session_id), hex(other.session_id))
                assert holder.data == waiter.data == describe()
                stat = (await client.get(lease.path)).stat
                assert holder.since == datetime.fromtimestamp(stat.ctime / 1000, UTC)
        await (await waiting).release()
        assert await make(zk, path).contenders() == []


async def test_readers_hold_together_and_a_downgraded_writer_with_them() -> None:
    async with two_clients() as (zk, other):
        mine, theirs = ReadWriteLock(zk, P, data=b"mine"), ReadWriteLock(other, P, data=b"theirs")
        lease = await mine.write().acquire()
        reading = asyncio.create_task(theirs.read().acquire())
        await until(lambda: _has(zk, 2))
        writing = asyncio.create_task(theirs.write().acquire())
        await until(lambda: _has(zk, 3))
        assert _owners(await mine.contenders()) == [True, False, False]
        read_lease = await lease.downgrade()
        await reading
        found = await theirs.contenders()
        assert _owners(found) == [True, True, False]
        assert [each.data for each in found] == [b"mine", b"theirs", b"theirs"]  # without the line that lets readers in
        assert await theirs.read().contenders() == await theirs.write().contenders() == found
        # A lock of another kind at the same path sees the same.
        assert await Lock(other, P).contenders() == found
        await read_lease.release()
        await (await reading).release()
        await (await writing).release()


async def _has(zk: Client, count: int) -> bool:
    return len([name for name in await zk.get_children(P) if zkwire.sequence(name) is not None]) == count


async def test_a_lock_without_a_line_and_several_locks() -> None:
    async with two_clients() as (zk, other):
        job = TryLock(zk, f"{P}/job", data=b"night shift")
        assert await job.contenders() == []
        async with job as lease, MultiLock([Lock(other, f"{P}/b"), Lock(other, f"{P}/a")]) as both:
            (holder,) = await TryLock(other, f"{P}/job").contenders()
            assert (holder.path, holder.token, holder.data) == (f"{P}/job", lease.token, b"night shift")
            assert (holder.owns, holder.is_mine) == (True, False)
            found = await MultiLock([Lock(zk, f"{P}/a"), Lock(zk, f"{P}/b")]).contenders()
            assert [each.path for each in found] == [each.path for each in both.leases.values()]
            assert _owners(found) == [True, True]


async def test_strangers_are_left_out_or_count_as_tickets(caplog: pytest.LogCaptureFixture) -> None:
    async with two_clients() as (zk, other):
        await zk.create(f"{P}/no-ticket-0000000000", make_parents=True)
        await zk.create(f"{P}/x-", ephemeral=True, sequential=True, acl=[zkwire.digest_acl("me", "pw")])
        await zk.create(f"{P}/unnumbered", ephemeral=True)
        ticket = await other.create(f"{P}/_c_1-lock-", b"data", ephemeral=True, sequential=True)
        with caplog.at_level(logging.WARNING, "recipes"):
            unread, waiter = await Lock(other, P).contenders()
        assert unread == Contender(
            path=f"{P}/x-0000000001", data=b"", session="", since=None, token=0, is_mine=False, owns=True
        )
        assert (waiter.path, waiter.data, waiter.owns) == (ticket, b"data", False)
        assert re.findall(r"(\S+) is not ephemeral", caplog.text) == [f"{P}/no-ticket-0000000000"]
        assert re.search(r"x-0000000001 .*must not be read", caplog.text)
        with pytest.raises(zkwire.NoAuthError):
            await unread.remove()
        await other.add_auth("digest", b"me:pw")
        with pytest.raises(RuntimeError, match=f"{unread.path}: .* look again"):
            await unread.remove()
        assert await (await Lock(other, P).contenders())[0].remove()
        assert not await unread.remove()  # it is gone


# -- removing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
async def test_a_holder_that_is_removed_is_told_and_the_next_one_is_served(
    make: Callable[[Client, str], Locking[Any]], each_server: Server, path: str
) -> None:
    """The holder is told, the next one is served."""
    async with two_real_clients(each_server) as (zk, other):
        lease = await make(zk, path).acquire()
        waiting = await start_waiting(zk, make(other, path), 2)
        if isinstance(lease, TimedLease):
            await lease.extend(60)  # its node has another version now
        (holder, _) = await make(zk, path).contenders()
        if isinstance(lease, TimedLease):
            await lease.extend(60)
        assert await holder.remove()
        assert (await lease.lost()).why == "another client has deleted it"
        (await waiting).check()
        assert not await holder.remove()
        await (await waiting).release()


async def test_no_other_ticket_than_the_one_that_was_shown_is_removed() -> None:
    async with scene(P) as stage:
        job = TryLock(stage.zk, P)
        lease = await job.acquire()
        (holder,) = await job.contenders()
        await lease.release()
        later = await TryLock(stage.other, P).acquire()
        assert not await holder.remove()
        (new,) = await job.contenders()
        for refusal in (zkwire.NoNodeError, zkwire.BadVersionError):
            with stage.server.answering("delete", refusal, session=stage.zk.session_id, times=1):
                assert await new.remove()
        assert await later.lost() is not None


async def test_a_holder_that_writes_all_the_time_is_asked_and_removed() -> None:
    async with scene(P) as stage:
        term = await Election(stage.zk, P).acquire()

        async def write() -> None:
            while True:
                await term.set(b"x")

        writing = asyncio.create_task(outcome(write()))
        (holder,) = await Election(stage.other, P).contenders()
        with stage.server.delay_replies(0.02, session=stage.other.session_id, times=None):
            async with asyncio.timeout(5):
                assert await holder.ask()
                assert await holder.remove()
        assert isinstance(await writing, LockLostError)


async def test_a_copy_and_a_claim_of_a_queue_are_not_removed() -> None:
    async with two_clients() as (zk, _):
        queue = Queue(zk, P)
        await queue.put(b"1")
        async with queue.claim() as item, Lock(zk, f"{P}/lock") as lease:
            (holder,), (claim,) = await Lock(zk, f"{P}/lock").contenders(), await queue.claims()
            for unbound in (claim, replace(holder, data=b""), copy(holder)):
                with pytest.raises(RuntimeError, match=rf"^{unbound.path}: neither a copy nor a queue's claim"):
                    await unbound.remove()
            assert asdict(holder)["path"] == lease.path
            lease.check()
            item.check()


# -- the message of a TimeoutError ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
async def test_a_timeout_names_the_ticket_ahead(make: Callable[[Client, str], Locking[Any]]) -> None:
    async with two_clients() as (zk, other), make(zk, P) as lease:
        details = f", of session {zk.session_id:#x}, {describe().decode()!r}"
        for within in (0.05, 1.0, 10.0):  # a busy machine may not have read the ticket ahead in the first of them
            with pytest.raises(TimeoutError) as late:
                await make(other, P).acquire(within=within)
            if details in str(late.value):
                break
        ahead = f" {P} was not free within {within} s; 1 ticket is ahead: {lease.path}"
        assert str(late.value).endswith(ahead + details)
        with pytest.raises(TimeoutError) as late:
            await make(other, P).acquire(within=0)
        assert str(late.value).endswith(f"within 0 s; 1 ticket is ahead: {lease.path}")  # a look reads no ticket
        with pytest.raises(TimeoutError) as late:
            await make(other, P).acquire(within=0)
        assert str(late.value).endswith(lease.path + details)  # but the next one that fails because of it does
        assert DIAGNOSTICS.get() is None


async def test_a_timeout_counts_the_tickets_ahead_but_no_later_ones_and_cuts_long_data() -> None:
    async with two_clients() as (zk, other), Lock(zk, P, data=b"x" * 1000) as lease:
        waiting = [await start_waiting(zk, Lock(other, P), 2 + number) for number in range(2)]
        late = asyncio.create_task(Lock(zk, P).acquire(within=0.2))
        waiting.append(await start_waiting(zk, Lock(other, P), 5))
        with pytest.raises(TimeoutError) as error:
            await late
        # The first ticket is too far ahead to be watched, so it was not read.
        assert str(error.value).endswith(f"; 3 tickets are ahead, the first of them: {lease.path}")
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        with pytest.raises(TimeoutError, match=rf", of session 0x[0-9a-f]+, '{'x' * 100}\.\.\.'$"):
            await Lock(zk, P).acquire(within=0.05)


async def test_a_timeout_behind_a_task_of_this_process_names_no_ticket() -> None:
    async with two_clients() as (zk, _):
        lock = Lock(zk, P)
        async with lock:
            with pytest.raises(TimeoutError, match=r"within 0\.01 s$"):
                await lock.acquire(within=0.01)


async def test_the_data_that_a_message_shows_is_what_the_holder_was_given() -> None:
    async with two_clients() as (zk, other), TimedLock(zk, P, 60, data=b"") as lease:
        await lease.extend(60)  # writes a line before its data
        with pytest.raises(TimeoutError, match=rf": {lease.path}, of session {zk.session_id:#x}$"):
            await Lock(other, P).acquire(within=0.05)


async def test_the_leader_is_the_first_candidate_or_none_and_costs_two_requests() -> None:
    """One look: the first candidate of an election, or None if there is none."""
    count = Counting()
    async with scene(P) as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        election = Election(zk, P)
        assert await election.leader() is None
        term = await Election(stage.other, P, b"1").acquire()
        second = await start_waiting(stage.other, Election(stage.other, P, b"2"), 2)
        count.requests.clear()
        leader = await election.leader()
        assert count.requests == ["getChildren2", "getData"]
        assert leader == (await election.contenders())[0]
        assert (leader.token, leader.data, leader.owns) == (term.token, b"1", True)
        with stage.server.hold_replies("getChildren", session=zk.session_id) as listing:
            looking = asyncio.create_task(election.leader())
            await listing.until_hit()
            await term.release()
        assert await looking == (await election.contenders())[0]
        await (await second).release()
    with pytest.raises(SessionClosedError):
        await election.leader()
