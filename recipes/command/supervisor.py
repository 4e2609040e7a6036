"""The small process that runs the command and ends it: it is the command's parent, and watches over its process group.

It is apart from the process that holds the lock, so that the command ends in time also when that one is killed,
stopped, or blocked.  It knows processes and times, and nothing of ZooKeeper.

The holder writes orders, each a line of JSON:

    {"run": [...], "env": {...}, "until": T, "grace": S}     run a command in a process group of its own
    {"until": T}                                             the lock is certain to be held until T
    {"signal": N}                                            send N to the group
    {"end": true}                                            the lock is lost: end the group

It gets answers: for a run {"group": N}, {"errno": N, "text": ...}, or {"late": true} if the command would have to be
ended at once, so that it was not started; and once the whole group has ended {"status": N, "early": B}, with the status
of the command, and whether it was ended because of the lock.

The group is ended by SIGTERM, and by SIGKILL after the grace, in any case before T: at T another client may own the
lock.  It is ended so when T minus the grace has come and no later T, when the lock is lost, when the command has ended
and left others in its group, and when the holder has ended, which closes the socket.

The command may be another zklock, or start one, whose supervisor is not in the group.  When its holder has ended, this
process adopts it (Linux), and waits for its end, too.  Where this process sends SIGKILL to the group, it sends SIGQUIT
to such a supervisor, which then kills its own group.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
from dataclasses import dataclass
from typing import Any, Final

from recipes.command import kernel

FORWARDED: Final = tuple(each for each in signal.Signals if each.name in ("SIGINT", "SIGTERM", "SIGHUP"))
_LOOK_EVERY: Final = 0.05  # seconds, while the group is to end: nothing reports the end of a process of another parent
_MARGIN: Final = 0.1  # seconds between SIGKILL and the end of certainty, for the kernel to carry it out
_LONGEST_SLEEP: Final = 1.0  # seconds: a selector does not count the time during which the machine was suspended


def last_moment(until: float, grace: float) -> float:
    """Return when a group has to be ended whose lock is certain to be held until `until`."""
    return until - max(grace, _MARGIN)


@dataclass
class ProcessGroup:
    """The process group of a running command.

    Attributes:
        id: The id of the group and of its first process.
        until: When certainty ends.
        grace: From SIGTERM to SIGKILL, in seconds.
        status: The status of the first process, once it has ended.
        ended_at: When SIGTERM was sent.
        is_early: Whether that was while the command still ran.
    """

    id: int
    until: float
    grace: float
    status: int | None = None
    ended_at: float | None = None
    is_early: bool = False

    def time_to_sleep(self) -> float:
        """Return after how many seconds to look again."""
        if self.ended_at is not None:
            return _LOOK_EVERY
        return min(max(0.0, last_moment(self.until, self.grace) - kernel.now()), _LONGEST_SLEEP)

    def end(self) -> None:
        """Send SIGTERM, once."""
        if self.ended_at is None:
            self.ended_at = kernel.now()
            self.is_early = self.status is None
            self.send(signal.SIGTERM)

    def look(self) -> None:
        """Do what the time demands."""
        now = kernel.now()
        if now >= last_moment(self.until, self.grace) or self.status is not None:
            self.end()
        if self.ended_at is not None and now >= min(self.ended_at + self.grace, self.until - _MARGIN):
            self.send(signal.SIGKILL)
            with contextlib.suppress(PermissionError):  # of another user
                for inner in kernel.children_that_adopt():
                    os.kill(inner, signal.SIGQUIT)

    def send(self, number: int) -> None:
        """Send a signal to all processes of the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ended, or of another user
            os.killpg(self.id, number)
            os.killpg(self.id, signal.SIGCONT)  # a stopped process would not see it


def start() -> tuple[socket.socket, int]:
    """Start a supervisor; return the socket for orders and answers, and its process id.

    To be called before there are other threads.
    """
    ours, theirs = socket.socketpair()
    # As this process was started: Python ignores some signals, and a command must not inherit that.
    ignored = {number for number in FORWARDED if signal.getsignal(number) is signal.SIG_IGN}
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    try:
        ours.close()
        os.setsid()  # out of reach of what the terminal sends to the holder
        Supervisor(theirs, ignored).run()
    finally:
        os._exit(0)  # the rest of the program is the holder's


class Supervisor:
    """Carries out the orders of the holder.

    Args:
        orders: The socket on which they arrive.
        ignored: The signals that the command ignores from the beginning, as this process's parent does.
    """

    def __init__(self, orders: socket.socket, ignored: set[signal.Signals]) -> None:
        self._orders = orders
        self._ignored = ignored
        self._unread = b""
        self._group: ProcessGroup | None = None
        self._is_orphan = False
        kernel.adopt_orphans()
        for number in FORWARDED:
            signal.signal(number, signal.SIG_IGN)
        # A signal must end the selector's sleep: Python does that for signals that have a handler.
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGQUIT, lambda number, frame: self._carry_out({"until": kernel.now()}))
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Return when the holder has ended, and the group with it."""
        selector = selectors.DefaultSelector()
        selector.register(self._woken, selectors.EVENT_READ)
        selector.register(self._orders, selectors.EVENT_READ)
        while not (self._is_orphan and self._group is None):
            ready = {key.fileobj for key, _ in selector.select(self._group.time_to_sleep() if self._group else None)}
            if self._woken in ready:
                self._woken.recv(4096)
            if self._orders in ready and not self._take_orders():
                self._is_orphan = True
                selector.unregister(self._orders)
            self._reap()
            self._look()

    def _take_orders(self) -> bool:
        """Read and carry out orders; return False when the holder has ended."""
        read = b""
        with contextlib.suppress(ConnectionError):
            read = self._orders.recv(65536)
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            self._carry_out(json.loads(line))
        return bool(read)

    def _carry_out(self, order: dict[str, Any]) -> None:
        if "run" in order:
            self._run(order["run"], order["env"], order["until"], order["grace"])
        elif self._group is None:
            pass  # it has ended while the order was on its way
        elif "until" in order:
            self._group.until = order["until"]
        elif "signal" in order:
            self._group.send(order["signal"])
        else:
            self._group.end()

    def _look(self) -> None:
        group = self._group
        if group is None:
            return
        if self._is_orphan:
            group.end()
        group.look()
        if group.status is not None and not kernel.group_is_alive(group.id) and not kernel.children_that_adopt():
            self._group = None
            self._answer({"status": group.status, "early": group.is_early})

    def _reap(self) -> None:
        """Wait for children that have ended, which are also the orphans of the command; record the command's status."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if self._group is not None and ended[0] == self._group.id:
                    self._group.status = os.waitstatus_to_exitcode(ended[1])

    def _answer(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the holder has ended: the next read says so
            self._orders.sendall(json.dumps(answer).encode() + b"\n")

    # -- running ----------------------------------------------------------------------------------------------------

    def _run(self, command: list[str], environment: dict[str, str], until: float, grace: float) -> None:
        if kernel.now() >= last_moment(until, grace):
            self._answer({"late": True})
            return
        us = os.getpid()

        def prepare() -> None:
            for number in (*FORWARDED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_IGN if number in self._ignored else signal.SIG_DFL)
            kernel.die_with_parent(us)

        try:
            process = subprocess.Popen(
                command, env=environment, start_new_session=True, close_fds=False, preexec_fn=prepare
            )
        except (OSError, ValueError) as error:  # it cannot be run, or there are too many descriptors or processes
            text = getattr(error, "strerror", None) or str(error)
            self._answer({"errno": getattr(error, "errno", None), "text": text})
            return
        process.returncode = 0  # `_reap` waits for it
        self._group = ProcessGroup(process.pid, until, grace)
        self._answer({"group": process.pid})
