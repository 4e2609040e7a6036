"""Every recipe with a fault at each of its requests, and cancelled at each turn of the event loop.

Pitfalls 1, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 30, 34 and 39: afterwards no node, no watch
and no task stays, the recipe can be used
as before, and the result is as without the fault, or an error is raised.
"""

from typing import Any

import pytest

from tests.recipes.plays import locks, others, queues
from tests.recipes.plays.entry import CANCEL, CUT, EXPIRE, FORBID, REFUSE, Entry, parameters
from tests.support.everywhere import (
    cancel_at_every_moment,
    cut_at_every_step,
    expire_at_every_step,
    refuse_at_every_step,
)
from zkwire import NoAuthError, ThrottledError

ENTRIES = [*locks.ENTRIES, *queues.ENTRIES, *others.ENTRIES]


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do at once what recipes put off, because most plays wait for it."""
    monkeypatch.setattr("recipes.common.receipts._KEPT_FOR", 0.005)
    monkeypatch.setattr("zkwire.session.hosts._FIRST_PAUSE", 0.0)
    monkeypatch.setattr("recipes.line.lease._UNWATCHED", 0.001)


def scene_of(entry: Entry) -> dict[str, Any]:
    """What each play is given of an entry."""
    return {"prepare": entry.prepare, "afterwards": entry.afterwards or entry.act, "stays": entry.stays}


@pytest.mark.parametrize("entry", parameters(ENTRIES, CUT))
async def test_its_connection_is_cut_at_every_request(entry: Entry) -> None:
    await cut_at_every_step(entry.act, prepare=entry.prepare, stays=entry.stays, at_least=entry.steps)


@pytest.mark.parametrize("entry", parameters(ENTRIES, CANCEL))
async def test_it_is_cancelled_at_every_turn(entry: Entry) -> None:
    await cancel_at_every_moment(entry.act, **scene_of(entry), most=entry.most)


@pytest.mark.parametrize("entry", parameters(ENTRIES, EXPIRE))
async def test_its_session_expires_at_every_request(entry: Entry) -> None:
    await expire_at_every_step(entry.act, **scene_of(entry), at_least=entry.steps, may_raise=entry.lost)


@pytest.mark.parametrize("entry", parameters(ENTRIES, REFUSE))
async def test_each_request_is_refused_for_the_moment(entry: Entry) -> None:
    await refuse_at_every_step(entry.act, ThrottledError, **scene_of(entry), at_least=entry.steps)


@pytest.mark.parametrize("entry", parameters(ENTRIES, FORBID))
async def test_each_request_is_forbidden(entry: Entry) -> None:
    await refuse_at_every_step(entry.act, NoAuthError, **scene_of(entry), may_raise=(NoAuthError, *entry.lost))
