"""What the kernel says of process groups and orphans."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from recipes.command import kernel
from tests.support.zklock import ROOT, is_running

THREADED = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print(flush=True)
ctypes.CDLL(None).syscall({exit}, 0)  # ends this thread alone, as pthread_exit does
"""


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_group_is_alive_as_long_as_one_process_of_it_runs() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], start_new_session=True, stdout=-1) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        assert kernel.group_is_alive(shell.pid)
        shell.kill()
        shell.wait()
        assert kernel.group_is_alive(shell.pid)  # the sleep runs
        os.killpg(shell.pid, signal.SIGKILL)
        _until(lambda: not kernel.group_is_alive(shell.pid))


def test_a_process_that_no_one_has_waited_for_does_not_run() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as ended:
        _until(lambda: not is_running(ended.pid))
        os.killpg(ended.pid, 0)  # there it is
        assert not kernel.group_is_alive(ended.pid)
        ended.wait()
        assert not kernel.group_is_alive(ended.pid)


def test_a_process_whose_first_thread_has_ended_runs() -> None:
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    code = THREADED.format(exit=number)
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        _until(lambda: stat.read_bytes().rpartition(b")")[2].split()[0] == b"Z")
        assert kernel.group_is_alive(process.pid)
        process.kill()
        _until(lambda: not kernel.group_is_alive(process.pid))


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
