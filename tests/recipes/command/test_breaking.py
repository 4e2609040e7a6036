"""`zklock break`: it says whom it removes, asks on a terminal, and removes nobody else."""

import os
import re
import sys
import threading
from collections.abc import Iterator

import pytest

import zkwire
from recipes import Lock, Semaphore
from recipes.command.main import main
from zkwire.blocking import Portal
from zkwire.testing import ServerProcess

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of a terminal at which the command runs."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours
    os.close(ours)


@pytest.mark.parametrize(
    ("answer", "gone"), [(b"y\n", True), (b" YES \n", True), (b"\n", False), (b"yess\n", False), (b"\x04", False)]
)
def test_the_holder_that_was_shown_is_removed_after_a_yes(
    answer: bytes, gone: bool, memory: ServerProcess, path: str, capfd: Capture, terminal: int
) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(memory.hosts)) as zk:
        lease = portal.call(portal.call(lambda: Lock(zk, path, data=b"web-1\n")).acquire)
        os.write(terminal, answer)
        assert main(["break", path, "--hosts", memory.hosts]) == (0 if gone else 1)
        out, err = capfd.readouterr()
        first, *rest = out.splitlines()
        assert first.startswith(f"{lease.path}: session {zk.session_id:#x}, web-1\\n, since 20")
        assert rest == ["removed"] * gone
        assert err == "remove it? [y/N] " + ("" if gone else f"zklock: {path}: 1 of 1 not removed\n")
        assert (portal.call(zk.exists, lease.path) is None) is gone
        assert (portal.call(lease.lost) is not None) if gone else lease.is_certain()
        portal.call(lease.release)


def test_the_session_lives_while_the_answer_is_awaited_and_the_holder_may_leave_meanwhile(
    memory: ServerProcess, path: str, capfd: Capture, terminal: int
) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(memory.hosts)) as zk:
        semaphore = portal.call(lambda: Semaphore(zk, path, 2))
        first, second = portal.call(semaphore.acquire), portal.call(semaphore.acquire)
        waiting = portal.call(semaphore.contenders)

        def answer() -> None:
            portal.call(first.release)
            os.write(terminal, b"y\nn\n")  # one line for each question

        timer = threading.Timer(1.0, answer)
        timer.start()
        assert main(["break", path, "--hosts", memory.hosts, "--session-timeout", "0.5"]) == 1
        timer.join()
        out, err = capfd.readouterr()
        assert [line.partition(":")[0] for line in out.splitlines()] == [
            waiting[0].path,
            "it was gone already",
            waiting[1].path,
        ]
        assert err.endswith(f"zklock: {path}: 1 of 2 not removed\n")
        portal.call(second.check)
        portal.call(second.release)


def test_without_a_terminal_it_needs_yes_and_a_ticket_can_be_named(
    memory: ServerProcess, path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with Portal() as portal, portal.enter(zkwire.connect(memory.hosts)) as zk:
        lease = portal.call(portal.call(lambda: Lock(zk, path, data=b"")).acquire)
        secret = [zkwire.digest_acl("me", "pw")]
        unread = portal.call(lambda: zk.create(f"{path}/x-", ephemeral=True, sequential=True, acl=secret))
        ticket = portal.call(lambda: zk.create(f"{path}/y-", ephemeral=True, sequential=True))
        seen = []
        for arguments, status, error in [
            ([path], 2, "there is no terminal to ask on: with --yes it removes the holders without a question"),
            ([f"{path}/none", "--yes"], 1, f"{path}/none: nobody holds a lock there"),
            ([path, "-y"], 0, ""),
            ([path, "-y"], 1, f"getData {unread}: the ACL does not allow the operation .*"),
            ([ticket, "-y"], 0, ""),  # of a client that waits
        ]:
            assert main(["break", *arguments, "--hosts", memory.hosts]) == status
            out, err = capfd.readouterr()
            seen.append(out)
            assert re.fullmatch(f"zklock: {error}\n" if error else "", err)
            if status == 0:
                assert re.fullmatch(r".*: session 0x[0-9a-f]+, without data, since 20.*\nremoved\n", out)
        assert seen[3] == f"{unread}: session unknown, without data, since an unknown time\n"
        assert portal.call(zk.get_children, path) == [unread.rpartition("/")[2]]
        assert portal.call(lease.lost) is not None
