"""A pytest plugin: `--processes N` runs the tests in N processes, each of which takes one file of tests after another.

The tests are collected once, then the process forks.  Whichever process is free takes the next file, so that no table
of durations is needed.  The output of the first process is shown as it comes, that of the others at the end.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final, NoReturn

import pytest
from _pytest.capture import CaptureManager
from hypothesis import given, settings
from hypothesis import strategies as st

TESTS: Final = Path(__file__).parent.parent
# The tests with one of these fixtures share an ensemble, which takes long to start: one process runs them all.
TOGETHER: Final = ("_one_ensemble", "_reconfigured", "secure")
# The tests in this folder wait more than they compute: they begin early, so that the others fill their pauses.
WAITING: Final = TESTS / "ensembles"
# The tests in this file are many and long: each test function is a turn.
APART: Final = TESTS / "recipes" / "test_every_recipe.py"
# A turn is this many bytes in a pipe.  A process reads them at once, so no other process gets a part of them.
SIZE: Final = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Turns(config), "turns")


class Turns:
    """The turns of one run: which files are left, and the other processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._count = config.getoption("--processes")
        self._others: list[tuple[int, int]] = []  # the process ids, and the files that the processes print to
        self._pipe = 0
        self._groups: list[list[pytest.Item]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Collect; when no file is compiled yet, another process begins with the last one, until they meet."""
        helper = 0
        if self._count > 1 and not sys.dont_write_bytecode and not any(TESTS.rglob("test_*-pytest-*.pyc")):
            helper = os.fork()
            if not helper:
                _compile_from_the_end(session)
        try:
            return (yield)
        finally:
            if helper:
                os.kill(helper, signal.SIGKILL)
                os.waitpid(helper, 0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork, and run the tests of the files whose turns this process gets."""
        if self._count == 1 or session.testsfailed or session.config.option.collectonly:
            return None
        self._groups = _groups(session.items)
        _read_constants()
        self._pipe, giving = os.pipe()
        with open(giving, "wb") as pipe:  # closed at once: the turns end when the pipe is empty
            pipe.write(b"".join(number.to_bytes(SIZE, "big") for number in range(len(self._groups))))
        self._fork(session.config)
        session.testscollected = 0  # those of this process are counted below
        group = self._next_group()
        while group:
            session.testscollected += len(group)
            for item, following in zip(group, [*group[1:], None], strict=True):
                if following is None:
                    # The fixtures that the next test needs too are kept, so the next test must be known by now.
                    group = self._next_group()
                    following = group[0] if group else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Wait for the other processes; the run has failed when one of them has."""
        for pid, _ in self._others:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif code == pytest.ExitCode.OK and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                session.exitstatus = pytest.ExitCode.OK  # the others were faster, and took all the files

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Show what the other processes printed."""
        sys.stdout.flush()
        for _, output in self._others:
            with open(output, "rb") as printed:
                printed.seek(0)
                sys.stdout.buffer.write(printed.read())
        sys.stdout.flush()

    def _fork(self, config: pytest.Config) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        assert isinstance(capture, CaptureManager)
        sys.stdout.flush()
        sys.stderr.flush()
        for _ in range(min(self._count, len(self._groups)) - 1):
            output, name = tempfile.mkstemp()
            os.unlink(name)
            pid = os.fork()
            if pid:
                self._others.append((pid, output))
                continue
            # pytest captures into files that it has opened: this process needs its own.
            capture.stop_global_capturing()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            capture.start_global_capturing()
            capture.suspend_global_capture()
            self._others = []
            return

    def _next_group(self) -> list[pytest.Item]:
        """Return the tests of the next turn, or an empty list when all turns are taken."""
        turn = os.read(self._pipe, SIZE)
        return self._groups[int.from_bytes(turn, "big")] if turn else []


@settings(max_examples=200, database=None)
@given(st.text())
def _read_constants(text: str) -> None:
    """Have hypothesis read the constants of all modules, as it does once in a while: here, and not in each process."""


def _compile_from_the_end(session: pytest.Session) -> NoReturn:
    try:
        session.config.pluginmanager.unregister(name="terminalreporter")
        session.perform_collect([str(path) for path in sorted(TESTS.rglob("test_*.py"), reverse=True)])
    finally:
        os._exit(0)


def _groups(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests turn by turn, a file each for the most part, in the order in which the turns are begun.

    Whatever is begun last decides how long the other processes wait for the end.  So the ensembles come first, then
    files with tests that are marked `slow`, however short they are, and then the others, the longest first.
    """
    groups: dict[Path, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(_turn(item), []).append(item)
    slow = {turn for turn, tests in groups.items() if any(test.get_closest_marker("slow") for test in tests)}
    order = sorted(
        groups,
        key=lambda turn: (WAITING not in turn.parents, turn not in slow, -groups[turn][0].path.stat().st_size, turn),
    )
    return [groups[turn] for turn in order]


def _turn(item: pytest.Item) -> Path:
    """Return what the tests have in common that are run with this one."""
    assert isinstance(item, pytest.Function)
    for shared in TOGETHER:
        if shared in item.fixturenames:
            return WAITING / shared
    return item.path / item.originalname if item.path == APART else item.path
