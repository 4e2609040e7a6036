"""Trial of an election: candidates in several processes, a real server, and a leader that is killed."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import zkwire
from recipes import Election
from tests.support import processes
from tests.support.processes import Worker
from tests.support.recipes import outcome, until, until_line, until_watches
from tests.support.workers.candidate import run_candidate
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


async def test_a_leader_that_is_killed_is_followed_when_its_session_has_expired(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """Pitfalls 10 and 17: no two lead at a time, tokens grow, and an observer sees each leader."""
    witness = tmp_path / "witness"
    witness.touch()
    orders = {"hosts": zookeeper.hosts, "path": path, "witness": str(witness), "timeout": 1.0}
    seen: list[bytes | None] = []
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts, session_timeout=30.0))

        async def observe() -> None:
            async for data in Election(zk, path).observe():
                seen.append(data)  # noqa: PERF401

        workers: list[Worker] = []
        for number in range(3):
            started = processes.start(run_candidate, name=f"candidate-{number}", **orders)
            workers.append(await stack.enter_async_context(started))
            await until_line(zk, path, number + 1)
        observing = asyncio.create_task(observe())
        led: list[bytes] = []
        for number, worker in enumerate(workers):
            await worker.until("leading")
            led.append(b"candidate-%d" % number)
            await until(lambda: seen == led)
            if worker is not workers[-1]:
                worker.signal(signal.SIGKILL)
                await worker.gone()
        observing.cancel()
        await outcome(observing)
        await zk.create(f"{path}-stop")
        await workers[-1].end()
        assert not [entry for worker in workers for entry in (*worker.all("overlap"), *worker.all("lost"))]
        tokens = [entry["token"] for worker in workers for entry in worker.all("leading")]
        assert tokens == sorted(set(tokens))
        await until_line(zk, path, 0)
        await until_watches(zookeeper, 0)
