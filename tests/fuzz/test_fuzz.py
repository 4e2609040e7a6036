"""A little fuzzing in each run of the tests, the inputs that once broke a promise, and the fuzzer itself."""

import random

import pytest

from tests.fuzz.engine import Fuzzer, failure_of
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
