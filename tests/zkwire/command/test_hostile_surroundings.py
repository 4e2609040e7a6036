"""The command `zkwire` with closed streams, other encodings, bad dumps, bad credentials and servers that refuse."""

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import zkwire
from zkwire.blocking import Portal
from zkwire.command.main import main
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

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Data(b"x")))
    assert main(["create", "/a", "-"]) == 0
    assert portal.call(zk.get, "/a").data == b"x"


# -- credentials and refusals -------------------------------------------------------------------------------------


def test_a_bad_credential_of_the_environment_is_a_line_without_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZKWIRE_AUTH", "hunter2")
    assert main(["ls"]) == 2
    message = capsys.readouterr().err
    assert "SCHEME:CREDENTIAL" in message
    assert "hunter2" not in message


def test_a_credential_may_be_any_bytes(
    portal: Portal, zk: zkwire.Client, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls", "--auth", "digest:me:p:w\udcff"]) == 0
    assert capsys.readouterr().out == "zookeeper\n"


def test_a_server_that_refuses_a_word_does_not_hide_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = zkwire.four_letter_word

    async def asked(host: str, word: str, **options: object) -> object:
        if host == "refusing:1":
            raise zkwire.UnimplementedError(-6, operation=word, server=host)
        return await ask(host, word)

    monkeypatch.setattr(zkwire, "four_letter_word", asked)
    assert main(["srvr", "--hosts", f"refusing:1,{server.hosts}"]) == 1
    printed = capsys.readouterr()
    assert "Mode: standalone" in printed.out
    assert "refusing:1" in printed.err
