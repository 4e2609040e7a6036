"""Streams of the value of a node: how they are left, and what they leave."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest

from recipes import SharedValue
from recipes.common.streams import DecodedStream
from tests.support.everywhere import Scene, no_watch_stays, scene


async def _first(stage: Scene, stream: DecodedStream[tuple[bytes, int]]) -> None:
    value, _ = await anext(stream)
    assert value == b"1"


@pytest.mark.parametrize("how", ["async with", "aclosing", "close"])
async def test_a_stream_that_is_left_has_ended_and_keeps_no_watch(how: str) -> None:
    async with scene("/v") as stage:
        await stage.other.create("/v", b"1")
        stream = SharedValue(stage.zk, "/v").watch()
        async with AsyncExitStack() as stack:
            if how == "close":
                stack.callback(stream.close)
            else:
                entered = await stack.enter_async_context(stream if how == "async with" else aclosing(stream))
                assert entered is stream
            await _first(stage, stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await no_watch_stays(stage.server.hosts)


async def test_a_stream_that_is_left_in_the_middle_of_a_wait_ends_it() -> None:
    async with scene("/v") as stage:
        await stage.other.create("/v", b"1")
        stream = SharedValue(stage.zk, "/v").watch()
        await _first(stage, stream)
        waiting = asyncio.ensure_future(anext(stream))
        await stage.zk.ping()
        stream.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
