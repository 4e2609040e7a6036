"""The programs of docs/examples, without the packages of others: `make thirdparty` tries them with those."""

import asyncio
import atexit
import re
import runpy
import signal
import sqlite3
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import zkwire
from recipes import Lock, Queue
from tests.docs import stand_ins
from tests.docs.programs import EXAMPLES, ROOT, started, until_printed
from zkwire.blocking import Portal
from zkwire.testing import RealServer, Server

WEB = ("orders", "shop")


async def test_the_next_process_leads_when_sigterm_ends_the_leader() -> None:
    async with Server() as server, started("scheduler.py", server.hosts, INTERVAL="0.1") as first:
        leading = await until_printed(first, "job of the leader")
        async with started("scheduler.py", server.hosts, INTERVAL="0.1") as second:
            waiting = asyncio.create_task(until_printed(second, "job of the leader"))
            async with zkwire.connect(server.hosts) as zk:
                async for names in zk.children("/scheduler/leader"):
                    if names is not None and len(names) == 2:
                        break
            assert not waiting.done()
            first.terminate()
            assert int((await waiting).split()[-1]) > int(leading.split()[-1])  # the tokens
            assert await first.wait() == 0


async def test_settings_follow_the_node() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, started("settings.py", server.hosts) as program:
        assert await until_printed(program, "settings") == "settings: {}"
        await zk.create("/settings/shop", b'{"discount": 10}', make_parents=True)
        assert await until_printed(program, "settings") == "settings: {'discount': 10}"
        await zk.set("/settings/shop", b"{")
        assert "the former settings stay" in await until_printed(program, "settings")
        await zk.set("/settings/shop", b'{"discount": 20}')
        assert await until_printed(program, "settings") == "settings: {'discount': 20}"


async def _cause(running: Process, name: str, number: int, hosts: str, wanted: str) -> str:
    """Have the program do something until it prints `wanted`: a caller repeats a request after a 503."""
    if name in WEB and running.stdin is not None:
        running.stdin.write(b"order-%d\n" % number)
        answer = await until_printed(running, wanted, "503 ")
        return answer if wanted in answer else await _cause(running, name, number, hosts, wanted)
    async with zkwire.connect(hosts) as zk:
        if name == "mailer":
            await Queue(zk, "/mailer/queue").put(b"%d" % number)
        elif name == "settings":
            await zk.ensure_path("/settings/shop")
            await zk.set("/settings/shop", b'{"discount": %d}' % number)
    return await until_printed(running, wanted)


@pytest.mark.limit(120)
@pytest.mark.parametrize(
    ("name", "does", "goes_on", "status"),
    [
        ("orders", "placed'", "placed'", 0),
        ("shop", "placed'", "placed'", 0),
        ("mailer", "posted 1", "posted 2", 0),
        ("scheduler", "job of the leader", "job of the leader", 0),
        ("nightly", "begins", "is done", 0),
        ("settings", "{'discount': 1}", "{'discount': 2}", -signal.SIGTERM),
    ],
)
async def test_a_program_says_that_its_server_has_ended_and_that_it_is_back_and_goes_on(
    name: str, does: str, goes_on: str, status: int, tmp_path: Path
) -> None:
    """With the levels of the log that Python shows if a program sets none; one server in place of them all is real."""
    program = [f"{name}.py"] if name not in (*WEB, "mailer") else ["-m", "tests.docs.stand_ins", name]
    # A session that outlives the start of a server on a busy machine.
    settings = {"minSessionTimeout": "30000"}
    async with RealServer(fsync=False, properties=settings) if name == "orders" else Server() as server:
        given = {"ZOOKEEPER": server.hosts, "DATABASE": str(tmp_path / "store"), "INTERVAL": "0.1", "SECONDS": "4"}
        async with started(*program, server.hosts, **given) as running:
            await _cause(running, name, 1, server.hosts, does)
            await server.stop()
            await until_printed(running, "lost the connection to")
            if name in WEB:
                await _cause(running, name, 2, "", "repeat the request")
            await server.start()
            await until_printed(running, "connected to")
            await _cause(running, name, 2, server.hosts, goes_on)
            if name in WEB:
                assert "False" in await _cause(running, name, 2, server.hosts, goes_on)
                with closing(sqlite3.connect(given["DATABASE"])) as store:
                    assert store.execute("SELECT id FROM orders").fetchall() == [("order-1",), ("order-2",)]
            if name in ("mailer", "scheduler", "settings"):
                running.terminate()
            rest = (await running.communicate(b""))[0].decode()  # the end of the standard input
    assert "Traceback" not in rest
    assert rest.count("connected to") == rest.count("lost the connection to")
    assert running.returncode == status


def test_the_store_places_an_order_once_and_refuses_a_process_that_has_lost_the_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE", str(tmp_path / "store"))
    store = SimpleNamespace(**runpy.run_path(str(EXAMPLES / "store.py")))
    assert [store.place("a", 7, 5), store.place("a", 7, 5), store.place("b", 7, 6)] == [True, False, True]
    with pytest.raises(store.StaleTokenError, match="a token greater than 5 has been used"):
        store.place("c", 7, 5)
    assert [store.place("c", 7, 6), store.place("d", 8, 1)] == [True, True]


def test_the_first_requests_of_a_web_application_share_a_client_and_leave_no_thread_while_no_server_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at_exit: list[Callable[[], None]] = []
    for name, module in stand_ins.STAND_INS.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("DATABASE", str(tmp_path / "store"))
    with Portal() as portal, portal.enter(Server()) as server, ThreadPoolExecutor(8) as threads:
        monkeypatch.setenv("ZOOKEEPER", server.hosts)
        place_order = runpy.run_path(str(EXAMPLES / "shop.py"))["place_order"]
        portal.call(server.stop)
        monkeypatch.setattr(atexit, "register", at_exit.append)
        waiting = threading.Barrier(8)

        def status(account: int) -> int:
            waiting.wait()
            answer: tuple[int, object] = place_order(SimpleNamespace(method="PUT"), account, f"order-{account}")
            return answer[0]

        assert list(threads.map(status, range(8))) == [503] * 8
        assert [thread.name for thread in threading.enumerate()].count("zkwire portal") == 1  # the server's
        portal.call(server.start)
        assert list(threads.map(status, range(8))) == [200] * 8
        assert len(server.sessions) == 1
        for end in reversed(at_exit):
            end()
        assert server.sessions == []


async def test_the_job_is_done_once_a_day() -> None:
    async with (
        Server() as server,
        started("nightly.py", server.hosts) as first,
        started("nightly.py", server.hosts) as late,
    ):
        printed = b"".join([(await each.communicate())[0] for each in (first, late)])
        assert (first.returncode, late.returncode, printed.count(b"is done")) == (0, 0, 1)


async def test_a_late_host_waits_for_the_job_of_another_as_long_as_it_is_told() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await Lock(zk, "/nightly/lock").acquire()
        async with started("nightly.py", server.hosts, LONGEST="0.1") as late:
            await until_printed(late, "may not have been done: the lock /nightly/lock was not free within 0.1 s")
            assert await late.wait() == 1


@pytest.mark.parametrize("name", ["scheduler", "settings", "nightly"])
async def test_a_program_that_finds_no_server_ends_with_a_line(name: str) -> None:
    at_once = "zkwire.connect = functools.partial(zkwire.connect, within=0); sys.argv.pop(0)"
    program = f"import functools, runpy, sys, zkwire; {at_once}; runpy.run_path(sys.argv[0], run_name='__main__')"
    async with started("-c", program, f"{name}.py", "127.0.0.1:1") as running:
        await until_printed(running, "no session in one round: 127.0.0.1:1: ")
        assert await running.wait() == 1


def test_every_program_is_tested() -> None:
    files = [ROOT / "tests/docs/test_examples.py", *ROOT.glob("tests/thirdparty/*.py")]
    named = re.findall(r"(\w+)(?:\.py|:app\w*)?\"", "".join(file.read_text("utf-8") for file in files))
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {*named} == set()
