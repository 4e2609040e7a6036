"""What other clients create by hand in a queue: items that cannot be taken, and nodes that hide items or take names."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

import zkwire
from recipes import Queue
from recipes.queue.nodes import Nodes
from recipes.queue.quarantine import HAS_CHILDREN, TOO_LARGE, Quarantine
from tests.support.client import Server as AnyServer
from tests.support.queues import PATH, Counting, clients, numbers, settled, take_by_claim, take_by_get
from tests.support.recipes import body_raises, outcome, until_line
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import ACL, Client, digest_acl
from zkwire.testing import Server

FIRST = "entry-000-0000000001"  # ahead of all items of the default priority
Plant: TypeAlias = Callable[[Client, str], Awaitable[None]]
Take: TypeAlias = Callable[[Queue], Coroutine[None, None, bytes]]

FOREIGN = [digest_acl("stranger", "secret")]


@asynccontextmanager
async def us_and_a_stranger(server: AnyServer) -> AsyncIterator[tuple[Client, Client]]:
    async with (
        zkwire.connect(server.hosts) as zk,
        zkwire.connect(server.hosts, auth=[("digest", b"stranger:secret")]) as stranger,
    ):
        yield zk, stranger


async def with_a_child(zk: Client, path: str) -> None:
    await zk.create(f"{path}/entries/{FIRST}/child", make_parents=True)


async def too_long(zk: Client, path: str) -> None:
    """Its name fits into a request, but not into a transaction, which contains it several times."""
    await zk.create(f"{path}/entries/entry-000-{'x' * 400_000}-0000000001", make_parents=True)


async def unreadable(zk: Client, path: str) -> None:
    await zk.ensure_path(f"{path}/entries")
    await zk.create(f"{path}/entries/{FIRST}", b"bad", acl=FOREIGN)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting consumer soon looks at what has taken the items."""
    monkeypatch.setattr("recipes.queue.view._PATIENCE", 0.01)


def warnings(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if path in record.getMessage()]


@pytest.mark.limit(20)
@pytest.mark.parametrize("take", [take_by_get, take_by_claim])
@pytest.mark.parametrize(
    ("plant", "why"),
    [(with_a_child, "has children"), (unreadable, "may not be read"), (too_long, "does not fit into a transaction")],
)
async def test_an_item_that_cannot_be_taken_goes_aside_and_is_reported_once(
    each_server: AnyServer, path: str, caplog: pytest.LogCaptureFixture, plant: Plant, take: Take, why: str
) -> None:
    async with us_and_a_stranger(each_server) as (zk, stranger):
        await plant(stranger, path)
        queue = Queue(zk, path)
        await queue.put_many(numbers(3))
        with caplog.at_level(logging.WARNING, "recipes"):
            assert [await take(queue) for _ in range(2)] == numbers(2)
            assert await queue.peek() == b"2"
            assert await queue.size() == 1
            assert await take(queue) == b"2"
            assert (await queue.size(), await queue.peek()) == (0, None)
            with pytest.raises(TimeoutError):
                await take(queue)
        (warning,) = warnings(caplog, f"{path}/entries/entry-000-")
        assert why in warning
        assert len(await stranger.get_children(f"{path}/entries")) == 1
        await settled(stranger, path)


@in_virtual_time
async def test_a_consumer_that_waits_sends_nothing_and_tries_an_item_again_after_a_minute() -> None:
    """No event reports that its cause has gone, so the consumer must not wait for one."""
    async with a_client() as (server, zk):
        await with_a_child(zk, PATH)
        assert await Queue(zk, PATH).peek() is None
        assert server.names()[-3:] == ["getChildren2", "getChildren", "getData"]
        queue = Queue(zk, PATH)
        taking = [asyncio.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(1)
        await zk.delete(f"{PATH}/entries/{FIRST}/child")
        server.names()
        await asyncio.sleep(50)
        assert server.names("ping", "sync") == []
        await Queue(zk, PATH).put(b"good")
        assert sorted(await asyncio.gather(*taking)) == [b"", b"good"]


async def test_an_item_that_gets_a_child_behind_the_read_goes_aside(caplog: pytest.LogCaptureFixture) -> None:
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH, acl=zkwire.OPEN_ACL)
        await queue.put_many(numbers(2))
        async with server.hold_replies("getData", session=zk.session_id) as held:
            taking = asyncio.create_task(queue.get())
            await held.until_hit()
            first = min(await other.get_children(f"{PATH}/entries"))
            await other.create(f"{PATH}/entries/{first}/child")
        assert await taking == b"1"
        assert len(warnings(caplog, first)) == 1


async def test_an_item_that_gets_a_child_while_it_is_claimed_is_handled_once() -> None:
    async with clients() as (_, (zk, other)):
        queue = Queue(zk, PATH, acl=zkwire.OPEN_ACL)
        await queue.put_many(numbers(2))
        with body_raises(zkwire.NotEmptyError, match="the item was handled, but cannot be deleted"):
            async with queue.claim() as item:
                await other.create(f"{item.entry}/child")
        async with queue.claim() as item:
            assert item == b"1"
        assert await Queue(other, PATH).size() == 1
        with pytest.raises(TimeoutError):
            await Queue(other, PATH).get(within=0)
        await settled(zk, PATH)


async def test_an_item_that_is_too_large_for_an_answer_goes_aside(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkwire.session.hosts._FIRST_PAUSE", 0.001)  # each attempt breaks the connection
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, reply_limit=100_000) as zk:
        queue = Queue(zk, PATH)
        # So many that the later one of them is read ahead with the list.
        await Queue(other, PATH).put_many([bytes(200_000), *numbers(24), bytes(200_000), *numbers(24, 640)])
        async with queue.claim() as item:
            assert item == b"0"
        assert [await queue.get() for _ in range(29)] == numbers(1, 30)
        assert len([text for text in warnings(caplog, PATH) if "reply_limit" in text]) == 2
        await settled(other, PATH)


async def test_an_item_that_is_too_large_is_tried_again_ever_more_seldom() -> None:
    """Each try breaks the connection, and with it the writes of other tasks."""
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        aside, loop = Quarantine(Nodes(zk, PATH, None)), asyncio.get_running_loop()

        def pause(why: str) -> int:
            before = loop.time()
            aside.add(FIRST, why)
            after = loop.time()
            assert aside.next_try is not None
            return next(each for each in range(4000) if before + each <= aside.next_try <= after + each)

        assert [pause(HAS_CHILDREN) for _ in range(3)] == [60, 60, 60]
        assert [pause(f"{PATH} {TOO_LARGE}") for _ in range(8)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
        assert aside.among([FIRST]) == {FIRST}
        assert pause(TOO_LARGE) == 3600
        aside._until.clear()  # its time is over
        assert aside.among([]) == set()  # it is out of the queue
        assert pause(TOO_LARGE) == 60


@pytest.mark.usefixtures("impatient")
async def test_a_persistent_node_in_the_place_of_a_consumers_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipes.queue.quarantine._TRIED_AGAIN_AFTER", 0.1)
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"0")
        (first,) = await zk.get_children(f"{PATH}/entries")
        taken = await other.create(f"{PATH}/taken/{first}", ephemeral=True)
        async with server.delay_replies(0, "getData", path=taken) as looked:
            waiting = asyncio.create_task(queue.get())
            await looked.until_hit()
        replaced = other.transaction()
        replaced.delete(taken)
        replaced.create(taken)
        await replaced.commit()
        assert await asyncio.wait_for(waiting, 10) == b"0"


@in_virtual_time
async def test_a_consumer_that_has_seen_claims_looks_at_them_again_later_and_not_when_it_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it knows of former claims is out of date, and no reason to look."""
    monkeypatch.setattr("recipes.queue.quarantine._TRIED_AGAIN_AFTER", 20.0)
    async with a_client() as (server, zk):
        queue, theirs, lists = Queue(zk, PATH), Queue(zk, PATH), ["getChildren2", "getChildren"]
        await theirs.put(b"0")
        async with theirs.claim():
            waiting = asyncio.create_task(queue.get())
            await asyncio.sleep(10)  # it has read the claim
            server.names()
            await asyncio.sleep(20)
            assert server.names("ping", "sync", "multi", "removeWatches") == [*lists, *lists, "getData"]
        await asyncio.sleep(1)
        server.names()
        await asyncio.sleep(70)
        assert server.names("ping", "sync", "delete", "removeWatches") == lists
        await theirs.put(b"1")
        assert await waiting == b"1"


@pytest.mark.usefixtures("impatient")
async def test_all_persistent_nodes_in_taken_are_found_at_once_and_each_node_is_read_once() -> None:
    observer = Counting()
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, observer=observer) as zk:
        await too_long(other, PATH)
        await other.create(f"{PATH}/taken/{(await other.get_children(f'{PATH}/entries'))[0]}", make_parents=True)
        await Queue(other, PATH).put_many(numbers(40))
        names = sorted(await other.get_children(f"{PATH}/entries"))[1:]
        forged = (0, 1, 15, 16, 31, 32, 39)
        for number, name in enumerate(names):
            await other.create(f"{PATH}/taken/{name}", ephemeral=number not in forged)
        queue = Queue(zk, PATH)
        assert await queue.get(within=10) == b"0"
        assert observer.requests.count("getData") - observer.requests.count("multi") <= 40
        assert [await queue.get(within=0) for _ in forged[1:]] == [b"%d" % number for number in forged[1:]]


@pytest.mark.limit(20)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("acl", "why"), [(zkwire.OPEN_ACL, "was not ephemeral"), (zkwire.READ_ONLY_ACL, "is not ephemeral")]
)
async def test_a_persistent_node_in_taken_does_not_hide_its_item_for_ever_or_is_reported(
    each_server: AnyServer, path: str, caplog: pytest.LogCaptureFixture, acl: Sequence[ACL], why: str
) -> None:
    async with us_and_a_stranger(each_server) as (zk, stranger):
        queue = Queue(zk, path)
        await queue.put_many(numbers(2))
        first, second = sorted(await zk.get_children(f"{path}/entries"))
        await stranger.create(f"{path}/taken/{first}", acl=acl)
        async with Queue(stranger, path, acl=zkwire.OPEN_ACL).claim() as item:  # a consumer's node is left alone
            assert item == b"1"
            await stranger.set_acl(f"{path}/taken/{second}", FOREIGN)
            found = await outcome(queue.get(within=30 if acl is zkwire.OPEN_ACL else 0.3))
            assert found == b"0" or isinstance(found, TimeoutError)
            assert await stranger.exists(f"{path}/taken/{second}") is not None
        (warning,) = warnings(caplog, f"{path}/taken")
        assert f"{path}/taken/{first} {why}" in warning


@pytest.mark.usefixtures("impatient")
async def test_a_persistent_node_whose_delete_got_lost_is_deleted_by_the_next_try() -> None:
    """The lost answer says nothing about the node, so the consumer looks again at once, and not after a minute."""
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"0")
        (first,) = await zk.get_children(f"{PATH}/entries")
        await other.create(f"{PATH}/taken/{first}")
        with server.drop_before("multi", path=f"{PATH}/taken/{first}", session=zk.session_id) as lost:
            assert await queue.get(within=10) == b"0"
            assert lost.hits == 1


@pytest.mark.usefixtures("impatient")
async def test_a_claim_that_begins_while_a_node_is_removed_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The node was read as persistent; by the time of the delete it is the ephemeral node of a consumer."""
    async with clients() as (server, (zk, other)):
        queue = Queue(zk, PATH)
        await queue.put(b"0")
        (first,) = await zk.get_children(f"{PATH}/entries")
        await other.create(f"{PATH}/taken/{first}")
        async with server.hold_replies("getData", path=f"{PATH}/taken/{first}") as held:
            waiting = asyncio.create_task(queue.get())
            await held.until_hit()
            await other.delete(f"{PATH}/taken/{first}")
            item = await Queue(other, PATH).claim().__aenter__()
        await until_line(other, f"{PATH}/consumers", 1)
        await zk.sync(PATH)
        assert await other.exists(f"{PATH}/taken/{first}") is not None
        item._body_ended(is_handled=True, is_cancelled=False)
        await item.release()
        await Queue(other, PATH).put(b"1")
        assert await waiting == b"1"
        assert warnings(caplog, PATH) == []


@pytest.mark.parametrize(
    ("take", "node"), [(take_by_get, "taken"), (take_by_claim, "taken"), (take_by_claim, "attempts")]
)
async def test_a_consumer_that_may_not_take_any_item_gets_the_refusal(take: Take, node: str) -> None:
    """It is not the item's fault, so the consumer does not go round it."""
    async with clients() as (_, (zk, other)):
        await Queue(other, PATH).put(b"0")
        await Queue(other, PATH, max_attempts=1)._nodes.make()
        await other.set_acl(f"{PATH}/{node}", zkwire.READ_ONLY_ACL)
        with pytest.raises(zkwire.NoAuthError) as refused:
            await take(Queue(zk, PATH, max_attempts=1))
        assert refused.value.path is not None
        assert refused.value.path.startswith(f"{PATH}/{node}/")
