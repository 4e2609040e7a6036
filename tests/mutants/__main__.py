"""`python -m tests.mutants [AREA ...]`: put deliberate faults into the product, one at a time, and see the tests fail.

A fault is a "mutant" in a file `tests/mutants/AREA.toml`; without arguments all areas are tried.  Each mutant gets a
copy of the repository in a temporary folder, so that the working tree is never changed.  The exit status is 1 when the
tests let a mutant pass, when a mutant no longer fits the text of its file, or when the tests fail without any mutant.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.mutant import FOLDER, ROOT, Mutant, mutants

SIDE_BY_SIDE: Final = 2
# Longer than the time limit of an async test (60 s), so that a test that hangs fails by its own limit.
TIME_LIMIT: Final = 240.0
# The exit status of pytest when tests have failed.  A collection error gives another one.
TESTS_FAILED: Final = 1
_FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class Result(NamedTuple):
    """What the tests said to one mutant."""

    mutant: Mutant
    caught_by: str | None
    remark: str
    seconds: float


def main(areas: list[str]) -> int:
    """Try the mutants of `areas`, or of all of them, and return the exit status: 0 when the tests caught each."""
    known = sorted(path.stem for path in FOLDER.glob("*.toml"))
    if unknown := sorted(set(areas) - set(known)):
        print(f"there is no area {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    chosen = [mutant for area in areas or known for mutant in mutants(area)]
    if failure := _without_mutant(chosen):
        print(f"the tests must pass while there is no fault:\n{failure}")
        return 1
    print(f"without a fault the tests pass; trying {len(chosen)} faults")
    missed = 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for result in pool.map(_try, chosen):
            missed += result.caught_by is None
            print(_row(result), flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


def _row(result: Result) -> str:
    verdict = "NOT caught" if result.caught_by is None else "caught"
    what = result.remark if result.caught_by is None else result.caught_by
    return f"{verdict:10} {result.seconds:5.1f} s  {result.mutant.area}: {result.mutant.name}\n{'':20}{what}"


def _try(mutant: Mutant) -> Result:
    """Run the tests of a mutant against a copy that has it."""
    count = mutant.occurrences()
    if count != 1:
        return Result(mutant, None, f"its `old` text occurs {count} times in {mutant.file}, not once", 0.0)
    started = time.monotonic()
    with _copy() as root:
        mutant.apply(root)
        try:
            status, output = _pytest(root, mutant.tests, "-x")
        except subprocess.TimeoutExpired:
            return Result(mutant, None, f"no end within {TIME_LIMIT:g} s", time.monotonic() - started)
    seconds = time.monotonic() - started
    failed = _FAILED.search(output)
    if status == TESTS_FAILED and failed is not None:
        return Result(mutant, failed[1], "", seconds)
    lines = [line for line in output.splitlines() if line.strip()]
    return Result(mutant, None, f"pytest ended with status {status}: {lines[-1] if lines else ''}", seconds)


def _without_mutant(chosen: Iterable[Mutant]) -> str:
    """Run the tests of all mutants once, and return the output of pytest if any fails."""
    tests = list(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
    with _copy() as root:
        try:
            status, output = _pytest(root, tests, limit=None)
        finally:
            sys.stdout.flush()
    return output if status else ""


def _pytest(root: Path, tests: Iterable[str], *options: str, limit: float | None = TIME_LIMIT) -> tuple[int, str]:
    """Run pytest in `root`; return its exit status and its output.  Raises: subprocess.TimeoutExpired."""
    # PYTHONPATH: the worker processes of tests must import the copy too, not the installed package.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
    # In a session of its own: when the time is up, its servers end with it.
    with subprocess.Popen(
        command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except BaseException:
            os.killpg(process.pid, 9)
            raise
        return process.returncode, output


@contextmanager
def _copy() -> Iterator[Path]:
    """A copy of all files of the repository that git does not ignore, which is removed at the end."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        installation = ROOT / ".zookeeper"
        if installation.exists() and not (root / ".zookeeper").exists():
            (root / ".zookeeper").symlink_to(installation.resolve())
        yield root


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
