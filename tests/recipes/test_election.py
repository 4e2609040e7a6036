"""Elections: leading, resigning, leading again, observing; their requests, and cuts and cancellations."""

import asyncio
import gc
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkwire
from recipes import Election, LeaderStream, LockLostError, Term, Terms
from recipes.line.ticket import ASKED
from tests.support.client import Server as AnyServer
from tests.support.everywhere import no_watch_stays, scene
from tests.support.locks import watch_count
from tests.support.queues import Counting
from tests.support.recipes import (
    body_raises,
    expire,
    line,
    no_task_stays,
    outcome,
    this_task,
    until,
    until_line,
    until_watches,
)
from zkwire import SessionClosedError
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)

P = "/election"


async def lead_for_ever(election: Election, terms: list[Term]) -> None:
    """Lead, append the term, and continue until cancelled or lost."""
    async with election.lead() as term:
        terms.append(term)
        await asyncio.Event().wait()


async def lead_again_for_ever(election: Election, terms: list[Term]) -> None:
    """Lead again and again, and append each term."""
    async for term in election.terms():
        async with term:
            terms.append(term)
            await asyncio.Event().wait()


async def run_for_ever(election: Election, terms: list[Term]) -> None:
    """Do the same by `run`."""

    async def work(term: Term) -> None:
        terms.append(term)
        await asyncio.Event().wait()

    await election.run(work)


@asynccontextmanager
async def running(*coroutines: Any) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run the coroutines as tasks, started in this order, and cancel them at the end."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


# -- leading ----------------------------------------------------------------------------------------------------------


async def test_nodes_have_the_names_of_curators_leader_latch(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, Election(zk, path, data=b"host-1").lead() as term:
        assert re.fullmatch(rf"{path}/_c_[0-9a-f-]{{36}}-latch-[0-9]{{10}}", term.path)
        data, stat = await zk.get(term.path)
        assert data == b"host-1"
        assert stat.ephemeral_owner == zk.session_id
        assert term.token == stat.czxid


async def test_candidates_of_other_libraries_take_part_in_the_same_election(zookeeper: RealServer, path: str) -> None:
    """A node with the name of Curator's LeaderLatch counts; a child without a sequence number does not."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        await zk.create(path, container=True)
        await zk.create(f"{path}/config")
        latch = f"{path}/_c_0b9a3f9e-5a5a-4c4c-9d9d-1e2f3a4b5c6d-latch-"
        first = await other.create(latch, b"java-1", ephemeral=True, sequential=True)
        waiting = asyncio.create_task(Election(zk, path, b"ours").acquire())
        await until_line(zk, path, 2)  # without the child that is no candidate
        last = await other.create(latch, b"java-2", ephemeral=True, sequential=True)
        assert await Election(zk, path).candidates() == [b"java-1", b"ours", b"java-2"]
        assert await Election(zk, path).leader() == (await Election(zk, path).contenders())[0]
        await other.delete(first)
        term = await waiting
        assert sorted([term.path, last], key=lambda node: node.rpartition("-")[2]) == [term.path, last]
        await term.resign()
        async with Election(zk, path).observe() as leaders:
            assert await anext(leaders) == b"java-2"


async def test_a_term_that_another_task_resigns_stops_its_body_and_the_election_can_be_entered_again() -> None:
    """Pitfall 90."""
    async with scene(P) as stage:
        terms: list[Term] = []
        election = Election(stage.zk, P, b"1")
        async with running(lead_for_ever(Election(stage.other, P, b"2"), terms)) as (task,):
            await until(lambda: bool(terms))
            again = asyncio.create_task(election.acquire())
            await until_line(stage.zk, P, 2)
            await terms[0].resign()
            term = await again
            assert isinstance(await outcome(task), LockLostError)
            with pytest.raises(RuntimeError, match="released"):
                terms[0].check()
            behind = asyncio.create_task(Election(stage.other, P, b"3").acquire())
            await until_line(stage.zk, P, 2)
            await term.resign()
            anew = asyncio.create_task(election.acquire())
            await (last := await behind).resign()
            assert (await anew).token > last.token
            await anew.result().release()


async def test_terms_and_observers_on_a_closed_client_are_errors() -> None:
    """Pitfall 6."""
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        election = Election(zk, P)
        terms = election.terms()
        await zk.close()
        for asked in (anext(terms), anext(election.observe())):
            assert isinstance(await outcome(asked), SessionClosedError)


@pytest.mark.parametrize("bad", ["", "election", "/a//b", "/a/"])
async def test_bad_arguments_are_refused(memory: Any, path: str, bad: str) -> None:
    async with zkwire.connect(memory.hosts) as zk:
        with pytest.raises(ValueError, match=re.escape(repr(bad))):
            Election(zk, bad)
        wrong: Any = "host-1"
        with pytest.raises(TypeError, match="host-1"):
            Election(zk, path, wrong)
        async with Election(zk, f"{path}-led").lead() as term:
            with pytest.raises(TypeError, match="host-1"):
                await term.set(wrong)
            with pytest.raises(ValueError, match="a request to give way"):
                await term.set(ASKED)
        with pytest.raises(ValueError, match="a request to give way"):
            Election(zk, path, ASKED)
        with pytest.raises(ValueError, match="within"):
            Election(zk, path).lead(within=-1)
        assert await zk.exists(path) is None


# -- one term after another -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [lead_again_for_ever, run_for_ever])
async def test_terms_continue_in_a_new_session_behind_the_other_candidates(
    again: Callable[[Election, list[Term]], Awaitable[None]], zookeeper: RealServer, path: str
) -> None:
    """Pitfalls 12, 13 and 17: the new ticket belongs to the new session."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        terms: list[Term] = []
        others: list[Term] = []
        async with running(again(Election(zk, path, b"1"), terms)) as (task,):
            await until(lambda: bool(terms))
            async with running(lead_again_for_ever(Election(other, path, b"2"), others)) as (waiter,):
                await until_line(other, path, 2)
                old = zk.session_id
                await expire(zookeeper, zk)
                await until(lambda: bool(others))
                await until_line(other, path, 2)
                assert not terms[0].is_certain()
                assert await Election(other, path).candidates() == [b"2", b"1"]
                waiter.cancel()
                await until(lambda: len(terms) == 2)
            assert not task.done()
            stat = (await other.get(terms[1].path)).stat
            assert stat.ephemeral_owner == zk.session_id != old
            assert terms[0].token < others[0].token < terms[1].token
        await until_line(other, path, 0)


async def test_asking_for_the_next_term_resigns_a_term_that_was_not_entered() -> None:
    async with scene(P) as stage:
        terms = Election(stage.zk, P).terms()
        assert isinstance(terms, Terms)
        first = await anext(terms)
        second = await anext(terms)
        assert first.is_released
        assert second.token > first.token
        assert len(await line(stage.zk, P)) == 1
        await second.release()
        with pytest.raises(RuntimeError, match="released"):
            async with first:
                pass


async def test_leaving_the_loop_resigns_a_term_that_was_not_entered() -> None:
    async with scene(P) as stage:

        async def first() -> Term:
            async for term in Election(stage.zk, P).terms():
                return term
            raise AssertionError("the terms must not end")

        term = await first()
        gc.collect()
        async with Election(stage.other, P).lead(within=5):
            assert term.is_released
        await until_line(stage.other, P, 0)


async def test_an_entered_term_lasts_although_its_iterator_is_gone() -> None:
    async with scene(P) as stage:
        async with await anext(Election(stage.zk, P).terms()) as term:
            gc.collect()
            await stage.zk.ping()
            term.check()
            names = await line(stage.other, P)
        assert names == [term.path.rpartition("/")[2]]  # a term that ended would have ended the body in silence
        await until_line(stage.other, P, 0)


async def test_closing_the_terms_resigns_and_ends_a_wait() -> None:
    async with scene(P) as stage:
        async with Election(stage.zk, P).terms() as terms:
            term = await anext(terms)
            waiter = Election(stage.other, P).terms()
            waiting = asyncio.create_task(anext(waiter))
            await until_line(stage.other, P, 2)
            await waiter.aclose()
            assert isinstance(await outcome(waiting), StopAsyncIteration)
            assert len(await line(stage.zk, P)) == 1
        assert term.is_released
        with pytest.raises(StopAsyncIteration):
            await anext(terms)
        assert await line(stage.other, P) == []


def test_terms_that_outlive_their_event_loop_are_collected_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lead() -> Terms:
        async with Server() as server, zkwire.connect(server.hosts) as zk:
            terms = Election(zk, P).terms()
            await anext(terms)
            return terms

    noticed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", noticed.append)
    kept = [asyncio.run(lead())]
    kept.clear()
    gc.collect()
    assert not noticed


async def test_a_term_takes_any_bytes_and_is_lost_when_another_client_has_written_into_its_node() -> None:
    async with scene(P) as stage:
        term = await Election(stage.zk, P).acquire()
        for data in (bytearray(b"1"), memoryview(b"2")):
            await term.set(data)  # type: ignore[arg-type]
            assert (await stage.other.get(term.path)).data == bytes(data)
        await stage.other.set(term.path, b"by hand")
        with pytest.raises(LockLostError, match="another client has written into it"):
            await term.set(b"3")
        await term.resign()
        await until_line(stage.other, P, 0)


@pytest.mark.parametrize("is_lost", [True, False])
async def test_data_that_is_not_written_because_the_term_has_ended_meanwhile_is_an_error(is_lost: bool) -> None:
    async with scene(P) as stage:
        term = await Election(stage.zk, P).acquire()
        with stage.server.answering("setData", zkwire.ThrottledError, session=stage.zk.session_id) as refused:
            setting = asyncio.create_task(outcome(term.set(b"1")))
            await refused.until_hit()
            await (stage.other.set(term.path, b"by hand") if is_lost else term.resign())
            if is_lost:
                await term.lost()
            ended = await setting
        assert isinstance(ended, LockLostError if is_lost else RuntimeError)
        await term.resign()


async def test_a_term_writes_its_data_once_although_the_answer_was_lost() -> None:
    async with scene(P) as stage:
        term = await Election(stage.zk, P).acquire()
        for drop, version in ((stage.server.drop_after, 1), (stage.server.drop_before, 2)):
            data = bytearray(b"%d" % version)
            with drop("setData", session=stage.zk.session_id) as dropped:
                setting = asyncio.create_task(term.set(data))  # type: ignore[arg-type]
                await dropped.until_hit()
                data[:] = b"later"
                await setting
            found, stat = await stage.other.get(term.path)
            assert (found, stat.version) == (b"%d" % version, version)
        await term.resign()


async def test_errors_of_a_body_leave_the_loop_except_the_loss_of_its_term() -> None:
    async with scene(P) as stage:
        entered = 0
        with body_raises(KeyError, match="mine"):
            async for term in Election(stage.zk, P).terms():
                async with term:
                    entered += 1
                    if entered == 1:
                        await stage.other.delete(term.path)
                        term._zk._session.lifetime.doubt()
                        term.check()  # the body raises the loss itself
                    raise KeyError("mine")
        assert entered == 2
        with body_raises(LockLostError, match="elsewhere"):
            async for term in Election(stage.zk, P).terms():
                async with term:
                    raise LockLostError("/elsewhere", "of another lock")
        await until_line(stage.other, P, 0)


# -- observing --------------------------------------------------------------------------------------------------------


async def test_an_observer_sees_every_leader_and_every_change_of_its_data(each_server: AnyServer, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        leaders = Election(other, path).observe()
        assert isinstance(leaders, LeaderStream)
        async with leaders:
            assert await anext(leaders) is None  # the election's node is missing
            first = await Election(zk, path, b"1").acquire()
            assert await anext(leaders) == b"1"
            second = asyncio.create_task(Election(zk, path, b"2").acquire())
            await until_line(zk, path, 2)
            for data in (b"1a", b"1b", b"1b"):
                await first.set(data)
                assert await anext(leaders) == data
            await zk.set(first.path, ASKED)
            assert await anext(leaders) == b"1b"  # written again
            first.check()
            await first.resign()
            assert await anext(leaders) == b"2"
            same = asyncio.create_task(Election(zk, path, b"2").acquire())
            await until_line(zk, path, 2)
            await (await second).resign()
            assert await anext(leaders) == b"2"  # another leader
            await (await same).resign()
            assert await anext(leaders) is None
            await zk.create(f"{path}/config")  # not a candidate
            again = await Election(zk, path, b"3").acquire()
            assert await anext(leaders) == b"3"
            last = await zk.create(f"{path}/latch-", ASKED, ephemeral=True, sequential=True)
            await again.resign()
            assert await anext(leaders) is None  # not the data of the leader before it
            async with Election(other, path).observe() as later:
                assert await anext(later) is None
            await zk.set(last, b"4")
            assert await anext(leaders) == b"4"
            with pytest.raises(RuntimeError, match="released"):
                await again.set(b"late")
        with pytest.raises(StopAsyncIteration):
            await anext(leaders)
        await until_watches(each_server, 0)


async def test_a_candidate_that_leaves_while_the_candidates_are_read_is_left_out() -> None:
    async with scene(P) as stage:
        terms = [await Election(stage.other, P, b"1").acquire()]
        waiting = [asyncio.create_task(Election(stage.other, P, data).acquire()) for data in (b"2", b"3")]
        await until_line(stage.other, P, 3)
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id) as listing:
            reading = asyncio.create_task(Election(stage.zk, P).candidates())
            await listing.until_hit()
            await terms[0].resign()
        assert await reading == [b"2", b"3"]
        with (
            stage.server.answering("getData", zkwire.NoAuthError, session=stage.zk.session_id),
            pytest.raises(zkwire.NoAuthError, match=f"{P}/_c_"),
        ):
            await Election(stage.zk, P).candidates()
        for task in waiting:
            await (await task).resign()


async def test_nodes_that_are_not_ephemeral_never_lead(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(P) as stage:
        for number in range(2):
            await stage.other.create(f"{P}/left-over-", b"%d" % number, sequential=True, make_parents=True)
        async with Election(stage.zk, P).observe() as leaders:
            assert await anext(leaders) is None
            following = asyncio.ensure_future(anext(leaders))
            async with Election(stage.other, P, b"1").lead():
                assert await following == b"1"
                assert await Election(stage.zk, P).candidates() == [b"1"]
            assert await anext(leaders) is None
        for number in range(2):
            assert sum(f"{P}/left-over-000000000{number}" in text for text in caplog.messages) == 2  # each client


async def test_an_observer_sends_one_list_and_one_read_for_each_leader() -> None:
    count = Counting()
    async with scene(P) as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        async with Election(zk, P).observe() as leaders:
            term = await Election(stage.other, P, b"1").acquire()
            second = asyncio.create_task(Election(stage.other, P, b"2").acquire())
            await until_line(stage.other, P, 2)
            assert await anext(leaders) == b"1"
            following = asyncio.ensure_future(anext(leaders))
            third = asyncio.create_task(Election(stage.other, P, b"3").acquire())
            await until_line(stage.other, P, 3)
            third.cancel()
            await until_line(stage.other, P, 2)
            await zk.ping()
            assert count.requests == ["getChildren2", "getData", "ping"]  # other candidates never wake an observer
            count.requests.remove("ping")
            await term.resign()
            assert await following == b"2"
            assert count.requests == ["getChildren2", "getData"] * 2
            await (await second).set(b"3")
            assert await anext(leaders) == b"3"
            assert count.requests == [*["getChildren2", "getData"] * 2, "getData"]
            await second.result().resign()
            assert await anext(leaders) is None
            assert count.requests[5:] == ["getChildren2", "getChildren2"]  # the second one with a watch
        await no_watch_stays(stage.server.hosts)


async def test_an_election_that_begins_between_two_requests_of_an_observer_is_shown() -> None:
    """The election's node is missing, and then it is there, with and without a candidate; or a candidate comes."""
    for empties in (False, True):
        async with scene(P) as stage, no_task_stays(), Election(stage.zk, P).observe() as leaders:
            with stage.server.hold_replies("getChildren", session=stage.zk.session_id, nth=2) as listing:
                looking = asyncio.create_task(leaders.__anext__())
                await listing.until_hit()
                term = await Election(stage.other, P, b"1").acquire()
                if empties:
                    await term.resign()
            if empties:
                assert await looking is None
                term = await Election(stage.other, P, b"1").acquire()
                assert await anext(leaders) == b"1"
            else:
                assert await looking == b"1"
                assert watch_count(stage.zk) == 1  # on the leader, and no more on the election's node
            await term.resign()
            assert await anext(leaders) is None
            with stage.server.hold_replies("getChildren", session=stage.zk.session_id):
                following = asyncio.create_task(leaders.__anext__())
                term = await Election(stage.other, P, b"1").acquire()  # the same data again, in another term
            assert await following == b"1"
            await term.resign()


async def test_the_loss_of_an_acquired_term_is_raised() -> None:
    async with scene(P) as stage:
        term = await Election(stage.zk, P).acquire()
        with body_raises(LockLostError):
            async with term:
                await stage.other.delete(term.path)
                await asyncio.Event().wait()
        with body_raises(LockLostError, match="as the body has found out"):
            async with await Election(stage.zk, P).acquire() as single:
                raise LockLostError(single.path, "as the body has found out")
        with body_raises(LockLostError):
            async with term:
                pass
        assert this_task().cancelling() == 0
