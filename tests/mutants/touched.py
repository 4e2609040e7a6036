"""A pytest plugin: which tests execute which statements of the product?  Only those need to try a change.

`--note-lines FOLDER` writes that down there, a file for each process, with the time that each test took; `--only FILE`
runs only the tests whose ids the file contains, one in each line.

To trace each line would take many times as long as the tests.  So the product is compiled with a store in front of
each statement, which sets the statement's own byte.
"""

import ast
import builtins
import functools
import json
import os
import sys
import time
from collections.abc import Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

import pytest

from tests.mutants.changes import Change
from tests.mutants.mutant import ROOT

WITHOUT_JAVA: Final = "not java"  # the marks of tests, as an argument of pytest
WITH_JAVA: Final = "java"
_PRODUCT: Final = ("zkwire", "recipes")
_PROCESSES: Final = ("subprocess.Popen", "os.fork", "os.posix_spawn")
_NAME: Final = "_executed_statements"  # of the bytes, in the module builtins
_NO, _YES = b"01"  # so that the bytes are a number that int() reads


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note-lines", type=Path, help="write to this folder which tests execute which lines")
    parser.addoption("--only", type=Path, help="run only the tests in this file")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before anything of the product is imported."""
    folder = early_config.known_args_namespace.note_lines
    if folder is not None:
        early_config.pluginmanager.register(Notes(folder))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file: Path | None = config.getoption("--only")
    if file is not None:
        wanted = set(file.read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]


class Guard(NamedTuple):
    """A test by its id, which took `seconds`."""

    name: str
    seconds: float
    needs_java: bool


class Notes(MetaPathFinder):
    """Records the statements that each test executes, and writes them into `folder` at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._executed = bytearray()
        self._statements: list[tuple[str, int]] = []  # the file and the first line of each
        self._at_import: str | None = None
        self._starts_process = False
        self._tests: list[tuple[Guard, bool, str]] = []
        vars(builtins)[_NAME] = self._executed
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object, processes: tuple[str, ...] = _PROCESSES) -> None:
        # A hook cannot be taken away: it is called when the module is gone, too, hence the default.
        self._starts_process |= event in processes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of the product, which is then compiled by `compiled`."""
        if name.partition(".")[0] not in _PRODUCT:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = _Loader(name, spec.origin, self)
        return spec

    def compiled(self, data: bytes, path: str) -> CodeType:
        """Return the code of a file, in which each statement sets its byte."""
        file, first = str(Path(path).relative_to(ROOT)), len(self._statements)
        noting = _Noting(first)
        tree = noting.visit(ast.parse(data, path))
        self._statements += [(file, line) for line in noting.lines]
        self._executed += bytes([_NO]) * len(noting.lines)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def _taken(self) -> str:
        """Return the statements that were executed since the last call: the digits of a number, the last one first."""
        digits = f"{int(bytes(self._executed[::-1]) or b'0', 2):x}"
        self._executed[:] = bytes([_NO]) * len(self._executed)
        return digits

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the statements of a test and of its fixtures."""
        before = self._taken()
        self._at_import = self._at_import or before  # of the modules
        self._starts_process = False
        started = time.monotonic()
        try:
            return (yield)
        finally:
            needs_java = item.get_closest_marker("java") is not None
            guard = Guard(item.nodeid, round(time.monotonic() - started, 3), needs_java)
            self._tests.append((guard, self._starts_process, self._taken()))

    def pytest_sessionfinish(self) -> None:
        report = {"statements": self._statements, "at_import": self._at_import or "0", "tests": self._tests}
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(report), encoding="utf-8")


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, notes: Notes) -> None:
        super().__init__(name, path)
        self._notes = notes

    def get_code(self, fullname: str) -> CodeType:
        return self._notes.compiled(self.get_data(self.path), self.path)


class _Noting(ast.NodeTransformer):
    """Puts a store in front of each statement; `lines` are the first lines of the statements, from number `first`."""

    def __init__(self, first: int) -> None:
        self.lines: list[int] = []
        self._first = first

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self._with_stores(block))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self.generic_visit(part)
        return node

    def _with_stores(self, block: list[Any]) -> list[Any]:
        found: list[Any] = []
        for statement in block:
            # The first statements may be the docstring and what is imported from __future__: they must stay first.
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not (is_text or is_future):
                store = ast.parse(f"{_NAME}[{self._first + len(self.lines)}] = {_YES}").body[0]
                found.append(ast.copy_location(store, statement))
                self.lines.append(statement.lineno)
            found.append(self.generic_visit(statement))
        return found


class Touched:
    """What was written down in `folders`, each by a run of other tests."""

    def __init__(self, *folders: Path) -> None:
        # For each process that ran tests: the statements by their lines, and the tests, each with what it executed.
        self._processes: list[tuple[dict[tuple[str, int], int], list[tuple[Guard, int]]]] = []
        self._with_process: list[Guard] = []
        self._at_import: set[tuple[str, int]] = set()
        for file in (file for folder in folders for file in folder.glob("*.json")):
            notes = json.loads(file.read_text(encoding="utf-8"))
            lines = [(file, line) for file, line in notes["statements"]]
            masks = {line: 1 << number for number, line in enumerate(lines)}
            tests = [(Guard(*guard), starts, int(digits, 16)) for guard, starts, digits in notes["tests"]]
            self._processes.append((masks, [(guard, executed) for guard, _, executed in tests]))
            self._with_process += [guard for guard, starts, _ in tests if starts]
            at_import = int(notes["at_import"], 16)
            self._at_import.update(line for line, mask in masks.items() if at_import & mask)

    def is_at_import(self, change: Change, text: str) -> bool:
        """Return whether the changed statement of `text` is executed before the first test."""
        lines = {(change.file, line) for line in statement_at(text, change.line)}
        return not change.is_in_function or not self._at_import.isdisjoint(lines)

    def tests_of(self, change: Change, text: str) -> list[Guard]:
        """Return the tests that execute the changed statement of `text`, those that will soonest notice it first.

        For what is executed at import these are the tests that execute any line of the file.  A test that starts a
        process counts as one that executes everything, because processes of the product are not traced.
        """
        lines = range(sys.maxsize) if self.is_at_import(change, text) else statement_at(text, change.line)
        found = set(self._with_process)
        for masks, tests in self._processes:
            of_change = sum(mask for (file, line), mask in masks.items() if file == change.file and line in lines)
            found.update(guard for guard, executed in tests if executed & of_change)
        path = Path(change.file)
        near = (f"tests/{path.parent}/test_{path.stem}", f"tests/{path.parent}/")

        def order(test: Guard) -> tuple[bool, bool, float]:
            return test.needs_java, not test.name.startswith(near[0]), test.seconds

        return sorted(found, key=order)


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
