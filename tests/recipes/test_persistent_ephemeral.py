"""A persistent ephemeral node: it exists as long as the block lasts, whatever happens to sessions, and no longer."""

import asyncio
from typing import Any

import pytest

import zkwire
from recipes import Group, PersistentEphemeral
from tests.support.client import Server as AnyServer
from tests.support.everywhere import no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import body_raises, outcome, until_armed, until_state
from zkwire import NodeExistsError, SessionState


async def test_tasks_that_wait_for_the_node_get_an_error_when_the_block_is_left() -> None:
    async with scene() as stage:
        node = PersistentEphemeral(stage.zk, "/n", b"1")
        async with node:
            held = stage.server.hold_replies("create", path="/n", session=stage.zk.session_id)
            await stage.other.delete("/n")
            await held.until_hit()
            waiting = [asyncio.create_task(node.created()), asyncio.create_task(node.set(b"2"))]
            await asyncio.sleep(0)
            stage.server.drop(stage.zk.session_id)
        held.end()
        came = [await outcome(task) for task in waiting]
        for error in came:
            assert isinstance(error, RuntimeError)
            assert "/n is no longer kept" in str(error)
        assert came[0] is not came[1]
        assert not node.exists
        async with node:  # another block may follow, with the data that was accepted last
            assert (await stage.other.get("/n")).data == b"1"
            await node.created()


UNREADABLE = [zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.READ, "world", "anyone")]


async def test_a_node_that_its_owner_may_not_read_is_removed_at_the_end() -> None:
    async with scene() as stage:
        with body_raises(zkwire.NoAuthError):
            async with PersistentEphemeral(stage.zk, "/n", acl=UNREADABLE):
                await asyncio.Event().wait()
        assert await stage.other.exists("/n") is None
        await stage.other.create("/g")
        member = await Group(stage.zk, "/g", acl=UNREADABLE).join("one")
        assert isinstance(await member.lost(), zkwire.NoAuthError)
        await member.leave()
        assert await stage.other.get_children("/g") == []


async def test_the_node_of_another_session_is_waited_for_if_the_caller_wants_that() -> None:
    async with scene() as stage:
        await stage.other.create("/n", ephemeral=True)
        waiting = PersistentEphemeral(stage.zk, "/n", within=30)
        entering = asyncio.create_task(waiting.__aenter__())
        await until_armed(1, stage.zk)
        await stage.other.delete("/n")
        await entering
        with stage.server.hold_replies("delete", session=stage.zk.session_id) as held:
            leaving = asyncio.create_task(waiting.__aexit__(None, None, None))
            await held.until_hit()
            await stage.other.ping()
            assert not leaving.done()
        await leaving


async def test_the_block_is_cancelled_when_another_session_takes_the_path_during_a_disconnection(
    each_server: AnyServer, path: str
) -> None:
    """The server then reports the node as one whose children have changed, and not as deleted."""
    hosts = each_server.hosts
    async with Proxy(hosts) as proxy, zkwire.connect(hosts) as other, zkwire.connect(proxy.hosts) as zk:
        with body_raises(NodeExistsError, match="another session"):
            async with PersistentEphemeral(zk, path):
                await until_armed(1, zk)
                await zk.ping()
                with proxy.refuse_connections():
                    proxy.drop()
                    await until_state(zk, SessionState.SUSPENDED)
                    await other.delete(path)
                    await other.create(path, b"theirs", ephemeral=True)
                async with asyncio.timeout(20):
                    await asyncio.Event().wait()
        assert (await other.get(path)).data == b"theirs"


@pytest.mark.parametrize("is_member", [True, False])
async def test_a_removal_whose_answer_was_lost_leaves_the_next_node_at_the_path_alone(is_member: bool) -> None:
    """The delete was carried out.  Before it is repeated, another session creates its node."""
    async with scene() as stage:
        kept = await Group(stage.zk, "/").join("n") if is_member else PersistentEphemeral(stage.zk, "/n")
        await kept.__aenter__()
        with stage.server.refuse_connections() as refusing:
            with stage.server.drop_after("delete", session=stage.zk.session_id):
                leaving = asyncio.create_task(kept.__aexit__(None, None, None))
                await until_state(stage.zk, SessionState.SUSPENDED)
            await stage.other.create("/n", ephemeral=True)
            refusing.end()
        await leaving
        assert (await stage.other.get("/n")).stat.ephemeral_owner == stage.other.session_id
        await no_watch_stays(stage.server.hosts)


async def test_an_object_can_be_entered_again_but_not_twice_at_a_time() -> None:
    async with scene() as stage:
        node = PersistentEphemeral(stage.zk, "/n")
        await stage.other.create("/n", ephemeral=True)
        with pytest.raises(NodeExistsError, match=r"another session, 0x[0-9a-f]+; if that is"):
            await node.__aenter__()
        await stage.other.delete("/n")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="of /n is left, but it was not entered"):
                await node.__aexit__(None, None, None)
            entered, second = await asyncio.gather(node.__aenter__(), node.__aenter__(), return_exceptions=True)
            leaving = asyncio.create_task(node.__aexit__(None, None, None))
            third = await outcome(asyncio.create_task(node.__aenter__()))
            for error in (second, third):
                assert str(error) == "the PersistentEphemeral of /n has been entered already"
            await leaving
            assert entered is node
        with pytest.raises(RuntimeError, match="async with"):
            await node.set(b"")


@pytest.mark.parametrize("bad", ["", "n", "/", "/a/"])
async def test_bad_paths_are_refused(bad: str) -> None:
    async with scene() as stage:
        with pytest.raises(ValueError, match=r"path|root"):
            PersistentEphemeral(stage.zk, bad)
        with pytest.raises(TypeError):
            PersistentEphemeral(stage.zk, "/n", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", ["text", None, bytearray(b"2"), memoryview(b"2")])
async def test_data_that_the_caller_may_change_is_refused(data: Any) -> None:
    async with scene() as stage, PersistentEphemeral(stage.zk, "/n", b"1") as node:
        member = await Group(stage.zk, "/g").join("one", b"1")
        for each in (node, member):
            with pytest.raises(TypeError, match="data is bytes"):
                await each.set(data)
        await member.leave()
        assert (await stage.other.get("/n")).data == b"1"
