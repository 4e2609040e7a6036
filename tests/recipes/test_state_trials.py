"""Trials: several processes share a counter, a double barrier, a group or a partitioner, and some are killed."""

import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import zkwire
from recipes import Counter, DoubleBarrier
from tests.support.everywhere import below
from tests.support.processes import Worker, start
from tests.support.recipes import until, until_watches
from tests.support.workers import members
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


async def until_nothing_below(zk: zkwire.Client, path: str, *, but: int = 0) -> None:
    async def reached() -> bool:
        return len(await below(zk, path)) == but

    await until(reached)


async def test_four_processes_count_without_a_gap_or_a_duplicate(zookeeper: RealServer, path: str) -> None:
    tasks, adds = 2, 25
    async with zkwire.connect(zookeeper.hosts) as zk, AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                start(members.count, hosts=zookeeper.hosts, path=path, tasks=tasks, adds=adds)
            )
            for _ in range(4)
        ]
        for worker in workers:
            await worker.end()
        rows = [row for worker in workers for row in worker.all("numbers")[0]["numbers"]]
        assert all(row == sorted(row) for row in rows)
        assert sorted(number for row in rows for number in row) == list(range(1, 4 * tasks * adds + 1))
        await zk.sync(path)
        assert await Counter(zk, path).get() == 4 * tasks * adds
        await until_nothing_below(zk, path)
        await until_watches(zookeeper, 0)


async def test_processes_meet_although_one_is_killed_inside_and_one_while_it_waits(
    zookeeper: RealServer, path: str
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, AsyncExitStack() as stack:
        orders = {"hosts": zookeeper.hosts, "path": path, "members": 4}
        lasting = [await stack.enter_async_context(start(members.meet, **orders, rounds=3)) for _ in range(2)]
        doomed = await stack.enter_async_context(start(members.meet, **orders, rounds=1, timeout=1.0))
        ours = DoubleBarrier(zk, path, 4)
        await ours.enter(within=30)
        await doomed.until("entered")
        for worker in lasting:
            await worker.until("entered")
            assert not worker.all("left")  # this process has not left
        doomed.signal(signal.SIGSTOP)
        await ours.leave(within=30)  # at the latest when the session of the stopped process has expired
        for worker in lasting:
            await worker.until("entering", 2)
        doomed.signal(signal.SIGKILL)
        # Now a process is killed while it waits, and two others come in its place.
        waits = await stack.enter_async_context(start(members.meet, **orders, rounds=1, timeout=1.0))
        await waits.until("entering")

        async def three() -> bool:
            return len([node for node in await below(zk, path) if not node.endswith("ready")]) >= 3

        await until(three)
        waits.signal(signal.SIGKILL)
        await until_nothing_below(zk, path, but=2)
        for _ in range(2):
            other = await stack.enter_async_context(start(members.meet, **orders, rounds=2))
            lasting.append(other)
        for worker in lasting:
            await worker.end()
        await until_nothing_below(zk, path)
        await until_watches(zookeeper, 0)


async def test_a_group_of_processes_agrees_on_its_members(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, AsyncExitStack() as stack:
        workers = {
            name: await stack.enter_async_context(
                start(members.stay, hosts=zookeeper.hosts, path=path, name=name, timeout=1.0)
            )
            for name in ("one", "two", "three")
        }
        await agree(workers)
        workers.pop("one").signal(signal.SIGKILL)
        await agree(workers)
        workers["one"] = await stack.enter_async_context(
            start(members.stay, hosts=zookeeper.hosts, path=path, name="one", timeout=1.0)
        )
        await agree(workers)
        for worker in workers.values():
            worker.signal(signal.SIGKILL)
        await until_nothing_below(zk, path)
        await until_watches(zookeeper, 0)


async def agree(workers: dict[str, Worker]) -> None:
    def agreed() -> bool:
        return all(
            worker.all("members") and worker.all("members")[-1]["members"] == sorted(workers)
            for worker in workers.values()
        )

    await until(agreed)


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
