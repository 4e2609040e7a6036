"""Every `zklock` command of docs/commands.md runs as printed, and `zkwire get` shows what a holder is called."""

import re
import shlex
import socket
from pathlib import Path

import pytest

import zkwire
from recipes import Election, Lock
from tests.support.recipes import until_line
from tests.support.zklock import ended, start, zklock
from zkwire.testing import RealServer

pytestmark = [pytest.mark.limit(120), pytest.mark.usefixtures("heeds_signals")]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("## zklock")[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if not line.startswith("export ")]


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_of_the_page_runs(command: str, zookeeper: RealServer, path: str, tmp_path: Path) -> None:
    for name in ("backup.sh", "scheduler.sh", "report.sh", "export.sh"):
        script = tmp_path / name
        script.write_text('#!/bin/sh\necho "ran $@ under $ZKLOCK_PATH with $ZKLOCK_TOKEN"\n')
        script.chmod(0o755)
    program, verb, *rest = shlex.split(command)
    assert program == "zklock"
    words = [str(tmp_path / word) if word.startswith("./") else word for word in rest]
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path)
        hosts = zookeeper.hosts + path  # as on the page: with a chroot
        if verb not in ("show", "leader"):
            status, out, err = await zklock(hosts, verb, *words)
            assert (status, err) == (0, "")
            given = "--full" if "--full" in words else ""
            assert re.fullmatch(rf"ran {given} under {rest[0]} with \d+\n", out)
            return
        async with zkwire.connect(hosts) as me, Lock(me, "/locks/backup", data=b"me"), Election(me, "/leader", b"me"):
            status, out, err = await zklock(hosts, verb, *words)
            assert (status, err) == (0, "")
            assert re.search("/locks/backup.*me" if verb == "show" else "^me$", out)


async def test_the_table_of_the_page_has_the_columns_that_are_printed(zookeeper: RealServer, path: str) -> None:
    run = ("run", f"{path}/backup", "--", "sleep", "1000")
    async with zkwire.connect(zookeeper.hosts) as zk, start(zookeeper.hosts, *run) as running:
        (ticket,) = await until_line(zk, f"{path}/backup", 1, limit=60)
        assert (await zk.get(f"{path}/backup/{ticket}")).data == f"{socket.gethostname()} {running.pid} sleep".encode()
        _, out, _ = await zklock(zookeeper.hosts, "show", path)
        printed = re.search(r"^LOCK .*$", PAGE, re.MULTILINE)
        assert printed is not None
        assert out.splitlines()[0].split() == printed[0].split()
        running.terminate()
        assert (await ended(running))[0] == 143
