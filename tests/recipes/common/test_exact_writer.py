"""Writes that happen exactly once, also when the answer and then the session are lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from recipes.common.receipts import ANY_VERSION, ExactWriter
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import outcome
from zkwire import READ_ONLY_ACL, ConnectionLostError
from zkwire.testing import Server

pytestmark = pytest.mark.limit(30)

P = "/recipe"


async def test_a_write_names_the_version_that_it_replaces() -> None:
    async with scene(P) as stage:
        await stage.other.create(P, b"0")
        writer = ExactWriter(stage.zk, P, acl=None)
        assert await writer.write(b"1", 0)
        assert not await writer.write(b"2", 0)
        assert await writer.write(b"3", ANY_VERSION)
        assert (await stage.other.get(P)).data == b"3"


async def test_a_missing_node_is_not_written() -> None:
    async with scene(P) as stage:
        assert not await ExactWriter(stage.zk, P, acl=None).write(b"1", ANY_VERSION)
        assert await stage.other.exists(P) is None


async def test_another_refusal_is_raised_as_it_is() -> None:
    async with scene(P) as stage:
        await stage.other.create(P, b"0", acl=READ_ONLY_ACL)
        with pytest.raises(zkwire.NoAuthError) as refused:
            await ExactWriter(stage.zk, P, acl=None).write(b"1", 0)
        assert refused.value.path == P


async def test_a_wider_acl_is_reported_if_the_caller_gives_one(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(P) as stage:
        await stage.other.create(P, b"0")
        with caplog.at_level(logging.WARNING, "recipes"):
            assert await ExactWriter(stage.zk, P, acl=None).write(b"1", 0)
            assert caplog.records == []
            only_us = [zkwire.ACL(zkwire.Perms.ALL, "ip", "127.0.0.1")]
            assert await ExactWriter(stage.zk, P, acl=only_us).write(b"2", 1)
        (warned,) = caplog.records
        assert warned.getMessage().startswith(f"{P} exists with an ACL that allows more")


async def nothing(stage: Scene) -> None: ...


async def another_write(stage: Scene) -> None:
    await stage.other.set(P, b"theirs")


async def the_same_write(stage: Scene) -> None:
    await stage.other.set(P, b"ours")


async def two_writes(stage: Scene) -> None:
    for data in (b"theirs", b"more"):
        await stage.other.set(P, data)


async def a_delete(stage: Scene) -> None:
    await stage.other.delete(P)


@pytest.mark.parametrize(
    ("meanwhile", "version", "found"),
    [
        (nothing, 0, True),
        (another_write, 0, False),
        (the_same_write, 0, None),
        (two_writes, 0, None),
        (a_delete, 0, None),
        (nothing, ANY_VERSION, None),
    ],
)
async def test_when_the_session_is_lost_with_the_answer_the_node_itself_shows_what_happened(
    meanwhile: Callable[[Scene], Awaitable[None]], version: int, found: bool | None
) -> None:
    """Or nothing does, and then the caller is told that the write may have been carried out."""
    async with scene(P) as stage:
        await stage.other.create(P, b"before")
        with stage.server.drop_before("multi", session=stage.zk.session_id) as lost:
            refusing = stage.server.refuse_connections()
            writing = asyncio.create_task(ExactWriter(stage.zk, P, acl=None).write(b"ours", version))
            await lost.until_hit()
        await meanwhile(stage)
        stage.server.expire(stage.zk.session_id)
        refusing.end()
        result = await outcome(writing)
        if found is None:
            assert isinstance(result, ConnectionLostError)
            assert result.maybe_applied
        else:
            assert result is found
            assert ((await stage.other.get(P)).data == b"ours") == found
        await nothing_stays(stage)


async def test_without_another_session_the_lost_answer_is_the_error() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as other:
        await other.create(P, b"before")
        async with zkwire.connect(server.hosts, renew=False) as zk:
            with server.drop_before("multi", session=zk.session_id) as lost:
                refusing = server.refuse_connections()
                writing = asyncio.create_task(ExactWriter(zk, P, acl=None).write(b"ours", 0))
                await lost.until_hit()
            server.expire(zk.session_id)
            refusing.end()
            assert isinstance(await outcome(writing), ConnectionLostError)


async def test_a_write_that_was_never_sent_waits_for_the_next_session() -> None:
    async with scene(P) as stage:
        await stage.other.create(P, b"before")
        with stage.server.refuse_connections() as refusing:
            stage.server.drop(stage.zk.session_id)
            await refusing.until_hit()
            writing = asyncio.create_task(ExactWriter(stage.zk, P, acl=None).write(b"ours", 0))
            await stage.other.ping()
            stage.server.expire(stage.zk.session_id)
        assert await writing
        assert (await stage.other.get(P)).data == b"ours"
