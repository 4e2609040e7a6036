"""The commands run and elect: run a command while a lock is held, or while leading.

This process holds the lock, and a supervisor runs the command; see `supervisor` for how the command is ended.
"""

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
from recipes.line.contenders import describe_session
from recipes.line.lease import Lease
from recipes.lock import Lock
from zkwire import Client
from zkwire.command import output
from zkwire.command.options import CommandError, connected

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


@dataclass
class Signals:
    """The signals that arrive: they go to the command while it runs, and otherwise cancel the main task.

    Attributes:
        first: The signal that has cancelled the task.
        forward: Called with each signal while the command runs.
        has_stop: Whether one of them asks this process to end, and not, as SIGHUP may, to read its settings again.
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
        grace: From SIGTERM to SIGKILL, in seconds.
        signals: What is passed on to the command.

    Attributes:
        ended: How it has ended for the last time, None if it is to run once more, or has not run.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    words: list[str]
    grace: float
    signals: Signals
    ended: Ended | None = None

    async def run(self, lease: Lease, variables: dict[str, str], session_timeout: float) -> Ended:
        """Run the command once, and return when its whole process group has ended.

        It is not started if the lock may be lost too soon to end it.

        Args:
            lease: The lease under which it runs.
            variables: What is added to its environment.
            session_timeout: In seconds.

        Raises:
            CommandError: if it cannot be run, or the supervisor has been killed.
        """
        environment = {**os.environ, **variables}
        # Signals wait in the socket after this order.
        self.signals.forward = lambda number: self._order({"signal": number})
        self._order({"run": self.words, "env": environment, "until": _until(lease), "grace": self.grace})
        try:
            started = await self._answer()
            if "errno" in started:
                status = NOT_FOUND if started["errno"] == errno.ENOENT else CANNOT_RUN
                raise CommandError(f"{self.words[0]}: {started['text']}", status)
            if "late" in started:
                return Ended(0, _why_lost(lease) or _NOT_CONFIRMED, was_started=False)
            feeding = asyncio.create_task(self._feed(lease, session_timeout))
            try:
                ended = await self._answer(started["group"])
            finally:
                feeding.cancel()
        finally:
            self.signals.forward = None
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
        if not self.writer.is_closing():  # it is, when the supervisor was killed
            self.writer.write(json.dumps(order).encode() + b"\n")

    async def _answer(self, group: int | None = None) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            CommandError: if the supervisor has been killed; then the process group `group` has been killed, too.
        """
        try:
            line = await self.reader.readline()
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
        raise CommandError("the process that supervises the command was killed, and the command with it", FAILED)


def _why_lost(lease: Lease) -> str | None:
    loss = lease.find_loss()
    return None if loss is None else loss.why


def _until(lease: Lease) -> float:
    # The clock first: what passes between the two lines makes the result earlier, not later.
    now = kernel.now()
    return now + lease.certain_for()


def run(options: argparse.Namespace) -> int:
    """Run the command under the lock, or while leading until it ends by itself; return the exit status."""
    if not hasattr(os, "fork"):
        raise CommandError("run and elect need a system with processes that fork", FAILED)
    orders, pid = supervisor.start()  # before the event loop, which may start threads
    signals = Signals()
    try:
        return asyncio.run(_with_session(options, orders, signals))
    except asyncio.CancelledError:
        assert signals.first is not None
        return BY_SIGNAL + signals.first
    finally:
        orders.close()
        with contextlib.suppress(ChildProcessError):  # if SIGCHLD is ignored, the kernel takes its status
            os.waitpid(pid, 0)  # it ends when the socket is closed


async def _with_session(options: argparse.Namespace, orders: socket.socket, signals: Signals) -> int:
    signals.install()
    reader, writer = await asyncio.open_connection(sock=orders)
    command = Command(reader, writer, options.command, options.grace, signals)
    try:
        async with connected(options) as zk:
            most = zk.session_timeout / _MOST_GRACE
            if options.grace > most:
                raise CommandError(
                    f"a grace of {options.grace:g} s is too long for a session timeout of {zk.session_timeout:g} s:"
                    f" take {most:g} s at most, or a longer --session-timeout",
                    FAILED,
                )
            await _hold(zk, options, command)
    except asyncio.CancelledError:
        if command.ended is None:
            raise
        # The command has ended, and a signal has cut short what comes after it.
    finally:
        writer.close()
    assert command.ended is not None
    return command.ended.exit_status


async def _hold(zk: Client, options: argparse.Namespace, command: Command) -> None:
    """Run the command under leases, one after another until it is not to run again."""
    if options.data is None:
        data = this_process.describe(os.path.basename(options.command[0]))
    else:
        data = os.fsencode(options.data)
    is_election = options.name == "elect"
    lock = Election(zk, options.path, data) if is_election else Lock(zk, options.path, data=data)
    while command.ended is None:
        try:
            lease = await lock.try_acquire() if options.only_try else await lock.acquire(within=options.within)
        except TimeoutError as error:
            raise CommandError(str(error), NOT_ACQUIRED) from None
        if lease is None:
            raise CommandError(f"the lock {options.path} is held by another client", NOT_ACQUIRED)
        variables = {
            "ZKLOCK_PATH": options.path,
            "ZKLOCK_TOKEN": str(lease.token),
            "ZKLOCK_NODE": lease.path,
            "ZKLOCK_SESSION": describe_session(zk.session_id),
        }
        try:
            came = await command.run(lease, variables, zk.session_timeout)
            is_last = came.loss is None or options.once or command.signals.has_stop
            if is_last:
                command.ended = came
            if came.loss is not None:
                what = "leadership of" if is_election else "lock"
                then = "" if is_last else "; waiting to lead again"
                text = f"{came.loss}; the command was {'ended' if came.was_started else 'not started'}{then}"
                output.say(f"zklock: the {what} {options.path} is lost: {text}", to=sys.stderr)
        finally:
            await lease.release()
