"""Identities and ACLs: which client has access, which one sees the hashes, and a credential that no server accepts."""

import asyncio

import pytest

import zkwire
from tests.support.client import Server, states_until
from tests.support.planted import planted
from zkwire import Client, ClientInfo, SessionState

CONNECTED, AUTH_FAILED = SessionState.CONNECTED, SessionState.AUTH_FAILED
SECRET = planted("identity-hidden-word")
BOB = f"bob:{SECRET}:1".encode()

pytestmark = pytest.mark.usefixtures("no_secret_printed")


async def test_a_node_of_its_creator_alone_is_open_to_clients_with_the_same_identity(
    zk: Client, other: Client, path: str
) -> None:
    with pytest.raises(zkwire.InvalidACLError):
        await zk.create(path, acl=zkwire.CREATOR_ALL_ACL)
    await zk.add_auth("digest", BOB)
    await zk.create(path, b"for bob", acl=zkwire.CREATOR_ALL_ACL)
    assert (await zk.get_acl(path))[0] == [zkwire.digest_acl("bob", f"{SECRET}:1")]
    await other.add_auth("digest", b"bob:wrong")
    with pytest.raises(zkwire.NoAuthError):
        await other.get(path)
    await other.add_auth("digest", BOB)
    assert (await other.get(path)).data == b"for bob"
    await zk.set_acl(path, zkwire.READ_ONLY_ACL)
    with pytest.raises(zkwire.NoAuthError):
        await zk.set_acl(path, zkwire.OPEN_ACL)


async def test_a_client_can_have_many_identities_and_add_one_twice(server: Server, path: str) -> None:
    people = {f"user{number}": f"secret{number}" for number in range(10)}
    async with (
        zkwire.connect(server.hosts) as other,
        zkwire.connect(server.hosts, auth=[("digest", b"user0:secret0"), ("digest", b"user1:secret1")]) as zk,
    ):
        for user, password in people.items():
            await other.create(f"{path}-{user}", acl=[zkwire.digest_acl(user, password)])
        await zk.get(f"{path}-user0")
        await zk.get(f"{path}-user1")
        with pytest.raises(zkwire.NoAuthError):
            await zk.get(f"{path}-user2")
        shown = [f"{user}:{password}".encode() for user, password in people.items()]
        await asyncio.gather(*(zk.add_auth("digest", one) for one in shown))
        for user in people:
            assert (await zk.get(f"{path}-{user}")).data == b""


async def test_a_resumed_session_has_only_the_identities_that_are_sent_again(server: Server, path: str) -> None:
    """Identities belong to the connection, not to the session."""
    first = await zkwire.connect(server.hosts, auth=[("digest", BOB)])
    await first.create(path, acl=zkwire.CREATOR_ALL_ACL)
    await first.close(keep_session=True)
    async with zkwire.connect(
        server.hosts, session_id=first.session_id, session_password=first.session_password
    ) as second:
        with pytest.raises(zkwire.NoAuthError):
            await second.get(path)
        await second.add_auth("digest", BOB)
        assert (await second.get(path)).data == b""


@pytest.mark.since("3.7", "whoAmI")
async def test_whoami_names_every_identity(zk: Client) -> None:
    ours = [ClientInfo("ip", "127.0.0.1")]
    assert await zk.whoami() == ours
    for user in ("bob \U0001f986 \U00010348", "bob"):  # with characters beyond the BMP
        await zk.add_auth("digest", f"{user}:pw".encode())
        ours.append(ClientInfo("digest", user))
    assert sorted(await zk.whoami()) == sorted(ours)


@pytest.mark.parametrize("scheme", ["no-such-scheme", "world", "auth", "super"])
async def test_a_credential_that_no_server_accepts_ends_the_session(server: Server, path: str, scheme: str) -> None:
    async with zkwire.connect(server.hosts) as zk:
        await zk.create(path)
        _, watch = await zk.get_and_watch(path)
        states = zk.states()
        with pytest.raises(zkwire.AuthFailedError, match=scheme):
            await zk.add_auth(scheme, b"x")
        assert await states_until(states, AUTH_FAILED) == [CONNECTED, AUTH_FAILED]
        for waiting in (watch, zk.get(path)):
            with pytest.raises(zkwire.AuthFailedError):
                await waiting
        assert zk.certain_for(zk.session_id) == 0
    async with zkwire.connect(server.hosts) as zk:
        assert await zk.exists(path) is not None


async def test_ids_with_characters_beyond_the_bmp_are_read_and_written_without_loss(server: Server, path: str) -> None:
    """A Java server sends such a character as two surrogates of three bytes each, and reads it as UTF-8."""
    user = "bob \U0001f986 \U00010348"
    secret = f"{user}:secret".encode()
    async with zkwire.connect(server.hosts, auth=[("digest", secret)]) as zk, zkwire.connect(server.hosts) as other:
        await zk.create(path, b"kept", acl=zkwire.CREATOR_ALL_ACL)
        acl, _ = await zk.get_acl(path)
        assert acl == [zkwire.digest_acl(user, "secret")]
        await zk.set_acl(path, acl)
        await zk.set_acl(path, [zkwire.digest_acl(user, "secret")])
        assert (await zk.get_acl(path))[0] == acl
        with pytest.raises(zkwire.NoAuthError):
            await other.get(path)
        await other.add_auth("digest", secret)
        assert (await other.get(path)).data == b"kept"
