"""The commands run and elect: run a command while a lock is held, or while leading.

This process holds the lock, and a supervisor runs the command; see `supervisor` for how the command is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from recipes.command import kernel, supervisor
from recipes.common import this_process
from recipes.election import Election
from recipes.line.contenders import session_in_words
from recipes.line.lease import Lease
from recipes.lock import Lock
from zkwire import Client
from zkwire.command.options import connected

LOST: Final = 123
NOT_ACQUIRED: Final = 124
FAILED: Final = 125
CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
BY_SIGNAL: Final = 128  # and the number of the signal

_FEEDS: Final = 40  # in a session timeout
_SLOWEST_FEED: Final = 0.5  # seconds
# A larger share of the session timeout would be more than is certain while all is well: two fifths at least.
_MOST_GRACE: Final = 4
_NOT_CONFIRMED: Final = "the ensemble did not confirm in time that it is still held"


class RunError(Exception):
    """The command line has failed.  Arguments: `status`, the exit status; `text`, for the standard error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Signals:
    """The signals that arrive: they go to the command while it runs, and otherwise cancel the main task.

    Attributes: `first`, that has cancelled the task; `forward`, called with each one while the command runs;
    `has_stop`, whether one of them asks this process to end, and not, as SIGHUP may, to read its settings again.
    """

    first: int | None = None
    forward: Callable[[int], None] | None = None
    has_stop: bool = False

    def install(self) -> None:
        """Take the signals that are passed on, but for those that this process was started to ignore."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in supervisor.FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._arrived, number, task)

    def _arrived(self, number: int, task: asyncio.Task[Any]) -> None:
        self.has_stop |= number in (signal.SIGINT, signal.SIGTERM)
        if self.forward is not None:
            self.forward(number)
        else:
            self.first = self.first or number
            task.cancel()


@dataclass(frozen=True)
class Ended:
    """How a command has ended: its exit status, negative for a signal; and why the lock was lost, None if it was not.

    The lock counts as lost, too, if the command was ended because it might have been lost soon.  `was_started` is False
    if that was so before it began.
    """

    status: int
    loss: str | None
    was_started: bool = True

    @property
    def exit_status(self) -> int:
        """The exit status for zklock itself."""
        if self.loss is not None:
            return LOST
        return self.status if self.status >= 0 else BY_SIGNAL - self.status

    def loss_in_words(self) -> str:
        """Return why the lock was lost, and what that means for the command."""
        return f"{self.loss}; the command was {'ended' if self.was_started else 'not started'}"


class Command:
    """Runs a command, by the supervisor at the other end of a socket.

    Arguments: `words` of the command; `grace` in seconds; `signals`, which are passed on.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        words: list[str],
        grace: float,
        signals: Signals,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._words = words
        self._grace = grace
        self._signals = signals

    @property
    def is_to_end(self) -> bool:
        """Whether a signal that has arrived asks this process to end, whatever the command has made of it."""
        return self._signals.has_stop

    async def run(self, lease: Lease, variables: dict[str, str], session_timeout: float) -> Ended:
        """Run the command once, and return when its whole process group has ended.

        It is not started if the lock may be lost too soon to end it.
        Arguments: `lease`, under which it runs; `variables`, for its environment.
        Raises: RunError when it cannot be run, or the supervisor has been killed.
        """
        environment = {**os.environ, **variables}
        # Signals wait in the socket behind this order.
        self._signals.forward = lambda number: self._order({"signal": number})
        self._order({"run": self._words, "env": environment, "until": _until(lease), "grace": self._grace})
        try:
            started = await self._answer()
            if "errno" in started:
                status = NOT_FOUND if started["errno"] == errno.ENOENT else CANNOT_RUN
                raise RunError(status, f"{self._words[0]}: {started['text']}")
            if "late" in started:
                return Ended(0, _why_lost(lease) or _NOT_CONFIRMED, was_started=False)
            feeding = asyncio.create_task(self._feed(lease, session_timeout))
            try:
                ended = await self._answer(started["group"])
            finally:
                feeding.cancel()
        finally:
            self._signals.forward = None
        return Ended(ended["status"], _why_lost(lease) or (_NOT_CONFIRMED if ended["early"] else None))

    async def _feed(self, lease: Lease, session_timeout: float) -> None:
        """Have the supervisor know until when the lock is certain to be held, or that it is lost."""
        losing = asyncio.create_task(lease.lost())
        try:
            while not losing.done():
                await asyncio.wait([losing], timeout=min(session_timeout / _FEEDS, _SLOWEST_FEED))
                if not losing.done():
                    self._order({"until": _until(lease)})
            self._order({"end": True})
        finally:
            losing.cancel()

    def _order(self, order: dict[str, Any]) -> None:
        if not self._writer.is_closing():  # it is, when the supervisor was killed
            self._writer.write(json.dumps(order).encode() + b"\n")

    async def _answer(self, group: int | None = None) -> dict[str, Any]:
        """Return the next answer.  Raises: RunError without one; then the process group `group` has been killed."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
            while kernel.group_is_alive(group):
                await asyncio.sleep(0.05)
        raise RunError(FAILED, "the process that supervises the command was killed, and the command with it")


def _why_lost(lease: Lease) -> str | None:
    loss = lease.find_loss()
    return None if loss is None else loss.why


def _until(lease: Lease) -> float:
    # The clock first: what passes between the two lines makes the result earlier, not later.
    now = kernel.now()
    return now + lease.certain_for()


def run(options: argparse.Namespace) -> int:
    """Run the command under the lock; return the exit status."""
    return _with_supervisor(options, _run)


def elect(options: argparse.Namespace) -> int:
    """Run the command while leading, again and again until it ends by itself; return the exit status."""
    return _with_supervisor(options, _elect)


def _with_supervisor(options: argparse.Namespace, body: Callable[..., Any]) -> int:
    if not hasattr(os, "fork"):
        raise RunError(FAILED, "run and elect need a system with processes that fork")
    orders, pid = supervisor.start()  # before the event loop, which may start threads
    signals = Signals()
    try:
        return asyncio.run(_connected(options, body, orders, signals))
    except asyncio.CancelledError:
        assert signals.first is not None
        return BY_SIGNAL + signals.first
    finally:
        orders.close()
        with contextlib.suppress(ChildProcessError):  # if SIGCHLD is ignored, the kernel takes its status
            os.waitpid(pid, 0)  # it ends when the socket is closed


async def _connected(
    options: argparse.Namespace, body: Callable[..., Any], orders: socket.socket, signals: Signals
) -> int:
    signals.install()
    reader, writer = await asyncio.open_connection(sock=orders)
    command = Command(reader, writer, options.command, options.grace, signals)
    ended: list[int] = []
    try:
        async with connected(options) as zk:
            if options.grace > zk.session_timeout / _MOST_GRACE:
                raise RunError(
                    FAILED,
                    f"a grace of {options.grace:g} s is too long for a session timeout of {zk.session_timeout:g} s:"
                    f" take {zk.session_timeout / _MOST_GRACE:g} s at most, or a longer --session-timeout",
                )
            await body(zk, options, command, ended)
    except asyncio.CancelledError:
        if not ended:
            raise
        # The command has ended, and a signal has cut short what comes after it.
    finally:
        writer.close()
    return ended[-1]


async def _run(zk: Client, options: argparse.Namespace, command: Command, ended: list[int]) -> None:
    lock = Lock(zk, options.path, data=_data(options))
    if options.only_try:
        lease = await lock.try_acquire()
        if lease is None:
            raise RunError(NOT_ACQUIRED, f"the lock {options.path} is held by another client")
    else:
        try:
            lease = await lock.acquire(within=options.within)
        except TimeoutError as error:
            raise RunError(NOT_ACQUIRED, str(error)) from None
    came = await _under(lease, zk, options, command)
    ended.append(came.exit_status)
    if came.loss is not None:
        print(f"zklock: the lock {options.path} is lost: {came.loss_in_words()}", file=sys.stderr)
    await lease.release()


async def _elect(zk: Client, options: argparse.Namespace, command: Command, ended: list[int]) -> None:
    election = Election(zk, options.path, _data(options))
    while True:
        term = await election.acquire()
        came = await _under(term, zk, options, command)
        is_last = came.loss is None or options.once or command.is_to_end
        if is_last:
            ended.append(came.exit_status)
        if came.loss is not None:
            then = "" if is_last else "; waiting to lead again"
            print(
                f"zklock: the leadership of {options.path} is lost: {came.loss_in_words()}{then}",
                file=sys.stderr,
                flush=True,
            )
        await term.release()
        if ended:
            return


async def _under(lease: Lease, zk: Client, options: argparse.Namespace, command: Command) -> Ended:
    try:
        return await command.run(lease, _variables(lease, zk, options), zk.session_timeout)
    except RunError:
        await lease.release()
        raise


def _variables(lease: Lease, zk: Client, options: argparse.Namespace) -> dict[str, str]:
    return {
        "ZKLOCK_PATH": options.path,
        "ZKLOCK_TOKEN": str(lease.token),
        "ZKLOCK_NODE": lease.path,
        "ZKLOCK_SESSION": session_in_words(zk.session_id),
    }


def _data(options: argparse.Namespace) -> bytes:
    if options.data is not None:
        return os.fsencode(options.data)
    return this_process.in_words(os.path.basename(options.command[0]))
