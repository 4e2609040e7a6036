"""Four-letter words that a server refuses, cannot answer, or answers over TLS."""

import ssl
from pathlib import Path

import pytest

import zkwire
from tests.support.client import eventually
from tests.support.proxy import Proxy
from zkwire.testing import Certificates, EnsembleServer, RealEnsemble, RealServer, authority


async def test_the_error_of_a_word_outside_the_whitelist_names_the_setting(secure: EnsembleServer) -> None:
    with pytest.raises(zkwire.UnimplementedError, match=r"wchs.*4lw\.commands\.whitelist"):
        await zkwire.four_letter_word(secure.hosts, "wchs")


async def test_a_server_without_a_quorum_refuses_words_but_answers_ruok(ensemble: RealEnsemble) -> None:
    leader = await ensemble.leader()
    assert (await zkwire.four_letter_word(leader.hosts, "mntr"))["zk_server_state"] == "leader"
    assert "server.1" in await zkwire.four_letter_word(leader.hosts, "conf")
    for server in ensemble.servers:
        if server is not leader:
            server.kill()

    async def is_alone() -> bool:
        return await leader.mode() is None

    await eventually(is_alone)
    for word in ("mntr", "isro"):
        with pytest.raises(zkwire.ZooKeeperError, match="no quorum"):
            await zkwire.four_letter_word(leader.hosts, word)
    assert await zkwire.four_letter_word(leader.hosts, "ruok") == "imok"


async def test_words_are_answered_over_tls(tls: Certificates, secure: EnsembleServer, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=tls.ca.certificate)
    context.load_cert_chain(tls.client.chain)
    assert await zkwire.four_letter_word(secure.secure_hosts, "ruok", ssl=context) == "imok"
    metrics = await zkwire.four_letter_word(secure.secure_hosts, "mntr", ssl=context)
    assert metrics["zk_server_state"] == "leader"
    with pytest.raises(TimeoutError, match="waits for TLS"):
        await zkwire.four_letter_word(secure.secure_hosts, "ruok", within=0.2)
    stranger = ssl.create_default_context(cafile=authority(tmp_path, "stranger").certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        await zkwire.four_letter_word(secure.secure_hosts, "ruok", ssl=stranger)


async def test_a_silent_server_is_given_up(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        hosts = proxy.hosts
        proxy.pause()
        with pytest.raises(TimeoutError, match=rf"ruok: no answer from {hosts} within 0\.2 s"):
            await zkwire.four_letter_word(hosts, "ruok", within=0.2)
    with pytest.raises(ConnectionRefusedError):
        await zkwire.four_letter_word(hosts, "ruok")
