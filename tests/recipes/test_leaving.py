"""Leaving ends within seconds, whatever is held, whether the ensemble is silent or gone (Pitfall 83)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress

import pytest

import zkwire
from recipes import (
    Cache,
    DoubleBarrier,
    Election,
    Group,
    Lock,
    LockLostError,
    MultiLock,
    Partitioner,
    PersistentEphemeral,
    Queue,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    TimedLock,
    TryLock,
)
from tests.support.client import turns
from tests.support.virtual_time import Server, in_virtual_time
from zkwire import Client

LONG = 60.0  # seconds, the session timeout
BOUND = 4.0  # seconds: far less than what is left of a session


def leave_silent(server: Server) -> None:
    """The server keeps its connections, and answers nothing."""
    server.is_silent = True


def leave_gone(server: Server) -> None:
    """The server has dropped its connections, and takes no others."""
    server.refused.add("a")
    for wire in server.wires:
        wire.lose(None)


OUTAGES = {"silent": leave_silent, "gone": leave_gone}


def connected(server: Server) -> AbstractAsyncContextManager[Client]:
    return zkwire.connect("a", LONG, open_link=server.open_link)


@asynccontextmanager
async def _member(zk: Client) -> AsyncIterator[None]:
    async with await Group(zk, "/held").join("me", b""):
        yield


@asynccontextmanager
async def _claimed(zk: Client, most: int | None = None) -> AsyncIterator[None]:
    queue = Queue(zk, "/held", max_attempts=most)
    await queue.put(b"item")
    async with queue.claim():
        yield


@asynccontextmanager
async def _term(zk: Client) -> AsyncIterator[None]:
    async for term in Election(zk, "/held").terms():
        async with term:
            yield
        return


@asynccontextmanager
async def _entered(zk: Client) -> AsyncIterator[None]:
    async with DoubleBarrier(zk, "/held", 1):
        yield


@asynccontextmanager
async def _partitions(zk: Client) -> AsyncIterator[None]:
    async with Partitioner(zk, "/held", ["a", "b"]) as member:
        async for given in member:
            if given:
                break
        yield


@asynccontextmanager
async def _events(zk: Client) -> AsyncIterator[None]:
    async with zk.events("/", recursive=True):
        yield


HELD: dict[str, Callable[[Client], AbstractAsyncContextManager[object]]] = {
    "Lock": lambda zk: Lock(zk, "/held"),
    "ReentrantLock": lambda zk: ReentrantLock(zk, "/held"),
    "read lock": lambda zk: ReadWriteLock(zk, "/held").read(),
    "write lock": lambda zk: ReadWriteLock(zk, "/held").write(),
    "Semaphore": lambda zk: Semaphore(zk, "/held", 2),
    "MultiLock": lambda zk: MultiLock([Lock(zk, "/held/a"), Lock(zk, "/held/b")]),
    "TryLock": lambda zk: TryLock(zk, "/held"),
    "TimedLock": lambda zk: TimedLock(zk, "/held", 60.0),
    "Election": lambda zk: Election(zk, "/held").lead(),
    "a term of an election": _term,
    "Group": _member,
    "PersistentEphemeral": lambda zk: PersistentEphemeral(zk, "/held", b""),
    "a claim of a Queue": _claimed,
    "a claim that counts": lambda zk: _claimed(zk, 1),
    "DoubleBarrier": _entered,
    "Partitioner": _partitions,
    "Cache": lambda zk: Cache(zk, "/", recursive=True),
    "events": _events,
}


@pytest.mark.parametrize("outage", OUTAGES)
@in_virtual_time
async def test_a_cancelled_body_is_left_in_seconds_while_no_server_answers(outage: str) -> None:
    """Each kind has a server of its own; all wait at the same time."""
    async with asyncio.TaskGroup() as group:
        for held in HELD:
            group.create_task(_leave_cancelled(held, outage), name=held)


async def _leave_cancelled(held: str, outage: str) -> None:
    inside, server = asyncio.Event(), Server(max_session_timeout=LONG)

    async def service() -> None:
        async with connected(server) as zk, HELD[held](zk):
            inside.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(service())
    await inside.wait()
    OUTAGES[outage](server)
    await turns()
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=BOUND)
    assert done, f"{held}: not left within {BOUND} s"
    assert running.cancelled(), held


@pytest.mark.parametrize("outage", OUTAGES)
@in_virtual_time
async def test_many_held_locks_and_an_election_take_no_longer_than_one_lock(outage: str) -> None:
    server = Server(max_session_timeout=LONG)
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(connected(server))
        for number in range(30):
            await stack.enter_async_context(Lock(zk, f"/locks/{number}"))
        await stack.enter_async_context(Election(zk, "/election").lead())
        OUTAGES[outage](server)
        async with asyncio.timeout(BOUND):
            await stack.aclose()


@pytest.mark.parametrize("outage", OUTAGES)
@in_virtual_time
async def test_a_release_that_reaches_no_server_is_made_good_when_one_answers(outage: str) -> None:
    server = Server(max_session_timeout=LONG)
    async with connected(server) as zk, connected(server) as other:
        lease = await Lock(zk, "/lock").acquire()
        OUTAGES[outage](server)
        async with asyncio.timeout(BOUND):
            await lease.release()
        assert lease.is_released
        server.refused.clear()
        server.go_on()
        async with asyncio.timeout(LONG / 2):
            await (await Lock(other, "/lock").acquire()).release()


@in_virtual_time
async def test_a_node_that_is_being_put_back_while_the_server_falls_silent_keeps_no_block_from_ending() -> None:
    server = Server(max_session_timeout=LONG)
    async with connected(server) as zk, connected(server) as other:
        kept = PersistentEphemeral(zk, "/held/node", b"")
        await kept.__aenter__()
        await other.delete("/held/node")
        server.hold_from("create2")
        server.requests.clear()
        await server.until("create2")
        server.is_silent = True
        async with asyncio.timeout(BOUND):
            await kept.__aexit__(None, None, None)


EXCLUDING = ("Lock", "MultiLock", "TryLock", "Election", "a term of an election", "a claim of a Queue", "Partitioner")


@pytest.mark.parametrize("held", EXCLUDING)
@in_virtual_time
async def test_a_body_that_closes_its_client_is_not_waited_for(held: str) -> None:
    zk = await connected(Server(max_session_timeout=LONG)).__aenter__()
    with suppress(zkwire.SessionClosedError, LockLostError):
        async with HELD[held](zk), asyncio.timeout(1.0):
            await zk.close()
    await turns()


@pytest.mark.parametrize(
    ("held", "before"), [("Lock", "lost"), ("Lock", "cancelled"), *((each, "") for each in EXCLUDING)]
)
@in_virtual_time
async def test_a_client_that_is_closed_ends_its_session_after_the_bodies_of_other_tasks(held: str, before: str) -> None:
    """Also of one that begins meanwhile, because another body has ended, while a third one cleans up for long.

    A clean-up that began `before` is not disturbed, and not waited for if the lease is lost.
    """
    server, ended = Server(max_session_timeout=LONG), list[float]()
    zk = await connected(server).__aenter__()

    async def service(block: AbstractAsyncContextManager[object], cleaning_up: float) -> None:
        async with block:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(cleaning_up)  # of virtual time
                ended.append(cleaning_up)
                assert before == "lost" or "closeSession" not in server.names()

    bodies = (HELD[held](zk), 20.0), (Lock(zk, "/two"), 0.0), (Lock(zk, "/two"), 1.0)
    running = [asyncio.create_task(service(*each)) for each in bodies]
    await asyncio.sleep(2.0)  # of virtual time: longer than a Partitioner settles
    if before == "lost":
        await zk.delete(f"/held/{(await zk.get_children('/held'))[0]}")
    elif before:
        running[0].cancel()
        await turns()
    await zk.close()
    assert ended == ([0.0] if before == "lost" else [0.0, 1.0, 20.0])
    errors = list(map(str, await asyncio.gather(*running, return_exceptions=True)))
    assert before or all("being closed" in each for each in errors[held == "a term of an election" :])  # it just ends
