"""Every order in which things may happen around a ticket of the waiting line."""

import pytest

from tests.model.line import Line, Setup
from tests.model.setups import SETUPS

pytestmark = pytest.mark.slow("visits hundreds of thousands of states")

MOST_STATES = 200_000


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_order_of_events(setup: Setup) -> None:
    """Pitfalls 1, 2, 4, 5, 16, 19, 21 and 77: no ticket owns too early, waits in vain, or is woken too often."""
    assert Line(setup).explore(MOST_STATES) > 1_000
