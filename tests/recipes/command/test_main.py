"""`zklock run` and `zklock elect` in the process of the test: exit statuses, errors, arguments, and what they leave."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zkwire
from recipes import Lock
from recipes.command import supervisor
from recipes.command.main import main, parser
from tests.support.recipes import line
from zkwire.blocking import Portal
from zkwire.testing import ServerProcess

Capture = pytest.CaptureFixture[str]
NOT_CONFIRMED = "the ensemble did not confirm in time that it is still held"


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


def tickets(hosts: str, path: str) -> list[str]:
    """Return the tickets below `path`."""

    async def found() -> list[str]:
        async with zkwire.connect(hosts) as zk:
            return await line(zk, path)

    return asyncio.run(found())


# -- exit statuses --------------------------------------------------------------------------------------------------


def test_the_supervisor_ends_although_its_socket_cannot_be_used(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    async def refused(*, sock: socket.socket) -> None:
        started.append(sock)
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "open_connection", refused)
    status, _, errors = zklock(capfd, "run", "/locks/a", "--", "true")
    assert (status, "too many open files" in errors) == (125, True)
    assert started[0].fileno() == -1


@pytest.mark.parametrize("verb", ["run", "elect"])
def test_exit_statuses(verb: str, hosts: str, path: str, tmp_path: Path, capfd: Capture) -> None:
    no_program = tmp_path / "no-program"
    no_program.write_text("")
    for arguments, status, error in [
        ((path, "--", "sh", "-c", "exit 7"), 7, ""),
        ((path, "--", "sh", "-c", "kill -9 $$"), 137, ""),
        ((path, "--", "nowhere-to-be-found"), 127, "zklock: nowhere-to-be-found: No such file or directory\n"),
        ((path, "--", str(no_program)), 126, f"zklock: {no_program}: Permission denied\n"),
        ((path,), 125, "zklock: behind --, write the command to run\n"),
        ((path, "--"), 125, "zklock: behind --, write the command to run\n"),
        (("relative", "--", "true"), 125, "zklock: bad path 'relative': it must start with '/'\n"),
        (
            (path, "--grace", "7.6", "--", "true"),
            125,
            r"zklock: a grace of 7\.6 s is too long for a session timeout of 30 s: take 7\.5 s at most, or a longer"
            " --session-timeout\n",
        ),
        ((path, "--grace", "7.5", "--", "true"), 0, ""),
        ((path, "--grace", "0", "--", "true"), 0, ""),
        (
            (path, "--hosts", "127.0.0.1:1", "--connect-within", "0.1", "--", "true"),
            125,
            r"zklock: no session within 0\.1 s: 127\.0\.0\.1:1: .*\n",
        ),
        ((path, "--tls-ca", "/none/such", "--", "true"), 125, r"zklock: .*No such file or directory.*\n"),
        ((path, "--hosts", ":", "--", "true"), 125, "zklock: .*\n"),
        (
            (path, "--bad", "--", "true"),
            125,
            rf"usage: zklock {verb} .*\nzklock {verb}: unrecognized arguments: --bad\n",
        ),
        (
            (path, "--grace", "-1", "--", "true"),
            125,
            rf"usage: zklock {verb} .*\nzklock {verb}: argument --grace: .*\n",
        ),
    ]:
        came, out, err = zklock(capfd, verb, *arguments)
        assert (came, out) == (status, ""), (arguments, err)
        assert re.fullmatch(error, err), (arguments, err)
    assert tickets(hosts, path) == []


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "relative"], 2, "bad path 'relative'"),
        (["show", "/a", "--", "true"], 2, "show takes no command"),
        (["show", "--hosts", "127.0.0.1:1", "--connect-within", "0.2"], 3, "no session within 0.2 s"),
        (["show", "--tls-ca", "/none/such"], 1, "No such file or directory"),
    ],
)
def test_errors_of_show_are_a_line_and_a_status(
    arguments: list[str], status: int, message: str, capfd: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    logs = logging.getLogger("zkwire"), logging.getLogger("recipes")
    for each, level in zip(logs, (logging.INFO, logging.WARNING), strict=True):
        caplog.set_level(level, each.name)
    came, out, err = zklock(capfd, *arguments)
    assert (came, out) == (status, "")
    assert message in err
    assert err.startswith("zklock: ")
    assert err.count("\n") == 1
    assert caplog.records == []
    assert [each.level for each in logs] == [logging.INFO, logging.WARNING]


def test_a_bad_credential_of_the_environment_is_misuse(
    path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKWIRE_AUTH", "nonsense")
    for status, arguments in (2, ["show"]), (125, ["run", path, "--", "true"]):
        came, out, err = zklock(capfd, *arguments)
        assert (came, out) == (status, "")
        assert err.startswith("zklock: a credential is SCHEME:CREDENTIAL")


def test_a_lock_that_the_client_may_not_use_is_an_error(hosts: str, path: str, capfd: Capture) -> None:
    async def forbid() -> None:
        async with zkwire.connect(hosts) as zk:
            await zk.create(path, acl=[zkwire.digest_acl("me", "pw")])

    asyncio.run(forbid())
    for status, arguments in (1, ["show", path]), (125, ["run", path, "--", "true"]):
        came, out, err = zklock(capfd, *arguments)
        assert (came, out) == (status, "")
        assert re.match(f"zklock: .*{path}.*: the ACL does not allow the operation", err)


def test_the_arguments_of_the_program_are_the_default(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["zklock", "show", "relative"])
    assert main() == 2
    assert main([*sys.argv[1:], "--json"]) == 2
    with pytest.raises(SystemExit):
        main([])
    assert capfd.readouterr().err.count("bad path 'relative'") == 2


def test_a_reader_that_has_ended_is_no_error(path: str, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    """As in `zklock show | true`; what Python still has to write at its end must not fail either."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["show", path]) == 0
    assert capfd.readouterr().err == ""


# -- arguments ------------------------------------------------------------------------------------------------------


def _options(*arguments: str) -> dict[str, Any]:
    """Return the options that say what to do, but for those of the connection."""
    found = vars(parser().parse_args(arguments))
    assert callable(found.pop("run"))
    assert found.pop("parser").prog == f"zklock {arguments[0]}"
    return {
        name: found[name] for name in found if name not in ("hosts", "auth", "tls", "tls_ca", "tls_cert", "tls_key")
    }


def test_the_options_and_their_defaults() -> None:
    running = {
        "path": "/l",
        "data": None,
        "grace": 2.0,
        "to_connect": 10.0,
        "session_timeout": 30.0,
        "takes_command": True,
        "misused": 125,
        "refused": 125,
        "unreachable": 125,
    }
    assert _options("run", "/l") == {**running, "within": None, "only_try": False}
    assert _options("run", "/l", "--within", "0", "--grace", "0") == {
        **running,
        "grace": 0.0,
        "within": 0.0,
        "only_try": False,
    }
    assert _options("run", "/l", "--try")["only_try"] is True
    assert _options("elect", "/l") == {**running, "once": False}
    assert _options("elect", "/l", "--once", "--data", "x", "--connect-within", "1.5") == {
        **running,
        "once": True,
        "data": "x",
        "to_connect": 1.5,
    }
    showing = {
        "path": "/",
        "watch": False,
        "json": False,
        "to_connect": 10.0,
        "session_timeout": 10.0,
        "takes_command": False,
        "misused": 2,
        "refused": 1,
        "unreachable": 3,
    }
    assert _options("show") == showing
    assert _options("show", "/l", "--watch", "--json") == {**showing, "path": "/l", "watch": True, "json": True}


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "/l", "--within", "-1"),
        ("run", "/l", "--within", "nan"),
        ("run", "/l", "--within", "inf"),
        ("run", "/l", "--within", "soon"),
        ("run", "/l", "--try", "--within", "1"),
        ("elect", "/l", "--try"),
        ("elect",),
    ],
)
def test_arguments_that_are_not_understood(arguments: tuple[str, ...], capfd: Capture) -> None:
    status, out, err = zklock(capfd, *arguments)
    assert (status, out) == (125, "")
    assert err.startswith(f"usage: zklock {arguments[0]} PATH [OPTION ...] -- COMMAND [ARGUMENT ...]\n")


def test_help_is_no_error(capfd: Capture) -> None:
    for verb in ("run", "elect", "show"):
        status, out, err = zklock(capfd, verb, "--help")
        assert (status, err) == (0, "")
        assert out.startswith(f"usage: zklock {verb} ")
    assert zklock(capfd, "--help")[0] == 0


def test_what_stands_behind_the_first_two_hyphens_belongs_to_the_command(path: str, capfd: Capture) -> None:
    say = ("sh", "-c", 'echo "$@"; env | grep ^ZKLOCK_ | sort', "sh", "--try", "--", "--help", "a b")
    status, out, err = zklock(capfd, "run", path, "--data", "x", "--", *say)
    assert (status, err) == (0, "")
    said, node, its_path, session, token = out.splitlines()
    assert said == "--try -- --help a b"
    assert re.fullmatch(rf"ZKLOCK_NODE={path}/_c_[-0-9a-f]+-lock-\d{{10}}", node)
    assert its_path == f"ZKLOCK_PATH={path}"
    assert re.fullmatch(r"ZKLOCK_SESSION=0x[0-9a-f]+", session)
    assert re.fullmatch(r"ZKLOCK_TOKEN=\d+", token)


def test_run_needs_a_system_that_forks(path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    for verb in ("run", "elect"):
        assert zklock(capfd, verb, path, "--", "true") == (
            125,
            "",
            "zklock: run and elect need a system with processes that fork\n",
        )


def test_the_supervisor_has_ended_when_the_command_returns(
    path: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start() -> tuple[socket.socket, int]:
        started.append(supervisor_start())
        return started[-1]

    supervisor_start = supervisor.start
    monkeypatch.setattr(supervisor, "start", start)
    for arguments, status in (
        (("--", "true"), 0),
        (("--hosts", "127.0.0.1:1", "--connect-within", "0.1", "--", "true"), 125),
    ):
        assert zklock(capfd, "run", path, *arguments)[0] == status
        ((orders, pid),) = started
        assert orders.fileno() == -1
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
        started.clear()


# -- with a supervisor that the test plays -----------------------------------------------------------------------------

NO_GROUP = 2**30  # greater than every process id


class Played:
    """The supervisor's end of the socket, in a thread of its own."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.settimeout(30)
        self._reading = end.makefile("rb")

    def order(self) -> dict[str, Any] | None:
        """Return the next order that does not only say until when the lock is certain to be held; None at the end."""
        for text in self._reading:
            order: dict[str, Any] = json.loads(text)
            if list(order) != ["until"]:
                return order
        return None

    def variables(self) -> dict[str, str]:
        """Take the order to run a command; return its environment."""
        order = self.order()
        assert order is not None
        found: dict[str, str] = order["env"]
        return found

    def answer(self, **fields: Any) -> None:
        self._end.sendall(json.dumps(fields).encode() + b"\n")

    def ordered_to_run(self) -> str:
        """Take the order to run a command; return the node of the holder."""
        return self.variables()["ZKLOCK_NODE"]

    def end(self, status: int, *, early: bool) -> None:
        """Answer that the command was begun and has ended."""
        self.answer(group=NO_GROUP)
        self.answer(status=status, early=early)

    def close(self) -> None:
        self._reading.close()
        self._end.close()


@pytest.fixture
def with_play(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> Callable[..., tuple[int, str, str]]:
    """Run `zklock` in this thread, and the play of a supervisor in another one."""

    def run(play: Callable[[Played], object], *arguments: str) -> tuple[int, str, str]:
        ours, theirs = socket.socketpair()
        played = Played(theirs)
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


WithPlay = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("early", "late", "status", "words"),
    [
        (False, False, 7, ""),
        (True, False, 123, f"zklock: the lock {{path}} is lost: {NOT_CONFIRMED}; the command was ended\n"),
        (False, True, 123, f"zklock: the lock {{path}} is lost: {NOT_CONFIRMED}; the command was not started\n"),
    ],
)
def test_how_a_command_under_a_lock_has_ended(
    early: bool, late: bool, status: int, words: str, with_play: WithPlay, hosts: str, path: str
) -> None:
    def play(played: Played) -> None:
        node = played.ordered_to_run()
        assert f"{path}/{tickets(hosts, path)[0]}" == node
        if late:
            played.answer(late=True)
        else:
            played.end(7, early=early)

    assert with_play(play, "run", path, "--", "x") == (status, "", words.format(path=path))
    assert tickets(hosts, path) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_leader_that_was_not_confirmed_in_time_leads_again(
    is_late: bool, with_play: WithPlay, hosts: str, path: str
) -> None:
    """It gives the leadership back: another candidate may lead meanwhile."""
    nodes = []

    def play(played: Played) -> None:
        nodes.append(played.ordered_to_run())
        if is_late:
            played.answer(late=True)
        else:
            played.end(0, early=True)
        nodes.append(played.ordered_to_run())
        assert [f"{path}/{name}" for name in tickets(hosts, path)] == [nodes[1]]
        played.end(4, early=False)

    what = "not started" if is_late else "ended"
    assert with_play(play, "elect", path, "--", "x") == (
        4,
        "",
        f"zklock: the leadership of {path} is lost: {NOT_CONFIRMED}; the command was {what}; waiting to lead again\n",
    )
    assert len(set(nodes)) == 2
    assert tickets(hosts, path) == []


@pytest.mark.parametrize("why", ["--once", "SIGTERM", "SIGINT"])
def test_a_leader_that_is_to_end_leads_no_second_time(why: str, with_play: WithPlay, hosts: str, path: str) -> None:
    def play(played: Played) -> None:
        played.ordered_to_run()
        if why != "--once":
            os.kill(os.getpid(), signal.Signals[why])
            assert played.order() == {"signal": signal.Signals[why]}
        played.end(0, early=True)
        assert played.order() is None

    options = [why] if why == "--once" else []
    assert with_play(play, "elect", path, *options, "--", "x") == (
        123,
        "",
        f"zklock: the leadership of {path} is lost: {NOT_CONFIRMED}; the command was ended\n",
    )
    assert tickets(hosts, path) == []


def test_a_leader_that_got_sighup_leads_again(with_play: WithPlay, path: str) -> None:
    """A command may read its settings again at SIGHUP."""

    def play(played: Played) -> None:
        played.ordered_to_run()
        os.kill(os.getpid(), signal.SIGHUP)
        assert played.order() == {"signal": signal.SIGHUP}
        played.end(0, early=True)
        played.ordered_to_run()
        played.end(0, early=False)

    assert with_play(play, "elect", path, "--", "x")[0] == 0


@pytest.mark.parametrize("verb", ["run", "elect"])
def test_a_command_ended_by_a_signal_has_its_status(verb: str, with_play: WithPlay, path: str) -> None:
    def play(played: Played) -> None:
        played.ordered_to_run()
        os.kill(os.getpid(), signal.SIGTERM)
        assert played.order() == {"signal": signal.SIGTERM}
        played.end(-signal.SIGTERM, early=False)

    assert with_play(play, verb, path, "--", "x") == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize("verb", ["run", "elect"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_wait(verb: str, number: signal.Signals, with_play: WithPlay, hosts: str, path: str) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(hosts)) as zk, portal.enter(Lock(zk, path)):

        def play(played: Played) -> None:
            end = time.monotonic() + 30
            while len(tickets(hosts, path)) < 2:
                assert time.monotonic() < end
            os.kill(os.getpid(), number)

        assert with_play(play, verb, path, "--", "x") == (128 + number, "", "")
        assert len(tickets(hosts, path)) == 1


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (("--try",), "the lock {path} is held by another client"),
        (("--within", "0.05"), r"the lock {path} was not free within 0\.05 s.*"),
        (("--within", "0"), r"the lock {path} was not free within 0\.0 s.*"),
    ],
)
def test_a_lock_that_is_held_by_another_client(
    how: tuple[str, ...], message: str, with_play: WithPlay, hosts: str, path: str
) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(hosts)) as zk, portal.enter(Lock(zk, path)):
        status, out, err = with_play(lambda _: None, "run", path, *how, "--", "x")
        assert (status, out) == (124, "")
        assert re.fullmatch(f"zklock: {message.format(path=path)}\n", err)

    def play(played: Played) -> None:
        played.ordered_to_run()
        played.end(0, early=False)

    when_free = () if how == ("--within", "0.05") else how  # a machine may pause
    assert with_play(play, "run", path, *when_free, "--", "x") == (0, "", "")


@pytest.mark.parametrize("verb", ["run", "elect"])
@pytest.mark.parametrize("data", [None, "nightly, \udcff"])
def test_what_others_see_of_a_holder(verb: str, data: str | None, with_play: WithPlay, hosts: str, path: str) -> None:
    """Its data may be any bytes, as arguments may."""

    async def looked(node: str) -> zkwire.Node:
        async with zkwire.connect(hosts) as zk:
            return await zk.get(node)

    def play(played: Played) -> None:
        env = played.variables()
        found, stat = asyncio.run(looked(env["ZKLOCK_NODE"]))
        assert found == (f"{socket.gethostname()} {os.getpid()} x.sh".encode() if data is None else b"nightly, \xff")
        assert env["ZKLOCK_PATH"] == path
        assert int(env["ZKLOCK_TOKEN"]) == stat.czxid
        assert int(env["ZKLOCK_SESSION"], 16) == stat.ephemeral_owner
        played.end(0, early=False)

    given = [] if data is None else ["--data", data]
    assert with_play(play, verb, path, *given, "--", "/bin/x.sh", "--secret") == (0, "", "")
