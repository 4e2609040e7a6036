"""The verdict of a soak sees what grows.  A short soak on a real server has a good one, and with a leak a bad one."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

import zkwire
from tests.soak import leaks
from tests.soak.measure import Sample, verdict
from tests.soak.soak import soak
from zkwire.testing import RealServer

FLAT = [Sample(60.0 * number, 50 * number, 30.0, 100_000, 5_000, 4, 20, 0, 20, 0, 4) for number in range(20)]


def test_what_stays_as_it_is_is_well() -> None:
    assert verdict(FLAT) == []


@pytest.mark.parametrize("name", ["tasks", "descriptors", "watches", "nodes", "ephemerals", "sessions"])
def test_a_count_that_grows_is_seen(name: str) -> None:
    grown = [replace(each, **{name: getattr(each, name) + number // 4}) for number, each in enumerate(FLAT)]
    assert len(verdict(grown)) == 1
    assert verdict(grown)[0].startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["tasks", "watches"])
def test_a_single_sample_that_met_something_is_not_taken_for_growth(name: str) -> None:
    assert verdict([*FLAT[:-2], replace(FLAT[-2], **{name: 30}), FLAT[-1]]) == []


def test_what_fills_at_the_beginning_is_not_growth() -> None:
    assert verdict([replace(FLAT[0], nodes=3, blocks=50_000, descriptors=2), *FLAT[1:]]) == []


def test_memory_may_move_a_little() -> None:
    moved = [
        replace(each, blocks=each.blocks + number % 3 * 200, large=each.large + number % 3 * 90)
        for number, each in enumerate(FLAT)
    ]
    assert verdict(moved) == []


@pytest.mark.parametrize("a_round", [2, 10])
def test_a_few_blocks_in_each_round_are_a_leak(a_round: int) -> None:
    leaking = [replace(each, blocks=each.blocks + a_round * each.rounds) for each in FLAT]
    assert [problem.partition(":")[0] for problem in verdict(leaking)] == ["memory"]


def test_large_objects_that_python_does_not_count_are_a_leak() -> None:
    leaking = [replace(each, large=each.large + each.rounds) for each in FLAT]
    assert [problem.partition(":")[0] for problem in verdict(leaking)] == ["large"]


def test_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few"):
        verdict(FLAT[:7])


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    server = RealServer(fsync=False)
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
    samples = [each async for each in soak(server, "test", rounds=16)]
    # Caches fill during the first 60 rounds: of memory so few rounds say nothing.
    found = {problem.partition(":")[0]: problem for problem in verdict(samples)}
    assert found.keys() - {"memory", "large"} == set(), found


@pytest.mark.usefixtures("_unlogged")
@pytest.mark.limit(200)
async def test_a_leak_is_found(server: RealServer) -> None:
    """All kinds of leaks at once."""

    async def leak(zk: zkwire.Client) -> None:
        for each in leaks.LEAKS.values():
            await each(zk)

    try:
        samples = [each async for each in soak(server, "test", rounds=10, leak=leak, quiet=0.0)]
    finally:
        await leaks.stop()
    assert {problem.partition(":")[0] for problem in verdict(samples)} >= leaks.LEAKS.keys()
