"""pytest fixtures for tests against an in-memory ZooKeeper; no plugin for async tests is needed.

    pytest_plugins = ["zkwire.testing.fixtures"]             # in the topmost conftest.py; or pytest -p ...
    from zkwire.testing.fixtures import zk, zk_server        # or so, in any conftest.py or test module

    async def test_service(zk): ...                          # zk: a connected Client
    async def test_restart(zk, zk_server): ...               # zk_server: the running Server that it uses
    def test_script(zk_process): ...                         # zk_process: a ServerProcess, for tests that block

An `async def` test that uses one of them runs in an event loop of its own, together with the server and the client:
there is no thread and no other process. The test fails when it takes too long, leaves a task, or causes a call
of the loop's exception handler. Other tests are not affected. A fixture `zk_options` that returns Options changes the
settings. The examples of a Hypothesis test share one server and one client. A unittest.TestCase has a loop of its own,
so it cannot use `zk` and `zk_server`. Any test can use `zk_process`, a server in a process of its own.

This is the only module of the package that imports the client, and the only one that needs pytest.
"""

import asyncio
import contextlib
import functools
import gc
import inspect
import traceback
import unittest
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

import zkwire
from zkwire.testing.memory.process import ServerProcess
from zkwire.testing.memory.server import Server

__all__ = ["Options", "zk", "zk_process", "zk_server"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that a fixture `zk_options` may return.

    Args:
        server: Keyword arguments for Server.
        client: Keyword arguments for zkwire.connect.
        time_limit: The seconds that a test may take.
        process: Keyword arguments for the ServerProcess of `zk_process`.
    """

    server: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    time_limit: float = 60.0
    process: Mapping[str, Any] = field(default_factory=dict)


@pytest.fixture
def zk_server(request: pytest.FixtureRequest) -> Server:
    """Give the test a running Server of its own, in the loop of the test."""
    return _stage_of(request).server


@pytest.fixture
def zk(request: pytest.FixtureRequest) -> zkwire.Client:
    """Give the test a Client connected to its Server, in the loop of the test; it is closed after the test."""
    return _stage_of(request).connect()


@pytest.fixture
def zk_process(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Give the test a ServerProcess of its own; it ends after the test.

    It is for tests without an event loop, and for clients in other threads and processes.
    """
    with ServerProcess(**_options(request).process) as server:
        yield server


class _Stage:
    """The event loop of one test, with its server and its client."""

    def __init__(self, options: Options) -> None:
        self.server = Server(**options.server)
        self._options = options
        self._client: zkwire.Client | None = None
        self._complaints: list[str] = []
        self._is_open = True
        self._runner = asyncio.Runner()
        self._runner.get_loop().set_exception_handler(self._complain)
        try:
            self._runner.run(self.server.start())
        except BaseException:
            self._runner.close()
            raise

    def connect(self) -> zkwire.Client:
        self._client = self.run(zkwire.connect(self.server.hosts, **self._options.client))
        return self._client

    def run(self, awaited: Awaitable[T]) -> T:
        """Run the test, one example of it, or what comes before, and fail when it takes too long."""
        __tracebackhide__ = True
        return self._runner.run(self._limited(awaited))

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """Close everything at the end of the block, and fail if the test left something."""
        __tracebackhide__ = True
        try:
            yield
        except BaseException as error:
            self.close()
            for complaint in self._complaints:
                error.add_note(complaint)
            raise
        self.close()
        if self._complaints:
            pytest.fail("\n".join(self._complaints), pytrace=False)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with self._runner:
                self._runner.run(self._close())
                gc.collect()  # a future with an exception that was never retrieved reports it when it is collected

    async def _limited(self, awaited: Awaitable[T]) -> T:
        __tracebackhide__ = True
        timer = asyncio.timeout(self._options.time_limit)
        try:
            async with timer:
                return await awaited
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise pytest.fail.Exception(f"the test did not end within {self._options.time_limit:g} s") from error

    async def _close(self) -> None:
        if self._client is not None:
            self.server.end_faults()  # the client closes its session by a request, which a fault must not hit
            await self._client.close()
        await self.server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self._complaints += [f"a task was left: {task!r}" for task in left]

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        trace = "".join(traceback.format_exception(error)) if error else str(context)
        self._complaints.append(f"{context['message']}\n{trace}")


_STAGE = pytest.StashKey[_Stage]()


def _stage_of(request: pytest.FixtureRequest) -> _Stage:
    """Return the stage of a test; the first fixture that needs it creates it and puts the test into its loop."""
    item = request.node
    if _STAGE in item.stash:
        stage: _Stage = item.stash[_STAGE]
        return stage
    if issubclass(getattr(item, "cls", None) or object, unittest.TestCase):
        pytest.fail(
            f"{item.nodeid} asks for {request.fixturename}, but runs in an event loop of unittest: make the server and "
            "the client in asyncSetUp, by `server = await self.enterAsyncContext(zkwire.testing.Server())` and "
            "`zk = await self.enterAsyncContext(zkwire.connect(server.hosts))`",
            pytrace=False,
        )
    test: Any = getattr(item, "obj", None)  # a doctest has none
    given = getattr(test, "hypothesis", None)  # set by Hypothesis, which calls `inner_test` for each example
    inner = test if given is None else given.inner_test
    if not inspect.iscoroutinefunction(inner):
        pytest.fail(
            f"{item.nodeid} asks for {request.fixturename}, which lives in the event loop of an async test: make the "
            "test `async def`, or ask for `zk_process` instead, a server in a process of its own",
            pytrace=False,
        )
    stage = _Stage(_options(request))
    item.stash[_STAGE] = stage

    def leave() -> None:
        """Undo what is done here, also for a test with a setup that failed; the test may be run again."""
        item.obj = test
        if given is not None:
            given.inner_test = inner
        del item.stash[_STAGE]
        stage.close()

    item.addfinalizer(leave)
    if given is None:
        item.obj = _on_stage(stage, test, answers_coroutine=type(item) is not pytest.Function)
    else:
        given.inner_test = _on_stage(stage, inner, is_last=False)  # one example; all share the stage
        item.obj = _on_stage(stage, test)
    return stage


def _options(request: pytest.FixtureRequest) -> Options:
    """Return what the fixture `zk_options` returns, the defaults if the test sees none."""
    try:
        options: Options = request.getfixturevalue("zk_options")
    except pytest.FixtureLookupError as error:
        if error.argname != "zk_options":  # zk_options exists, but one of its own fixtures does not
            raise
        return Options()
    return options


def _on_stage(stage: _Stage, test: Callable[..., Any], *, is_last: bool = True, answers_coroutine: bool = False) -> Any:
    """Return a plain function that runs `test` in the loop of `stage`, and closes that if this is the last run.

    When a plugin for async tests handles the test, too, the plugin gets a coroutine that does nothing.
    """
    is_async = inspect.iscoroutinefunction(test)

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> Coroutine[Any, Any, None] | None:
        __tracebackhide__ = True
        with stage.ends() if is_last else contextlib.nullcontext():
            answer = test(*args, **kwargs)
            if is_async:
                stage.run(answer)
        return asyncio.sleep(0) if answers_coroutine else None

    return run
