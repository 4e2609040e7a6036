"""What the kernel says of process groups and orphans."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from recipes.command import kernel
from tests.support.zklock import ROOT, is_running


def test_a_child_dies_with_its_parent_and_orphans_are_adopted() -> None:
    code = """
import os, time
from recipes.command import kernel
kernel.adopt_orphans()
parent = os.fork()
if not parent:
    us = os.getpid()
    child = os.fork()
    if not child:
        kernel.die_with_parent(us)
        print(os.getpid(), flush=True)
        time.sleep(1000)
    time.sleep(1000)
input()
os.kill(parent, 9)
ended = {os.wait()[0], os.wait()[0]}  # the child of the parent, too
print(*ended - {parent}, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == child
        assert not is_running(int(child))


def _status_of_child(body: Callable[[], object]) -> int:
    """Run `body` in a child process; return its exit status, 0 if `body` returns, negative for a signal."""
    child = os.fork()
    if not child:
        try:
            body()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_process_whose_parent_has_ended_before_it_could_ask_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    us = os.getpid()
    assert _status_of_child(lambda: kernel.die_with_parent(us)) == 0
    assert _status_of_child(lambda: kernel.die_with_parent(us + 1)) == -signal.SIGKILL
    monkeypatch.setattr(kernel, "_PRCTL", None)  # as on a system that cannot do it: this does nothing there
    assert _status_of_child(lambda: kernel.die_with_parent(us + 1)) == 0


def test_the_clock_is_that_of_all_processes_and_counts_the_time_while_the_machine_sleeps() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= kernel.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lay out processes as the kernel shows them; each is named by its id and has a state, a group, and threads."""
    monkeypatch.setattr(kernel, "Path", lambda _: tmp_path)

    def show(pid: int, state: str, group: int, threads: int = 1) -> None:
        stat = tmp_path / str(pid) / "stat"
        stat.parent.mkdir()
        rest = " ".join(map(str, [99, group, *range(101, 115), threads, 116, 117]))
        if state == "gone":
            stat.mkdir()  # reading it fails
        else:
            stat.write_text(f"{pid} (a) (b c) {state} {rest}\n")

    return show


US = os.getpgrp()


@pytest.mark.parametrize(
    ("processes", "is_alive"),
    [
        ([(1, "S", US)], True),
        ([(1, "R", US + 1), (2, "S", US - 1)], False),
        ([(1, "Z", US), (2, "X", US)], False),
        ([(1, "Z", US), (2, "S", US)], True),
        ([(1, "Z", US, 2)], True),  # the first thread has ended, another one runs
        ([(1, "Z", US + 1, 2)], False),
        ([(1, "gone", US), (2, "Z", US)], False),  # the first one has ended meanwhile
        ([(1, "gone", US), (2, "S", US)], True),
        ([(1, "gone", US)], True),
        ([], True),  # it is not mounted, so there is no more to be known
    ],
)
def test_the_state_of_a_group(processes: list[tuple[int, str, int]], is_alive: bool, proc: Callable[..., None]) -> None:
    for process in processes:
        proc(*process)
    assert kernel.group_is_alive(US) is is_alive


def test_a_group_of_another_user_runs_and_where_nothing_more_is_shown_every_group_does(
    proc: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    proc(1, "Z", US)
    assert not kernel.group_is_alive(US)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert kernel.group_is_alive(US)
    monkeypatch.undo()

    monkeypatch.setattr(os, "killpg", Mock(side_effect=PermissionError))
    assert kernel.group_is_alive(US)


def test_a_system_without_these_calls_does_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel._load_prctl() is not None
    monkeypatch.setattr("ctypes.CDLL", Mock(side_effect=OSError))
    assert kernel._load_prctl() is None
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert kernel._load_prctl() is None
    monkeypatch.setattr(kernel, "_PRCTL", None)
    kernel.adopt_orphans()
