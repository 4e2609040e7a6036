"""The in-memory server and a real one get the same random requests and must answer alike."""

import random

import pytest

from tests.differential.trial import Trial, real_side
from zkwire.testing import ZooKeeperMissingError

OPERATIONS = 3_000
SCRIPTS = 100


@pytest.mark.since("3.9", "what the in-memory server answers", raises=ZooKeeperMissingError)
def test_thousands_of_random_operations_are_answered_alike() -> None:
    with real_side() as real:
        trial = Trial(real)
        while trial.operations < OPERATIONS:
            trial.search(SCRIPTS, random.randrange(1 << 32))
