"""A group: its members, the stream of their changes, and members whose session or node is gone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import zkwire
from recipes import Group
from tests.support.client import Server as AnyServer
from tests.support.clock import Clock
from tests.support.everywhere import Scene, scene
from tests.support.queues import Counting
from tests.support.recipes import body_raises, outcome, until, until_armed, until_watches
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire import NodeExistsError, SessionState
from zkwire.testing import RealServer, Server, VirtualClock


async def test_members_join_change_and_leave(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        group, other = Group(zk, f"{path}/a/b"), Group(zk2, f"{path}/a/b")
        assert await group.members() == {}
        one = await group.join("one", b"1")
        assert (one.name, one.path, one.exists) == ("one", f"{path}/a/b/one", True)
        async with await other.join("two") as two:
            assert await other.members() == {"one": b"1", "two": b""}
            await two.set(b"2")
            await zk.sync(path)
            assert await group.members() == {"one": b"1", "two": b"2"}
        await one.leave()
        await one.leave()
        assert await one.lost() is None
        with pytest.raises(RuntimeError, match="has left"):
            await one.set(b"")
        assert await group.members() == {}
        await until_watches(zookeeper, 0)


async def test_the_stream_gives_each_change(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        group, other = Group(zk, path), Group(zk2, path)
        async with group.watch() as changes:
            assert await anext(changes) == {}
            one = await other.join("one", b"1")
            assert await anext(changes) == {"one": b"1"}
            await one.set(b"2")
            assert await anext(changes) == {"one": b"2"}
            two = await other.join("two")
            seen = await anext(changes)
            assert seen == {"one": b"2", "two": b""}
            seen.clear()  # it is a copy
            await two.leave()
            assert await anext(changes) == {"one": b"2"}
            await one.leave()
            assert await anext(changes) == {}
            await zk2.delete_tree(path)
            waiting = asyncio.create_task(changes.__anext__())
            await zk.ping()
            await until_watches(zookeeper, 1)
            await other.join("three")
            assert await waiting == {"three": b""}
        await zk2.close()
        await until_watches(zookeeper, 0)


async def test_a_member_that_rejoins_while_the_stream_lists_the_group_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event of its former node is taken in behind the list, which shows the new one already."""
    async with scene() as stage, Group(stage.zk, "/g").watch() as changes:
        group = Group(stage.other, "/g")
        one, two = await group.join("one", b"1"), await group.join("two", b"2")
        while await anext(changes) != {"one": b"1", "two": b"2"}:
            pass
        listed = zkwire.Client.get_children_and_watch

        async def list_late(
            zk: zkwire.Client, path: str, *, into: zkwire.WatchSet | None = None
        ) -> tuple[list[str], zkwire.Watch]:
            await two.leave()
            await group.join("two", b"3")
            await stage.zk.sync("/g")  # the event is there
            monkeypatch.undo()
            return await listed(zk, path, into=into)

        monkeypatch.setattr(zkwire.Client, "get_children_and_watch", list_late)
        await one.leave()
        while await anext(changes) != {"two": b"3"}:
            pass


async def take_the_name(stage: Scene) -> None:
    """End the session of `zk`, and let another one take the name of its member before the next session begins."""
    with stage.server.refuse_connections():
        stage.server.expire(stage.zk.session_id)
        await Group(stage.other, "/g").join("one", b"theirs")


async def test_a_membership_ends_when_another_session_takes_the_name() -> None:
    async with scene() as stage:
        member = await Group(stage.zk, "/g").join("one", b"ours")
        await take_the_name(stage)
        await until(member._over.done)
        assert not member.exists
        came = [await outcome(member.set(b"")) for _ in range(2)]
        assert isinstance(came[0], NodeExistsError)
        assert isinstance(came[1], NodeExistsError)
        assert came[0] is not came[1]
        await member.leave()  # raises nothing: `set` has raised the error
        assert isinstance(await member.lost(), NodeExistsError)
        assert await Group(stage.other, "/g").members() == {"one": b"theirs"}


@pytest.mark.parametrize("is_error_of_the_block", [False, True])
async def test_the_error_that_has_ended_a_membership_is_raised_once_at_its_end(is_error_of_the_block: bool) -> None:
    """Unless the block raises an error of its own."""
    async with scene() as stage:
        with body_raises(KeyError if is_error_of_the_block else NodeExistsError):
            async with await Group(stage.zk, "/g").join("one") as member:
                await take_the_name(stage)
                await until(member._over.done)
                if is_error_of_the_block:
                    raise KeyError
        await member.leave()  # raises nothing: the block has raised the error


async def test_memberships_end_with_their_client() -> None:
    async with scene() as stage:
        zk = await zkwire.connect(stage.server.hosts)
        group = Group(zk, "/g")
        early = await group.join("early")
        await until_armed(1, zk)
        late = await group.join("late")
        quiet = await group.join("quiet")
        changes = group.watch()
        assert set(await anext(changes)) == {"early", "late", "quiet"}
        await zk.close()
        assert await Group(stage.other, "/g").members() == {}
        for member in (quiet, early):
            await member.leave()  # the end of its client is no error of the membership
        assert isinstance(await early.lost(), zkwire.SessionClosedError)
        assert isinstance(await late.lost(), zkwire.SessionClosedError)
        with pytest.raises(zkwire.SessionClosedError):
            await anext(changes)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x00", 7, None])
async def test_bad_names_are_refused(name: object) -> None:
    async with scene() as stage:
        with pytest.raises((ValueError, TypeError)):
            await Group(stage.zk, "/g").join(name)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="data"):
            await Group(stage.zk, "/g").join("one", "text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="within"):
            await Group(stage.zk, "/g").join("one", within=-1)
        assert await stage.other.exists("/g") is None


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_the_former_node_of_a_member_is_waited_for_even_if_the_answer_to_its_create_was_lost() -> None:
    """Pitfall 12.  A put-back is carried out and its answer is lost.  Then the client's clock says that its session has
    expired, while the server, whose clock stands still, keeps the session and its node."""
    async with (
        Server(tick_time=0.1, clock=VirtualClock()) as server,
        zkwire.connect(server.hosts, session_timeout=0.3) as zk,
    ):
        member = await Group(zk, "/g").join("one")
        await until_armed(1, zk)
        with server.hold_replies("create", path="/g/one") as held:
            server.expire(zk.session_id)
            await held.until_hit()
            old = zk.session_id
            async with server.stopped():
                await until(lambda: zk.state in (SessionState.EXPIRED, SessionState.CONNECTING))
        await until_armed(1, zk)
        assert zk.session_id not in (0, old)
        assert (await zk.get("/g/one")).stat.ephemeral_owner == old
        server.expire(old)
        await member.set(b"2")
        assert (await zk.get("/g/one")).stat.ephemeral_owner == zk.session_id
        await member.leave()


async def test_a_membership_that_is_left_at_once_is_not_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        clock = Clock(monkeypatch)
        member = await Group(zk, "/g").join("one")
        await member.leave()
        sent = [name for name in count.requests if name != "ping"]
        assert sent == ["create2", "exists", "createContainer", "create2", "delete"]
        count.requests.clear()
        await clock.passes(1.0)
        await zk.ping()
        assert set(count.requests) <= {"ping"}
        lasting = await Group(zk, "/g").join("two")
        for _ in range(3):
            await zk.ping()
        assert "getChildren" not in count.requests
        count.requests.clear()
        await clock.passes(1.0)
        await until_armed(1, zk)
        assert [name for name in count.requests if name != "ping"] == ["getChildren", "getData"]
        async with Group(zk, "/g").watch() as changes, await Group(stage.other, "/g").join("stays"):
            await anext(changes)
            count.requests.clear()
            await lasting.set(b"2")
            await anext(changes)
            await lasting.leave()
            await anext(changes)
            sent = [name for name in count.requests if name not in ("ping", "removeWatches")]
            assert sent == ["setData", "getData", "delete", "getChildren"]
        assert await Group(zk, "/g").members() == {}


async def test_a_member_that_leaves_while_the_members_are_read_is_left_out() -> None:
    async with scene() as stage:
        group = Group(stage.other, "/g")
        await group.join("one", b"1")
        for read in (Group(stage.zk, "/g").members, lambda: anext(Group(stage.zk, "/g").watch())):
            leaving = await group.join("two", b"2")
            with stage.server.hold_replies("getChildren", session=stage.zk.session_id) as listing:
                reading = asyncio.create_task(awaited(read))
                await listing.until_hit()
                await leaving.leave()
            assert await reading == {"one": b"1"}


async def awaited(read: Callable[[], Awaitable[dict[str, bytes]]]) -> dict[str, bytes]:
    return await read()


async def test_members_that_cannot_be_read_for_another_reason_are_an_error() -> None:
    async with scene() as stage:
        await Group(stage.other, "/g").join("one", b"1")
        for read in (Group(stage.zk, "/g").members, lambda: anext(Group(stage.zk, "/g").watch())):
            with (
                stage.server.answering("getData", zkwire.UnimplementedError, session=stage.zk.session_id),
                pytest.raises(zkwire.UnimplementedError, match="/g/one"),
            ):
                await read()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_members_that_were_read_are_not_read_again_when_another_read_is_refused(is_stream: bool) -> None:
    """In a large group, on a server that refuses some reads, there would be no end."""
    async with scene() as stage:
        for name in ("a", "b"):
            await stage.other.create(f"{stage.path}/{name}", name.encode(), ephemeral=True, make_parents=True)
        group, session_id = Group(stage.zk, stage.path), stage.zk.session_id
        with (
            stage.server.delay_replies(0, "getData", path=f"{stage.path}/a", session=session_id) as read,
            stage.server.answering(
                "getData", zkwire.ThrottledError, path=f"{stage.path}/b", session=session_id, times=2
            ) as refused,
        ):
            async with group.watch() as stream:
                members = await (anext(stream) if is_stream else group.members())
        assert members == {"a": b"a", "b": b"b"}
        assert (read.hits, refused.hits) == (1, 2)


async def test_a_group_that_is_created_between_two_requests_of_the_stream_is_shown() -> None:
    """The list has found no node; by the next request there is one, so no event will report its creation."""
    async with scene() as stage, Group(stage.zk, "/g").watch() as changes:
        with stage.server.hold_replies("getChildren", session=stage.zk.session_id) as listing:
            reading = asyncio.create_task(changes.__anext__())
            await listing.until_hit()
            await Group(stage.other, "/g").join("one", b"1")
        assert await reading == {"one": b"1"}
        await Group(stage.other, "/g").join("two", b"2")
        assert await anext(changes) == {"one": b"1", "two": b"2"}


# -- nodes that are no members ----------------------------------------------------------------------------------------


async def test_a_node_that_is_not_ephemeral_or_not_readable_is_no_member(
    each_server: AnyServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported once, and a member may take its name."""
    async with (
        zkwire.connect(each_server.hosts) as zk,
        zkwire.connect(each_server.hosts, auth=[("digest", b"stranger:secret")]) as stranger,
    ):
        group = Group(zk, path)
        await group.join("one", b"1")
        await stranger.create(f"{path}/stays")
        await stranger.create(f"{path}/hidden", ephemeral=True, acl=[zkwire.digest_acl("stranger", "secret")])
        async with group.watch() as changes:
            for _ in range(2):
                assert await group.members() == {"one": b"1"}
            assert await anext(changes) == {"one": b"1"}
            await stranger.delete(f"{path}/stays")
            await stranger.delete(f"{path}/hidden")
            await group.join("stays", b"2")
            await group.join("hidden", b"3")
            wanted = {"one": b"1", "stays": b"2", "hidden": b"3"}
            async for members in changes:
                if members == wanted:
                    break
        messages = sorted(record.getMessage() for record in caplog.records if record.name == "recipes.group")
        assert [text.partition(", so")[0] for text in messages] == [
            f"the group {path}: {path}/hidden may not be read by this client (its ACL)",
            f"the group {path}: {path}/stays is not ephemeral",
        ]


@in_virtual_time
async def test_a_stream_reads_unreadable_nodes_again_only_with_the_next_list() -> None:
    async with a_client() as (server, zk):
        group = Group(zk, "/g")
        member = await group.join("one", b"1")
        await zk.create("/g/hidden", b"h", ephemeral=True, acl=[zkwire.ACL(zkwire.Perms.ADMIN, "world", "anyone")])
        async with group.watch() as changes:
            assert await anext(changes) == {"one": b"1"}
            for data in (b"2", b"3"):
                server.requests.clear()
                await member.set(data)
                assert await anext(changes) == {"one": data}
                assert server.names().count("getData") == 1
            await zk.set_acl("/g/hidden", zkwire.OPEN_ACL)
            await group.join("two", b"2")
            assert await anext(changes) == {"one": b"3", "hidden": b"h", "two": b"2"}


@pytest.mark.limit(20)
async def test_a_join_within_0_seconds_does_not_wait_for_the_node_of_a_former_session_of_this_client() -> None:
    """The client has given that session up, but the server, whose clock stands still, has not."""
    async with (
        Server(tick_time=0.1, clock=VirtualClock()) as server,
        zkwire.connect(server.hosts, session_timeout=0.3) as zk,
    ):
        group = Group(zk, "/g")
        former = await group.join("one")
        old = zk.session_id
        leaving = asyncio.create_task(former.leave())
        with server.drop_before("delete", path="/g/one"):
            async with server.stopped():
                await until(lambda: zk.state in (SessionState.EXPIRED, SessionState.CONNECTING))
            await until(lambda: zk.session_id not in (0, old))
        await leaving
        for within in (0.0, 0):
            with pytest.raises(NodeExistsError, match="a former session of this client"):
                await group.join("one", within=within)
        waiting = [asyncio.create_task(group.join("one", within=None))]
        await until_armed(1, zk)
        server.expire(old)
        await (await waiting[0]).leave()
