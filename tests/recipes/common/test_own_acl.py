"""The default ACL of tickets: who may write into them, with and without an identity."""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zkwire
from recipes import Election, Lock, LockLostError, ReadWriteLock, Semaphore, TimedLock, TryLock
from recipes.line.locking import Locking
from tests.support.client import states_until
from tests.support.locks import start_waiting
from tests.support.proxy import Proxy
from tests.support.recipes import line, outcome, two_clients
from zkwire import ACL, Client, DigestMD5, Perms, SessionState
from zkwire.testing import RealServer, make_certificates

ANN, BOB = ("digest", b"ann:1"), ("digest", b"bob:2")
READ_WRITE = Perms.READ | Perms.WRITE
WORLD_READ = ACL(Perms.READ, "world", "anyone")

Make = Callable[[Client, str], Locking[Any]]
KINDS: dict[str, Make] = {
    "lock": lambda zk, path: Lock(zk, path),
    "read lock": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write lock": lambda zk, path: ReadWriteLock(zk, path).write(),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1),
    "election": lambda zk, path: Election(zk, path),
    "timed lock": lambda zk, path: TimedLock(zk, path, 60),
    "try lock": lambda zk, path: TryLock(zk, path),
}
WITH_A_LINE = {name: make for name, make in KINDS.items() if name not in ("try lock", "read lock")}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())


def without_hashes(acl: list[ACL]) -> list[ACL]:
    return [ACL(entry.perms, entry.scheme, entry.id.partition(":")[0]) for entry in acl]


@every_kind
async def test_only_the_identity_of_its_client_may_write_into_a_ticket(
    zookeeper: RealServer, path: str, make: Make
) -> None:
    async with (
        zkwire.connect(zookeeper.hosts, auth=[ANN, BOB]) as zk,
        zkwire.connect(zookeeper.hosts) as other,
    ):
        lease = await make(zk, path).acquire()
        acl, _ = await zk.get_acl(lease.path)
        assert without_hashes(acl) == [ACL(READ_WRITE, "digest", "ann"), ACL(READ_WRITE, "digest", "bob"), WORLD_READ]
        await other.get(lease.path)
        for attempt in (other.set(lease.path, b"forged"), other.set_acl(lease.path, zkwire.OPEN_ACL)):
            assert isinstance(await outcome(attempt), zkwire.NoAuthError)
        lease.check()
        await lease.release()


@every_kind
async def test_without_an_identity_all_clients_may_write_and_none_may_change_the_acl(
    zookeeper: RealServer, path: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "recipes")
    async with two_clients(zookeeper) as (zk, other):
        for _ in range(2):
            lease = await make(zk, path).acquire()
            assert (await other.get_acl(lease.path))[0] == [ACL(READ_WRITE, "world", "anyone")]
            assert isinstance(await outcome(other.set_acl(lease.path, zkwire.OPEN_ACL)), zkwire.NoAuthError)
            await lease.release()
    assert len([text for text in caplog.messages if "it has no identity" in text]) == 1


async def test_an_acl_that_the_caller_gives_is_that_of_all_nodes(zookeeper: RealServer, path: str) -> None:
    asked = [ACL(Perms.ALL, "ip", "127.0.0.1")]
    async with zkwire.connect(zookeeper.hosts) as zk, Lock(zk, f"{path}/deep/lock", acl=asked) as lease:
        for node in (path, f"{path}/deep", f"{path}/deep/lock", lease.path):
            assert (await zk.get_acl(node))[0] == asked


@pytest.mark.parametrize("make", WITH_A_LINE.values(), ids=WITH_A_LINE.keys())
@pytest.mark.parametrize("auth", [[], [BOB]], ids=["no identity", "another one"])
async def test_clients_with_different_identities_stand_in_one_line(
    zookeeper: RealServer, path: str, make: Make, auth: list[tuple[str, bytes]]
) -> None:
    async with (
        zkwire.connect(zookeeper.hosts, auth=[ANN]) as zk,
        zkwire.connect(zookeeper.hosts, auth=auth) as other,
    ):
        lease = await make(zk, path).acquire()
        waiter = await start_waiting(other, make(other, path), 2)
        last = await start_waiting(zk, make(zk, path), 3)
        await lease.release()
        lease = await waiter
        await zk.delete(lease.path)  # an operator with another identity: the permission is that of the lock's node
        assert isinstance(await lease.lost(), LockLostError)
        await (await last).release()
        assert await line(zk, path) == []


async def test_clients_with_different_identities_downgrade_and_take_over(zookeeper: RealServer, path: str) -> None:
    async with (
        zkwire.connect(zookeeper.hosts, auth=[ANN]) as zk,
        zkwire.connect(zookeeper.hosts, auth=[BOB]) as other,
    ):
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


async def test_the_holder_writes_after_a_reconnect(zookeeper: RealServer, path: str) -> None:
    """The identities of a client are shown on each connection."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts, auth=[ANN]) as zk:
        term = await Election(zk, path).acquire()
        states = zk.states()
        proxy.drop()
        await states_until(states, SessionState.SUSPENDED)
        await term.set(b"written")
        states.close()
        assert await Election(zk, path).candidates() == [b"written"]
        await term.resign()


async def test_an_identity_that_is_added_later_counts_from_then_on(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        assert zk.identity_count == 0
        await (await Lock(zk, path).acquire()).release()
        await zk.add_auth(*ANN)
        assert zk.identity_count == 1
        async with Lock(zk, path) as lease:
            assert without_hashes((await zk.get_acl(lease.path))[0])[0] == ACL(READ_WRITE, "digest", "ann")


async def test_a_client_that_the_server_gives_no_identity_tries_once(
    zookeeper: RealServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with TLS without a certificate: only the server knows."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        monkeypatch.setattr(zk, "_identity_count", 1)
        await zk.create(path)
        locks: list[Locking[Any]] = [TryLock(zk, f"{path}/job"), Lock(zk, path), Lock(zk, path)]
        for lock, creates in zip(locks, (2, 1, 1), strict=True):
            mark = proxy.mark()
            async with lock as lease:
                assert proxy.requests(mark).count("create2") == creates
                assert (await zk.get_acl(lease.path))[0] == [ACL(READ_WRITE, "world", "anyone")]
        with pytest.raises(zkwire.InvalidACLError):
            await TryLock(zk, f"{path}/job", acl=zkwire.CREATOR_ALL_ACL).acquire()


@pytest.mark.limit(120)
async def test_a_sasl_user_is_an_identity() -> None:
    async with (
        RealServer(sasl_users={"bob": "secret"}) as server,
        zkwire.connect(server.hosts, sasl=DigestMD5("bob", "secret")) as zk,
        zkwire.connect(server.hosts) as other,
    ):
        assert zk.identity_count == 1
        async with Lock(zk, "/lock") as lease:
            assert (await zk.get_acl(lease.path))[0] == [ACL(READ_WRITE, "sasl", "bob"), WORLD_READ]
            assert isinstance(await outcome(other.set(lease.path, b"")), zkwire.NoAuthError)
            waiter = await start_waiting(other, Lock(other, "/lock"), 2)
        await (await waiter).release()


@pytest.mark.limit(120)
async def test_a_certificate_is_an_identity(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    context = ssl.create_default_context(cafile=tls.ca.certificate)
    context.load_cert_chain(tls.client.chain)
    async with RealServer(tls=tls, fsync=False) as server, zkwire.connect(server.secure_hosts, ssl=context) as zk:
        assert zk.identity_count == 1
        async with Election(zk, "/election").lead() as term:
            assert (await zk.get_acl(term.path))[0] == [ACL(READ_WRITE, "x509", tls.client.subject), WORLD_READ]
            await term.set(b"written")
            term.check()
