"""What the holder of a lock says to the supervisor of its command, played by the tests, and what answers mean to it."""

import asyncio
import errno
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import pytest

from recipes import Lease, Lock
from recipes.command import kernel
from recipes.command.running import Command, Ended, RunError, Signals
from recipes.command.supervisor import FORWARDED
from tests.support.everywhere import Scene, scene
from tests.support.recipes import no_task_stays

pytestmark = pytest.mark.limit(20)

NO_GROUP = 2**30  # greater than every process id
FAST = 0.2  # seconds: the session timeout of which the command is told, so that orders come quickly
SUPERVISOR_KILLED = "the process that supervises the command was killed, and the command with it"
NOT_CONFIRMED = "the ensemble did not confirm in time that it is still held"


class Play:
    """A command that runs under `lease`, and its supervisor's end of the socket."""

    def __init__(self, stage: Scene, lease: Lease) -> None:
        self.stage = stage
        self.lease = lease
        self.signals = Signals()
        self._command: Command
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        """Open the socket, and close it at the end."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        self._reader, self._writer = await asyncio.open_connection(sock=theirs)
        self._command = Command(reader, writer, ["backup.sh", "--full"], 1.5, self.signals)
        try:
            yield self
        finally:
            for each in (writer, self._writer):
                each.close()

    def start(self, session_timeout: float = FAST) -> asyncio.Task[Ended]:
        """Run the command in a task."""
        return asyncio.create_task(self._command.run(self.lease, {"ZKLOCK_X": "y"}, session_timeout))

    async def order(self) -> dict[str, Any]:
        """Return the next order."""
        found: dict[str, Any] = json.loads(await self._reader.readline())
        return found

    async def order_but_until(self) -> dict[str, Any]:
        """Return the next order that does not only say until when the lock is certain to be held."""
        while list(order := await self.order()) == ["until"]:
            pass
        return order

    def answer(self, **fields: Any) -> None:
        """Write an answer."""
        self._writer.write(json.dumps(fields).encode() + b"\n")

    def leave(self) -> None:
        """End as a supervisor that is killed."""
        self._writer.close()


@asynccontextmanager
async def play() -> AsyncIterator[Play]:
    """Hold a lock in memory, with a command for it."""
    async with scene() as stage:
        lease = await Lock(stage.zk, "/lock").acquire()
        async with Play(stage, lease).connected() as playing, no_task_stays():
            yield playing
        await lease.release()


def _is_certain(until: float, lease: Lease, since: float) -> bool:
    """Return whether the lock was certain to be held until then, and not much longer."""
    return since + lease.certain_for() * 0.5 < until <= kernel.now() + lease.certain_for() + 0.1


async def test_a_command_that_ends_by_itself() -> None:
    async with play() as playing:
        since = kernel.now()
        running = playing.start()
        order = await playing.order()
        assert _is_certain(order.pop("until"), playing.lease, since)
        assert order == {"run": ["backup.sh", "--full"], "env": {**os.environ, "ZKLOCK_X": "y"}, "grace": 1.5}
        playing.answer(group=NO_GROUP)
        for _ in range(3):  # it hears again and again until when it may go on
            (until,) = (await playing.order()).values()
            assert _is_certain(until, playing.lease, since)
        playing.answer(status=7, early=False)
        assert await running == Ended(7, None)
        assert playing.signals.forward is None


async def test_the_word_until_when_comes_more_than_once_a_second_whatever_the_session_timeout() -> None:
    async with play() as playing:
        running = playing.start(session_timeout=1000.0)
        await playing.order()
        playing.answer(group=NO_GROUP)
        async with asyncio.timeout(5):
            assert list(await playing.order()) == ["until"]
        playing.answer(status=0, early=False)
        assert await running == Ended(0, None)


async def test_a_lost_lock_ends_the_command_and_is_the_reason() -> None:
    async with play() as playing:
        running = playing.start(session_timeout=1000.0)
        await playing.order()
        playing.answer(group=NO_GROUP)
        await asyncio.sleep(0)
        await playing.stage.other.delete(playing.lease.path)
        assert await playing.order_but_until() == {"end": True}
        playing.answer(status=-15, early=True)
        assert await running == Ended(-15, "another client has deleted it")


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_command_that_is_not_started_for_want_of_time(is_lost: bool) -> None:
    async with play() as playing:
        running = playing.start()
        await playing.order()
        if is_lost:
            await playing.stage.other.delete(playing.lease.path)
            await playing.lease.lost()
        playing.answer(late=True)
        why = "another client has deleted it" if is_lost else NOT_CONFIRMED
        assert await running == Ended(0, why, was_started=False)
        assert playing.signals.forward is None


async def test_a_command_that_is_ended_early_counts_as_one_that_has_lost_the_lock() -> None:
    async with play() as playing:
        running = playing.start()
        await playing.order()
        playing.answer(group=NO_GROUP)
        playing.answer(status=0, early=True)
        assert await running == Ended(0, NOT_CONFIRMED)


@pytest.mark.parametrize(("number", "status"), [(errno.ENOENT, 127), (errno.EACCES, 126), (None, 126)])
async def test_a_command_that_cannot_be_run(number: int | None, status: int) -> None:
    async with play() as playing:
        running = playing.start()
        await playing.order()
        playing.answer(errno=number, text="that is why")
        with pytest.raises(RunError, match=r"^backup\.sh: that is why$") as failed:
            await running
        assert failed.value.status == status
        assert playing.signals.forward is None


async def test_a_supervisor_that_is_killed_before_the_command_has_begun() -> None:
    async with play() as playing:
        running = playing.start()
        await playing.order()
        playing.leave()
        with pytest.raises(RunError, match=f"^{SUPERVISOR_KILLED}$") as failed:
            await running
        assert failed.value.status == 125


async def test_a_supervisor_that_is_killed_with_an_order_unread() -> None:
    """The holder then hears that the connection was reset."""
    ours, theirs = socket.socketpair()
    async with scene() as stage, Lock(stage.zk, "/lock") as lease:
        reader, writer = await asyncio.open_connection(sock=ours)
        running = asyncio.create_task(Command(reader, writer, ["x"], 1.5, Signals()).run(lease, {}, FAST))
        await asyncio.sleep(0)
        theirs.close()
        with pytest.raises(RunError, match=f"^{SUPERVISOR_KILLED}$"):
            await running
        writer.close()


async def test_the_event_loop_runs_while_the_holder_waits_for_the_end_of_a_killed_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise its session would end, and another client might own the lock while the group still runs."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    monkeypatch.setattr(kernel, "group_is_alive", lambda group: not over.is_set())
    async with play() as playing:
        running = playing.start()
        await playing.order()
        playing.answer(group=NO_GROUP)
        await playing.order()
        playing.leave()
        loop.call_later(0.01, over.set)
        with pytest.raises(RunError, match=f"^{SUPERVISOR_KILLED}$"):
            await running
        assert over.is_set()


async def test_a_supervisor_that_is_killed_takes_its_command_with_it() -> None:
    """The holder kills the command, and waits until its whole group has ended."""
    group = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    async with play() as playing:
        running = playing.start()
        await playing.order()
        playing.answer(group=group.pid)
        await playing.order()  # the command runs
        playing.leave()
        with pytest.raises(RunError, match=f"^{SUPERVISOR_KILLED}$"):
            await running
        assert not kernel.group_is_alive(group.pid)
        assert await group.wait() == -signal.SIGKILL
        again = playing.start()  # as a leader does; there is no one to take the order
        with pytest.raises(RunError, match=f"^{SUPERVISOR_KILLED}$"):
            await again


async def test_signals_follow_the_order_to_run_and_go_to_the_command_alone() -> None:
    async with play() as playing:
        running = playing.start(session_timeout=1000.0)
        await asyncio.sleep(0)
        assert playing.signals.forward is not None
        playing.signals.forward(signal.SIGTERM)
        assert "run" in await playing.order()
        assert await playing.order() == {"signal": signal.SIGTERM}
        playing.answer(group=NO_GROUP)
        playing.answer(status=-signal.SIGTERM, early=False)
        assert await running == Ended(-signal.SIGTERM, None)


@contextmanager
def installed(signals: Signals) -> Iterator[None]:
    """Take signals in this event loop, and no longer than here."""
    signals.install()
    try:
        yield
    finally:
        for number in FORWARDED:
            asyncio.get_running_loop().remove_signal_handler(number)


@pytest.mark.parametrize(
    ("numbers", "has_stop"),
    [
        ([signal.SIGTERM, signal.SIGHUP], True),
        ([signal.SIGHUP, signal.SIGINT], True),
        ([signal.SIGHUP], False),
        ([signal.SIGINT], True),
    ],
)
async def test_a_signal_while_no_command_runs_cancels_the_task_and_the_first_one_counts(
    numbers: list[signal.Signals], has_stop: bool
) -> None:
    signals = Signals()

    async def main_task() -> None:
        with installed(signals):
            for number in numbers:
                signal.raise_signal(number)
            await asyncio.Event().wait()

    task = asyncio.create_task(main_task())
    await asyncio.wait([task])
    assert task.cancelled()
    assert (signals.first, signals.has_stop) == (numbers[0], has_stop)


async def test_a_signal_while_a_command_runs_is_passed_on_and_cancels_nothing() -> None:
    passed: asyncio.Queue[int] = asyncio.Queue()
    signals = Signals()
    with installed(signals):
        signals.forward = passed.put_nowait
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            assert not signals.has_stop or number == signal.SIGINT
            signal.raise_signal(number)
            assert await passed.get() == number
        assert (signals.first, signals.has_stop) == (None, True)


async def test_a_signal_that_this_process_was_started_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with installed(Signals()):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("ended", "exit_status"),
    [
        (Ended(0, None), 0),
        (Ended(7, None), 7),
        (Ended(-1, None), 129),
        (Ended(-9, None), 137),
        (Ended(0, "so"), 123),
        (Ended(-15, "so"), 123),
        (Ended(0, "so", was_started=False), 123),
    ],
)
def test_the_exit_status_of_a_command(ended: Ended, exit_status: int) -> None:
    assert ended.exit_status == exit_status
    words = {True: "so; the command was ended", False: "so; the command was not started"}
    assert ended.loss is None or ended.loss_in_words() == words[ended.was_started]
