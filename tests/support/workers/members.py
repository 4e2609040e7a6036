"""Processes for the trials, which share partitions."""

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import zkwire
from recipes import Partitioner
from tests.support.processes import report


@asynccontextmanager
async def _witnessed(witness: str, partition: int) -> AsyncIterator[None]:
    """Hold a file lock while working on a partition; report an overlap if another process holds it.

    The kernel releases the file lock of a process that is killed.
    """
    with open(f"{witness}-{partition}", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("overlap", partition=partition)
        yield


async def share(hosts: str, path: str, partitions: int, witness: str, timeout: float, lasts: float | None) -> None:
    """Work on the partitions that are ours for `lasts` seconds; None: until killed."""
    async with (
        AsyncExitStack() as held,
        zkwire.connect(hosts, timeout) as zk,
        Partitioner(zk, path, range(partitions), settle=0.05) as mine,
    ):
        at_work: dict[int, AsyncExitStack] = {}
        try:
            async with asyncio.timeout(lasts):
                async for ours in mine:
                    for partition in at_work.keys() - ours:
                        await at_work.pop(partition).aclose()
                    for partition in ours - at_work.keys():
                        mine.lease(partition).check()
                        at_work[partition] = stack = await held.enter_async_context(AsyncExitStack())
                        await stack.enter_async_context(_witnessed(witness, partition))
                    report("holds", partitions=sorted(ours))
        except TimeoutError:
            report("ends")
        finally:
            for stack in at_work.values():
                await stack.aclose()
