"""The commands `zklock run` and `zklock elect`, in processes of their own, on a real server."""

import asyncio
import itertools
import json
import os
import signal
from pathlib import Path

import pytest

import zkwire
from recipes import Lock
from tests.support.recipes import until, until_line
from tests.support.zklock import children, ended, is_running, start, zklock
from zkwire.testing import RealServer

pytestmark = pytest.mark.limit(180)

# Writes its process id at its beginning, and its own beat ever after; ends by SIGTERM only if it is let.
BEATS = 'echo "begin $$" >> "$LOG"; while :; do echo "beat $$" >> "$LOG"; sleep 0.02; done'
STUBBORN = f'trap "" TERM; {BEATS}'


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


async def _until_begun(log: Path, count: int = 1) -> int:
    """Wait for so many beginnings; return the process id of the last one."""

    def begun() -> list[str]:
        return [line for line in _lines(log) if line.startswith("begin")]

    await until(lambda: len(begun()) >= count, limit=60)
    return int(begun()[count - 1].split()[1])


def _check_no_overlap(log: Path) -> None:
    """Check that no command has written after a later one had begun."""
    current, over = "", set()
    for word, pid in map(str.split, _lines(log)):
        if word == "begin":
            over.add(current)
            current = pid
        assert pid not in over, f"{pid} wrote although another one had begun"
        assert pid == current


# -- one at a time --------------------------------------------------------------------------------------------------


async def test_the_lock_of_a_killed_or_stopped_holder_passes_on_when_its_command_has_ended(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """All cases wait for the end of a session, side by side."""
    async with asyncio.TaskGroup() as group:
        for how, command in itertools.product((signal.SIGKILL, signal.SIGSTOP), (BEATS, STUBBORN)):
            case = f"{how.name}-{'obedient' if command is BEATS else 'stubborn'}"
            passing = _pass_on(zookeeper, f"{path}/{case}", tmp_path / case, how, command)
            group.create_task(passing, name=case)


async def _pass_on(zookeeper: RealServer, path: str, log: Path, how: signal.Signals, command: str) -> None:
    run = ("run", path, "--session-timeout", "8", "--grace", "0.5", "--", "sh", "-c", command)
    async with (
        zkwire.connect(zookeeper.hosts) as zk,
        start(zookeeper.hosts, *run, variables={"LOG": str(log)}) as first,
    ):
        command_pid = await _until_begun(log)
        async with start(zookeeper.hosts, *run, variables={"LOG": str(log)}) as second:
            await until_line(zk, path, 2, limit=60)
            assert await _holder_and_waiters(zookeeper, path) == (first.pid, [second.pid])
            first.send_signal(how)
            await _until_begun(log, 2)
            assert not is_running(command_pid)
            assert await _holder_and_waiters(zookeeper, path) == (second.pid, [])
            await until(lambda: _lines(log).count(_lines(log)[-1]) > 10)
            _check_no_overlap(log)
            if how is signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
                status, _, error = await ended(first)
                assert status == 123
                assert error.startswith(f"zklock: the lock {path} is lost: ")
                assert error.count("\n") == 1


async def _holder_and_waiters(zookeeper: RealServer, path: str) -> tuple[int, list[int]]:
    """Return the process ids of the holder and the waiters, as `zklock show` prints them."""
    status, out, _ = await zklock(zookeeper.hosts, "show", path, "--json")
    assert status == 0
    (lock,) = json.loads(out)
    assert lock["lock"] == path
    holder, *waiters = lock["contenders"]
    assert [holder["owns"], *(each["owns"] for each in waiters)] == [True] + [False] * len(waiters)
    pid, *others = [int(each["data"].split()[1]) for each in (holder, *waiters)]
    return pid, others


# -- the loss of the lock --------------------------------------------------------------------------------------------


async def test_a_command_ends_while_no_server_can_be_reached(zookeeper_own: RealServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = f'trap "echo in time; exit 0" TERM; {BEATS}'
    run = ("run", "/lock", "--session-timeout", "8", "--grace", "2", "--", "sh", "-c", command)
    async with start(zookeeper_own.hosts, *run, variables={"LOG": str(log)}) as running:
        begun = await _until_begun(log)
        zookeeper_own.pause()
        status, out, err = await ended(running)
        assert (status, out) == (123, "in time\n")
        assert "zklock: the lock /lock is lost: " in err
        assert not is_running(begun)
        zookeeper_own.resume()


async def test_a_command_whose_supervisor_is_killed_ends_before_the_lock_is_given_back(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run = ("run", path, "--", "sh", "-c", f"sh -c '{STUBBORN}' & wait")
    async with start(zookeeper.hosts, *run, variables={"LOG": str(log)}) as running:
        begun = await _until_begun(log)
        (supervisor,) = children(running.pid)
        os.kill(supervisor, signal.SIGKILL)
        async with zkwire.connect(zookeeper.hosts) as zk, Lock(zk, path):
            assert not is_running(begun)
        assert await ended(running) == (
            125,
            "",
            "zklock: the process that supervises the command was killed, and the command with it\n",
        )


async def test_the_kernel_kills_the_command_when_all_others_are_killed_at_once(
    zookeeper: RealServer, path: str, tmp_path: Path
) -> None:
    """On Linux; elsewhere nothing ends it."""
    log = tmp_path / "log"
    async with start(zookeeper.hosts, "run", path, "--", "sh", "-c", STUBBORN, variables={"LOG": str(log)}) as running:
        begun = await _until_begun(log)
        (supervisor,) = children(running.pid)
        for pid in (running.pid, supervisor):
            os.kill(pid, signal.SIGSTOP)
        for pid in (running.pid, supervisor):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_running(begun))


async def test_the_status_is_that_of_the_command_where_the_ends_of_children_are_ignored(
    zookeeper: RealServer, path: str
) -> None:
    """Some programs start others so.  The kernel then waits for the children itself."""
    ignoring = 'set -- env --ignore-signal=CHLD "$@"'
    async with start(zookeeper.hosts, "run", path, "--", "sh", "-c", "exit 7", before=ignoring) as running:
        assert await ended(running) == (7, "", "")


# -- what the command gets, and exit statuses -----------------------------------------------------------------------
