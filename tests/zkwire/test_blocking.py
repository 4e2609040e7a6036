"""The portal: calls, contexts and streams from threads; what is raised, interrupted, lost and stopped."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import zkwire
from recipes import Lock, LockLostError
from zkwire.blocking import Portal
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as made:
        yield made


@pytest.fixture
def server(portal: Portal) -> Iterator[Server]:
    with portal.enter(Server()) as made:
        yield made


@pytest.fixture
def zk(portal: Portal, server: Server) -> Iterator[zkwire.Client]:
    with portal.enter(zkwire.connect(server.hosts)) as made:
        yield made


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run as a background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _limit_of_a_worker(*_: object) -> None:
    raise TimeoutError


# -- call ---------------------------------------------------------------------------------------------------------


def test_a_call_returns_what_the_coroutine_returns(portal: Portal, zk: zkwire.Client) -> None:
    assert portal.call(zk.create, "/a", b"x", ephemeral=True) == "/a"
    assert portal.call(zk.get, "/a")[0] == b"x"


def test_the_error_of_a_call_is_raised(portal: Portal, zk: zkwire.Client) -> None:
    with pytest.raises(zkwire.NoNodeError, match="/nothing"):
        portal.call(zk.get, "/nothing")
    with pytest.raises(ValueError, match="relative"):
        portal.call(zk.get, "relative")


# -- enter --------------------------------------------------------------------------------------------------------


def test_a_lock_is_held_inside_of_the_block(portal: Portal, zk: zkwire.Client) -> None:
    lock = portal.call(Lock, zk, "/lock")
    with portal.enter(lock.hold(within=5.0)) as lease:
        assert portal.call(lock.try_acquire) is None
        assert lease.token > 0
    again = portal.call(lock.try_acquire)
    assert again is not None
    portal.call(again.release)


def test_a_lost_lock_is_seen_by_check_and_raised_at_the_end(portal: Portal, zk: zkwire.Client) -> None:
    lock = portal.call(Lock, zk, "/lock")
    steps: list[str] = []

    def work_until_lost() -> None:
        with portal.enter(lock.hold()) as lease:
            portal.call(lease.check)
            steps.append("certain")
            portal.call(zk.delete, lease.path)
            portal.call(lease.lost)
            portal.call(lease.check)
            steps.append("not reached")

    with pytest.raises(LockLostError):
        work_until_lost()
    assert steps == ["certain"]


def test_what_cannot_be_entered_raises(portal: Portal, zk: zkwire.Client) -> None:
    lock = portal.call(Lock, zk, "/lock")
    with portal.enter(lock), pytest.raises(TimeoutError), portal.enter(portal.call(Lock, zk, "/lock").hold(within=0)):
        pass


@asynccontextmanager
async def forgiving() -> AsyncIterator[str]:
    with contextlib.suppress(KeyError):
        yield "value"


def test_a_context_may_suppress_the_error_of_its_block(portal: Portal) -> None:
    with portal.enter(forgiving()) as value:
        assert value == "value"
        raise KeyError
    with pytest.raises(IndexError), portal.enter(forgiving()):
        raise IndexError


# -- iterate ------------------------------------------------------------------------------------------------------


async def count_to(last: int, ended: threading.Event) -> AsyncIterator[int]:
    try:
        for number in range(last):
            yield number
    finally:
        ended.set()


def test_items_are_iterated_in_a_thread(portal: Portal) -> None:
    ended = threading.Event()
    assert list(portal.iterate(count_to(3, ended))) == [0, 1, 2]
    assert ended.is_set()


def test_an_iteration_that_is_left_early_ends_the_generator(portal: Portal) -> None:
    ended = threading.Event()
    for number in portal.iterate(count_to(3, ended)):
        if number == 1:
            break
    assert ended.wait(10)


# -- misuse -------------------------------------------------------------------------------------------------------


async def nothing() -> None:
    pass


def test_a_portal_that_does_not_run_says_what_to_do() -> None:
    portal = Portal()
    with pytest.raises(RuntimeError, match="with Portal"):
        portal.call(nothing)
    portal.start()
    with pytest.raises(RuntimeError, match="started before"):
        portal.start()
    portal.stop()
    portal.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        portal.call(nothing)


def test_a_call_on_the_portals_own_thread_is_refused(portal: Portal) -> None:
    async def misled() -> None:
        portal.call(nothing)

    with pytest.raises(RuntimeError, match="own thread"):
        portal.call(misled)
    with pytest.raises(RuntimeError, match="own thread"):
        portal.call(portal.stop)


# -- interrupts and the end ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("handler", [signal.default_int_handler, _limit_of_a_worker])
def test_what_a_signal_handler_raises_cancels_the_call_and_waits_for_its_end(portal: Portal, handler: Any) -> None:
    signal.signal(signal.SIGINT, handler)
    steps: list[str] = []

    async def slow() -> None:
        steps.append("begun")
        threading.Timer(0.1, _interrupt).start()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            steps.append("ended")

    with pytest.raises((KeyboardInterrupt, TimeoutError)):
        portal.call(slow)
    assert steps == ["begun", "ended"]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_during_the_wait_for_a_lock_leaves_no_ticket(portal: Portal, zk: zkwire.Client) -> None:
    lock = portal.call(Lock, zk, "/lock")
    other = portal.call(Lock, zk, "/lock")

    def interrupt_when_waiting() -> None:
        while len(portal.call(zk.get_children, "/lock")) < 2:
            time.sleep(0.01)
        _interrupt()

    with portal.enter(lock):
        interrupter = threading.Thread(target=interrupt_when_waiting)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt), portal.enter(other):
            pass
        interrupter.join()
        assert len(portal.call(zk.get_children, "/lock")) == 1


@asynccontextmanager
async def swallowing(waits: threading.Event, left: list[str]) -> AsyncIterator[None]:
    """A context that goes on when its entering is cancelled."""
    waits.set()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    try:
        yield
    finally:
        left.append("left")


def _waiting_threads() -> set[int]:
    """Return the threads that wait for a future."""
    frames = {thread: traceback.extract_stack(frame) for thread, frame in sys._current_frames().items()}
    return {thread for thread, stack in frames.items() if stack[-1].filename == threading.__file__}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("error", [KeyboardInterrupt, CancelledError])
def test_an_interrupt_and_stop_end_the_entering_of_a_context_that_swallows_it(error: type[BaseException]) -> None:
    waits, left, portal = threading.Event(), list[str](), Portal().start()

    def end() -> None:
        waits.wait()
        while threading.main_thread().ident not in _waiting_threads():
            time.sleep(0.01)
        if error is CancelledError:
            portal.stop()
        else:
            _interrupt()

    with ThreadPoolExecutor() as pool:
        pool.submit(end)
        with pytest.raises(error), portal.enter(swallowing(waits, left)):
            pytest.fail("the block has begun")
    assert left == ["left"]
    portal.stop()


def test_of_two_threads_that_start_a_portal_at_once_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both, portal = threading.Barrier(2), Portal()

    class Thread(threading.Thread):
        def __init__(self, **named: Any) -> None:
            if named["name"] == "zkwire portal":
                both.wait()
            super().__init__(**named)

    with monkeypatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setattr(threading, "Thread", Thread)
        errors = [each.exception() for each in [pool.submit(portal.start) for _ in range(2)]]
    portal.stop()
    assert sorted(str(each) for each in errors) == ["None", "this portal has been started before: make a new one"]


@pytest.mark.parametrize("begins", [False, True])
def test_an_interrupt_while_the_thread_is_started_leaves_none(begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    portal, start = Portal(), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if begins:
            start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            portal.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "zkwire portal"]
    if not begins:
        assert portal.start().call(int, "7") == 7
        portal.stop()


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt])
def test_a_portal_whose_start_fails_has_no_thread(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt strikes the thread that waits, and the others the one that makes the event loop."""
    portal = Portal()
    with monkeypatch.context() as patch:
        if error is KeyboardInterrupt:
            patch.setattr(Future, "result", Mock(side_effect=error))
        else:
            patch.setattr(asyncio, "Runner", Mock(side_effect=error))
        with pytest.raises(error):
            portal.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "zkwire portal"]
    if error is not KeyboardInterrupt:
        assert portal.start().call(int, "7") == 7
        portal.stop()


def test_stop_leaves_what_is_entered_the_last_first(server: Server) -> None:
    left: list[str] = []

    @asynccontextmanager
    async def noted(name: str) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0)
            left.append(name)

    portal = Portal().start()
    outer, inner = portal.enter(noted("outer")), portal.enter(noted("inner"))
    outer.__enter__()
    inner.__enter__()
    portal.stop()
    assert left == ["inner", "outer"]
    with pytest.raises(CancelledError, match="stopped"):
        inner.__exit__(None, None, None)


def test_stop_ends_a_call_of_another_thread() -> None:
    portal = Portal().start()
    waiting = threading.Event()

    async def for_ever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(portal.call, for_ever)
        assert waiting.wait(10)
        portal.stop()
        with pytest.raises(CancelledError, match="stopped"):
            call.result(10)


def test_calls_beside_stop_end_all() -> None:
    """A call that begins while the event loop ends must not wait for ever."""
    for _ in range(30):
        portal = Portal().start()
        go = threading.Barrier(5)

        def call_on(portal: Portal = portal, go: threading.Barrier = go) -> None:
            go.wait()
            while True:
                try:
                    portal.call(asyncio.sleep, 0)
                except (RuntimeError, CancelledError):
                    return

        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(call_on) for _ in range(4)]
            go.wait()
            portal.stop()
            for call in calls:
                call.result(30)


def test_a_program_that_ends_without_stop_closes_its_session(portal: Portal, server: Server) -> None:
    program = f"""
        import zkwire
        from zkwire.blocking import Portal
        portal = Portal().start()
        client = portal.enter(zkwire.connect({server.hosts!r}))
        zk = client.__enter__()
        portal.call(zk.create, "/mine", b"", ephemeral=True)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, check=True, timeout=60)
    with portal.enter(zkwire.connect(server.hosts)) as zk:
        assert portal.call(zk.exists, "/mine") is None


def test_a_forked_process_learns_that_it_has_no_thread() -> None:
    program = """
        import os, sys
        from zkwire.blocking import Portal
        async def nothing(): pass
        portal = Portal().start()
        child = os.fork()
        if child == 0:
            try:
                portal.call(nothing)
            except RuntimeError as error:
                os._exit(7 if "does not survive a fork" in str(error) else 8)
            os._exit(9)
        _, status = os.waitpid(child, 0)
        portal.stop()
        sys.exit(os.waitstatus_to_exitcode(status))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == 7


# -- ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_that_a_context_raises_again_does_not_end_a_portal(portal: Portal, error: type[BaseException]) -> None:
    with pytest.raises(error), portal.enter(asyncio.TaskGroup()):
        raise error
    _ended_tasks(portal)
    with pytest.raises(error):
        portal.call(_raises, error)
    _ended_tasks(portal)


def _raises(error: type[BaseException]) -> None:
    raise error


def _ended_tasks(portal: Portal) -> None:
    for _ in range(3):  # an event loop that has ended still runs what was scheduled
        portal.call(asyncio.sleep, 0)


def test_a_portal_without_file_descriptors_raises_and_can_be_started_later() -> None:
    script = """
        import resource
        from zkwire.blocking import Portal
        portal = Portal()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            portal.start()
        except OSError as error:
            print("refused")
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        with portal:
            print(portal.call(str))
        """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (ran.stdout, ran.returncode) == ("refused\n\n", 0)


def test_stop_leaves_what_was_dropped_the_last_first() -> None:
    left: list[int] = []

    @asynccontextmanager
    async def numbered(number: int) -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.append(number)

    portal = Portal().start()
    for number in range(10):
        portal.enter(numbered(number)).__enter__()  # nothing refers to the context manager any more
    portal.stop()
    assert left == list(reversed(range(10)))


def test_a_forked_process_leaves_the_block_to_its_parent() -> None:
    script = """
        import os, signal
        from contextlib import asynccontextmanager
        from zkwire.blocking import Portal

        @asynccontextmanager
        async def context():
            try:
                yield
            finally:
                print("left", flush=True)

        with Portal() as portal:
            with portal.enter(context()):
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                else:
                    assert os.waitpid(child, 0)[1] == 0
        """
    # Since 3.12, Python warns of a fork in a process with threads: that is the case that is tested.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", textwrap.dedent(script)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("left\n", "", 0)


def test_an_iterator_that_is_dropped_on_the_portals_thread_is_closed(portal: Portal) -> None:
    closed = threading.Event()

    class Numbers:
        def __aiter__(self) -> "Numbers":
            return self

        async def __anext__(self) -> int:
            return 1

        async def aclose(self) -> None:
            closed.set()

    held = [portal.iterate(Numbers())]
    assert next(held[0]) == 1
    portal.call(held.clear)
    assert closed.wait(20)
