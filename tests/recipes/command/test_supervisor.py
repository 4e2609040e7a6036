"""The process that runs a command, by orders as its holder gives them, and the times at which it ends a group."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import pytest

from recipes.command import kernel, supervisor


def _answers(order: dict[str, Any]) -> list[dict[str, Any]]:
    """Start a supervisor, give it the order and end; return what it has answered until its own end."""
    orders, pid = supervisor.start()
    with orders, orders.makefile("rb") as reading:
        orders.sendall(json.dumps(order).encode() + b"\n")
        orders.shutdown(1)  # no more orders: the holder has ended
        answers = [json.loads(line) for line in reading]
    assert os.waitpid(pid, 0)[1] == 0
    return answers


def _order(command: list[str], *, left: float, grace: float) -> dict[str, Any]:
    return {"run": command, "env": dict(os.environ), "until": kernel.now() + left, "grace": grace}


@pytest.mark.parametrize(("left", "grace"), [(-5.0, 2.0), (0.0, 0.0), (60.0, 90.0)])
def test_a_command_that_would_have_to_end_at_once_is_not_started(left: float, grace: float, tmp_path: Path) -> None:
    """The lock may be lost while the order to run the command is on its way."""
    for count in range(5):  # it would be ended at once, and a quick command has done its work by then
        mark = tmp_path / str(count)
        assert _answers(_order(["mkdir", str(mark)], left=left, grace=grace)) == [{"late": True}]
        assert not mark.exists()


@pytest.mark.parametrize("grace", [0.0, 0.01, 2.0])
def test_a_group_is_killed_before_another_client_can_own_the_lock(
    grace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = supervisor.Group(0, 100.0, grace).next_step()
    assert begin is not None
    assert begin <= 100.0 - grace
    assert begin < 100.0
    stubborn = 'trap "" TERM; echo begun; while :; do sleep 1; done'
    with subprocess.Popen(["sh", "-c", stubborn], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        group = supervisor.Group(process.pid, 100.0, grace)
        for now in (begin, 99.95):
            monkeypatch.setattr(kernel, "now", lambda now=now: now)
            group.look()
        assert process.wait(30) == -signal.SIGKILL


class Holder:
    """A supervisor and the socket for its orders, as the process that holds the lock has them."""

    def __init__(self) -> None:
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

    def run(self, script: str, *, left: float = 600.0, grace: float = 2.0) -> int:
        """Order a script; return the id of its process group."""
        self.order(**_order(["sh", "-c", script], left=left, grace=grace))
        group: int = self.answer()["group"]
        return group


def readable(path: Path) -> str:
    """Wait until the file has a whole line; return it."""
    end = time.monotonic() + 30
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < end
        time.sleep(0.01)
    return path.read_text().strip()


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("true", 0), ("kill -KILL $$", -signal.SIGKILL)])
def test_the_status_of_a_command_is_answered_and_the_next_one_can_run(script: str, status: int) -> None:
    with Holder() as holder:
        for _ in range(2):
            group = holder.run(script)
            assert holder.answer() == {"status": status, "early": False}
            assert not kernel.group_is_alive(group)


def test_a_command_that_cannot_be_run_is_answered_with_the_reason() -> None:
    with Holder() as holder:
        holder.order(**_order(["/none/such"], left=60, grace=2))
        answer = holder.answer()
        assert answer["errno"] == errno.ENOENT
        assert "No such file" in answer["text"]
        holder.run("exit 0")
        assert holder.answer()["status"] == 0


def test_signals_are_passed_on_and_orders_without_a_command_do_nothing(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Holder() as holder:
        for order in ({"signal": signal.SIGUSR1}, {"until": 0.0}, {"end": True}):
            holder.order(**order)
        holder.run(f"trap 'exit 7' USR1; echo x > {begun}; while :; do sleep 0.01; done")
        readable(begun)
        holder.order(signal=signal.SIGUSR1)
        assert holder.answer() == {"status": 7, "early": False}


def test_a_stopped_command_gets_a_signal_too(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Holder() as holder:
        group = holder.run(f"trap 'exit 7' USR1; echo x > {begun}; while :; do sleep 0.01; done")
        readable(begun)
        os.killpg(group, signal.SIGSTOP)
        holder.order(signal=signal.SIGUSR1)
        assert holder.answer()["status"] == 7


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_command_that_is_to_end_gets_sigterm_and_its_end_counts_as_early(tmp_path: Path, is_stopped: bool) -> None:
    begun = tmp_path / "begun"
    with Holder() as holder:
        group = holder.run(f"trap 'exit 8' TERM; echo x > {begun}; while :; do sleep 0.01; done", grace=60)
        readable(begun)
        if is_stopped:
            os.killpg(group, signal.SIGSTOP)
        holder.order(end=True)
        assert holder.answer() == {"status": 8, "early": True}


def test_what_a_command_leaves_running_ends_with_it() -> None:
    with Holder() as holder:
        group = holder.run("sleep 1000 & exit 0", grace=60)
        assert holder.answer() == {"status": 0, "early": False}
        assert not kernel.group_is_alive(group)


def test_a_group_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Holder() as holder:
        holder.run(f"trap '' TERM; echo x > {begun}; while :; do sleep 0.01; done", grace=0.05)
        readable(begun)
        holder.order(end=True)
        assert holder.answer() == {"status": -signal.SIGKILL, "early": True}


def test_a_command_ends_when_the_lock_may_be_lost_and_later_if_that_is_postponed(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Holder() as holder:
        holder.run(f"trap 'exit 9' TERM; echo x > {begun}; while :; do sleep 0.01; done", left=600, grace=1)
        readable(begun)
        holder.order(until=kernel.now() + 300)
        holder.order(until=kernel.now() + 1.01)
        assert holder.answer() == {"status": 9, "early": True}


def test_a_command_ends_with_its_holder(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Holder() as holder:
        group = holder.run(f"trap 'exit 9' TERM; echo x > {begun}; while :; do sleep 0.01; done")
        readable(begun)
        holder.leave()
        assert holder.answer() == {"status": 9, "early": True}
        assert not kernel.group_is_alive(group)
