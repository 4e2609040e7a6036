"""A little fuzzing in each run of the tests, the inputs that once broke a promise, and the fuzzer itself."""

import random

import pytest

from tests.fuzz.engine import Fuzzer, Target, failure_of
from tests.fuzz.kept import KEPT
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow("tries a thousand inputs for each target")

INPUTS = 1_000


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_promise(name: str) -> None:
    """The same inputs in each run; `make fuzz` tries others."""
    fuzzer = Fuzzer(TARGETS[name](), random.Random(name))
    failure = fuzzer.run(inputs=INPUTS)
    assert failure is None, f"add to tests/fuzz/kept.py and mend:\n{failure}"
    assert fuzzer.count >= INPUTS


@pytest.mark.parametrize(("name", "data"), KEPT, ids=[f"{name} {data[:20]!r}" for name, data in KEPT])
def test_an_input_that_once_broke_a_promise(name: str, data: bytes) -> None:
    assert failure_of(TARGETS[name](), data) is None


def picky(data: bytes) -> None:
    """Fail at an input with two "x" after an "a", to which only lines that were reached lead."""
    if b"ax" in data and data.count(b"x") > 1:
        raise KeyError(data)


def test_a_failing_input_is_found_and_printed() -> None:
    failure = Fuzzer(Target("picky", picky, [b"0000"], [b"ax", b"x"]), random.Random(1)).run(inputs=100_000)
    assert failure is not None
    assert b"ax" in failure.data
    assert str(failure).startswith(f'    ("picky", {failure.data!r}),  # KeyError')


def stubborn(data: bytes) -> None:
    while True:
        pass


def test_a_target_that_makes_no_progress_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.engine._PROGRESS", 0.05)
    assert str(failure_of(Target("stubborn", stubborn, [b""]), b"")).startswith("Stuck")
