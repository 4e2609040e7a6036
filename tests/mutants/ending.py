"""The end of a run by a signal: all processes that it has started end with it, and its folders go.

Most of them have a session of their own, so that no signal for the run reaches them.  Linux only: `/proc` lists them.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path


def end_all_with_us() -> None:
    """From now on, let SIGHUP, SIGINT or SIGTERM end this process, all that descends from it, and its temporary files.

    Call it before a temporary folder is made.
    """
    folder = tempfile.tempdir = tempfile.mkdtemp(prefix="mutants-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    def end() -> None:
        (number,) = os.read(reader, 1)
        _stop_descendants()
        shutil.rmtree(folder, ignore_errors=True)
        last = _stop_descendants()
        # No other thread may run from here on: those that waited for these processes would start the next ones.
        sys.setswitchinterval(3600.0)
        for process in last:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os._exit(128 + number)

    # In a thread: the main one may just be about to wait for a lock, and would not see the signal before it has it.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=end, daemon=True).start()


def _stop_descendants() -> set[int]:
    """Stop all processes that descend from this one, so that they start no others, and return them."""
    stopped: set[int] = set()
    while found := _descendants() - stopped:
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        stopped |= found
    return stopped


def _descendants() -> set[int]:
    found = {os.getpid()}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # "id (name) state parent": the name may contain spaces and brackets
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}
