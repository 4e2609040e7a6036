"""Servers that can never be used in the wanted way, because of TLS: `connect` raises after one round over all."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

import zkwire
from tests.support.client import InOrder, cancelled, states_until
from tests.support.recipes import until
from tests.support.rogue import Behaviour, Peer, Rogue, eof_handshake, garbage_handshake, refused_session
from tests.support.tls import TlsFront
from zkwire import SessionState
from zkwire.session import session_log
from zkwire.session.hosts import Address
from zkwire.session.opening import unfit
from zkwire.testing import Certificates, Server, issue, make_certificates

SOON = 10.0  # seconds; far more than one round takes


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def misnamed(tls: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    elsewhere = issue(tls.ca, tmp_path_factory.mktemp("elsewhere"), "elsewhere", hosts=["DNS:zk1.example"])
    return Certificates(tls.ca, elsewhere, tls.client)


def trusting(tls: Certificates, *, shows: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca.certificate)
    if shows:
        context.load_cert_chain(tls.client.chain)
    return context


@asynccontextmanager
async def fronts(*certificates: Certificates, wants_certificate: bool = False) -> AsyncIterator[list[TlsFront]]:
    """An in-memory server, and for each of `certificates` a TLS port in front of it."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        yield [
            await stack.enter_async_context(TlsFront(server.port, each, wants_certificate=wants_certificate))
            for each in certificates
        ]


async def refused(connecting: Awaitable[zkwire.Client]) -> ConnectionError:
    """Return the ConnectionError that `connecting` raises soon."""
    with pytest.raises(ConnectionError) as raised:
        async with asyncio.timeout(SOON):
            await connecting
    return raised.value


@pytest.fixture(autouse=True)
def _every_failure_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_log, "_FIRST_INTERVAL", 0.0)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_a_client_without_the_certificate_that_a_server_wants_is_told(tls: Certificates, version: str) -> None:
    """By TLS 1.3 the server refuses after the handshake, when the client has sent its first request."""
    context = trusting(tls)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    async with fronts(tls, wants_certificate=True) as [front]:
        error = await refused(zkwire.connect(front.hosts, ssl=context))
        assert str(error).startswith(f"no session with {front.hosts}: the server refuses ")
        assert "must hold a certificate that it trusts, see SSLContext.load_cert_chain" in str(error)
        assert isinstance(error.__cause__, ssl.SSLError)
        async with zkwire.connect(front.hosts, ssl=trusting(tls, shows=True)) as zk:
            await zk.ping()


async def closing(peer: Peer) -> None:
    await peer.start()


@pytest.mark.parametrize(
    ("behaviour", "ssl"),
    [(eof_handshake, False), (garbage_handshake, None), (closing, True), (eof_handshake, "a port with TLS")],
)
async def test_a_server_that_closes_the_connection_for_another_reason_is_tried_again(
    behaviour: Behaviour, ssl: Any, tls: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be starting."""
    if ssl is False:  # what is asked then is not the reason
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_recv", AsyncMock(side_effect=OSError("the question")))
    async with Rogue(behaviour) as rogue, TlsFront(rogue.port, tls) as front:
        hosts, context = (front.hosts, trusting(tls)) if isinstance(ssl, str) else (rogue.hosts, ssl)
        trying = asyncio.ensure_future(zkwire.connect(hosts, ssl=context)._connect())
        await rogue.connected(4)
        await cancelled(trying)
    assert "the question" not in caplog.text


async def closing_unless_tls(peer: Peer) -> None:
    if (await peer.start())[0] == 0x16:  # a record of a TLS handshake
        await peer.send(b"\x15\x03")  # an alert


async def test_a_port_for_tls_that_closes_connections_without_tls_is_told_of() -> None:
    async with Rogue(closing_unless_tls) as rogue:
        error = await refused(zkwire.connect(rogue.hosts))
        assert f"{rogue.hosts}: the port is one for TLS: connect with TLS" in str(error)


async def test_a_client_that_was_connected_does_not_ask_whether_a_port_is_one_for_tls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serving(peer: Peer) -> None:
        await peer.handshake()

    async with Rogue(serving, refused_session, closing_unless_tls) as rogue, zkwire.connect(rogue.hosts) as zk:
        await rogue.connected(5)
        await zk.close(within=0)
    assert "one for TLS" not in caplog.text


async def test_all_servers_of_a_round_must_be_unfit_and_each_one_is_named(
    tls: Certificates, misnamed: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with fronts(tls, misnamed) as [good, old], Server() as plain:
        hosts = f"{old.hosts},{plain.hosts}"
        error = await refused(zkwire.connect(hosts, ssl=trusting(tls), rng=InOrder()))
        assert f"{old.hosts}: the server's certificate" in str(error)
        assert f"{plain.hosts}: the port is one without TLS" in str(error)
        assert old.connections == 1
        async with zkwire.connect(f"{hosts},{good.hosts}", ssl=trusting(tls), rng=InOrder()) as zk:
            assert zk.server == good.hosts


async def test_a_running_session_survives_a_certificate_that_is_not_accepted(
    tls: Certificates, misnamed: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it is the only server: the certificate may be replaced in time."""
    async with fronts(tls) as [front], zkwire.connect(front.hosts, ssl=trusting(tls)) as zk:
        session_id, states = zk.session_id, zk.states()
        front.show(misnamed.server)
        front.drop()
        await states_until(states, SessionState.SUSPENDED)
        await until(lambda: caplog.text.count("IP address mismatch") >= 2)
        front.show(tls.server)
        await states_until(states, SessionState.CONNECTED)
        assert zk.session_id == session_id


def of_openssl(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "this client's certificate, or the lack of one (certificate required)"),
        ("TLSV1_ALERT_UNKNOWN_CA", "this client's certificate, or the lack of one (unknown ca)"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "no cipher in common, or no certificate"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "the server refuses the TLS handshake: protocol version"),
        ("UNKNOWN_CERTIFICATE_TYPE", "OpenSSL gives up the TLS handshake: unknown certificate type"),
        ("UNSUPPORTED_PROTOCOL", "OpenSSL gives up the TLS handshake: unsupported protocol"),
        ("WRONG_VERSION_NUMBER", "does not answer with TLS"),
        ("TLSV1_ALERT_INTERNAL_ERROR", None),
    ],
)
def test_what_openssl_reports_is_final_unless_the_server_may_recover(reason: str, wrong: str | None) -> None:
    failure = of_openssl(reason)
    error = unfit(failure)
    if wrong is None:
        assert error is None
    else:
        assert wrong in str(error)
        assert error is not None
        assert error.__cause__ is failure


TRUST = "; the context must trust its authority, see SSLContext.load_verify_locations"
NAME = "; the connect string must name the server as its certificate does"


@pytest.mark.parametrize(
    ("code", "message", "wrong"),
    [
        (9, "certificate is not yet valid", None),  # it will be, or a clock is wrong
        (10, "certificate has expired", "certificate has expired"),
        (18, "self-signed certificate", f"self-signed certificate{TRUST}"),
        (19, "self-signed certificate in certificate chain", f"self-signed certificate in certificate chain{TRUST}"),
        (20, "unable to get local issuer certificate", f"unable to get local issuer certificate{TRUST}"),
        (21, "unable to verify the first certificate", f"unable to verify the first certificate{TRUST}"),
        (23, "certificate revoked", "certificate revoked"),
        (62, "Hostname mismatch, ... is not valid for 'a'.", f"Hostname mismatch, ... is not valid for 'a'{NAME}"),
        (63, "email address mismatch", "email address mismatch"),
        (64, "IP address mismatch, ... is not valid for '1'.", f"IP address mismatch, ... is not valid for '1'{NAME}"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_final_and_the_error_says_what_to_do(
    code: int, message: str, wrong: str | None
) -> None:
    failure = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    failure.verify_code, failure.verify_message = code, message
    error = unfit(failure)
    assert error is None if wrong is None else str(error) == f"the server's certificate is not accepted: {wrong}"
    assert error is None or error.__cause__ is failure


def test_an_error_of_tls_without_a_reason_is_reported_with_its_text() -> None:
    failure = ssl.SSLError(1, "out of memory")
    failure.reason = ""  # OpenSSL gives none
    assert str(unfit(failure)) == f"OpenSSL gives up the TLS handshake: {failure}"


def test_the_error_of_a_client_without_a_usable_server_names_each_and_has_the_cause_of_the_last() -> None:
    failures = [of_openssl("TLSV1_ALERT_UNKNOWN_CA"), of_openssl("UNSUPPORTED_PROTOCOL")]
    wrong = [unfit(failure) for failure in failures]
    addresses = [Address("zk0", 2281), Address("zk1", 2281)]
    error = session_log.given_up([*zip(addresses, wrong, strict=True)], is_one_round=False)
    assert str(error) == f"no session with zk0:2281: {wrong[0]}; zk1:2281: {wrong[1]}"
    assert error is not None
    assert error.__cause__ is failures[1]
