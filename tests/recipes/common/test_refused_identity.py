"""A server that does not take a client's identity for an ACL: nodes that only their maker may write are not possible.

It refuses the first such ACL, and the recipes then create their nodes so that all clients may write them.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import zkwire
from recipes import Barrier, Election, Group, Lock, ReadWriteLock, Semaphore, TryLock
from recipes.common.own_acl import own_acl, was_refused
from tests.support.recipes import outcome
from zkwire import ACL, Client, InvalidACLError, Perms, ThrottledError
from zkwire.testing import Server

P = "/recipe"
ANN, BOB = ("digest", b"ann:1"), ("digest", b"bob:2")
READ_WRITE = Perms.READ | Perms.WRITE
OURS = ACL(READ_WRITE, "auth", "")
ALL_WRITE = [ACL(READ_WRITE, "world", "anyone")]
NODE = re.compile(rf"{P}/.*(_c_|member).*|{P}/one")

Make = Callable[[Client, Sequence[ACL] | None], Awaitable[str]]


async def acquired(lock: Any) -> str:
    return str((await lock.acquire()).path)


async def member(zk: Client, acl: Sequence[ACL] | None) -> str:
    await Group(zk, P, acl=acl).join("one")
    return f"{P}/one"


async def barrier(zk: Client, acl: Sequence[ACL] | None) -> str:
    await Barrier(zk, f"{P}/one", acl=acl).create()
    return f"{P}/one"


KINDS: dict[str, Make] = {
    "lock": lambda zk, acl: acquired(Lock(zk, P, acl=acl)),
    "write_lock": lambda zk, acl: acquired(ReadWriteLock(zk, P, acl=acl).write()),
    "semaphore": lambda zk, acl: acquired(Semaphore(zk, P, 2, acl=acl)),
    "election": lambda zk, acl: acquired(Election(zk, P, acl=acl)),
    "try_lock": lambda zk, acl: acquired(TryLock(zk, f"{P}/one", acl=acl)),
    "member": member,
    "barrier": barrier,
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
async def test_the_node_is_created_so_that_all_clients_may_write_it(make: Make) -> None:
    async with Server() as server, zkwire.connect(server.hosts, auth=[ANN]) as zk:
        await zk.ensure_path(P)
        with server.answering("create", InvalidACLError, path=NODE, times=1) as refused:
            node = await make(zk, None)
            assert refused.hits == 1
        assert [entry for entry in (await zk.get_acl(node))[0] if entry.perms & Perms.WRITE] == ALL_WRITE


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
async def test_with_an_identity_only_its_maker_may_write_the_node(make: Make) -> None:
    async with Server() as server, zkwire.connect(server.hosts, auth=[ANN]) as zk:
        await zk.ensure_path(P)
        with server.answering("create", ThrottledError, path=NODE, times=1):  # says nothing about the ACL
            node = await make(zk, None)
        writers = [entry for entry in (await zk.get_acl(node))[0] if entry.perms & Perms.WRITE]
        assert [(entry.scheme, entry.id.partition(":")[0]) for entry in writers] == [("digest", "ann")]


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
async def test_another_acl_that_is_refused_is_an_error(make: Make) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.ensure_path(P)
        for acl in (None, [ACL(Perms.ALL, "world", "anyone")]):
            with server.answering("create", InvalidACLError, path=NODE) as refused:
                assert isinstance(await outcome(make(zk, acl)), InvalidACLError)
                assert refused.hits == 1


async def test_the_acl_follows_the_identities_that_the_client_has_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with caplog.at_level(logging.INFO, "recipes"):
            for _ in range(2):
                assert own_acl(zk, P)[0] == ALL_WRITE[0]
            assert not was_refused(zk, own_acl(zk, P))
        (said,) = caplog.messages
        assert said.startswith(f"{P}: all clients may write into the nodes of this client")
        await zk.add_auth(*ANN)
        assert own_acl(zk, P)[0] == OURS
        assert was_refused(zk, own_acl(zk, P))
        assert own_acl(zk, P)[0] == ALL_WRITE[0]
        await zk.add_auth(*BOB)  # a server may take the next identity for one
        assert own_acl(zk, P)[0] == OURS
