"""Taking up a lease again: the ticket of a session that another process had becomes the lease in this one."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError, ReadWriteLock, ReentrantLock, TimedLock
from recipes.line.known import known_of
from recipes.line.ticket import ASKED
from tests.support import processes
from tests.support.processes import report
from tests.support.recipes import line, outcome, until, until_line
from tests.support.virtual_time import Sent, Server, Wire, block, in_virtual_time
from zkwire import Client, NoNodeError, SessionClosedError, SessionExpiredError
from zkwire.testing import RealServer

P = "/locks/a"
Prepare = Callable[[Client, Client], Awaitable[Any]]


def key(zk: Client) -> dict[str, Any]:
    """Return by what another client resumes the session."""
    return {"session_id": zk.session_id, "session_password": zk.session_password, "least_timeout": zk.least_timeout}


@asynccontextmanager
async def resumed(prepare: Prepare, **options: Any) -> AsyncIterator[tuple[Server, Client, Client, Any]]:
    """A server, a client that has resumed the session of a closed one, another client, and what `prepare` has made.

    `prepare` gets the client that is closed afterwards, and the other one.
    """
    server = Server()
    server.latency = lambda: 0.001
    # When each client keeps its session certain is random, and would come between the requests that tests list.
    former = await zkwire.connect("a", open_link=server.open_link, rng=Random(1))
    async with zkwire.connect("a", open_link=server.open_link, rng=Random(2)) as other:
        made = await prepare(former, other)
        resuming = key(former)
        await former.close(keep_session=True)
        async with zkwire.connect("a", open_link=server.open_link, rng=Random(3), **resuming, **options) as zk:
            yield server, zk, other, made


async def hold(zk: Client, other: Client) -> Lease:
    return await Lock(zk, P).acquire()


@pytest.mark.parametrize("kind", [Lock, ReentrantLock])
@in_virtual_time
async def test_a_resumed_sessions_ticket_becomes_the_lease_and_its_token_is_unchanged(kind: type[Lock]) -> None:
    """It does so once, and the clients that wait go on waiting; so do tasks that wait on the same object."""
    async with resumed(hold) as (server, zk, other, before):
        assert before.is_over
        lock = kind(zk, P, local_passes=1)
        with pytest.raises(LockLostError, match="it was released, or its session is over, or"):
            await kind(zk, "/locks/b").adopt(before.path.replace(P, "/locks/b"), before.token)
        waiters = [asyncio.create_task(Lock(other, P).acquire())]
        refused = asyncio.create_task(outcome(Lock(zk, P).adopt(before.path, before.token)))
        server.names()
        lease = await lock.adopt(before.path, before.token)
        names = server.names("ping", "createContainer", "create2", "getChildren")  # those of the waiter
        assert names[:5] == [*["sync", "getData"] * 2, "getChildren2"]
        assert (lease.path, lease.token, lease.is_certain()) == (before.path, before.token, True)
        assert repr(lease) in repr(lock)
        if kind is ReentrantLock:
            assert await lock.acquire() is lease
            await lease.release()
        waiters += [asyncio.create_task(lock.acquire()) for _ in range(2)]
        await until(lambda: len(server.machine.tree.nodes[P].children or ()) == 3)
        known_of(zk.unlimited).lines.clear()  # as if many other lines had been used since
        for error in (await refused, await outcome(Lock(zk, P).adopt(before.path, before.token))):
            assert "is, or was, held in this process: a lease is adopted once" in str(error)
        lease.check()
        await lease.release()
        for waiter in waiters:
            after = await waiter
            assert after.token > before.token
            await after.release()
        await (await lock.acquire()).release()
        known_of(zk.unlimited).lines.clear()
        with pytest.raises(RuntimeError, match="held in this process"):  # this client has made the ticket itself
            await Lock(zk, P).adopt(after.path, after.token)


@in_virtual_time
async def test_an_adopted_lease_is_told_what_it_was_asked_before_and_is_lost_as_any_lease() -> None:
    async def ask(zk: Client, other: Client) -> Lease:
        lease = await hold(zk, other)
        await other.set(lease.path, ASKED)
        for number in (1, 2):  # before it; they do not count
            await other.create(f"{P}/stranger--00000000{number}", ephemeral=number == 2)
        return lease

    async with resumed(ask) as (_, zk, other, before):
        lease = await Lock(zk, P).adopt(before.path, before.token)
        assert await lease.asked()
        await asyncio.sleep(0.2)
        await other.delete(lease.path)
        assert "another client has deleted it" in str(await lease.lost())


@pytest.mark.parametrize("is_lost", ["", "deleted", "another one"])
@in_virtual_time
async def test_the_tickets_with_which_tasks_of_a_former_process_waited_are_removed_and_no_others(is_lost: str) -> None:
    async def hold_and_wait(zk: Client, other: Client) -> Lease:
        lease, tasks = await hold(zk, other), []
        for count, lock in (2, Lock(zk, P)), (3, ReadWriteLock(zk, P).read()), (4, Lock(other, P)):
            tasks.append(asyncio.create_task(outcome(lock.acquire())))
            await until_line(other, P, count)
        return lease

    async with resumed(hold_and_wait) as (_, zk, other, before):
        ours = asyncio.create_task(Lock(zk, P).acquire())
        names = await until_line(other, P, 5)
        if is_lost == "deleted":
            await other.delete(before.path)
        adopted = await outcome(Lock(zk, P).adopt(before.path, before.token - (is_lost == "another one")))
        assert type(adopted) is (LockLostError if is_lost else Lease)
        assert await until_line(other, P, 3 if is_lost else 4) == [*names[: not is_lost], *names[2:]]
        ours.cancel()


async def write_over(zk: Client, other: Client) -> Lease:
    lease = await hold(zk, other)
    await other.set(lease.path, b"x")
    return lease


async def hold_for_a_time(zk: Client, other: Client) -> Lease:
    lease = await TimedLock(zk, P, 60.0).acquire()
    await lease.extend(60.0)
    return lease


async def hold_by_the_other(zk: Client, other: Client) -> Lease:
    return await hold(other, zk)


async def wait(zk: Client, other: Client) -> Any:
    await hold(other, zk)
    asyncio.create_task(Lock(zk, P).acquire()).add_done_callback(lambda done: done.exception())
    await until(lambda: len(zk._session.requests.watches) == 2)
    return (await Lock(other, P).contenders())[-1]


@pytest.mark.parametrize(
    ("prepare", "error", "match", "left"),
    [
        (write_over, LockLostError, "another client has written into it", 0),
        (hold, LockLostError, "its session is over", 1),
        (hold_for_a_time, RuntimeError, "is a TimedLock's, with a time limit: adopt takes none", 1),
        (hold_by_the_other, RuntimeError, "belongs to the session 0x[0-9a-f]+, and this client has 0x", 1),
        (wait, RuntimeError, f"is no lease: it waits, and {P}/_c_.* comes before it", 2),
    ],
)
@in_virtual_time
async def test_what_is_no_lease_of_this_session_is_refused_and_only_one_that_was_written_over_is_removed(
    prepare: Prepare, error: type[Exception], match: str, left: int
) -> None:
    async with resumed(prepare) as (_, zk, other, before):
        lock = Lock(zk, P)
        if prepare is hold:  # the client gives its session up and begins another one; the server has both
            zk._session._expire("no server has answered")
        with pytest.raises(error, match=match):
            await lock.adopt(before.path, before.token)
        assert len(await line(other, P)) == left


@pytest.mark.parametrize("renew", [True, False])
@in_virtual_time
async def test_a_lease_whose_session_expires_meanwhile_is_lost(renew: bool) -> None:
    async with resumed(hold, renew=renew) as (server, zk, _, before):
        adopting = asyncio.create_task(Lock(zk, P).adopt(before.path, before.token))
        await asyncio.sleep(1.0)
        server.machine.expire(zk.session_id)
        server.drop()
        assert type(await outcome(adopting)) is (LockLostError if renew else SessionExpiredError)


@pytest.mark.parametrize("is_blocked", [True, False])
@in_virtual_time
async def test_it_looks_again_after_it_was_uncertain_or_not_in_the_list(is_blocked: bool) -> None:
    async with resumed(hold) as (server, zk, _, before):

        def strike(_: Wire, sent: Sent) -> int | None:
            if sent.name != "getChildren2":
                return None
            server.strike = lambda wire, sent: None
            block(zk.certain_for(zk.session_id) + 0.02 if is_blocked else 0.0)
            return None if is_blocked else NoNodeError.code

        server.strike = strike
        (await Lock(zk, P).adopt(before.path, before.token)).check()
        assert server.names().count("getChildren2") == 2


PATH = f"{P}/_c_00000000-0000-4000-8000-000000000000-lock-0000000001"


@pytest.mark.parametrize(
    ("lease_path", "token", "error"),
    [
        (PATH.encode(), 1, TypeError),
        (PATH, "1", TypeError),
        (PATH, 0, ValueError),
        (PATH.replace(P, "/locks/b"), 1, ValueError),
        (PATH.replace(P, f"{P}/b"), 1, ValueError),
        (f"{PATH}1", 1, ValueError),
        (PATH.replace("_c_", "c_"), 1, ValueError),
        (PATH.replace("lock-", "__READ__"), 1, ValueError),
    ],
)
@in_virtual_time
async def test_bad_input_is_refused_and_nothing_is_sent(lease_path: Any, token: Any, error: type[Exception]) -> None:
    server = Server()
    async with zkwire.connect("a", open_link=server.open_link) as zk:
        server.names()
        with pytest.raises(error, match=r"lease_path is|token is"):
            await Lock(zk, P).adopt(lease_path, token)
        assert server.names() == []
    with pytest.raises(SessionClosedError):
        await Lock(zk, P).adopt(PATH, 1)


async def hold_and_tell(hosts: str, path: str, is_closed: bool) -> None:
    """Hold a lock, and report by what another process takes it up; then close the client, or wait to be killed."""
    zk = await zkwire.connect(hosts)
    lease = await Lock(zk, path).acquire()
    resuming = {**key(zk), "session_password": zk.session_password.hex()}
    report("holds", resuming=resuming, lease=[lease.path, lease.token])
    await (zk.close(keep_session=True) if is_closed else asyncio.Event().wait())


@pytest.mark.limit(60)
@pytest.mark.parametrize("is_closed", [False, True])
async def test_the_next_process_takes_up_the_lease_of_one_that_was_killed_or_has_closed_its_client(
    zookeeper: RealServer, path: str, is_closed: bool
) -> None:
    async with (
        zkwire.connect(zookeeper.hosts) as other,
        processes.start(hold_and_tell, hosts=zookeeper.hosts, path=path, is_closed=is_closed) as worker,
    ):
        told = await worker.until("holds")
        waiting = asyncio.create_task(Lock(other, path).acquire())
        if not is_closed:
            worker.signal(signal.SIGKILL)
        await worker.gone()
        told["resuming"]["session_password"] = bytes.fromhex(told["resuming"]["session_password"])
        async with zkwire.connect(zookeeper.hosts, **told["resuming"]) as zk:
            lease = await Lock(zk, path).adopt(*told["lease"])
            lease.check()
            assert [lease.path, lease.token] == told["lease"]
            assert not waiting.done()
            await lease.release()
            after = await waiting
            assert after.token > lease.token
            await after.release()
