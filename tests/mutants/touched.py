"""A pytest plugin: which tests call which functions of the product?  A change needs to be tried by those tests only.

`--note-calls FILE` writes that down, `--only FILE` runs only the tests whose ids the file contains, one in each line.
A test that starts a process counts as one that calls all functions.
"""

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import pytest

from tests.mutants.changes import Change
from tests.mutants.mutant import ROOT

_PRODUCT: Final = ("zkwire/", "recipes/")
_PROCESSES: Final = ("subprocess.Popen", "os.fork", "os.posix_spawn")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note-calls", type=Path, help="write to this file which tests call which functions")
    parser.addoption("--only", type=Path, help="run only the tests in this file")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before anything of the product is imported."""
    file = early_config.known_args_namespace.note_calls
    if file is not None:
        early_config.pluginmanager.register(Notes(file))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file: Path | None = config.getoption("--only")
    if file is not None:
        wanted = set(file.read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]


class Notes:
    """Takes note of the calls in each test, and writes them to `file` at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._called: set[CodeType] = set()
        self._at_import = self._called  # until the first test
        self._starts_process = False
        self._tests: defaultdict[CodeType, list[str]] = defaultdict(list)
        self._with_process: list[str] = []
        sys.addaudithook(self._audit)
        sys.settrace(self._trace)

    def _audit(self, event: str, _: object) -> None:
        self._starts_process |= event in _PROCESSES

    def _trace(self, frame: FrameType, event: str, _: object) -> None:
        self._called.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Trace the calls in a test and in its fixtures."""
        self._called = set()
        self._starts_process = False
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            for code in list(self._called):  # a copy: a thread that the test has left may call something meanwhile
                self._tests[code].append(item.nodeid)
            if self._starts_process:
                self._with_process.append(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        calls: defaultdict[str, set[str]] = defaultdict(set)
        for code, tests in self._tests.items():
            if (function := _key_of(code)).startswith(_PRODUCT):
                calls[function].update(tests)
        report = {
            "calls": {function: sorted(tests) for function, tests in sorted(calls.items())},
            "with_process": self._with_process,
            "at_import": sorted({key for code in self._at_import if (key := _key_of(code)).startswith(_PRODUCT)}),
        }
        self._file.write_text(json.dumps(report), encoding="utf-8")


def _key_of(code: CodeType) -> str:
    file = Path(code.co_filename)
    return _key(str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file), code.co_qualname)


def _key(file: str, function: str) -> str:
    """Return the name by which a function is found; a lambda, for example, counts as the function around it."""
    return f"{file}:{'.'.join(name for name in function.split('.') if not name.startswith('<'))}"


class Touched:
    """What was written down in `file`."""

    def __init__(self, file: Path) -> None:
        found = json.loads(file.read_text(encoding="utf-8"))
        self._calls: dict[str, list[str]] = found["calls"]
        self._with_process: list[str] = found["with_process"]
        self._at_import = set(found["at_import"])

    def tests_of(self, change: Change) -> list[str] | None:
        """Return the ids of the tests that call the function which is changed.

        Returns None for all tests: if the change is outside of functions, or the function is called at an import.
        """
        function = _key(change.file, change.scope)
        if not change.is_in_function or function in self._at_import:
            return None
        return sorted({*self._calls.get(function, []), *self._with_process})
