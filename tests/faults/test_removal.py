"""Removals of nodes whose path others use too, and transactions that belong to one session."""

import asyncio

import pytest

import zkwire
from tests.recipes.everywhere import scene
from tests.recipes.tools import until_state
from zkwire import SessionExpiredError, SessionState


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_removal_of_one_node_leaves_the_next_at_its_path_alone(is_carried_out: bool) -> None:
    """The answer to the delete is lost; by the time it is asked again, somebody else's node may stand there."""
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        drop = stage.server.drop_after if is_carried_out else stage.server.drop_before
        with stage.server.refuse_connections() as refusing:
            with drop("delete", session=stage.zk.session_id):
                gone = stage.zk.discard("/a", newest_zxid=old.czxid)
                await until_state(stage.zk, SessionState.SUSPENDED)
            if is_carried_out:
                _, new = await stage.other.create_and_stat("/a")
            refusing.end()
        await gone
        there = await stage.other.exists("/a")
        if is_carried_out:
            assert there is not None
            assert there.czxid == new.czxid
        else:
            assert there is None


async def test_who_looks_again_has_the_server_catch_up_first() -> None:
    async with scene() as stage:
        _, old = await stage.zk.create_and_stat("/a")
        with (
            stage.server.drop_after("delete", session=stage.zk.session_id),
            stage.server.hold_replies("sync", session=stage.zk.session_id) as syncing,
        ):
            gone = stage.zk.discard("/a", newest_zxid=old.czxid)
            await syncing.until_hit()
            assert not gone.done()
        await gone


async def test_a_transaction_of_one_session_is_not_carried_out_in_the_next() -> None:
    async with scene() as stage:
        first = stage.zk.session_id
        early, late = (stage.zk.transaction(session_id=first) for _ in range(2))
        early.create("/early")
        late.create("/late")
        await early.commit()
        stage.server.expire(first)
        await until_state(stage.zk, SessionState.EXPIRED)
        await stage.zk.ping()
        assert stage.zk.session_id != first
        with pytest.raises(SessionExpiredError, match=f"{first:#x}"):
            await late.commit()
        async with stage.zk.transaction(session_id=stage.zk.session_id) as transaction:
            transaction.create("/later")
        assert sorted(await stage.other.get_children("/")) == ["early", "later", "zookeeper"]


async def test_a_transaction_that_waits_for_a_connection_ends_with_its_session() -> None:
    async with scene() as stage:
        with stage.server.refuse_connections() as refusing:
            stage.server.drop(stage.zk.session_id)
            await until_state(stage.zk, SessionState.SUSPENDED)
            transaction = stage.zk.transaction(session_id=stage.zk.session_id)
            transaction.create("/late")
            committing = asyncio.ensure_future(transaction.commit())
            await asyncio.sleep(0)
            stage.server.expire(stage.zk.session_id)
            refusing.end()
        with pytest.raises(zkwire.SessionExpiredError):
            await committing
        await stage.zk.ping()
        assert await stage.other.exists("/late") is None
