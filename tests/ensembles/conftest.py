"""What tests share that leave it whole: an ensemble, whose servers are started again if need be, and a port for TLS."""

import asyncio
from collections.abc import Iterator

import pytest

from zkwire.testing import Certificates, EnsembleServer, RealEnsemble, make_certificates


@pytest.fixture(scope="session")
def _one_ensemble() -> Iterator[RealEnsemble]:
    ensemble = RealEnsemble(size=3, fsync=False)
    asyncio.run(ensemble.start())
    yield ensemble
    asyncio.run(ensemble.close())


@pytest.fixture
def ensemble(_one_ensemble: RealEnsemble) -> Iterator[RealEnsemble]:
    """An ensemble of three running servers; a test may stop, kill and pause them."""
    yield _one_ensemble
    asyncio.run(_mend(_one_ensemble))


async def _mend(ensemble: RealEnsemble) -> None:
    for server in ensemble.servers:
        if server.is_running:
            server.resume()
    async with asyncio.TaskGroup() as group:
        for server in ensemble.servers:
            if not server.is_running:
                group.create_task(server.start())
    await ensemble.settled()


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def secure(tls: Certificates) -> Iterator[EnsembleServer]:
    """A running server with a port for TLS and one without, the only one of its ensemble; it knows few words.

    Nobody but the super user may reconfigure it.
    """
    properties = {"4lw.commands.whitelist": "conf,isro,mntr,ruok,srvr", "ssl.enabledProtocols": "TLSv1.2,TLSv1.3"}
    ensemble = RealEnsemble(size=1, fsync=False, tls=tls, reconfig=True, properties=properties)
    asyncio.run(ensemble.start())
    yield ensemble.servers[0]
    asyncio.run(ensemble.close())


@pytest.fixture(scope="session")
def _reconfigured() -> Iterator[RealEnsemble]:
    ensemble = RealEnsemble(reconfig=True, read_only=True, fsync=False, properties={"skipACL": "yes"})
    asyncio.run(ensemble.start())
    yield ensemble
    asyncio.run(ensemble.close())


@pytest.fixture
def reconfigurable(_reconfigured: RealEnsemble) -> Iterator[RealEnsemble]:
    """An ensemble of three that anybody may reconfigure, and whose servers serve reads without a quorum.

    A test leaves all three running, and members.
    """
    yield _reconfigured
    asyncio.run(_reconfigured.settled())
