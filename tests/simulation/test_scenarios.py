"""Each scenario of something that is held finds a recipe that is wrong, and that of creates a client that is wrong."""

import gc
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from recipes import Lease, WriteLease
from recipes.line import waiting
from recipes.line.position import Position
from tests.simulation.__main__ import failures
from tests.simulation.stage import simulated
from zkwire.session.cleanup import Cleanup, LostCreate

pytestmark = pytest.mark.slow("plays hundreds of schedules")


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield
    gc.collect()


def first_failure(name: str, first: int = 0) -> str:
    return next(iter(failures(name, range(first, first + 300))))[2]


@pytest.mark.parametrize("name", ["read-write-lock", "election", "timed-lock", "multi-lock", "semaphore"])
def test_one_holder_too_many_is_found(name: str) -> None:
    most = 2 if name == "semaphore" else 1
    with patch.object(Position, "owns", property(lambda self: not self.is_gone and len(self.before) <= most)):
        assert " owns " in first_failure(name)


def test_a_write_lease_that_stays_certain_while_it_lets_readers_in_is_found() -> None:
    with patch.object(WriteLease, "certain_for", Lease.certain_for):
        assert "which is certain to write" in first_failure("read-write-lock", 240)  # one in some hundreds shows it


def test_a_time_limit_that_the_waiters_count_too_short_is_found() -> None:
    with patch.object(waiting, "_PATIENCE", 0.5):
        assert " owns while " in first_failure("timed-lock")


def test_a_lost_create_that_is_not_recognised_is_found() -> None:
    with patch.object(LostCreate, "has_created", lambda self, stat: False):
        assert first_failure("protected-create")  # its node stays, or a second one is refused


def test_a_node_of_a_cancelled_create_that_stays_is_found() -> None:
    with patch.object(Cleanup, "remove_created", lambda self, request, reply, newest_zxid: None):
        assert "something stays" in first_failure("protected-create")
