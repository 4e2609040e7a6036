"""The semaphore: how many leases are held, how clients agree on the number, and what a change of it does."""

import asyncio
from functools import partial
from typing import Any

import pytest

import zkwire
from recipes import PermitsError, Semaphore
from tests.support.client import Server as AnyServer
from tests.support.everywhere import scene
from tests.support.locks import release, start_waiting, taken, two_clients, watch_count
from tests.support.proxy import Proxy
from tests.support.recipes import line, outcome, proxied, until, until_armed, until_line
from zkwire import Client
from zkwire.testing import RealServer, Server

pytestmark = pytest.mark.limit(30)


# -- permits ----------------------------------------------------------------------------------------------------------


async def test_as_many_as_the_permits_hold_and_the_next_waits(zookeeper: RealServer, path: str) -> None:
    """Pitfall 21: the holders follow from one list of tickets, and there is no separate counter to go wrong."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        mine, theirs = Semaphore(zk, path, 3), Semaphore(other, path, 3)
        leases = [await mine.acquire(), await theirs.acquire(), await mine.acquire()]
        assert await theirs.try_acquire() is None
        fourth = await start_waiting(zk, mine, 4)
        fifth = await start_waiting(other, theirs, 5)
        await leases[1].release()  # any of the three
        fourth_lease = await fourth
        await other.ping()
        assert not fifth.done()
        await leases[2].release()
        await release(leases[0], fourth_lease, await fifth)
        assert await line(zk, path) == []
        assert (await zk.get(path)).data == b"3"


# -- several at once --------------------------------------------------------------------------------------------------


async def test_several_permits_at_once_are_all_had_or_none_in_ticket_order(each_server: AnyServer, path: str) -> None:
    """`acquire(permits=n)` gets all n permits or none, in the order of the tickets."""
    async with proxied(each_server) as (proxy, zk, other):
        mine, theirs = Semaphore(zk, path, 3), Semaphore(other, path, 3)
        lease, second = await mine.acquire(), await theirs.acquire()
        assert await mine.try_acquire(permits=2) is None
        large = asyncio.create_task(theirs.acquire(permits=3))
        await until_line(zk, path, 3)
        small = await start_waiting(zk, mine, 4)
        await until_armed(11, zk, other)
        assert await theirs.try_acquire() is None  # the third is free, and is kept for the ticket that waits
        found = [(each.owns, each.permits) for each in await theirs.contenders()]
        assert found == [(True, 1), (True, 1), (False, 3), (False, 1)]
        await release(second)
        await other.ping()
        assert [large.done(), small.done()] == [False, False]
        mark = proxy.mark()
        await release(lease)
        lease = await large
        assert proxy.requests(mark) == []
        assert [each.permits for each in await theirs.contenders() if each.owns] == [3]
        assert f"latest lease {lease!r}" in repr(theirs)
        assert not small.done()
        await release(lease)
        await release(await small)
        async with mine.hold(permits=2, within=5), theirs:
            assert await theirs.try_acquire(permits=1) is None
        async with mine:
            two = await theirs.try_acquire(permits=2)
            assert two is not None
            assert await theirs.try_acquire(permits=3) is None
            assert f"latest lease {two!r}" in repr(theirs)
            await release(two)


async def test_a_large_request_that_is_given_up_lets_those_behind_it_in() -> None:
    async with two_clients() as (zk, other), Semaphore(zk, "/s", 3):
        with pytest.raises(TimeoutError, match="semaphore /s, asked for 3 permits at once, was not free within 0"):
            await Semaphore(zk, "/s", 3).acquire(permits=3, within=0)
        large = asyncio.create_task(Semaphore(zk, "/s", 3).acquire(permits=3))
        await until_line(zk, "/s", 2)
        small = await start_waiting(other, Semaphore(other, "/s", 3), 3)
        large.cancel()
        await release(await small)
        await asyncio.wait([large])


async def test_more_permits_than_there_are_are_an_error_and_not_a_wait() -> None:
    async with two_clients() as (zk, other):
        too_many = "the semaphore /s has 3 permits, and 4 at once are wanted: want fewer, or change the number"
        for use in (Semaphore(zk, "/s", 3).acquire, Semaphore(zk, "/s", 3).try_acquire):
            with pytest.raises(PermitsError, match=too_many):
                await use(permits=4)
        assert await other.exists("/s") is None
        semaphore = Semaphore(zk, "/s", 3)
        async with semaphore as lease:
            for each in (semaphore, Semaphore(other, "/s", None)):
                with pytest.raises(PermitsError, match=too_many) as caught:
                    await each.acquire(permits=4)
                assert (caught.value.asked, caught.value.stored, caught.value.at_once) == (3, b"3", 4)
            waiting = asyncio.create_task(semaphore.acquire(permits=3))
            await until_line(other, "/s", 2)
            await semaphore.resize(2)
            with pytest.raises(PermitsError, match="has 2 permits, and 3 at once are wanted"):
                await waiting
            assert await until_line(other, "/s", 1) == [lease.path[3:]]
            await semaphore.resize(5)
            await release(await semaphore.acquire(permits=4))


# -- the stored number ------------------------------------------------------------------------------------------------


async def test_a_disagreement_on_the_number_is_an_error_and_leaves_no_ticket() -> None:
    async with two_clients() as (zk, other):
        async with (first := Semaphore(zk, "/s", 3)) as lease:
            for use in (Semaphore(other, "/s", 2).acquire, Semaphore(other, "/s", 2).try_acquire):
                with pytest.raises(PermitsError, match="the semaphore /s has 3 permits, not 2") as caught:
                    await use()
                assert isinstance(caught.value, ValueError)
                assert (caught.value.path, caught.value.asked, caught.value.stored) == ("/s", 2, b"3")
                assert await line(zk, "/s") == [lease.path[3:]]
            with pytest.raises(PermitsError, match="has 3 permits, not 2"):
                await Semaphore(other, "/s", 2).resize(4)
        assert (await zk.get("/s")).data == b"3"
        await other.delete("/s")  # as the server deletes an empty container
        async with Semaphore(other, "/s", 5):
            with pytest.raises(PermitsError, match="has 5 permits, not 3"):
                await first.acquire()


@pytest.mark.parametrize(
    "data", [b"many", b"0", b"-1", b"2.0", b"2147483648", b"99999999999", b"1" * 5000, "\u0663".encode(), b" 3"]
)
async def test_a_node_with_other_data_is_refused_and_not_changed(data: bytes) -> None:
    async with two_clients() as (zk, other):
        await other.create("/s", data)
        for permits in (3, None):
            with pytest.raises(PermitsError, match="the node /s is not a semaphore") as caught:
                await Semaphore(zk, "/s", permits).acquire()
            assert len(str(caught.value)) < 200
            with pytest.raises(PermitsError, match="the node /s is not a semaphore"):
                await Semaphore(zk, "/s", permits).resize(2)
        assert await line(other, "/s") == []
        assert (await other.get("/s")).data == data


async def test_a_node_without_a_number_gets_the_number_of_the_first_client() -> None:
    async with two_clients() as (zk, other):
        for is_missing in (True, False):
            with pytest.raises(PermitsError, match="the semaphore /s has no number of permits yet: give one"):
                await Semaphore(zk, "/s", None).acquire()
            if is_missing:
                assert await other.exists("/s") is None
                await other.create("/s")
        asked = [outcome(Semaphore(client, "/s", permits).acquire()) for client, permits in ((zk, 2), (other, 3))]
        leases = [each for each in await asyncio.gather(*asked) if not isinstance(each, PermitsError)]
        assert len(leases) == 1
        stored = int((await other.get("/s")).data)
        await release(leases[0], await taken(Semaphore(other, "/s", stored)))
        await other.set("/s", b"")
        assert await Semaphore(zk, "/s", 2).try_acquire() is not None


async def test_while_the_node_has_no_number_the_own_one_says_which_tickets_hold() -> None:
    async with two_clients() as (zk, other):
        for _ in range(3):
            await other.create("/s/_c_x-lease-", ephemeral=True, sequential=True, make_parents=True)
        for permits, holders in ((2, 2), (4, 3), (None, 0)):
            found = await Semaphore(zk, "/s", permits).contenders()
            assert [each.owns for each in found] == [True] * holders + [False] * (3 - holders)
        for stored, holders in ((b"1", 1), (b"2147483647", 3)):
            await other.set("/s", stored)
            found = await Semaphore(zk, "/s", 2).contenders()
            assert [each.owns for each in found] == [True] * holders + [False] * (3 - holders)


@pytest.mark.parametrize(
    ("bad", "error"),
    [(bad, ValueError) for bad in (0, -1, 2**31)] + [(bad, TypeError) for bad in (True, "3", 2.0, b"3")],
)
async def test_a_bad_number_of_permits_is_refused(bad: Any, error: type[Exception]) -> None:
    async with two_clients() as (zk, other):
        with pytest.raises(error, match=f"permits must be .*not {bad!r}"):
            Semaphore(zk, "/s", bad)
        semaphore = Semaphore(zk, "/s", 1)
        for use in (semaphore.resize(bad), semaphore.acquire(permits=bad), semaphore.try_acquire(permits=bad)):
            with pytest.raises(error, match=f"permits must be .*not {bad!r}"):
                await use
        with pytest.raises(error, match=f"permits must be .*not {bad!r}"):
            semaphore.hold(permits=bad)
        assert await other.exists("/s") is None


# -- resizing ---------------------------------------------------------------------------------------------------------


async def test_fewer_permits_let_the_holders_finish_first(zookeeper: RealServer, path: str) -> None:
    """Pitfall 21: a ticket that watches all its blockers when the number shrinks does not own at the next release."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as other:
        semaphore, theirs = Semaphore(zk, path, 3), Semaphore(other, path, 3)
        leases = [await semaphore.acquire() for _ in range(3)]
        waiter = await start_waiting(other, theirs, 4)
        await until(lambda: watch_count(other) == 5)  # itself, the number, three blockers
        await semaphore.resize(1)
        for lease in leases[:2]:
            lease.check()
            await lease.release()
            await other.ping()
            await other.ping()
            assert not waiter.done()
            assert await semaphore.try_acquire() is None
        await leases[2].release()
        await (await waiter).release()
        async with semaphore:
            assert await theirs.try_acquire() is None


@pytest.mark.parametrize("how", ["acquire", "try_acquire"])
async def test_a_ticket_does_not_own_by_a_number_from_after_its_end(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server carries out an operator's delete, and a resize, between the list and the read of the number."""
    async with two_clients() as (zk, other), Semaphore(other, "/s", 1):
        pipeline = zk.pipeline

        async def interrupted(operations: Any) -> list[Any]:
            monkeypatch.undo()
            answers = await pipeline(operations[:-1])
            await other.delete(f"/s/{(await line(other, '/s'))[1]}")
            await other.set("/s", b"2")
            return [*answers, *await pipeline(operations[-1:])]

        monkeypatch.setattr(zk, "pipeline", interrupted)
        lease = await getattr(Semaphore(zk, "/s", None), how)()
        assert await other.exists(lease.path) is not None
        await release(lease)


async def test_a_try_does_not_count_a_departure_by_a_number_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 21: the number shrinks, and a holder leaves, before the try reads the holder that it has met before."""
    async with two_clients() as (zk, other):
        semaphore, theirs, pipeline = Semaphore(zk, "/s", 2), Semaphore(other, "/s", 2), zk.pipeline
        leases = [await theirs.acquire() for _ in range(2)]
        assert await semaphore.try_acquire() is None
        await leases.pop().release()

        async def interrupted(operations: Any) -> list[Any]:
            kinds = [type(each) for each in operations]
            if zkwire.Create in kinds:  # after a look that has shown one holder
                leases.append(await theirs.acquire())
            elif kinds == [zkwire.GetData]:
                await theirs.resize(1)
                await leases.pop(0).release()
            return await pipeline(operations)

        monkeypatch.setattr(zk, "pipeline", interrupted)
        assert (await semaphore.try_acquire(), len(leases)) == (None, 1)
        await release(*leases)


async def test_objects_that_have_agreed_follow_a_resize_and_new_ones_must_agree() -> None:
    async with two_clients() as (zk, other):
        at_work, idle = Semaphore(zk, "/s", 1), Semaphore(other, "/s", 1)
        await release(await at_work.acquire())
        await at_work.resize(2)
        with pytest.raises(PermitsError, match="has 2 permits, not 1"):
            await idle.acquire()
        follower = Semaphore(other, "/s", 2)
        await release(await follower.acquire())
        await Semaphore(other, "/s", 2).resize(3)
        leases = [await at_work.acquire() for _ in range(3)]
        assert await follower.try_acquire() is None
        await release(*leases)
        for semaphore, number in ((at_work, b"3"), (follower, b"2")):  # the last one that each was given
            await other.delete_tree("/s")  # pitfall 18: as the server deletes an empty container
            await release(await semaphore.acquire())
            assert (await other.get("/s")).data == number


async def test_a_number_that_was_set_by_resize_stays_while_the_semaphore_is_idle() -> None:
    """Pitfall 76: the server deletes empty containers, and an operator's throttle with them."""
    async with (
        Server(container_interval=0.02) as server,
        zkwire.connect(server.hosts) as zk,
        zkwire.connect(server.hosts) as other,
    ):
        used = Semaphore(zk, "/s", 10)
        await release(await used.acquire())
        await Semaphore(other, "/s", 10).resize(1)
        await until_reaped(zk)
        for use in (Semaphore(other, "/s", 10).acquire, partial(Semaphore(other, "/s", 10).resize, 1)):
            with pytest.raises(PermitsError, match="the semaphore /s has 1 permit, not 10") as caught:
                await use()
            assert (caught.value.path, caught.value.asked, caught.value.stored) == ("/s", 10, b"1")
        async with used:
            assert await used.try_acquire() is None
            assert await Semaphore(other, "/s", None).try_acquire() is None
        await other.delete("/s/resized")  # gives the number up
        await until_gone(zk, "/s")
        await release(*[await taken(Semaphore(zk, "/s", 2)) for _ in range(2)])


async def until_gone(zk: Client, path: str) -> None:
    """Wait until the server has deleted an empty container."""

    async def is_gone() -> bool:
        return await zk.exists(path) is None

    await until(is_gone)


async def until_reaped(zk: Client) -> None:
    """Wait until the server has looked for empty containers since this call."""
    await zk.create("/empty", container=True)
    await zk.create("/empty/child")
    await zk.delete("/empty/child")
    await until_gone(zk, "/empty")


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_resize_while_the_server_deletes_the_container_stores_the_number(is_late: bool) -> None:
    """Pitfall 76: the container goes between the read of the number and the write."""
    async with scene() as stage:
        await release(await Semaphore(stage.zk, stage.path, 3).acquire())
        with stage.server.hold_replies("getData", session=stage.zk.session_id, path=stage.path, times=1) as held:
            resizing = asyncio.create_task(Semaphore(stage.zk, stage.path, 3).resize(1))
            await held.until_hit()
            await stage.other.delete(stage.path)
            if is_late:  # another client creates it again
                await release(await Semaphore(stage.other, stage.path, 3).acquire())
        await resizing
        assert (await stage.other.get(stage.path)).data == b"1"
        assert await stage.other.get_children(stage.path) == ["resized"]


async def test_a_resize_that_another_client_forestalls_needs_the_number_of_that_one() -> None:
    async with scene() as stage:
        with stage.server.hold_replies("getData", session=stage.zk.session_id, path=stage.path, times=1) as held:
            resizing = asyncio.create_task(Semaphore(stage.zk, stage.path, 3).resize(1))
            await held.until_hit()
            await release(await Semaphore(stage.other, stage.path, 4).acquire())
        with pytest.raises(PermitsError, match="has 4 permits, not 3"):
            await resizing


async def test_a_resize_creates_what_is_missing_a_container_and_all_nodes_with_the_acl() -> None:
    async with (
        Server(container_interval=0.02) as server,
        zkwire.connect(server.hosts, auth=[("digest", b"us:secret")]) as us,
    ):
        await Semaphore(us, "/a/s", 2, acl=zkwire.CREATOR_ALL_ACL).resize(4)
        for path in ("/a", "/a/s", "/a/s/resized"):
            assert (await us.get_acl(path))[0] == [zkwire.digest_acl("us", "secret")]
        await us.delete("/a/s/resized")
        await until_gone(us, "/a/s")
        await Semaphore(us, "/b/s", 2).resize(4)
        for path in ("/b", "/b/s", "/b/s/resized"):
            assert (await us.get_acl(path))[0] == list(zkwire.OPEN_ACL)
        await us.create("/c")
        for path, given in (("/c", 2), ("/d", None)):
            await Semaphore(us, path, given).resize(5)
            assert (await us.get(path)).data == b"5"


async def test_a_waiting_ticket_gets_an_error_when_the_number_is_overwritten() -> None:
    async with two_clients() as (zk, other):
        semaphore = Semaphore(zk, "/s", 1)
        async with semaphore as lease:
            waiter = await start_waiting(zk, semaphore, 2)
            await other.set("/s", b"spoilt")
            with pytest.raises(PermitsError, match="is not a semaphore"):
                await waiter
            assert await until_line(other, "/s", 1) == [lease.path[3:]]


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("permits", [1, 2])
async def test_uncontended_requests(zookeeper: RealServer, path: str, permits: int) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        mark = proxy.mark()
        async with Semaphore(zk, f"{path}/s", 2).hold(permits=permits):
            assert proxy.segments(mark) == 2  # the parents are missing
        mark = proxy.mark()
        async with Semaphore(zk, f"{path}/s", 2).hold(permits=permits):
            assert proxy.segments(mark) == 1
        assert proxy.requests(mark) == ["create2", "getChildren2", "getData", "delete"]
        assert proxy.segments(mark) == 2


async def test_a_resize_costs_four_requests(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        async with Semaphore(zk, path, 2):
            pass
        for permits in (1, 2):
            mark = proxy.mark()
            await Semaphore(zk, path, None).resize(permits)
            assert proxy.requests(mark) == ["sync", "getData", "getData", "multi"]
            assert proxy.segments(mark) == 2
