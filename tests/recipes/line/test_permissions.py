"""What a client with one permission too many can do to a lock at most: the table of docs/security.md."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

import zkwire
from recipes import Election, Lease, Lock, LockLostError, PermitsError, Semaphore
from tests.support.locks import start_waiting
from tests.support.recipes import line, outcome, until, until_armed
from zkwire import ACL, Client, NoAuthError, Perms, TransactionError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(40)

OWNER = ACL(Perms.ALL, "auth", "")
NONE = Perms(0)


@dataclass
class Stage:
    """A lock that one client holds and another one waits for, and a client with other permissions."""

    zk: Client
    stranger: Client
    path: str
    lease: Lease
    waiter: asyncio.Task[Lease]

    @property
    def ticket(self) -> str:
        """The path of the holder's ticket."""
        return self.lease.path


@asynccontextmanager
async def staged(
    server: RealServer, path: str, *, lock: Perms = NONE, ticket: Perms = NONE, is_closed: bool = False
) -> AsyncIterator[Stage]:
    """Set the stage.

    Arguments: the permissions of all clients on the lock's node, and on the tickets beside READ; `is_closed`, whether
    tickets may not be read.
    """
    auth = [("digest", b"user:password")]
    tickets = [OWNER, ACL(ticket | (0 if is_closed else Perms.READ), "world", "anyone")]
    async with (
        zkwire.connect(server.hosts, auth=auth) as zk,
        zkwire.connect(server.hosts, auth=auth) as waiting,
        zkwire.connect(server.hosts) as stranger,
    ):
        await zk.create(path, acl=[OWNER, ACL(lock, "world", "anyone")] if lock else [OWNER])
        lease = await Lock(zk, path, acl=tickets).acquire()
        waiter = await start_waiting(waiting, Lock(waiting, path, acl=tickets), 2)
        await until_armed(1, zk)
        stage = Stage(zk, stranger, path, lease, waiter)
        yield stage
        await lease.release()
        await (await stage.waiter).release()


async def refused(stage: Stage, *allowed: str) -> None:
    """Try all verbs as the stranger; fail if one is carried out that is not among `allowed`."""
    zk, path, ticket = stage.stranger, stage.path, stage.ticket
    attempts: dict[str, Callable[[], Awaitable[object]]] = {
        "list": lambda: zk.get_children(path),
        "write": lambda: zk.set(path, b""),
        "create": lambda: zk.create(f"{path}/x"),
        "delete ticket": lambda: zk.delete(ticket),
        "set ACL": lambda: zk.set_acl(path, zkwire.OPEN_ACL),
        "read ticket": lambda: zk.get(ticket),
        "write ticket": lambda: zk.set(ticket, b"forged"),
        "create below ticket": lambda: zk.create(f"{ticket}/x"),
        "set ticket's ACL": lambda: zk.set_acl(ticket, zkwire.OPEN_ACL),
    }
    for what, attempt in attempts.items():
        if what not in allowed:
            assert isinstance(await outcome(attempt()), NoAuthError), what
    await stage.zk.ping()
    stage.lease.check()
    assert not stage.waiter.done()


# -- on the lock's node -----------------------------------------------------------------------------------------------


async def test_a_stranger_without_permissions_can_do_nothing(zookeeper: RealServer, path: str) -> None:
    async with staged(zookeeper, path, is_closed=True) as stage:
        await refused(stage)


async def test_read_on_the_locks_node_shows_how_many_wait(zookeeper: RealServer, path: str) -> None:
    async with staged(zookeeper, path, lock=Perms.READ) as stage:
        assert len(await stage.stranger.get_children(path)) == 2
        await refused(stage, "list", "read ticket")


async def test_write_on_the_locks_node_changes_nothing_for_a_lock(zookeeper: RealServer, path: str) -> None:
    async with staged(zookeeper, path, lock=Perms.WRITE) as stage:
        await stage.stranger.set(path, b"100")
        await refused(stage, "write", "read ticket")


async def test_write_on_a_semaphores_node_changes_the_number_of_its_holders(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as stranger:
        first = await Semaphore(zk, path, 1).acquire()
        second = await start_waiting(zk, Semaphore(zk, path, 1), 2)
        await stranger.set(path, b"2")
        third = await start_waiting(zk, Semaphore(zk, path, None), 3)
        await (await second).release()
        await (await third).release()
        await stranger.set(path, b"nonsense")
        with pytest.raises(PermitsError, match="not a semaphore"):
            await Semaphore(zk, path, 1).acquire()
        first.check()
        await first.release()


async def test_create_on_the_locks_node_lets_a_stranger_stand_in_the_line(zookeeper: RealServer, path: str) -> None:
    """As long as its session lives, for an ephemeral node; a node that is not ephemeral keeps no ticket waiting."""
    async with staged(zookeeper, path, lock=Perms.CREATE) as stage:
        await stage.stranger.create(f"{path}/x-", sequential=True)
        async with zkwire.connect(zookeeper.hosts) as queueing:
            await queueing.create(f"{path}/x-", sequential=True, ephemeral=True)
            await refused(stage, "create", "read ticket")
            await stage.lease.release()
            first = await stage.waiter
            await first.release()
            last = await start_waiting(stage.zk, Lock(stage.zk, path), 3)
            assert not last.done()
        await (await last).release()


async def test_a_node_ahead_of_the_line_does_not_end_a_lease(zookeeper: RealServer, path: str) -> None:
    """CREATE lets a stranger choose a number; those who stand in the line own in their order all the same."""
    async with staged(zookeeper, path, lock=Perms.CREATE) as stage:
        for name in ("x-0000000000", "x--000000001"):
            await stage.stranger.create(f"{path}/{name}", ephemeral=True)
        stage.lease.check()
        await stage.lease.release()
        (await stage.waiter).check()


async def test_delete_on_the_locks_node_ends_leases_which_their_holders_notice(
    zookeeper: RealServer, path: str
) -> None:
    """The next ticket owns at the same moment: only what is guarded by the ticket or the token is safe."""
    async with staged(zookeeper, path, lock=Perms.DELETE) as stage:
        await refused(stage, "delete ticket", "read ticket")
        await stage.stranger.delete(stage.ticket)
        assert isinstance(await stage.lease.lost(), LockLostError)
        following = await stage.waiter
        assert following.token > stage.lease.token
        transaction = stage.zk.transaction()
        transaction.check(stage.ticket)
        transaction.create(f"{path}/guarded")
        assert isinstance(await outcome(transaction.commit()), TransactionError)


async def test_admin_on_the_locks_node_gives_everything_else(zookeeper: RealServer, path: str) -> None:
    async with staged(zookeeper, path, lock=Perms.ADMIN) as stage:
        await refused(stage, "set ACL", "read ticket")
        await stage.stranger.set_acl(path, zkwire.OPEN_ACL)
        assert len(await stage.stranger.get_children(path)) == 2


# -- on the tickets ---------------------------------------------------------------------------------------------------


async def test_read_on_a_ticket_shows_its_data(zookeeper: RealServer, path: str) -> None:
    async with staged(zookeeper, path) as stage:
        await stage.stranger.get(stage.ticket)
        await refused(stage, "read ticket")


async def test_write_on_a_ticket_ends_its_lease_and_nothing_else(zookeeper: RealServer, path: str) -> None:
    async with staged(zookeeper, path, ticket=Perms.WRITE) as stage:
        were_together: list[bool] = []
        stage.waiter.add_done_callback(lambda _: were_together.append(stage.lease.is_certain()))
        await refused(stage, "read ticket", "write ticket")
        await stage.stranger.set(stage.ticket, b"zkwire limit 0.000\n")
        error = await stage.lease.lost()
        assert error is not None
        assert error.why == "another client has written into it"
        await stage.waiter
        await stage.zk.ping()
        assert were_together == [False]


async def test_create_and_delete_on_a_ticket_give_nothing(zookeeper: RealServer, path: str) -> None:
    """An ephemeral node has no children; to delete the ticket takes DELETE on the lock's node."""
    async with staged(zookeeper, path, ticket=Perms.CREATE | Perms.DELETE) as stage:
        came = await outcome(stage.stranger.create(f"{stage.ticket}/x"))
        assert isinstance(came, zkwire.NoChildrenForEphemeralsError)
        await refused(stage, "read ticket", "create below ticket")


@pytest.mark.since("3.8.4", "hiding events from those who may not read", raises=LockLostError)
async def test_admin_on_a_ticket_hides_its_departure(zookeeper: RealServer, path: str) -> None:
    """Servers from 3.8.4 and 3.9.2 on report a deletion only to clients that may read the node."""
    async with staged(zookeeper, path, ticket=Perms.ADMIN) as stage:
        await refused(stage, "read ticket", "set ticket's ACL")
        await stage.stranger.set_acl(stage.ticket, [ACL(Perms.WRITE, "world", "anyone")])
        await stage.zk.delete(stage.ticket)  # by an operator
        await stage.zk.ping()
        stage.lease.check()  # it has heard nothing
        assert not stage.waiter.done()
        stage.waiter.cancel()
        await asyncio.wait([stage.waiter])
        stage.waiter = asyncio.create_task(Lock(stage.zk, path).acquire())
        following = await stage.waiter
        assert following.token > stage.lease.token


# -- by default -------------------------------------------------------------------------------------------------------


async def test_by_default_no_client_has_more_on_a_ticket_than_the_table_says_is_harmless(
    zookeeper: RealServer, path: str
) -> None:
    async with (
        zkwire.connect(zookeeper.hosts, auth=[("digest", b"user:password")]) as zk,
        zkwire.connect(zookeeper.hosts) as stranger,
    ):
        for client, perms in ((zk, Perms.READ), (stranger, Perms.READ | Perms.WRITE)):
            lease = await Election(client, path).acquire()
            acl, _ = await client.get_acl(lease.path)
            assert [entry.perms for entry in acl if entry.scheme == "world"] == [perms]
            assert not any(entry.perms & Perms.ADMIN for entry in acl)
            await lease.release()

        async def is_empty() -> bool:
            return await line(zk, path) == []

        await until(is_empty)
