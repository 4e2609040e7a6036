"""Trials of elections: many candidates in several processes, a real server, and leaders that are killed."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import zkwire
from recipes import Election
from tests.support import processes
from tests.support.processes import Worker
from tests.support.recipes import line, until, until_line, until_watches
from tests.support.workers.candidates import run_candidates
from zkwire import Client, SessionExpiredError
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(60)


class Campaign:
    """The processes of one election, and their reports."""

    def __init__(self, server: RealServer, path: str, witness: Path, stack: AsyncExitStack, timeout: float) -> None:
        witness.touch()
        self.server = server
        self.path = path
        self.workers: list[Worker] = []
        self._witness = str(witness)
        self._stack = stack
        self._timeout = timeout
        self._numbers = iter(range(1000))

    async def start(self, candidates: int) -> Worker:
        """Start a process with so many candidates."""
        names = [f"candidate-{next(self._numbers)}" for _ in range(candidates)]
        worker = await self._stack.enter_async_context(
            processes.start(
                run_candidates,
                hosts=self.server.hosts,
                path=self.path,
                witness=self._witness,
                names=names,
                timeout=self._timeout,
            )
        )
        self.workers.append(worker)
        return worker

    @property
    def terms(self) -> list[dict[str, Any]]:
        """All terms until now, in the order of time."""
        return sorted((entry for worker in self.workers for entry in worker.all("leading")), key=lambda e: e["at"])

    async def term(self, count: int) -> tuple[dict[str, Any], Worker]:
        """Wait for the `count`th term; return its report and the process that leads."""
        await until(lambda: len(self.terms) >= count)
        term = self.terms[count - 1]
        return term, next(worker for worker in self.workers if term in worker.reports)

    async def stop(self, zk: Client) -> None:
        """Let all live processes end; check that no two led at once, that tokens grew, and that nothing is left."""
        await zk.create(f"{self.path}-stop")
        for worker in self.workers:
            if not worker.ended:
                await worker.end()
        assert not [entry for worker in self.workers for entry in worker.all("overlap")]
        tokens = [entry["token"] for entry in self.terms]
        assert tokens == sorted(set(tokens))
        await until_line(zk, self.path, 0)
        await until_watches(self.server, 0)


@asynccontextmanager
async def campaign(
    server: RealServer, path: str, folder: Path, *, timeout: float = 10.0
) -> AsyncIterator[tuple[Client, Campaign]]:
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(server.hosts, session_timeout=30.0))
        yield zk, Campaign(server, path, folder / "witness", stack, timeout)


async def end_session(server: RealServer, report: dict[str, Any]) -> None:
    """End a session at once: resume it and close it, until it cannot be resumed any more."""
    password = bytes.fromhex(report["password"])
    while True:
        try:
            async with zkwire.connect(server.hosts, 10.0, session_id=report["session"], session_password=password):
                pass
        except SessionExpiredError:
            return


async def at_least(zk: Client, path: str, count: int) -> None:
    """Wait until at least `count` candidates are in the line."""

    async def so_many() -> bool:
        return len(await line(zk, path)) >= count

    await until(so_many)


async def note(leaders: list[str], hosts: str, path: str) -> None:
    """Append the data of each leader, observed in a session of its own."""
    async with zkwire.connect(hosts, session_timeout=30.0) as zk:
        async for data in Election(zk, path).observe():
            leaders += ["no leader" if data is None else data.decode()]


async def test_twenty_candidates_and_a_leader_that_is_killed_twenty_times(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """Pitfalls 10 and 17: five processes have four candidates each; the leader's process is killed and replaced.

    There is one leader at any time, with growing tokens, and observers see each leader."""
    async with campaign(zookeeper, path, tmp_path) as (zk, trial):
        for _ in range(6):  # one more than needed, because a process takes time to start
            await trial.start(4)
        await until_line(zk, path, 24)
        seen: list[list[str]] = [[], []]
        observing = [asyncio.create_task(note(leaders, zookeeper.hosts, path)) for leaders in seen]
        led = []
        for count in range(1, 21):
            term, worker = await trial.term(count)
            led.append(term["name"])
            await until(lambda: seen == [led, led], what=f"observers have seen {seen}, not {led}")
            await at_least(zk, path, 20)
            await trial.start(4)
            worker.signal(signal.SIGKILL)
            await worker.gone()
            # The sessions would last until they expire.  That of the leader ends last, so that no dead candidate leads.
            dead = sorted(worker.all("candidate"), key=lambda entry: entry["name"] == term["name"])
            for report in dead:
                await end_session(zookeeper, report)
        await trial.term(21)
        await until_line(zk, path, 24)
        for task in observing:
            task.cancel()
        await asyncio.wait(observing)
        await trial.stop(zk)
        assert len({entry["name"] for entry in trial.terms}) == len(trial.terms) >= 21
        assert not [entry for worker in trial.workers for entry in worker.all("lost")]


async def test_a_leader_whose_session_is_ended_queues_again(zookeeper: RealServer, path: str, tmp_path: Path) -> None:
    """Pitfalls 12, 13 and 17: the process lives, loses its leadership, and becomes the last candidate of the line.

    The old leader and the next one learn of a closed session at the same moment, so they may overlap for an instant:
    this trial checks the tokens only."""
    async with campaign(zookeeper, path, tmp_path) as (zk, trial):
        workers = [await trial.start(2) for _ in range(2)]
        await until_line(zk, path, 4)
        for count in range(1, 7):
            term, worker = await trial.term(count)
            lost = len(worker.all("lost"))
            await end_session(zookeeper, term)
            await worker.until("lost", lost + 1)
            await until_line(zk, path, 4)
            assert (await Election(zk, path).candidates())[-1] == term["name"].encode()
        await trial.term(7)
        assert sum(len(worker.all("lost")) for worker in workers) == 6
        for worker in workers:
            worker.reports = [entry for entry in worker.reports if entry["event"] != "overlap"]
        await trial.stop(zk)


async def test_a_leader_that_is_killed_is_followed_when_its_session_has_expired(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """Pitfalls 10 and 17."""
    async with campaign(zookeeper, path, tmp_path, timeout=1.0) as (zk, trial):
        for count in (1, 2):
            await trial.start(1)
            await until_line(zk, path, count)
        first, worker = await trial.term(1)
        worker.signal(signal.SIGKILL)
        await worker.gone()
        second, _ = await trial.term(2)
        assert second["name"] != first["name"]
        await until_line(zk, path, 1)
        await trial.stop(zk)
