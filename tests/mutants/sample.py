"""A random sample of small changes to the product: which of them does no test notice?

The files of deliberate faults bring back what once went wrong; a sample shows where the tests look away.  A change
that no test notices is judged by a person: either it has no effect that a user could see, and is then written down in
`equivalent.toml`, so that no later sample shows it again, or a test is missing.
"""

import random
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.changes import Change, changes
from tests.mutants.mutant import EQUIVALENT, ROOT
from tests.mutants.touched import Touched
from tests.mutants.trial import (
    NO_TESTS,
    TESTS_FAILED,
    copy_of_the_tree,
    first_failed,
    last_line,
    run_pytest,
)

CORE: Final = ("recipes", "zkwire/wire", "zkwire/session", "zkwire/client")
# All tests without Java, in one process: about as long as they take together.
WITHOUT_JAVA: Final = ("-m", "not java and not slow")
QUICK: Final = (*WITHOUT_JAVA, "tests")
QUICK_LIMIT: Final = 1200.0
FOLDER_LIMIT: Final = 400.0
WITH_JAVA: Final = ("-m", "java or slow")
# More than there are processors, because tests wait: for servers, and for time to pass.
SIDE_BY_SIDE: Final = 6
# A change may make a loop fill the memory: the tests then fail with MemoryError.  Java reserves more than it uses.
MEMORY: Final = ("-p", "tests.mutants.memory_limit")
NOTES: Final = ("-p", "tests.mutants.touched")


class Result(NamedTuple):
    """What the tests said to one change: `caught_by` a test, or None; after how many `seconds`."""

    change: Change
    caught_by: str | None
    seconds: float


def core_files(modules: Sequence[str]) -> list[str]:
    """Return the source files of `modules`, each a folder, a file, or a file without its ".py".

    Raises: ValueError for a module that does not exist.
    """
    found: list[str] = []
    for module in modules or CORE:
        path = ROOT / module
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path if path.suffix == ".py" else Path(f"{path}.py")]
        if not files or not files[0].is_file():
            raise ValueError(f"there is no module {module}: give folders or files, such as recipes/line")
        found += [str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py"]
    return list(dict.fromkeys(found))


def guards(file: str, *, near_only: bool = False) -> list[tuple[str, ...]]:
    """Return the arguments of pytest by which the tests that guard `file` are run, the nearest tests first.

    Tests have the path of the module that they test: `recipes/line/lease.py` has `tests/recipes/line/test_lease.py`,
    and then all of `tests/recipes/line`.  At last come all tests that need no Java (of these `_try` chooses), and the
    nearest ones that do; with `near_only`, these are left out.
    """
    path = Path(file)
    stages: list[tuple[str, ...]] = []
    folder = Path("tests", path.parent)
    if near := sorted({*(ROOT / folder).glob(f"test_{path.stem}.py"), *(ROOT / folder).glob(f"test_{path.stem}_*.py")}):
        nearest = [str(test.relative_to(ROOT)) for test in near]
        stages.append((*WITHOUT_JAVA, *nearest))
    if folder != Path("tests/recipes") and (ROOT / folder).is_dir():  # tests/recipes is half of all tests
        stages.append((*WITHOUT_JAVA, str(folder)))
    if near_only:
        return stages
    stages.append(QUICK)
    if near:
        stages.append((*WITH_JAVA, *nearest))
    return stages


def equivalents() -> set[tuple[str, str, str, str, str]]:
    """Return the keys of the changes that a person has judged to be without effect."""
    if not EQUIVALENT.is_file():
        return set()
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    return {tuple(entry[name] for name in ("file", "scope", "statement", "before", "after")) for entry in entries}


def drawn(count: int, seed: int, modules: Sequence[str]) -> list[Change]:
    """Return `count` changes of `modules`, drawn by `seed`, without those that were judged to have no effect."""
    judged = equivalents()
    found = [
        change
        for file in core_files(modules)
        for change in changes(file, (ROOT / file).read_text(encoding="utf-8"))
        if change.key not in judged
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def main(count: int, seed: int, modules: Sequence[str], *, near_only: bool = False) -> int:
    """Draw and try `count` changes, print a table and at its end the survivors; return 0, or 1 if there are any.

    Arguments: `near_only`, whether to try the tests in the folder of a module only: that is sooner done, and shows
    changes that are guarded from elsewhere as survivors.
    """
    chosen = drawn(count, seed, modules)
    stages = list(dict.fromkeys(stage for change in chosen for stage in guards(change.file, near_only=near_only)[-2:]))
    with tempfile.TemporaryDirectory() as folder, copy_of_the_tree() as root, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        notes = Path(folder, "calls.json")
        noting = [(*stage, "--note-calls", str(notes)) if stage == QUICK else stage for stage in stages]
        failures = [failure for failure in pool.map(partial(_caught_by, root), noting) if failure is not None]
        touched = Touched(notes) if QUICK in stages and not failures else None
    if failures:
        print("the tests must pass while there is no change:", *failures, sep="\n")
        return 1
    print(f"{len(chosen)} changes, drawn by seed {seed}; {SIDE_BY_SIDE} at a time", flush=True)
    results = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for done in as_completed([pool.submit(_try, change, near_only, touched) for change in chosen]):
            results.append(done.result())
            print(_row(results[-1]), flush=True)
    survivors = [result.change for result in results if result.caught_by is None]
    print(f"\n{len(results) - len(survivors)} of {len(results)} caught; to be judged: {len(survivors)}")
    for change in survivors:
        print(f"\n{_entry(change)}")
    return 1 if survivors else 0


def _try(change: Change, near_only: bool, touched: Touched | None) -> Result:
    """Run the tests that guard a change against a copy that has it, until a test fails.

    Of all the tests without Java, only those that call the changed function are run, by what `touched` says.
    """
    started = time.monotonic()
    with copy_of_the_tree() as root:
        path = root / change.file
        path.write_text(change.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        for guard in guards(change.file, near_only=near_only):
            tests = touched.tests_of(change) if guard == QUICK and touched is not None else None
            if tests == []:
                continue
            caught_by = _caught_by(root, guard if tests is None else _only(root, tests))
            if caught_by is not None:
                return Result(change, caught_by, time.monotonic() - started)
    return Result(change, None, time.monotonic() - started)


def _only(root: Path, tests: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of pytest by which `tests` are run, and no others."""
    listed = root / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    return (*WITHOUT_JAVA, "--only", str(listed), *files)


def _caught_by(root: Path, stage: tuple[str, ...]) -> str | None:
    """Return what has caught the change among the tests of `stage`, None if they pass."""
    memory = () if stage[: len(WITH_JAVA)] == WITH_JAVA else MEMORY
    limit = QUICK_LIMIT if stage[: len(QUICK)] == QUICK or "--only" in stage else FOLDER_LIMIT
    try:
        status, output = run_pytest(root, stage, "-x", *memory, *NOTES, limit=limit)
    except subprocess.TimeoutExpired:
        return f"no end of {' '.join(stage)}"
    if status in (0, NO_TESTS):
        return None
    if status == TESTS_FAILED and (failed := first_failed(output)) is not None:
        return failed
    return f"pytest ended with status {status}: {last_line(output)}"


def _row(result: Result) -> str:
    change = result.change
    verdict = "caught" if result.caught_by is not None else "NOT caught"
    what = f"{_short(change.before)}  ->  {_short(change.after)}"
    return f"{verdict:10} {result.seconds:5.1f} s  {change.file}:{change.line}  {what}\n{'':20}{result.caught_by or ''}"


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 70 else f"{words[:67]}..."


def _entry(change: Change) -> str:
    """Return the entry for `equivalent.toml`, should the change be judged to have no effect."""
    names = ("file", "scope", "statement", "before", "after")
    lines = [f"{name} = '''{getattr(change, name)}'''" for name in names]
    return "\n".join([f"# line {change.line}", "[[equivalent]]", *lines, 'why = ""'])
