"""While a lease is certain no other client owns: on a real ensemble whose links are stalled.

One topology; `python -m tests.partition` plays all of them.
"""

import pytest

from tests.support.partition import Trial
from tests.support.split import SplitEnsemble


@pytest.mark.limit(120)
async def test_no_two_leases_are_certain_while_a_follower_is_cut_off_from_its_leader(path: str) -> None:
    """Pitfall 70: the follower goes on answering pings for ten seconds; the leader expires the session after four."""
    async with SplitEnsemble() as ensemble:
        outcome = await Trial(timeout=4.0, home="follower", fault="both", knows_all=False, patience=15.0).run(
            ensemble, path
        )
    assert outcome.overlap == 0
    assert outcome.body_ended is not None
    assert outcome.next_owned is not None
    assert outcome.body_ended < outcome.next_owned
    assert not outcome.was_running
