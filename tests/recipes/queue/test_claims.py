"""Claimed items: hidden while the body runs, deleted or handed back at its end, and safe after a loss."""

import asyncio
import contextlib
import copy
import pickle
import re
from collections.abc import Callable

import pytest

import zkwire
from recipes import Item, LockLostError, Queue
from tests.support.client import Server as AnyServer
from tests.support.everywhere import no_watch_stays, scene
from tests.support.lost_answers import answer_lost
from tests.support.queues import PATH, clients, contents, numbers, settled, three_are_there
from tests.support.recipes import body_raises, outcome, until_line, until_watches
from tests.support.virtual_time import a_client, in_virtual_time

# -- nodes that another client deletes by hand ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["answered", "dropped before", "dropped after"])
@pytest.mark.parametrize(("own_too", "is_claimed_again"), [(False, False), (True, False), (True, True)])
async def test_a_claim_whose_item_was_freed_by_hand_is_lost_also_when_the_answer_to_its_end_is(
    own_too: bool, is_claimed_again: bool, how: str
) -> None:
    """The docs say how to free an item: both nodes, the claim's own one first.  The claim has no watch on it yet."""
    async with scene(PATH) as stage:
        queue, theirs = Queue(stage.zk, PATH), Queue(stage.other, PATH).claim()
        await queue.put(b"a")
        with body_raises(LockLostError):
            async with queue.claim() as item:
                if own_too:
                    await stage.other.delete(item.path)
                await stage.other.delete(f"{PATH}/taken/{item.entry.rpartition('/')[2]}")
                if is_claimed_again:
                    assert await theirs.__aenter__() == b"a"
                if how != "answered":
                    drop = stage.server.drop_before if how == "dropped before" else stage.server.drop_after
                    drop("multi", session=stage.zk.session_id)
        if is_claimed_again:
            await theirs.__aexit__(None, None, None)
            assert await contents(stage) == []
        else:
            assert await contents(stage) == [b"a"]


# -- the body ---------------------------------------------------------------------------------------------------------


async def test_a_claimed_item_is_hidden_and_deleted_at_the_end(each_server: AnyServer, path: str) -> None:
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue, theirs = Queue(zk, path), Queue(other, path)
        await queue.put_many([b"a", b"b"])
        async with queue.claim() as item:
            assert item == item.data == b"a"
            assert item.is_certain()
            assert item.certain_for() > 0
            item.check()
            assert await theirs.size() == 1
            assert await theirs.peek() == b"b"
            async with theirs.claim() as second:
                assert second.data == b"b"
                assert second.token > item.token
            transaction = item.transaction()
            transaction.create(f"{path}-result", b"done")
            await transaction.commit()
        assert await item.lost() is None
        assert await theirs.size() == 0
        assert await zk.get_children(f"{path}/entries") == []
        assert (await zk.get(f"{path}-result")).data == b"done"
        await settled(zk, path)
        await until_watches(each_server, 0)


async def test_an_item_whose_handing_back_got_no_answer_is_left_to_its_next_claim() -> None:
    """The delete that frees an item is repeated after a reconnect, and must not free it from under the next claim."""
    async with clients(3) as (server, (zk, other, third)):
        await Queue(zk, PATH).put(b"x")
        taken = re.compile(f"{PATH}/taken/entry-.*")

        async def fail() -> None:
            async with Queue(zk, PATH).claim():
                raise KeyError

        with server.drop_after("delete", path=taken, session=zk.session_id) as lost:
            failing = asyncio.create_task(fail())
            await lost.until_hit()
            refusal = server.refuse_connections()
        async with Queue(other, PATH).claim(within=5.0) as item:
            refusal.end()
            with body_raises(KeyError):
                await failing  # by now the delete was repeated
            item.check()
            assert await Queue(third, PATH).size() == 0


@pytest.mark.limit(15)
async def test_an_item_that_is_handed_back_goes_to_a_waiting_consumer() -> None:
    """No child of `entries` appears then."""
    async with clients(3) as (server, (zk, other, third)):
        queue = Queue(zk, PATH)
        await queue.put(b"x")
        with body_raises(KeyError):
            async with queue.claim():
                waiting = asyncio.create_task(Queue(other, PATH).get())
                behind = asyncio.create_task(Queue(third, PATH).get())
                await until_line(zk, f"{PATH}/consumers", 2)
                await zk.ping()
                raise KeyError
        done, pending = await asyncio.wait({waiting, behind}, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b"x"]
        for task in pending:
            task.cancel()
            await outcome(task)
        await settled(zk, PATH)
        await no_watch_stays(server.hosts)


@in_virtual_time
async def test_a_claim_whose_end_is_refused_deletes_its_own_node_for_certain_before_it_frees_the_item() -> None:
    async with a_client() as (server, zk):
        await Queue(zk, PATH).put(b"x")
        claim = Queue(zk, PATH).claim()
        item = await claim.__aenter__()
        refusals = {"multi": zkwire.NoAuthError.code, "delete": zkwire.ThrottledError.code}
        server.strike = lambda wire, sent: refusals.pop(sent.name, None)
        server.names()
        with pytest.raises(zkwire.NoAuthError):
            await claim.__aexit__(None, None, None)
        deleted = [sent.path for sent in server.requests if sent.name == "delete" and "/taken/" in str(sent.path)]
        assert deleted == [item.path, item.path, item.entry.replace("/entries/", "/taken/")]


@pytest.mark.parametrize("refusal", [None, ("getData", True)])  # or the claim has lost its own node
@in_virtual_time
async def test_an_item_that_is_handed_back_is_free_before_its_consumer_goes_on(
    refusal: tuple[str, bool] | None,
) -> None:
    """Otherwise a consumer that claims it again would find no item, and wait in the line."""
    async with a_client() as (server, zk):
        await Queue(zk, PATH).put(b"x")
        refusals = {("delete", False): zkwire.ThrottledError.code, refusal: zkwire.NoNodeError.code}
        server.strike = lambda wire, sent: refusals.pop((sent.name, "/_c_" in str(sent.path)), None)
        with contextlib.suppress(KeyError):
            async with Queue(zk, PATH).claim() as item:
                assert item == b"x"
                if refusal is None:
                    raise KeyError
        assert refusals.keys() <= {None}
        assert await Queue(zk, PATH).size() == (refusal is None)
        assert not [sent for sent in server.requests if f"{PATH}/consumers" in str(sent.path)]


@in_virtual_time
async def test_an_item_whose_body_has_failed_comes_after_the_others_for_a_minute() -> None:
    """Otherwise a consumer would claim an item that always fails again and again, and no other one."""
    async with a_client() as (_, zk):
        queue = Queue(zk, PATH)
        await queue.put_many([b"bad", b"too"], 1)
        await queue.put_many(numbers(3))
        claimed: list[bytes] = []

        async def claim(times: int) -> list[bytes]:
            claimed.clear()
            for _ in range(times):
                with contextlib.suppress(KeyError):
                    async with queue.claim(within=0) as item:
                        claimed.append(item.data)
                        if item in (b"bad", b"too"):
                            raise KeyError
            return claimed

        assert await claim(6) == [b"bad", b"too", b"0", b"1", b"2", b"bad"]
        await asyncio.sleep(59)  # of virtual time: less than the minute
        await queue.put_many(numbers(2))
        assert await claim(1) == [b"0"]
        await asyncio.sleep(2)  # of virtual time: the minute is over
        assert await claim(3) == [b"bad", b"too", b"1"]
        assert await Queue(zk, PATH).get() == b"bad"  # to other consumers it is where it was


async def test_an_item_that_was_released_in_its_body_is_not_freed_again_from_under_its_next_claim() -> None:
    """The claim counts."""
    async with scene(PATH) as stage:
        await Queue(stage.zk, PATH).put(b"x")
        theirs = Queue(stage.other, PATH, max_attempts=3).claim()
        with body_raises(KeyError):
            async with Queue(stage.zk, PATH, max_attempts=3).claim() as item:
                await item.release()
                assert (await theirs.__aenter__()).attempt == 2
                await stage.zk.exists(item.path)  # shows this client that time has gone on
                raise KeyError
        await theirs.__aexit__(None, None, None)
        assert await contents(stage) == []


async def test_the_end_of_a_handled_item_whose_claim_was_lost_raises_the_loss() -> None:
    async with scene(PATH) as stage:
        await Queue(stage.zk, PATH).put(b"x")
        item = await Queue(stage.zk, PATH)._claim(None)  # without a body to cancel
        item._body_ended(is_handled=True, is_cancelled=False)
        await stage.other.delete(item.path)
        await item.lost()
        with pytest.raises(LockLostError):
            item.check()
        with pytest.raises(LockLostError):
            await item.release()
        await item.release()
        assert await contents(stage) == [b"x"]


@pytest.mark.parametrize("error", [LockLostError, KeyError])  # a body's own one comes first
async def test_an_item_whose_claim_was_lost_keeps_its_place(error: type[Exception]) -> None:
    async with scene(PATH) as stage:
        await three_are_there(stage)
        queue = Queue(stage.zk, PATH)
        with body_raises(error):
            async with queue.claim() as item:
                await stage.other.delete(item.path)
                with contextlib.suppress(*[asyncio.CancelledError] * (error is KeyError)):
                    await asyncio.Event().wait()
                raise error
        await settled(stage.other, PATH)
        assert await queue.get() == b"0"


async def test_a_copy_of_an_item_is_its_data_alone() -> None:
    async with clients(1) as (_, (zk,)):
        await Queue(zk, PATH).put(b"a")
        async with Queue(zk, PATH).claim() as item:
            for made in (copy.copy(item), copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
                assert (made, type(made)) == (b"a", bytes)


# -- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", ["expiry", "deleted"])
async def test_a_lost_claim_interrupts_its_body_and_leaves_the_next_claim_alone(signal: str) -> None:
    """Pitfall 24: a consumer that lost its claim must not delete or free an item that another one claimed since."""
    async with clients() as (server, (zk, other)):
        queue, theirs = Queue(zk, PATH), Queue(other, PATH)
        await queue.put(b"a")
        inside: asyncio.Future[Item] = asyncio.get_running_loop().create_future()

        async def handle() -> None:
            async with queue.claim() as item:
                inside.set_result(item)
                await asyncio.Event().wait()

        handling = asyncio.create_task(handle())
        item = await inside
        if signal == "expiry":
            server.expire(zk.session_id)
        else:
            transaction = other.transaction()
            transaction.delete(item.path)
            transaction.delete(f"{PATH}/taken/{item.entry.rpartition('/')[2]}")
            await transaction.commit()
        async with theirs.claim() as second:
            with pytest.raises(LockLostError):
                await handling
            assert second.data == b"a"
            assert second.token > item.token
            await zk.ping()
            second.check()
            assert await queue.size() == 0
        assert await other.get_children(f"{PATH}/entries") == []
        await settled(zk, PATH)


@pytest.mark.parametrize("deleted", ["item", "own node"])
async def test_a_claim_of_which_a_node_was_deleted_while_its_answer_was_lost_leaves_no_node(deleted: str) -> None:
    """The node in `taken` that hides the item would stay as long as the session, and the item with it."""
    async with scene() as stage:
        await three_are_there(stage)
        claim = Queue(stage.zk, stage.path).claim()
        with stage.server.delay_replies(0, "sync", session=stage.zk.session_id) as sync:
            async with answer_lost(stage, claim.__aenter__(), carried_out=True) as claiming:
                own, taken = sorted(await stage.other.get_children(f"{stage.path}/taken"))
                node = f"entries/{taken}" if deleted == "item" else f"taken/{own}"
                await stage.other.delete(f"{stage.path}/{node}")
            claimed = await claiming  # not always the first item that is left: another consumer may be at work
        assert sync.hits > 0
        await claim.__aexit__(None, None, None)
        await settled(stage.other, stage.path)
        assert sorted([claimed, *await contents(stage)]) == numbers(deleted == "item", 3)


async def test_the_claims_of_a_queue_are_those_of_consumers_in_the_order_of_the_items() -> None:
    async with clients() as (server, (zk, other)):
        queue, theirs = Queue(zk, PATH, acl=zkwire.OPEN_ACL), Queue(other, PATH)
        assert await queue.claims() == []
        await queue.put_many(numbers(6))
        await queue.put(b"urgent", 1)
        claim = queue.claim
        async with theirs.claim() as one, claim(), claim(), claim(), claim(), theirs.claim():
            await theirs.put(b"not claimed", 0)
            names = sorted(await other.get_children(f"{PATH}/entries"))
            _, first, second, hidden, unreadable, deleted, sixth, forged = names
            await other.create(f"{PATH}/taken/{forged}")  # persistent, so no consumer has made it
            await other.delete(f"{PATH}/entries/{deleted}")
            no_reader = [zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.READ, "world", "anyone")]
            await other.set_acl(f"{PATH}/entries/{unreadable}", no_reader)
            await other.set_acl(f"{PATH}/taken/{hidden}", no_reader)
            found = await queue.claims()
            assert (found[0].session, found[0].token) == (hex(other.session_id), one.token)
            assert [(each.path, each.data, each.is_mine, each.owns) for each in found] == [
                (f"{PATH}/entries/{first}", b"urgent", False, True),
                (f"{PATH}/entries/{second}", b"0", True, True),
                (f"{PATH}/entries/{unreadable}", b"", True, True),
                (f"{PATH}/entries/{sixth}", b"4", False, True),
            ]
            refusing = server.answering("getData", zkwire.QuotaExceededError, path=f"{PATH}/entries/{first}", times=1)
            with refusing, pytest.raises(zkwire.QuotaExceededError):
                await queue.claims()
        assert [each.path for each in await queue.claims()] == []


# -- certainty --------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_claim_after_an_idle_time_is_certain() -> None:
    async with a_client() as (_, zk):
        await Queue(zk, PATH).put(b"x")
        await asyncio.sleep(1.25 * zk.session_timeout)
        async with Queue(zk, PATH).claim() as item:
            assert item.is_certain()
            await asyncio.sleep(1.25 * zk.session_timeout)
            item.check()


@in_virtual_time
async def test_a_claim_whose_session_has_ended_by_the_answer_is_made_again() -> None:
    """As by the end of a connection to a read-only server: nothing is raised, and the session is another one."""
    async with a_client() as (server, zk):
        await Queue(zk, PATH).put(b"x")
        former, patch = zk.session_id, pytest.MonkeyPatch()

        async def expire() -> None:
            patch.undo()
            server.machine.expire(former)
            server.drop()
            while zk.session_id in (0, former):
                await asyncio.sleep(0.01)

        patch.setattr(zk, "certain_for", lambda _: 0.0)
        patch.setattr(zk, "certify", expire)
        async with Queue(zk, PATH).claim(within=0) as item:  # which does not wait for a change
            assert item == b"x"
            assert zk.session_id != former
        assert await Queue(zk, PATH).size() == 0


@in_virtual_time
async def test_a_claim_whose_session_ends_before_its_own_end_is_known_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipes.common.retrying._PAUSE", 5.0)
    async with a_client() as (server, zk):
        await Queue(zk, PATH).put(b"x")
        claim = Queue(zk, PATH).claim()
        await claim.__aenter__()
        faults: dict[str, Callable[[], int | None]] = {"multi": server.drop, "sync": lambda: zkwire.ThrottledError.code}
        server.strike = lambda wire, sent: faults.pop(sent.name, lambda: None)()
        ending = asyncio.create_task(claim.__aexit__(None, None, None))
        await server.until("sync")
        server.machine.expire(zk.session_id)
        await server.reconnect(zk)
        with pytest.raises(LockLostError, match="the session ended before"):
            await ending
