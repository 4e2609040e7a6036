"""The starter of ensembles and of servers with TLS and users: what is asked for is there, and nothing stays."""

import asyncio
import ssl
import tempfile
from pathlib import Path

import pytest

from tests.conformance import matrix
from zkwire.testing import (
    OpenSSLError,
    RealEnsemble,
    RealServer,
    ServerFailedError,
    authority,
    issue,
)
from zkwire.testing.real import server as real


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which servers make theirs, so that a test can see what is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_one_leads_and_the_others_follow(scratch: Path) -> None:
    async with RealEnsemble(size=3, fsync=False) as ensemble:
        modes = [await server.mode() for server in ensemble.servers]
        assert sorted(map(str, modes)) == ["follower", "follower", "leader"]
        assert ensemble.hosts == ",".join(server.hosts for server in ensemble.servers)
        assert await ensemble.leader() not in await ensemble.followers()
        leader = await ensemble.leader()
        leader.pause()
        assert await leader.mode() is None
        leader.resume()
        await leader.stop()
        assert await leader.mode() is None
        await leader.start()
        await ensemble.settled()
    assert list(scratch.iterdir()) == []


def test_an_ensemble_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="size must be from 1"):
        RealEnsemble(size=0)


async def test_an_ensemble_that_cannot_start_raises_the_reason_and_leaves_nothing(scratch: Path) -> None:
    ensemble = RealEnsemble(jvm=["-XX:NoSuchOption"])
    with pytest.raises(ServerFailedError, match=r"ended with 1 before it served.*\n(.*\n)*.*NoSuchOption"):
        await ensemble.start()
    assert list(scratch.iterdir()) == []


async def test_a_cancelled_start_leaves_nothing(scratch: Path) -> None:
    ensemble = RealEnsemble()
    start = asyncio.create_task(ensemble.start())
    while not all(server.is_running for server in ensemble.servers):
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not any(server.is_running for server in ensemble.servers)
    assert list(scratch.iterdir()) == []


async def test_an_ensemble_of_one_leads_itself_and_gives_ports_up_that_are_taken_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        taken = listener.sockets[0].getsockname()[1]
        free = real._free_port
        first = iter([taken])
        monkeypatch.setattr(real, "_free_port", lambda: next(first, None) or free())
        async with RealEnsemble(size=1, fsync=False) as ensemble:
            assert str(taken) not in ensemble.servers[0].spec
            assert await (await ensemble.leader()).four_letter_word("isro") == "rw"


# Certificates


def test_a_certificate_is_good_for_the_names_it_is_given(tmp_path: Path) -> None:
    ca = authority(tmp_path, "ca")
    made = issue(ca, tmp_path / "deeper", "elsewhere", hosts=["DNS:zk1.example", "IP:192.0.2.1"])
    assert made.subject == "CN=elsewhere,O=zkwire"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.chain)
    context.load_cert_chain(made.certificate, made.key)


def test_a_failure_of_openssl_says_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = authority(tmp_path, "ca")
    with pytest.raises(OpenSSLError, match="openssl req exited with 1: "):
        issue(ca, tmp_path, "bad", hosts=["NONSENSE"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OpenSSLError, match="install OpenSSL"):
        authority(tmp_path, "another")


# Users


def test_passwords_with_quotes_reach_the_login_module() -> None:
    assert real._jaas({"bob": 'a"b\\c'}) == (
        'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required "user_bob"="a\\"b\\\\c";\n};\n'
    )


async def test_a_server_without_tls_has_no_secure_hosts(zookeeper: RealServer) -> None:
    with pytest.raises(RuntimeError, match="unless tls= is given"):
        _ = zookeeper.secure_hosts


# One version after the other


def test_the_table_of_versions_counts_what_differs_apart(tmp_path: Path) -> None:
    report = "<testsuites><testsuite><testcase/><testcase><skipped/></testcase>{}</testsuite></testsuites>"
    good, bad = tmp_path / "good.xml", tmp_path / "bad.xml"
    good.write_text(report.format(""))
    bad.write_text(report.format("<testcase><failure/></testcase><testcase><skipped/><error/></testcase>"))
    results = [matrix.result("3.5.10", good, 0, 7.4), matrix.result("3.6.4", bad, 1, 8.0)]
    assert matrix.table(results).splitlines()[2:] == ["| 3.5.10 | 1 | 1 | 0 | 7 |", "| 3.6.4 | 1 | 1 | 2 | 8 |"]
    # It was interrupted, or ended before there was a report.
    assert matrix.result("3.7.2", good, 2, 1.0).failed == 1
    assert matrix.result("3.7.2", tmp_path / "none.xml", 4, 1.0).failed == 1


def test_no_version_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["-x"]) == 2
    assert "VERSIONS=" in capsys.readouterr().err
