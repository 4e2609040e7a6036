"""The warning about a node whose ACL allows more than the caller's: when it comes, and what it costs."""

import asyncio

import pytest

import zkwire
from recipes import Lock, TryLock
from recipes.common.parent_acl import beyond
from tests.support.client import Server
from tests.support.everywhere import scene
from tests.support.recipes import proxied, two_clients
from zkwire import ACL, Perms, digest_acl

ALL, READ = Perms.ALL, Perms.READ
OWNER = digest_acl("user", "password")
MASKED = ACL(ALL, "digest", "user:x")
OTHER = digest_acl("other", "password")
AUTH = ACL(ALL, "auth", "")
WORLD = ACL(ALL, "world", "anyone")
WORLD_READ = ACL(READ, "world", "anyone")


@pytest.mark.parametrize(
    ("found", "asked", "wider"),
    [
        ([WORLD], [WORLD], []),
        ([WORLD_READ], [WORLD], []),
        ([OWNER, OTHER], [WORLD], []),
        ([OWNER], [OWNER, WORLD_READ], []),
        ([MASKED], [OWNER], []),
        ([OWNER, OTHER], [AUTH], []),
        ([OWNER, WORLD_READ], [AUTH, WORLD_READ], []),
        ([ACL(READ, "digest", OWNER.id)], [ACL(READ, "digest", OWNER.id), ACL(Perms.WRITE, "digest", OWNER.id)], []),
        ([], [OWNER], []),
        ([WORLD], [WORLD_READ], [ACL(ALL & ~READ, "world", "anyone")]),
        ([WORLD], [AUTH], [WORLD]),
        ([WORLD], [OWNER], [WORLD]),
        ([OWNER, OTHER], [OWNER], [OTHER]),
        ([ACL(ALL, "digest", "other:x")], [OWNER], [ACL(ALL, "digest", "other:x")]),
        ([MASKED], [ACL(ALL, "sasl", "user")], [MASKED]),
        ([ACL(ALL, "ip", "10.0.0.0/8")], [AUTH], [ACL(ALL, "ip", "10.0.0.0/8")]),
        ([OWNER], [ACL(READ, "digest", OWNER.id)], [ACL(ALL & ~READ, "digest", OWNER.id)]),
    ],
)
def test_what_an_acl_allows_beyond_another_one(found: list[ACL], asked: list[ACL], wider: list[ACL]) -> None:
    assert beyond(found, asked) == wider


async def test_a_lock_in_a_wider_node_of_another_client_is_reported_once(
    each_server: Server, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_clients(each_server) as (_, other):
        await other.create(path)
        async with zkwire.connect(each_server.hosts, auth=[("digest", b"user:password")]) as zk:
            for _ in range(2):
                async with Lock(zk, path, acl=zkwire.CREATOR_ALL_ACL):
                    pass
            async with TryLock(zk, f"{path}/job", acl=zkwire.CREATOR_ALL_ACL):
                pass
    (warned,) = [text for text in caplog.messages if f"{path} exists" in text]
    assert "world:anyone ALL" in warned


async def test_a_lock_in_a_node_that_it_creates_itself_is_not_reported(
    each_server: Server, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with zkwire.connect(each_server.hosts, auth=[("digest", b"user:password")]) as zk:
        for acl in (zkwire.CREATOR_ALL_ACL, [digest_acl("user", "password")], None):
            async with Lock(zk, f"{path}-{acl is None}-{len(caplog.messages)}", acl=acl):
                pass
    assert not [text for text in caplog.messages if "exists with an ACL" in text]


async def test_the_acl_is_read_once_and_only_if_the_caller_gives_one(each_server: Server, path: str) -> None:
    async with proxied(each_server) as (proxy, _, zk):
        for _ in range(2):
            async with Lock(zk, path):
                pass
        assert "getACL" not in proxy.requests()
        for new in ("", "", "", "-new"):
            async with Lock(zk, path + new, acl=zkwire.OPEN_ACL):
                pass
        assert proxy.requests().count("getACL") == 1


async def test_a_program_with_ever_new_paths_fills_neither_the_log_nor_the_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds through more paths than are remembered: forgotten ones would be read and reported in each round."""
    monkeypatch.setattr("recipes.common.parent_acl._MOST_REMEMBERED", 3)
    async with scene() as stage:
        for number in range(5):
            await stage.other.create(f"{stage.path}/{number}", make_parents=True)
        for _ in range(2):
            for number in range(5):
                async with Lock(stage.zk, f"{stage.path}/{number}", acl=[ACL(ALL & ~Perms.ADMIN, "world", "anyone")]):
                    pass
    assert len([text for text in caplog.messages if "exists with an ACL" in text]) == 3


async def test_a_session_that_expires_while_the_acl_is_read_is_no_error() -> None:
    """The client renews its session, and the recipe begins again in the next one."""
    async with scene() as stage:
        await stage.other.ensure_path(stage.path)
        with stage.server.drop_after("getACL", session=stage.zk.session_id) as dropped:
            taking = asyncio.create_task(TryLock(stage.zk, f"{stage.path}/job", acl=zkwire.OPEN_ACL).acquire())
            await dropped.until_hit()
            stage.server.expire(stage.zk.session_id)
            await (await taking).release()


async def test_an_acl_that_this_client_may_not_read_is_asked_for_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        no_look = Perms.CREATE | Perms.DELETE
        await stage.other.create(stage.path, acl=[ACL(no_look, "world", "anyone")])
        with stage.server.delay_replies(0, "getACL", session=stage.zk.session_id) as asked:
            for _ in range(3):
                async with TryLock(stage.zk, f"{stage.path}/job", acl=zkwire.OPEN_ACL):
                    pass
            assert asked.hits == 1
    assert not [text for text in caplog.messages if "exists with an ACL" in text]
