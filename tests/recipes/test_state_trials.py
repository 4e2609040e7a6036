"""Trials: several processes share a counter, or a partitioner while some are killed."""

import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import zkwire
from tests.support.everywhere import below
from tests.support.processes import Worker, start
from tests.support.recipes import until, until_watches
from tests.support.workers import members
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


async def test_every_partition_has_one_holder_while_members_are_killed_and_join(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """Pitfall 25."""
    partitions = 6
    witness = str(tmp_path / "partition")
    async with zkwire.connect(zookeeper.hosts) as zk, AsyncExitStack() as stack:

        async def member(lasts: float | None = None) -> Worker:
            return await stack.enter_async_context(
                start(
                    members.share,
                    hosts=zookeeper.hosts,
                    path=path,
                    partitions=partitions,
                    witness=witness,
                    timeout=1.0,
                    lasts=lasts,
                )
            )

        every: list[Worker] = []
        workers = [await member() for _ in range(3)]
        every += workers
        await all_held(workers, partitions)
        workers.pop(0).signal(signal.SIGKILL)
        workers.append(await member())
        every.append(workers[-1])
        await all_held(workers, partitions)
        ending = await member(0.5)  # this one leaves by itself
        every.append(ending)
        await ending.end()
        await all_held(workers, partitions)
        assert not [entry for worker in every for entry in worker.all("overlap")]
        # A process that sleeps past its session cannot stop its work, and finds all its locks lost when it wakes up.
        asleep = workers.pop(0)
        asleep.signal(signal.SIGSTOP)
        await all_held(workers, partitions)
        asleep.signal(signal.SIGCONT)
        await all_held([asleep, *workers], partitions)
        for worker in (asleep, *workers):
            worker.signal(signal.SIGKILL)

        async def only_containers() -> bool:
            nodes = [node.removeprefix(f"{path}/") for node in await below(zk, path)]
            return not [node for node in nodes if node.startswith("members/") or node.count("/") > 1]

        await until(only_containers)
        await until_watches(zookeeper, 0)


async def all_held(workers: list[Worker], partitions: int) -> None:
    """Wait until these workers hold all partitions, in equal shares."""
    share = partitions // len(workers)

    def reached() -> bool:
        held = [worker.all("holds")[-1]["partitions"] if worker.all("holds") else [] for worker in workers]
        everything = sorted(partition for each in held for partition in each)
        return all(len(each) == share for each in held) and everything == list(range(partitions))

    await until(reached, limit=20)
