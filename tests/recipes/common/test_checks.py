"""Recipes take a client, and are used in one event loop, instead of waiting for ever in another."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import recipes
from recipes import Group, Lock, Partitioner, PersistentEphemeral
from tests.support.everywhere import scene

Call = Callable[[], Awaitable[object]]


async def check(what: str, *calls: Call) -> None:
    """Await each call in an event loop of another thread, for a second at most."""

    async def run(call: Call) -> None:
        async with asyncio.timeout(1.0):
            await call()

    for call in calls:
        with pytest.raises(RuntimeError, match=f"^{what} belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, run(call))


MORE: dict[str, list[object]] = {"DoubleBarrier": [3], "Partitioner": ["a"], "Semaphore": [2], "SharedValue": []}
NAMES = ["Barrier", "Cache", "Counter", "Election", "Group", "Lock", "PersistentEphemeral", "Queue", "TryLock"]


@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_a_recipe_of_what_is_no_client_says_what_to_pass(name: str) -> None:
    with pytest.raises(TypeError, match=r"pass the client that `await zkwire\.connect"):
        getattr(recipes, name)("zk1:2181", "/path", *MORE.get(name, []))


async def test_a_persistent_ephemeral() -> None:
    async with scene() as stage:
        node = PersistentEphemeral(stage.zk, "/n")
        async with node:
            with stage.server.hold_replies("create", path="/n") as held:
                await stage.other.delete("/n")
                await held.until_hit()  # so the calls would wait
                await check(
                    "the PersistentEphemeral of /n",
                    node.created,
                    lambda: node.set(b"2"),
                    lambda: node.__aexit__(None, None, None),
                )
            await node.created()
        await check("the PersistentEphemeral of /n", node.__aenter__)


async def test_a_member_of_a_group() -> None:
    async with scene() as stage:
        member = await Group(stage.zk, "/g").join("one")
        for _ in range(2):
            await check("the member /g/one", member.lost, lambda: member.set(b"2"), member.leave)
            await member.leave()


async def test_a_partitioner() -> None:
    async with scene() as stage:
        mine = Partitioner(stage.zk, "/p", ["a"], settle=0.0)
        async with mine:
            assert await anext(mine) == {"a"}
            await check("the Partitioner of /p", mine.__anext__, lambda: mine.__aexit__(None, None, None))
        await check("the Partitioner of /p", mine.__aenter__)


async def test_a_lock_made_without_an_event_loop_can_be_used_in_one() -> None:
    """As at the top of a module, or in another thread."""
    async with scene() as stage:
        lock = await asyncio.to_thread(Lock, stage.zk, "/l")
        async with lock as lease:
            lease.check()


async def test_without_an_event_loop_the_error_says_so() -> None:
    async with scene() as stage, Lock(stage.zk, "/l") as lease:
        waiting = lease.lost()
        with pytest.raises(RuntimeError, match="is used without an event loop: use it in the loop that has connected"):
            await asyncio.to_thread(waiting.send, None)
