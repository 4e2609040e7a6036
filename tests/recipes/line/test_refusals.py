"""Refusals that say nothing about the lock: an overloaded server makes a client wait, and takes no place away."""

import asyncio
import re

import pytest

from recipes import Lock
from recipes.line.known import line_of
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import no_task_stays, until_line
from zkwire import ThrottledError

pytestmark = pytest.mark.limit(20)

P = "/recipe"


async def test_a_waiter_whose_own_watch_was_refused_does_not_own_without_its_node() -> None:
    """Pitfall 79: the server has set the watch on the blocker only, and the waiter's node is deleted unheard."""
    async with scene(P) as stage, no_task_stays():
        held = await Lock(stage.other, P).acquire()
        own = re.compile(rf"{P}/.*0000000001")
        again = stage.server.hold_replies("getData", path=own, nth=2)
        with stage.server.answering("getData", ThrottledError, path=own, times=1) as refused:
            waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
            names = await until_line(stage.other, P, 2)
            await refused.until_hit()
            await stage.zk.ping()
            await stage.other.delete(f"{P}/{names[1]}")
            await held.release()
            await again.until_hit()
            assert not line_of(stage.zk, P).children.tickets  # it shares nothing before its node is watched
            again.end()
            lease = await asyncio.wait_for(waiter, 5)
        assert lease.path != f"{P}/{names[1]}"
        lease.check()
        await lease.release()
        await nothing_stays(stage)
