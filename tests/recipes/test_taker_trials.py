"""Trial of TryLock: several processes, a real server."""

import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import zkwire
from tests.support.processes import Worker, start
from tests.support.recipes import until, until_watches
from tests.support.workers.takers import keep_trying
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


def checked(workers: list[Worker]) -> int:
    """Check that no two held a path at once, and that its tokens grew; return how often a lock or set was held."""
    assert not [entry for worker in workers for entry in worker.all("overlap")]
    entries = sorted((entry for worker in workers for entry in worker.all("held")), key=lambda entry: entry["at"])
    newest: dict[str, int] = {}
    for entry in entries:
        for path, token in entry["tokens"].items():
            assert token > newest.get(path, 0)
            newest[path] = token
    return len(entries)


async def test_processes_keep_trying_and_a_holder_is_killed(zookeeper: RealServer, path: str, tmp_path: Path) -> None:
    """Pitfalls 10 and 21: the node of the killed process goes with its session."""
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(zookeeper.hosts))
        orders = {"hosts": zookeeper.hosts, "path": path, "folder": str(tmp_path), "tasks": 2}
        doomed = await stack.enter_async_context(start(keep_trying, times=1000, timeout=1.0, **orders))
        await doomed.until("held", 3)
        others = [
            await stack.enter_async_context(start(keep_trying, times=5, timeout=10.0, **orders)) for _ in range(2)
        ]
        for worker in others:
            await worker.until("held")
        doomed.signal(signal.SIGKILL)
        for worker in others:
            await worker.end()
        assert checked([doomed, *others]) >= 2 * 2 * 5

        async def is_free() -> bool:
            return await zk.exists(path) is None

        await until(is_free)
        await until_watches(zookeeper, 0)
