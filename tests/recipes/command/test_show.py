"""The command `zklock show`: tables and JSON, all kinds of locks, strangers' nodes, and changes as they come."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore, TryLock
from recipes.command import show
from recipes.command.main import main, parser
from recipes.common.this_process import in_words
from tests.support.locks import start_waiting, two_clients
from tests.support.zklock import ROOT, ended, start, zklock
from zkwire.blocking import Portal
from zkwire.testing import RealServer, Server, ServerProcess

pytestmark = pytest.mark.limit(120)


def _owners(found: list[show.Found]) -> dict[str, list[bool]]:
    return {lock.path: [each.owns for each in lock.contenders] for lock in found}


async def test_it_prints_a_table_or_json(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        nothing = (0, f"no lock at {path} or below is held or waited for\n", "")
        assert await zklock(zookeeper.hosts, "show", path) == nothing
        async with Lock(zk, f"{path}/a") as lease, Lock(zk, f"{path}/b", data=b"nightly"):
            waiting = await start_waiting(zk, Lock(other, f"{path}/a", data=b"\x1b[2J"), 2)
            status, out, err = await zklock(zookeeper.hosts, "show", path)
            assert (status, err) == (0, "")
            head, *rows = (re.split(r"  +", row) for row in out.splitlines())
            assert head == ["LOCK", "STATE", "FOR", "SESSION", "DATA"]
            mine, theirs = hex(zk.session_id), hex(other.session_id)
            assert [[row[1], *row[3:]] for row in rows] == [
                ["holds", mine, in_words().decode()],
                ["waits", theirs, "\\x1b[2J"],
                ["holds", mine, "nightly"],
            ]
            assert [row[0] for row in rows] == [f"{path}/a", "", f"{path}/b"]
            status, out, err = await zklock(zookeeper.hosts, "show", path, "--json")
            assert (status, err) == (0, "")
            first, second = json.loads(out)
            assert (first["lock"], second["lock"]) == (f"{path}/a", f"{path}/b")
            holder, waiter = first["contenders"]
            stat = await zk.exists(lease.path)
            assert stat is not None
            assert holder.pop("age") >= 0
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*\+00:00", holder.pop("since"))
            assert holder == {
                "owns": True,
                "path": lease.path,
                "data": in_words().decode(),
                "session": mine,
                "token": stat.czxid,
            }
            assert (waiter["owns"], waiter["data"]) == (False, "\x1b[2J")
            waiting.cancel()
            await asyncio.wait([waiting])
        assert await zklock(zookeeper.hosts, "show", path) == nothing


async def test_all_kinds_of_locks_are_told_apart() -> None:
    async with two_clients() as (zk, other):
        assert await show.find(zk, "/nowhere") == []
        await zk.create("/l/order-0000000007/plain", make_parents=True)  # a path may end in a number, too
        await zk.create("/l/order-0000000008/no-ticket-0000000001", make_parents=True)
        semaphore, rw = Semaphore(zk, "/l/semaphore", 2), ReadWriteLock(zk, "/l/rw")
        election, numbered = Election(zk, "/l/election"), Lock(zk, "/l/order-0000000007")
        async with semaphore, rw.read(), election, numbered, TryLock(zk, "/l/job"), Semaphore(other, "/l/semaphore", 2):
            waiting = [
                await start_waiting(zk, Semaphore(other, "/l/semaphore", 2), 3),
                asyncio.create_task(ReadWriteLock(other, "/l/rw").read().acquire()),
            ]
            await waiting[1]
            waiting.append(await start_waiting(zk, ReadWriteLock(other, "/l/rw").write(), 3))
            found = await show.find(other, "/l")
            assert _owners(found) == {
                "/l/election": [True],
                "/l/job": [True],
                "/l/order-0000000007": [True],
                "/l/rw": [True, True, False],
                "/l/semaphore": [True, True, False],
            }
            by_path = {lock.path: lock.contenders for lock in found}
            assert by_path["/l/rw"] == await ReadWriteLock(other, "/l/rw").contenders()
            assert by_path["/l/semaphore"] == await Semaphore(other, "/l/semaphore", 2).contenders()
            assert await show.find(other, "/l/job") == [show.Found("/l/job", by_path["/l/job"])]
            assert _owners(await show.find(other, "/")) == _owners(found)
            await (await waiting[1]).release()
            for task in (waiting[0], waiting[2]):
                task.cancel()
            await asyncio.wait(waiting)


async def test_a_node_that_must_not_be_read_is_a_ticket_among_tickets() -> None:
    secret = [zkwire.digest_acl("me", "pw")]
    async with two_clients() as (zk, _), Lock(zk, "/l/a"):
        await zk.create("/l/a/x-", ephemeral=True, sequential=True, acl=secret)
        await zk.create("/l/b-0000000001", acl=secret)
        await zk.create("/l/c", acl=secret)
        assert _owners(await show.find(zk, "/l")) == {"/l/a": [True, False]}


@pytest.mark.parametrize(
    "more",
    [(), ("--json",), pytest.param(("--watch",), marks=pytest.mark.since("3.6.0", "addWatch", raises=AssertionError))],
)
async def test_a_path_that_must_not_be_read_is_refused_and_no_lock(
    zookeeper: RealServer, path: str, more: Sequence[str]
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path)
        await zk.create(f"{path}/secret", acl=[zkwire.digest_acl("me", "pw")])
        status, out, err = await zklock(zookeeper.hosts, "show", f"{path}/secret", *more)
        assert (status, out) == (1, "")
        assert err.startswith(f"zklock: getData {path}/secret: the ACL does not allow the operation")


@pytest.mark.since("3.6.0", "addWatch", raises=json.JSONDecodeError)  # the command prints its error elsewhere
async def test_each_change_is_printed_until_interrupted(zookeeper: RealServer, path: str) -> None:
    async with (
        zkwire.connect(zookeeper.hosts) as zk,
        start(zookeeper.hosts, "show", path, "--watch", "--json") as watching,
    ):
        assert watching.stdout is not None
        assert json.loads(await watching.stdout.readline()) == []
        async with Lock(zk, path, data=b"x"):
            assert await _next(watching.stdout, is_held=True) == "x"
        assert await _next(watching.stdout, is_held=False) is None
        watching.send_signal(signal.SIGINT)
        status, _, err = await ended(watching)
        assert (status, err) == (130, "")


async def _next(printed: asyncio.StreamReader, *, is_held: bool) -> Any:
    """Return the data of the holder in the next look that shows one, or None in the next that shows none."""
    while bool(locks := json.loads(await printed.readline())) is not is_held:
        pass
    return locks[0]["contenders"][0]["data"] if locks else None


async def test_an_interrupt_ends_it_while_no_server_answers() -> None:
    async with Server() as server, start(server.hosts, "show", "/l", "--watch") as watching:
        assert watching.stdout is not None
        assert await watching.stdout.readline() == b"no lock at /l or below is held or waited for\n"
        await server.stop()
        watching.send_signal(signal.SIGINT)  # the client would wait for the server
        assert (await ended(watching))[0] == 130


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "relative"], 2, "bad path 'relative'"),
        (["show", "/a", "--", "true"], 2, "show takes no command"),
        (["show", "--hosts", "127.0.0.1:1", "--connect-within", "0.2"], 3, "no session within 0.2 s"),
    ],
)
def test_errors_are_a_line_and_a_status(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("zklock: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["show", "--bad"]])
def test_misuse_prints_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: zklock" in capsys.readouterr().err


SECRET = [zkwire.digest_acl("me", "pw")]


@contextmanager
def three_locks(memory: ServerProcess, path: str) -> Iterator[tuple[zkwire.Client, zkwire.Stat]]:
    """Hold locks below `path`, in another thread; yield their client, and the Stat of the node of the first lock."""
    lock = f"{path}/a\u200b"
    with (
        Portal() as portal,
        portal.enter(zkwire.connect(memory.hosts)) as zk,
        portal.enter(Lock(zk, lock, data=b"x" * 60)) as lease,
        portal.enter(TryLock(zk, f"{path}/b", data=b"x" * 61)),
        portal.enter(TryLock(zk, f"{path}/c", data="\x1b\nü".encode() + b"\xff")),
    ):
        portal.call(zk.create, f"{lock}/x-", ephemeral=True, sequential=True, acl=SECRET)
        stat = portal.call(zk.exists, lease.path)
        assert stat is not None
        yield zk, stat


@pytest.mark.parametrize(("seconds", "words"), [(5400.1234567, "1.5 h"), (-3.0, "0 s")])
def test_a_look_at_all_there_is(
    seconds: float,
    words: str,
    memory: ServerProcess,
    path: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing that a terminal would carry out is printed; a node whose clock is ahead is 0 s old."""
    with three_locks(memory, path) as (zk, stat):
        monkeypatch.setattr(show, "time", SimpleNamespace(time=lambda: stat.ctime / 1000 + seconds))
        assert main(["show", path, "--hosts", memory.hosts]) == 0
        head, *rows = (re.split(r"  +", row) for row in capfd.readouterr().out.splitlines())
        assert head == ["LOCK", "STATE", "FOR", "SESSION", "DATA"]
        session = hex(zk.session_id)
        name = rf"{path}/a\u200b"
        assert rows[:2] == [[name, "holds", words, session, "x" * 60], ["", "waits", "?", "?"]]
        assert [[row[0], row[1], *row[3:]] for row in rows[2:]] == [
            [f"{path}/b", "holds", session, "x" * 57 + "..."],
            [f"{path}/c", "holds", session, r"\x1b\nü\xff"],
        ]
        assert main(["show", path, "--hosts", memory.hosts, "--json"]) == 0
        (line,) = capfd.readouterr().out.splitlines()
        first, second, third = json.loads(line)
        assert [each["lock"] for each in (first, second, third)] == [f"{path}/a\u200b", f"{path}/b", f"{path}/c"]
        holder, waiter = first["contenders"]
        assert holder == {
            "owns": True,
            "path": holder["path"],
            "data": "x" * 60,
            "session": session,
            "since": datetime.fromtimestamp(stat.ctime / 1000, UTC).isoformat(),
            "age": 5400.123 if seconds > 0 else 0.0,
            "token": stat.czxid,
        }
        assert {**waiter, "path": ""} == {
            "owns": False,
            "path": "",
            "data": "",
            "session": "",
            "since": None,
            "age": None,
            "token": 0,
        }
        assert third["contenders"][0]["base64"] == "GwrDvP8="


@pytest.mark.parametrize("is_json", [False, True])
def test_looks_follow_each_other_until_interrupted(
    is_json: bool, memory: ServerProcess, path: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table ends with an empty line, JSON is one line for each look."""
    reading, writing = os.pipe()
    nothing = "[]\n" if is_json else f"no lock at {path} or below is held or waited for\n\n"

    def play(printed: TextIO) -> None:
        def read_look() -> str:
            look = printed.readline()
            while not is_json and not look.endswith("\n\n"):
                look += printed.readline()
            return look

        with Portal() as portal, portal.enter(zkwire.connect(memory.hosts)) as zk:
            assert read_look() == nothing
            for _ in range(2):
                portal.call(zk.create, f"{path}/a", b"data", ephemeral=True, make_parents=True)
                while (look := read_look()) == nothing:
                    pass
                assert "data" in look
                portal.call(zk.delete, f"{path}/a")
                while read_look() != nothing:
                    pass
            os.kill(os.getpid(), signal.SIGINT)

    with open(reading) as printed, open(writing, "w") as stream, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(sys, "stdout", stream)
        playing = pool.submit(play, printed)
        options = ["--json"] if is_json else []
        assert main(["show", path, "--hosts", memory.hosts, "--watch", *options]) == 130
        playing.result()
    assert capfd.readouterr().err == ""


async def test_what_must_not_be_read_is_no_lock_and_the_path_itself_is_refused() -> None:
    async with two_clients() as (zk, _):
        await zk.create("/l/b/c", make_parents=True)
        await zk.create("/l/a", acl=SECRET)
        assert await show.find(zk, "/l") == []
        with pytest.raises(zkwire.NoAuthError):
            await show.find(zk, "/l/a")


async def test_watching_ends_with_the_session() -> None:
    async with two_clients() as (zk, other), aclosing(show._changes(zk, "/l")) as changes:
        await anext(changes)
        await other.create("/l")
        await anext(changes)
        ending = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await zk.close()
        with pytest.raises(zkwire.SessionClosedError):
            await ending


def test_ages_are_in_words() -> None:
    assert [
        show._in_words(seconds) for seconds in (None, 0.4, 59.4, 60, 90, 3599, 3600, 5400, 86399, 86400, 129600)
    ] == [
        "?",
        "0 s",
        "59 s",
        "1.0 min",
        "1.5 min",
        "60.0 min",
        "1.0 h",
        "1.5 h",
        "24.0 h",
        "1.0 d",
        "1.5 d",
    ]


def test_the_page_names_every_command_and_option() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    top = parser()
    commands: dict[str, Any] = next(action.choices for action in top._actions if isinstance(action.choices, dict))
    assert [name for name in commands if f"`zklock {name}" not in page] == []
    options = {option for command in commands.values() for option in command._option_string_actions}
    assert {option for option in options - {"-h", "--help"} if option not in page} == set()
