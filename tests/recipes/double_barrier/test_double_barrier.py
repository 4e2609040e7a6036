"""The double barrier: members enter together and leave together, and no member waits for one that is gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import zkwire
from recipes import DoubleBarrier
from tests.recipes.plays.others import meet, take_part
from tests.support.client import Server
from tests.support.everywhere import Scene, below, nothing_stays, scene
from tests.support.recipes import body_raises, outcome, until, until_armed, until_watches
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import Client


async def members(zk: Client, path: str) -> list[str]:
    """Return the names of the members' nodes."""
    return [node.rpartition("/")[2] for node in await below(zk, path) if not node.endswith("/ready")]


async def until_members(zk: Client, path: str, count: int) -> None:
    async def reached() -> bool:
        return len(await members(zk, path)) == count

    await until(reached, what=lambda: f"not {count} members of {path}")


async def test_no_member_enters_before_all_have_come_nor_leaves_before_all_want_to() -> None:
    async with scene() as stage:
        barriers = [DoubleBarrier(stage.zk, stage.path, 3) for _ in range(3)]
        entering = []
        for number, barrier in enumerate(barriers[:2]):
            entering.append(asyncio.create_task(barrier.enter()))
            await until_members(stage.other, stage.path, number + 1)
        await stage.zk.ping()
        assert not any(task.done() for task in entering)
        await barriers[2].enter()
        await asyncio.gather(*entering)
        leaving = [asyncio.create_task(barrier.leave()) for barrier in barriers[1:]]
        await until_members(stage.other, stage.path, 1)  # all members leave at once, except the first
        await stage.zk.ping()
        assert not any(task.done() for task in leaving)
        await barriers[0].leave()
        await asyncio.gather(*leaving)
        await nothing_stays(stage)


FORMER = "9f2c1d3e-0a1b-4c5d-8e6f-1234567890ab-of-2-0000000000"  # named like a member


@pytest.mark.parametrize("name", ["config", "lock-0000000000", FORMER])
async def test_a_child_that_is_no_ephemeral_node_of_a_member_does_not_count(name: str) -> None:
    """Pitfall 81."""
    async with scene() as stage:
        await stage.other.create(f"{stage.path}/{name}", make_parents=True)
        with pytest.raises(TimeoutError, match="2 members did not come"):
            await DoubleBarrier(stage.zk, stage.path, 2).enter(within=0.05)
        await meet(stage)
        await nothing_stays(stage, stays=[name])


@pytest.mark.parametrize("inside", [False, True])
async def test_a_member_with_another_count_gets_an_error_that_names_both(inside: bool) -> None:
    """Pitfall 81."""
    async with scene() as stage:
        members = [DoubleBarrier(stage.other, stage.path, 2) for _ in range(2)]
        entering = [asyncio.create_task(member.enter()) for member in members[: 1 + inside]]
        await until_members(stage.zk, stage.path, 1 + inside)
        if inside:
            await asyncio.gather(*entering)
        for count in (1, 3):
            with pytest.raises(ValueError, match=f"has count=2, this one count={count}:"):
                await DoubleBarrier(stage.zk, stage.path, count).enter(within=5)
        if not inside:
            entering.append(asyncio.create_task(members[1].enter()))
            await asyncio.gather(*entering)
        await asyncio.gather(*(member.leave() for member in members))
        async with DoubleBarrier(stage.zk, stage.path, 1):  # the count may change when no member is left
            pass
        await nothing_stays(stage)


@pytest.mark.parametrize("forged", [[], [FORMER], [FORMER] * 2, [FORMER, "other"]])
async def test_a_forged_ready_that_names_a_waiting_member_does_not_let_it_in(
    caplog: pytest.LogCaptureFixture, forged: list[str]
) -> None:
    async with scene() as stage:
        zk, stranger, path = stage.zk, stage.other, stage.path
        first, second, third = (DoubleBarrier(zk, path, 3) for _ in range(3))
        entering = [asyncio.create_task(first.enter())]
        await until_members(stranger, path, 1)
        names = [*forged, *await members(stranger, path)]
        await stranger.create(f"{path}/ready", "\n".join(names).encode())

        async def is_gone() -> bool:
            return await stranger.exists(f"{path}/ready") is None

        await until(is_gone)
        assert not entering[0].done()
        assert [record.getMessage() for record in caplog.records] == [
            f"the double barrier {path}: {path}/ready names no members of a round, so it is deleted"
        ]
        entering.append(asyncio.create_task(second.enter()))
        await third.enter()
        await asyncio.gather(*entering)
        await asyncio.gather(first.leave(), second.leave(), third.leave())
        assert await zk.get_children(path) == []


async def test_an_unreadable_ready_is_deleted(each_server: Server, path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as stranger:
        await stranger.create(path)
        await stranger.create(f"{path}/ready", acl=[zkwire.digest_acl("stranger", "secret")])
        barriers = [DoubleBarrier(zk, path, 2) for _ in range(2)]
        await asyncio.gather(*(barrier.enter(within=20) for barrier in barriers))
        await asyncio.gather(*(barrier.leave(within=20) for barrier in barriers))
        assert await zk.get_children(path) == []
        assert f"{path}/ready names no members of a round, so it is deleted" in caplog.text


async def unreadable_member(zk: Client, path: str) -> str:
    node = await zk.create(
        f"{path}/{FORMER[:-10]}", ephemeral=True, sequential=True, acl=[zkwire.digest_acl("stranger", "secret")]
    )
    return node.rpartition("/")[2]


async def persistent_member(zk: Client, path: str) -> str:
    return (await zk.create(f"{path}/{FORMER}")).rpartition("/")[2]


@pytest.mark.parametrize(("plant", "why"), [(unreadable_member, "may not be read"), (persistent_member, "not ephem")])
async def test_nodes_that_only_look_like_members_are_not_waited_for(
    each_server: Server,
    path: str,
    caplog: pytest.LogCaptureFixture,
    plant: Callable[[Client, str], Awaitable[str]],
    why: str,
) -> None:
    """Not even if a forged `ready` names them."""
    async with (
        zkwire.connect(each_server.hosts) as zk,
        zkwire.connect(each_server.hosts, auth=[("digest", b"stranger:secret")]) as stranger,
    ):
        await stranger.create(path)
        planted = await plant(stranger, path)
        barriers = [DoubleBarrier(zk, path, 2) for _ in range(2)]
        await asyncio.gather(*(barrier.enter(within=20) for barrier in barriers))
        await asyncio.gather(*(barrier.leave(within=20) for barrier in barriers))
        waiting = asyncio.create_task(barriers[0].enter())
        await until_members(stranger, path, 2)
        own = next(name for name in await members(stranger, path) if name != planted)
        await stranger.create(f"{path}/ready", f"{own}\n{planted}".encode())
        await waiting
        await barriers[0].leave(within=20)
        assert await stranger.get_children(path) == [planted]
        assert len([record for record in caplog.records if why in record.getMessage()]) <= len(barriers)
        assert f"{path}/{planted} {why}"[: len(path) + 40] in caplog.text
        # Surplus members, too, do not wait for the end of a round of such nodes.
        await stranger.create(f"{path}/ready", f"{planted}\n{own}".encode())
        await asyncio.gather(*(barrier.enter(within=20) for barrier in barriers))
        await asyncio.gather(*(barrier.leave(within=20) for barrier in barriers))


@pytest.mark.parametrize(("operation", "node"), [("getChildren", ""), ("getData", "/ready")])
async def test_the_end_of_a_dead_round_does_not_end_the_next_round(operation: str, node: str) -> None:
    """A member sees that all members of a round are gone.  Before it deletes `ready`, the next round begins: before it
    reads `ready` once more, or after that."""
    async with scene() as stage:
        one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        ready = f"{stage.path}/ready"
        await stage.other.create(stage.path)
        await stage.other.create(ready, b"dead")
        path, session = f"{stage.path}{node}", stage.zk.session_id
        with stage.server.hold_replies(operation, path=path, session=session, nth=2, times=1) as held:
            entering = asyncio.create_task(one.enter())
            await held.until_hit()
            name = f"{stage.path}/{FORMER.removesuffix('0000000000')}"
            members = [await stage.other.create(name, ephemeral=True, sequential=True) for _ in range(2)]
            async with stage.other.transaction() as beginning:
                beginning.delete(ready)
                beginning.create(ready, "\n".join(member.rpartition("/")[2] for member in members).encode())
                beginning.set(stage.path, b"2")
        await until_armed(3, stage.zk)  # the member waits for the end of the next round
        assert await stage.other.exists(ready) is not None
        for member in members:
            await stage.other.delete(member)
        await two.enter(within=10)
        await entering
        await asyncio.gather(one.leave(), two.leave())
        await nothing_stays(stage)


@pytest.mark.parametrize("within", [0, 0.05])
async def test_a_member_that_gives_up_leaves_no_node_and_does_not_delay_the_others(within: float) -> None:
    async with scene() as stage:
        one, two = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        with pytest.raises(TimeoutError):
            await one.enter(within=within)
        await nothing_stays(stage)
        await asyncio.gather(one.enter(), two.enter())
        with pytest.raises(TimeoutError, match="did not leave"):
            await one.leave(within=within)
        await two.leave(within=10)
        await nothing_stays(stage)


async def test_misuse_is_refused() -> None:
    async with scene() as stage:
        for bad in (0, -1, True, "2", 1.5):
            with pytest.raises((ValueError, TypeError), match="count"):
                DoubleBarrier(stage.zk, "/b", bad)  # type: ignore[arg-type]
        barrier = DoubleBarrier(stage.zk, "/b", 1)
        with pytest.raises(RuntimeError, match="has not entered"):
            await barrier.leave()
        with pytest.raises(ValueError, match="within"):
            await barrier.enter(within=-1)
        assert await stage.zk.exists("/b") is None
        _, again = await asyncio.gather(barrier.enter(), barrier.enter(), return_exceptions=True)
        assert isinstance(again, RuntimeError)
        with pytest.raises(ValueError, match="within"):
            await barrier.leave(within=-1)
        with pytest.raises(RuntimeError, match="has entered already"):
            await barrier.enter()
        await stage.zk.delete("/b/ready")  # by hand: the round ends without it, too
        await barrier.leave()


# -- what one member sends, and what it does about a refusal -----------------------------------------------------------


class Asked(zkwire.Observer):
    """Records the requests of a client by name, without the removal of watches."""

    def __init__(self) -> None:
        self._requests: list[str] = []

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        if operation not in ("removeWatches", "ping"):
            self._requests.append(operation)

    def new(self) -> list[str]:
        """Return the requests since the last call."""
        new, self._requests = self._requests, []
        return new


@asynccontextmanager
async def observed_scene() -> AsyncIterator[tuple[Scene, Asked]]:
    """A scene whose client `zk` is observed; the barrier's node exists."""
    asked = Asked()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=asked) as zk:
        await stage.other.create(stage.path, container=True)
        stage.zk = zk
        yield stage, asked


async def pair(zk: Client, other: Client, path: str) -> tuple[DoubleBarrier, DoubleBarrier]:
    """Return two members that have entered, those of `zk` and of `other`; the first one came first."""
    mine, theirs = DoubleBarrier(zk, path, 2), DoubleBarrier(other, path, 2)
    entering = asyncio.create_task(mine.enter())
    await until_armed(2, zk)
    await theirs.enter(within=5)
    await entering
    return mine, theirs


async def test_a_round_of_the_first_member_and_of_the_last_request_by_request(each_server: Server, path: str) -> None:
    asked = Asked()
    async with zkwire.connect(each_server.hosts) as other, zkwire.connect(each_server.hosts, observer=asked) as zk:
        await other.create(path, b"of others")
        mine, theirs = await pair(zk, other, path)
        assert asked.new() == ["create2", "getChildren", "exists", "getData", "getData"]
        first, last = sorted(await members(other, path), key=lambda name: name[-10:])
        assert (await other.get(f"{path}/ready")).data == f"{first}\n{last}".encode()
        assert (await other.get(path)).data == b"of others"
        leaving = asyncio.create_task(mine.leave(within=5))
        await until_armed(1, zk)  # the first member waits for the last one
        assert sorted(await members(other, path), key=lambda name: name[-10:]) == [first, last]
        await theirs.leave(within=5)
        await leaving
        assert asked.new() == ["getChildren", "getData", "getChildren", "multi"]

        entering = asyncio.create_task(theirs.enter(within=5))
        await until_armed(2, other)
        await mine.enter(within=5)
        await entering
        assert asked.new() == ["create2", "getChildren", *["getData"] * 3, "multi"]
        leaving = asyncio.create_task(mine.leave(within=5))
        await until_armed(1, zk)  # the last member has gone, and waits for the first one
        await theirs.leave(within=5)
        await leaving
        assert asked.new() == ["getChildren", "delete", "getData", "getChildren"]
        assert await other.get_children(path) == []
        await until_watches(each_server, 0)


async def test_a_member_that_must_not_delete_its_node_gets_an_error_when_it_leaves() -> None:
    async with scene() as stage:
        await stage.zk.create(stage.path, acl=[zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.DELETE, "world", "anyone")])
        mine, theirs = await pair(stage.zk, stage.other, stage.path)
        with pytest.raises(zkwire.NoAuthError, match=f"leaving needs READ and DELETE on {stage.path}"):
            await theirs.leave(within=5)
        with pytest.raises(zkwire.NoAuthError, match="delete"):
            await theirs.enter(within=5)  # with two nodes it would meet itself in a later round
        stage.server.expire(stage.other.session_id)  # until then the first member waits for it
        with pytest.raises(zkwire.NoAuthError, match="needs READ and DELETE"):
            await mine.leave(within=5)


SECRET = zkwire.digest_acl("us", "secret")


@pytest.mark.parametrize("acl", [None, [SECRET]])
async def test_the_acl_of_each_node_of_a_barrier(acl: list[zkwire.ACL] | None) -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"us:secret")]) as us:
        barrier = DoubleBarrier(us, f"{stage.path}/b", 1, acl=acl)
        await barrier.enter()
        (member,) = await members(us, barrier.path)
        for path in (stage.path, barrier.path):
            assert (await us.get_acl(path))[0] == list(acl or zkwire.OPEN_ACL)
        for name in (member, "ready"):
            assert (await us.get_acl(f"{barrier.path}/{name}"))[0] == list(acl or zkwire.READ_ONLY_ACL)
        await barrier.leave()


async def test_a_barrier_that_others_have_made_with_a_wider_acl_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"us:secret")]) as us:
        await stage.other.create(stage.path)
        async with DoubleBarrier(us, stage.path, 1):
            assert not caplog.text
        async with DoubleBarrier(us, stage.path, 1, acl=[SECRET]):
            pass
        assert f"{stage.path} exists with an ACL that allows more than acl= asks for" in caplog.text


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_member_whose_node_is_deleted_enters_again(is_watched: bool) -> None:
    async with scene() as stage:
        mine, theirs = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        await stage.other.create(stage.path)
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id, times=1) as listing:
            entering = asyncio.create_task(mine.enter())
            await listing.until_hit()
            if is_watched:
                listing.release()
                await until_armed(2, stage.zk)
            (name,) = await members(stage.other, stage.path)
            await stage.other.delete_tree(f"{stage.path}/{name}" if is_watched else stage.path)
        await until_members(stage.other, stage.path, 1)
        await theirs.enter(within=5)
        await entering
        await asyncio.gather(mine.leave(), theirs.leave())
        await nothing_stays(stage)


async def test_a_member_whose_barrier_is_deleted_before_it_lists_the_others_enters_again() -> None:
    async with scene() as stage:
        await stage.other.create(stage.path)
        with stage.server.answering("getChildren", zkwire.NoNodeError, session=stage.zk.session_id, times=1):
            async with DoubleBarrier(stage.zk, stage.path, 1):
                assert len(await members(stage.zk, stage.path)) == 1
        await nothing_stays(stage)


async def test_a_member_looks_again_when_another_one_begins_the_round_first() -> None:
    async with observed_scene() as (stage, asked):
        mine, theirs = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        with stage.server.hold_replies("getData", session=stage.zk.session_id, times=1) as counting:
            other = asyncio.create_task(theirs.enter(within=5))
            await until_armed(2, stage.other)
            entering = asyncio.create_task(mine.enter(within=5))
            await counting.until_hit()
            names = sorted(await members(stage.other, stage.path), key=lambda name: name[-10:])
            beginning = stage.other.transaction()
            beginning.create(f"{stage.path}/ready", "\n".join(names).encode())
            beginning.set(stage.path, b"2")
            await beginning.commit()
        await asyncio.gather(entering, other)
        # The sync: the server may lag behind the leader, which has refused the transaction.
        assert asked.new() == ["create2", "getChildren", *["getData"] * 3, "multi", "sync", "getData"]
        await asyncio.gather(mine.leave(), theirs.leave())
        await nothing_stays(stage)


async def test_a_member_whose_session_ends_after_the_round_has_begun_with_it_has_entered() -> None:
    """Its node has gone with its session, so the others do not wait for it; but it waits for them when it leaves."""
    async with scene() as stage:
        mine, theirs = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        entering = asyncio.create_task(mine.enter(within=5))
        await until_armed(2, stage.zk)
        with stage.server.hold_replies(session=stage.zk.session_id):
            await theirs.enter(within=5)
            stage.server.expire(stage.zk.session_id)
        await entering
        assert len(await members(stage.other, stage.path)) == 1  # that of the other one
        leaving = asyncio.create_task(mine.leave(within=5))
        await until_armed(1, stage.zk)
        assert not leaving.done()
        await theirs.leave(within=5)
        await leaving
        await nothing_stays(stage)


async def test_a_member_whose_session_ends_enters_no_forged_round() -> None:
    async with scene() as stage:
        mine, theirs = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        entering = asyncio.create_task(mine.enter(within=5))
        await until_armed(2, stage.zk)
        (name,) = await members(stage.other, stage.path)
        with stage.server.hold_replies(session=stage.zk.session_id):
            await stage.other.create(f"{stage.path}/ready", name.encode())  # one member, and its count is 2
            stage.server.expire(stage.zk.session_id)

        async def has_come_again() -> bool:
            return await members(stage.other, stage.path) not in ([], [name])

        await until(has_come_again)
        await theirs.enter(within=5)
        await entering
        await asyncio.gather(mine.leave(within=5), theirs.leave(within=5))
        await nothing_stays(stage)


async def test_a_member_whose_session_ends_enters_no_round_that_has_begun_without_it() -> None:
    async with scene() as stage:
        mine, *theirs = (DoubleBarrier(zk, stage.path, 2) for zk in (stage.zk, stage.other, stage.other))
        entering = asyncio.create_task(mine.enter())
        await until_armed(2, stage.zk)
        with stage.server.refuse_connections():
            stage.server.expire(stage.zk.session_id)
            await asyncio.gather(*(barrier.enter(within=5) for barrier in theirs))
        await until_members(stage.other, stage.path, 3)
        await stage.zk.ping()
        assert not entering.done()
        await asyncio.gather(*(barrier.leave(within=5) for barrier in theirs))
        await theirs[0].enter(within=5)
        await entering
        await asyncio.gather(mine.leave(within=5), theirs[0].leave(within=5))
        await nothing_stays(stage)


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_former_node_of_a_member_that_has_given_up_its_session_is_in_no_round(is_known: bool) -> None:
    """Whether the client has heard of it or not; the first delete is refused."""
    async with scene() as stage:
        mine, theirs = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        entering = asyncio.create_task(mine.enter())
        await until_armed(2, stage.zk)
        (name,) = await members(stage.other, stage.path)
        synced = stage.server.delay_replies(0, "sync")
        stage.server.answering("delete", zkwire.ThrottledError, times=1)
        with stage.server.refuse_connections():
            stage.server.expire(stage.zk.session_id)
            former = f"{stage.path}/{name if is_known else name[:-10]}"
            await stage.other.create(former, ephemeral=True, sequential=not is_known)  # as if it stayed

        async def has_come_again() -> bool:
            found = await members(stage.other, stage.path)
            return len(found) == 1 and not found[0].startswith(name[:-10])

        await until(has_come_again)
        assert synced.hits > 1
        assert not entering.done()
        await theirs.enter(within=5)
        await entering
        await asyncio.gather(mine.leave(within=5), theirs.leave(within=5))
        await nothing_stays(stage)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_member_whose_list_is_refused_keeps_its_node_if_a_round_begins_with_it_meanwhile(is_late: bool) -> None:
    """Also if the round begins after the member has looked for `ready`."""
    async with scene() as stage:
        mine, theirs = DoubleBarrier(stage.zk, stage.path, 2), DoubleBarrier(stage.other, stage.path, 2)
        await stage.other.create(stage.path)
        server, session = stage.server, stage.zk.session_id
        listed = server.answering("getChildren", zkwire.ThrottledError, session=session, times=1)
        with listed, server.answering("sync", zkwire.ThrottledError, session=session, times=1) as refused:
            entering = asyncio.create_task(mine.enter(within=5))
            await refused.until_hit()
            with stage.server.hold_replies("getData", path=f"{stage.path}/ready", session=session, times=1) as looked:
                if is_late:
                    await looked.until_hit()
                await theirs.enter(within=5)
            await entering
        assert len(await members(stage.other, stage.path)) == 2
        await asyncio.gather(mine.leave(within=5), theirs.leave(within=5))


async def test_a_surplus_member_sleeps_until_the_first_member_of_the_round_has_gone() -> None:
    """Also if it has begun the round itself: the others have come, and have not heard of each other yet."""
    async with observed_scene() as (stage, asked):
        member = f"{stage.path}/{FORMER[:-10].replace('of-2', 'of-3')}"
        nodes = [await stage.other.create(member, ephemeral=True, sequential=True) for _ in range(3)]
        surplus = asyncio.create_task(DoubleBarrier(stage.zk, stage.path, 3).enter())
        await until_armed(3, stage.zk)
        asked.new()
        for node in (nodes[2], nodes[1]):
            await stage.other.delete(node)
            await stage.zk.ping()
        assert asked.new() == []
        await stage.other.delete(nodes[0])

        async def has_ended() -> bool:  # that round, whose members are all gone
            return await stage.other.exists(f"{stage.path}/ready") is None

        await until(has_ended)
        surplus.cancel()
        await outcome(surplus)
        await nothing_stays(stage)


@in_virtual_time
async def test_surplus_members_read_the_first_ones_at_the_end_of_a_round_and_not_each_other() -> None:
    async with a_client() as (server, zk):

        async def take_part_once() -> None:
            async with DoubleBarrier(zk, "/d", 2):
                pass

        await asyncio.gather(*(take_part_once() for _ in range(20)))
        assert server.names().count("getData") < 2 * 20**2


async def test_a_body_that_has_ended_waits_for_the_other_member_and_one_that_has_failed_does_not() -> None:
    async with scene() as stage:
        release = asyncio.Event()

        async def take_part_until(zk: Client, event: asyncio.Event | None) -> None:
            async with DoubleBarrier(zk, stage.path, 2):
                if event is None:
                    raise LookupError("failed")
                await event.wait()

        slow = asyncio.create_task(take_part_until(stage.other, release))
        with pytest.raises(LookupError):
            await take_part_until(stage.zk, None)
        assert len(await members(stage.other, stage.path)) == 1
        assert await stage.other.exists(f"{stage.path}/ready") is not None  # the other one is still inside
        release.set()
        await slow
        await nothing_stays(stage)

        release.clear()
        slow = asyncio.create_task(take_part_until(stage.other, release))
        quick = asyncio.create_task(take_part(DoubleBarrier(stage.zk, stage.path, 2)))
        await until_armed(1, stage.zk)  # it waits for the other one to leave
        assert not quick.done()
        release.set()
        await asyncio.gather(slow, quick)
        await nothing_stays(stage)


async def test_a_failed_member_looks_whether_the_round_has_ended_and_ends_it_only_as_the_last_one() -> None:
    async with observed_scene() as (stage, asked):
        for ready_is_gone, looks in ((False, ["sync", "getData", "getData", "multi"]), (True, [])):
            with body_raises(LookupError):
                async with DoubleBarrier(stage.zk, stage.path, 1):
                    if ready_is_gone:
                        await stage.other.delete(f"{stage.path}/ready")
                    asked.new()
                    raise LookupError("failed")
            assert asked.new() == ["delete", "getChildren", *looks]
            assert await stage.other.get_children(stage.path) == []


# -- the end of a round ------------------------------------------------------------------------------------------------


async def in_alone(stage: Scene, *, is_there: bool, ready_has_children: bool = False) -> DoubleBarrier:
    """Return a member that has entered alone; its node is there or was deleted by hand."""
    barrier = DoubleBarrier(stage.zk, stage.path, 1)
    await barrier.enter(within=5)
    (name,) = await members(stage.other, stage.path)
    if ready_has_children:
        await stage.other.delete(f"{stage.path}/ready")
        await stage.other.create(f"{stage.path}/ready", name.encode())
        for child in ("a", "b"):
            await stage.other.create(f"{stage.path}/ready/{child}/below", make_parents=True)
    if not is_there:
        await stage.other.delete(f"{stage.path}/{name}")
    return barrier


@pytest.mark.parametrize("is_there", [True, False])
async def test_nodes_below_ready_are_deleted_and_logged_once(is_there: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        barrier = await in_alone(stage, is_there=is_there, ready_has_children=True)
        await barrier.leave(within=5)
        assert await below(stage.other, stage.path) == ([] if is_there else [f"{stage.path}/ready"])
        assert caplog.text.count(f"{stage.path}/ready has nodes below it, which are deleted") == 1
        await take_part(barrier)  # if `ready` has stayed, the next member deletes it
        await nothing_stays(stage)


async def test_a_ready_that_is_no_round_keeps_the_nodes_below_it() -> None:
    async with scene() as stage:
        child = await stage.other.create(f"{stage.path}/ready/of-others", make_parents=True)
        with pytest.raises(zkwire.NotEmptyError, match="it is not the work of a DoubleBarrier"):
            await DoubleBarrier(stage.zk, stage.path, 1).enter(within=5)
        assert await below(stage.other, stage.path) == [f"{stage.path}/ready", child]


async def test_a_first_member_whose_node_is_deleted_while_it_ends_the_round_ends_it_all_the_same() -> None:
    async with observed_scene() as (stage, asked):
        barrier = DoubleBarrier(stage.zk, stage.path, 1)
        await barrier.enter(within=5)
        asked.new()
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id, times=1) as listing:
            leaving = asyncio.create_task(barrier.leave(within=5))
            await listing.until_hit()
            (name,) = await members(stage.other, stage.path)
            await stage.other.delete(f"{stage.path}/{name}")
        await leaving
        assert await stage.other.get_children(stage.path) == []
        # The first sync: our server may lag behind the leader.  The second one belongs to the end of the round.
        expected = ["getChildren", "multi", "sync", "getChildren", "sync", "getData", "getData", "multi"]
        assert asked.new() == expected


async def test_a_barrier_that_is_deleted_and_made_again_between_two_reads_can_be_left() -> None:
    async with scene() as stage:
        barrier = DoubleBarrier(stage.zk, stage.path, 1)
        await barrier.enter(within=5)
        (name,) = await members(stage.other, stage.path)
        await stage.other.delete(f"{stage.path}/{name}")
        with stage.server.answering("getData", zkwire.NoNodeError, path=stage.path, times=1) as missing:
            await barrier.leave(within=5)
        assert missing.hits == 1
        assert await below(stage.other, stage.path) == [f"{stage.path}/ready"]


async def test_a_barrier_that_a_person_has_deleted_can_be_left() -> None:
    async with scene() as stage:
        first, last = await pair(stage.other, stage.zk, stage.path)
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id, times=1) as listing:
            leaving = asyncio.create_task(last.leave(within=5))
            await listing.until_hit()
            await stage.other.delete_tree(stage.path)
        await asyncio.gather(leaving, first.leave(within=5))
        assert await stage.other.exists(stage.path) is None


async def test_a_member_that_was_gone_when_its_node_was_read_counts_when_it_is_back() -> None:
    async with scene() as stage:
        barrier = DoubleBarrier(stage.zk, stage.path, 1)
        assert not barrier._is_member("a", zkwire.NoNodeError(zkwire.NoNodeError.code))
        assert barrier._present(("a",), ["a"]) == ["a"]
