"""A copy of the repository for one fault, and pytest in it: the working tree is never changed."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.mutant import ROOT

SIDE_BY_SIDE: Final = 2
# Longer than the time limit of an async test (60 s), so that a test that hangs fails by its own limit.
TIME_LIMIT: Final = 240.0
# The exit status of pytest when tests have failed.  A collection error gives another one.
TESTS_FAILED: Final = 1
NO_TESTS: Final = 5  # none fits the options
# The id of a test may contain spaces; behind it may come " - " and a message.
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """Give a copy of all files that git does not ignore, a repository of its own, which is removed at the end."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)  # with its mode, and its time, by which Python knows what it has compiled
                for compiled in source.parent.glob(f"__pycache__/{source.stem}.*"):
                    (target.parent / "__pycache__").mkdir(exist_ok=True)
                    shutil.copy2(compiled, target.parent / "__pycache__")
        # Some tests ask git for the files.
        for words in ("init --quiet --initial-branch=copy", "add --all"):
            subprocess.run(["git", *words.split()], cwd=root, check=True)
        installation = ROOT / ".zookeeper"
        if installation.exists() and not (root / ".zookeeper").exists():
            (root / ".zookeeper").symlink_to(installation.resolve())
        yield root


def run_pytest(root: Path, tests: Iterable[str], *options: str, limit: float | None = TIME_LIMIT) -> tuple[int, str]:
    """Run pytest in `root`; return its exit status and its output.  Raises: subprocess.TimeoutExpired."""
    with pytest_in(root, *options, *tests) as process:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output


@contextmanager
def pytest_in(root: Path, *arguments: str, descriptors: Sequence[int] = ()) -> Iterator[subprocess.Popen[str]]:
    """Start pytest in `root`; an error in the block kills it, and the end of the block waits for it.

    Arguments: `descriptors`, the open files that it inherits.
    """
    # PYTHONPATH: the worker processes of tests must import the copy too, not the installed package.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # In a session of its own: when the time is up, its servers end with it.
    with subprocess.Popen(
        command,
        cwd=root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        pass_fds=descriptors,
    ) as process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, 9)
            raise


def first_failed(output: str) -> str | None:
    """Return the id of the first test that failed by the output of pytest, None without one."""
    failed = _FAILED.search(output)
    return None if failed is None else failed[1]


def last_line(output: str) -> str:
    """Return the last line of `output` that is not empty."""
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
