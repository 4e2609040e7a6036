"""Receipts: they show whether a transaction was carried out whose answer was lost, and none of them stays."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from recipes import Counter, Group
from recipes.common import receipts
from recipes.common.receipts import ANY_VERSION, ExactWriter, Receipts
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.lost_answers import answer_lost
from tests.support.recipes import outcome, until, until_state
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import BadVersionError, ConnectionLostError, SessionState, TransactionError
from zkwire.testing import Server


async def receipts_of(zk: zkwire.Client, path: str) -> list[str]:
    return [f"{path}/{name}" for name in await zk.get_children(path)]


async def until_no_receipt(zk: zkwire.Client, path: str) -> None:
    async def is_none_left() -> bool:
        return not await receipts_of(zk, path)

    await until(is_none_left)


class Writer:
    """Writes the node at `path`, which exists, with receipts below it."""

    def __init__(self, zk: zkwire.Client, path: str) -> None:
        self.zk = zk
        self.path = path
        self.receipts = Receipts(zk, f"{path}/receipt-", acl=None)

    async def write(self, data: bytes, version: int = -1) -> bool:
        transaction = self.zk.transaction()
        transaction.set(self.path, data, version)
        return await self.receipts.commit(transaction)


async def writer(stage: Scene) -> Writer:
    await stage.other.create("/n")
    return Writer(stage.zk, "/n")


async def test_a_receipt_is_used_again_and_deleted_when_idle() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        for data in (b"1", b"2", b"3"):
            assert await ours.write(data)
        [receipt] = await receipts_of(stage.other, "/n")
        assert (await stage.other.get(receipt)).stat.version == 2
        await until_no_receipt(stage.other, "/n")
        assert await ours.write(b"4")
        assert [receipt] != await receipts_of(stage.other, "/n") != []
        ours.receipts._unused[0].version = 2**30 - 1  # its version must not overflow
        assert await ours.write(b"5")
        assert ours.receipts._unused[0].version == 0


@in_virtual_time
async def test_a_receipt_in_use_is_not_deleted() -> None:
    async with a_client() as (_, zk):
        await zk.create("/n")
        ours = Writer(zk, "/n")
        await asyncio.gather(ours.write(b""), ours.write(b""))  # one of their receipts is not used again
        names = set(await receipts_of(zk, "/n"))
        for _ in range(30):  # the timer finds it unused, but not for long enough
            assert await ours.write(b"")
            names.update(await receipts_of(zk, "/n"))
            await asyncio.sleep(receipts._KEPT_FOR / 5)
        assert (len(names), len(await receipts_of(zk, "/n"))) == (2, 1)
        await asyncio.sleep(2 * receipts._KEPT_FOR)
        assert await receipts_of(zk, "/n") == []


async def test_after_a_receipt_was_deleted_by_hand_nothing_is_written_and_the_next_try_succeeds() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"1")
        for receipt in await receipts_of(stage.other, "/n"):
            await stage.other.delete(receipt)
        assert not await ours.write(b"2")
        assert (await stage.other.get("/n")).data == b"1"
        assert await ours.write(b"2")
        await until_no_receipt(stage.other, "/n")


@pytest.mark.parametrize("has_receipt", [False, True])
async def test_a_refused_operation_is_reported_by_its_index_and_leaves_no_receipt(has_receipt: bool) -> None:
    async with scene() as stage:
        await stage.zk.add_auth("digest", b"bob:pw")
        ours = await writer(stage)
        if has_receipt:
            assert await ours.write(b"1")
        with pytest.raises(TransactionError) as refused:
            await ours.write(b"2", version=7)
        assert refused.value.index == 0
        assert isinstance(refused.value.cause, BadVersionError)
        with pytest.raises(ValueError, match="too large"):
            await ours.write(bytes(2_000_000))
        assert len(await receipts_of(stage.other, "/n")) == has_receipt
        assert await ours.write(b"3")
        await until_no_receipt(stage.other, "/n")


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("has_receipt", [False, True])
async def test_a_receipt_shows_whether_the_transaction_was_carried_out(has_receipt: bool, carried_out: bool) -> None:
    async with scene() as stage:
        ours = await writer(stage)
        if has_receipt:
            assert await ours.write(b"0")
        async with answer_lost(stage, ours.write(b"1"), carried_out=carried_out) as writing:
            await stage.other.set("/n", b"other")
        assert await writing is carried_out
        for _ in range(2):
            async with answer_lost(stage, ours.write(b"2"), carried_out=carried_out) as writing:
                pass
            assert await writing is carried_out
        assert (await stage.other.get("/n")).data == (b"2" if carried_out else b"other")
        await until_no_receipt(stage.other, "/n")


@pytest.mark.parametrize("how", ["expiry", "deleted"])
@pytest.mark.parametrize("carried_out", [False, True])
async def test_without_the_receipt_the_outcome_is_unknown(carried_out: bool, how: str) -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"0")
        async with answer_lost(stage, ours.write(b"1"), carried_out=carried_out) as writing:
            if how == "expiry":
                stage.server.expire(stage.zk.session_id)
            else:
                for receipt in await receipts_of(stage.other, "/n"):
                    await stage.other.delete(receipt)
        with pytest.raises(ConnectionLostError) as lost:
            await writing
        assert lost.value.maybe_applied
        assert await ours.write(b"2")
        await until_no_receipt(stage.other, "/n")


@pytest.mark.parametrize("has_receipt", [False, True])
async def test_a_receipt_missing_in_the_next_session_shows_nothing(
    has_receipt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends while the client waits after a transient refusal, so no request fails because of the expiry."""
    monkeypatch.setattr("recipes.common.retrying._PAUSE", 0.5)
    async with scene() as stage:
        ours = await writer(stage)
        if has_receipt:
            assert await ours.write(b"0")
        session = stage.zk.session_id
        with (
            stage.server.drop_after("multi", session=session),
            stage.server.answering("sync", zkwire.ThrottledError, session=session, times=1) as refusing,
        ):
            writing = asyncio.create_task(ours.write(b"1"))
            await refusing.until_hit()
            stage.server.expire(session)
            await until(lambda: stage.zk.session_id not in (0, session))
            assert not writing.done()
        with pytest.raises(ConnectionLostError):
            await writing


async def until_expired(stage: Scene) -> None:
    """Return between the end of the session of `zk` and the beginning of the next one."""
    expired = asyncio.create_task(until_state(stage.zk, SessionState.EXPIRED))
    await asyncio.sleep(0)
    stage.server.expire(stage.zk.session_id)
    await expired
    assert not stage.zk.session_id


async def test_the_receipt_of_a_write_that_waited_for_the_next_session_is_deleted_too() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"1")
        await until_expired(stage)
        assert [await ours.write(b"2"), await ours.write(b"3")] == [True, True]
        assert len(await receipts_of(stage.other, "/n")) == 1
        await until_no_receipt(stage.other, "/n")


async def test_a_receipt_of_another_client_in_place_of_ours_shows_nothing() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"1")
        (receipt,) = await receipts_of(stage.other, "/n")
        async with answer_lost(stage, ours.write(b"2"), carried_out=False) as writing:
            await stage.other.delete(receipt)
            await stage.other.create(receipt)
            for _ in range(3):
                await stage.other.set(receipt, b"")
        with pytest.raises(ConnectionLostError):
            await writing


NO_CHILDREN = [zkwire.ACL(zkwire.Perms.READ | zkwire.Perms.WRITE | zkwire.Perms.ADMIN, "world", "anyone")]


@pytest.mark.parametrize("parent", ["/", "/n"])
async def test_a_receipt_that_may_not_be_created_names_the_permissions_that_it_needs(parent: str) -> None:
    async with scene() as stage:
        await stage.other.create("/n")
        await stage.other.set_acl(parent, NO_CHILDREN)
        receipts = Receipts(stage.zk, zkwire.join_path(parent, "receipt-"), acl=zkwire.OPEN_ACL)
        for _ in range(2):
            transaction = stage.zk.transaction()
            transaction.set("/n", b"1")
            with pytest.raises(TransactionError) as refused:
                await receipts.commit(transaction)
            assert isinstance(refused.value.cause, zkwire.NoAuthError)
            assert refused.value.cause.hint.startswith(
                f"the client needs the permissions CREATE and DELETE on {parent}: together with each write"
            )
        assert (await stage.other.get("/n")).data == b""
        await stage.other.set_acl("/n", zkwire.READ_ONLY_ACL)
        with pytest.raises(TransactionError, match=r"setData /n: [^(]*$"):  # the write itself: without a hint
            await Writer(stage.zk, "/n").write(b"2")


async def test_a_receipt_whose_default_acl_is_refused_is_created_with_another_one() -> None:
    """The server does not take the address for an identity that an ACL can name."""
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("ip", b"")]) as zk:
        await stage.other.create("/n")
        receipts = Receipts(zk, "/n/receipt-", acl=None)
        for is_carried_out in (False, True, True):
            transaction = zk.transaction()
            transaction.set("/n", b"1")
            assert await receipts.commit(transaction) is is_carried_out
        assert len(await receipts_of(stage.other, "/n")) == 1


async def test_a_node_that_another_client_made_ephemeral_gives_a_clear_error() -> None:
    async with scene() as stage:
        await stage.other.create("/n", bytes(8), ephemeral=True)
        with pytest.raises(zkwire.NoChildrenForEphemeralsError, match="/n is an ephemeral node, which another"):
            await Counter(stage.zk, "/n").add(1)


# -- one node, written exactly once ------------------------------------------------------------------------------------


async def test_a_wider_acl_is_reported_if_the_caller_gives_one(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        await stage.other.create("/recipe", b"0")
        with caplog.at_level(logging.WARNING, "recipes"):
            assert await ExactWriter(stage.zk, stage.path, acl=None).write(b"1", 0)
            assert caplog.records == []
            only_us = [zkwire.ACL(zkwire.Perms.ALL, "ip", "127.0.0.1")]
            assert await ExactWriter(stage.zk, stage.path, acl=only_us).write(b"2", 1)
            await stage.other.create("/group")
            await Group(stage.zk, "/group", acl=only_us).join("me")
        more = "exists with an ACL that allows more"
        assert [each[: each.index(more)] for each in caplog.messages] == ["/recipe ", "/group "]


def writes(*data: bytes) -> Callable[[Scene], Awaitable[None]]:
    async def meanwhile(stage: Scene) -> None:
        for each in data:
            await stage.other.set("/recipe", each)

    return meanwhile


async def a_delete(stage: Scene) -> None:
    await stage.other.delete(stage.path)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("meanwhile", "version", "found"),
    [
        (writes(), 0, True),
        (writes(b"theirs"), 0, False),
        (writes(b"ours"), 0, None),
        (writes(b"theirs", b"more"), 0, None),
        (a_delete, 0, None),
        (writes(), ANY_VERSION, None),
    ],
)
async def test_when_the_session_is_lost_with_the_answer_the_node_itself_shows_what_happened(
    meanwhile: Callable[[Scene], Awaitable[None]], version: int, found: bool | None, is_late: bool
) -> None:
    """Or nothing does, and then the caller is told that the write may have been carried out.

    `is_late`: only after the look at the node, as a server carries out the write that an older session has sent.
    """
    async with scene() as stage:
        await stage.other.create("/recipe", b"before")
        with stage.server.drop_before("multi", session=stage.zk.session_id) as lost:
            refusing = stage.server.refuse_connections()
            writing = asyncio.create_task(ExactWriter(stage.zk, stage.path, acl=None).write(b"ours", version))
            await lost.until_hit()
        with stage.server.hold_replies("getData", path=stage.path, times=1) as looking:
            for moment in (False, True):
                if moment:
                    stage.server.expire(stage.zk.session_id)
                    refusing.end()
                    await looking.until_hit()
                if moment is is_late:
                    await meanwhile(stage)
        result = await outcome(writing)
        if found is None:
            assert isinstance(result, ConnectionLostError)
            assert result.maybe_applied
        else:
            assert result is found
            assert ((await stage.other.get(stage.path)).data == b"ours") == found
        await nothing_stays(stage)


async def test_without_another_session_the_lost_answer_is_the_error() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as other:
        await other.create("/recipe", b"before")
        async with zkwire.connect(server.hosts, renew=False) as zk:
            with server.drop_before("multi", session=zk.session_id) as lost:
                refusing = server.refuse_connections()
                writing = asyncio.create_task(ExactWriter(zk, "/recipe", acl=None).write(b"ours", 0))
                await lost.until_hit()
            server.expire(zk.session_id)
            refusing.end()
            assert isinstance(await outcome(writing), ConnectionLostError)
