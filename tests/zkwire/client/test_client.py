"""The client's own promises: of cancelled creates, ids, lists of servers, and of what it shows of its session."""

import asyncio
import math
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

import zkwire
from tests.support.everywhere import scene
from tests.support.recipes import until


@pytest.mark.parametrize(
    ("ones", "shown"), [(True, "ffffffff-ffff-4fff-bfff-ffffffffffff"), (False, "00000000-0000-4000-8000-000000000000")]
)
async def test_a_unique_id_is_a_random_uuid_of_version_4(ones: bool, shown: str) -> None:
    async with scene() as stage:
        rng: Any = SimpleNamespace(getrandbits=lambda count: (1 << count) - 1 if ones else 0)
        zk = zkwire.Client(stage.zk._session, "", rng, 0)
        assert zk.unique_id() == shown
        assert uuid.UUID(shown).version == 4
        assert uuid.UUID(shown).variant == uuid.RFC_4122


async def test_a_list_of_servers_with_another_chroot_is_refused_and_changes_nothing() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts + "/app") as app:
        states = app.states()
        with pytest.raises(ValueError, match="the chroot of 'zk1:1/other' is not the one of this client, '/app'"):
            app.set_hosts("zk1:1/other")
        with pytest.raises(ValueError, match="is not the one of this client, ''"):
            stage.zk.set_hosts("zk1:1/app")
        for hosts in (stage.server.hosts + "/app", stage.server.hosts):
            app.set_hosts(hosts)
        await app.ping()
        async with states:
            assert await anext(states) is zkwire.SessionState.CONNECTED
        assert app.state is zkwire.SessionState.CONNECTED


async def test_a_ping_takes_the_time_until_its_answer() -> None:
    async with scene() as stage:
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with stage.server.hold_replies("ping", session=stage.zk.session_id) as held:
            pinging = asyncio.ensure_future(stage.zk.ping())
            await held.until_hit()
            assert not pinging.done()
            await asyncio.sleep(0.02)  # the clocks of some event loops count milliseconds
        seconds = await pinging
        assert 0.01 < seconds <= loop.time() - start


async def test_a_session_is_certain_for_no_time_once_it_is_over_or_is_another_one() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, renew=False) as zk:
        session_id = zk.session_id
        assert 0 < zk.certain_for(session_id) <= zk.session_timeout
        assert zk.certain_for(session_id + 1) == 0
        assert zk.certain_for(0) == 0
        stage.server.expire(session_id)
        await until(lambda: zk.state is zkwire.SessionState.EXPIRED)
        assert (zk.certain_for(session_id), zk.certain_until) == (0, -math.inf)
        for bad in (-1, math.nan):
            with pytest.raises(ValueError, match="close: within must be 0 seconds or more, not"):
                await zk.close(within=bad)
        await zk.close(within=0)
        assert zk.state is zkwire.SessionState.CLOSED
