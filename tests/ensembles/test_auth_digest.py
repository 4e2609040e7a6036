"""Credentials are sent on every connection; with a real server, and a proxy between for the faults."""

import asyncio

import pytest

import zkwire
from recipes import Lock, LockLostError
from tests.support.client import states_until
from tests.support.planted import planted
from tests.support.proxy import Proxy
from zkwire import SessionState
from zkwire.testing import RealServer
from zkwire.testing.real.server import QUICK_START

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState

SECRET = planted(":digest-hidden-word").encode()
BOB = b"bob" + SECRET
WRONG = planted("bob:wrong-hidden-word").encode()

pytestmark = pytest.mark.usefixtures("no_secret_printed")


async def identities(zk: zkwire.Client) -> set[tuple[str, str]]:
    """Return the identities of the scheme digest."""
    return {(one.scheme, one.user) for one in await zk.whoami() if one.scheme == "digest"}


async def test_all_identities_are_sent_first_on_every_connection_pitfall_56(zookeeper: RealServer, path: str) -> None:
    """They come before SetWatches, and so before every other request."""
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        for user in ("ann", "bob", "eve"):
            await zk.add_auth("digest", user.encode() + SECRET)
        await zk.create(path, b"", acl=zkwire.CREATOR_ALL_ACL)
        _, watch = await zk.get_and_watch(path)
        for _ in range(3):
            mark = proxy.mark()
            proxy.drop()
            await zk.set(path, b"still allowed") if watch.done() else await zk.get(path)
            assert proxy.requests(mark)[:6] == ["connect", "auth", "auth", "auth", "setWatches", "getData"]
            assert await identities(zk) == {("digest", "ann"), ("digest", "bob"), ("digest", "eve")}


async def test_a_request_sent_after_add_auth_has_the_identity_without_waiting(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        adding = asyncio.create_task(zk.add_auth("digest", BOB))
        creating = asyncio.create_task(zk.create(path, acl=zkwire.CREATOR_ALL_ACL))
        assert await creating == path
        await adding


async def test_a_credential_whose_answer_is_lost_is_sent_again_pitfall_57(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        for fault, identity in ((proxy.drop_after, BOB), (proxy.drop_before, b"eve:pw")):
            lost = fault("auth")
            await zk.add_auth("digest", identity)
            assert lost.hits == 1
        again = proxy.drop_after("auth", nth=2)  # lost again, when it is sent for the second time
        proxy.drop()
        await zk.ping()
        await again.until_hit()
        assert await identities(zk) == {("digest", "bob"), ("digest", "eve")}


# Refusals


async def test_a_refused_credential_ends_the_session_pitfall_54(zookeeper: RealServer, path: str) -> None:
    """All waiting requests fail, closing does not hang, and new requests are refused."""
    zk = await zkwire.connect(zookeeper.hosts)
    await zk.create(path)
    _, watch = await zk.get_and_watch(path)
    states = zk.states()
    adding = asyncio.create_task(zk.add_auth("no-such-scheme", b"x"))
    with pytest.raises(zkwire.AuthFailedError, match="no-such-scheme"):
        await adding
    assert await states_until(states, AUTH_FAILED) == [CONNECTED, AUTH_FAILED]
    with pytest.raises(zkwire.AuthFailedError):
        await watch
    for verb in (zk.get(path), zk.create(f"{path}/a"), zk.add_auth("digest", BOB), zk.ping()):
        with pytest.raises(zkwire.AuthFailedError):
            await verb
    assert zk.certain_until == float("-inf")
    assert zk.certain_for(zk.session_id) == 0
    await zk.close()
    assert zk.state is CLOSED


async def test_a_lock_is_lost_with_a_refused_credential(zookeeper: RealServer, path: str) -> None:
    """The lock's node stays until the session has expired, but the client cannot look after it any more."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        locked = asyncio.Event()

        async def hold() -> None:
            async with Lock(zk, path):
                locked.set()
                await asyncio.Event().wait()

        async def acquire() -> None:
            async with Lock(zk, path):
                raise AssertionError("two holders")

        holding, waiting = asyncio.create_task(hold()), asyncio.create_task(acquire())
        await locked.wait()
        with pytest.raises(zkwire.AuthFailedError):
            await zk.add_auth("no-such-scheme", b"x")
        with pytest.raises(LockLostError):
            await holding
        with pytest.raises(zkwire.AuthFailedError):
            await waiting
        assert await Lock(other, path).try_acquire() is None


async def test_connect_fails_with_a_refused_credential(zookeeper: RealServer) -> None:
    with pytest.raises(zkwire.AuthFailedError, match="no-such-scheme"):
        await zkwire.connect(zookeeper.hosts, auth=[("digest", b"ann:1"), ("no-such-scheme", b"x")])


# Enforced schemes


async def test_a_server_that_enforces_a_scheme_accepts_clients_that_use_it() -> None:
    """A client without such an identity can connect, but the server refuses its first request, even a ping."""
    enforced = ("-Dzookeeper.enforce.auth.enabled=true", "-Dzookeeper.enforce.auth.schemes=digest")
    async with RealServer(jvm=[*QUICK_START, *enforced]) as server:
        async with Proxy(server.hosts) as proxy, zkwire.connect(proxy.hosts, 2.0, auth=[("digest", BOB)]) as zk:
            await zk.create("/a")
            proxy.drop()
            assert await zk.exists("/a") is not None
        async with zkwire.connect(server.hosts) as zk:
            states = zk.states()
            with pytest.raises(zkwire.AuthFailedError, match="demands an authentication"):
                await zk.get("/")
            assert await states_until(states, AUTH_FAILED) == [CONNECTED, AUTH_FAILED]
        async with zkwire.connect(server.hosts, 1.0) as zk:  # this client sends nothing but pings, which are refused
            assert await states_until(zk.states(), AUTH_FAILED) == [CONNECTED, AUTH_FAILED]
