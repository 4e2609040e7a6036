"""Run all benchmarks of this folder in turn on one real server, and write their figures into one file.

Run from the project's root::

    python bench/suite.py                         # on a ZooKeeper that it starts, and fetches if necessary
    python bench/suite.py --quick                 # few rounds, to see that everything runs; the figures mean little
    python bench/suite.py --only operations costs --json figures.json
    python bench/suite.py --hosts zk1:2181

Each benchmark is a program of its own and runs in a process of its own: what one leaves does not disturb the
next.  Its text is printed as it comes, and after it the share of the processors' time that the host of a virtual
machine took meanwhile: at more than a few per cent, repeat that one.  The other clients are fetched and built first,
which takes minutes.  The exit status is the one of the first that fails, or 0.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.disturbance import processor_times, stolen
from bench.rawline import server_version
from bench.servers import ROOT, add_server_options, kind_of, serving, write_json
from bench.status import with_status
from zkwire.session.hosts import parse


@dataclass(frozen=True, slots=True)
class Program:
    """A benchmark: its file (or folder), its arguments, and those of a quick run, which come after them.

    `has_servers`, whether it starts servers of its own, whatever the command line says; `fetches`, whether it fetches
    other clients, into a folder that those programs share.
    """

    file: str
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    has_servers: bool = False
    fetches: bool = False


_FEW_RACES: Final = ("--rounds", "1", "--handovers", "40")
PROGRAMS: Final[dict[str, Program]] = {
    "handover": Program("handover.py", ("--workers", "2,8,32,128"), (*_FEW_RACES, "--workers", "2,8")),
    "recipes": Program(
        "handover.py",
        ("--workers", "2,8,32", "--contestants", "zkwire,write-lock,semaphore,election,floor"),
        (*_FEW_RACES, "--workers", "2"),
    ),
    "read-lock": Program(
        "handover.py", ("--workers", "2", "--contestants", "zkwire,read-lock,write-lock,floor"), _FEW_RACES
    ),
    "operations": Program("operations.py", (), ("--rounds", "1", "--count", "50")),
    "queues": Program("queues.py", (), ("--rounds", "1", "--seconds", "0.2")),
    "costs": Program("costs.py", (), ("--rounds", "1")),
    "coldstart": Program("coldstart.py", (), ("--rounds", "1")),
    "crowds": Program("crowds.py", (), ("--rounds", "1", "--waiters", "200")),
    "rest": Program(
        "rest.py", ("--without-kazoo",), ("--clients", "6", "--timeout", "2", "--seconds", "2"), has_servers=True
    ),
    "peers": Program("peers", ("--rounds", "5"), (*_FEW_RACES, "--workers", "8"), fetches=True),
    "peer-queues": Program("peers/queues.py", (), ("--rounds", "1"), fetches=True),
    # By itself and last, because it takes minutes.
    "10,000-waiters": Program(
        "crowds.py", ("--only", "waiters", "--waiters", "10000", "--rounds", "1"), ("--waiters", "400")
    ),
}


def command(program: Program, hosts: str, figures: Path, *, quick: bool) -> list[str]:
    """Return the command line of a benchmark that writes its figures into a file."""
    arguments = [*program.arguments, *(program.quick if quick else ())]
    where = [*(() if program.has_servers else ("--hosts", hosts)), "--json", str(figures)]
    if program.fetches:
        where += ["--folder", str(figures.parent / "fetched")]
    return [sys.executable, f"bench/{program.file}", *arguments, *where]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one benchmark: its exit status, how long it took, the host's share, and its figures."""

    status: int
    seconds: float
    taken: float | None
    figures: Any

    def plain(self) -> dict[str, Any]:
        """Return it as plain data; None where there is no figure."""
        return {"status": self.status, "seconds": self.seconds, "taken": self.taken, "figures": self.figures}


def table(outcomes: dict[str, Outcome]) -> list[str]:
    """Return the lines of a table of all benchmarks."""
    lines = ["\nbenchmark         status   seconds   taken by the host"]
    for name, outcome in outcomes.items():
        taken = "unknown" if outcome.taken is None else f"{outcome.taken:.1%}"
        lines.append(f"{name:<15}{outcome.status:9}{outcome.seconds:10.0f}{taken:>20}")
    minutes = sum(outcome.seconds for outcome in outcomes.values()) / 60
    return [*lines, f"all took {minutes:.0f} minutes"]


def run(program: Program, hosts: str, folder: Path, *, quick: bool) -> Outcome:
    """Run one benchmark; its text goes to the standard output."""
    figures = folder / "figures.json"
    figures.unlink(missing_ok=True)
    before, began = processor_times(), time.monotonic()
    status = subprocess.run(command(program, hosts, figures, quick=quick), cwd=ROOT).returncode
    seconds, taken = time.monotonic() - began, stolen(before, processor_times())
    found = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else None
    return Outcome(status, seconds, taken, found)


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Run all benchmarks in turn on one real server.")
    names = list(PROGRAMS)
    parser.add_argument("--only", choices=names, nargs="+", default=names, help="which to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that everything runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    options.real = not (options.hosts or options.no_fsync)
    outcomes: dict[str, Outcome] = {}
    with serving(options) as hosts, tempfile.TemporaryDirectory(prefix="zkwire-bench-") as folder:
        version = server_version(*parse(hosts)[0][0])
        print(f"ZooKeeper {version} at {hosts}{kind_of(options)}", flush=True)
        for name in options.only:
            print(f"\n== {name}", flush=True)
            outcomes[name] = run(PROGRAMS[name], hosts, Path(folder), quick=options.quick)
    print("\n".join(table(outcomes)))
    report = {
        "zookeeper": version,
        "server": "given" if options.hosts else f"real{kind_of(options)}",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "benchmarks": {name: outcome.plain() for name, outcome in outcomes.items()},
    }
    write_json(options, report)
    return next((outcome.status for outcome in outcomes.values() if outcome.status), 0)


if __name__ == "__main__":
    sys.exit(main())
