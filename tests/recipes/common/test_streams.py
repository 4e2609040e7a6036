"""Streams of the value of a node: how they are left, and what they leave."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest

from recipes import SharedValue
from tests.support.everywhere import no_watch_stays, scene


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("how", ["async with", "aclosing", "close"])
async def test_a_stream_that_is_left_has_ended_and_keeps_no_watch(how: str, waits: bool) -> None:
    async with scene("/v") as stage:
        await stage.other.create("/v", b"1")
        stream = SharedValue(stage.zk, "/v").watch()
        async with AsyncExitStack() as stack:
            if how == "close":
                stack.callback(stream.close)
            else:
                entered = await stack.enter_async_context(stream if how == "async with" else aclosing(stream))
                assert entered is stream
            assert (await anext(stream))[0] == b"1"
            waiting = asyncio.ensure_future(anext(stream)) if waits else None
            await stage.zk.ping()
        with pytest.raises(StopAsyncIteration):
            await (waiting or anext(stream))
        await no_watch_stays(stage.server.hosts)
