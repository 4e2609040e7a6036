"""The in-memory server and a real one are played the same random scripts, and must answer alike."""

import random

from tests.differential.trial import Trial, real_side

OPERATIONS = 20_000
SCRIPTS = 100


def test_twenty_thousand_random_operations_are_answered_alike() -> None:
    with real_side() as real:
        trial = Trial(real)
        while trial.operations < OPERATIONS:
            trial.search(SCRIPTS, random.randrange(1 << 32))
