"""The verdict of a soak sees what grows.  A short soak on a real server has a good one, and with a leak a bad one."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from tests.soak.measure import verdict
from tests.soak.soak import soak
from zkwire.testing import RealServer
from zkwire.testing.real.server import QUICK_START

COUNTS = {"tasks": 4, "descriptors": 20, "watches": 0, "nodes": 20, "ephemerals": 0, "sessions": 4}
FLAT = {"MB": 30.0, "blocks": 100_000, **COUNTS}


@pytest.mark.parametrize(("name", "a_round"), [*((name, 0.01) for name in COUNTS), ("blocks", 2), ("blocks", 10)])
def test_what_grows_is_seen(name: str, a_round: float) -> None:
    grown = [{**FLAT, "rounds": n, "seconds": n, name: FLAT[name] + a_round * n // 1} for n in range(0, 1000, 50)]
    assert [problem.partition(":")[0] for problem in verdict(grown)] == [name]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    # An empty container that the server deletes between two samples would make the first one smaller than the last.
    server = RealServer(fsync=False, jvm=["-Dznode.container.checkIntervalMs=1000000000", *QUICK_START])
    asyncio.run(server.start())
    yield server
    asyncio.run(server.close())


@pytest.fixture
def _unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """Keep no records: pytest would hold the errors in them, with their frames and the watches in these."""
    caplog.set_level(logging.CRITICAL, logger="zkwire")


@pytest.mark.usefixtures("_unlogged")
@pytest.mark.limit(200)
async def test_nothing_grows_in_a_short_soak(server: RealServer) -> None:
    samples = [each async for each in soak(server, "test", rounds=10)]
    # Caches fill during the first 60 rounds: of memory so few rounds say nothing.
    found = {problem.partition(":")[0]: problem for problem in verdict(samples)}
    assert found.keys() - {"blocks"} == set(), found
