"""Errors below a chroot name the caller's path: of refusals, lost answers, unreadable answers and large requests."""

import asyncio

import pytest

import zkwire
from tests.support.everywhere import scene


async def test_a_lost_answer_names_the_callers_path() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as app:
        await app.ensure_path("/a")
        for write in (app.set("/a", b"1"), app.ensure_path("/a/c")):
            with stage.server.drop_before(session=app.session_id), pytest.raises(zkwire.ConnectionLostError) as lost:
                await write
            _names_the_callers_path(lost.value)
        with stage.server.drop_before(session=app.session_id):
            (result,) = await app.pipeline([zkwire.Create("/a/b")])
        assert isinstance(result, zkwire.ConnectionLostError)
        _names_the_callers_path(result)


def _names_the_callers_path(error: zkwire.ConnectionLostError) -> None:
    assert f" {error.path}: the connection to " in str(error)
    assert "/app" not in str(error)


async def test_a_refusal_of_a_request_without_a_path_has_none() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as app:
        with stage.server.answering("whoAmI", zkwire.UnimplementedError), pytest.raises(zkwire.ServerError) as refused:
            await app.whoami()
        assert type(refused.value) is zkwire.UnimplementedError
        assert refused.value.path is None


async def test_an_unreadable_answer_names_the_callers_path() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app", reply_limit=2000) as app:
        await app.create("/a", bytes(3000), make_parents=True)
        with pytest.raises(zkwire.ProtocolError, match="getData /a: ") as unreadable:
            await app.get("/a")
        assert unreadable.value.path == "/a"


async def test_a_request_that_is_too_large_names_the_callers_path() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as app:
        too_large = bytes(2_000_000)
        with pytest.raises(ValueError, match="create /a: "):
            await app.create("/a", too_large)
        with pytest.raises(ValueError, match="create2 /a: "):
            await app.pipeline([zkwire.Sync("/"), zkwire.Create("/a", too_large)])
        with pytest.raises(ValueError, match=r"create /aaa.*aaa: "):
            await app.ensure_path("/" + "a" * len(too_large))


async def test_a_lost_connection_without_a_text_is_named_by_its_class() -> None:
    async with scene() as stage:
        await stage.zk.create("/a")
        writing = asyncio.ensure_future(stage.zk.set("/a", b"1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        link = stage.zk._session._link
        assert link is not None
        link.abort(TimeoutError())
        with pytest.raises(zkwire.ConnectionLostError, match=r"\(TimeoutError\)"):
            await writing
