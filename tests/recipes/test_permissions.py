"""What a stranger with one permission on one node of a recipe can do at most: a test for each cell of the table in
docs/security.md, "Queues, barriers, counters, groups and caches".

Each play runs a recipe and, in the middle, gives the stranger the permission on the node and has it used: READ reads,
WRITE replaces the data, CREATE creates children of several kinds, DELETE deletes all children.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import pytest

import zkwire
from recipes import Barrier, Cache, Counter, DoubleBarrier, Group, Partitioner, PersistentEphemeral, Queue
from recipes.line.lease import LockLostError
from tests.support.everywhere import scene
from tests.support.lost_answers import answer_lost
from tests.support.recipes import outcome, until
from zkwire import CREATOR_ALL_ACL, Client, NoAuthError, Perms, digest_acl
from zkwire.testing import RealServer

READ, WRITE, CREATE, DELETE = Perms.READ, Perms.WRITE, Perms.CREATE, Perms.DELETE
OURS: Final = digest_acl("us", "secret")


class Stranger:
    """Another client, which uses the permission `perm` on a node that is otherwise ours alone."""

    def __init__(self, us: Client, other: Client, perm: Perms) -> None:
        self.us = us
        self.other = other
        self.perm = perm

    async def uses(self, node: str, *, names: tuple[str, ...] = ("forged",), data: bytes = b"forged") -> None:
        """Use the permission on `node`.

        Arguments: `names` of the children to create; `data` to write.
        """
        await self.us.set_acl(node, [OURS, digest_acl("stranger", "secret", self.perm)])
        if self.perm is READ:
            await self.other.get(node)
            await self.other.get_children(node)
        elif self.perm is WRITE:
            await self.other.set(node, data)
        elif self.perm is CREATE:
            for name in names:
                with contextlib.suppress(zkwire.NoChildrenForEphemeralsError):
                    await self.other.create(f"{node}/{name}", data)
                    await self.other.create(f"{node}/{name}-", data, sequential=True)
                    await self.other.create(f"{node}/{name}-", data, sequential=True, ephemeral=True)
        else:
            for name in await self.us.get_children(node):
                with contextlib.suppress(zkwire.NotEmptyError):
                    await self.other.delete(f"{node}/{name}")


Play: TypeAlias = Callable[[Client, Stranger, str], Awaitable[object]]


@asynccontextmanager
async def us_and_a_stranger(server: RealServer, perm: Perms) -> AsyncIterator[tuple[Client, Stranger]]:
    async with (
        zkwire.connect(server.hosts, auth=[("digest", b"us:secret")]) as us,
        zkwire.connect(server.hosts, auth=[("digest", b"stranger:secret")]) as other,
    ):
        yield us, Stranger(us, other, perm)


async def taken_from(queue: Queue) -> list[bytes]:
    """Take what can be taken."""
    found = []
    with contextlib.suppress(TimeoutError):
        while True:
            found.append(await queue.get(within=0))
    return found


# -- queues -----------------------------------------------------------------------------------------------------------


async def queue_entries(us: Client, stranger: Stranger, path: str) -> object:
    queue = Queue(us, path)
    await queue.put_many([b"a", b"b"])
    await stranger.uses(f"{path}/entries")
    await queue.put(b"c")
    return await taken_from(queue)


async def queue_item(us: Client, stranger: Stranger, path: str) -> object:
    queue = Queue(us, path)
    await queue.put_many([b"a", b"b"])
    first = min(await us.get_children(f"{path}/entries"))
    await us.delete(f"{path}/entries/{first}")
    await us.create(f"{path}/entries/{first}", b"a", acl=CREATOR_ALL_ACL)  # by default no client could change it
    await stranger.uses(f"{path}/entries/{first}")
    return await taken_from(queue)


async def queue_taken(us: Client, stranger: Stranger, path: str) -> object:
    queue = Queue(us, path)
    await queue.put_many([b"a", b"b"])
    names = sorted(await us.get_children(f"{path}/entries"))
    try:
        async with queue.claim() as item:
            await stranger.uses(f"{path}/taken", names=(names[1],))
            if stranger.perm is DELETE:
                await item.lost()
            item.check()
    except LockLostError:
        return "the claim is lost", sorted(await taken_from(queue))
    return [await queue.get(within=20) for _ in range(await queue.size() or 1)]


async def queue_room(us: Client, stranger: Stranger, path: str) -> object:
    queue = Queue(us, path, 3)
    await queue.put(b"a")
    await stranger.uses(f"{path}/room", data=b"4")
    put = await outcome(asyncio.create_task(queue.put(b"b", within=0)))
    return (type(put), await taken_from(queue))


async def queue_node(us: Client, stranger: Stranger, path: str) -> object:
    queue = Queue(us, path)
    await queue.put_many([b"a", b"b"])
    await stranger.uses(path)
    await queue.put(b"c")
    return await taken_from(queue)


# -- barriers ---------------------------------------------------------------------------------------------------------


async def barrier_node(us: Client, stranger: Stranger, path: str) -> object:
    barrier = Barrier(us, path, acl=CREATOR_ALL_ACL)
    await barrier.create()
    await stranger.uses(path)
    waiting = await outcome(asyncio.create_task(barrier.wait(within=0)))
    removed = await outcome(asyncio.create_task(barrier.remove()))
    return type(removed if stranger.perm is CREATE else waiting)


async def barrier_parent(us: Client, stranger: Stranger, path: str) -> object:
    barrier = Barrier(us, f"{path}/barrier", acl=CREATOR_ALL_ACL)
    await us.ensure_path(path)
    if stranger.perm is not CREATE:
        await barrier.create()
    await stranger.uses(path, names=("barrier",))
    return type(await outcome(asyncio.create_task(barrier.wait(within=0))))


MEMBER: Final = "9f2c1d3e-0a1b-4c5d-8e6f-1234567890ab-of-2"


async def double_barrier_node(us: Client, stranger: Stranger, path: str) -> object:
    first = asyncio.create_task(DoubleBarrier(us, path, 2).enter())
    await until(lambda: us_has_children(us, path, 1))
    await stranger.uses(path, names=(MEMBER, "ready"))
    second = asyncio.create_task(DoubleBarrier(us, path, 2).enter())
    await first
    if stranger.perm is CREATE:
        second.cancel()
        return type(await outcome(second))
    await second
    return None


async def us_has_children(us: Client, path: str, count: int) -> bool:
    try:
        return len(await us.get_children(path)) == count
    except zkwire.NoNodeError:
        return False


async def double_barrier_ready(us: Client, stranger: Stranger, path: str) -> object:
    return await one_round_with_a_stranger(us, stranger, path, lambda name: name == "ready")


async def double_barrier_member(us: Client, stranger: Stranger, path: str) -> object:
    return await one_round_with_a_stranger(us, stranger, path, lambda name: name != "ready")


async def one_round_with_a_stranger(
    us: Client, stranger: Stranger, path: str, is_meant: Callable[[str], bool]
) -> list[str]:
    """Have the stranger use a child of the barrier's node while two are in, play another round, return what stays."""
    one, two = (DoubleBarrier(us, path, 2, acl=CREATOR_ALL_ACL) for _ in range(2))
    await asyncio.gather(one.enter(), two.enter())
    child = next(filter(is_meant, await us.get_children(path)))
    await stranger.uses(f"{path}/{child}")
    await asyncio.gather(one.leave(), two.leave())
    await asyncio.gather(one.enter(within=20), two.enter(within=20))
    await asyncio.gather(one.leave(), two.leave())
    return await us.get_children(path)


# -- counters, values -------------------------------------------------------------------------------------------------


async def counter_node(us: Client, stranger: Stranger, path: str) -> object:
    counter = Counter(us, path)
    await counter.add(7)
    await stranger.uses(path)
    added = await outcome(asyncio.create_task(counter.add(1)))
    again = await outcome(asyncio.create_task(counter.add(1)))
    return (added if isinstance(added, int) else type(added), again if isinstance(again, int) else type(again))


# -- groups -----------------------------------------------------------------------------------------------------------


async def group_node(us: Client, stranger: Stranger, path: str) -> object:
    group = Group(us, path)
    member = await group.join("one", b"1")
    await stranger.uses(path)

    async def is_there() -> bool:
        return "one" in await group.members()

    await until(is_there)  # it is put back
    members = await group.members()
    await member.leave()
    return members


async def member_node(us: Client, stranger: Stranger, path: str) -> object:
    group = Group(us, path, acl=CREATOR_ALL_ACL)  # by default no client has ADMIN
    async with await group.join("one", b"1"):
        await stranger.uses(f"{path}/one")
        return await group.members()


async def partitioner_members(us: Client, stranger: Stranger, path: str) -> object:
    async with Partitioner(us, path, ["a", "b"], name="me", settle=0.0) as mine:
        ours: frozenset[str] = frozenset()

        async def follow() -> None:
            nonlocal ours
            async for partitions in mine:
                ours = partitions

        following = asyncio.create_task(follow())
        await until(lambda: len(ours) == 2)
        data = (await us.get(f"{path}/members/me")).data
        await stranger.uses(f"{path}/members", data=data)

        async def is_in() -> bool:
            return "me" in await Group(us, f"{path}/members").members()

        await until(is_in)  # a member that was removed is put back
        await until(lambda: len(ours) == (1 if stranger.perm is CREATE else 2))
        members = await Group(us, f"{path}/members").members()
        following.cancel()
        await asyncio.wait([following])
        return len(ours), len(members)


# -- caches -----------------------------------------------------------------------------------------------------------


async def cache_node(us: Client, stranger: Stranger, path: str) -> object:
    await us.create(f"{path}/a", make_parents=True)
    async with Cache(us, path) as cache:
        await stranger.uses(path)

        async def is_current() -> bool:
            shown = cache.children(path)
            assert shown is not None
            node = cache.get(path)
            return node is not None and (node.data, shown) == (
                (await us.get(path)).data,
                sorted(await us.get_children(path)),
            )

        await until(is_current)
        node, names = cache.get(path), cache.children(path)
        assert node is not None
        assert names is not None
        return node.data, len(names)


# -- the table --------------------------------------------------------------------------------------------------------

TWO = {"one": b"1"}
CELLS: Final[dict[Play, dict[Perms, object]]] = {
    queue_entries: {
        READ: [b"a", b"b", b"c"],
        WRITE: [b"a", b"b", b"c"],
        CREATE: [b"a", b"b", b"forged", b"forged", b"c"],
        DELETE: [b"c"],
    },
    queue_item: {READ: [b"a", b"b"], WRITE: [b"forged", b"b"], CREATE: [b"b"], DELETE: [b"a", b"b"]},
    queue_taken: {READ: [b"b"], WRITE: [b"b"], CREATE: [b"b"], DELETE: ("the claim is lost", [b"a", b"b"])},
    queue_room: {
        READ: (type(None), [b"a", b"b"]),
        WRITE: (ValueError, [b"a"]),
        CREATE: (type(None), [b"a", b"b"]),
        DELETE: (type(None), [b"a", b"b"]),
    },
    queue_node: {perm: [b"a", b"b", b"c"] for perm in (READ, WRITE, CREATE, DELETE)},
    barrier_node: {**dict.fromkeys((READ, WRITE, DELETE), TimeoutError), CREATE: zkwire.NotEmptyError},
    barrier_parent: {READ: TimeoutError, WRITE: TimeoutError, CREATE: TimeoutError, DELETE: type(None)},
    double_barrier_node: {
        READ: None,
        WRITE: None,
        CREATE: asyncio.CancelledError,  # the first one enters with the stranger's member, the second one waits
        DELETE: None,
    },
    double_barrier_ready: {perm: [] for perm in (READ, WRITE, CREATE, DELETE)},
    double_barrier_member: {perm: [] for perm in (READ, WRITE, CREATE, DELETE)},
    counter_node: {READ: (8, 9), WRITE: (ValueError, ValueError), CREATE: (8, 9), DELETE: (8, 9)},
    group_node: {
        READ: {"one": b"1"},
        WRITE: {"one": b"1"},
        CREATE: {"one": b"1", "forged-0000000003": b"forged"},
        DELETE: {"one": b"1"},
    },
    member_node: {READ: TWO, WRITE: {"one": b"forged"}, CREATE: TWO, DELETE: TWO},
    partitioner_members: {READ: (2, 1), WRITE: (2, 1), CREATE: (1, 2), DELETE: (2, 1)},
    cache_node: {READ: (b"", 1), WRITE: (b"forged", 1), CREATE: (b"", 4), DELETE: (b"", 0)},
}


@pytest.mark.parametrize(
    ("play", "perm"),
    [
        pytest.param(
            play,
            perm,
            id=f"{play.__name__}-{perm.name}",
            marks=[pytest.mark.since("3.6", "addWatch")] if play is cache_node else [],
        )
        for play, row in CELLS.items()
        for perm in row
    ],
)
async def test_a_stranger_can_do_at_most_this(zookeeper: RealServer, path: str, play: Play, perm: Perms) -> None:
    async with us_and_a_stranger(zookeeper, perm) as (us, stranger):
        assert await play(us, stranger, path) == CELLS[play][perm]


async def test_a_stranger_that_deletes_the_trace_of_a_write_whose_answer_was_lost_has_it_repeated() -> None:
    """DELETE on the node of a queue, a counter or a value.  If the trace was used before, the error says so instead."""
    async with scene() as stage:
        queue = Queue(stage.zk, "/q")
        await Queue(stage.other, "/q").put(b"first")
        async with answer_lost(stage, queue.put(b"a"), carried_out=True) as putting:
            await delete_traces(stage.other, "/q")
        await putting
        assert await taken_from(queue) == [b"first", b"a", b"a"]

        counter = Counter(stage.zk, "/c")
        assert await counter.add(1) == 1
        async with answer_lost(stage, counter.add(1), carried_out=True) as adding:
            await delete_traces(stage.other, "/c")
        with pytest.raises(zkwire.ConnectionLostError) as lost:
            await adding
        assert lost.value.maybe_applied
        assert await counter.get() == 2


async def delete_traces(zk: Client, path: str) -> None:
    for name in await zk.get_children(path):
        if name.startswith(("put-", "writing-")):
            await zk.delete(f"{path}/{name}")


@pytest.fixture
def kept_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces stay until their session ends."""
    monkeypatch.setattr("recipes.common.receipts._KEPT_FOR", 600.0)


# -- the default ACLs -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kept_traces")
@pytest.mark.parametrize("has_identity", [True, False])
async def test_no_other_client_can_change_what_only_its_maker_has_to_write(
    zookeeper: RealServer, path: str, has_identity: bool
) -> None:
    auth = [("digest", b"us:secret")] if has_identity else []
    async with (
        zkwire.connect(zookeeper.hosts, auth=auth) as us,
        zkwire.connect(zookeeper.hosts, auth=[("digest", b"stranger:secret")]) as other,
    ):
        await Queue(us, f"{path}/queue").put_many([b"a", b"b"])
        entries = [f"{path}/queue/entries/{name}" for name in await us.get_children(f"{path}/queue/entries")]
        await Barrier(us, f"{path}/barrier").create()
        one, two = (DoubleBarrier(us, f"{path}/double", 2) for _ in range(2))
        await asyncio.gather(one.enter(), two.enter())
        double = [f"{path}/double/{name}" for name in await us.get_children(f"{path}/double")]
        async with (
            await Group(us, f"{path}/group").join("one") as member,
            PersistentEphemeral(us, f"{path}/persistent") as node,
            Queue(us, f"{path}/queue").claim(),
        ):
            taken = [f"{path}/queue/taken/{name}" for name in await us.get_children(f"{path}/queue/taken")]
            fixed = [*entries, *double, *taken]
            own = [f"{path}/barrier", member.path, node.path]
            await Counter(us, f"{path}/counter").add(1)
            own += [f"{path}/counter/{name}" for name in await us.get_children(f"{path}/counter")]
            assert len(fixed) == 2 + 3 + 2
            for at in fixed + (own if has_identity else []):
                await other.get(at)
                with pytest.raises(NoAuthError):
                    await other.set(at, b"forged")
            for at in fixed + own:
                with pytest.raises((NoAuthError, zkwire.NoChildrenForEphemeralsError)):
                    await other.create(f"{at}/child")
                with pytest.raises(NoAuthError):
                    await other.set_acl(at, zkwire.OPEN_ACL)
            await member.set(b"2")
            await node.set(b"2")
        await asyncio.gather(one.leave(), two.leave())
        await Barrier(other, f"{path}/barrier").remove()
        assert await Queue(other, f"{path}/queue").get() == b"b"


async def test_a_recipe_works_with_an_identity_that_is_not_taken_for_an_acl(zookeeper: RealServer, path: str) -> None:
    """The scheme "ip" authenticates no one, so the server refuses "auth" in an ACL."""
    async with zkwire.connect(zookeeper.hosts, auth=[("ip", b"")]) as us:
        with pytest.raises(zkwire.InvalidACLError):
            await us.create(path, acl=CREATOR_ALL_ACL)
        async with await Group(us, path).join("one", b"1"):
            assert await Group(us, path).members() == {"one": b"1"}
