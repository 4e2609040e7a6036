"""A portal for blocking code: an event loop in a thread of its own, on which threads use the client and the recipes.

    from zkwire.blocking import Portal

    with Portal() as portal, portal.enter(zkwire.connect("zk1:2181,zk2:2181")) as zk:
        portal.call(zk.ensure_path, "/reports")
        lock = portal.call(Lock, zk, "/locks/report")
        with portal.enter(lock.hold(within=5.0)) as lease:
            write_report(token=lease.token)

Nothing in here knows ZooKeeper: every function, coroutine function, `async with` and `async for` works through these
few verbs, so no method of the client or of a recipe exists twice.

What a thread cannot be given: a body that is cancelled.  When a lock is lost, Python cannot stop a thread that works
under it.  So a long body calls `portal.call(lease.check)` before each step that matters, which raises LockLostError,
and gives `lease.token` to whatever it changes.  At its end the `with` block raises LockLostError in any case.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, overload

__all__ = ["Portal"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

_END: Final = object()


class Portal:
    """An event loop in a thread, for code that blocks.  Any number of threads may use it at the same time.

    `with Portal() as portal:` starts and stops it.  A program that has no place for such a block, for example a web
    application, calls `start` once in each worker process, and `stop` at its end.  A portal that is still running when
    the program ends is stopped then.
    """

    def __init__(self) -> None:
        self._start = threading.Lock()  # not the one below: a forked process may not wait for that
        self._thread: threading.Thread | None = None
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # For the two below.  Reentrant: the garbage collector may close a dropped iterator where the lock is held.
        self._lock = threading.RLock()
        self._is_stopped = False
        self._running: set[_Running[Any]] = set()
        self._entered: dict[_Running[Any], None] = {}  # what `enter` has begun and not left, the oldest first

    def start(self) -> Portal:
        """Start the thread and its event loop, and return the portal.

        Returns:
            The portal.

        Raises:
            RuntimeError: If it has been started before, or no thread can be started.
            OSError: If the process has no file descriptor left for it.
            Exception: Whatever else the making of an event loop raises.

        Cancellation:
            A KeyboardInterrupt leaves no thread.
        """
        started: Future[None] = Future()
        # A daemon: the interpreter waits for any other thread before it calls what `atexit` knows.
        thread = threading.Thread(target=self._run, args=(started,), name="zkwire portal", daemon=True)
        if not self._start.acquire(blocking=False):
            raise RuntimeError("this portal has been started before: make a new one")
        self._thread, self._process = thread, os.getpid()
        try:
            thread.start()
            started.result()
        except BaseException:
            if not started.cancel() and started.exception() is None:  # a KeyboardInterrupt of this wait
                self.stop()
            else:  # a thread that has not begun by now does nothing
                self._thread = None
                self._start.release()
            if thread.ident is not None:
                thread.join()
            raise
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Leave what is still entered, cancel every other call, end the event loop and wait for its thread.

        What was entered last is left first: a lock is released before its client closes the session.  Does nothing if
        the portal does not run.

        Raises:
            RuntimeError: If it is called on the portal's own thread.
        """
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None or self._process != os.getpid():
            return
        if thread is threading.current_thread():
            raise RuntimeError("the portal's own thread cannot wait for its end: call stop() from another thread")
        atexit.unregister(self.stop)
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the portal was stopped before
            loop.call_soon_threadsafe(stopping.set)
        thread.join()

    def __enter__(self) -> Portal:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **named: P.kwargs) -> T: ...

    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T: ...

    def call(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Call `function` on the portal's event loop, and return its result, awaited if it can be.

        Client and recipes belong to one event loop: also what does not block, for example the making of a Lock, goes
        through here.

        Args:
            function: A function, or a coroutine function.
            args: Its positional arguments.
            named: Its keyword arguments.

        Returns:
            What `function` returns, awaited if it can be.

        Raises:
            RuntimeError: If the portal is not running, or is called on its own thread.
            Exception: Whatever `function` raises.

        Cancellation:
            A KeyboardInterrupt while this waits, or another exception that a signal handler raises (a worker's time
            limit), cancels the call, and goes on once the call has ended.
        """

        running = self._begin(_called(function, *args, **named))
        return running.wait(running.result)

    @contextlib.contextmanager
    def enter(self, context: AbstractAsyncContextManager[T, bool | None]) -> Iterator[T]:
        """Return a context manager that enters and leaves `context` on the portal's event loop.

        One task enters and leaves it, as locks require.  If `context` ends by itself meanwhile, because a lock is lost,
        the block goes on, and the error is raised at its end.

        Args:
            context: What ``async with`` takes.

        Returns:
            What ``with`` takes; it gives what `context` gives.

        Raises:
            RuntimeError: As `call`.
            Exception: Whatever `context` raises, on entering and on leaving.

        Cancellation:
            As `call`.
        """
        entered: Future[T] = Future()
        left: Future[BaseException | None] = Future()
        running = self._begin(_hold_open(context, entered, left))
        running.result.add_done_callback(lambda _: entered.cancel())
        self._entered[running] = None
        running.result.add_done_callback(lambda _: self._entered.pop(running, None))
        try:
            value = running.wait(entered)
        except CancelledError:  # it could not be entered: the result is the error
            running.result.result()
            raise
        try:
            yield value
        except GeneratorExit:  # dropped without having been left: `stop` leaves it
            raise
        except BaseException as error:
            if not self._leave(running, left, error):
                raise
        else:
            self._leave(running, left, None)

    def _leave(self, running: _Running[bool], left: Future[BaseException | None], error: BaseException | None) -> bool:
        """Have what `enter` has entered left, and wait; return whether it suppresses `error`."""
        if self._process != os.getpid():  # forked inside of the block: it is the parent's, which leaves it
            return False
        with contextlib.suppress(InvalidStateError):  # the context has ended by itself, and has cancelled it
            left.set_result(error)
        return running.wait(running.result)

    def iterate(self, items: AsyncIterable[T]) -> Iterator[T]:
        """Return an iterator over what `items` yields; leave it early with `close()`, or by leaving the `for` loop.

        Args:
            items: What ``async for`` takes.

        Returns:
            What ``for`` takes.

        Raises:
            RuntimeError: As `call`, at each item.
            Exception: Whatever `items` raises.

        Cancellation:
            As `call`, at each item.
        """
        iterator = self.call(aiter, items)
        try:
            while (item := self.call(anext, iterator, _END)) is not _END:
                yield cast(T, item)
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                # The garbage collector may drop the iterator on the portal's own thread, which cannot wait.
                is_own_thread = self._thread is threading.current_thread()
                closing = self._begin(_called(close), is_own_thread=is_own_thread)
                if not is_own_thread:
                    closing.wait(closing.result)

    def _begin(self, work: Coroutine[Any, Any, T], *, is_own_thread: bool = False) -> _Running[T]:
        """Have `work` run as a task of the event loop.

        Args:
            work: The coroutine.
            is_own_thread: Whether this is called on the portal's own thread, which may not wait for the end.
        """
        reason = None if is_own_thread else self._why_not()
        if reason is None:  # a forked process must not touch the lock: a thread of its parent may have held it
            with self._lock:
                if not self._is_stopped and self._loop is not None:
                    running = _Running(self._loop, work)
                    self._running.add(running)
                    running.result.add_done_callback(lambda _: self._running.discard(running))
                    return running
        work.close()
        raise RuntimeError(f"the portal cannot be used: {reason or 'it has been stopped'}")

    def _why_not(self) -> str | None:
        if self._thread is None:
            return "it has not been started: use `with Portal() as portal`, or call start()"
        if self._process != os.getpid():
            return f"it was started in process {self._process}, and a thread does not survive a fork: start one here"
        if self._thread is threading.current_thread():
            return "this is its own thread: await the coroutine in place of calling it here"
        return None

    def _run(self, started: Future[None]) -> None:
        if not started.set_running_or_notify_cancel():
            return
        try:
            with asyncio.Runner() as runner:
                runner.run(self._until_stopped(started))
        except BaseException as error:  # an event loop takes file descriptors, and there may be none
            if started.done():
                raise
            started.set_exception(error)

    async def _until_stopped(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        started.set_result(None)
        await self._stopping.wait()
        while self._entered:
            with contextlib.suppress(KeyError):  # the last one has just been left
                await self._entered.popitem()[0].end()
        with self._lock:
            self._is_stopped = True  # from here on nothing more begins
            left_over = list(self._running)
        await asyncio.sleep(0)  # those that have just been begun get their tasks
        for running in left_over:
            await running.end()


class _Running(Generic[T]):
    """A coroutine that another thread has begun on the event loop `loop`.

    It is not the future of `asyncio.run_coroutine_threadsafe`, because that one, when it is cancelled, counts as ended
    before its task has.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self.result: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        self._exit: BaseException | None = None
        loop.call_soon_threadsafe(self._start)

    def wait(self, future: Future[R]) -> R:
        """Wait for `future` and return its result; if a signal handler raises, cancel the task and wait for its end."""
        try:
            return future.result()
        except BaseException:  # if it is the result, then the task has ended, and cancelling does nothing
            with contextlib.suppress(RuntimeError):  # the event loop is closed: it has ended
                self._loop.call_soon_threadsafe(self.cancel)
            self.result.exception()
            raise

    def cancel(self) -> None:
        """Cancel the task; to be called on the event loop."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Cancel the task and wait until it has ended; to be called on the event loop."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._task = self._loop.create_task(self._guarded())
        self._task.add_done_callback(self._done)

    async def _guarded(self) -> T:
        try:
            return await self._work
        except (KeyboardInterrupt, SystemExit) as error:
            # It is meant for the thread that waits.  asyncio would end the event loop, and every other call with it.
            self._exit = error
            raise asyncio.CancelledError from None

    def _done(self, task: asyncio.Task[T]) -> None:
        self._work.close()  # the task may have been cancelled before it began
        if self._exit is not None:
            self.result.set_exception(self._exit)
        elif task.cancelled():
            self.result.set_exception(CancelledError("the portal was stopped, or the call was cancelled on its loop"))
        elif (error := task.exception()) is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(task.result())


async def _called(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    result = function(*args, **named)
    return await result if isinstance(result, Awaitable) else result


async def _hold_open(
    context: AbstractAsyncContextManager[T, bool | None], entered: Future[T], left: Future[BaseException | None]
) -> bool:
    """Enter `context`, leave it when the thread has left its block, and return whether its error is suppressed.

    Args:
        context: What to enter.
        entered: Gets what `context` gives.
        left: Is done when the thread has left: with the error of the block, or None.
    """
    value = await context.__aenter__()
    try:
        if (task := asyncio.current_task()) is not None and task.cancelling():  # `context` has swallowed it
            raise asyncio.CancelledError
        entered.set_result(value)
        error = await asyncio.wrap_future(left)
    except asyncio.CancelledError as cancelled:  # by a lock that was lost, or because the portal is being stopped
        if await context.__aexit__(type(cancelled), cancelled, cancelled.__traceback__):
            return False
        raise
    if error is None:
        return bool(await context.__aexit__(None, None, None))
    return bool(await context.__aexit__(type(error), error, error.__traceback__))
