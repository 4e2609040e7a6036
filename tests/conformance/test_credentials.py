"""Identities that a client adds, and a credential that no server accepts."""

import asyncio

import pytest

import zkwire
from tests.support.client import Server, states_until
from zkwire import SessionState

CONNECTED, AUTH_FAILED = SessionState.CONNECTED, SessionState.AUTH_FAILED


async def test_what_one_identity_closes_another_cannot_open(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as zk, zkwire.connect(server.hosts) as other:
        with pytest.raises(zkwire.InvalidACLError):
            await zk.create(path, acl=zkwire.CREATOR_ALL_ACL)
        await zk.add_auth("digest", b"bob:secret")
        await zk.create(path, b"for bob", acl=zkwire.CREATOR_ALL_ACL)
        await other.add_auth("digest", b"bob:wrong")
        with pytest.raises(zkwire.NoAuthError):
            await other.get(path)
        await other.add_auth("digest", b"bob:secret")
        assert (await other.get(path)).data == b"for bob"


async def test_identities_add_up_in_any_number_and_twice_is_once(server: Server, path: str) -> None:
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


async def test_a_resumed_session_has_the_identities_that_are_shown_again(server: Server, path: str) -> None:
    """Identities belong to the connection, not to the session."""
    first = await zkwire.connect(server.hosts, auth=[("digest", b"bob:secret")])
    await first.create(path, acl=zkwire.CREATOR_ALL_ACL)
    await first.close(keep_session=True)
    async with zkwire.connect(
        server.hosts, session_id=first.session_id, session_password=first.session_password
    ) as second:
        with pytest.raises(zkwire.NoAuthError):
            await second.get(path)
        await second.add_auth("digest", b"bob:secret")
        assert (await second.get(path)).data == b""


@pytest.mark.parametrize("scheme", ["no-such-scheme", "world", "auth", "super"])
async def test_a_credential_that_no_server_takes_ends_the_session(server: Server, path: str, scheme: str) -> None:
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
