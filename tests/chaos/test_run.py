"""A short run on a real ensemble, and runs with recipes that are broken on purpose, which must be caught."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos import workload
from tests.chaos.arena import in_memory
from tests.chaos.check import Violation
from tests.chaos.clients import ROOT
from tests.chaos.journal import Reader, Record
from tests.chaos.report import report
from tests.chaos.run import Outcome, Plan, play
from tests.chaos.store import StaleTokenError, Store


def shown(outcome: Outcome) -> str:
    return "\n".join(report(outcome))


@pytest.mark.limit(400)
async def test_all_recipes_keep_their_promises_on_an_ensemble_that_is_disturbed(tmp_path: Path) -> None:
    """The seed is one by which the leader and clients are killed, and links of both are stalled."""
    outcome = await play(Plan("make test 357", 20.0, tmp_path, clients=5))
    assert outcome.violations == [], shown(outcome)
    locks = {name for name, what in workload.PROGRESS.items() if what == "acquired"}
    assert locks <= {record.name for record in outcome.records if record.what == "acquired"}
    assert any(record.what == "killed" for record in outcome.records)
    assert any(record.what == "FAULT" and record.name.startswith("server") for record in outcome.records)


@pytest.mark.slow("starts processes")
@pytest.mark.limit(200)
@pytest.mark.parametrize(
    "caught",
    [
        {"second-in-line-owns": (workload.LOCK, "two owners for certain")},
        {
            "tokens-do-not-grow": (workload.LOCK, "is not greater"),
            "readers-pass-writers": (workload.READ_WRITE, "two owners for certain"),
            "one-permit-too-many": (workload.SEMAPHORE, "holders of 3 permits"),
        },
    ],
    ids=", ".join,
)
async def test_broken_recipes_are_caught(tmp_path: Path, caught: dict[str, tuple[str, str]]) -> None:
    """Faults of different recipes are put in together: each has a violation of its own."""

    def all_caught(found: Sequence[Violation]) -> bool:
        return all(any(each.name == name and text in each.text for each in found) for name, text in caught.values())

    plan = Plan("broken", 60.0, tmp_path, clients=5, broken=tuple(caught), enough=all_caught)
    outcome = await play(plan, in_memory())
    assert all_caught(outcome.violations), shown(outcome)
    first = outcome.violations[0]  # the report shows a few only, and another recipe's may have come first
    assert f"{first.name}: {first.text}; the steps before:" in shown(outcome)


@pytest.mark.slow("starts processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_run_that_is_interrupted_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    process = start("--in-memory", "--clients", "2", "--logs", str(tmp_path))
    try:
        pids = await _clients_of(tmp_path)
        process.send_signal(number)
        while process.poll() is None:
            await asyncio.sleep(0.05)
        assert process.returncode == 2
        assert [pid for pid in pids if _runs(pid)] == []
    finally:
        process.kill()
        process.communicate()


def start(*options: str) -> "subprocess.Popen[bytes]":
    def take_interrupts() -> None:
        # A job that a shell runs in the background inherits that SIGINT is ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = [sys.executable, "-m", "tests.chaos", *options]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=take_interrupts
    )


async def _clients_of(folder: Path) -> list[int]:
    """Wait until both clients of a run have connected, and return their process ids."""
    connected: list[Record] = []
    readers: dict[Path, Reader] = {}
    while len(connected) < 2:
        await asyncio.sleep(0.05)
        for run in folder.iterdir():
            connected += [record for record in readers.setdefault(run, Reader(run)).new() if record.what == "connected"]
    return [record["pid"] for record in connected]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_store_refuses_a_stale_token(tmp_path: Path) -> None:
    one, other = Store(tmp_path, "1.1"), Store(tmp_path, "2.1")
    one.answer("lock", 1, one.answer("lock", 1) + 1)
    assert other.answer("lock", 2) == 1
    with pytest.raises(StaleTokenError):
        one.answer("lock", 1, 2)
    assert one.answer("lock", None) == 1
    other.answer("lock", 2, 2)
    assert (one.answer("other", 1), one.answer("lock", 2)) == (0, 2)
    stored = [(record["token"], record["value"]) for record in Reader(tmp_path).new() if record.what == "stored"]
    assert stored == [(1, 1), (2, 2)]
