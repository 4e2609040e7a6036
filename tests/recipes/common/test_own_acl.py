"""The default ACL of tickets: who may write into them, with and without an identity."""

import logging

import pytest

import zkwire
from recipes import Lock, LockLostError, ReadWriteLock, TimedLock
from tests.support.client import Server
from tests.support.locks import start_waiting
from tests.support.recipes import outcome, two_clients
from zkwire import ACL, Perms

ANN, BOB = ("digest", b"ann:1"), ("digest", b"bob:2")
READ_WRITE = Perms.READ | Perms.WRITE
WORLD_READ = ACL(Perms.READ, "world", "anyone")


def without_hashes(acl: list[ACL]) -> list[ACL]:
    return [ACL(entry.perms, entry.scheme, entry.id.partition(":")[0]) for entry in acl]


async def test_only_the_identity_of_its_client_may_write_into_a_ticket(each_server: Server, path: str) -> None:
    async with (
        zkwire.connect(each_server.hosts, auth=[ANN, BOB]) as zk,
        zkwire.connect(each_server.hosts) as other,
        Lock(zk, path) as lease,
    ):
        acl, _ = await zk.get_acl(lease.path)
        assert {*without_hashes(acl)} == {WORLD_READ, *(ACL(READ_WRITE, "digest", name) for name in ("ann", "bob"))}
        await other.get(lease.path)
        for attempt in (other.set(lease.path, b"forged"), other.set_acl(lease.path, zkwire.OPEN_ACL)):
            assert isinstance(await outcome(attempt), zkwire.NoAuthError)
        lease.check()


async def test_without_an_identity_all_clients_may_write_and_none_may_change_the_acl(
    each_server: Server, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "recipes")
    async with two_clients(each_server) as (zk, other):
        for _ in range(2):
            async with Lock(zk, path) as lease:
                assert (await other.get_acl(lease.path))[0] == [ACL(READ_WRITE, "world", "anyone")]
                assert isinstance(await outcome(other.set_acl(lease.path, zkwire.OPEN_ACL)), zkwire.NoAuthError)
    assert len([text for text in caplog.messages if "it has no identity" in text]) == 1


async def test_an_acl_that_the_caller_gives_is_that_of_all_nodes(each_server: Server, path: str) -> None:
    asked = [ACL(Perms.ALL, "ip", "127.0.0.1")]
    async with zkwire.connect(each_server.hosts) as zk, Lock(zk, f"{path}/deep/lock", acl=asked) as lease:
        for node in (path, f"{path}/deep", f"{path}/deep/lock", lease.path):
            assert (await zk.get_acl(node))[0] == asked


async def test_clients_with_different_identities_downgrade_and_take_over(zookeeper: Server, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts, auth=[ANN]) as zk, zkwire.connect(zookeeper.hosts, auth=[BOB]) as other:
        writer = await ReadWriteLock(zk, path).write().acquire()
        reader = await start_waiting(other, ReadWriteLock(other, path).read(), 2)
        ours = await writer.downgrade()
        theirs = await reader
        ours.check()
        await theirs.release()
        await ours.release()
        timed = await TimedLock(zk, path, 0.3).acquire()
        lease = await Lock(other, path).acquire(within=20)
        assert isinstance(await timed.lost(), LockLostError)
        await lease.release()


async def test_an_identity_that_is_added_later_counts_from_then_on(each_server: Server, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk:
        assert zk.identity_count == 0
        lock = Lock(zk, path)
        await (await lock.acquire()).release()
        await zk.add_auth(*ANN)
        assert zk.identity_count == 1
        async with lock as lease:
            assert without_hashes((await zk.get_acl(lease.path))[0])[0] == ACL(READ_WRITE, "digest", "ann")
