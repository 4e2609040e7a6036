"""Measure what a whole program that takes a lock twice costs, its imports included, beside the same one with kazoo.

Run from the project's root::

    python bench/coldstart.py                     # on an in-memory server
    python bench/coldstart.py --real --rounds 40 --json figures.json

Both programs, see peers/programs/cold_*.py, run with the Python of an environment that has kazoo, in turn.  Printed are
the least processor time (user and system) of all rounds, and, if valgrind is there, the number of instructions, which
does not depend on what else the machine does.  kazoo is left out if it cannot be fetched.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.peers import builds
from bench.servers import ROOT, add_server_options, kind_of, positive, say, serving, write_json
from bench.status import with_status

PROGRAMS: Final = {name: f"bench/peers/programs/cold_{name}.py" for name in ("ours", "kazoo")}
GOAL: Final = 1.5  # times kazoo's
_COUNTER: Final = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def processor_time(command: Sequence[str]) -> float:
    """Run a program, and return the processor time that it took, in milliseconds."""
    process = _start(command)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    with process.stderr as errors:
        if process.returncode:
            raise RuntimeError(f"{command[-2]} has failed: {errors.read()}")
    return 1000 * (used.ru_utime + used.ru_stime)


def instructions(command: Sequence[str]) -> float | None:
    """Run a program, and return how many million instructions it took; None without valgrind."""
    if shutil.which(_COUNTER[0]) is None:
        return None
    said = _start([*_COUNTER, *command]).communicate()[1]
    found = re.search(r"Collected : (\d+)", said)
    return int(found[1]) / 1e6 if found else None


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Measure what a program that takes a lock twice costs.")
    add = parser.add_argument
    add("--rounds", type=positive, default=20, metavar="N", help="how often to run each program (default: 20)")
    add("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    add("--folder", type=Path, metavar="FOLDER", help="keep here what is fetched, for the next time")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="zkwire-peers-") as thrown_away, serving(options) as hosts:
        folder = (options.folder or Path(thrown_away)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        programs = dict(PROGRAMS)
        try:
            python = str(builds.python_with("kazoo", folder))
        except builds.MissingError as error:
            say(f"kazoo is left out: {error}")
            python = sys.executable
            del programs["kazoo"]
        commands = {name: [python, file, hosts] for name, file in programs.items()}
        for command in commands.values():  # so that all is compiled
            processor_time(command)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                times[name].append(processor_time(command))
        counted = {name: instructions(command) for name, command in commands.items()}
    print(f"the least of {options.rounds} runs{kind_of(options)}; the goal is {GOAL} x kazoo's")
    for name, found in times.items():
        count = "" if counted[name] is None else f", {counted[name]:.0f} million instructions"
        ratio = "" if "kazoo" not in times or name == "kazoo" else f", {min(found) / min(times['kazoo']):.2f} x kazoo's"
        print(f"{name:6} {min(found):6.1f} ms of processor time{ratio}{count}")
    write_json(options, {name: {"ms": found, "instructions": counted[name]} for name, found in times.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
