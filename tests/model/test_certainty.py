"""The client is never certain of a session that the leader may have expired, in any order of what happens."""

import pytest

from tests.model.ensemble import Ensemble, Times

pytestmark = pytest.mark.slow("visits hundreds of thousands of states")

MOST_STATES = 400_000


@pytest.mark.parametrize(
    "times",
    [
        Times(horizon=5, requests=3),
        Times(horizon=4, requests=3, in_buckets=True),
        Times(horizon=4, requests=3, elections=1),
        Times(horizon=3, requests=2, elections=1, moves=1),
        Times(horizon=3, requests=3, slow_client=True),
    ],
    ids=["exact", "buckets", "election", "move", "slow client"],
)
def test_the_leader_keeps_the_session_while_the_client_is_certain(times: Times) -> None:
    """Pitfall 70."""
    assert Ensemble(times).explore(MOST_STATES) > 1_000
