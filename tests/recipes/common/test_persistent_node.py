"""A node that is kept: whose node is waited for, what a refusal says, and with which data it is put back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import pytest

import zkwire
from recipes.common.persistent_node import PersistentNode
from tests.support.client import turns
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import no_task_stays, outcome, until
from zkwire import ACL, Client, NodeExistsError, Perms

pytestmark = pytest.mark.limit(30)

P = "/recipe"
NODE = f"{P}/node"
NOT_READABLE = [ACL(Perms.ALL & ~Perms.READ, "world", "anyone")]


def of(zk: Client, data: bytes = b"mine") -> PersistentNode:
    return PersistentNode(zk, NODE, data, acl=None, own_sessions=set())


@asynccontextmanager
async def kept(stage: Scene, data: bytes = b"mine") -> AsyncIterator[PersistentNode]:
    """A node that exists and is kept, as long as the body lasts."""
    ours = of(stage.zk, data)
    await ours.acquire()
    keeping = asyncio.create_task(ours.keep())
    try:
        yield ours
    finally:
        keeping.cancel()
        await outcome(keeping)
        removed = ours.discard()
        if removed is not None:
            await removed


async def hint_of(zk: Client, within: float | None = 0) -> str:
    """Return the hint of the refusal to create the node, which exists."""
    with pytest.raises(NodeExistsError) as refused:
        await of(zk).acquire(within=within)
    assert refused.value.path == NODE
    return refused.value.hint


@pytest.mark.parametrize("within", [0, None])
async def test_a_refusal_says_why_this_node_does_not_go_by_itself(within: float | None) -> None:
    """So it is not waited for either."""
    async with scene(P) as stage:
        await stage.other.create(NODE, make_parents=True)
        assert "it is not an ephemeral node, so no session's end removes it" in await hint_of(stage.zk, within)
        await stage.other.delete(NODE)
        await stage.other.create(NODE, ephemeral=True, acl=NOT_READABLE)
        assert "this client may not read it (its ACL)" in await hint_of(stage.zk, within)
        await stage.other.delete(NODE)
        await stage.zk.create(NODE, ephemeral=True)
        assert "this client has created it already" in await hint_of(stage.zk, within)
        await stage.zk.delete(NODE)


async def test_the_node_of_another_session_is_waited_for_if_the_caller_wants_that() -> None:
    async with scene(P) as stage, no_task_stays():
        await stage.other.create(NODE, ephemeral=True, make_parents=True)
        hint = await hint_of(stage.zk)
        assert f"it belongs to another session, {stage.other.session_id % 2**64:#x}" in hint
        assert "give within= to Group.join, PersistentEphemeral or Partitioner" in hint
        assert isinstance(await outcome(of(stage.zk).acquire()), NodeExistsError)
        with pytest.raises(TimeoutError, match=f"{NODE} was not free within 0.01 s"):
            await of(stage.zk).acquire(within=0.01)
        await stage.zk.ping()  # answered after what the ended wait has asked
        ours = of(stage.zk)
        with stage.server.delay_replies(0, "getData", path=NODE, session=stage.zk.session_id) as looked:
            waiting = asyncio.create_task(ours.acquire(within=None))
            await looked.until_hit()
            for _ in range(20):
                await stage.zk.ping()
            assert looked.hits == 1
            await stage.other.delete(NODE)
            await waiting
        removed = ours.discard()
        assert removed is not None
        await removed


async def test_a_node_left_by_a_former_session_of_one_call_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(P) as stage:
        await stage.other.create(NODE, ephemeral=True, make_parents=True)
        former = AsyncMock(return_value=stage.other.session_id)
        monkeypatch.setattr("recipes.common.persistent_node.wait_for_session", former)
        acquiring = asyncio.create_task(of(stage.zk).acquire())
        for _ in range(5):
            await stage.zk.ping()
        await stage.other.delete(NODE)
        await acquiring


@pytest.mark.parametrize("sets", [0, 1])
async def test_what_another_session_has_put_in_the_place_of_the_node_is_not_taken_for_it(sets: int) -> None:
    """It is left as it is, too, if its version differs.  Nobody keeps our node at first, so no event reports it."""
    async with scene(P) as stage:
        ours = of(stage.zk)
        await ours.acquire()
        for _ in range(sets):
            await ours.set(b"again")
        async with stage.other.transaction() as replacing:
            replacing.delete(NODE)
            replacing.create(NODE, b"theirs", ephemeral=True)
        setting = asyncio.create_task(ours.set(b"newer"))
        await until(lambda: not ours.exists)
        with pytest.raises(NodeExistsError):
            await ours.keep()
        assert isinstance(await outcome(setting), NodeExistsError)
        assert (await stage.other.get(NODE)).data == (b"theirs" if sets else b"newer")


async def test_the_node_is_written_although_another_client_has_written_it() -> None:
    async with scene(P) as stage, kept(stage) as ours:
        await stage.other.set(NODE, b"foreign")
        await ours.set(b"newer")
        assert (await stage.other.get(NODE)).data == b"newer"


@pytest.mark.parametrize("data", [b"refused", b"x" * 2**21])
async def test_the_node_is_put_back_with_the_data_that_was_accepted_last(data: bytes) -> None:
    """Pitfall 80."""
    async with scene(P) as stage:
        async with kept(stage) as ours:
            await ours.set(b"newer")
            with (
                stage.server.answering("setData", zkwire.QuotaExceededError, session=stage.zk.session_id),
                pytest.raises((zkwire.QuotaExceededError, ValueError)),
            ):
                await ours.set(data)
            assert ours.data == b"newer"
            stat = (await stage.other.get(NODE)).stat
            await stage.other.delete(NODE)

            async def is_back() -> bool:
                found = await stage.other.exists(NODE)
                return found is not None and found.czxid > stat.czxid

            await until(is_back)
            await ours.created()
            assert (await stage.other.get(NODE)).data == b"newer"
        await nothing_stays(stage)


async def test_the_node_is_not_taken_for_existing_when_its_session_is_over() -> None:
    async with scene(P) as stage, kept(stage) as ours:
        await stage.zk.ping()
        with stage.server.hold_replies("getData", path=NODE) as looking:
            stage.server.expire(stage.zk.session_id)
            await looking.until_hit()
            assert not ours.exists
        await ours.created()
        assert ours.exists


async def test_a_write_meets_a_node_that_was_deleted_and_waits_until_it_is_back() -> None:
    async with scene(P) as stage:
        async with kept(stage) as ours:
            with stage.server.hold_replies(session=stage.zk.session_id) as blind:
                await stage.other.delete(NODE)
                writing = asyncio.create_task(ours.set(b"newer"))
                await blind.until_hit()
            await asyncio.wait_for(writing, 10)
            assert (await stage.other.get(NODE)).data == b"newer"
        await nothing_stays(stage)


@pytest.mark.parametrize("answer", ["setData", "exists"])
async def test_the_answer_to_a_write_that_comes_after_the_end_of_the_keeping_does_not_count(answer: str) -> None:
    """A second `discard` would delete the node that another client has created since."""
    async with scene(P) as stage:
        ours = of(stage.zk)
        await ours.acquire()
        if answer == "exists":
            await stage.other.set(NODE, b"another version")
        with stage.server.hold_replies(answer, path=NODE, session=stage.zk.session_id) as answered:
            writing = asyncio.create_task(ours.set(b"more"))
            await answered.until_hit()
            removed = ours.discard()
        assert isinstance(await outcome(writing), RuntimeError)
        assert removed is not None
        await removed
        assert ours.discard() is None
        await nothing_stays(stage)


@pytest.mark.parametrize("missed_by", ["getData", "getChildren"])
async def test_a_node_that_changes_hands_between_the_reads_of_one_look_ends_the_keeping(missed_by: str) -> None:
    """One of the two does not find it, and a watch of the other one would be on the node of another session."""
    async with scene(P) as stage:
        ours = of(stage.zk)
        await ours.acquire()
        with stage.server.answering(missed_by, zkwire.NoNodeError, session=stage.zk.session_id, times=1) as missing:
            keeping = asyncio.create_task(ours.keep())
            assert isinstance(await outcome(keeping), NodeExistsError)
        assert missing.hits == 1
        assert await stage.other.exists(NODE) is not None
        await stage.zk.delete(NODE)


@pytest.mark.parametrize("refused", ["create", "getData"])
async def test_what_has_ended_the_keeping_is_raised_to_all_that_use_the_node(refused: str) -> None:
    async with scene(P) as stage:
        ours = of(stage.zk)
        await ours.acquire()
        keeping = asyncio.create_task(ours.keep())
        with stage.server.answering(refused, zkwire.NoAuthError, session=stage.zk.session_id):
            await stage.other.delete(NODE)
            assert isinstance(await outcome(keeping), zkwire.NoAuthError)
        assert not ours.exists
        for use in (ours.created, lambda: ours.set(b"more")):
            with pytest.raises(zkwire.NoAuthError):
                await use()
        assert (ours.discard() is None) is (refused == "create")


async def test_when_a_cancelled_keeping_has_ended_its_new_node_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the connection breaks before the delete."""
    monkeypatch.setattr("recipes.common.persistent_node.LEAVES_WITHIN", 3600.0)
    async with scene(P) as stage, no_task_stays():
        ours = of(stage.zk)
        await ours.acquire()
        keeping = asyncio.create_task(ours.keep())
        await stage.zk.ping()
        with stage.server.drop_before("delete", session=stage.zk.session_id) as lost:
            with stage.server.hold_replies("create", path=NODE, session=stage.zk.session_id) as held:
                await stage.other.delete(NODE)
                await held.until_hit()
                synced = stage.server.delay_replies(0.0, "sync", session=stage.zk.session_id)
                keeping.cancel()
                await turns()
                assert not keeping.done()
            assert isinstance(await outcome(keeping), asyncio.CancelledError)
            assert (lost.hits, synced.hits) == (1, 2)  # of the delete, and of the keeping: the server may lag
        assert await stage.other.exists(NODE) is None
        assert ours.discard() is None
