"""The command `zkwire`: each verb against a server, as text and as JSON; exit statuses; interrupts; broken pipes."""

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

import zkwire
from recipes.command.main import parser as zklock_parser
from tests.support.tls import TlsFront
from zkwire.blocking import Portal
from zkwire.command import output
from zkwire.command.main import main, parser
from zkwire.testing import Server, make_certificates

ROOT = Path(__file__).resolve().parents[3]


Run = Callable[..., str]


@pytest.fixture
def run(server: Server, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must succeed, and return what it prints."""

    def run(*arguments: str, status: int = 0) -> str:
        assert main(arguments) == status
        printed = capsys.readouterr()
        assert (printed.err == "") is (status == 0) or arguments[0] == "watch"
        return printed.out if status == 0 else printed.err

    return run


def _feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# -- nodes --------------------------------------------------------------------------------------------------------


def test_a_node_is_created_read_set_and_removed(run: Run) -> None:
    assert run("create", "/a", "hello") == "/a\n"
    assert run("get", "/a") == "hello"
    assert run("set", "/a", "bye") == "version 1\n"
    assert run("get", "/a") == "bye"
    assert json.loads(run("get", "/a", "--json"))["stat"]["data_length"] == 3
    assert run("rm", "/a") == ""
    assert run("ls", "/") == "zookeeper\n"


def test_create_takes_parents_numbers_containers_and_acls(run: Run, portal: Portal, zk: zkwire.Client) -> None:
    assert run("create", "-p", "/a/b/c-", "--sequential") == "/a/b/c-0000000000\n"
    run("create", "/box", "--container")
    run("create", "/mine", "--acl", "world:anyone:r", "--acl", "ip:127.0.0.1:cdrwa")
    acl, _ = portal.call(zk.get_acl, "/mine")
    assert acl == [zkwire.ACL(1, "world", "anyone"), zkwire.ACL(31, "ip", "127.0.0.1")]


def test_a_version_that_does_not_match_is_refused(run: Run) -> None:
    run("create", "/a")
    assert "/a" in run("set", "/a", "x", "--version", "7", status=1)
    assert "/a" in run("rm", "/a", "--version", "7", status=1)
    assert run("ls", "/") == "a\nzookeeper\n"


def test_ls_sorts_and_shows_stats(run: Run, portal: Portal, zk: zkwire.Client) -> None:
    for path, data in (("/a", ""), ("/a/y", "12"), ("/a/x", "")):
        run("create", path, data)
    portal.call(zk.create, "/a/z", b"", ephemeral=True)
    assert run("ls", "/a") == "x\ny\nz\n"
    assert json.loads(run("ls", "/a", "--json")) == ["x", "y", "z"]
    header, *rows = run("ls", "-l", "/a").splitlines()
    assert header.split() == ["version", "bytes", "children", "owner", "changed", "name"]
    assert [row.split()[-1] for row in rows] == ["x", "y", "z"]
    assert [row.split()[3] == "-" for row in rows] == [True, True, False]
    assert f"{zk.session_id:#x}" in rows[2]
    assert run("ls", "-r", "/a") == "/a/x\n/a/y\n/a/z\n"
    listed = run("ls", "-r", "/a", "--json").splitlines()
    assert [json.loads(line)["path"] for line in listed] == ["/a/x", "/a/y", "/a/z"]
    assert [line.split()[-1] for line in run("ls", "-lr", "/a").splitlines()] == ["/a/x", "/a/y", "/a/z"]
    assert run("ls", "/a/x") == ""


def test_tree_draws_the_nodes_with_their_parents(run: Run) -> None:
    for path in ("/t", "/t/b", "/t/b/c", "/t/a"):
        run("create", path, "xx" if path == "/t/a" else "")
    assert run("tree", "/t") == "/t\n  a  (2 bytes)\n  b\n    c\n3 nodes\n"
    assert run("tree", "/t", "--depth", "1") == "/t\n  a  (2 bytes)\n  b\n2 nodes\n"
    assert run("tree", "/t", "--json") == run("ls", "-r", "/t", "--json") != ""


def test_nodes_that_may_not_be_read_are_listed(
    run: Run, portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = [zkwire.ACL(zkwire.Perms.CREATE, "world", "anyone")]
    run("create", "-p", "/a/b")
    portal.call(zk.create, "/a/b/hidden", b"", acl=hidden)
    portal.call(zk.create, "/a/b/hidden/c")
    assert run("ls", "-l", "/a/b").splitlines()[1].split() == ["?", "?", "?", "?", "?", "hidden"]
    assert json.loads(run("ls", "-l", "/a/b", "--json")) == {"name": "hidden", "stat": None}
    portal.call(zk.create, "/a/z")
    for command, lines in {
        "ls -r": ["/a/b", "/a/b/hidden", "/a/z"],
        "ls -lr": ["?  ?  ?  ?  ?  /a/b/hidden"],
        "ls -r --json": ['{"path": "/a/b/hidden", "stat": null}'],
        "tree": ["/a", "  b", "    hidden  ?", "  z"],
        "dump": ['{"path": "/z", "data": "", "acl": ["world:anyone:cdrwa"]}'],
    }.items():
        assert main([*command.split(), "/a"]) == 1
        printed = capsys.readouterr()
        assert [line for line in printed.out.splitlines() if line in lines] == lines
        assert printed.err == "zkwire: 1 node and what is below must not be read, the first of them /a/b/hidden\n"
    assert run("ls", "-r", "/a/b/hidden", status=1).startswith("zkwire: getChildren2 /a/b/hidden: ")
    assert run("tree", "/a", "--depth", "1") == "/a\n  b\n  z\n2 nodes\n"
    for error, status in (None, 0), (zkwire.SessionClosedError("lost"), 3):
        monkeypatch.setattr(zkwire.Client, "exists", AsyncMock(side_effect=error, return_value=None))
        assert run("ls", "-l", "/a/b", status=status) == ("zkwire: lost\n" if error else "")


def test_a_whole_tree_is_removed(run: Run) -> None:
    run("create", "-p", "/a/b/c")
    assert "/a" in run("rm", "/a", status=1)
    run("rm", "-r", "/a")
    assert run("ls", "/") == "zookeeper\n"


def test_stat_prints_every_field(run: Run, portal: Portal, zk: zkwire.Client) -> None:
    run("create", "/a", "abc")
    shown = json.loads(run("stat", "/a", "--json"))
    found = portal.call(zk.exists, "/a")
    assert found is not None
    assert zkwire.Stat(**shown) == found
    lines = run("stat", "/a").splitlines()
    assert f"czxid = {found.czxid:#x}" in lines
    assert "data_length = 3" in lines
    message = run("stat", "/nothing", status=1)
    assert "exists /nothing: no such node" in message
    assert zk.server in message


def test_an_acl_is_printed_and_set(run: Run) -> None:
    run("create", "/a")
    assert run("acl", "/a") == "world:anyone:cdrwa\n"
    run("acl", "/a", "world:anyone:ra")
    assert json.loads(run("acl", "/a", "--json")) == ["world:anyone:ra"]
    entry = f"digest:{zkwire.digest_acl('bob', 'pw').id}:a"
    run("acl", "/a", entry)
    assert run("acl", "/a", "--auth", "digest:bob:pw") == f"{entry}\n"
    hashes = ("pw", "a" * 20, "a" * 28, "a" * 27, f"{'a' * 27}==")  # the hash of the password is meant
    for bad in ("world:anyone:xyz", "world:anyone:", *(f"digest:bob:{each}:r" for each in hashes)):
        with pytest.raises(SystemExit):
            run("acl", "/a", bad)


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_prints_changes(run: Run, portal: Portal, zk: zkwire.Client, server: Server, as_json: bool) -> None:
    portal.call(zk.create, "/w", b"")
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(run, "watch", "/w", "-r", "-n", "2", *(["--json"] if as_json else []))
        while not portal.call(_count, server, "zk_watch_count"):
            time.sleep(0.01)
        portal.call(zk.create, "/w/a", b"")
        portal.call(zk.set, "/w/a", b"x")
        printed = watching.result(60)
    if as_json:
        assert [json.loads(line)["event"] for line in printed.splitlines()] == ["CREATED", "CHANGED"]
    else:
        assert printed == "CREATED  /w/a\nCHANGED  /w/a\n"


def test_watch_says_when_the_connection_is_lost_and_when_it_is_back(
    portal: Portal, zk: zkwire.Client, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    portal.call(zk.create, "/w", b"")
    said = ""

    def until_said(text: str) -> None:
        nonlocal said
        for _ in range(6000):
            said += capsys.readouterr().err
            if text in said:
                return
            time.sleep(0.01)
        raise TimeoutError(said)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(main, ["watch", "/w", "-n", "1"])
        until_said("watching /w\n")
        with portal.enter(server.stopped()):
            until_said("zkwire: the connection is lost, the session may still live\n")
        until_said("zkwire: connected\n")
        assert watching.result(60) == 0  # the RESYNC, which says that changes may be missing


# -- dump and load ------------------------------------------------------------------------------------------------


def test_a_dump_loads_as_it_was(run: Run, portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    portal.call(zk.create, "/app", b"top")
    portal.call(zk.create, "/app/text", "ä".encode())
    portal.call(zk.create, "/app/text/bytes", b"\xff", acl=zkwire.READ_ONLY_ACL)
    portal.call(zk.create, "/app/mine", b"", ephemeral=True)
    dumped = run("dump", "/app")
    assert [json.loads(line)["path"] for line in dumped.splitlines()] == ["", "/text", "/text/bytes"]
    _feed(monkeypatch, dumped.encode())
    run("load", "/copy/of/app")
    assert run("dump", "/copy/of/app") == dumped


def test_hashes_that_the_server_masks_are_neither_dumped_nor_loaded_in_silence(
    run: Run, portal: Portal, zk: zkwire.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ADMIN the server shows x in place of a hash; with that in their ACL, no client could log in any more."""
    acl = [zkwire.digest_acl("bob", "pw"), zkwire.ACL(zkwire.Perms.READ, "world", "anyone")]
    portal.call(zk.create, "/app", b"", acl=acl)
    portal.call(zk.create, "/open", b"")
    assert main(["dump", "/"]) == 1
    dumped = capsys.readouterr()
    assert "in 1 ACL, the first of /app:" in dumped.err
    assert [json.loads(line)["path"] for line in dumped.out.splitlines()] == ["", "/app", "/open"]
    _feed(monkeypatch, dumped.out.encode())
    assert "line 2 is not a node of a dump: a digest is user:hash" in run("load", "/copy", status=1)
    assert run("ls", "/") == "app\nopen\nzookeeper\n"
    shown = run("dump", "/app", "--auth", "digest:bob:pw")
    _feed(monkeypatch, shown.encode())
    run("load", "/copy")
    assert portal.call(zk.get_acl, "/copy")[0][0].id == "bob:x"  # as before, this client may not see it
    assert run("get", "/copy", "--auth", "digest:bob:pw") == ""


def test_load_keeps_what_is_there_unless_told_to_overwrite(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("create", "-p", "/app/a", "old")
    line = b'{"path": "/a", "data": "new", "acl": ["world:anyone:cdrwa"]}\n'
    _feed(monkeypatch, line)
    assert re.search(r"/app/a: .*\(--overwrite sets", run("load", "/app", status=1))
    assert run("get", "/app/a") == "old"
    _feed(monkeypatch, line)
    run("load", "/app", "--overwrite")
    assert run("get", "/app/a") == "new"
    _feed(monkeypatch, line.replace(b"/a", b""))
    assert main(["load", "/app/a"]) == 0
    said = "zkwire: /app/a exists: without --overwrite its data and ACL are kept\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"path": "/a", "data": "", "acl": []}',
        b'{"path": 1, "data": "", "acl": []}',
        b'{"path": "/a", "data": 1, "acl": []}',
        b'{"path": "/a", "base64": "?", "acl": []}',
        b'{"path": "/a//b", "data": "", "acl": []}',
        b'{"path": "\xff", "data": ""}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_not_a_node_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    good = b'{"path": "/ok", "data": "", "acl": ["world:anyone:cdrwa"]}\n'
    _feed(monkeypatch, good + line + b"\n")
    assert "line 2 is not a node of a dump" in run("load", "/", status=1)
    assert run("ls", "/") == "zookeeper\n"  # nothing was created


# -- servers ------------------------------------------------------------------------------------------------------


def test_ping_measures_the_server(run: Run, server: Server) -> None:
    first, second = run("ping", "-n", "2").splitlines()
    assert first.startswith(f"{server.hosts} ")
    assert second.endswith(" ms")
    assert json.loads(run("ping", "--json"))["server"] == server.hosts


def test_srvr_and_mntr_ask_each_server(run: Run, server: Server) -> None:
    assert "Mode: standalone" in run("srvr")
    assert json.loads(run("mntr", "--json"))["server"] == server.hosts
    message = run("srvr", "--hosts", f"{server.hosts},127.0.0.1:1", status=3)
    assert "127.0.0.1:1" in message
    assert server.hosts not in message


def test_whoami_config_and_sync_ask_the_server(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("whoami") == "ip:127.0.0.1\n"
    assert json.loads(run("whoami", "--json", "--auth", "digest:me:pw")) == ["digest:me", "ip:127.0.0.1"]
    assert run("sync") == ""
    assert run("config") == ""
    data = b"server.1=a:1:2:participant;3\nversion=10\n"
    monkeypatch.setattr(zkwire.Client, "get_config", AsyncMock(return_value=zkwire.Configuration(data, AsyncMock())))
    assert run("config") == data.decode()
    assert json.loads(run("config", "--json")) == {"version": 16, "members": {"1": "a:1:2:participant;3"}}


# -- connection, errors, the end ----------------------------------------------------------------------------------


def test_the_options_name_servers_chroot_and_identity(
    run: Run, portal: Portal, zk: zkwire.Client, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("create", "-p", "/app/a", "x")
    assert run("ls", "--hosts", f"{server.hosts}/app", "--auth", "digest:me:p:w\udcff") == "a\n"  # any bytes
    portal.call(zk.create, "/secret", b"s", acl=[zkwire.digest_acl("me", "pw")])
    assert "/secret" in run("get", "/secret", status=1)
    assert run("get", "/secret", "--auth", "digest:me:pw") == "s"
    monkeypatch.setenv("ZKWIRE_AUTH", "digest:me:pw")
    assert run("get", "/secret") == "s"
    monkeypatch.delenv("ZKWIRE_AUTH")
    file = tmp_path / "identities"
    file.write_bytes(b"# ours\n \n digest:other:p:w\xff\n\ndigest:me:pw\n")
    assert run("get", "/secret", "--auth-file", str(file)) == "s"
    monkeypatch.setenv("ZKWIRE_AUTH_FILE", str(file))
    assert run("--auth", "digest:third:pw", "get", "/secret") == "s"
    file.write_bytes(b"\n#\nnocolon\n")
    assert "line 3 of the file of --auth-file: a credential is" in run("get", "/secret", status=2)
    monkeypatch.setenv("ZKWIRE_AUTH", "#:x")  # no comment
    assert "line 3" in run("get", "/secret", status=2)
    monkeypatch.delenv("ZKWIRE_AUTH")
    monkeypatch.setenv("ZKWIRE_AUTH_FILE", "digest:bob:S3CRET")
    assert run("get", "/secret", status=2) == "zkwire: the file of --auth-file: No such file or directory\n"


def test_tls_needs_an_authority_and_our_certificate(run: Run, portal: Portal, server: Server, tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    to_trust, ours = ["--tls-ca", str(tls.ca.certificate)], ["--tls-cert", str(tls.client.certificate)]
    with portal.enter(TlsFront(int(server.hosts.rpartition(":")[2]), tls, wants_certificate=True)) as front:
        at = ["ls", "--hosts", front.hosts]
        assert run(*at, *to_trust, *ours, "--tls-key", str(tls.client.key)) == "zookeeper\n"
        assert "certificate is not accepted" in run(*at, "--tls", status=3)  # at once, whatever the bound
        for options in ([], to_trust):
            assert "no session" in run(*at, "--within", "0.5", *options, status=3)


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "nonsense", "ls --auth nocolon", "ls --within 0", "ls --within soon", "tree --depth 0", "watch / -n 0"),
        *("get relative", "get --hosts ls", "get /a /b", "set /a", "rm -r /a --version 7 --hosts 127.0.0.1:1"),
        *("rm -r / --hosts 127.0.0.1:1/app", "create -p /a --acl world:anyone:rdwa", "ls --host 127.0.0.1:1"),
    ],
)
def test_misuse_prints_the_usage(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert re.match(r"usage: zkwire(?!(?s:.*) invalid (positive|seconds) value)", capsys.readouterr().err)


def test_options_stand_before_the_command_or_after_it(run: Run, server: Server) -> None:
    run("create", "/get")
    run("create", "/get/ls")
    assert run("--hosts", f"{server.hosts}/get", "ls", "/") == "ls\n"
    assert run("-l", "--json", "ls", "/get").startswith('{"name": "ls"')
    options = parser().understand(["--hosts", "ls", "get", "/a"])
    assert (options.name, options.hosts) == ("get", "ls")
    options = zklock_parser().understand(["-s", "--data", "elect", "run", "/swap"])
    assert (options.name, options.data, options.shared) == ("run", "elect", True)


@pytest.mark.parametrize("top", [parser(), zklock_parser()])
def test_the_version_is_printed(top: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        top.parse_args(["--version"])
    assert capsys.readouterr().out == f"{top.prog} {zkwire.__version__}\n"


def test_an_interrupt_ends_the_session(portal: Portal, zk: zkwire.Client, server: Server) -> None:
    portal.call(zk.create, "/w", b"")
    with subprocess.Popen(
        [sys.executable, "-m", "zkwire", "watch", "/w"],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as watching:
        assert watching.stderr is not None
        assert watching.stdout is not None
        watching.stderr.readline()
        portal.call(zk.set, "/w", b"x")
        assert watching.stdout.readline() == "CHANGED  /w\n"  # at once, into a pipe too
        sessions = portal.call(_count, server, "zk_num_alive_connections")
        watching.send_signal(signal.SIGINT)
        _, complaints = watching.communicate(timeout=60)
    assert (watching.returncode, complaints) == (130, "")
    assert portal.call(_count, server, "zk_num_alive_connections") == sessions - 1


async def _count(server: Server, what: str) -> int:
    answer: Any = await zkwire.four_letter_word(server.hosts, "mntr")
    return int(answer[what])


def test_acl_entries_are_read_as_they_are_printed() -> None:
    for entry in zkwire.ACL(17, "x509", "a:b:c"), zkwire.digest_acl("", ""), zkwire.ACL(0, "x", ""):
        assert output.acl_of_text(output.acl_text(entry)) == entry


def test_a_time_beyond_the_calendar_is_printed_as_a_number() -> None:
    assert output.moment(2**62) == str(2**62)
    assert output.moment(0) == "1970-01-01 00:00:00.000+00:00"
