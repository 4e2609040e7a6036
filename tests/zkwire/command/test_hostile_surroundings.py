"""The command `zkwire` with closed streams, other encodings, bad dumps, bad credentials and servers that refuse."""

import asyncio
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

import zkwire
from recipes.command.main import main as zklock
from zkwire.blocking import Portal
from zkwire.command.main import main
from zkwire.session.request_queue import REQUEST_LIMIT
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[3]


def _in_shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the redirections of a shell."""
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "zkwire", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def _paths(dumped: str) -> list[str]:
    return [json.loads(line)["path"] for line in dumped.splitlines()]


# -- dump ---------------------------------------------------------------------------------------------------------


def test_a_dump_leaves_out_the_servers_own_nodes_only(
    portal: Portal, zk: zkwire.Client, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("/zookeepers", "/zookeepers/a", "/app", "/app/zookeeper"):
        portal.call(zk.create, path, b"")
    assert main(["dump", "/"]) == 0
    assert _paths(capsys.readouterr().out) == ["", "/app", "/app/zookeeper", "/zookeepers", "/zookeepers/a"]
    assert main(["dump", "/", "--hosts", f"{server.hosts}/app"]) == 0
    assert _paths(capsys.readouterr().out) == ["", "/zookeeper"]
    assert main(["dump", "/zookeeper"]) == 0
    assert "/quota" in _paths(capsys.readouterr().out)


# -- streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "statuses"),
    [("get /none", (1, 1)), ("ls bad", (2, 2)), ("dump /", (0, 0)), ("ls /", (0, 1)), ("run bad -- true", (125, 125))],
)
@pytest.mark.parametrize("is_full", [False, True])
def test_complaints_that_nobody_reads_change_no_status_nor_does_a_reader_that_ends_early(
    words: str, statuses: tuple[int, int], is_full: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ends with 120 if what is left in a standard stream cannot be written."""
    reading, writing = (os.open(os.devnull, 0), os.open("/dev/full", os.O_WRONLY)) if is_full else os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1, encoding="utf-8") as stream:
        monkeypatch.setattr(stream, "isatty", lambda: words != "ls /")
        monkeypatch.setattr(sys, "stdout" if words == "ls /" else "stderr", stream)
        with contextlib.suppress(SystemExit) if "bad" in words else contextlib.nullcontext():
            assert (zklock if "run" in words else main)(words.split()) == statuses[is_full]
        stream.flush()


@pytest.mark.parametrize(("command", "redirected"), [("ls", "2>&-"), ("dump", ">&-"), ("dump", ">&- 2>&-")])
def test_a_closed_output_is_no_error(server: Server, command: str, redirected: str) -> None:
    ran = _in_shell(redirected, command, "/")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["set", "/a", "-"], ["load", "/c"]])
def test_a_closed_input_is_a_line_and_a_status(server: Server, arguments: list[str]) -> None:
    ran = _in_shell("<&-", *arguments)
    assert (ran.returncode, ran.stderr) == (1, "zkwire: the standard input is closed\n")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_json_and_text_are_printed_in_any_encoding(
    portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    portal.call(zk.create, "/中é", "é中".encode())

    def printed(*arguments: str) -> str:
        output = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding=encoding))
        assert main(arguments) == 0
        return output.getvalue().decode(encoding)

    assert json.loads(printed("ls", "--json")) == ["zookeeper", "中é"]
    assert _paths(printed("dump")) == ["", "/中é"]
    assert ("\\u4e2d" in printed("ls")) is (encoding != "utf-8")


def test_a_dump_is_read_as_utf8_whatever_the_encoding_of_text(
    portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '{"path": "/x", "data": "é", "acl": ["world:anyone:cdrwa"]}\n'.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line), encoding="latin-1"))
    assert main(["load", "/"]) == 0
    assert portal.call(zk.get, "/x").data == "é".encode()


def test_data_is_read_before_the_session_begins(
    portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session would expire while its event loop waits for the data, and asyncio would hold back an interrupt."""

    class Data(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            return super().read(size)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Data(b"\xff\x00")))
    assert main(["create", "/a", "-"]) == 0
    assert portal.call(zk.get, "/a").data == b"\xff\x00"


def test_no_more_is_read_than_a_server_accepts(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = io.BytesIO(bytes(2 * REQUEST_LIMIT))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    assert main(["set", "/a", "-"]) == 2
    assert data.tell() == REQUEST_LIMIT + 1
    assert f"more than {REQUEST_LIMIT} bytes" in capsys.readouterr().err


class Terminal(io.TextIOWrapper):
    """A standard stream that is a terminal."""

    def isatty(self) -> bool:
        return True


NAME = "\u202e\u2028\u200bü"  # written backwards from here; a line of its own; nothing that is seen
COMMANDS = [
    *("ls /", "ls -l /", "ls -r /", "ls --json /", "tree /", "acl /b", "acl /b --json", "get /b", "get /b --json"),
    *("dump /", "srvr", "mntr", "config", "whoami", f"create /{NAME}/a", f"get /{NAME}/b", f"rm /{NAME} --version 9"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_gets_nothing_that_it_would_carry_out(
    portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    hostile = f"{NAME}\x1b[2J\x9b\U000e0001"  # and sequences that control it
    entries = (zkwire.ACL(zkwire.Perms.ALL, "world", "anyone"), zkwire.ACL(0, "digest", f"a:{hostile}\n"))
    portal.call(zk.create, "/b", f"{hostile}\ta\n\r\n".encode(), acl=entries)
    portal.call(zk.create, f"/{NAME}")
    monkeypatch.setattr(zkwire.Client, "whoami", AsyncMock(return_value=[zkwire.ClientInfo("x509", hostile)]))
    config = zkwire.Configuration(hostile.encode(), AsyncMock())
    monkeypatch.setattr(zkwire.Client, "get_config", AsyncMock(return_value=config))
    answer = {hostile: hostile} if command == "mntr" else f"a\n{hostile}\n"
    monkeypatch.setattr(zkwire, "four_letter_word", AsyncMock(return_value=answer))
    streams = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, Terminal(stream, encoding="utf-8", write_through=True))
    main(command.split(" "))
    printed = "".join(stream.getvalue().decode() for stream in streams.values())
    assert "\\u202e\\u2028\\u200bü" in printed
    assert "\\t" not in printed or "{" in printed  # in data, a tab is no harm
    text = printed.replace("\rdumped", "dumped")
    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    for line in printed.splitlines():
        if "--json" in command or line.startswith("{"):
            json.loads(line)


def test_what_is_no_terminal_gets_names_and_data_as_they_are(
    portal: Portal, zk: zkwire.Client, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    portal.call(zk.create, f"/{NAME}", b"\x1b\xff\r\n")
    statuses = [main(words) for words in (["ls", "/"], ["get", f"/{NAME}"], ["get", f"/{NAME}/none"])]
    printed = capfdbinary.readouterr()
    assert (statuses, printed.out) == ([0, 0, 1], f"zookeeper\n{NAME}\n".encode() + b"\x1b\xff\r\n")
    assert rb"\u202e\u2028" in printed.err  # which is for people, whatever it is


def test_no_server_means_a_line_and_a_status() -> None:
    ran = _in_shell("", "ls", "--hosts", "127.0.0.1:1", "--within", "0.3")
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)  # the log writes nothing beside it
    assert ran.stderr.startswith("zkwire: no session within 0.3 s: 127.0.0.1:1: ")


# -- credentials and refusals -------------------------------------------------------------------------------------


MISPLACED = [
    *("{}", "ls {}", "ls / {}", "ls / --autth {}", "ls --autth={} /", "ls --js={}", "ls -l={}", "ls --a={}"),
    *("ls --auth digest:{} {}", "ls --hosts digest:{}:", "ls --within {}", "tree --depth {}", "watch / -n {}"),
    *("ls --tls={}", "get --a={}"),
    *("acl {}", "acl /x {}", "acl /x {}:zz", "acl /x {}:x:r", "create /x --acl {}", "create /x --ttl {}"),
    *("create --a={} /x", "create {}", "set {} data", "set /x y --version {}", "rm {}", "load {}", "--hosts x:y {}"),
]


@pytest.mark.parametrize("words", MISPLACED)
@pytest.mark.parametrize("program", [main, zklock])
def test_no_complaint_shows_what_was_given(
    program: Callable[[list[str]], int], words: str, capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    for secret in ("S3CRET", "digest:root:S3CRET", "root@S3CRET", "'S3CRET", "a\nS3CRET"):
        given = [word.format(secret) for word in words.split()]
        if program is zklock:
            given[0] = {"ls": "show", "create": "run", "set": "elect"}.get(given[0], given[0])
        status = None
        with contextlib.suppress(SystemExit):
            status = program(given)
        complaint = capsys.readouterr().err
        assert status in (None, 1, 2, 125)
        assert "S3CRET" not in complaint
        assert ": " in complaint


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("ls --hosts 127.0.0.1:1 --within 0.1", "give it more time to connect, see --help"),
        ("ls --hosts a@b", "give credentials as --auth"),
        ("ls --hosts zk:port", "port"),
        ("get /a//b", "/a//b"),
        ("ls --auth sasl:x", "SASL takes several messages, which auth cannot carry"),
        ("ls --tls-ca=", "--tls-ca, --tls-cert or --tls-key: [Errno 21]"),  # not without TLS
        ("ls --tls-key /none", "--tls-key needs --tls-cert"),
        ("ls --tls", "leave out the options of TLS"),
        ("ls --hosts {1}/none", "create it with zkwire create -p /)"),
        ("srvr --within 0.1 --hosts 127.0.0.1:{2}", "; a server that waits for TLS is silent too: see --tls"),
        ("create /a {}", "jute.maxbuffer)"),
    ],
)
def test_errors_name_options_of_the_command_and_no_arguments_of_python(
    portal: Portal, zk: zkwire.Client, command: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = command.format("x" * REQUEST_LIMIT, zk.server, silent.getsockname()[1]).split()
        assert main(words) in (1, 2, 3)
    complaint = capsys.readouterr().err
    assert named in complaint
    assert "zkwire.connect" not in complaint
    assert "`" not in complaint.replace("`zkwire srvr`", "")


def test_a_server_that_refuses_a_word_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = zkwire.UnimplementedError(-6, operation="srvr", server="refusing:1")
    monkeypatch.setattr(zkwire, "four_letter_word", AsyncMock(side_effect=[refusal, "Mode: standalone\n"]))
    assert main(["srvr", "--hosts", "refusing:1,other:1"]) == 1
    printed = capsys.readouterr()
    assert "Mode: standalone" in printed.out
    assert "refusing:1" in printed.err
