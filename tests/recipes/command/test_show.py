"""The command `zklock show`: tables and JSON, all kinds of locks, foreign nodes, and changes as they come."""

import asyncio
import json
import re
import signal
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore, TryLock
from recipes.command import show
from recipes.command.main import main
from tests.support.client import cancelled
from tests.support.locks import start_waiting, two_clients
from tests.support.virtual_time import a_client, in_virtual_time
from tests.support.zklock import ended, start
from zkwire import SessionState
from zkwire.blocking import Portal
from zkwire.command.options import CommandError
from zkwire.testing import ServerProcess

pytestmark = pytest.mark.limit(120)

SECRET = [zkwire.digest_acl("me", "pw")]


def _owners(found: show.Locks) -> dict[str, list[bool]]:
    return {path: [each.owns for each in contenders] for path, contenders in found.items()}


async def test_each_kind_of_lock_is_recognised() -> None:
    async with two_clients() as (zk, other):
        assert await show.find(zk, "/nowhere") == {}
        await zk.create("/l/order-0000000007/plain", make_parents=True)  # a path may end in a number, too
        await zk.create("/l/order-0000000008/no-ticket-0000000001", make_parents=True)
        await zk.create("/l/limit/x-lease-", ephemeral=True, sequential=True, make_parents=True)  # of no number
        semaphore, rw = Semaphore(zk, "/l/semaphore", 3).hold(permits=2), ReadWriteLock(zk, "/l/rw")
        election, numbered = Election(zk, "/l/election"), Lock(zk, "/l/order-0000000007")
        async with semaphore, rw.read(), election, numbered, TryLock(zk, "/l/job"), Semaphore(other, "/l/semaphore", 3):
            waiting = [
                await start_waiting(zk, Semaphore(other, "/l/semaphore", 3), 3),
                asyncio.create_task(ReadWriteLock(other, "/l/rw").read().acquire()),
            ]
            await waiting[1]
            waiting.append(await start_waiting(zk, ReadWriteLock(other, "/l/rw").write(), 3))
            found = await show.find(other, "/l")
            assert _owners(found) == {
                "/l/election": [True],
                "/l/job": [True],
                "/l/limit": [False],
                "/l/order-0000000007": [True],
                "/l/rw": [True, True, False],
                "/l/semaphore": [True, True, False],
            }
            assert list(found) == sorted(found)
            assert found["/l/rw"] == await ReadWriteLock(other, "/l/rw").contenders()
            assert found["/l/semaphore"] == await Semaphore(other, "/l/semaphore", 3).contenders()
            assert await show.find(other, "/l/job") == {"/l/job": found["/l/job"]}
            assert _owners(await show.find(other, "/")) == _owners(found)
            await (await waiting[1]).release()
            for task in (waiting[0], waiting[2]):
                task.cancel()
            await asyncio.wait(waiting)


async def test_a_node_that_must_not_be_read_is_a_ticket_among_tickets_only() -> None:
    async with two_clients() as (zk, _):
        await zk.create("/l/d-0000000002/e", make_parents=True)
        await zk.create("/l/b-0000000001", acl=SECRET)
        await zk.create("/l/c", acl=SECRET)
        assert await show.find(zk, "/l") == {}
        async with Lock(zk, "/l/a"):
            await zk.create("/l/a/x-", ephemeral=True, sequential=True, acl=SECRET)
            assert _owners(await show.find(zk, "/l")) == {"/l/a": [True, False]}


@pytest.mark.parametrize("more", [(), ("--json",), ("--watch",)])
def test_a_path_that_must_not_be_read_is_refused_and_no_lock(
    memory: ServerProcess, path: str, more: Sequence[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with Portal() as portal, portal.enter(zkwire.connect(memory.hosts)) as zk:
        portal.call(zk.create, path)
        portal.call(zk.create, f"{path}/secret", acl=SECRET)
        assert main(["show", f"{path}/secret", "--hosts", memory.hosts, *more]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"zklock: getData {path}/secret: the ACL does not allow the operation")


async def test_each_change_is_printed_until_interrupted(memory: ServerProcess, path: str) -> None:
    """A table ends with an empty line."""
    nothing = f"no lock at {path} or below is held or waited for\n\n".encode()
    async with zkwire.connect(memory.hosts) as zk, start(memory.hosts, "show", path, "--watch") as shown:
        printed = shown.stdout
        assert printed is not None
        assert await printed.readuntil(b"\n\n") == nothing
        for _ in range(2):
            async with Lock(zk, f"{path}/below", data=b"nightly"):
                while (look := await printed.readuntil(b"\n\n")) == nothing:
                    pass
                assert b"nightly" in look
            while await printed.readuntil(b"\n\n") != nothing:
                pass
        shown.send_signal(signal.SIGINT)
        status, _, err = await ended(shown)
        assert (status, err) == (130, "")


async def until_printed(capsys: pytest.CaptureFixture[str], out: Sequence[str], err: Sequence[SessionState]) -> None:
    """Wait until exactly these lines have been printed since the last look at `capsys`."""
    wanted = "".join(f"{line}\n" for line in out), "".join(f"zklock: {state.value}\n" for state in err)
    printed = "", ""
    while printed != wanted:
        assert all(map(str.startswith, wanted, printed)), printed
        await asyncio.sleep(0.01)  # of virtual time
        new = capsys.readouterr()
        printed = printed[0] + new.out, printed[1] + new.err


@pytest.mark.parametrize("ends_session", [False, True])
@in_virtual_time
async def test_a_lost_connection_is_told_and_the_locks_are_shown_again_afterwards(
    ends_session: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_client() as (server, zk):
        monkeypatch.setattr(show, "connected", lambda options: nullcontext(zk))
        await zk.create("/a")
        showing = asyncio.create_task(show.show(Namespace(path="/", watch=True, json=True)))
        await asyncio.sleep(10.0)  # of virtual time: without a change nothing is printed
        if ends_session:  # while a look is under way
            server.names()
            server.strike = lambda wire, sent: False if sent.name == "getData" else None
            await zk.create("/a/b")
            await server.until("getData")
        server.refused = {"a", "b"}
        server.drop()
        states = [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTING][: 3 if ends_session else 1]
        await until_printed(capsys, ["[]"], states)
        server.refused.clear()
        server.names()
        server.strike = lambda wire, sent: None
        # The look that the end of the session has cut short, and one because the stream may have missed an event.
        await until_printed(capsys, ["[]"] * (1 + ends_session), [SessionState.CONNECTED])
        await cancelled(showing)
        assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("is_json", [False, True])
@in_virtual_time
async def test_the_leader_is_printed_once_or_at_each_change(
    is_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_client() as (server, zk):
        monkeypatch.setattr(show, "connected", lambda options: nullcontext(zk))
        options = Namespace(path="/e", follow=True, json=is_json)
        following = asyncio.create_task(show.leader(options))
        texts = ["no leader", r"one\u001b", r"one\u001b", "x" * 61, "no leader"]
        if is_json:
            texts = ["null", *(f'{{"data": "{text}"}}' for text in texts[1:4]), "null"]
        await server.until("exists")
        term = await Election(zk, "/e", b"one\x1b").acquire()
        await show.leader(Namespace(path="/e", follow=False, json=is_json))
        await term.set(b"x" * 61)
        await until_printed(capsys, texts[:4], [])
        server.drop()
        await term.resign()
        await until_printed(capsys, texts[4:], [SessionState.SUSPENDED, SessionState.CONNECTED])
        with pytest.raises(CommandError, match=r"^/e has no leader$"):
            await show.leader(Namespace(path="/e", follow=False, json=is_json))
        assert capsys.readouterr() == ("", "")
        await cancelled(following)


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
def test_all_that_is_known_is_shown_and_nothing_that_a_terminal_would_carry_out(
    seconds: float,
    words: str,
    memory: ServerProcess,
    path: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node whose clock is fast is 0 s old."""
    with three_locks(memory, path) as (zk, stat):
        monkeypatch.setattr(show, "time", SimpleNamespace(time=lambda: stat.ctime / 1000 + seconds))
        assert main(["show", path, "--hosts", memory.hosts]) == 0
        head, *rows = (re.split(r"  +", row) for row in capfd.readouterr().out.splitlines())
        assert head == ["LOCK", "STATE", "AGE", "SESSION", "DATA"]
        session = hex(zk.session_id)
        assert rows[:2] == [[rf"{path}/a\u200b", "holds", words, session, "x" * 60], ["", "waits", "?", "?"]]
        assert [[row[0], row[1], *row[3:]] for row in rows[2:]] == [
            [f"{path}/b", "holds", session, "x" * 57 + "..."],
            [f"{path}/c", "holds", session, r"\u001b\nü\xff"],
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
        unread = {"owns": False, "path": "", "data": "", "session": "", "since": None, "age": None, "token": 0}
        assert {**waiter, "path": ""} == unread
        assert third["contenders"][0]["base64"] == "GwrDvP8="


def test_an_age_has_the_unit_of_its_size() -> None:
    words = {None: "?", 59.4: "59 s", 60: "1.0 min", 3599: "60.0 min", 3600: "1.0 h", 86399: "24.0 h", 86400: "1.0 d"}
    assert {age: show._describe_age(age) for age in words} == words
