"""An event loop that was blocked: its connection is kept if it lives, no write is lost with it, a warning says why."""

import asyncio

from tests.support.client import states_until
from tests.support.virtual_time import a_client, block, in_virtual_time
from zkwire import SessionState


@in_virtual_time
async def test_a_write_in_the_turn_in_which_a_dead_link_is_noticed_goes_to_the_next_one_pitfall_75() -> None:
    async with a_client(timeout=4.0) as (server, zk):
        server.is_silent = True
        asking = asyncio.create_task(zk.ping())
        await asyncio.sleep(1.5)  # it is unanswered
        block(1.2)
        creating = asyncio.create_task(zk.create("/a"))
        removing = zk.discard("/none")
        await states_until(zk.states(), SessionState.SUSPENDED)
        assert not creating.done()
        server.go_on()
        assert await creating == "/a"
        await removing
        await asking
        names = server.names()
        assert names.count("create") == names.count("delete") == 1
