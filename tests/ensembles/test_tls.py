"""TLS: which certificates are accepted, what a client must present, and that large replies arrive whole."""

import asyncio
import ssl
from collections.abc import Awaitable
from pathlib import Path

import pytest

import zkwire
from recipes import Lock
from tests.support.client import cancel_connects, no_session_stays, states_until
from tests.support.proxy import Proxy
from tests.support.recipes import until_armed
from tests.support.tls import TlsFront
from zkwire import SessionState
from zkwire.testing import Certificates, EnsembleServer, RealServer, authority, issue

CHILDREN = 6000

pytestmark = pytest.mark.usefixtures("no_secret_printed")


def trusting(tls: Certificates, *, shows: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca.certificate)
    if shows:
        context.load_cert_chain(tls.client.chain)
    return context


async def refusal(connecting: Awaitable[zkwire.Client]) -> str:
    """Return the text of the ConnectionError that `connecting` raises."""
    with pytest.raises(ConnectionError, match="no session with ") as raised:
        await connecting
    assert isinstance(raised.value.__cause__, ssl.SSLError | None)
    return str(raised.value)


@pytest.mark.limit(120)
async def test_locks_and_long_lists_over_tls_pitfall_62(tls: Certificates, secure: EnsembleServer) -> None:
    """A reply of 100 kB and more comes in many TLS records and many reads."""
    context = trusting(tls)
    async with (
        zkwire.connect(secure.secure_hosts, ssl=context) as zk,
        zkwire.connect(secure.secure_hosts, ssl=context) as other,
    ):
        names = [f"child-{number:08d}" for number in range(CHILDREN)]
        await zk.create("/many")
        for start in range(0, CHILDREN, 2000):
            async with zk.transaction() as tx:
                for name in names[start : start + 2000]:
                    tx.create(f"/many/{name}")
        for _ in range(3):
            assert sorted(await other.get_children("/many")) == names
        blob = bytes(range(256)) * 4000
        await zk.set("/many", blob)
        nodes = await asyncio.gather(*(other.get("/many") for _ in range(5)))
        assert all(node.data == blob for node in nodes)
        assert zk.state is other.state is SessionState.CONNECTED
        async with Lock(zk, "/locks/one") as lease:
            assert lease.is_certain()
            assert await Lock(other, "/locks/one").try_acquire() is None
        lease = await Lock(zk, "/locks/one").acquire()
        waiting = asyncio.create_task(Lock(other, "/locks/one").acquire())
        await until_armed(2, other)
        await lease.release()
        following = await waiting
        assert following.is_certain()
        assert following.token > lease.token
        await following.release()


@pytest.mark.limit(120)
async def test_the_client_is_known_by_its_certificate_each_time(tls: Certificates, secure: EnsembleServer) -> None:
    async with Proxy(secure.secure_hosts) as proxy:
        async with zkwire.connect(proxy.hosts, ssl=trusting(tls)) as zk:
            session_id, states = zk.session_id, zk.states()
            for _ in range(2):
                assert ("x509", tls.client.subject) in [(one.scheme, one.user) for one in await zk.whoami()]
                proxy.drop()
                await states_until(states, SessionState.SUSPENDED)
                await states_until(states, SessionState.CONNECTED)
            assert zk.session_id == session_id
            async with Lock(zk, "/own") as lease:  # into whose ticket only this client may write
                assert ("x509", tls.client.subject) in [
                    (one.scheme, one.id) for one in (await zk.get_acl(lease.path))[0]
                ]
        await proxy.until(lambda: proxy.open == 0)


@pytest.mark.limit(120)
async def test_untrusted_and_misnamed_servers_are_refused(
    tls: Certificates, secure: EnsembleServer, tmp_path: Path
) -> None:
    """The name is the host of the connect string.  A TLS failure concerns one server: the next one is tried."""
    elsewhere = issue(tls.ca, tmp_path, "elsewhere", hosts=["DNS:zk1.example"])
    async with TlsFront(secure.port, Certificates(tls.ca, elsewhere, tls.client)) as misnamed:
        stranger = ssl.create_default_context(cafile=authority(tmp_path, "stranger").certificate)
        assert "unable to get local issuer" in await refusal(zkwire.connect(secure.secure_hosts, ssl=stranger))
        assert "not accepted" in await refusal(zkwire.connect(secure.secure_hosts, ssl=True))
        localhost = secure.secure_hosts.replace("127.0.0.1", "localhost")
        text = await refusal(zkwire.connect(misnamed.hosts, ssl=trusting(tls)))
        assert f"{misnamed.hosts}: the server's certificate is not accepted: IP address mismatch" in text
        async with zkwire.connect(f"{misnamed.hosts},{localhost}", ssl=trusting(tls)) as zk:
            assert zk.server == localhost


@pytest.mark.limit(120)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
async def test_a_server_refuses_a_client_without_a_certificate_or_with_one_of_another_authority(
    tls: Certificates, secure: EnsembleServer, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """By TLS 1.3 it does so after the handshake, in place of an answer."""
    stranger = issue(authority(tmp_path, "stranger"), tmp_path, "client-of-another")
    without, foreign, known = trusting(tls, shows=False), trusting(tls, shows=False), trusting(tls)
    foreign.load_cert_chain(stranger.chain)
    for context in (without, foreign, known):
        context.minimum_version = context.maximum_version = version
    for context in (without, foreign):
        text = await refusal(zkwire.connect(secure.secure_hosts, ssl=context))
        assert "the server refuses this client's certificate, or the lack of one (" in text
    async with zkwire.connect(secure.secure_hosts, ssl=known) as zk:
        await zk.ping()


@pytest.mark.limit(120)
async def test_plain_connections_to_a_tls_port_and_tls_to_a_plain_port_are_refused(
    tls: Certificates, secure: EnsembleServer, zookeeper: RealServer
) -> None:
    text = await refusal(zkwire.connect(secure.secure_hosts))
    assert text.startswith(f"no session with {secure.secure_hosts}: the port is one for TLS")
    for plain in (secure.hosts, zookeeper.hosts):  # with Netty also for the plain port; `zookeeper` is with NIO
        text = await refusal(zkwire.connect(plain, 4.0, ssl=trusting(tls)))
        assert text.startswith(f"no session with {plain}: the port is one without TLS")


@pytest.mark.limit(120)
async def test_a_connect_that_is_cancelled_at_any_moment_leaves_no_session_with_netty(
    tls: Certificates, secure: EnsembleServer
) -> None:
    await cancel_connects(lambda: zkwire.connect(secure.hosts, 60.0))
    await cancel_connects(lambda: zkwire.connect(secure.secure_hosts, 60.0, ssl=trusting(tls)))
    await no_session_stays(secure.hosts)


async def test_a_server_that_is_silent_in_a_tls_handshake_is_given_up(tls: Certificates, zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as silent:
        silent.pause()
        trying = asyncio.ensure_future(zkwire.connect(silent.hosts, 0.6, ssl=trusting(tls)))
        await silent.connected(2)
        trying.cancel()
        await asyncio.wait({trying})
        silent.resume()
        await silent.until(lambda: silent.open == 0)
