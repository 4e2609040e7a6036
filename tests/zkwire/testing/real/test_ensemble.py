"""The starter of ensembles and of servers with TLS and users: what is asked for is there, and nothing stays."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from zkwire.testing import OpenSSLError, RealEnsemble, authority, issue
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


# Certificates


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
