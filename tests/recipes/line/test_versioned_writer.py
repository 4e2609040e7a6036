"""What a holder writes into its ticket: in the order of the calls, and over nothing but its own data."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import zkwire
from recipes import Lock
from recipes.line.ticket import VersionedWriter, WrittenOverError
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import no_task_stays, outcome

P = "/recipe"


@asynccontextmanager
async def own(stage: Scene) -> AsyncIterator[tuple[VersionedWriter, str]]:
    """The data of a ticket that is held, and the path of its node."""
    async with no_task_stays():
        lease = await Lock(stage.zk, P).acquire()
        yield VersionedWriter(stage.zk, lease._ticket), lease.path
        await lease.release()


def by_version(version: int) -> bytes:
    return b"version %d" % version


async def test_data_is_made_for_the_version_that_the_node_gets() -> None:
    async with scene(P) as stage, own(stage) as (data, path):
        with stage.server.delay_replies(0, "getData", session=stage.zk.session_id) as read:
            await asyncio.gather(*(data.write(by_version) for _ in range(3)))
        assert read.hits == 0
        found, stat = await stage.other.get(path)
        assert (found, stat.version) == (b"version 3", 3)


async def test_without_data_nothing_is_written() -> None:
    async with scene(P) as stage, own(stage) as (data, path):
        await data.write(lambda version: None)
        assert (await stage.other.get(path)).stat.version == 0


@pytest.mark.parametrize("is_before", [True, False])
async def test_after_a_lost_answer_a_write_finds_out_which_version_the_node_has(is_before: bool) -> None:
    async with scene(P) as stage, own(stage) as (data, path):
        drop = stage.server.drop_before if is_before else stage.server.drop_after
        with drop("setData", session=stage.zk.session_id):
            await data.write(by_version)
        expected = 1 if is_before else 2
        found, stat = await stage.other.get(path)
        assert (found, stat.version) == (by_version(expected), expected)


async def cancelled_write(stage: Scene, data: VersionedWriter) -> None:
    """Have a write carried out, and cancelled before its answer."""
    with stage.server.hold_replies("setData", session=stage.zk.session_id) as held:
        writing = asyncio.create_task(data.write(by_version))
        await held.until_hit()
        writing.cancel()
        await outcome(writing)


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_what_another_client_has_written_is_not_overwritten_and_a_deleted_node_is_an_error(
    is_deleted: bool, is_cancelled: bool
) -> None:
    async with scene(P) as stage, own(stage) as (data, path):
        if is_cancelled:
            await cancelled_write(stage, data)
        await (stage.other.delete(path) if is_deleted else stage.other.set(path, b"theirs"))
        came = await outcome(data.write(by_version))
        if is_deleted:
            assert isinstance(came, zkwire.NoNodeError)
            assert came.path == path
        else:
            assert isinstance(came, WrittenOverError)
            assert (await stage.other.get(path)).data == b"theirs"


async def test_a_refused_write_is_forgotten() -> None:
    async with scene(P) as stage:
        async with own(stage) as (data, path):
            with stage.server.answering("setData", zkwire.QuotaExceededError, session=stage.zk.session_id):
                assert isinstance(await outcome(data.write(by_version)), zkwire.QuotaExceededError)
            with stage.server.delay_replies(0, "getData", session=stage.zk.session_id) as read:
                await data.write(by_version)
                assert read.hits == 0
            assert (await stage.other.get(path)).data == b"version 1"
        await nothing_stays(stage)


async def test_a_write_ends_with_its_session() -> None:
    async with scene(P) as stage, own(stage) as (data, _):
        with stage.server.drop_after("setData", session=stage.zk.session_id) as dropped:
            writing = asyncio.create_task(outcome(data.write(by_version)))
            await dropped.until_hit()
            stage.server.expire(stage.zk.session_id)
        assert isinstance(await writing, zkwire.SessionExpiredError)
