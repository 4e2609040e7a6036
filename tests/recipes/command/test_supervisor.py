"""The process that runs a command, by orders as its holder gives them, and the times at which it ends a group."""

import contextlib
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from unittest.mock import DEFAULT, Mock

import pytest

from recipes.command import kernel, supervisor


def _order(command: list[str], *, left: float, grace: float) -> dict[str, Any]:
    return {"run": command, "env": dict(os.environ), "until": kernel.now() + left, "grace": grace}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The signals that groups are sent, in place of sending them."""
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: signals.append((group, number)))
    return signals


TO_END, TO_KILL = ([(7, number), (7, signal.SIGCONT)] for number in (signal.SIGTERM, signal.SIGKILL))


@pytest.mark.parametrize(
    ("grace", "status", "is_lost", "sent_by"),
    [
        (0.0, None, False, {99.899: [], 99.9: TO_END + TO_KILL}),
        (0.01, None, False, {99.899: [], 99.9: TO_END + TO_KILL}),
        (2.0, None, False, {97.999: [], 98.0: TO_END, 99.899: TO_END, 99.9: TO_END + TO_KILL}),
        (2.0, None, True, {50.0: TO_END, 51.999: TO_END, 52.0: TO_END + TO_KILL}),
        (2.0, 0, False, {10.0: TO_END, 11.9: TO_END, 12.0: TO_END + TO_KILL}),  # it has left others running
    ],
)
def test_a_group_gets_its_whole_grace_but_is_killed_before_another_client_can_own_the_lock(
    grace: float,
    status: int | None,
    is_lost: bool,
    sent_by: dict[float, list[tuple[int, int]]],
    sent: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as early if the command itself was ended."""
    group = supervisor.ProcessGroup(7, 100.0, grace, status)
    for now, signals in sent_by.items():
        monkeypatch.setattr(kernel, "now", lambda now=now: now)
        if is_lost:
            group.end()
        group.look()
        assert (sent, group.is_early) == (signals, bool(signals) and status is None)


def test_a_supervisor_sleeps_until_there_is_something_to_do_and_a_second_at_most(
    sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time during which a machine was suspended does not count in a sleep."""
    group = supervisor.ProcessGroup(7, 100.0, 2.0)
    sleeps = []
    for now in (0.0, 97.25, 98.0, 99.0):
        monkeypatch.setattr(kernel, "now", lambda now=now: now)
        sleeps.append(group.time_to_sleep())
    assert sleeps == [1.0, 0.75, 0.0, 0.0]
    group.end()
    assert 0.0 < group.time_to_sleep() < 0.5  # there is no event when the last process ends


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def _until_written(file: Path) -> None:
    _until(lambda: file.exists() and bool(file.read_text()))


class Holder:
    """A supervisor and the socket for its orders, as the process that holds the lock has them."""

    def __init__(self, folder: Path) -> None:
        self._begun = folder / "begun"
        self.orders, self._pid = supervisor.start()
        self.orders.settimeout(30)
        self._reading = self.orders.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self._reading.close()
        self.orders.close()
        assert os.waitpid(self._pid, 0)[1] == 0

    def leave(self) -> None:
        """End, as far as the supervisor can see."""
        with contextlib.suppress(OSError):
            self.orders.shutdown(1)

    def order(self, **order: Any) -> None:
        self.orders.sendall(json.dumps(order).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._reading.readline())
        return found

    def run(self, script: str, *, grace: float = 2.0) -> int:
        """Order a script; return the id of its process group."""
        self.order(**_order(["sh", "-c", script], left=600.0, grace=grace))
        group: int = self.answer()["group"]
        return group

    def begin(self, action: str, name: str, *, grace: float = 2.0) -> int:
        """Order a script that runs on, and does `action` at the signal `name`; wait until it runs; return its group."""
        self._begun.unlink(missing_ok=True)
        group = self.run(f"trap '{action}' {name}; echo > {self._begun}; while :; do sleep 0.01; done", grace=grace)
        _until_written(self._begun)
        return group


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    with Holder(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("left", "grace"), [(-5.0, 2.0), (0.0, 0.0), (60.0, 90.0)])
def test_a_command_that_would_have_to_end_at_once_is_not_started(
    left: float, grace: float, holder: Holder, tmp_path: Path
) -> None:
    """The lock may be lost while the order to run the command is on its way."""
    for count in range(5):  # it would be ended at once, and a quick command has done its work by then
        mark = tmp_path / str(count)
        holder.order(**_order(["mkdir", str(mark)], left=left, grace=grace))
        assert holder.answer() == {"late": True}
        assert not mark.exists()


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("true", 0), ("kill -KILL $$", -signal.SIGKILL)])
def test_the_status_of_a_command_is_answered_and_the_next_one_can_run(script: str, status: int, holder: Holder) -> None:
    for _ in range(2):
        group = holder.run(script)
        assert holder.answer() == {"status": status, "early": False}
        assert not kernel.group_is_alive(group)


def test_a_command_that_cannot_run_is_answered_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_many = OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr(os, "pipe", Mock(wraps=os.pipe, side_effect=[too_many, *[DEFAULT] * 9]))
    with Holder(tmp_path) as holder:
        for name, number, text in [
            ("true", errno.EMFILE, "Too many open files"),
            ("no\0name", None, "embedded null byte"),
            ("/none/such", errno.ENOENT, "No such file or directory"),
        ]:
            holder.order(**_order([name], left=60, grace=2))
            assert holder.answer() == {"errno": number, "text": text}
        holder.run("exit 3")
        assert holder.answer() == {"status": 3, "early": False}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_signals_are_passed_on_and_orders_without_a_command_do_nothing(holder: Holder, is_stopped: bool) -> None:
    for order in ({"signal": signal.SIGUSR1}, {"until": 0.0}, {"end": True}):
        holder.order(**order)
    group = holder.begin("exit 7", "USR1")
    if is_stopped:
        os.killpg(group, signal.SIGSTOP)
    holder.order(signal=signal.SIGUSR1)
    assert holder.answer() == {"status": 7, "early": False}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_command_that_is_to_end_gets_sigterm_and_its_end_counts_as_early(holder: Holder, is_stopped: bool) -> None:
    group = holder.begin("exit 8", "TERM", grace=60)
    if is_stopped:
        os.killpg(group, signal.SIGSTOP)
    holder.order(end=True)
    assert holder.answer() == {"status": 8, "early": True}
    holder.begin("", "TERM", grace=0.05)
    holder.order(end=True)
    assert holder.answer() == {"status": -signal.SIGKILL, "early": True}


def test_the_answer_comes_when_all_that_a_command_leaves_running_has_ended(holder: Holder, tmp_path: Path) -> None:
    """But not what has left its group, which may end later."""
    pid, go = tmp_path / "pid", tmp_path / "go"
    leaves = f"setsid sh -c 'echo $$ > {pid}; until test -e {go}; do sleep 0.01; done'"
    group = holder.run(f"trap '' TERM; sleep 1000 & {leaves} & until test -s {pid}; do sleep 0.01; done", grace=0.3)
    assert holder.answer() == {"status": 0, "early": False}
    assert not kernel.group_is_alive(group)
    go.touch()
    _until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
    holder.run("exit 3")
    assert holder.answer() == {"status": 3, "early": False}


def test_the_answer_comes_when_the_command_of_an_inner_supervisor_has_ended(holder: Holder, tmp_path: Path) -> None:
    """Of a zklock that the command has started; it ends within the grace of the outer one, and is of another group."""
    found = tmp_path / "found"
    code = f"""
import json, signal
from recipes.command import kernel, supervisor
orders, _ = supervisor.start()
command = ["sh", "-c", "trap '' TERM; echo $$ > {found}; (while :; do sleep 0.01; done); true"]
order = {{"run": command, "env": {{}}, "until": kernel.now() + 600, "grace": 60}}
orders.sendall(json.dumps(order).encode() + b"\\n")
signal.pause()
"""
    (tmp_path / "inner.py").write_text(code)
    holder.run(f"{sys.executable} {tmp_path / 'inner.py'}; true", grace=0.3)
    _until_written(found)
    holder.order(end=True)
    assert holder.answer() == {"status": -signal.SIGTERM, "early": True}
    assert not kernel.group_is_alive(int(found.read_text()))


def test_a_command_ends_when_the_lock_may_be_lost_and_later_if_that_is_postponed(holder: Holder) -> None:
    holder.begin("exit 9", "TERM", grace=1)
    holder.order(until=kernel.now() + 300)
    holder.order(until=kernel.now() + 1.01)
    assert holder.answer() == {"status": 9, "early": True}


def test_a_command_ends_with_its_holder(holder: Holder) -> None:
    group = holder.begin("exit 9", "TERM")
    holder.leave()
    assert holder.answer() == {"status": 9, "early": True}
    assert not kernel.group_is_alive(group)


def test_the_supervisor_and_the_command_are_out_of_reach_of_the_terminal(holder: Holder) -> None:
    group = holder.run("sleep 1000")
    parent = int(Path(f"/proc/{group}/stat").read_bytes().rpartition(b")")[2].split()[1])
    assert len({os.getsid(0), os.getsid(parent), os.getsid(group)}) == 3
    assert os.getpgid(group) == group


def test_orders_come_in_any_pieces_and_a_large_one_is_carried_out(holder: Holder) -> None:
    """As with a large environment."""
    order = _order(["sh", "-c", "test ${#LARGE} = 100000"], left=60, grace=2)
    order["env"]["LARGE"] = "x" * 100_000
    text = json.dumps(order).encode() + b"\n" + b'{"signal": 0}\n'
    for at in range(0, len(text), 30_000):
        holder.orders.sendall(text[at : at + 30_000])
    assert list(holder.answer()) == ["group"]
    assert holder.answer() == {"status": 0, "early": False}


def test_a_command_keeps_the_files_that_its_holder_was_started_with(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        os.set_inheritable(file.fileno(), True)
        with Holder(tmp_path) as holder:
            holder.run(f"echo there > /proc/self/fd/{file.fileno()}")
            assert holder.answer() == {"status": 0, "early": False}
    assert (tmp_path / "file").read_text() == "there\n"


@pytest.mark.parametrize("ignored", [[], [signal.SIGHUP], [signal.SIGINT, signal.SIGTERM]])
def test_a_command_ignores_what_its_holder_was_started_to_ignore_and_nothing_else(
    ignored: list[signal.Signals], tmp_path: Path
) -> None:
    """Python ignores some signals, and the supervisor some more."""
    before = {each: signal.getsignal(each) for each in supervisor.FORWARDED}
    for each in supervisor.FORWARDED:
        signal.signal(each, signal.SIG_IGN if each in ignored else signal.SIG_DFL)
    try:
        holder = Holder(tmp_path)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    found = tmp_path / "found"
    with holder:
        holder.run(f"grep SigIgn /proc/self/status > {found}")
        assert holder.answer() == {"status": 0, "early": False}
    mask = int(found.read_text().split()[1], 16)
    assert {number for number in signal.valid_signals() if mask >> (number - 1) & 1} == set(ignored)
