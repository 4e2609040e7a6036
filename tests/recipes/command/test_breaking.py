"""`zklock break`: it says whom it removes, asks on a terminal, and removes no other client."""

import asyncio
import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from unittest.mock import patch

import pytest

import zkwire
from recipes import Lock, Semaphore
from recipes.command import breaking
from recipes.line.contenders import Contender
from tests.support.locks import two_clients
from tests.support.recipes import until
from zkwire import Client
from zkwire.command.options import CommandError

P = "/l"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of a terminal at which the command runs."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours
    os.close(ours)


async def break_(zk: Client, path: str, *, yes: bool = False) -> None:
    with patch.object(breaking, "connected", lambda _: nullcontext(zk)):
        await breaking.remove_holders(Namespace(path=path, yes=yes))


@pytest.mark.parametrize(
    ("answer", "is_yes"), [(b"y\n", True), (b" YES \n", True), (b"\n", False), (b"yess\n", False), (b"\x04", False)]
)
async def test_the_holder_that_was_shown_is_removed_after_a_yes(
    answer: bytes, is_yes: bool, capsys: Capture, terminal: int
) -> None:
    """It asks first, and says whom it removes."""
    async with two_clients() as (zk, other):
        lease = await Lock(zk, P, data=b"web-1\n").acquire()
        os.write(terminal, answer)
        with nullcontext() if is_yes else pytest.raises(CommandError, match=rf"^{P}: 1 of 1 not removed$"):
            await break_(other, P)
        out, err = capsys.readouterr()
        first, *rest = out.splitlines()
        assert first.startswith(f"{lease.path}: session {zk.session_id:#x}, web-1\\n, since 20")
        assert (rest, err) == (["removed"] * is_yes, "remove it? [y/N] ")
        assert (await other.exists(lease.path) is None) is is_yes
        await lease.release()


async def test_a_question_for_each_holder_and_one_leaves_meanwhile(
    capsys: Capture, terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(said := io.BytesIO(), line_buffering=True))
    async with two_clients() as (zk, other):
        first, second = await Semaphore(zk, P, 2).acquire(), await Semaphore(zk, P, 2).acquire()
        breaking_ = asyncio.create_task(break_(other, P))
        await until(lambda: said.getvalue() == b"remove it? [y/N] ")
        await first.release()
        os.write(terminal, b"y\nn\n")  # one line for each question
        with pytest.raises(CommandError, match=rf"^{P}: 1 of 2 not removed$"):
            await breaking_
        _, gone, asked = capsys.readouterr().out.splitlines()
        assert gone == "it was gone already"
        assert asked.startswith(second.path)
        await second.release()


async def test_without_a_terminal_it_needs_yes_and_a_ticket_can_be_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    async with two_clients() as (zk, other):
        lease, secret = await Lock(zk, P, data=b"").acquire(), [zkwire.digest_acl("me", "pw")]
        unread = await zk.create(f"{P}/x-", ephemeral=True, sequential=True, acl=secret)
        ticket = await zk.create(f"{P}/y-", ephemeral=True, sequential=True)
        with pytest.raises(CommandError, match="no terminal"):
            await break_(other, P)
        with pytest.raises(CommandError, match=r"^/l/none: no client holds a lock there$"):
            await break_(other, "/l/none", yes=True)
        await break_(other, P, yes=True)
        assert await lease.lost() is not None
        with pytest.raises(CommandError, match=r"^/l: 1 of 1 not removed$"):
            await break_(other, P, yes=True)
        await break_(other, ticket, yes=True)  # of a client that waits
        (removed, _, unknown, _, _), refused = map(str.splitlines, capsys.readouterr())
        assert [unread in line for line in refused] == [True]
        assert ", without data, since 20" in removed
        assert unknown == f"{unread}: session unknown, without data, since an unknown time"
        assert await zk.get_children(P) == [unread.rpartition("/")[2]]


async def test_it_ends_if_no_server_answers_for_as_long_as_a_session_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_clients() as (zk, other), Lock(zk, P):
        monkeypatch.setattr(type(other), "session_timeout", 0.1)
        monkeypatch.setattr(Contender, "remove", lambda _: asyncio.Event().wait())
        with pytest.raises(TimeoutError, match=rf"^no server has said that {P}/.* is removed within 0.1 s$"):
            await break_(other, P, yes=True)
