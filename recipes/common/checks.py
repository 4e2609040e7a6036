"""Checks that several recipes make: of arguments, and that an object is used by a task, in one event loop only.

Futures must not be completed from another thread: a task that waits for one in a second event loop would never be
woken. asyncio.Lock and asyncio.Event do the same check, but only when they have to wait.
"""

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from math import inf
from types import UnionType
from typing import Any, ParamSpec, TypeVar

from zkwire import Client, ZooKeeperError

P = ParamSpec("P")
T = TypeVar("T")


def current_task() -> asyncio.Task[Any]:
    """Return the task that is running.

    Raises:
        RuntimeError: if no task is running, as in a callback of the event loop.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a lock is held by a task")
    return task


def checked_client(zk: Client) -> Client:
    """Return the client `zk` as recipes use it: without its `request_timeout`.

    Raises:
        TypeError: if it is no client.
    """
    try:
        return zk.unlimited
    except AttributeError:
        raise TypeError(f"pass the client that `await zkwire.connect(...)` has returned, not {zk!r}") from None


def check_number(allowed: str, value: float, least: int, most: float = inf, kind: type | UnionType = int) -> None:
    """Raise an error unless `value` is a number of the `kind`, from `least` to `most`.

    Args:
        allowed: The beginning of the error message: what the value may be.

    Raises:
        TypeError: if it is not of the kind; True and False are none.
        ValueError: if it is less or more.
    """
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{allowed}, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{allowed}, not {value!r}")


def checked_within(within: float | None) -> float | None:
    """Return `within` if it can limit a wait: None, or a number of seconds that is at least 0.

    Raises:
        TypeError: if it is neither a number nor None.
        ValueError: if it is less than 0.
    """
    if within is not None:
        check_number("within is a number of seconds from 0, or None", within, 0, kind=int | float)
    return within


def checked_data(data: bytes) -> bytes:
    """Return `data` if it is bytes.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"data is bytes, not {data!r}")
    return data


def checked_function(what: str, function: Callable[P, T] | None) -> Callable[P, T] | None:
    """Return a function that calls `function`, a user's, in a task of ours; None if it is None.

    A CancelledError would be taken for that task's own cancellation, and a ZooKeeperError for the server's or the
    session's: if `function` raises one, a RuntimeError is raised from it.  All its other errors are raised as they are.

    Raises:
        TypeError: if it cannot be called, or is async: its coroutine would be taken for its result.
    """
    if function is None:
        return None
    # An object with `async def __call__` is no coroutine function itself.
    if not callable(function) or iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise TypeError(f"{what} is a function that is not async, or None, not {function!r}")

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (asyncio.CancelledError, ZooKeeperError) as error:
            raise RuntimeError(f"{what} has raised {error!r}") from error

    return call


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that is running in this thread, None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def same_loop(loop: asyncio.AbstractEventLoop | None, what: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop, if it is `loop` or if `loop` is None.

    Args:
        what: The beginning of the error message: what belongs to `loop`.

    Raises:
        RuntimeError: in another event loop.
    """
    running = running_loop()
    if running is None:
        raise RuntimeError(f"{what} is used without an event loop: use it in the loop that has connected its client")
    if loop is not None and loop is not running:
        raise RuntimeError(f"{what} belongs to another event loop: connect a client in each event loop")
    return running
