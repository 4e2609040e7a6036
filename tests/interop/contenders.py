"""Other clients as programs: how each is fetched and built, and the process that a trial controls.

A contender is a program that is given a connect string.  It prints "ready", and then takes orders from its standard
input, a line each: `RECIPE PATH NOTES ROUNDS NAME`.  For each it prints "done" when it has been carried out, or
"lacking" when its client has no such recipe; anything else is a failure.  It does ROUNDS times:

- lock, write, lead: get the lock, the lock for writing, or the leadership at PATH, read the node NOTES and set it to
  what it has read and a line with NAME, whatever its version; let go;
- read: get the lock for reading, and see that NOTES does not change meanwhile; let go;
- add, add8: add 1 to the counter of 4 or 8 bytes at PATH;
- put: put the item NAME-0, the next time NAME-1 and so on, into the queue at PATH;
- take: claim an item of that queue, create a node of its name below NOTES, and take it out.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
TIME_LIMIT = 600.0  # a compiler may have much to do

Command = Sequence[str | Path]


class MissingError(Exception):
    """Something that a trial needs is missing; the message says what and why."""


class FailedError(Exception):
    """A client failed with the server or together with our client; the message says how."""


def run(command: Command, what: str, *, folder: Path | None = None, environment: Mapping[str, str] = {}) -> str:
    """Run a command and return what it printed. Raises: MissingError when it cannot be run or fails."""
    try:
        done = subprocess.run(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
            cwd=folder,
            env={**os.environ, **environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{what}: {error}") from error
    if done.returncode:
        raise MissingError(f"{what}: {' '.join(done.stdout.split()) or f'exit status {done.returncode}'}")
    return done.stdout


def tool(name: str, what: str) -> str:
    """Return where the command `name` is.  Raises: MissingError."""
    found = shutil.which(name)
    if found is None:
        raise MissingError(f"{what} needs the command {name}")
    return found


def python_with_kazoo(folder: Path) -> Path:
    """Install kazoo into a throw-away environment in `folder`, and return its Python."""
    environment = folder / "venv"
    python = environment / "bin" / "python"
    if not python.exists():
        try:
            venv.create(environment, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise MissingError(f"no virtual environment could be made: {error}") from error
        install: Command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "kazoo"]
        run(install, "pip cannot install kazoo")
    return python


def ours(folder: Path) -> Command:
    """Our own recipes."""
    return [sys.executable, "-m", "tests.interop.programs.our_contender"]


def kazoo(folder: Path) -> Command:
    """kazoo, its tickets named as it does, told by `extra_lock_patterns` of ours."""
    return [python_with_kazoo(folder), PROGRAMS / "kazoo_contender.py"]


def kazoo_named_as_curator(folder: Path) -> Command:
    """kazoo with tickets that clients can read who know Curator's names only."""
    return [*kazoo(folder), "--named-as-curator"]


def curator(folder: Path) -> Command:
    """Curator, fetched by Maven; Java runs the one source file as it is."""
    java, maven = tool("java", "Curator"), tool("mvn", "Curator")
    project, jars = PROGRAMS / "curator" / "pom.xml", folder / "curator"
    copy: Command = [maven, "--quiet", "--batch-mode", "-f", project, "dependency:copy-dependencies"]
    run([*copy, f"-DoutputDirectory={jars}"], "Maven cannot fetch Curator")
    return [java, "-cp", f"{jars}/*", PROGRAMS / "curator" / "Contender.java"]


def go(folder: Path) -> Command:
    """go-zookeeper/zk."""
    command = tool("go", "go-zk")
    source = shutil.copytree(PROGRAMS / "go", folder / "go")
    run([command, "mod", "tidy"], "go cannot fetch go-zk", folder=source)
    run([command, "build", "-o", "contender", "."], "go cannot build go-zk", folder=source)
    return [source / "contender"]


def rust(folder: Path) -> Command:
    """kezhuw/zookeeper-client-rust."""
    command = tool("cargo", "the Rust client")
    source = shutil.copytree(PROGRAMS / "rust", folder / "rust")
    run([command, "build", "--quiet"], "cargo cannot build the Rust client", folder=source)
    return [source / "target" / "debug" / "contender"]


PREPARE: Final[dict[str, Callable[[Path], Command]]] = {
    "ours": ours,
    "kazoo": kazoo,
    "kazoo-as-curator": kazoo_named_as_curator,
    "curator": curator,
    "go": go,
    "rust": rust,
}


class Contender:
    """A running program; `name` is what it writes into the notes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    async def obey(self, recipe: str, path: str, notes: str, rounds: int) -> bool:
        """Have an order carried out; return False if the client has no such recipe.  Raises: FailedError."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{recipe} {path} {notes} {rounds} {self.name}\n".encode())
        return await self.answer(f"{rounds} rounds of {recipe}") == "done"

    async def answer(self, what: str) -> str:
        """Wait for the next line.  Raises: FailedError when the program has ended, or says what it should not."""
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
