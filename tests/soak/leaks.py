"""Leaks on purpose: with each of them a soak must come to a bad verdict."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import zkwire

_kept: Final[list[Any]] = []


async def memory(zk: zkwire.Client) -> None:
    """Keep a thousand small objects."""
    _kept.append([bytearray(100) for _ in range(1000)])


async def large(zk: zkwire.Client) -> None:
    """Keep one large object."""
    _kept.append(bytes(100_000))


async def tasks(zk: zkwire.Client) -> None:
    """Leave a task that waits for ever."""
    _kept.append(asyncio.create_task(asyncio.Event().wait()))


async def descriptors(zk: zkwire.Client) -> None:
    """Leave a file open."""
    _kept.append(os.dup(0))


async def watches(zk: zkwire.Client) -> None:
    """Keep a watch on a node of its own, which never fires."""
    _kept.append(await zk.exists_and_watch(f"/never-{len(_kept)}"))


async def nodes(zk: zkwire.Client) -> None:
    """Leave nodes: more than the server deletes meanwhile, which looks for empty containers once a minute."""
    for _ in range(20):
        await zk.create("/left-", sequential=True)


LEAKS: Final[dict[str, Callable[[zkwire.Client], Awaitable[None]]]] = {
    leak.__name__: leak for leak in (memory, large, tasks, descriptors, watches, nodes)
}


async def stop() -> None:
    """End what was left behind, so that it does not disturb whatever comes next."""
    for kept in _kept:
        if isinstance(kept, asyncio.Task):
            kept.cancel()
            await asyncio.wait([kept])
        elif isinstance(kept, int):
            os.close(kept)
    _kept.clear()
