"""Leaks on purpose: with each of them a soak must come to a bad verdict."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import zkwire

_kept: Final[list[Any]] = []


async def leak(zk: zkwire.Client, name: str) -> None:
    """Leave something of the kind `name`."""
    _kept.append(await LEAKS[name](zk))


async def _small(zk: zkwire.Client) -> object:
    return [bytearray(100) for _ in range(1000)]


async def _task(zk: zkwire.Client) -> object:
    return asyncio.create_task(asyncio.Event().wait())


async def _descriptor(zk: zkwire.Client) -> object:
    return os.dup(0)


async def _watch(zk: zkwire.Client) -> object:
    """Keep a watch on a node of its own, which never fires."""
    return await zk.exists_and_watch(f"/never-{len(_kept)}")


async def _nodes(zk: zkwire.Client) -> object:
    """Leave more nodes than the server deletes meanwhile, which looks for empty containers once a minute."""
    return [await zk.create("/left-", sequential=True) for _ in range(20)]


LEAKS: Final[dict[str, Callable[[zkwire.Client], Awaitable[object]]]] = {
    "blocks": _small,
    "tasks": _task,
    "descriptors": _descriptor,
    "watches": _watch,
    "nodes": _nodes,
}


async def stop() -> None:
    """End what was left, so that it does not disturb whatever comes next."""
    for kept in _kept:
        if isinstance(kept, asyncio.Task):
            kept.cancel()
            await asyncio.wait([kept])
        elif isinstance(kept, int):
            os.close(kept)
    _kept.clear()
