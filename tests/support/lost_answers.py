"""Lose the answer to a write, with or without carrying it out."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.support.everywhere import Scene
from tests.support.recipes import until
from zkwire import SessionState

T = TypeVar("T")


@asynccontextmanager
async def answer_lost(
    stage: Scene, writing: Coroutine[Any, Any, T], *, carried_out: bool
) -> AsyncIterator[asyncio.Task[T]]:
    """Run `writing` by the client `zk`, cut its connection at the next transaction, and enter without a connection.

    The client can reconnect when the block is left.
    Arguments: `carried_out`, whether the server carries the transaction out.
    """
    drop = stage.server.drop_after if carried_out else stage.server.drop_before
    with drop("multi", session=stage.zk.session_id), stage.server.refuse_connections():
        task = asyncio.create_task(writing)
        await until(lambda: stage.zk.state is SessionState.SUSPENDED)
        yield task
