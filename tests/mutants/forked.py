"""A pytest plugin: runs tests in forks, each with another change of the product.

To collect all tests takes ten seconds, and to try a change mostly some milliseconds.  So one process collects them and
then forks for each `Trial` that it receives: the child exchanges the code of the changed functions, runs the tests of
the trial until one fails, and ends.  `--trials-from DESCRIPTOR` is the open connection to slot.py.
"""

import functools
import gc
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Final, NamedTuple

import pytest

from tests.mutants.mutant import ROOT

NO_EXCHANGE: Final = "the change cannot be put into code that has been imported"
NO_END: Final = "no end of "  # and the id of the test
ENDED: Final = "the process ended"
# Address space that a changed program may take beyond what it has: a loop may fill the memory.  Java needs more.
_MEMORY: Final = 2 * 1024**3
_TEARDOWN: Final = 10.0  # seconds


class Trial(NamedTuple):
    """The text of `file` before and after a change, and the ids of tests, each with its time limit in seconds.

    Two equal texts try the tests without a change.
    """

    file: str
    before: str
    after: str
    tests: list[tuple[str, float]]
    needs_java: bool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--trials-from", type=int, help="the descriptor of the connection from which trials come")


def pytest_configure(config: pytest.Config) -> None:
    if (descriptor := config.getoption("--trials-from")) is not None:
        config.pluginmanager.register(Forks(Connection(descriptor)))


class Forks:
    """Receives trials and answers with what has caught the change: a test, NO_EXCHANGE, or None.

    It sends None when all is imported, and then waits for the first trial.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failed is None:
            self._failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run trials in place of the tests, until there are no more."""
        items = {item.nodeid: item for item in session.items}
        functions = functions_by_file()
        self._connection.send(None)
        while True:
            try:
                trial: Trial = self._connection.recv()
            except EOFError:
                return True
            file = str(ROOT / trial.file)
            self._connection.send(self._outcome(trial, session, items, functions.get(file, [])))

    def _outcome(
        self, trial: Trial, session: pytest.Session, items: Mapping[str, pytest.Item], functions: list[FunctionType]
    ) -> str | None:
        reader, writer = Pipe(duplex=False)
        process = os.fork()
        if process == 0:
            try:
                os.setsid()
                reader.close()
                self._run(trial, session, items, functions, writer)
            finally:
                os._exit(0)
        writer.close()
        with reader:
            try:
                caught_by: str | None = reader.recv()
            except EOFError:
                caught_by = ENDED
        _end(process)
        return caught_by

    def _run(
        self,
        trial: Trial,
        session: pytest.Session,
        items: Mapping[str, pytest.Item],
        functions: list[FunctionType],
        answer: Connection,
    ) -> None:
        if trial.after != trial.before and not exchange(functions, trial.before, trial.after):
            answer.send(NO_EXCHANGE)
            return
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        if not trial.needs_java:
            most = _address_space() + _MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        chosen = [items[name] for name, _ in trial.tests]
        for (name, limit), item, following in zip(trial.tests, chosen, [*chosen[1:], None], strict=True):
            signal.signal(signal.SIGALRM, _too_late(answer, name))
            signal.setitimer(signal.ITIMER_REAL, limit)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self._failed is not None:
                break
        answer.send(self._failed)
        session._setupstate.teardown_exact(None)  # the servers of fixtures


def _too_late(answer: Connection, name: str) -> Callable[[int, FrameType | None], None]:
    def end(number: int, frame: FrameType | None) -> None:
        answer.send(f"{NO_END}{name}")
        os.killpg(os.getpid(), signal.SIGKILL)  # its servers too

    return end


def _end(process: int) -> None:
    """Wait until a child has left its fixtures, and end what remains of its processes."""
    limit = time.monotonic() + _TEARDOWN
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < limit:
        time.sleep(0.005)
    os.killpg(process, signal.SIGKILL)  # the child was not waited for: its group exists
    os.waitpid(process, 0)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def functions_by_file() -> dict[str, list[FunctionType]]:
    """Return all functions that exist, by the file of their code."""
    gc.unfreeze()  # conftest.py has hidden them from the garbage collection
    found: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found[each.__code__.co_filename].append(each)
    gc.collect()
    gc.freeze()
    return found


def exchange(functions: Iterable[FunctionType], before: str, after: str) -> bool:
    """Give `functions` the code that they have in the text `after`; return whether that has changed any.

    Arguments: `functions`, functions of one file; `before`, the text of that file as it was imported.
    """
    has_changed = False
    for function in functions:
        code = function.__code__
        name = code.co_qualname
        old, new = _codes(before, code.co_filename).get(name, []), _codes(after, code.co_filename).get(name, [])
        places = [each.co_firstlineno for each in old]
        if code.co_firstlineno not in places:
            continue  # made by a decorator, such as the methods of a dataclass
        if len(new) != len(old):
            return False
        changed = new[places.index(code.co_firstlineno)]
        if changed.co_freevars != code.co_freevars:
            return False
        if (changed.co_code, changed.co_consts, changed.co_names) != (code.co_code, code.co_consts, code.co_names):
            function.__code__ = changed
            has_changed = True
    return has_changed


@functools.lru_cache(2)
def _codes(text: str, file: str) -> dict[str, list[CodeType]]:
    """Return the code of each function of `text` by its qualified name, several of one name in their order."""
    found: defaultdict[str, list[CodeType]] = defaultdict(list)
    waiting = [compile(text, file, "exec")]
    while waiting:
        code = waiting.pop(0)
        found[code.co_qualname].append(code)
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found
