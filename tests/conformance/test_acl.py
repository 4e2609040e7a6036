"""ACLs: reading and replacing them, and what is shown without permission."""

import pytest

import zkwire
from zkwire import ACL, Client, Perms


async def test_get_acl_returns_the_acl_of_the_create_and_the_stat(zk: Client, path: str) -> None:
    acl = [ACL(Perms.READ | Perms.ADMIN, "world", "anyone"), ACL(Perms.ALL, "ip", "127.0.0.1/8")]
    await zk.create(path, acl=acl)
    given, stat = await zk.get_acl(path)
    assert given == acl
    assert stat == await zk.exists(path)
    assert Perms(given[0].perms) == Perms.READ | Perms.ADMIN


async def test_set_acl_replaces_the_acl_and_changes_aversion_alone(zk: Client, path: str) -> None:
    _, before = await zk.create_and_stat(path)
    acl = [ACL(Perms.READ | Perms.ADMIN, "world", "anyone")]
    after = await zk.set_acl(path, acl)
    assert (after.aversion, after.version, after.mzxid) == (1, 0, before.mzxid)
    assert await zk.get_acl(path) == (acl, after)
    with pytest.raises(zkwire.NoAuthError):
        await zk.set(path, b"")
    await zk.set_acl(path, zkwire.OPEN_ACL)
    await zk.set(path, b"")


async def test_set_acl_is_refused_if_the_aversion_differs(zk: Client, path: str) -> None:
    await zk.create(path)
    await zk.set(path, b"")  # which is another version
    assert (await zk.set_acl(path, zkwire.OPEN_ACL, 0)).aversion == 1
    with pytest.raises(zkwire.BadVersionError) as refused:
        await zk.set_acl(path, zkwire.OPEN_ACL, 0)
    assert (refused.value.path, refused.value.operation) == (path, "setACL")
    assert (await zk.set_acl(path, zkwire.OPEN_ACL, -1)).aversion == 2


async def test_acls_below_a_chroot(zk: Client, path: str, app: Client) -> None:
    await zk.create(f"{path}/a", make_parents=True)
    await app.set_acl("/a", zkwire.READ_ONLY_ACL)
    assert (await zk.get_acl(f"{path}/a"))[0] == list(zkwire.READ_ONLY_ACL)
    assert await app.get_acl("/") == await zk.get_acl(path)
    for call in (app.get_acl("/none"), app.set_acl("/none", zkwire.OPEN_ACL)):
        with pytest.raises(zkwire.NoNodeError) as refused:
            await call
        assert refused.value.path == "/none"


async def test_hashes_are_shown_only_with_the_permission_admin(zk: Client, path: str) -> None:
    entry = zkwire.digest_acl("bob", "pw")
    await zk.create(path, acl=[entry, *zkwire.OPEN_ACL])
    assert (await zk.get_acl(path))[0] == [entry, *zkwire.OPEN_ACL]
    await zk.set_acl(path, [entry, *zkwire.READ_ONLY_ACL])
    assert (await zk.get_acl(path))[0] == [ACL(31, "digest", "bob:x"), *zkwire.READ_ONLY_ACL]


async def test_get_acl_and_set_acl_without_permission_are_refused(zk: Client, path: str) -> None:
    await zk.create(path, acl=[zkwire.digest_acl("bob", "pw")])
    with pytest.raises(zkwire.NoAuthError, match=path):
        await zk.get_acl(path)
    with pytest.raises(zkwire.NoAuthError, match=path):
        await zk.set_acl(path, zkwire.OPEN_ACL)


@pytest.mark.parametrize("acl", [[], [ACL(31, "none", "such")], [ACL(31, "world", "bob")], [ACL(31, "auth", "")]])
async def test_an_acl_that_the_server_cannot_check_is_refused(zk: Client, path: str, acl: list[ACL]) -> None:
    await zk.create(path)
    with pytest.raises(zkwire.InvalidACLError, match=path):
        await zk.set_acl(path, acl)
    assert (await zk.get_acl(path))[0] == list(zkwire.OPEN_ACL)
