"""What a client with one permission too many can do to a lock at most: the table of docs/security.md."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

import zkwire
from recipes import Lease, Lock, LockLostError
from tests.support.locks import start_waiting
from tests.support.recipes import outcome, until_armed
from zkwire import ACL, Client, NoAuthError, Perms
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
    """Try all verbs as the stranger; fail if one is carried out that is not among `allowed`, or one of these is not."""
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
    for what in allowed:
        assert not isinstance(await outcome(attempts[what]()), NoAuthError), what


@pytest.mark.parametrize(
    ("lock", "ticket", "is_closed", "allowed"),
    [
        (NONE, NONE, True, ()),
        (NONE, NONE, False, ("read ticket",)),
        (Perms.READ, NONE, True, ("list",)),
        (Perms.WRITE, NONE, True, ("write",)),
        (Perms.CREATE, NONE, True, ("create",)),
        (Perms.DELETE, NONE, True, ("delete ticket",)),
        (Perms.ADMIN, NONE, True, ("set ACL",)),
        (NONE, Perms.WRITE, True, ("write ticket",)),
        (NONE, Perms.CREATE | Perms.DELETE, True, ("create below ticket",)),  # which ephemeral nodes do not allow
        (NONE, Perms.ADMIN, True, ("set ticket's ACL",)),
    ],
)
async def test_each_permission_allows_one_thing(
    zookeeper: RealServer, path: str, lock: Perms, ticket: Perms, is_closed: bool, allowed: tuple[str, ...]
) -> None:
    async with staged(zookeeper, path, lock=lock, ticket=ticket, is_closed=is_closed) as stage:
        await refused(stage, *allowed)


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
