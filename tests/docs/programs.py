"""The programs of docs/examples, each in a process of its own."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"


@asynccontextmanager
async def started(*command: str, **environment: str) -> AsyncIterator[Process]:
    """Run `python *command` in the folder of the examples, and kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,  # apart from the signals of a terminal
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until_printed(process: Process, *wanted: str) -> str:
    """Return the first line of the output that contains one of `wanted`."""
    assert process.stdout is not None
    seen = []
    async for line in process.stdout:
        assert b"Traceback" not in line, (await process.stdout.read(4096)).decode()
        if any(each in line.decode() for each in wanted):
            return line.decode().rstrip("\n")
        seen.append(line.decode())
    raise AssertionError(f"it ended with {await process.wait()} and never printed {wanted!r}:\n{''.join(seen)}")
