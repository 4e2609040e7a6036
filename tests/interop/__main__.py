"""`python -m tests.interop [TRIAL ...]`: try other clients on the in-memory server, and together with our recipes.

- kazoo: install it in a temporary environment and run kazoo_trial.py.
- zkcli: run the commands of zkcli.txt with Java's zkCli on the in-memory server and on a real one; both must print the
  same, except for times and the port.
- lines: kazoo, Curator, go-zk and the Rust client share locks and more with our recipes, on a real server: lines.py.

None of them is a dependency of zkwire. The exit status is 1 when a trial fails and 2 when something that it needs is
missing: a package index for pip, go or cargo, a repository for Maven, Java, or the jars of a ZooKeeper.
"""

import asyncio
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.peers.builds import MissingError, python_with, run, tool
from tests.interop import lines
from tests.interop.contenders import FailedError
from zkwire.testing import RealServer, ServerProcess, ZooKeeperMissingError
from zkwire.testing.real.installation import find_zookeeper

HERE = Path(__file__).parent
# What ZooKeeperMain needs beside the server's own jars. (Without jline it reads plain lines, which is what we want.)
COMMONS_CLI = "commons-cli:commons-cli:1.5.0"
TIME_LIMIT = 300.0
TICK_TIME = 2.0


def kazoo(folder: Path) -> None:
    """Install kazoo and run its trial."""
    python = python_with("kazoo", folder)
    with ServerProcess(tick_time=TICK_TIME) as server:
        done = subprocess.run([python, HERE / "kazoo_trial.py", server.hosts], timeout=TIME_LIMIT)
    if done.returncode:
        raise FailedError("the trial of kazoo, above")


def zkcli(folder: Path) -> None:
    """Let zkCli carry out the same commands on both servers, and compare what it prints."""
    java, maven = tool("java", "zkCli"), tool("mvn", "zkCli, to fetch its parser of options,")
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

    with ServerProcess(tick_time=TICK_TIME) as server:
        ours = printed(server.hosts)
    real = RealServer(tick_time=TICK_TIME)
    asyncio.run(real.start())
    try:
        theirs = printed(real.hosts)
    finally:
        asyncio.run(real.close())
    if ours != theirs:
        raise FailedError("zkCli prints\n" + "\n".join(difflib.unified_diff(theirs, ours, "real", "in memory", "", "")))
    print(f"  zkCli: {len(ours)} lines as against a real server")


def comparable(text: str) -> list[str]:
    """Return the lines that do not depend on the time and the port; events last, because another thread prints them.

    Only events that a server sent are kept: the client's own event at the end of its connection may be cut off.
    """
    lines = [line for line in text.splitlines() if line and not re.match(r"[cm]time = |Connecting to |WATCHER::", line)]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return [line for line in lines if line not in events] + [line for line in events if "type:None" not in line]


def lines_trial(folder: Path) -> None:
    """Let other clients share paths with our recipes."""
    match asyncio.run(lines.play(folder)):
        case 1:
            raise FailedError("a trial of shared paths, above")
        case 2:
            raise MissingError("a client, or a recipe of one, above")


TRIALS: Final[dict[str, Callable[[Path], None]]] = {"kazoo": kazoo, "zkcli": zkcli, "lines": lines_trial}


def main(chosen: Sequence[str]) -> int:
    """Run the `chosen` trials, all if there are none; return the exit status."""
    status = 0
    unknown = set(chosen) - set(TRIALS)
    if unknown:
        print(f"no such trial: {', '.join(sorted(unknown))}; there are {', '.join(TRIALS)}", file=sys.stderr)
        return 1
    for name, trial in TRIALS.items():
        if chosen and name not in chosen:
            continue
        print(f"{name}:", flush=True)
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
    sys.exit(main(sys.argv[1:]))
