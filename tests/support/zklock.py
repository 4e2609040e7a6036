"""The command `zklock` in processes of its own, for tests: started, stopped, and always ended.

A test that sends it signals takes the fixture `heeds_signals`.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
Process = asyncio.subprocess.Process

_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def start(
    hosts: str, *arguments: str, variables: Mapping[str, str] | None = None, before: str = ""
) -> AsyncIterator[Process]:
    """Start `zklock` with the arguments; kill it at the end, and all that it has started.

    Arguments: `variables`, for its environment; `before`, what a shell does before it becomes zklock.
    """
    mark = f"ZKLOCK_OF_TEST={next(_numbers)}-{os.getpid()}"
    command = [sys.executable, "-m", "recipes", *arguments]
    if before:
        command = ["sh", "-c", f'{before}; exec "$@"', "sh", *command]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "ZKWIRE_HOSTS": hosts, "ZKWIRE_AUTH": "", **(variables or {}), **dict([mark.split("=")])},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        _kill_all_with(mark.encode())
        await process.communicate()


def _kill_all_with(mark: bytes) -> None:
    """Kill the processes whose environment has `mark`: zklock, its supervisor, its command, and what that has started.

    So nothing is left even if zklock has a fault.
    """
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


async def ended(process: Process) -> tuple[int, str, str]:
    """Wait for the end of the process; return its exit status, output, and what it has written to standard error."""
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def zklock(hosts: str, *arguments: str) -> tuple[int, str, str]:
    """Run `zklock` to its end; return its exit status, output, and what it has written to standard error."""
    async with start(hosts, *arguments) as process:
        return await ended(process)


def children(pid: int) -> list[int]:
    """Return the ids of the child processes (Linux)."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False
