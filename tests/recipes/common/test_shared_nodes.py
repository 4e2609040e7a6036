"""Nodes that several clients use: made in spite of lost sessions, but not for a client whose session is not renewed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from recipes.common.shared_nodes import make_container, read_or_create
from tests.support.everywhere import scene
from tests.support.recipes import until
from zkwire import Client, SessionState
from zkwire.testing import Server


async def make(zk: Client) -> None:
    await make_container(zk, "/a/b", zkwire.OPEN_ACL)


async def read(zk: Client) -> None:
    await read_or_create(zk, "/a/b", b"", zkwire.OPEN_ACL)


@pytest.mark.parametrize("call", [make, read])
async def test_the_end_of_a_session_that_is_not_renewed_is_raised(call: Callable[[Client], Awaitable[None]]) -> None:
    async with Server() as server, zkwire.connect(server.hosts, renew=False) as zk:
        server.expire(zk.session_id)
        await until(lambda: zk.state is SessionState.EXPIRED)
        with pytest.raises(zkwire.SessionExpiredError):
            await call(zk)


@pytest.mark.parametrize("call", [make, read])
async def test_a_node_is_made_in_the_next_session(call: Callable[[Client], Awaitable[None]]) -> None:
    async with scene() as stage:
        session_id = stage.zk.session_id
        with stage.server.refuse_connections():
            stage.server.drop(session_id)
            await until(lambda: stage.zk.state is SessionState.SUSPENDED)
            calling = asyncio.ensure_future(call(stage.zk))
            await asyncio.sleep(0)
            stage.server.expire(session_id)
        await calling
        assert stage.zk.session_id != session_id
        assert await stage.other.exists("/a/b") is not None
