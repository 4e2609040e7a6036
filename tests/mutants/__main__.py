"""Put deliberate faults into the product, one at a time, and see the tests fail.

`python -m tests.mutants [AREA ...]` tries the faults that are written down.  `python -m tests.mutants --sample 150
--seed 7 [--modules recipes/line zkwire/session] [--without-java]` draws small changes at random: see sample.py.

A fault is a "mutant" in a file `tests/mutants/AREA.toml`; without arguments all areas are tried.  Each mutant gets a
copy of the repository in a temporary folder, so that the working tree is never changed.  The exit status is 1 when the
tests let a mutant pass, when a mutant no longer fits the text of its file, or when the tests fail without any mutant.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants import sample
from tests.mutants.ending import end_all_with_us
from tests.mutants.mutant import EQUIVALENT, Mutant, areas, mutants
from tests.mutants.trial import (
    SIDE_BY_SIDE,
    TESTS_FAILED,
    TIME_LIMIT,
    copy_of_the_tree,
    first_failed,
    last_line,
    run_pytest,
)


class Result(NamedTuple):
    """What the tests said to one mutant."""

    mutant: Mutant
    caught_by: str | None
    remark: str
    seconds: float


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 when the tests have caught every fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("areas", nargs="*", help="names of files of faults, without .toml (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="draw N small changes of the product instead")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing")
    parser.add_argument(
        "--modules", nargs="+", default=[], help="to draw from, such as recipes/line (default: the core)"
    )
    parser.add_argument("--without-java", action="store_true", help="leave out the tests that need Java")
    parser.add_argument(
        "--lines", type=Path, metavar="FOLDER", help="keeps what each test executes, for another sample of this code"
    )
    parser.add_argument("--prune", action="store_true", help="remove judgements of changes that no longer exist")
    given = parser.parse_args(arguments)
    if given.prune:
        print(f"{sample.prune()} judgements are removed from {EQUIVALENT.name}")
        return 0
    if given.sample is not None:
        return sample.main(given.sample, given.seed, given.modules, given.lines, without_java=given.without_java)
    return _try_areas(given.areas)


def _try_areas(chosen_areas: list[str]) -> int:
    """Try the mutants of `chosen_areas`, or of all areas; return the exit status: 0 when the tests caught each."""
    known = areas()
    if unknown := sorted(set(chosen_areas) - set(known)):
        print(f"there is no area {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    chosen = [mutant for area in chosen_areas or known for mutant in mutants(area)]
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
    with copy_of_the_tree() as root:
        mutant.apply(root)
        try:
            status, output = run_pytest(root, mutant.tests, "-x")
        except subprocess.TimeoutExpired:
            return Result(mutant, None, f"no end within {TIME_LIMIT:g} s", time.monotonic() - started)
    seconds = time.monotonic() - started
    failed = first_failed(output)
    if status == TESTS_FAILED and failed is not None:
        return Result(mutant, failed, "", seconds)
    return Result(mutant, None, f"pytest ended with status {status}: {last_line(output)}", seconds)


def _without_mutant(chosen: Iterable[Mutant]) -> str:
    """Run the tests of all mutants once, and return the output of pytest if any fails."""
    tests = list(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
    with copy_of_the_tree() as root:
        try:
            status, output = run_pytest(root, tests, limit=None)
        finally:
            sys.stdout.flush()
    return output if status else ""


if __name__ == "__main__":
    end_all_with_us()
    sys.exit(main(sys.argv[1:]))
