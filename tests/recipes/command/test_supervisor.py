"""The process that runs a command, by orders as its holder gives them, and the times at which it ends a group."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

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
