"""Nodes in a line that are no tickets, or that a client must not read: the line goes round them, and reports them."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from recipes import Lock, ReadWriteLock
from tests.support import locks
from tests.support.client import Server
from tests.support.locks import Make, start_waiting
from tests.support.recipes import line, no_task_stays, two_clients, until, until_line
from zkwire import ACL, Client, NoAuthError, Perms

pytestmark = pytest.mark.limit(40)

KINDS: dict[str, Make] = locks.KINDS | {
    "read lock that yields": lambda zk, path: ReadWriteLock(zk, path, prefer="writers").read(),
    "write lock that yields": lambda zk, path: ReadWriteLock(zk, path, prefer="readers").write(),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())

UNREADABLE = [ACL(Perms.ALL & ~Perms.READ, "world", "anyone")]


async def stranger(zk: Client, path: str, **options: Any) -> str:
    """Create a node that looks like a ticket, and is not ephemeral unless `options` say so; return its path."""
    await zk.ensure_path(path)
    if (await zk.get(path)).data != b"1":
        await zk.set(path, b"1")  # the number of permits, for a semaphore
    return await zk.create(f"{path}/_c_x-lock-", sequential=True, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that recipes have logged."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and record.name.startswith("recipes")
    ]


# -- not ephemeral ----------------------------------------------------------------------------------------------------


@every_kind
async def test_a_node_that_is_not_ephemeral_does_not_keep_a_lock(
    each_server: Server, path: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_clients(each_server) as (zk, other), no_task_stays():
        nodes = [await stranger(other, path), await stranger(other, path, data=b"x")]
        for _ in range(2):
            async with make(zk, path).hold(within=10) as lease:
                lease.check()
        assert {*await line(other, path)} - {"writers"} == {node.rpartition("/")[2] for node in nodes}
        for node in nodes:
            (warned,) = [text for text in warnings(caplog) if node in text]  # once
            assert "is not ephemeral" in warned


# -- not to be read ---------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("is_ephemeral", [True, False])
async def test_a_node_that_must_not_be_read_is_waited_for(
    each_server: Server, path: str, make: Make, is_ephemeral: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a ticket, so no client owns before it is gone; the servers report its departure to no client."""
    async with two_clients(each_server) as (zk, other), no_task_stays():
        node = await stranger(other, path, acl=UNREADABLE, ephemeral=is_ephemeral)
        lock = make(zk, path)
        assert await lock.try_acquire() is None
        waiters = [asyncio.create_task(make(zk, path).acquire(within=30)) for _ in range(3)]
        await until(lambda: any(node in text for text in warnings(caplog)))
        await zk.ping()
        assert not any(waiter.done() for waiter in waiters)
        await other.delete(node)
        await release_all(waiters)
        assert len([text for text in warnings(caplog) if node in text]) == 1


async def release_all(waiters: Collection[asyncio.Task[Any]]) -> None:
    """Release the leases of all waiters, in the order in which they get them."""
    pending = set(waiters)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for waiter in done:
            waiter.result().check()
            await waiter.result().release()


async def test_a_hand_over_in_a_line_with_such_a_node_is_noticed(each_server: Server, path: str) -> None:
    """The departures of the others are events as always, and those that look ahead list the line."""
    async with two_clients(each_server) as (zk, other), no_task_stays():
        first = await Lock(other, path).acquire()
        node = await stranger(other, path, acl=UNREADABLE, ephemeral=True)
        with pytest.raises(NoAuthError):  # a ticket must be readable for its own client
            await Lock(zk, path, acl=UNREADABLE).acquire(within=10)
        waiters = [await start_waiting(zk, Lock(zk, path), number) for number in (3, 4, 5)]
        await first.release()
        await until_line(other, path, 4)
        await zk.ping()
        assert not any(waiter.done() for waiter in waiters)
        last = await start_waiting(zk, Lock(zk, path), 5)
        await other.delete(node)
        await release_all([*waiters, last])
        assert await line(other, path) == []
