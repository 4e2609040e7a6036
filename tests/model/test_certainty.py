"""The client is never certain of a session that the leader may have expired, in any order of what happens."""

import pytest

from tests.model.ensemble import Ensemble, Times
from tests.model.setups import TIMES

pytestmark = pytest.mark.slow("visits hundreds of thousands of states")

MOST_STATES = 400_000


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_the_leader_keeps_the_session_while_the_client_is_certain(times: Times) -> None:
    """Pitfall 70."""
    assert Ensemble(times).explore(MOST_STATES) > 1_000
