"""Something that runs in one worker only, of several: whose turn it is, and what ends a turn."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import pytest

import zkwire
from recipes import Election, LockLostError, Term, only_one
from tests.support.everywhere import scene
from tests.support.recipes import line, outcome, until, until_line
from tests.support.virtual_time import Server, a_client, in_virtual_time

pytestmark = pytest.mark.limit(30)

P = "/beat"


@in_virtual_time
async def test_while_a_body_runs_no_other_does_and_when_it_ends_another_begins() -> None:
    """While the body runs, no other worker's does; when it ends, another one's begins: whatever ends it."""
    server, terms, ends = Server(are_several=True), dict[str, Term](), dict[str, asyncio.Future[object]]()
    events: list[str] = []

    async def body(name: str, term: Term) -> object:
        events.append(f"begins {name}")
        terms[name], ends[name] = term, asyncio.get_running_loop().create_future()
        try:
            return await ends[name]
        finally:
            await asyncio.sleep(0.01)  # it cleans up
            events.append(f"ends {name}")

    async def took(*expected: str) -> None:
        await until(lambda: len(events) >= len(expected))
        assert events == [*expected]
        events.clear()

    async with AsyncExitStack() as stack:
        running = {}
        for name in "abc":
            _, zk = await stack.enter_async_context(a_client(name, server=server))
            running[name] = asyncio.create_task(only_one(zk, P).run(partial(body, name)))
            await until_line(zk, P, len(running))
        await asyncio.sleep(60.0)
        await took("begins a")
        server.refused.add("a")
        next(wire for wire in server.wires if wire.host == "a").lose(None)
        await took("ends a", "begins b")  # cut off, before its session has expired
        server.refused.clear()
        await until_line(zk, P, 3)  # it is back in the line
        ends["b"].set_result("done")
        await took("ends b", "begins c")
        assert await running["b"] == "done"
        await terms["c"].resign()  # by another task
        await took("ends c", "begins a")
        ends["a"].set_exception(KeyError("mine"))
        await took("ends a", "begins c")
        assert isinstance(await outcome(running["a"]), KeyError)
        running["c"].cancel()
        await took("ends c")
        assert isinstance(await outcome(running["c"]), asyncio.CancelledError)
        assert await line(zk, P) == []


async def _run_terms(election: Election, work: Callable[[Term], Awaitable[None]]) -> None:
    async for term in election.terms():
        async with term:
            await work(term)


@pytest.mark.parametrize("run", [Election.run, _run_terms])
async def test_a_loss_that_its_body_does_not_notice_begins_it_again_and_one_of_another_lock_ends_it(run: Any) -> None:
    async with scene(P) as stage:
        terms: list[Term] = []

        async def work(term: Term) -> None:
            terms.append(term)
            assert len(terms) < 3
            if len(terms) == 2:
                raise ExceptionGroup("", [LockLostError(path, "lost") for path in (term.path, "/another")])
            await stage.other.delete(term.path)
            with suppress(asyncio.CancelledError):  # what follows may run beside the body of another worker
                await asyncio.Event().wait()
            async with asyncio.TaskGroup() as group:
                group.create_task(term.set(b""))

        with pytest.raises(ExceptionGroup):
            await run(only_one(stage.zk, P), work)
        assert len(terms) == 2


async def test_a_coroutine_is_refused_before_anything_is_sent() -> None:
    async with scene(P) as stage:
        coroutine: Any = asyncio.sleep(0)
        with pytest.raises(TypeError, match=r"calls a function with each term, .*<coroutine object sleep"):
            await only_one(stage.zk, P).run(coroutine)
        coroutine.close()
        assert await stage.other.exists(P) is None


async def test_others_see_whose_turn_it_is_and_an_acl_is_for_all_nodes() -> None:
    acl = [zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.ADMIN, "world", "anyone")]
    async with scene(P) as stage, only_one(stage.zk, P, data=b"mine", acl=acl):
        assert await only_one(stage.other, P).candidates() == [b"mine"]
        assert (await stage.other.get_acl(P))[0] == acl
