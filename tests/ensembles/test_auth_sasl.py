"""SASL comes before everything else: DIGEST-MD5 with real servers, a custom mechanism, and refusals."""

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkwire
from recipes import Lock
from tests.support.planted import planted
from tests.support.proxy import Proxy
from tests.support.rogue import Peer, Rogue
from zkwire import DigestMD5, SessionState
from zkwire.testing import RealServer

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState

SASL = 102
BOBS = planted("sasl-hidden-word")
WRONG = planted("sasl-wrong-word")
SUPER = planted("super-hidden-word")
USERS = {"bob": BOBS, "zoë": planted("crème brûlée"), "λ": planted("日本")}
REQUIRED = {"sessionRequireClientSASLAuth": "true"}

pytestmark = pytest.mark.usefixtures("no_secret_printed")


@pytest.fixture(scope="module")
def users() -> Iterator[RealServer]:
    """A running server with the users of this file, which serves other clients too."""
    server = RealServer(sasl_users=USERS, super_password=SUPER, fsync=False)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.close())


async def sasl_users(zk: zkwire.Client) -> list[str]:
    return [one.user for one in await zk.whoami() if one.scheme == "sasl"]


@pytest.mark.limit(120)
async def test_users_of_a_real_server_on_every_connection_pitfall_56(users: RealServer) -> None:
    """Also for names and passwords that are hashed in another encoding than they are sent in."""
    for user, password in USERS.items():
        async with zkwire.connect(users.hosts, sasl=DigestMD5(user, password)) as zk:
            assert await sasl_users(zk) == [user]
            async with Lock(zk, "/own") as lease:  # into whose ticket only this client may write
                assert ("sasl", user) in [(one.scheme, one.id) for one in (await zk.get_acl(lease.path))[0]]
    mechanism = DigestMD5("bob", BOBS)
    async with (
        Proxy(users.hosts) as proxy,
        zkwire.connect(proxy.hosts, sasl=mechanism, auth=[("digest", b"ann:1")]) as zk,
    ):
        await zk.create("/bobs", acl=[zkwire.ACL(31, "sasl", "bob")])
        _, watch = await zk.get_and_watch("/bobs")
        for _ in range(2):
            mark = proxy.mark()
            proxy.drop()
            await zk.get("/bobs")
            sent = [name for name in proxy.requests(mark) if name != "multi"]  # a proof, at any time after setWatches
            assert sent == ["connect", "sasl", "sasl", "auth", "setWatches", "getData"]
        watch.cancel()
        assert await sasl_users(zk) == ["bob"]
        async with zkwire.connect(users.hosts) as other:
            with pytest.raises(zkwire.NoAuthError):
                await other.get("/bobs")
            await other.add_auth("digest", f"super:{SUPER}".encode())
            assert (await other.get("/bobs")).data == b""


def test_the_password_of_the_super_user_is_not_on_the_command_line(users: RealServer) -> None:
    command = Path(f"/proc/{users.pid}/cmdline").read_text()
    assert "superDigest=super:" in command
    assert SUPER not in command


async def test_a_wrong_password_ends_the_session_and_closing_does_not_hang_pitfall_54(users: RealServer) -> None:
    for mechanism in (DigestMD5("bob", WRONG), DigestMD5("nobody", BOBS)):
        with pytest.raises(zkwire.AuthFailedError, match=f"SASL with {users.hosts}"):
            await zkwire.connect(users.hosts, sasl=mechanism)


@pytest.mark.limit(120)
async def test_a_server_that_requires_sasl_serves_authenticated_clients_only() -> None:
    """Without SASL the server refuses even pings, so none may be sent before the exchange has succeeded."""
    async with RealServer(sasl_users=USERS, properties=REQUIRED) as server:
        async with zkwire.connect(server.hosts, 2.0, sasl=DigestMD5("bob", BOBS)) as zk:
            await zk.create("/a", ephemeral=True)
            await zk.ping()
        with pytest.raises(zkwire.AuthFailedError):
            await zkwire.connect(server.hosts, sasl=DigestMD5("bob", WRONG))
        async with zkwire.connect(server.hosts) as zk:
            with pytest.raises(zkwire.AuthFailedError, match="demands an authentication"):
                await zk.get("/")
            assert zk.state is AUTH_FAILED


async def test_a_server_without_sasl_is_not_mistaken_for_one_that_accepts(zookeeper: RealServer) -> None:
    with pytest.raises(zkwire.AuthFailedError, match="no DIGEST-MD5 set up"):
        await zkwire.connect(zookeeper.hosts, sasl=DigestMD5("bob", BOBS))


async def test_a_connection_lost_in_the_exchange_is_made_again_pitfall_57(users: RealServer) -> None:
    async with Proxy(users.hosts) as proxy:
        for occurrence in (1, 2):
            lost = proxy.drop_after("sasl", nth=occurrence)
            async with zkwire.connect(proxy.hosts, sasl=DigestMD5("bob", BOBS)) as zk:
                assert lost.hits
                assert await sasl_users(zk) == ["bob"]
        held = proxy.drop_before("sasl")
        async with zkwire.connect(proxy.hosts, sasl=DigestMD5("bob", BOBS)) as zk:
            assert held.hits
            proxy.drop()
            assert await sasl_users(zk) == ["bob"]


# A custom mechanism, against a scripted server.


class OneStep:
    """A custom mechanism."""

    def start(self, host: str) -> bytes:
        return b"token"

    def step(self, token: bytes) -> bytes | None:
        return None


async def test_a_slow_exchange_sends_no_ping_and_does_not_prolong_certainty() -> None:
    """SASL does not prolong certainty: until a request is answered, only the handshake counts."""
    before_handshake = asyncio.get_running_loop().time()

    async def slow(peer: Peer) -> None:
        await peer.handshake()
        request = await peer.request()
        await asyncio.sleep(0.7)  # the slow answer under test: a ping would be due after 0.5 s
        assert len(peer.rogue.requests) == 1
        await peer.reply(request.xid, struct.pack(">i", -1), zxid=0)
        slow_until.set_result(asyncio.get_running_loop().time())
        await peer.serve()

    slow_until = asyncio.get_running_loop().create_future()
    async with Rogue(slow) as rogue, zkwire.connect(rogue.hosts, 2.0, sasl=OneStep(), locks=False) as zk:
        assert before_handshake + 2.0 <= zk.certain_until <= await slow_until - 0.7 + 2.0
        await rogue.until(lambda: (-2, 11) in rogue.requests)  # pings begin after the exchange


async def test_a_connect_that_is_cancelled_or_times_out_during_an_exchange_leaves_nothing() -> None:
    """If the server stops answering during the exchange, the client tries the next one, as in the handshake."""

    async def silent(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        await peer.ignore()

    async with Rogue(silent) as rogue:
        connecting = asyncio.ensure_future(zkwire.connect(rogue.hosts, 1.0, sasl=OneStep()))
        await rogue.connected(2)
        await rogue.requested(SASL, 2)
        connecting.cancel()
        await asyncio.wait({connecting})
        assert connecting.cancelled()
        await rogue.disconnected(2)
        assert [each.session_id for each in rogue.handshakes] == [0, 0], "a session that was made is ended, not resumed"
