"""The faults of a run come from its seed, and end before the run does."""

import pytest

from tests.chaos.schedule import CLIENT_FAULTS, SERVER_FAULTS, schedule


def test_a_seed_gives_the_same_faults_again_and_another_one_gives_others() -> None:
    assert schedule("a", 60, clients=8, servers=4) == schedule("a", 60, clients=8, servers=4)
    assert schedule("a", 60, clients=8, servers=4) != schedule("b", 60, clients=8, servers=4)


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_faults_are_in_order_and_all_end_in_time(seed: str) -> None:
    faults = schedule(seed, 600, clients=8, servers=4)
    assert sorted(fault.at for fault in faults) == [fault.at for fault in faults]
    assert max(fault.at + fault.seconds for fault in faults) <= 600
    assert {fault.kind for fault in faults} == SERVER_FAULTS.keys() | CLIENT_FAULTS.keys()
    assert {fault.target for fault in faults if fault.kind in CLIENT_FAULTS} == set(range(1, 9))


def test_servers_may_be_spared() -> None:
    faults = schedule("a", 600, clients=2, servers=1, spares_servers=True)
    assert {fault.kind for fault in faults} == CLIENT_FAULTS.keys()
    assert all(fault.server is None for fault in faults)
