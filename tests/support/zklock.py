"""The command `zklock` in processes of its own, for tests: started, stopped, and always ended."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
Process = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def start(
    hosts: str, *arguments: str, variables: Mapping[str, str] | None = None, before: str = "", data: bytes | None = None
) -> AsyncIterator[Process]:
    """Start `zklock` with the arguments; kill it at the end, and have its command ended.

    Arguments: `variables`, for its environment; `before`, what a shell does before it becomes zklock; `data`, its
    standard input.
    """
    command = [sys.executable, "-m", "recipes", *arguments]
    if before:
        command = ["sh", "-c", f'{before}; exec "$@"', "sh", *command]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "ZKWIRE_HOSTS": hosts, "ZKWIRE_AUTH": "", **(variables or {})},
        stdin=asyncio.subprocess.PIPE if data is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    if data is not None and process.stdin is not None:
        process.stdin.write(data)
        process.stdin.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
        # Its streams are open as long as its command runs: this waits for the end of that, too.
        await process.communicate()


async def ended(process: Process) -> tuple[int, str, str]:
    """Wait for the end of the process; return its exit status, output, and what it has written to standard error."""
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def zklock(hosts: str, *arguments: str, data: bytes | None = None) -> tuple[int, str, str]:
    """Run `zklock` to its end; return its exit status, output, and what it has written to standard error."""
    async with start(hosts, *arguments, data=data) as process:
        return await ended(process)


def children(pid: int) -> list[int]:
    """Return the ids of the child processes (Linux)."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False
