"""Other clients as programs: how each is fetched and built, and the process that a trial controls.

A contender is a program that is given a connect string.  It prints "ready", and then takes orders from its standard
input, a line each: `RECIPE PATH NOTES ROUNDS NAME`.  For each it prints "done" when it has been carried out, or
"lacking" when its client has no such recipe; anything else is a failure.  It does ROUNDS times:

- lock, write, lead: get the lock, the lock for writing, or the leadership at PATH, read the node NOTES and set it to
  what it has read and a line with NAME, whatever its version; let go;
- read: get the lock for reading, and see that NOTES does not change meanwhile; let go;
- ask: ask all that hold or wait for the lock at PATH to give way; yield: get that lock, and let go when asked;
- add, add8: add 1 to the counter of 4 or 8 bytes at PATH;
- put: put the item NAME-0, the next time NAME-1 and so on, into the queue at PATH;
- take: claim an item of that queue, create a node of its name below NOTES, and take it out.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.peers import builds
from bench.peers.builds import Command

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


class FailedError(Exception):
    """A client failed with the server or together with our client; the message says how."""


def _kazoo(folder: Path) -> Command:
    """Return the command of kazoo, whose tickets have its own names, which `extra_lock_patterns` of ours describes."""
    return [builds.python_with("kazoo", folder), PROGRAMS / "kazoo_contender.py"]


PREPARE: Final[dict[str, Callable[[Path], Command]]] = {
    "ours": lambda _: [sys.executable, "-m", "tests.interop.programs.our_contender"],
    "kazoo": _kazoo,
    # With tickets that clients can read which know Curator's names only.
    "kazoo-as-curator": lambda folder: [*_kazoo(folder), "--named-as-curator"],
    "curator": lambda folder: builds.with_curator(PROGRAMS / "Contender.java", folder),
    "go": lambda folder: builds.with_go_zk(PROGRAMS / "main.go", folder),
    "rust": lambda folder: builds.with_rust_client(PROGRAMS / "main.rs", folder),
}


class Contender:
    """A running program; `name` is what it writes into the notes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    async def obey(self, recipe: str, path: str, notes: str, rounds: int) -> bool:
        """Have an order carried out; return False if the client has no such recipe."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{recipe} {path} {notes} {rounds} {self.name}\n".encode())
        return await self.answer(f"{rounds} rounds of {recipe}") == "done"

    async def answer(self, what: str) -> str:
        """Wait for the next line.

        Raises:
            FailedError: if the program has ended, or says what it should not.
        """
        assert self._process.stdout is not None
        answer = (await self._process.stdout.readline()).decode().strip()
        if answer not in ("ready", "done", "lacking"):
            raise FailedError(f"{self.name}: {what}: {answer or 'it has ended'}")
        return answer


@asynccontextmanager
async def started(name: str, command: Command, hosts: str) -> AsyncIterator[Contender]:
    """Run a contender until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), hosts, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE.parents[1]
    )
    try:
        contender = Contender(name, process)
        await contender.answer("to begin")
        yield contender
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
