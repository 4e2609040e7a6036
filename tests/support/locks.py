"""Helpers for the tests of locks: two clients, and tasks that wait in a line."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore, TimedLock
from recipes.line import ticket_data
from recipes.line.locking import Locking
from recipes.line.ticket_data import HashChain
from tests.support.everywhere import no_watch_stays
from tests.support.recipes import until, until_line
from zkwire import Client
from zkwire.testing import Server

Make: TypeAlias = Callable[[Client, str], Locking[Any]]

KINDS: dict[str, Make] = {
    "lock": lambda zk, path: Lock(zk, path),
    "read lock": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write lock": lambda zk, path: ReadWriteLock(zk, path).write(),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1),
    "election": lambda zk, path: Election(zk, path),
    "timed lock": lambda zk, path: TimedLock(zk, path, 60),
}


@asynccontextmanager
async def two_clients() -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of one in-memory server; fail if the server still has a watch at the end."""
    async with Server() as server, zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        yield zk, other
        await no_watch_stays(server.hosts)


def watch_count(zk: Client) -> int:
    """Return how many watches the client has set."""
    return len(zk._session.requests.watches)


async def start_waiting(zk: Client, locking: Locking[Any], tickets: int) -> asyncio.Task[Any]:
    """Start to acquire `locking`; return the task when it watches its blockers and `zk` sees `tickets` in the line."""
    before = watch_count(locking.client)
    task = asyncio.create_task(locking.acquire())
    await until_line(zk, locking.path, tickets)
    await until(lambda: watch_count(locking.client) >= before + 2 or task.done())  # its own node and a blocker
    await locking.client.ping()
    return task


async def taken(locking: Locking[Any]) -> Any:
    """Return the lease of a lock that must be free."""
    lease = await locking.try_acquire()
    assert lease is not None
    return lease


async def release(*leases: Any) -> None:
    """Release the leases one after the other."""
    for lease in leases:
        await lease.release()


PROOFS = HashChain("a secret", 20)


def limit(version: int, seconds: float) -> bytes:
    """Return what the holder whose ticket `hung` has made writes as `version` of its data."""
    proof = PROOFS.link(version)
    assert proof is not None
    return ticket_data.limited(seconds, proof, b"host-7")


async def hung(zk: Client, path: str, seconds: float, prefix: str = "lock-") -> str:
    """Create the ticket of a holder whose program hangs after it has written its limit, and whose session lives."""
    node = await zk.create(f"{path}/_c_{PROOFS.id}-{prefix}", ephemeral=True, sequential=True, make_parents=True)
    await zk.set(node, limit(1, seconds))
    return node
