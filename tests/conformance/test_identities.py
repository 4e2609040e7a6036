"""Identities and ACLs together: which client has access, and which one sees the hashes."""

import pytest

import zkwire
from tests.support.client import Server
from zkwire import ACL, ClientInfo


async def test_a_digest_entry_lets_in_who_knows_the_password_and_nobody_else(server: Server, path: str) -> None:
    entry = zkwire.digest_acl("bob", "p:w")
    async with zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        await zk.create(path, b"secret", acl=[entry])
        for client in (zk, other):
            with pytest.raises(zkwire.NoAuthError):
                await client.get(path)
        await zk.add_auth("digest", b"bob:p:w")
        await other.add_auth("digest", b"bob:another")
        assert (await zk.get(path)).data == b"secret"
        assert (await zk.get_acl(path))[0] == [entry]
        with pytest.raises(zkwire.NoAuthError):
            await other.get(path)


async def test_what_the_creator_alone_may_use_is_stored_with_his_identity(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as zk:
        await zk.add_auth("digest", b"bob:pw")
        await zk.create(path, acl=zkwire.CREATOR_ALL_ACL)
        assert (await zk.get_acl(path))[0] == [zkwire.digest_acl("bob", "pw")]
        await zk.set_acl(path, zkwire.READ_ONLY_ACL)
        with pytest.raises(zkwire.NoAuthError):
            await zk.set_acl(path, zkwire.OPEN_ACL)


async def test_who_only_reads_is_shown_no_hash(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as reader:
        await reader.add_auth("digest", b"eve:pw")
        await zk.create(path, acl=[zkwire.digest_acl("bob", "pw"), zkwire.digest_acl("eve", "pw", zkwire.Perms.READ)])
        assert (await reader.get_acl(path))[0] == [ACL(31, "digest", "bob:x"), ACL(1, "digest", "eve:x")]


@pytest.mark.since("3.7", "whoAmI")
async def test_whoami_names_every_identity(server: Server) -> None:
    async with zkwire.connect(server.hosts) as zk:
        await zk.add_auth("digest", b"bob:pw")
        assert sorted(await zk.whoami()) == [ClientInfo("digest", "bob"), ClientInfo("ip", "127.0.0.1")]
