"""The commands run and elect: run a command while a lock is held, or while leading.

This process holds the lock, and a supervisor runs the command; see `supervisor` for how the command is ended.
"""

import argparse
import asyncio
import contextlib
import errno
import json
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from recipes import Election, LeaderStream, Lease, Lock, ReadWriteLock, Semaphore
from recipes.command import kernel, supervisor
from recipes.common import this_process
from recipes.line.diagnostics import describe_session
from recipes.line.locking import Locking
from zkwire import Client, NoAuthError, ZooKeeperError
from zkwire.command import output
from zkwire.command.options import CommandError, beside, connected, tell_connection

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
GRACE: Final = 2.0  # seconds
_PATIENCE: Final = 2.0  # seconds: who waits for longer is told for whom
_RAREST: Final = 32.0  # seconds between two looks at who it is
_LONGEST: Final = 100  # characters of a holder's data that are told
_NOT_CONFIRMED: Final = "the ensemble did not confirm in time that it is still held"


@dataclass
class Signals:
    """The signals that arrive: they go to the command while it runs, and otherwise cancel the main task.

    Attributes:
        first: The signal that has cancelled the task, 0 if none has.
        forward: Called with each signal while the command runs.
        has_stop: Whether one of them asks this process to end, and not, as SIGHUP may, to read its settings again.
    """

    first: int = 0
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
    """How a command has ended.

    Attributes:
        status: Its exit status, negative for a signal.
        loss: Why the lock was lost, None if it was not.  It counts as lost, too, if the command was ended because it
            might have been lost soon.
        was_started: False if the lock was lost before the command began.
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


@dataclass
class Command:
    """Runs a command, by the supervisor at the other end of a socket.

    Args:
        reader: Gets the answers of the supervisor.
        writer: Takes the orders to it.
        words: The words of the command.
        signals: What is passed on to the command.

    Attributes:
        grace: From SIGTERM to SIGKILL, in seconds.
        ended: How it has ended for the last time, None if it is to run once more, or has not run.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    words: list[str]
    signals: Signals
    grace: float = GRACE
    ended: Ended | None = None

    async def run(self, lease: Lease, extra: dict[str, str], session_timeout: float) -> Ended:
        """Run the command once, and return when its whole process group has ended.

        It is not started if the lock may be lost too soon to end it.

        Args:
            lease: The lease under which it runs.
            extra: What is added to its environment.
            session_timeout: In seconds.

        Raises:
            CommandError: if it cannot be run, or the supervisor has been killed.
        """
        # Signals wait in the socket after this order.
        self.signals.forward = lambda number: self._order({"signal": number})
        self._order({"run": self.words, "env": {**os.environ, **extra}, "until": _until(lease), "grace": self.grace})
        try:
            started = await self._answer()
            if "errno" in started:
                status = NOT_FOUND if started["errno"] == errno.ENOENT else CANNOT_RUN
                raise CommandError(f"{self.words[0]}: {started['text']}", status)
            ended = {"status": 0, "early": True}
            if "group" in started:
                with beside(self._feed(lease, session_timeout)):
                    ended = await self._answer(started["group"])
        finally:
            self.signals.forward = None
        loss = lease._find_loss()
        why = loss.why if loss else _NOT_CONFIRMED if ended["early"] else None
        return Ended(ended["status"], why, "group" in started)

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
        if not self.writer.is_closing():  # it is, when the supervisor was killed
            self.writer.write(json.dumps(order).encode() + b"\n")

    async def _answer(self, group: int | None = None) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            CommandError: if the supervisor has been killed; then the process group `group` has been killed, too.
        """
        line = b""
        with contextlib.suppress(ConnectionError):
            line = await self.reader.readline()
        if line:
            return dict(json.loads(line))
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
            while kernel.group_is_alive(group):
                await asyncio.sleep(0.05)
        raise CommandError("the process that supervises the command was killed, and the command with it", FAILED)


def _until(lease: Lease) -> float:
    # The clock is read first: what passes between the two calls makes the result earlier, not later.
    return kernel.now() + lease.certain_for()


def run(options: argparse.Namespace) -> int:
    """Run the command under the lock, or while leading until it ends by itself; return the exit status."""
    if not hasattr(os, "fork"):
        raise CommandError("run and elect need a system with processes that fork", FAILED)
    # Others would see its name: a line of a shell in its place, or an assignment before it, may contain a password.
    if not (shutil.which(options.command[0], os.F_OK) or os.path.isdir(options.command[0])):
        raise CommandError("the first word after -- names no program; a shell's line needs sh -c", NOT_FOUND)
    orders, pid = supervisor.start()  # before the event loop, which may start threads
    signals = Signals()
    try:
        return asyncio.run(_with_session(options, orders, signals))
    except asyncio.CancelledError:
        return BY_SIGNAL + signals.first
    finally:
        orders.close()
        with contextlib.suppress(ChildProcessError):  # if SIGCHLD is ignored, the kernel takes its status
            os.waitpid(pid, 0)  # it ends when the socket is closed


async def _with_session(options: argparse.Namespace, orders: socket.socket, signals: Signals) -> int:
    signals.install()
    reader, writer = await asyncio.open_connection(sock=orders)
    command = Command(reader, writer, options.command, signals)
    try:
        async with connected(options) as zk:
            most = zk.session_timeout / _MOST_GRACE
            command.grace = min(GRACE, most) if options.grace is None else options.grace
            if command.grace > most:
                raise ValueError(f"--grace may be {most:g} at most with a session timeout of {zk.session_timeout:g} s")
            with contextlib.ExitStack() as telling:
                if not options.quiet:
                    telling.enter_context(beside(tell_connection(zk, "zklock")))
                    log, handler = logging.getLogger("recipes"), _Warnings(logging.WARNING)
                    log.addHandler(handler)
                    telling.callback(log.removeHandler, handler)
                await _hold(zk, options, command)
    except asyncio.CancelledError:
        if command.ended is None:
            raise
        # The command has ended, and a signal has cut short what comes after it.
    finally:
        writer.close()
    assert command.ended is not None
    return command.ended.exit_status


def _lock(zk: Client, options: argparse.Namespace, own: bytes) -> tuple[str, Locking[Any]]:
    """Return what the options name, and what it is called."""
    data = own if options.data is None else os.fsencode(options.data)
    if options.name == "elect":
        return "leadership of", Election(zk, options.path, data)
    if options.shared:
        return "shared lock", ReadWriteLock(zk, options.path, data=data).read()
    if options.permits:
        return "semaphore", Semaphore(zk, options.path, options.permits, data=data)
    return "lock", Lock(zk, options.path, data=data)


async def _tell_holder(zk: Client, path: str, own: bytes, described: str) -> None:
    """Print who is the first in the line, after some time and when it is another client, with longer and longer pauses.

    Each look is a new one: if all that wait watched the first ticket, all of them would read at each hand-over.

    Args:
        own: The data by default, which only this process has.
    """
    pause, told = _PATIENCE, None
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _RAREST)
        who = None
        try:
            async with LeaderStream(zk, path) as leaders:
                data = await anext(leaders)
            if data is not None:
                who = repr(data.decode(errors="backslashreplace")[:_LONGEST]) if data else "a client without data"
                who = "its own former session" if data == own else who
        except NoAuthError as error:
            who = f"a ticket that must not be read: {error.path}"
        except ZooKeeperError:
            continue  # the next look may succeed
        if who is not None and who != told:
            told = who
            output.say(f"zklock: waiting for {described}, held by {who}", to=sys.stderr)


class _Warnings(logging.Handler):
    """Prints the warnings of the recipes, but for the loss of a lease, which `_hold` prints."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning."""
        if record.name != Lease.__module__:
            output.say(f"zklock: {record.getMessage()}", to=sys.stderr)


async def _hold(zk: Client, options: argparse.Namespace, command: Command) -> None:
    """Run the command under leases, one after another until it is not to run again."""
    own = this_process.describe(os.path.basename(options.command[0]))
    noun, lock = _lock(zk, options, own)
    described = f"the {noun} {options.path}"
    while command.ended is None:
        with contextlib.nullcontext() if options.quiet else beside(_tell_holder(zk, options.path, own, described)):
            try:
                lease = await lock.acquire(within=options.within)
            except TimeoutError as error:
                text = str(error)
                if options.within == 0:
                    text = f"{described} is held; zklock show {options.path} says by which client"
                raise CommandError(text, options.conflict_exit_code) from None
        variables = {
            "ZKLOCK_PATH": options.path,
            "ZKLOCK_TOKEN": str(lease.token),
            "ZKLOCK_NODE": lease.path,
            "ZKLOCK_SESSION": describe_session(zk.session_id),
        }
        try:
            came = await command.run(lease, variables, zk.session_timeout)
            is_last = came.loss is None or options.once or command.signals.has_stop
            command.ended = came if is_last else None
            if came.loss is not None:
                then = "" if is_last else "; waiting to lead again"
                text = f"{came.loss}; the command was {'ended' if came.was_started else 'not started'}{then}"
                output.say(f"zklock: {described} is lost: {text}", to=sys.stderr)
        finally:
            await lease.release()
