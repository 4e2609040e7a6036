"""`zklock run` and `zklock elect` in the process of the test: exit statuses, errors, arguments, and what they leave."""

import asyncio
import errno
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

import zkwire
from recipes import Lock, ReadWriteLock, Semaphore
from recipes.command import kernel, running, supervisor
from recipes.command.main import main, parser
from recipes.line.lease import Lease
from recipes.line.locking import Locking
from tests.support.recipes import line
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire.blocking import Portal
from zkwire.testing import ServerProcess

Capture = pytest.CaptureFixture[str]
NOT_CONFIRMED = "the ensemble did not confirm in time that it is still held"
DELETED = "another client has deleted it"
KILLED = "the process that supervises the command was killed, and the command with it"
NOT_FOUND = "zklock: the first word after -- names no program; .*\n"
NO_GROUP = 2**30  # greater than every process id


@pytest.fixture(autouse=True)
def hosts(memory: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    """The in-memory server that `zklock` finds in its environment."""
    monkeypatch.setenv("ZKWIRE_HOSTS", memory.hosts)
    monkeypatch.delenv("ZKWIRE_AUTH", raising=False)
    return memory.hosts


def zklock(capfd: Capture, *arguments: str) -> tuple[int, str, str]:
    """Run `zklock` to its end; return its exit status, output, and what it has written to standard error."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    out, err = capfd.readouterr()
    return status, out, err


def with_client(hosts: str, do: Callable[[zkwire.Client], Any]) -> Any:
    """Return what `do` returns, awaited, with a client of its own."""

    async def done() -> Any:
        async with zkwire.connect(hosts) as zk:
            return await do(zk)

    return asyncio.run(done())


def tickets(hosts: str, path: str) -> list[str]:
    """Return the tickets below `path`."""
    found: list[str] = with_client(hosts, lambda zk: line(zk, path))
    return found


# -- exit statuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["run", "elect"])
def test_exit_statuses(verb: str, hosts: str, path: str, tmp_path: Path, capfd: Capture) -> None:
    no_program = tmp_path / "no-program"
    no_program.write_text("")
    no_server = ("--hosts", "127.0.0.1:1", "--connect-within", "0.1")
    for arguments, status, error in [
        ((path, "--", "sh", "-c", "exit 7"), 7, ""),
        ((path, "--", "sh", "-c", "kill -9 $$"), 137, ""),
        ((path, "--", "true; secret"), 127, NOT_FOUND),
        ((path, *no_server, "--", "SECRET=x", "true"), 127, NOT_FOUND),  # before the session, whose nodes others see
        ((path, "--", "/etc"), 126, "zklock: /etc: Permission denied\n"),
        ((path, "--", str(no_program)), 126, f"zklock: {no_program}: Permission denied\n"),
        ((path,), 125, "zklock: after --, write the command to run\n"),
        ((path, "--"), 125, "zklock: after --, write the command to run\n"),
        ((path, "--session-timeout", "5", "--", "true"), 0, ""),
        ((path, "--session-timeout", "5e3", "--", "true"), 125, "zklock: --session-timeout is in seconds, .*\n"),
        (("relative", "--", "true"), 125, rf"usage: .*\nzklock {verb}: .*: a path begins with /.*\n"),
        ((path, "--grace", "7.6", "--", "true"), 125, r"zklock: --grace may be 7\.5 at most .* of 30 s\n"),
        ((path, "--grace", "7.5", "--", "true"), 0, ""),
        ((path, "--grace", "0", "--", "true"), 0, ""),
        ((path, *no_server, "--", "true"), 125, r"zklock: no session within 0\.1 s: 127\.0\.0\.1:1: .*\n"),
        ((path, "--tls-ca", "/none/such", "--", "true"), 125, r"zklock: .*No such file or directory.*\n"),
        ((path, "--hosts", ":", "--", "true"), 125, "zklock: .*\n"),
        ((path, "true"), 125, rf"usage: .*\nzklock {verb}: .* arguments; the command to run stands after --; .*\n"),
        ((path, "--grace", "-1", "--", "true"), 125, rf"usage: .*\nzklock {verb}: .*argument --grace: .*\n"),
    ]:
        came, out, err = zklock(capfd, verb, *arguments)
        assert (came, out) == (status, ""), (arguments, err)
        assert re.fullmatch(error, err), (arguments, err)
    assert tickets(hosts, path) == []


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "/a//b"], 2, "bad path '/a//b'"),
        (["leader", "/a", "--", "true"], 2, "leader takes no command"),
        (["elect", "/a", "--follow", "--", "true"], 125, "elect --follow takes no command"),
        (["leader", "/no/leader"], 1, "/no/leader has no leader"),
        (["break", "/no/lock"], 2, "there is no terminal to ask on: --yes removes the holders without a question"),
        (["break", "/no/lock", "-y"], 1, "/no/lock: no client holds a lock there"),
        (["run", "/a", "-E", "-1", "--", "true"], 125, "--conflict-exit-code is a number from 0 to 255"),
        (["run", "/a", "-E", "256", "--", "true"], 125, "--conflict-exit-code is a number from 0 to 255"),
        (["show", "--hosts", "127.0.0.1:1", "--connect-within", "0.2"], 3, "no session within 0.2 s"),
        (["show", "--tls-ca", "/none/such"], 1, "No such file or directory"),
    ],
)
def test_errors_are_a_line_and_a_status(arguments: list[str], status: int, message: str, capfd: Capture) -> None:
    came, out, err = zklock(capfd, *arguments)
    assert (came, out) == (status, "")
    assert re.fullmatch(f"zklock: .*{re.escape(message)}.*\n", err)


def test_what_the_server_or_the_environment_refuses_is_an_error(
    hosts: str, path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_client(hosts, lambda zk: zk.create(path, acl=[zkwire.digest_acl("me", "pw")]))
    for status, arguments in (1, ["show", path]), (125, ["run", path, "--", "true"]):
        came, out, err = zklock(capfd, *arguments)
        assert (came, out) == (status, "")
        assert re.match(f"zklock: .*{path}.*: the ACL does not allow the operation", err)
    monkeypatch.setenv("ZKWIRE_AUTH", "nonsense")  # which may be a password
    error = "zklock: a credential is SCHEME:CREDENTIAL, for example digest:user:password\n"
    assert zklock(capfd, "show") == (2, "", error)
    assert zklock(capfd, "run", path, "--", "true") == (125, "", error)


def test_the_arguments_of_the_program_are_the_default(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["zklock", "show", "/a//b"])
    assert main() == 2
    assert main([*sys.argv[1:], "--json"]) == 2
    with pytest.raises(SystemExit):
        main([])
    assert capfd.readouterr().err.count("bad path '/a//b'") == 2


def test_run_needs_a_system_that_forks(path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    error = "zklock: run and elect need a system with processes that fork\n"
    assert zklock(capfd, "run", path, "--", "true") == (125, "", error)


# -- arguments ------------------------------------------------------------------------------------------------------


def test_defaults_that_no_other_test_notices() -> None:
    shown, led, elected = (parser().parse_args(words.split()) for words in ("show", "leader /l", "elect /l"))
    assert (shown.path, led.follow, led.json, elected.follow, elected.json) == ("/", False, False, False, False)
    assert shown.session_timeout == shown.to_connect == led.session_timeout == 10.0


@pytest.mark.parametrize(
    "words",
    [
        *("run /l --within -1", "run /l --within nan", "run /l --within inf", "run /l --within soon"),
        *("run /l --try --within 1", "run /l --shared --permits 2", "run /l -n 0", "run /l -E x", "elect /l --try"),
        "elect",
    ],
)
def test_arguments_that_are_not_understood(words: str, capfd: Capture) -> None:
    status, out, err = zklock(capfd, *words.split())
    assert (status, out) == (125, "")
    usage = re.escape(f"usage: zklock {words.split()[0]} PATH [OPTION ...] -- COMMAND [ARGUMENT ...]\n")
    assert re.match(f"{usage}(?!.*invalid (duration|positive))", err)


def test_elect_follow_shows_the_leader_and_runs_nothing(capfd: Capture) -> None:
    with patch.dict("recipes.command.main._SHOWING", leader=AsyncMock(return_value=None)):
        assert zklock(capfd, "elect", "/a", "--follow") == (0, "", "")
        for option in ("--data=", "--grace=0", "--quiet", "--once"):
            error = f"zklock: elect --follow takes no {option.split('=')[0]}: it only shows who leads\n"
            assert zklock(capfd, "elect", "/a", "--follow", option) == (125, "", error)


def test_help_is_no_error(capfd: Capture) -> None:
    for verb in ("run", "elect", "show", "leader", "break"):
        status, out, err = zklock(capfd, verb, "--help")
        assert (status, err) == (0, "")
        assert out.startswith(f"usage: zklock {verb} ")
    assert zklock(capfd, "--help")[0] == 0
    assert zklock(capfd, "nonsense")[0] == zklock(capfd, "show", "--bad")[0] == 2


def test_the_words_after_the_first_two_hyphens_belong_to_the_command(path: str, capfd: Capture) -> None:
    say = ("sh", "-c", 'echo "$@"; env | grep -c ^ZKLOCK_', "sh", "--try", "--", "--help", "a b")
    assert zklock(capfd, "run", path, "--data", "x", "--", *say) == (0, "--try -- --help a b\n4\n", "")


# -- the end of the supervisor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["done", "no server", "no socket"])
def test_the_supervisor_has_ended_when_the_command_returns(
    how: str, path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start() -> tuple[socket.socket, int]:
        started.append(supervisor_start())
        return started[-1]

    supervisor_start = supervisor.start
    monkeypatch.setattr(supervisor, "start", start)
    if how == "no socket":
        monkeypatch.setattr(asyncio, "open_connection", AsyncMock(side_effect=OSError("too many open files")))
    options = ("--hosts", "127.0.0.1:1", "--connect-within", "0.1") if how == "no server" else ()
    assert zklock(capfd, "run", path, *options, "--", "true")[0] == (0 if how == "done" else 125)
    ((orders, pid),) = started
    assert orders.fileno() == -1
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


# -- with a supervisor that the test plays -----------------------------------------------------------------------------


class Played:
    """The supervisor's end of the socket, in a thread of its own."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        end.settimeout(30)
        self._reading = end.makefile("rb")

    def order(self, *, skips: bool = True) -> dict[str, Any] | None:
        """Return the next order, None at the end; `skips` those that only say until when the lock is certain."""
        for text in self._reading:
            order: dict[str, Any] = json.loads(text)
            if not (skips and list(order) == ["until"]):
                return order
        return None

    def ordered_to_run(self) -> dict[str, Any]:
        """Take the order to run a command; return it."""
        order = self.order()
        assert order is not None
        return order

    def answer(self, **fields: Any) -> None:
        """Write an answer."""
        self.end.sendall(json.dumps(fields).encode() + b"\n")

    def ended(self, status: int, *, early: bool = False) -> None:
        """Answer that the command was begun and has ended."""
        self.answer(group=NO_GROUP)
        self.answer(status=status, early=early)

    def close(self) -> None:
        """End, as a supervisor that is killed."""
        self._reading.close()
        self.end.close()


WithPlay = Callable[..., tuple[int, str, str]]


@pytest.fixture
def with_play(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> WithPlay:
    """Run `zklock` in this thread, and the play of a supervisor in another one."""

    def run(play: Callable[[Played], object], *arguments: str) -> tuple[int, str, str]:
        ours, theirs = socket.socketpair()
        played = Played(theirs)
        monkeypatch.setattr("shutil.which", lambda *_: "x")
        monkeypatch.setattr(supervisor, "start", lambda: (ours, os.getpid()))  # which is no child of this process
        with ThreadPoolExecutor(1) as pool:

            def whole_play() -> None:
                try:
                    play(played)
                finally:
                    played.close()

            playing = pool.submit(whole_play)
            came = zklock(capfd, *arguments)
            playing.result(30)
        return came

    return run


@pytest.mark.parametrize(
    ("answers", "status", "error"),
    [
        ([{"group": NO_GROUP}, {"status": 7, "early": False}], 7, ""),
        ([{"group": NO_GROUP}, {"status": -1, "early": False}], 129, ""),
        ([{"group": NO_GROUP}, {"status": 0, "early": True}], 123, f"{NOT_CONFIRMED}; the command was ended"),
        ([{"late": True}], 123, f"{NOT_CONFIRMED}; the command was not started"),
        ([{"errno": errno.ENOENT, "text": "why"}], 127, "x: why"),
        ([{"errno": errno.EACCES, "text": "why"}], 126, "x: why"),
        ([{"errno": None, "text": "why"}], 126, "x: why"),
        ([], 125, KILLED),
        (None, 125, KILLED),  # with an order unread: the holder hears that the connection was reset
        ([{"group": NO_GROUP}], 125, KILLED),
    ],
)
def test_how_a_command_under_a_lock_has_ended(
    answers: list[dict[str, Any]] | None, status: int, error: str, with_play: WithPlay, hosts: str, path: str
) -> None:
    def play(played: Played) -> None:
        if answers is None:
            played.end.recv(1)
            return
        order = played.ordered_to_run()
        assert order["env"]["ZKLOCK_NODE"] == f"{path}/{tickets(hosts, path)[0]}"
        assert (order["run"], order["grace"]) == (["x", "--full"], 1.5)
        for answer in answers:
            played.answer(**answer)

    lost = f"the lock {path} is lost: " if status == 123 else ""
    expected = f"zklock: {lost}{error}\n" if error else ""
    assert with_play(play, "run", path, "--grace", "1.5", "--", "x", "--full") == (status, "", expected)
    assert tickets(hosts, path) == []


@pytest.mark.parametrize("is_started", [True, False])
def test_a_lost_lock_is_the_reason(
    is_started: bool, with_play: WithPlay, hosts: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_lost, lose = threading.Event(), Lease._lose

    def lose_and_say_so(lease: Lease, why: str) -> None:
        lose(lease, why)
        is_lost.set()

    monkeypatch.setattr(Lease, "_lose", lose_and_say_so)

    def play(played: Played) -> None:
        node = played.ordered_to_run()["env"]["ZKLOCK_NODE"]
        if is_started:
            played.answer(group=NO_GROUP)
        with_client(hosts, lambda zk: zk.delete(node))
        if is_started:
            assert played.order() == {"end": True}
            played.answer(status=-15, early=True)
        else:
            assert is_lost.wait(30)
            played.answer(late=True)

    what = "ended" if is_started else "not started"
    error = f"zklock: the lock {path} is lost: {DELETED}; the command was {what}\n"
    assert with_play(play, "run", path, "--", "x") == (123, "", error)


def test_a_supervisor_learns_again_and_again_until_when_the_lock_is_certain(with_play: WithPlay, path: str) -> None:
    def play(played: Played) -> None:
        began = time.monotonic()
        for number in range(4):
            order = played.order(skips=False)
            assert order is not None
            assert 9 < order["until"] - kernel.now() < 30
            if number == 0:
                played.answer(group=NO_GROUP)
        assert time.monotonic() - began < 3  # twice a second at least
        played.answer(status=0, early=False)

    assert with_play(play, "run", path, "--", "x")[0] == 0


def test_the_event_loop_runs_while_the_holder_waits_for_the_end_of_a_killed_group(
    with_play: WithPlay, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its session would end, and another client might own the lock while the group still runs."""
    looks = iter([True, True, False])
    turns: list[int] = []

    def group_is_alive(group: int) -> bool:
        asyncio.get_running_loop().call_soon(turns.append, group)
        return next(looks)

    monkeypatch.setattr(kernel, "group_is_alive", group_is_alive)

    def play(played: Played) -> None:
        played.ordered_to_run()
        played.answer(group=NO_GROUP)

    assert with_play(play, "run", path, "--", "x")[0] == 125
    assert turns == [NO_GROUP] * 3


def test_a_leader_that_was_not_confirmed_in_time_leads_again(with_play: WithPlay, hosts: str, path: str) -> None:
    """It gives the leadership back: another candidate may lead meanwhile."""
    nodes = []

    def play(played: Played) -> None:
        nodes.append(played.ordered_to_run()["env"]["ZKLOCK_NODE"])
        played.ended(0, early=True)
        nodes.append(played.ordered_to_run()["env"]["ZKLOCK_NODE"])
        assert [f"{path}/{name}" for name in tickets(hosts, path)] == [nodes[1]]
        os.kill(os.getpid(), signal.SIGHUP)  # a command may read its settings again at SIGHUP
        assert played.order() == {"signal": signal.SIGHUP}
        played.answer(late=True)
        played.ordered_to_run()
        played.ended(4)

    lost = f"zklock: the leadership of {path} is lost: {NOT_CONFIRMED}; the command was"
    again = "; waiting to lead again\n"
    errors = f"{lost} ended{again}{lost} not started{again}"
    assert with_play(play, "elect", path, "--", "x") == (4, "", errors)
    assert len(set(nodes)) == 2
    assert tickets(hosts, path) == []


@pytest.mark.parametrize("why", ["--once", "SIGTERM", "SIGINT"])
def test_a_leader_that_is_to_end_leads_no_second_time(why: str, with_play: WithPlay, hosts: str, path: str) -> None:
    def play(played: Played) -> None:
        played.ordered_to_run()
        if why != "--once":
            os.kill(os.getpid(), signal.Signals[why])
            assert played.order() == {"signal": signal.Signals[why]}
        played.ended(0, early=True)
        assert played.order() is None

    options = [why] if why == "--once" else []
    error = f"zklock: the leadership of {path} is lost: {NOT_CONFIRMED}; the command was ended\n"
    assert with_play(play, "elect", path, *options, "--", "x") == (123, "", error)
    assert tickets(hosts, path) == []


@pytest.mark.parametrize("verb", ["run", "elect"])
def test_a_command_ended_by_a_signal_has_its_status(verb: str, with_play: WithPlay, path: str) -> None:
    def play(played: Played) -> None:
        played.ordered_to_run()
        os.kill(os.getpid(), signal.SIGTERM)
        assert played.order() == {"signal": signal.SIGTERM}
        played.ended(-signal.SIGTERM)

    with patch.object(running.Signals, "install", autospec=True, side_effect=running.Signals.install) as installed:
        assert with_play(play, verb, path, "--", "x") == (128 + signal.SIGTERM, "", "")
    assert installed.call_args.args[0].forward is None  # the next signal ends the release


@pytest.mark.parametrize("number", supervisor.FORWARDED)
def test_a_signal_ends_the_wait(number: signal.Signals, with_play: WithPlay, hosts: str, path: str) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(hosts)) as zk, portal.enter(Lock(zk, path)):

        def play(played: Played) -> None:
            end = time.monotonic() + 30
            while len(tickets(hosts, path)) < 2:
                assert time.monotonic() < end
            os.kill(os.getpid(), number)

        assert with_play(play, "run", path, "--", "x") == (128 + number, "", "")
        assert len(tickets(hosts, path)) == 1


@pytest.mark.parametrize(("numbers", "has_stop"), [("HUP INT", True), ("TERM HUP", True), ("HUP", False)])
async def test_the_first_signal_counts_and_one_that_was_ignored_stays_ignored(numbers: str, has_stop: bool) -> None:
    signals = running.Signals()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals.install()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signal.signal(signal.SIGHUP, before)
    sent = [signal.Signals[f"SIG{name}"] for name in numbers.split()]

    async def main_task() -> None:
        signals.install()
        for number in sent:
            signal.raise_signal(number)
        await asyncio.Event().wait()

    task = asyncio.create_task(main_task())
    await asyncio.wait([task])
    for number in supervisor.FORWARDED:
        asyncio.get_running_loop().remove_signal_handler(number)
    assert task.cancelled()
    assert (signals.first, signals.has_stop) == (sent[0], has_stop)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (("--within", "0"), r"the lock {path} is held; zklock show {path} says by which client"),
        (("--try", "-E", "0"), r"the lock {path} is held; zklock show {path} says by which client"),
        (("--within", "0.05", "-E", "255"), r"the lock {path} was not free within 0\.05 s.*"),
    ],
)
def test_a_lock_that_is_held_by_another_client(
    how: tuple[str, ...], message: str, with_play: WithPlay, hosts: str, path: str
) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(hosts)) as zk, portal.enter(Lock(zk, path)):
        status, out, err = with_play(lambda _: None, "run", path, *how, "--", "x")
        assert (status, out) == (int(how[-1]) if "-E" in how else 124, "")
        assert re.fullmatch(f"zklock: {message.format(path=path)}\n", err)

    def play(played: Played) -> None:
        played.ordered_to_run()
        played.ended(0)

    when_free = () if "0.05" in how else how  # a machine may pause
    assert with_play(play, "run", path, *when_free, "--", "x") == (0, "", "")


@pytest.mark.parametrize("verb", ["run", "elect"])
@pytest.mark.parametrize("data", [None, "nightly, \udcff"])
def test_what_others_see_of_a_holder(verb: str, data: str | None, with_play: WithPlay, hosts: str, path: str) -> None:
    """Its data may be any bytes, as arguments may."""

    def play(played: Played) -> None:
        env = played.ordered_to_run()["env"]
        found, stat = with_client(hosts, lambda zk: zk.get(env["ZKLOCK_NODE"]))
        assert found == (f"{socket.gethostname()} {os.getpid()} x.sh".encode() if data is None else b"nightly, \xff")
        assert env["ZKLOCK_PATH"] == path
        assert int(env["ZKLOCK_TOKEN"]) == stat.czxid
        assert int(env["ZKLOCK_SESSION"], 16) == stat.ephemeral_owner
        played.ended(0)

    given = [] if data is None else ["--data", data]
    assert with_play(play, verb, path, *given, "--", "/bin/x.sh", "--secret") == (0, "", "")


@pytest.mark.parametrize(
    ("holder", "mode", "lost"),
    [
        (lambda zk, path: ReadWriteLock(zk, path).read(), "--shared", "shared lock"),
        (lambda zk, path: ReadWriteLock(zk, path).write(), "--shared", None),
        (Lock, "--shared", None),
        (lambda zk, path: ReadWriteLock(zk, path).read(), "", None),
        (lambda zk, path: Semaphore(zk, path, 2), "--permits=2", "semaphore"),
        (lambda zk, path: Semaphore(zk, path, 1), "-n1", None),
    ],
)
def test_with_whom_a_lock_is_held_together(
    holder: Callable[..., Locking[Any]], mode: str, lost: str | None, with_play: WithPlay, hosts: str, path: str
) -> None:
    def play(played: Played) -> None:
        if lost:
            played.ordered_to_run()
            assert len(tickets(hosts, path)) == 2
            played.ended(0, early=True)

    with Portal() as portal, portal.enter(zkwire.connect(hosts)) as zk, portal.enter(holder(zk, path)):
        status, _, err = with_play(play, "run", path, "--try", *mode.split(), "--", "x")
    error = f"the {lost} {path} is lost: {NOT_CONFIRMED}; .*" if lost else ".* is held; .*"
    assert status == (123 if lost else 124)
    assert re.fullmatch(f"zklock: {error}\n", err)


def test_another_number_of_permits_is_refused(with_play: WithPlay, hosts: str, path: str) -> None:
    with_client(hosts, lambda zk: zk.create(path, b"1"))
    status, _, err = with_play(lambda _: None, "run", path, "-n", "4", "--", "x")
    text = f"the semaphore {path} has 1 permit, not 4: give that number, or change it: zkwire set {path} 4"
    assert (status, err) == (125, f"zklock: {text}\n")


@pytest.mark.parametrize(("given", "grace"), [(["5"], 1.25), (["30"], 2.0), (["5", "--grace", "1"], 1.0)])
def test_the_grace_fits_the_session(given: list[str], grace: float, with_play: WithPlay, path: str) -> None:
    def play(played: Played) -> None:
        assert played.ordered_to_run()["grace"] == grace
        played.ended(0)

    assert with_play(play, "run", path, "--session-timeout", *given, "--", "x") == (0, "", "")


# -- what is told meanwhile -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_who_waits_is_told_for_whom_after_two_seconds_and_at_longer_and_longer_pauses(capfd: Capture) -> None:
    async with a_client() as (_, zk):
        await zk.create("/l")  # no container, so it stays
        lease = await Lock(zk, "/l", data=b"web-1\n\xff" + b"x" * 100).acquire()
        others = [asyncio.create_task(Lock(zk, "/l", data=data).acquire()) for data in (b"", b"web-3")]
        telling = asyncio.create_task(running._tell_holder(zk, "/l", b"web-3", "the lock /l"))
        looks = [2.1, 4, 8, 16, 32]
        tells = ["'web-1\\n\\\\xff" + "x" * 90 + "'", "", "a client without data", "its own former session", ""]
        for pause, told in zip(looks, tells, strict=True):
            if pause > 4:
                await lease.release()
                lease = await others.pop(0) if others else lease
            await asyncio.sleep(pause - 0.2)  # of virtual time, which this test is about
            assert capfd.readouterr().err == ""
            await asyncio.sleep(0.2)
            assert capfd.readouterr().err == (told and f"zklock: waiting for the lock /l, held by {told}\n")
        hidden = await zk.create("/l/lock-", ephemeral=True, sequential=True, acl=[zkwire.digest_acl("me", "pw")])
        await asyncio.sleep(32)  # of virtual time
        told = f"a ticket that must not be read: {hidden}"
        assert capfd.readouterr().err == f"zklock: waiting for the lock /l, held by {told}\n"
        telling.cancel()


@pytest.mark.parametrize("verb", ["run", "elect"])
@pytest.mark.parametrize("quiet", [[], ["--quiet"], ["-q"]])
def test_what_is_told_ends_with_what_it_is_about(
    verb: str, quiet: list[str], with_play: WithPlay, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On whom the command waits, until it has the lock; the connection, until the session is closed."""
    told: list[str] = []
    ended = threading.Event()

    async def tell(*words: Any) -> None:
        told.append(f"{words[-1]}")
        try:
            await asyncio.Event().wait()
        finally:
            told.append(f"no more of {words[-1]}")
            ended.set()

    monkeypatch.setattr(running, "_tell_holder", tell)
    monkeypatch.setattr(running, "tell_connection", tell)

    def play(played: Played) -> None:
        played.ordered_to_run()
        assert quiet or ended.wait(30)
        told.append("runs")
        logging.getLogger("recipes.line.known").warning("/l/\x1b")
        played.ended(0)

    assert with_play(play, verb, path, *quiet, "--", "x") == (0, "", "" if quiet else "zklock: /l/\\u001b\n")
    what = f"the {'lock' if verb == 'run' else 'leadership of'} {path}"
    expected = ["zklock", what, f"no more of {what}", "runs", "no more of zklock"]
    assert told == (["runs"] if quiet else expected)
