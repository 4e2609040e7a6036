"""What only some kernels can do for a process that looks after others; each function says what it does elsewhere.

Linux: a child that is killed together with its parent, and a parent that gets the orphans among its descendants.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_SET_NAME = 15  # PR_SET_NAME
_ADOPTER = b"zklock-command"  # 15 bytes at most


def now() -> float:
    """Return the time on a clock that all processes of this machine share, in seconds.

    Time during which the machine was suspended counts where the system has such a clock (Linux).
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def adopt_orphans() -> None:
    """Make this process the parent of all orphans among its descendants; does nothing elsewhere."""
    _prctl(_SET_CHILD_SUBREAPER, 1)
    _prctl(_SET_NAME, _ADOPTER)


def children_that_adopt() -> list[int]:
    """Return the children of this process that have called `adopt_orphans` and run; none elsewhere than on Linux."""
    listed = Path("/proc/thread-self/children")
    pids = listed.read_text().split() if listed.exists() else []
    return [int(pid) for pid in pids if Path(f"/proc/{pid}/comm").read_bytes() == _ADOPTER + b"\n"]


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process as soon as its parent ends, in whatever way; does nothing elsewhere.

    Args:
        parent: The process id that the parent had when it made this process.
    """
    if _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # it has ended before


def group_is_alive(group: int) -> bool:
    """Return whether a process of the process group runs.

    A process that has ended, and that its parent has not waited for, does not run.  Only Linux shows the difference.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs as another user
    return sys.platform != "linux" or _has_running_process(group)


def _has_running_process(group: int) -> bool:
    is_mounted = False
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid pgrp ... threads ...; the name may contain spaces and parentheses.
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        is_mounted = True
        # A process whose first thread has ended is shown as a zombie while its other threads run.
        state, of_group, threads = fields[0], int(fields[2]), int(fields[17])
        if of_group == group and (state not in (b"Z", b"X") or threads > 1):
            return True
    return not is_mounted


def _load_prctl() -> Callable[..., int] | None:
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            return ctypes.CDLL(None).prctl
    return None


# Loaded with the module: between fork and exec nothing should be imported.
_PRCTL = _load_prctl()


def _prctl(option: int, value: int | bytes) -> bool:
    return _PRCTL is not None and not _PRCTL(option, value, 0, 0, 0)
