"""What clients, locks and leases look like in a debugger."""

import re

import pytest

import zkwire
from recipes import Election, Lock, MultiLock, ReadWriteLock, TryLock
from tests.support.locks import two_clients
from zkwire.testing import Server

P = "/recipe"
CERTAIN = r"certain for \d+\.\d s"


async def test_a_client_says_state_server_and_session() -> None:
    async with Server() as server:
        async with zkwire.connect(server.hosts) as root:
            await root.create("/app")
        zk = await zkwire.connect(f"{server.hosts}/app", auth=[("digest", b"me:hunter2")])
        session = f"session {zk.session_id:#x} of 10 s"
        assert re.fullmatch(f"<Client CONNECTED {server.hosts}/app, {session}, {CERTAIN}>", repr(zk))
        assert "hunter2" not in repr(zk)
        assert repr(zk.session_password)[2:-1] not in repr(zk)
        await zk.close()
        assert repr(zk).startswith("<Client CLOSED ")


@pytest.mark.parametrize("kind", [Lock, Election, TryLock])
async def test_a_lock_and_its_lease_say_what_is_held(kind: type[Lock] | type[Election] | type[TryLock]) -> None:
    async with two_clients() as (zk, _):
        await zk.create(P)
        lock = kind(zk, f"{P}/x")
        assert repr(lock) == f"<{kind.__name__} {P}/x, no lease so far, {zk!r}>"
        lease = await lock.acquire()
        session = f"session {zk.session_id:#x}"
        held = rf"<\w+ {re.escape(lease.path)}, held, {CERTAIN}, token {lease.token}, {session}>"
        assert re.fullmatch(held, repr(lease))
        assert re.fullmatch(f"<{kind.__name__} {P}/x, latest lease {held}, <Client .*>>", repr(lock))
        await lease.release()
        assert f" {lease.path}, released, token {lease.token}," in repr(lock)
        await lock.try_acquire()
        assert ", released, token" not in repr(lock)


async def test_locks_of_several_parts_show_them() -> None:
    async with two_clients() as (zk, _):
        rw = ReadWriteLock(zk, P)
        assert repr(rw) == f"<ReadWriteLock {P}, {rw.read()!r}, {rw.write()!r}>"
        assert repr(rw.read()).startswith(f"<ReadLock {P}, no lease so far, ")
        async with MultiLock([Lock(zk, f"{P}/b"), Lock(zk, f"{P}/a")]) as both:
            assert re.fullmatch(rf"<MultiLease of <Lease {P}/a/.*>, <Lease {P}/b/.*>>", repr(both))
