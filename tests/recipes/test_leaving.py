"""Leaving ends within seconds, whatever is held, whether the ensemble is silent or gone (Pitfall 83)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest

import zkwire
from recipes import (
    Cache,
    DoubleBarrier,
    Election,
    Group,
    Lock,
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
from zkwire import Client, SessionState
from zkwire.testing import Server

pytestmark = pytest.mark.slow("each test waits until a release is given up")

LONG = 60.0  # seconds, the session timeout: a wait for the end of the session would exceed the limit of the test
BOUND = 20.0  # seconds, for a machine that is very busy; it takes three on others


@asynccontextmanager
async def silent(server: Server, zk: Client) -> AsyncIterator[None]:
    """The server keeps its connections, and answers nothing."""
    with server.paused():
        yield


@asynccontextmanager
async def gone(server: Server, zk: Client) -> AsyncIterator[None]:
    """The server has dropped its connections, and takes no others."""
    states = zk.states()
    with server.refuse_connections():
        server.drop()
        async for state in states:
            if state is SessionState.SUSPENDED:
                break
        states.close()
        yield


OUTAGES = {"silent": silent, "gone": gone}


@asynccontextmanager
async def _member(zk: Client) -> AsyncIterator[None]:
    async with await Group(zk, "/held").join("me", b""):
        yield


@asynccontextmanager
async def _claimed(zk: Client) -> AsyncIterator[None]:
    queue = Queue(zk, "/held")
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
    "DoubleBarrier": _entered,
    "Partitioner": _partitions,
    "Cache": lambda zk: Cache(zk, "/", recursive=True),
    "events": _events,
}


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_cancelled_body_is_left_in_seconds_while_no_server_answers(outage: str) -> None:
    """Each kind has a server of its own; all wait at the same time."""
    async with asyncio.TaskGroup() as group:
        for held in HELD:
            group.create_task(_leave_cancelled(held, outage), name=held)


async def _leave_cancelled(held: str, outage: str) -> None:
    inside = asyncio.Event()

    async def service() -> None:
        async with zkwire.connect(server.hosts, LONG) as zk:
            clients.append(zk)
            async with HELD[held](zk):
                inside.set()
                await asyncio.Event().wait()

    clients: list[Client] = []
    async with Server(max_session_timeout=LONG) as server:
        running = asyncio.create_task(service())
        await inside.wait()
        async with OUTAGES[outage](server, clients[0]):
            running.cancel()
            done, _ = await asyncio.wait({running}, timeout=BOUND)
            assert done, f"{held}: not left within {BOUND} s"
            assert running.cancelled(), held


@pytest.mark.parametrize("outage", OUTAGES)
async def test_many_held_locks_and_an_election_take_no_longer_than_one_lock(outage: str) -> None:
    loop = asyncio.get_running_loop()
    async with Server(max_session_timeout=LONG) as server, AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(server.hosts, LONG))
        for number in range(30):
            await stack.enter_async_context(Lock(zk, f"/locks/{number}"))
        await stack.enter_async_context(Election(zk, "/election").lead())
        async with OUTAGES[outage](server, zk):
            start = loop.time()
            await stack.aclose()
            assert loop.time() - start < BOUND


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_release_that_reaches_no_server_is_made_good_when_one_answers(outage: str) -> None:
    async with (
        Server(max_session_timeout=LONG) as server,
        zkwire.connect(server.hosts, LONG) as zk,
        zkwire.connect(server.hosts, LONG) as other,
    ):
        lease = await Lock(zk, "/lock").acquire()
        async with OUTAGES[outage](server, zk):
            async with asyncio.timeout(BOUND):
                await lease.release()
            assert lease.is_released
        async with asyncio.timeout(LONG / 2):
            await (await Lock(other, "/lock").acquire()).release()


async def test_a_release_waits_for_the_answer_of_a_server_that_answers() -> None:
    """However long it takes, as long as other removals end."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        leases = [await Lock(zk, f"/locks/{number}").acquire() for number in range(3)]
        for lease in leases:
            await lease.release()
            assert await other.exists(lease.path) is None
        async with server.hold_replies("delete", session=zk.session_id) as held:
            lease = await Lock(zk, "/lock").acquire()
            releasing = asyncio.create_task(lease.release())
            await held.until_hit()
            await turns()
            assert not releasing.done()
            held.release()
            await releasing


async def test_a_node_that_is_being_put_back_while_the_server_falls_silent_keeps_no_block_from_ending() -> None:
    async with Server(max_session_timeout=LONG) as server, zkwire.connect(server.hosts, LONG) as zk:
        kept = PersistentEphemeral(zk, "/held/node", b"")
        await kept.__aenter__()
        held = server.hold_replies("create", session=zk.session_id)
        async with zkwire.connect(server.hosts) as other:
            await other.delete("/held/node")
        await held.until_hit()
        with server.paused():
            async with asyncio.timeout(BOUND):
                await kept.__aexit__(None, None, None)
        held.end()
