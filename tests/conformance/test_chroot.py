"""A client below a chroot: no result, event or error shows a server's path."""

import pytest

import zkwire
from tests.support.client import Server
from zkwire import Client, WatchEventType


async def test_every_verb_works_below_the_chroot(zk: Client, path: str, app: Client) -> None:
    assert app.chroot == path
    await zk.create(path, b"root")
    assert await app.create("/a", b"1") == "/a"
    assert (await zk.get(f"{path}/a")).data == b"1"
    assert (await app.create_and_stat("/b"))[0] == "/b"
    assert await app.create("/c", container=True) == "/c"
    assert await app.create("/n-", sequential=True, ephemeral=True) == "/n-0000000003"
    assert (await app.create_and_stat("/d/e/n", sequential=True, make_parents=True))[0] == "/d/e/n0000000000"
    await app.ensure_path("/f/g")
    assert await zk.exists(f"{path}/f/g") is not None
    assert (await app.get("/")).data == b"root"
    assert await app.exists("/a") == await zk.exists(f"{path}/a")
    assert sorted(await app.get_children("/")) == ["a", "b", "c", "d", "f", "n-0000000003"]
    names, stat = await app.get_children_and_stat("/d")
    assert (names, stat) == (["e"], await zk.exists(f"{path}/d"))
    await app.set("/", b"new root")
    await app.set("/a", b"2", 0)
    assert (await zk.get(path)).data == b"new root"
    await app.delete("/a", 1)
    await app.discard("/b")
    await app.sync("/")
    assert sorted(await zk.get_children(path)) == ["c", "d", "f", "n-0000000003"]


async def test_ensure_path_and_make_parents_create_the_chroot_itself(server: Server, zk: Client, path: str) -> None:
    async with zkwire.connect(f"{server.hosts}{path}/one/two") as app:
        assert await app.exists("/") is None
        with pytest.raises(zkwire.NoNodeError):
            await app.create("/a")
        await app.ensure_path("/a/b")
        assert await zk.exists(f"{path}/one/two/a/b") is not None
    async with zkwire.connect(f"{server.hosts}{path}/three/four") as app:
        await app.ensure_path("/")
        assert await zk.exists(f"{path}/three/four") is not None
    async with zkwire.connect(f"{server.hosts}{path}/five/six") as app:
        assert await app.create("/a/b", make_parents=True) == "/a/b"
    async with zkwire.connect(f"{server.hosts}{path}/seven/eight") as app:
        assert await app.create("/", b"made", make_parents=True) == "/"
        assert (await zk.get(f"{path}/seven/eight")).data == b"made"


async def test_a_sequential_node_without_a_name_is_created_below_the_chroot(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    assert await app.create("/", sequential=True) == "/0000000000"
    assert (await app.create_and_stat("/", sequential=True, ephemeral=True))[0] == "/0000000001"
    async with app.transaction() as tx:
        tx.create("/", sequential=True)
    assert tx.results == ["/0000000002"]
    assert sorted(await zk.get_children(path)) == [f"{number:010d}" for number in range(3)]


async def test_events_have_the_path_below_the_chroot(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    _, created = await app.exists_and_watch("/a")
    _, children = await app.get_children_and_watch("/")
    _, changed = await app.get_and_watch("/")
    await zk.create(f"{path}/a")
    await zk.set(path, b"")
    seen = [await watch for watch in (created, children, changed)]
    assert [(event.type, event.path) for event in seen] == [
        (WatchEventType.CREATED, "/a"),
        (WatchEventType.CHILDREN, "/"),
        (WatchEventType.CHANGED, "/"),
    ]
    assert created.path == "/a"


async def test_errors_have_the_path_below_the_chroot(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    await zk.create(f"{path}/e", ephemeral=True)
    await zk.create(f"{path}/locked", acl=zkwire.READ_ONLY_ACL)
    for call, at in (
        (app.get("/x"), "/x"),
        (app.get_and_watch("/x"), "/x"),
        (app.get_children("/x"), "/x"),
        (app.get_children_and_stat("/x"), "/x"),
        (app.get_children_and_watch("/x"), "/x"),
        (app.set("/x", b""), "/x"),
        (app.set("/", b"", 9), "/"),
        (app.delete("/x"), "/x"),
        (app.delete("/"), "/"),
        (app.create("/x/y"), "/x/y"),
        (app.create("/e"), "/e"),
        (app.create_and_stat("/e/y"), "/e/y"),
        (app.create("/e/y/z", make_parents=True), "/e/y"),
        (app.create("/locked/n-", sequential=True), "/locked/n-"),
        (app.ensure_path("/e/y/z"), "/e/y"),
        (app.ensure_path("/locked/y"), "/locked/y"),
    ):
        with pytest.raises(zkwire.ServerError) as refused:
            await call
        assert refused.value.path == at
        assert path not in str(refused.value)


async def test_paths_of_transactions_are_below_the_chroot_in_all_frames(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    async with app.transaction() as tx:
        tx.check("/")
        tx.create("/a")
        tx.create("/a/n-", sequential=True)
        tx.create("/c", container=True)
        tx.set("/a", b"x", 0)
        tx.delete("/c")
    assert [result for result in tx.results if isinstance(result, str)] == ["/a", "/a/n-0000000000", "/c"]
    assert (await zk.get(f"{path}/a")).data == b"x"
    tx = app.transaction()
    tx.set("/a", b"")
    tx.set("/missing", b"")
    with pytest.raises(zkwire.TransactionError) as refused:
        await tx.commit()
    assert refused.value.path == "/missing"
    assert refused.value.results[1] is not None
    assert refused.value.results[1].path == "/missing"
    assert path not in str(refused.value)


async def test_a_name_that_begins_like_the_chroot_is_not_shortened(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    await app.ensure_path(path)
    assert await app.create(f"{path}/a") == f"{path}/a"
    assert await zk.exists(f"{path}{path}/a") is not None


async def test_a_conditional_write_in_a_chroot_keeps_its_version_pitfall_65(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    await app.create("/a")
    await zk.set(f"{path}/a", b"by another")
    with pytest.raises(zkwire.BadVersionError):
        await app.set("/a", b"stale", 0)
    assert (await app.get("/a")).data == b"by another"


async def test_an_error_says_that_the_chroot_is_missing(zk: Client, path: str, app: Client) -> None:
    hint = f"the chroot {path} does not exist: create it with ensure_path"
    tx = app.transaction()
    tx.create("/a")
    for refused in (app.get("/"), app.create("/a"), app.create("/", sequential=True), app.delete("/"), tx.commit()):
        with pytest.raises(zkwire.ServerError, match=hint):
            await refused
    for deeper in (app.get("/a"), app.create("/a/b"), zk.get(path), zk.create(f"{path}/a")):
        with pytest.raises(zkwire.NoNodeError) as unclear:
            await deeper
        assert unclear.value.hint == ""
