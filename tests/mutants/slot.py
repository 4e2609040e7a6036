"""A place where changes are tried, one after the other: a copy of the repository, and a process that forks in it."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Final

from tests.mutants.changes import Change
from tests.mutants.forked import ENDED, NO_END, NO_EXCHANGE, Trial
from tests.mutants.touched import Guard
from tests.mutants.trial import NO_TESTS, TESTS_FAILED, copy_of_the_tree, first_failed, last_line, pytest_in, run_pytest

# Seconds for one test, beside this many times as long as it took when nothing was changed.
_LIMIT: Final = 10.0
_LIMIT_WITH_JAVA: Final = 60.0  # servers start
_TIMES: Final = 10
# More memory than this fails in a process that collects tests by itself; Java reserves more than it uses.
_MEMORY: Final = ("-p", "tests.mutants.memory_limit")
_ONLY: Final = ("-p", "tests.mutants.touched", "--only")


class Slot:
    """Tries changes in `root`, a copy of the repository."""

    def __init__(self, root: Path, forks: Connection) -> None:
        self._root = root
        self._forks = forks

    def caught_by(self, change: Change, tests: Sequence[Guard], *, is_at_import: bool) -> str | None:
        """Return what has caught `change`: the first of `tests` that fails, or a process that does not end; or None.

        Arguments: `tests`, all without Java or all with it; `is_at_import`, whether what is changed has been executed
        before the first test, so that all must be imported again.
        """
        path = self._root / change.file
        before = path.read_text(encoding="utf-8")
        after = change.applied(before)
        while tests:
            path.write_text(after, encoding="utf-8")  # for the processes that tests start
            try:
                caught_by = NO_EXCHANGE if is_at_import else self._in_fork(change.file, before, after, tests)
                if caught_by in (NO_EXCHANGE, ENDED):  # which test has ended the process, a fresh one says
                    return self._caught_by_fresh(tests)
            finally:
                path.write_text(before, encoding="utf-8")
            failed = [test for test in tests if caught_by in (test.name, f"{NO_END}{test.name}")]
            if not failed or self._in_fork(change.file, before, before, failed) is None:
                return caught_by
            # It fails without the change too: it cannot run in a fork, or depends on time.
            tests = [test for test in tests if test not in failed]
        return None

    def _in_fork(self, file: str, before: str, after: str, tests: Sequence[Guard]) -> str | None:
        limits = [(test.name, _limit(test)) for test in tests]
        self._forks.send(Trial(file, before, after, limits, tests[0].needs_java))
        caught_by: str | None = self._forks.recv()
        return caught_by

    def _caught_by_fresh(self, tests: Sequence[Guard]) -> str | None:
        """Run `tests` in a process that imports everything again."""
        listed = self._root / "tests.txt"
        listed.write_text("\n".join(test.name for test in tests), encoding="utf-8")
        files = dict.fromkeys(test.name.partition("::")[0] for test in tests)
        memory = () if tests[0].needs_java else _MEMORY
        limit = _LIMIT_WITH_JAVA + sum(map(_limit, tests)) / 2
        try:
            status, output = run_pytest(self._root, files, "-x", *memory, *_ONLY, str(listed), limit=limit)
        except subprocess.TimeoutExpired:
            return f"no end of {', '.join(files)}"
        if status in (0, NO_TESTS):
            return None
        if status == TESTS_FAILED and (failed := first_failed(output)) is not None:
            return failed
        return f"pytest ended with status {status}: {last_line(output)}"


def _limit(test: Guard) -> float:
    return (_LIMIT_WITH_JAVA if test.needs_java else _LIMIT) + _TIMES * test.seconds


@contextmanager
def slots(count: int, tests: str = "tests") -> Iterator[list[Slot]]:
    """Give `count` slots, each with the repository as it is now; all is removed at the end.

    Arguments: `tests`, the file or folder whose tests can be tried.
    """
    with ExitStack() as stack:
        roots = [stack.enter_context(copy_of_the_tree()) for _ in range(count)]
        forks = [stack.enter_context(_forks(root, tests)) for root in roots]
        for each in forks:
            each.recv()  # a change that were there before all is imported would stay in the code of that process
        yield [Slot(*each) for each in zip(roots, forks, strict=True)]


@contextmanager
def _forks(root: Path, tests: str) -> Iterator[Connection]:
    """Start the process that collects `tests` in the repository `root`; give the connection to it."""
    ours, theirs = Pipe()
    plugins = ("-p", "tests.mutants.touched", "-p", "tests.mutants.forked")
    options = (*plugins, "--trials-from", str(theirs.fileno()))
    with pytest_in(root, tests, *options, descriptors=[theirs.fileno()]), ours:
        theirs.close()
        yield ours
