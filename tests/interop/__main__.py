"""`python -m tests.interop`: other people's clients against the in-memory server.

kazoo is installed in a throw-away environment and put through kazoo_trial.py. Java's zkCli is given the commands of
zkcli.txt, once against the in-memory server and once against a real one, and must print the same, times and the real
one's port aside. Neither is a dependency of zkwire. The exit status is 1 when a trial fails and 2 when what it needs
cannot be had: pip without a package index, Maven without a repository, no Java, no ZooKeeper's jars.
"""

import asyncio
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zkwire.testing import RealServer, ZooKeeperMissingError
from zkwire.testing.installation import find_zookeeper

HERE = Path(__file__).parent
# What ZooKeeperMain needs beside the server's own jars. (Without jline it reads plain lines, which is what we want.)
COMMONS_CLI = "commons-cli:commons-cli:1.5.0"
TIME_LIMIT = 300.0
TICK_TIME = 2.0


class MissingError(Exception):
    """What a trial needs cannot be had; the message says what and why."""


class FailedError(Exception):
    """A client did not get along with the server; the message says how."""


@contextmanager
def in_memory() -> Iterator[str]:
    """The in-memory server as a process of its own; gives its connect string."""
    command = [sys.executable, "-m", "zkwire.testing", "--port", "0", "--tick-time", str(TICK_TIME), "--with-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        try:
            if found is None:
                raise FailedError("the in-memory server did not say where it listens")
            yield found[0]
        finally:
            process.stdin.close()


def run(command: Sequence[str | Path], what: str) -> str:
    """Run a command and return what it printed. Raises: MissingError when it cannot be run or fails."""
    try:
        done = subprocess.run(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{what}: {error}") from error
    if done.returncode:
        raise MissingError(f"{what}: {' '.join(done.stdout.split()) or f'exit status {done.returncode}'}")
    return done.stdout


def kazoo(folder: Path) -> None:
    """Install kazoo and run its trial."""
    environment = folder / "venv"
    try:
        venv.create(environment, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingError(f"no virtual environment could be made: {error}") from error
    python = environment / "bin" / "python"
    run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "kazoo"], "pip cannot install kazoo")
    with in_memory() as hosts:
        done = subprocess.run([python, HERE / "kazoo_trial.py", hosts], timeout=TIME_LIMIT)
    if done.returncode:
        raise FailedError("the trial of kazoo, above")


def zkcli(folder: Path) -> None:
    """Let zkCli carry out the same commands on both servers, and compare what it prints."""
    java, maven = shutil.which("java"), shutil.which("mvn")
    if java is None or maven is None:
        raise MissingError("zkCli needs a java command, and Maven (mvn) to fetch its parser of options")
    try:
        jars = find_zookeeper().class_path
    except ZooKeeperMissingError as error:
        raise MissingError(str(error)) from error
    copy = [maven, "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={COMMONS_CLI}"]
    run([*copy, f"-DoutputDirectory={folder}"], f"Maven cannot fetch {COMMONS_CLI}")
    class_path = os.pathsep.join(map(str, [*jars, *folder.glob("commons-cli-*.jar")]))
    main = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "org.apache.zookeeper.ZooKeeperMain"]

    def printed(hosts: str) -> list[str]:
        with (HERE / "zkcli.txt").open() as commands:
            done = subprocess.run(
                [java, "-cp", class_path, *main, "-server", hosts, "-timeout", "30000"],
                stdin=commands,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIME_LIMIT,
            )
        return comparable(done.stdout)

    with in_memory() as hosts:
        ours = printed(hosts)
    server = RealServer(tick_time=TICK_TIME)
    asyncio.run(server.start())
    try:
        theirs = printed(server.hosts)
    finally:
        asyncio.run(server.close())
    if ours != theirs:
        raise FailedError("zkCli prints\n" + "\n".join(difflib.unified_diff(theirs, ours, "real", "in memory", "", "")))
    print(f"  zkCli: {len(ours)} lines as against a real server")


def comparable(text: str) -> list[str]:
    """The lines that do not depend on the time and the port, events last, as a thread of its own prints them.

    Of the events only those that a server sent: what the client makes of its connection's end may be cut off.
    """
    lines = [line for line in text.splitlines() if line and not re.match(r"[cm]time = |Connecting to |WATCHER::", line)]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return [line for line in lines if line not in events] + [line for line in events if "type:None" not in line]


def main() -> int:
    """Run all trials; return the exit status."""
    status = 0
    for trial in (kazoo, zkcli):
        print(f"{trial.__name__}:", flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="zkwire-interop-") as folder:
                trial(Path(folder))
        except MissingError as error:
            print(f"  not tried: {error}", file=sys.stderr)
            status = status or 2
        except FailedError as error:
            print(f"  failed: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
