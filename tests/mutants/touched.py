"""A pytest plugin: which tests execute which lines of the product?  A change needs to be tried by those tests only.

`--note-lines FILE` writes that down, with the time that each test took; `--only FILE` runs only the tests whose ids the
file contains, one in each line.
"""

import ast
import functools
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import pytest

from tests.mutants.changes import Change
from tests.mutants.mutant import ROOT

QUICK: Final = "not java and not slow"  # the marks of tests, as an argument of pytest
NOT_QUICK: Final = "java or slow"
_PRODUCT: Final = (f"{ROOT}/zkwire/", f"{ROOT}/recipes/")
_PROCESSES: Final = ("subprocess.Popen", "os.fork", "os.posix_spawn")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note-lines", type=Path, help="write to this file which tests execute which lines")
    parser.addoption("--only", type=Path, help="run only the tests in this file")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before anything of the product is imported."""
    file = early_config.known_args_namespace.note_lines
    if file is not None:
        early_config.pluginmanager.register(Notes(file))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file: Path | None = config.getoption("--only")
    if file is not None:
        wanted = set(file.read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]


class Guard(NamedTuple):
    """A test by its id, which took `seconds`; `is_quick` is False for one that needs Java or takes long."""

    name: str
    seconds: float
    is_quick: bool


class Notes:
    """Records the lines that each test executes, and writes them to `file` at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._executed: set[tuple[CodeType, int]] = set()
        self._at_import = self._executed  # until the first test
        self._starts_process = False
        self._tests: list[Guard] = []
        self._lines: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._with_process: list[int] = []
        sys.addaudithook(self._audit)
        self._begin_tracing()

    def _audit(self, event: str, _: object, processes: tuple[str, ...] = _PROCESSES) -> None:
        # A hook cannot be taken away: it is called when the module is gone, too, hence the default.
        self._starts_process |= event in processes

    if sys.version_info >= (3, 12):

        def _begin_tracing(self) -> None:
            """See each line once more; in all threads."""
            monitoring = sys.monitoring
            if monitoring.get_tool(monitoring.COVERAGE_ID) is None:
                monitoring.use_tool_id(monitoring.COVERAGE_ID, __name__)
                monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._line)
                monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
            monitoring.restart_events()

        def _end_tracing(self) -> None:
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)

        def _line(self, code: CodeType, line: int) -> object:
            if code.co_filename.startswith(_PRODUCT):
                self._executed.add((code, line))
            return sys.monitoring.DISABLE  # until the next test

    else:  # takes twice as long

        def _begin_tracing(self) -> None:
            threading.settrace(self._enter)
            sys.settrace(self._enter)

        def _end_tracing(self) -> None:
            sys.settrace(None)
            threading.settrace(None)

        def _enter(self, frame: FrameType, event: str, _: object) -> Any:
            return self._step if frame.f_code.co_filename.startswith(_PRODUCT) else None

        def _step(self, frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                self._executed.add((frame.f_code, frame.f_lineno))
            return self._step

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Trace the lines of a test and of its fixtures."""
        self._executed = set()
        self._starts_process = False
        self._begin_tracing()
        started = time.monotonic()
        try:
            return (yield)
        finally:
            number = len(self._tests)
            is_quick = not any(map(item.get_closest_marker, ("java", "slow")))
            self._tests.append(Guard(item.nodeid, round(time.monotonic() - started, 3), is_quick))
            for executed in _lines(list(self._executed)):  # a copy: a thread that the test has left may go on
                self._lines[executed].append(number)
            if self._starts_process:
                self._with_process.append(number)

    def pytest_sessionfinish(self) -> None:
        self._end_tracing()
        lines: defaultdict[str, dict[int, list[int]]] = defaultdict(dict)
        for (file, line), numbers in self._lines.items():
            lines[file][line] = numbers
        at_import: defaultdict[str, list[int]] = defaultdict(list)
        for file, line in _lines(self._at_import):
            at_import[file].append(line)
        report = {"tests": self._tests, "lines": lines, "with_process": self._with_process, "at_import": at_import}
        self._file.write_text(json.dumps(report), encoding="utf-8")


def _lines(executed: Iterable[tuple[CodeType, int]]) -> set[tuple[str, int]]:
    return {(str(Path(code.co_filename).relative_to(ROOT)), line) for code, line in executed}


class Touched:
    """What was written down in `files`, each by a run of other tests."""

    def __init__(self, *files: Path) -> None:
        self._tests: list[Guard] = []
        self._lines: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._with_process: list[int] = []
        self._at_import: defaultdict[str, set[int]] = defaultdict(set)
        for file in files:
            self._add(json.loads(file.read_text(encoding="utf-8")))

    def _add(self, notes: dict[str, Any]) -> None:
        first = len(self._tests)
        self._tests += [Guard(*each) for each in notes["tests"]]
        self._with_process += [first + number for number in notes["with_process"]]
        for file, lines in notes["lines"].items():
            for line, numbers in lines.items():
                self._lines[file][int(line)] += [first + number for number in numbers]
        for file, at_import in notes["at_import"].items():
            self._at_import[file].update(at_import)

    def is_at_import(self, change: Change, text: str) -> bool:
        """Return whether the changed statement of `text` is executed before the first test."""
        return not change.is_in_function or not self._at_import[change.file].isdisjoint(statement_at(text, change.line))

    def tests_of(self, change: Change, text: str) -> list[Guard]:
        """Return the tests that execute the changed statement of `text`, those that will soonest notice it first.

        For a change outside of functions these are the tests that execute any line of the file.  A test that starts a
        process counts as one that executes everything, because processes of the product are not traced.
        """
        lines = self._lines[change.file]
        executing = list(lines.values())
        if change.is_in_function:
            executing = [lines[line] for line in statement_at(text, change.line)]
        found = {*self._with_process, *(number for numbers in executing for number in numbers)}
        path = Path(change.file)
        near = (f"tests/{path.parent}/test_{path.stem}", f"tests/{path.parent}/")

        def order(test: Guard) -> tuple[bool, bool, float]:
            return not test.is_quick, not test.name.startswith(near[0]), test.seconds

        return sorted((self._tests[number] for number in found), key=order)


@functools.lru_cache(2)
def _statements(text: str) -> list[range]:
    """Return the lines of each statement; of one that contains others, the lines of its head."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            assert node.end_lineno is not None
            body: list[ast.stmt] = getattr(node, "body", [])
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            found.append(range(node.lineno, end + 1))
    return found


def statement_at(text: str, line: int) -> range:
    """Return the lines of the smallest statement of `text` that has `line`."""
    return min((lines for lines in _statements(text) if line in lines), key=len, default=range(line, line + 1))
