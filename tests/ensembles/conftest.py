"""One ensemble, shared by all tests that leave it whole or that can be undone by starting its servers again."""

import asyncio
from collections.abc import Iterator

import pytest

from zkwire.testing import RealEnsemble


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
