"""How async tests run, and the servers that they run against.

An ``async def`` test gets an event loop of its own and a time limit, and fails if it leaves a task behind or if
anything was reported to the loop's exception handler. There are no async fixtures: helpers are async context
managers.
"""

import asyncio
import functools
import gc
import inspect
import itertools
import os
import pkgutil
import re
import signal
import traceback
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import zkwire
from tests.support import examples, given, planted
from tests.support.java import needs_java
from zkwire.testing import RealServer, ServerProcess, ZooKeeperMissingError, find_zookeeper

AsyncTest = Callable[..., Coroutine[Any, Any, None]]

DEFAULT_LIMIT = 60.0

_ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)

examples.register()

_path_numbers = itertools.count(1)
_new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None  # asyncio's own


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--address", help="host:port of a server in place of the one that is started for `zookeeper`")
    parser.addoption("--loop", help='what makes the event loops of async tests, such as "uvloop:new_event_loop"')


def pytest_configure(config: pytest.Config) -> None:
    global _new_loop
    if made_by := config.getoption("--loop"):
        _new_loop = pkgutil.resolve_name(made_by)


def pytest_collection_finish() -> None:
    # Each async test ends with a garbage collection, which need not visit all loaded modules every time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(tryfirst=True)  # ahead of the choice by -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need Java; expect a test marked `since` to fail, and how, where the real server is older."""
    for item in items:
        if needs_java(item):
            item.add_marker(pytest.mark.java)
    marked = [item for item in items if isinstance(item, pytest.Function) and item.get_closest_marker("since")]
    if address := config.getoption("--address"):
        given.choose(config, items, address)
        return
    try:
        there = find_zookeeper().version if marked else ""
    except ZooKeeperMissingError:
        return  # the first test that needs a server reports it
    for item in marked:
        lacking = [
            marker
            for marker in item.iter_markers("since")
            if not item.get_closest_marker("memory") and _as_numbers(there) < _as_numbers(marker.args[0])
        ]
        if lacking:  # an old server refuses the oldest of several features that it lacks
            first = min(lacking, key=lambda marker: _as_numbers(marker.args[0]))
            version, what = first.args
            reason = f"{what} came with ZooKeeper {version}, this is {there}"
            raises = first.kwargs.get("raises", zkwire.UnimplementedError)
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason, raises=raises))


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    marker = pyfuncitem.get_closest_marker("limit")
    limit = float(marker.args[0]) if marker else DEFAULT_LIMIT
    test = pyfuncitem.obj
    given = getattr(test, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        # A test of hypothesis: each example gets a loop of its own.
        given.inner_test = _as_sync(given.inner_test, limit)
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = inspect.signature(test).parameters
    _run(test, limit, **{name: value for name, value in pyfuncitem.funcargs.items() if name in wanted})
    return True


def _as_sync(test: AsyncTest, limit: float) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        _run(test, limit, *args, **kwargs)

    return run


def _run(test: AsyncTest, limit: float, /, *args: object, **kwargs: object) -> None:
    """Run one async test in a fresh event loop and fail if it leaves anything behind."""
    complaints: list[str] = []

    def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        complaints.append(f"{context['message']}\n{''.join(traceback.format_exception(error)) if error else context}")

    async def body() -> None:
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                await test(*args, **kwargs)
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise pytest.fail.Exception(f"the test did not end within {limit:g} s") from error
        leaked = asyncio.all_tasks() - {asyncio.current_task()}
        opening = {task for task in leaked if "_accept_connection2" in str(task.get_coro())}
        if opening:  # asyncio's own, one for each connection that a listener accepts: it ends by itself
            leaked -= opening
            await asyncio.wait(opening)
        complaints.extend(f"a task was left behind: {task!r}" for task in leaked)

    with asyncio.Runner(debug=False, loop_factory=_new_loop) as runner:
        runner.get_loop().set_exception_handler(complain)
        runner.run(body())
        gc.collect(1)  # a future whose exception was never retrieved reports it when it is collected
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


@pytest.fixture
def heeds_signals() -> Iterator[None]:
    """Undo that the test run was started to ignore signals, as a shell starts what runs in the background."""
    usual = {signal.SIGINT: signal.default_int_handler}
    ignored = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, usual.get(number, signal.SIG_DFL))
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest) -> Iterator[RealServer | given.Server]:
    """One real ZooKeeper for the whole run: leave it running, and keep to ``path``."""
    address = request.config.getoption("--address")
    yield from _serve() if address is None else [given.Server(address)]


@pytest.fixture
def zookeeper_own() -> Iterator[RealServer]:
    """A real ZooKeeper for this test alone, running, to be stopped, killed, paused and restarted at will."""
    yield from _serve()


def _serve() -> Iterator[RealServer]:
    try:
        server = RealServer(fsync=False)  # no test cuts the power
    except ZooKeeperMissingError as error:
        # Not a skip, and not one failure among many: without a server most of the suite would test nothing.
        pytest.exit(str(error), returncode=pytest.ExitCode.TESTS_FAILED)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.close())


@pytest.fixture(scope="session")
def memory() -> Iterator[ServerProcess]:
    """One in-memory server for the whole run, configured as the real one: keep to ``path``."""
    with ServerProcess(tick_time=0.5, max_session_timeout=60.0) as server:
        yield server


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    """A znode path that no other test uses; the node does not exist yet."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")
    run = f"-{os.getpid()}" if request.config.getoption("--address") else ""  # where other runs have left nodes
    return f"/t-{name}{run}-{next(_path_numbers)}"


@pytest.fixture
def no_secret_printed(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> Iterator[planted.Watch]:
    """Fail the test if a planted secret or the password of a session is printed anywhere; see planted.py."""
    watch = planted.Watch(monkeypatch)
    watch.begin()
    yield watch
    watch.end()
    for warning in recwarn:
        watch.add("a warning", str(warning.message))
    out, err = capfd.readouterr()
    watch.add("the output", out + err)
    watch.check()
