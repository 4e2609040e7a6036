"""A random sample of small changes to the product: which of them does no test notice?

The files of deliberate faults bring back what once went wrong; a sample shows where the tests look away.  A change
that no test notices is judged by a person: either it has no effect that a user could see, and is then written down in
`equivalent.toml`, so that no later sample shows it again, or a test is missing.  `--prune` removes the judgements that
no longer fit the product.

The tools that exist do not serve: mutmut changes functions only, copies each into variants that are called through a
trampoline, which tests that count turns and calls notice, and knows which tests run a function, not a line; cosmic-ray
runs the whole suite for each change.  Here a change takes some seconds.
"""

import os
import random
import shutil
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.changes import Change, changes
from tests.mutants.mutant import EQUIVALENT, ROOT
from tests.mutants.slot import Slot, slots
from tests.mutants.touched import WITH_JAVA, WITHOUT_JAVA, Touched
from tests.mutants.trial import copy_of_the_tree, run_pytest

CORE: Final = ("recipes", "zkwire/wire", "zkwire/session", "zkwire/client")
# More than there are processors, because tests wait: for servers, and for time to pass.
SIDE_BY_SIDE: Final = 8
_ENTRY: Final = "[[equivalent]]\n"
_PROCESSES: Final = max(2, os.cpu_count() or 1)  # in which lines are noted
_NOTING: Final = ("-p", "tests.support.turns", "--processes", f"{_PROCESSES}", "-p", "tests.mutants.touched")


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


def equivalents() -> set[tuple[str, str, str, str, str]]:
    """Return the keys of the changes that a person has judged to be without effect."""
    if not EQUIVALENT.is_file():
        return set()
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    return {_key(entry) for entry in entries}


def _key(entry: Mapping[str, str]) -> tuple[str, str, str, str, str]:
    return entry["file"], entry["scope"], entry["statement"], entry["before"], entry["after"]


def prune() -> int:
    """Remove the judgements of changes that the product no longer has, and print them; return how many there were."""
    there = {
        change.key for file in core_files([]) for change in changes(file, (ROOT / file).read_text(encoding="utf-8"))
    }
    head, *entries = EQUIVALENT.read_text(encoding="utf-8").split(_ENTRY)
    kept: list[str] = []
    gone: list[str] = []
    for entry in entries:
        (parsed,) = tomllib.loads(_ENTRY + entry)["equivalent"]
        (kept if _key(parsed) in there else gone).append(entry)
    EQUIVALENT.write_text(_ENTRY.join([head, *kept]).rstrip() + "\n", encoding="utf-8")
    print("".join(gone))
    return len(gone)


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


def main(count: int, seed: int, modules: Sequence[str], notes: Path | None, *, without_java: bool = False) -> int:
    """Draw and try `count` changes, print a table and at its end the survivors; return 0, or 1 if there are any.

    Arguments: `notes`, the folder with the lines that each test executes: what is missing there is written by a run of
    the tests, and what is there is used; `without_java`, whether to leave out the tests that need Java.
    """
    chosen = drawn(count, seed, modules)
    with tempfile.TemporaryDirectory() as folder:
        notes = (notes or Path(folder)).resolve()
        marks = {notes / "without-java": WITHOUT_JAVA}
        if not without_java:
            marks[notes / "java"] = WITH_JAVA
        with ThreadPoolExecutor() as pool:  # side by side
            failures = "".join(pool.map(_note_lines, marks, marks.values()))
        if failures:
            print(f"the tests must pass while there is no change:\n{failures}")
            return 1
        touched = Touched(*marks)
    print(f"{len(chosen)} changes, drawn by seed {seed}; {SIDE_BY_SIDE} at a time", flush=True)
    results = []
    with slots(min(SIDE_BY_SIDE, count)) as free, ThreadPoolExecutor(len(free)) as pool:
        for done in as_completed([pool.submit(_try, change, touched, free, without_java) for change in chosen]):
            results.append(done.result())
            print(_row(results[-1]), flush=True)
    survivors = [result.change for result in results if result.caught_by is None]
    print(f"\n{len(results) - len(survivors)} of {len(results)} caught; to be judged: {len(survivors)}")
    for change in survivors:
        print(f"\n{_entry(change)}")
    return 1 if survivors else 0


def _note_lines(folder: Path, mark: str) -> str:
    """Write down what the tests with `mark` execute, unless `folder` is there; return the output if one fails."""
    if folder.is_dir():
        return ""
    with copy_of_the_tree() as root:
        status, output = run_pytest(root, ["tests", "-m", mark], *_NOTING, "--note-lines", str(folder), limit=None)
    if status:
        shutil.rmtree(folder, ignore_errors=True)
    return output if status else ""


def _try(change: Change, touched: Touched, free: list[Slot], without_java: bool) -> Result:
    """Run the tests that execute a change, until one fails: first all that need no Java, then the others."""
    started = time.monotonic()
    text = (ROOT / change.file).read_text(encoding="utf-8")
    tests = touched.tests_of(change, text)
    is_at_import = touched.is_at_import(change, text)
    slot = free.pop()
    try:
        for needs_java in (False, True)[: 1 if without_java else 2]:
            chosen = [test for test in tests if test.needs_java is needs_java]
            if (caught_by := slot.caught_by(change, chosen, is_at_import=is_at_import)) is not None:
                break
    finally:
        free.append(slot)
    return Result(change, caught_by, time.monotonic() - started)


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
