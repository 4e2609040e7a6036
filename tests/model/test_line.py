"""Every order in which things may happen around a ticket of the waiting line, and random ones of longer lines."""

import random

import pytest

from tests.model.line import LOCK, READ, WRITE, Line, Setup
from tests.model.setups import SETUPS

pytestmark = pytest.mark.slow("visits hundreds of thousands of states")

MOST_STATES = 200_000


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_order_of_events(setup: Setup) -> None:
    """Pitfalls 1, 2, 4, 5, 16, 19, 21 and 77: no ticket owns too early, waits in vain, or is woken too often."""
    assert Line(setup).explore(MOST_STATES) > 1_000


@pytest.mark.parametrize(
    "setup",
    [
        Setup((LOCK,) * 5, (0, 1, 2, 3, 4), reconnects=3, evictions=1, touches=2, refusals=2, aborts=True),
        Setup((LOCK,) * 6, tuple(range(6)), slots=2, sizes=(1, 3, 2), reconnects=3, evictions=1, aborts=True),
        Setup((WRITE, READ, READ, WRITE, READ, WRITE), tuple(range(6)), reconnects=3, downgrades=2, aborts=True),
        Setup((READ, WRITE, WRITE, READ, READ), tuple(range(5)), evictions=1, touches=2, downgrades=2, reconnects=2),
        Setup((LOCK,) * 5, tuple(range(5)), first=2**32 - 3, reconnects=2),
        Setup((LOCK,) * 6, (1, 2, 4, 5), reconnects=2, evictions=1, touches=1, refusals=1, aborts=True, together=True),
        # Without evictions: a ticket that an operator deletes between its list and the read of a new number owns until
        # it hears of that.
        Setup((LOCK,) * 6, (2, 3, 5), slots=2, sizes=(1, 3, 2), reconnects=2, aborts=True, together=True),
        Setup((WRITE, WRITE, READ, WRITE, READ, READ), (2, 3, 4, 5), reconnects=2, downgrades=2, together=True),
    ],
    ids=[
        "lock",
        "semaphore",
        "writers and readers",
        "readers and writers",
        "overflow",
        "lock, one client",
        "semaphore, one client",
        "writers and readers, one client",
    ],
)
def test_random_orders_of_a_longer_line(setup: Setup) -> None:
    line, rng = Line(setup), random.Random(5)
    assert sum(line.wander(rng, 150) for _ in range(50)) > 50 * 25
