"""Some hundreds of schedules of each run, and those that have failed in the past; `make simulate` plays many more."""

import gc
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from recipes.line.position import Position
from tests.simulation.__main__ import failures
from tests.simulation.play import make, play, shortened
from tests.simulation.scenarios.all import SCENARIOS
from tests.simulation.schedule import Schedule, from_json
from tests.simulation.stage import simulated

pytestmark = pytest.mark.slow("plays hundreds of schedules")

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
SCHEDULES = 8  # of each scenario


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield
    gc.collect()


@pytest.mark.parametrize("name", SCENARIOS)
def test_random_schedules_hold_and_are_played_the_same_each_time(name: str) -> None:
    outcomes = [play(make(name, number), collect=True) for number in range(SCHEDULES)]
    assert [(number, each.failure) for number, each in enumerate(outcomes) if each.failure] == []
    assert play(make(name, 1)) == outcomes[1]
    assert outcomes[1].digest != outcomes[2].digest


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_has_failed_once(path: Path) -> None:
    schedule = from_json(path.read_text(encoding="utf-8"))
    assert play(schedule, collect=True).failure is None


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_schedule_survives_being_written_and_read(name: str) -> None:
    for number in range(20):
        assert from_json(make(name, number).to_json()) == make(name, number)


def first_failing(name: str, numbers: range) -> Schedule:
    return make(*next(iter(failures(name, numbers)))[:2])


def test_a_wrong_line_is_found_and_the_schedule_is_shortened() -> None:
    with patch.object(Position, "owns", property(lambda self: not self.is_gone and len(self.before) <= 1)):
        schedule = first_failing("lock", range(100))
        short = shortened(schedule)
        assert "owns while" in str(play(short).failure)
        assert short.size < schedule.size or short.size <= 2
        assert short.faults == ()  # two players are enough
        assert play(short) == play(from_json(short.to_json()))
    assert play(short).failure is None
