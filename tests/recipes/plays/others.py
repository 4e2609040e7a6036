"""Plays of the recipes that are no locks and no queue: barriers, values, groups, kept nodes, mirrors and partitions."""

import asyncio
from functools import partial
from typing import Final

import zkwire
from recipes import Barrier, Cache, Counter, DoubleBarrier, Group, Partitioner, PersistentEphemeral, SharedValue
from recipes.line.lease import LockLostError
from tests.recipes.plays.entry import CANCEL, CUT, EVERY, EXPIRE, FORBID, REFUSE, Entry
from tests.support.everywhere import Scene, below
from tests.support.recipes import outcome, until
from tests.support.trees import shown, tree, until_equal
from zkwire import ConnectionLostError, SessionExpiredError

# -- barriers ---------------------------------------------------------------------------------------------------------


async def pass_a_barrier(stage: Scene) -> None:
    barrier = Barrier(stage.zk, stage.path)
    await barrier.create()
    waiting = asyncio.create_task(barrier.wait())
    try:
        await stage.zk.ping()
        await barrier.remove()
        await waiting
    finally:
        waiting.cancel()
        await outcome(waiting)


async def create_and_remove_a_barrier(stage: Scene) -> None:
    barrier = Barrier(stage.zk, f"{stage.path}/a", acl=zkwire.OPEN_ACL)
    for _ in range(2):
        await barrier.create()
        assert await stage.other.exists(barrier.path) is not None
    await barrier.remove()
    assert await stage.other.exists(barrier.path) is None


async def take_part(barrier: DoubleBarrier) -> None:
    async with barrier:
        pass


async def meet(stage: Scene) -> None:
    one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
    other = asyncio.create_task(take_part(two))
    try:
        await take_part(one)
        await other
    finally:
        other.cancel()
        await outcome(other)


async def meet_or_give_up(stage: Scene) -> None:
    """As `meet`, but `zk` gives up entering when the other member has finished its round.

    The other member does not wait for one whose session expires inside.  A member whose session expires while it enters
    may find that the round has gone on without it.
    """
    one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
    other = asyncio.create_task(take_part(two))
    entering = asyncio.create_task(one.enter())
    await asyncio.wait([entering, other], return_when=asyncio.FIRST_COMPLETED)
    for _ in range(3):
        await outcome(stage.zk.ping())
    if other.done() and not entering.done():
        entering.cancel()
        await outcome(entering)
    else:
        await entering
        await one.leave()
    await other


# -- values -----------------------------------------------------------------------------------------------------------


async def count(stage: Scene) -> None:
    counter = Counter(stage.zk, stage.path)
    for value in range(1, 4):
        assert await counter.add(1) == value
    assert await counter.get() == 3


async def count_on(stage: Scene) -> None:
    counter = Counter(stage.zk, stage.path)
    before = await counter.get()
    assert await counter.add(1) == before + 1 <= 4


async def set_a_counter(stage: Scene) -> None:
    counter = Counter(stage.zk, stage.path, 5)
    assert await counter.compare_and_set(7, expected=5)
    assert not await counter.compare_and_set(9, expected=5)
    await counter.set(3)
    assert await counter.get() == 3


async def set_it_again(stage: Scene) -> None:
    counter = Counter(stage.zk, stage.path, 5)
    assert await counter.compare_and_set(1, expected=await counter.get())


async def replace(stage: Scene) -> None:
    shared = SharedValue(stage.zk, stage.path, b"0")
    _, version = await shared.get()
    assert await shared.compare_and_set(b"1", version=version)
    assert not await shared.compare_and_set(b"2", version=version)
    await shared.set(b"3")
    assert (await shared.get())[0] == b"3"
    async for value, _ in shared.watch():
        assert value == b"3"
        break


async def replace_again(stage: Scene) -> None:
    shared = SharedValue(stage.zk, stage.path)
    assert await shared.compare_and_set(b"9", version=(await shared.get())[1])


# -- groups and kept nodes --------------------------------------------------------------------------------------------


async def follow_a_group(stage: Scene) -> None:
    group = Group(stage.zk, stage.path)
    async with group.watch() as changes:
        await anext(changes)
        async with await group.join("one", b"1") as member:
            assert await anext(changes) == {"one": b"1"}
            await member.set(b"2")
            assert await group.members() == {"one": b"2"}
            async for members in changes:
                if members == {"one": b"2"}:
                    break
        while await anext(changes):
            pass


async def follow_one_member(stage: Scene) -> None:
    """As `follow_a_group`, but without the states in which the member is gone because the session has expired."""
    group = Group(stage.zk, stage.path)
    async with group.watch() as changes, await group.join("one", b"1") as member:
        await member.set(b"2")
        async for members in changes:
            if members == {"one": b"2"}:
                break


async def join_and_leave(stage: Scene) -> None:
    async with await Group(stage.zk, stage.path).join("one", b"1") as member:
        await member.set(b"2")


async def keep_a_node(stage: Scene) -> None:
    async with PersistentEphemeral(stage.zk, f"{stage.path}/n", b"1") as node:
        await node.set(b"2")
        await outcome(stage.other.delete(node.path))
        await outcome(stage.zk.ping())
        await node.created()


# -- cache ------------------------------------------------------------------------------------------------------------


async def follow_a_tree(stage: Scene, *, data: bool = True) -> None:
    """Follow the changes of another client."""
    await stage.other.create(f"{stage.path}/a/b", b"1", make_parents=True)
    try:
        async with Cache(stage.zk, stage.path, data=data) as cache:
            await stage.other.set(f"{stage.path}/a", b"2")
            await stage.other.create(f"{stage.path}/a/c", b"3")
            await until_equal(cache, stage.other, limit=10, data=data)
            await stage.other.delete(f"{stage.path}/a/b")
            await stage.other.create(f"{stage.path}/d", b"4")
            await until_equal(cache, stage.other, limit=10, data=data)
    finally:
        await stage.other.delete_tree(stage.path)


async def plant_a_tree(stage: Scene) -> None:
    await stage.other.create(f"{stage.path}/a/b", make_parents=True)


async def hear_of_a_change(stage: Scene) -> None:
    async with Cache(stage.zk, stage.path) as cache:
        changes = cache.changes()
        await stage.other.set(f"{stage.path}/a", b"1")
        await anext(changes)


async def show_the_tree(stage: Scene) -> None:
    async with Cache(stage.zk, stage.path) as cache:
        assert shown(cache) == await tree(stage.other, stage.path)


# -- partitions -------------------------------------------------------------------------------------------------------


async def take_all_partitions(stage: Scene) -> None:
    async with Partitioner(stage.zk, stage.path, ["only"], settle=0.0, weight=2, within=None) as mine:
        async for partitions in mine:
            if partitions:
                break
    await only_containers(stage)


async def only_containers(stage: Scene) -> None:
    """Wait until no node is left below the members' node nor below a lock's."""

    async def none_left() -> bool:
        nodes = [node.removeprefix(f"{stage.path}/") for node in await below(stage.other, stage.path)]
        return not [node for node in nodes if node.startswith("members/") or node.count("/") > 1]

    await until(none_left)


_UNKNOWN: Final = (ConnectionLostError, SessionExpiredError)  # nothing shows any more whether it was written
_BUT_CANCEL: Final = EVERY - {CANCEL}

ENTRIES: Final = [
    Entry("barrier", pass_a_barrier, steps=3),
    Entry("barrier, created and removed", create_and_remove_a_barrier, _BUT_CANCEL, steps=6),
    Entry("double barrier", meet, EVERY - {EXPIRE}, steps=5, stays=("ready",)),
    Entry("double barrier, given up", meet_or_give_up, {EXPIRE}, afterwards=meet, stays=("ready",), steps=5),
    Entry("counter", count, steps=5, afterwards=count_on, lost=_UNKNOWN),
    Entry("counter, set", set_a_counter, steps=5, afterwards=set_it_again, lost=_UNKNOWN),
    Entry("shared value", replace, steps=5, afterwards=replace_again, lost=_UNKNOWN),
    Entry("group", follow_a_group, {CUT, CANCEL, REFUSE}, steps=8),
    Entry("group, one member", follow_one_member, {EXPIRE}, steps=5),
    Entry("group, joined and left", join_and_leave, {FORBID}),
    Entry("persistent ephemeral node", keep_a_node, steps=5),
    Entry("cache, a tree", follow_a_tree, {CUT, EXPIRE, REFUSE}, steps=6, lost=(SessionExpiredError,)),
    Entry(
        "cache, without data",
        partial(follow_a_tree, data=False),
        {CUT, EXPIRE, REFUSE},
        steps=6,
        lost=(SessionExpiredError,),
    ),
    Entry("cache", hear_of_a_change, {CANCEL}, prepare=plant_a_tree, afterwards=show_the_tree, stays=("a", "a/b")),
    Entry(
        "partitioner",
        take_all_partitions,
        EVERY - {FORBID},
        stays=("members", "locks", "locks/only"),
        steps=8,
        lost=(LockLostError,),
    ),
]
