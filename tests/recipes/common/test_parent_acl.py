"""The warning about a node whose ACL allows more than the caller's: when it comes, and what it costs."""

import pytest

import zkwire
from recipes import Lock, TryLock
from recipes.common.parent_acl import beyond
from tests.support.recipes import proxied, two_clients
from zkwire import ACL, Perms, digest_acl
from zkwire.testing import RealServer

ALL, READ = Perms.ALL, Perms.READ
OWNER = digest_acl("user", "password")
MASKED = ACL(ALL, "digest", "user:x")
OTHER = digest_acl("other", "password")
AUTH = ACL(ALL, "auth", "")
WORLD = ACL(ALL, "world", "anyone")
WORLD_READ = ACL(READ, "world", "anyone")


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        ([WORLD], [WORLD]),
        ([WORLD_READ], [WORLD]),
        ([OWNER, OTHER], [WORLD]),
        ([OWNER], [OWNER, WORLD_READ]),
        ([MASKED], [OWNER]),
        ([OWNER, OTHER], [AUTH]),
        ([OWNER, WORLD_READ], [AUTH, WORLD_READ]),
        ([ACL(READ, "digest", OWNER.id)], [ACL(READ, "digest", OWNER.id), ACL(Perms.WRITE, "digest", OWNER.id)]),
        ([], [OWNER]),
    ],
)
def test_an_acl_that_allows_no_more(found: list[ACL], asked: list[ACL]) -> None:
    assert beyond(found, asked) == []


@pytest.mark.parametrize(
    ("found", "asked", "wider"),
    [
        ([WORLD], [WORLD_READ], [ACL(ALL & ~READ, "world", "anyone")]),
        ([WORLD], [AUTH], [WORLD]),
        ([WORLD], [OWNER], [WORLD]),
        ([OWNER, OTHER], [OWNER], [OTHER]),
        ([ACL(ALL, "digest", "other:x")], [OWNER], [ACL(ALL, "digest", "other:x")]),
        ([ACL(ALL, "ip", "10.0.0.0/8")], [AUTH], [ACL(ALL, "ip", "10.0.0.0/8")]),
        ([OWNER], [ACL(READ, "digest", OWNER.id)], [ACL(ALL & ~READ, "digest", OWNER.id)]),
    ],
)
def test_an_acl_that_allows_more(found: list[ACL], asked: list[ACL], wider: list[ACL]) -> None:
    assert beyond(found, asked) == wider


async def test_a_lock_in_a_wider_node_of_another_client_is_reported_once(
    zookeeper: RealServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_clients(zookeeper) as (_, other):
        await other.create(path)
        async with zkwire.connect(zookeeper.hosts, auth=[("digest", b"user:password")]) as zk:
            for _ in range(2):
                async with Lock(zk, path, acl=zkwire.CREATOR_ALL_ACL):
                    pass
            async with TryLock(zk, f"{path}/job", acl=zkwire.CREATOR_ALL_ACL):
                pass
    (warned,) = [text for text in caplog.messages if f"{path} exists" in text]
    assert "world:anyone READ|WRITE|CREATE|DELETE|ADMIN" in warned


async def test_a_lock_in_a_node_that_it_creates_itself_is_not_reported(
    zookeeper: RealServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with zkwire.connect(zookeeper.hosts, auth=[("digest", b"user:password")]) as zk:
        for acl in (zkwire.CREATOR_ALL_ACL, [digest_acl("user", "password")], None):
            async with Lock(zk, f"{path}-{acl is None}-{len(caplog.messages)}", acl=acl):
                pass
    assert not [text for text in caplog.messages if "exists with an ACL" in text]


async def test_the_acl_is_read_once_and_only_if_the_caller_gives_one(zookeeper: RealServer, path: str) -> None:
    async with proxied(zookeeper) as (proxy, _, zk):
        for _ in range(2):
            async with Lock(zk, path):
                pass
        assert "getACL" not in proxy.requests()
        for _ in range(3):
            async with Lock(zk, path, acl=zkwire.OPEN_ACL):
                pass
        assert proxy.requests().count("getACL") == 1
