"""The partitioner: the pure division, and members that never work on a partition which another member holds."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from fractions import Fraction
from functools import partial
from hashlib import blake2b
from math import ceil, floor
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes import Group, LockLostError, Partitioner
from recipes.group import Member
from recipes.partitioner import division, fingerprint, point_counts
from tests.recipes.plays.others import only_containers
from tests.support.client import Server, turns
from tests.support.everywhere import below, scene
from tests.support.recipes import body_raises, expire, until, until_armed, until_watches
from tests.support.virtual_time import a_client, block, in_virtual_time
from zkwire import Client
from zkwire.testing import RealServer

# -- the division -----------------------------------------------------------------------------------------------------

names = st.sets(st.integers(0, 99), max_size=12).map(lambda numbers: {str(number) for number in numbers})


@given(names, st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4)), st.randoms(use_true_random=False))
def test_every_partition_has_one_member_and_each_share_is_as_large_as_its_weight_whatever_the_order(
    partitions: set[str], members: dict[str, int], rng: Random
) -> None:
    shares = division(sorted(partitions), members)
    assert set(shares) == set(members)
    if members:
        assert sorted(name for share in shares.values() for name in share) == sorted(partitions)
        for name, share in shares.items():
            exact = len(partitions) * Fraction(members[name], sum(members.values()))
            assert floor(exact) <= len(share) <= ceil(exact)
    shuffled, mixed = sorted(partitions), sorted(members)
    rng.shuffle(shuffled)
    rng.shuffle(mixed)
    same = division(shuffled, {name: members[name] for name in mixed})
    assert {name: set(share) for name, share in shares.items()} == {name: set(share) for name, share in same.items()}


@pytest.mark.parametrize(
    ("partitions", "weight", "sizes", "digest"),
    [
        (1000, 1, {"a": 200, "b": 200, "ü": 200, "host 7": 200, "host 8": 200}, "3bd50e6ab7c23a7e"),
        (1003, 1, {"a": 201, "b": 200, "ü": 201, "host 7": 201, "host 8": 200}, "78bd7b2c5be26d78"),
        (4, 1, {"a": 1, "b": 1, "ü": 1, "host 7": 0, "host 8": 1}, "23524e8c6fd4669f"),
        (4, 4, {"a": 2, "b": 1, "ü": 1, "host 7": 0, "host 8": 0}, "c9f6191d568d53e1"),
        (1003, 50, {"a": 928, "b": 19, "ü": 19, "host 7": 19, "host 8": 18}, "16676815e28f969c"),
    ],
)
def test_the_division_stays_what_it_is(partitions: int, weight: int, sizes: dict[str, int], digest: str) -> None:
    """Each member computes it for itself, so members with different versions of this package have to agree."""
    shares = division([f"partition-{number}" for number in range(partitions)], dict.fromkeys(sizes, 1) | {"a": weight})
    assert {name: len(share) for name, share in shares.items()} == sizes
    text = "\n".join(f"{name}: {' '.join(shares[name])}" for name in sorted(shares))
    assert blake2b(text.encode(), digest_size=8).hexdigest() == digest


def test_great_weights_of_many_members_do_not_make_the_ring_large() -> None:
    assert point_counts({"a": 1, "b": 3, "c": 999}) == {"a": 64, "b": 192, "c": 1024}
    assert point_counts(dict.fromkeys("abcdefgh", 16)) == dict.fromkeys("abcdefgh", 1024)
    assert point_counts({str(n): 16 if n else 1 for n in range(501)}) == {str(n): 64 if n else 4 for n in range(501)}


@pytest.mark.parametrize(
    ("count", "others", "weight", "most"), [(100, 4, 1, 20), (10_000, 99, 1, 250), (1000, 9, 16, 10)]
)
def test_few_partitions_move_when_a_member_goes(count: int, others: int, weight: int, most: int) -> None:
    partitions = [str(number) for number in range(count)]
    stay = {f"host-{number}": number % 2 * (weight - 1) + 1 for number in range(1, others + 1)}
    before, after = division(partitions, {"host-0": 1} | stay), division(partitions, stay)
    moved = [name for member in stay for name in set(before[member]) - set(after[member])]
    assert len(before["host-0"]) == count // (1 + sum(stay.values()))  # these have to move
    assert len(moved) <= most


def test_many_partitions_are_divided_among_many_members_in_steps_that_grow_with_their_number_only() -> None:
    """The event loop stands still meanwhile.  Calls are counted, as time is not the same everywhere."""
    partitions = [str(number) for number in range(10_000)]
    members = {f"host-{number}": 1 for number in range(100)}
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        shares = division(partitions, members)
    finally:
        sys.setprofile(None)
    assert {len(share) for share in shares.values()} == {100}
    assert calls <= 20 * (len(partitions) + 64 * len(members))  # comparing each pair takes a million calls and more


# -- members ----------------------------------------------------------------------------------------------------------


class Worker:
    """A member that uses what it is given, and checks that no other member uses the same."""

    holders: dict[object, "Worker"]

    def __init__(
        self,
        zk: Client,
        path: str,
        holders: dict[object, "Worker"],
        *,
        partitions: Sequence[Any] = range(4),
        settle: float = 0.02,
        alone: bool = True,
        **given: Any,
    ) -> None:
        # False where the server ends a session early: its client cannot know that it has lost its locks.
        self.alone = alone
        self.partitioner = Partitioner(zk, path, partitions, settle=settle, **given)
        self.holders = holders
        self.held: frozenset[Any] = frozenset()
        self.task = asyncio.create_task(self.work())

    async def work(self) -> None:
        async with self.partitioner as mine:
            try:
                async for partitions in mine:
                    for partition in self.held - partitions:
                        self.give_up(partition)
                    for partition in partitions - self.held:
                        assert partition not in self.holders or not self.alone
                        self.holders[partition] = self
                        mine.lease(partition).check()
                    self.held = partitions
            finally:
                for partition in self.held:
                    self.give_up(partition)

    def give_up(self, partition: int) -> None:
        if self.holders.get(partition) is self:
            del self.holders[partition]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def until_all_held(holders: dict[object, Worker], *workers: Worker) -> None:
    """Wait until these workers hold all partitions, in equal shares."""
    share = 4 // len(workers)

    def reached() -> bool:
        for worker in workers:
            if worker.task.done():
                worker.task.result()
        sizes = {len(worker.held) for worker in workers}
        return sizes <= {share, share + bool(4 % len(workers))} and len(holders) == 4

    await until(reached)


async def test_partitions_are_divided_as_members_come_and_go(each_server: Server, path: str) -> None:
    """Pitfall 25."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as zk2:
        holders: dict[object, Worker] = {}
        one = Worker(zk, path, holders)
        await until_all_held(holders, one)
        two = Worker(zk2, path, holders)
        await until_all_held(holders, one, two)
        three = Worker(zk2, path, holders)
        await until_all_held(holders, one, two, three)
        await one.stop()
        await until_all_held(holders, two, three)
        await asyncio.gather(two.stop(), three.stop())
        assert await zk.get_children(f"{path}/members") == []
        for number in range(4):
            assert await zk.get_children(f"{path}/locks/{number}") == []
        await until_watches(each_server, 0)


async def test_shares_are_as_large_as_the_weights_and_a_taken_name_is_left(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        holders: dict[object, Worker] = {}
        heavy, light = Worker(zk2, path, holders, weight=3), Worker(zk, path, holders, name="light")
        await until(lambda: (len(heavy.held), len(light.held)) == (3, 1))
        with pytest.raises(TimeoutError, match="members/light was not free"):
            await Partitioner(zk2, path, range(4), name="light", within=0.05).__aenter__()
        again = Worker(zk2, path, holders, name="light", within=30)
        await light.stop()
        await until(lambda: (len(heavy.held), len(again.held)) == (3, 1))
        await asyncio.gather(heavy.stop(), again.stop())


async def test_the_locks_exclude_whatever_divide_returns() -> None:
    """Of members that take the same partitions, the second waits; each is told the same in the same order."""
    asked = []

    def divide(name: str, weights: dict[str, int], partitions: list[int]) -> list[int]:
        asked.append((name, list(weights.items()), partitions))
        return partitions

    async with scene() as stage:
        holders: dict[object, Worker] = {}
        one = Worker(stage.zk, stage.path, holders, name="b", divide=divide, partitions=[10, 1, 9])
        await until(lambda: one.held == {10, 1, 9})
        two = Worker(stage.other, stage.path, holders, name="a", weight=2, divide=divide, partitions=[9, 10, 1])
        await until(lambda: ("a", [("a", 2), ("b", 1)], [1, 10, 9]) in asked)
        await until(lambda: ("b", [("a", 2), ("b", 1)], [1, 10, 9]) in asked)
        await one.stop()
        await until(lambda: two.held == {10, 1, 9})
        await two.stop()


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ("ab", TypeError, "a collection of partitions of /recipe, not 'ab'"),
        (iter("a"), TypeError, "a collection of partitions of /recipe, not <str"),
        (["a", "c"], ValueError, "'c', which is no partition of /recipe"),
        ([["a"]], TypeError, "unhashable"),
        (KeyError("mine"), KeyError, "mine"),
        (asyncio.CancelledError(), RuntimeError, "divide has raised CancelledError"),
    ],
    ids=["a text", "an iterator", "unknown", "unhashable", "an error", "a cancellation"],
)
async def test_a_wrong_divide_ends_its_own_block_and_the_locks_are_held_until_the_body_has_ended(
    returned: Any, error: type[Exception], message: str
) -> None:
    def divide(name: str, weights: dict[str, int], partitions: list[str]) -> Any:
        if len(weights) > 1 and isinstance(returned, BaseException):
            raise returned
        return {"a", "b"} if len(weights) == 1 else returned

    async with scene() as stage:
        with body_raises(error, match=message):
            async with Partitioner(stage.zk, stage.path, "ab", settle=0.0, divide=divide) as mine:
                while len(await anext(mine)) < 2:
                    pass
                other = Worker(stage.other, stage.path, {}, partitions="ab")
                try:
                    await asyncio.Event().wait()
                finally:
                    for _ in range(3):
                        await stage.zk.ping()
                    for partition in "ab":
                        mine.lease(partition).check()
        await until(lambda: other.held == {"a", "b"})
        await other.stop()


@pytest.mark.limit(20)
async def test_partitions_are_handed_back_when_the_body_asks_for_the_next_set() -> None:
    async with scene() as stage, Partitioner(stage.zk, stage.path, range(4), settle=0.0) as mine:
        given = frozenset[int]()
        while len(given) < 4:
            given = await anext(mine)
        holders: dict[object, Worker] = {}
        other = Worker(stage.other, stage.path, holders, settle=0.0)
        less = await anext(mine)
        while len(less) > 2:
            less = await anext(mine)
        for _ in range(3):
            await stage.other.ping()
        assert not other.held & less
        for partition in given - less:  # the body may still be using it
            if partition not in other.held:
                mine.lease(partition).check()
        waiting = asyncio.create_task(mine.__anext__())
        await until(lambda: other.held == given - less)
        assert not waiting.done()
        with pytest.raises(RuntimeError, match="another task waits"):
            await anext(mine)
        await other.stop()
        assert len(await waiting) > 2


@in_virtual_time
async def test_a_partition_is_handed_over_before_a_body_asks_and_given_only_while_its_lock_is_certain() -> None:
    async with a_client() as (_, zk), Partitioner(zk, "/p", "ab", settle=0.0) as mine:
        await asyncio.sleep(1.0)  # of virtual time: it holds both by now
        async with Partitioner(zk, "/p", "ab", settle=0.0) as other:
            assert len(await anext(other)) == 1
            block(60.0)
            for partition in await anext(mine):
                mine.lease(partition).check()


@pytest.mark.limit(20)
async def test_a_partition_whose_lock_is_lost_is_left_out_once_and_comes_back() -> None:
    async with scene() as stage, Partitioner(stage.zk, stage.path, ["only"], settle=0.0) as mine:
        assert await anext(mine) == {"only"}
        lease = mine.lease("only")
        losing = asyncio.create_task(lease.lost())
        await until_armed(4, stage.zk)
        await stage.other.delete(lease.path)
        assert isinstance(await losing, LockLostError)

        def is_held_again() -> bool:
            with contextlib.suppress(LookupError):
                return mine.lease("only").token > lease.token
            return False

        await until(is_held_again)  # and yet the body must see a set without the partition first
        assert await anext(mine) == frozenset()
        assert await anext(mine) == {"only"}
        assert mine.lease("only").token > lease.token
        with pytest.raises(LookupError, match="other"):
            mine.lease("other")


async def test_the_iteration_goes_on_in_the_next_session(zookeeper: RealServer, path: str) -> None:
    """Pitfalls 13, 14 and 17."""
    async with (
        zkwire.connect(zookeeper.hosts, session_timeout=1.0) as zk,
        Partitioner(zk, path, ["a", "b"], settle=0.01) as mine,
    ):
        while len(await anext(mine)) < 2:
            pass
        old = mine.lease("a")
        await expire(zookeeper, zk)
        while await anext(mine):
            pass
        assert not old.is_certain()
        while len(await anext(mine)) < 2:
            pass
        assert mine.lease("a").token > old.token


async def test_the_block_is_cancelled_when_another_session_has_taken_the_name() -> None:
    async with scene() as stage:
        with body_raises(zkwire.NodeExistsError, match="/members/me"):
            async with Partitioner(stage.zk, stage.path, ["a"], name="me", settle=0.0) as mine:
                assert await anext(mine) == {"a"}
                refusal = stage.server.refuse_connections()
                stage.server.expire(stage.zk.session_id)
                await Group(stage.other, f"{stage.path}/members").join("me")
                refusal.end()
                await asyncio.Event().wait()
        assert await Group(stage.other, f"{stage.path}/members").members() == {"me": b""}


@asynccontextmanager
async def settling() -> AsyncIterator[tuple[asyncio.Task[frozenset[str]], Callable[[], Awaitable[Member]]]]:
    """A member that waits for its first partitions, and a function by which another one comes."""
    async with a_client() as (_, zk), Partitioner(zk, "/p", ["a", "b"], name="me", settle=2.0) as mine:
        given = asyncio.create_task(mine.__anext__())
        yield given, partial(Group(zk, "/p/members").join, "other", fingerprint(["a", "b"]))
        assert given.result() == frozenset(division(["a", "b"], {"me": 1, "other": 1})["me"])


@in_virtual_time
async def test_partitions_are_divided_when_the_members_have_settled() -> None:
    async with settling() as (given, another_comes):
        await asyncio.sleep(1.9)
        await another_comes()
        await asyncio.sleep(1.9)
        assert not given.done()
        await asyncio.sleep(0.2)


@in_virtual_time
async def test_members_that_never_settle_delay_a_division_ten_settling_times() -> None:
    async with settling() as (given, another_comes):
        for _ in range(6):  # 19.2 seconds
            other = await another_comes()
            await asyncio.sleep(1.6)
            await other.leave()
            await asyncio.sleep(1.6)
        await another_comes()
        await asyncio.sleep(0.7)
        assert not given.done()
        await asyncio.sleep(0.2)


async def test_every_partition_is_held_while_members_have_different_lists(caplog: pytest.LogCaptureFixture) -> None:
    """As during the rollout of a new version, which has more partitions."""
    async with scene() as stage:
        holders: dict[object, Worker] = {}
        old = [Worker(stage.zk, stage.path, holders, name=f"old-{number}", settle=0.0) for number in range(2)]
        await until_all_held(holders, *old)
        new = [
            Worker(stage.other, stage.path, holders, name=f"new-{number}", partitions=range(6), settle=0.0)
            for number in range(2)
        ]
        await until(lambda: len(holders) == 6)
        assert sum(len(worker.held) for worker in (*old, *new)) == 6
        messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        for ours, theirs in (("old-0", "new-1"), ("new-0", "old-1")):
            assert any(
                f"the member {ours} of {stage.path}" in text and theirs in text and "4 partitions" in text
                for text in messages
            ), messages
        caplog.clear()
        for worker in old:
            await worker.stop()
        await until(lambda: all(len(worker.held) == 3 for worker in new))
        assert not [record for record in caplog.records if record.levelname == "WARNING"]
        for worker in new:
            await worker.stop()
        await only_containers(stage)


async def test_members_with_another_list_are_named_in_one_short_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        theirs = Group(stage.other, f"{stage.path}/members")
        for number in range(25):
            await theirs.join(f"m{number:02}", b"\xff\n\t" + b"9" * 5000)
        mine = Partitioner(stage.zk, stage.path, ["a", "b"], name="me", settle=0.0)
        async with mine:
            while await anext(mine) != {"a", "b"}:
                pass
            shown = "; ".join(f"m{number:02}: \ufffd??{'9' * 97}" for number in range(20))
            (text,) = caplog.messages
            assert text == (
                f"the member me of {stage.path} divides {fingerprint(['a', 'b']).decode()}, but these members divide"
                f" another list among themselves: {shown}"
            )
            await theirs.join("late", fingerprint(["a"]))
            await until(lambda: len(caplog.messages) == 2)
            assert f"late: {fingerprint(['a']).decode()}; m00: " in caplog.messages[1]
            assert fingerprint(["a"]).startswith(b"1 partitions, ")


async def test_a_member_whose_data_gives_no_proper_weight_has_another_list() -> None:
    async with scene() as stage:
        mine = Partitioner(stage.zk, "/p", ["a"])
        ends = ["", ", weight 2", ", weight 999", ", weight 0", ", weight 1000", ", weight 2 ", ", weight \u0663", "0"]
        members = {str(number): fingerprint(["a"]) + end.encode() for number, end in enumerate(ends)}
        assert mine._weights(members | {"x": b", weight 3"}) == {"0": 1, "1": 2, "2": 999}


async def test_a_task_that_waits_for_partitions_ends_when_the_block_is_left() -> None:
    async with scene() as stage:
        async with Partitioner(stage.zk, stage.path, ["a"], settle=0.0) as mine:
            assert await anext(mine) == {"a"}
            waiting = asyncio.create_task(mine.__anext__())
            await turns()
        with pytest.raises(StopAsyncIteration):
            await waiting
        with pytest.raises(LookupError):
            mine.lease("a")


async def test_the_nodes_of_a_partitioner_have_its_acl_the_name_of_the_member_and_names_of_the_partitions() -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"us:secret")]) as us:
        acl = zkwire.CREATOR_ALL_ACL
        async with Partitioner(us, "/p", ["a/b", "\u00e4 c"], name="me", settle=0, acl=acl) as mine:
            while len(await anext(mine)) < 2:
                pass
            assert (await us.get("/p/members/me")).data == fingerprint(["a%2Fb", "%C3%A4 c"])
            assert sorted(await us.get_children("/p/locks")) == ["%C3%A4 c", "a%2Fb"]
            for partition, node in (("a/b", "a%2Fb"), ("\u00e4 c", "%C3%A4 c")):
                lease = mine.lease(partition)
                assert lease.path.startswith(f"/p/locks/{node}/_c_")
                assert (await us.get(lease.path)).data == b"me"
            for path in ("/p", *(f"/p/{name}" for name in await below(us, "/p"))):
                where = path.replace("/p//p", "/p")
                assert (await us.get_acl(where))[0] == [zkwire.digest_acl("us", "secret")]


async def test_misuse_is_refused() -> None:
    async with scene() as stage:
        for bad in ([1, "1"], [""], ["."], ["a", "a"]):
            with pytest.raises(ValueError, match="a name of its own"):
                Partitioner(stage.zk, "/p", bad)
        for settle in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="settle"):
                Partitioner(stage.zk, "/p", [1], settle=settle)
        wrong: Any
        for wrong in (True, "1", None):
            with pytest.raises(TypeError, match="settle"):
                Partitioner(stage.zk, "/p", [1], settle=wrong)
        for wrong in ({"weight": 0}, {"weight": 1000}, {"within": -1}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                Partitioner(stage.zk, "/p", [1], **wrong)
        for wrong in ({"weight": 1.0}, {"divide": "ab"}, {"divide": until}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                Partitioner(stage.zk, "/p", [1], **wrong)
        mine = Partitioner(stage.zk, "/p", ["a/b", "\u00e4 c"], name="me", settle=0.0, weight=999)
        for _ in range(2):
            async with mine:
                with pytest.raises(RuntimeError, match="been entered already"):
                    await mine.__aenter__()
                for _ in range(4):  # it divides before it is asked
                    await stage.zk.ping()
                while len(await anext(mine)) < 2:
                    pass
                with pytest.raises(zkwire.NodeExistsError):
                    await Partitioner(stage.other, "/p", [1], name="me").__aenter__()
                with pytest.raises(TimeoutError, match="/p/members/me was not free"):
                    await Partitioner(stage.other, "/p", [1], name="me", within=0.01).__aenter__()
        with pytest.raises(StopAsyncIteration):
            await anext(mine)
        with pytest.raises(RuntimeError, match="it was not entered"):
            await mine.__aexit__(None, None, None)
