"""The client's own promises: a cancelled create leaves no node, and a transaction may be bound to one session."""

import pytest

import zkwire
from tests.support.everywhere import Scene, cancel_at_every_moment, scene
from tests.support.recipes import until


async def test_a_create_cancelled_at_every_turn_leaves_no_ephemeral_node() -> None:
    async def prepare(stage: Scene) -> None:
        await stage.other.ensure_path(stage.path)

    async def create(stage: Scene) -> None:
        path = await stage.zk.create(f"{stage.path}/n-", ephemeral=True, sequential=True)
        stage.zk.discard(path)

    await cancel_at_every_moment(create, prepare=prepare, at_least=1)


async def test_a_transaction_of_a_session_that_is_over_is_not_sent_in_the_next() -> None:
    async with scene() as stage:
        first = stage.zk.session_id
        transaction = stage.zk.transaction(session_id=first)
        transaction.create("/a")
        stage.server.expire(first)
        await until(lambda: stage.zk.session_id not in (0, first))
        with pytest.raises(zkwire.SessionExpiredError, match=f"{first:#x}"):
            await transaction.commit()
        assert await stage.other.exists("/a") is None
