"""Every verb that reads or writes one node: its result, the Stat, and its errors."""

import asyncio
import dataclasses
from typing import Any

import pytest

import zkwire
from tests.support.client import Server, eventually
from zkwire import Client

NO_DELETE = zkwire.Perms.ALL & ~zkwire.Perms.DELETE

PLAIN: dict[str, Any] = {}
EPHEMERAL: dict[str, Any] = {"ephemeral": True}
CONTAINER: dict[str, Any] = {"container": True}
SEQUENTIAL: dict[str, Any] = {"sequential": True}


# create


async def test_create_returns_the_path_and_stores_the_data_empty_if_none_is_given(zk: Client, path: str) -> None:
    assert await zk.create(path, b"data") == path
    assert await zk.create(f"{path}/a") == f"{path}/a"
    for node, stored in ((path, b"data"), (f"{path}/a", b"")):
        data, stat = await zk.get(node)
        assert (data, stat.data_length, stat.ephemeral_owner) == (stored, len(stored), 0)


@pytest.mark.parametrize("with_stat", [False, True])
@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_sequential_create_appends_ten_digits_that_grow(
    zk: Client, path: str, with_stat: bool, ephemeral: bool
) -> None:
    await zk.create(path)
    made = []
    for _ in range(3):
        if with_stat:
            name, stat = await zk.create_and_stat(f"{path}/n-", b"d", ephemeral=ephemeral, sequential=True)
            assert stat.ephemeral_owner == (zk.session_id if ephemeral else 0)
        else:
            name = await zk.create(f"{path}/n-", b"d", ephemeral=ephemeral, sequential=True)
        made.append(name)
    assert made == [f"{path}/n-{number:010d}" for number in range(3)]
    assert sorted(await zk.get_children(path)) == [f"n-{number:010d}" for number in range(3)]


async def test_the_sequence_counts_every_child_created_even_deleted_and_needs_no_prefix(zk: Client, path: str) -> None:
    await zk.create(path)
    await zk.create(f"{path}/plain")
    await zk.delete(f"{path}/plain")
    assert await zk.create(f"{path}/n", sequential=True) == f"{path}/n0000000001"
    assert await zk.create(f"{path}/", sequential=True) == f"{path}/0000000002"


async def test_an_ephemeral_node_has_the_session_as_owner_and_goes_with_it(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as other:
        async with zkwire.connect(server.hosts) as zk:
            await zk.create(path, ephemeral=True)
            owner = zk.session_id
            stat = await other.exists(path)
            assert stat is not None
            assert stat.ephemeral_owner == owner != 0
        await other.sync(path)
        assert await other.exists(path) is None


async def test_a_container_is_deleted_by_the_server_and_no_plain_node(zk: Client, path: str) -> None:
    assert await zk.create(path, b"c", container=True) == path
    made, stat = await zk.create_and_stat(f"{path}/inner", b"cc", container=True)
    assert made == f"{path}/inner"
    assert (stat.ephemeral_owner, stat.data_length, stat.version) == (0, 2, 0)
    assert (await zk.get(path)).data == b"c"


async def test_create_and_stat_gives_the_stat_that_exists_shows(zk: Client, path: str) -> None:
    for kind, options in enumerate([PLAIN, EPHEMERAL, CONTAINER, SEQUENTIAL]):
        made, stat = await zk.create_and_stat(f"{path}{kind}", b"abc", **options)
        assert stat == await zk.exists(made)


async def test_create_is_refused_if_the_node_exists(zk: Client, path: str) -> None:
    await zk.create(path)
    for create in (zk.create, zk.create_and_stat):
        for options in (PLAIN, EPHEMERAL, CONTAINER):
            with pytest.raises(zkwire.NodeExistsError, match=path) as refused:
                await create(path, **options)
            assert (refused.value.code, refused.value.path) == (-110, path)
    with pytest.raises(zkwire.NodeExistsError):
        await zk.create("/")


async def test_create_is_refused_without_a_parent_and_below_an_ephemeral_node(zk: Client, path: str) -> None:
    ephemeral = await zk.create(f"{path}-e", ephemeral=True)
    for call, parent, code in (
        (zk.create, path, -101),
        (zk.create_and_stat, path, -101),
        *((call, ephemeral, -108) for call in (zk.create, zk.create_and_stat, zk.ensure_path)),
    ):
        with pytest.raises(zkwire.ServerError) as refused:
            await call(f"{parent}/b")
        assert (refused.value.code, refused.value.path) == (code, f"{parent}/b")
    assert await zk.exists(path) is None


async def test_create_is_refused_with_an_invalid_acl(zk: Client, path: str) -> None:
    for acl in ([], [zkwire.ACL(31, "no-such-scheme", "x")], [zkwire.ACL(31, "ip", "not-an-address")]):
        with pytest.raises(zkwire.InvalidACLError) as refused:
            await zk.create(path, acl=acl)
        assert refused.value.code == -114
    assert await zk.exists(path) is None


async def test_the_server_enforces_the_acl_of_a_create(zk: Client, path: str) -> None:
    await zk.create(path, b"locked", acl=zkwire.READ_ONLY_ACL)
    assert (await zk.get(path)).data == b"locked"
    for refused in (zk.set(path, b""), zk.create(f"{path}/child"), zk.create_and_stat(f"{path}/child")):
        with pytest.raises(zkwire.NoAuthError) as error:
            await refused
        assert error.value.code == -102
    hidden = f"{path}-hidden"
    await zk.create(hidden, acl=[zkwire.ACL(zkwire.Perms.ADMIN, "world", "anyone")])
    for refused_read in (zk.get(hidden), zk.get_children(hidden), zk.get_children_and_stat(hidden)):
        with pytest.raises(zkwire.NoAuthError):
            await refused_read


async def test_create_makes_missing_parents_with_make_parents(zk: Client, path: str) -> None:
    assert await zk.create(f"{path}/a/b", b"x", make_parents=True) == f"{path}/a/b"
    assert (await zk.get(f"{path}/a")).data == b""
    made, _ = await zk.create_and_stat(f"{path}/c/d/n-", ephemeral=True, sequential=True, make_parents=True)
    assert made == f"{path}/c/d/n-0000000000"
    stat = await zk.exists(f"{path}/c/d")
    assert stat is not None
    assert stat.ephemeral_owner == 0
    assert await zk.create(f"{path}/e/f/", sequential=True, make_parents=True) == f"{path}/e/f/0000000000"
    with pytest.raises(zkwire.NodeExistsError):
        await zk.create(f"{path}/a/b", make_parents=True)


async def test_missing_parents_get_the_acl_of_the_node(zk: Client, path: str) -> None:
    await zk.create(f"{path}/a/b", acl=[zkwire.ACL(NO_DELETE, "world", "anyone")], make_parents=True)
    for node in (f"{path}/a/b", f"{path}/a"):  # to delete a child, the parent's permission counts
        with pytest.raises(zkwire.NoAuthError):
            await zk.delete(node)


# ensure_path


async def test_ensure_path_creates_missing_nodes_and_keeps_existing_ones(zk: Client, path: str) -> None:
    await zk.create(path, b"kept")
    await zk.ensure_path(f"{path}/a/b/c")
    await zk.ensure_path(f"{path}/a/b/c")
    await zk.ensure_path(path)
    await zk.ensure_path("/")
    await zk.ensure_path(f"{path}/container", container=True)
    assert sorted(await zk.get_children(path)) == ["a", "container"]
    assert (await zk.get(path)).data == b"kept"
    assert await zk.exists(f"{path}/a/b/c") is not None


async def test_several_clients_may_ensure_the_same_path_at_the_same_time(zk: Client, other: Client, path: str) -> None:
    await asyncio.gather(*(client.ensure_path(f"{path}/a/b/c") for client in (zk, other) for _ in range(20)))
    assert await zk.get_children(f"{path}/a/b") == ["c"]


async def test_ensure_path_of_existing_nodes_needs_no_permission_to_create(zk: Client, path: str) -> None:
    async with zk.transaction() as tx:
        tx.create(path)
        tx.create(f"{path}/a")
    await zk.set_acl(path, zkwire.READ_ONLY_ACL)
    await zk.ensure_path(f"{path}/a")
    locked = f"{path}-locked"
    await zk.create(locked, acl=zkwire.READ_ONLY_ACL)
    with pytest.raises(zkwire.NoAuthError) as refused:
        await zk.ensure_path(f"{locked}/a/b")
    assert refused.value.path == f"{locked}/a"


# exists, get, get_children


async def test_reads_and_writes_of_a_missing_node_are_refused(server: Server, zk: Client, path: str) -> None:
    for call in (
        zk.get(path),
        zk.get_and_watch(path),
        zk.get_children(path),
        zk.get_children_and_stat(path),
        zk.get_children_and_watch(path),
        zk.set(path, b""),
        zk.delete(path),
    ):
        with pytest.raises(zkwire.NoNodeError, match=path) as refused:
            await call
        assert (refused.value.code, refused.value.path, refused.value.server) == (-101, path, server.hosts)
        shown = ("-101", refused.value.operation or "none", server.hosts)
        assert all(part in str(refused.value) for part in shown)


async def test_get_children_returns_names_and_the_stat_of_the_parent(zk: Client, path: str) -> None:
    await zk.create(path, b"12345")
    assert await zk.get_children(path) == []
    for name in ("b", "a", "c"):
        await zk.create(f"{path}/{name}")
    await zk.create(f"{path}/a/deeper")
    names, stat = await zk.get_children_and_stat(path)
    assert sorted(names) == sorted(await zk.get_children(path)) == ["a", "b", "c"]
    assert (stat.num_children, stat.data_length) == (3, 5)
    names, watch = await zk.get_children_and_watch(path)
    assert sorted(names) == ["a", "b", "c"]
    watch.cancel()


async def test_the_root_can_be_read(zk: Client) -> None:
    assert "zookeeper" in await zk.get_children("/")
    assert (await zk.get("/")).data == b""
    assert await zk.exists("/") is not None
    await zk.sync("/")


# Stat


async def test_the_stat_of_a_new_node(zk: Client, path: str) -> None:
    _, stat = await zk.create_and_stat(path, b"abc")
    assert stat.czxid == stat.mzxid == stat.pzxid == zk.last_zxid > 0
    assert stat.ctime == stat.mtime > 1_600_000_000_000  # milliseconds, after 2020
    assert (stat.version, stat.cversion, stat.aversion) == (0, 0, 0)
    assert (stat.ephemeral_owner, stat.data_length, stat.num_children) == (0, 3, 0)


async def test_set_changes_version_mzxid_mtime_and_length_alone(zk: Client, path: str) -> None:
    _, before = await zk.create_and_stat(path, b"abc")
    after = await zk.set(path, b"")
    assert after.mtime >= before.mtime
    assert after.mzxid == zk.last_zxid > before.mzxid
    expected = dataclasses.replace(before, version=1, mzxid=after.mzxid, mtime=after.mtime, data_length=0)
    assert after == expected == await zk.exists(path)


async def test_children_change_cversion_pzxid_and_their_number_alone(zk: Client, path: str) -> None:
    _, fresh = await zk.create_and_stat(path)
    _, child = await zk.create_and_stat(f"{path}/a")
    with_child = await zk.exists(path)
    assert with_child == dataclasses.replace(fresh, cversion=1, num_children=1, pzxid=child.czxid)
    await zk.set(f"{path}/a", b"changes nothing above")
    await zk.create(f"{path}/a/deeper")
    await zk.delete(f"{path}/a/deeper")
    assert await zk.exists(path) == with_child
    await zk.delete(f"{path}/a")
    without = await zk.exists(path)
    assert without == dataclasses.replace(fresh, cversion=2, num_children=0, pzxid=zk.last_zxid)


# set, delete


async def test_set_replaces_the_data_if_the_version_is_right(zk: Client, path: str) -> None:
    await zk.create(path, b"0")
    assert (await zk.set(path, b"1")).version == 1
    assert (await zk.set(path, b"22", 1)).version == 2
    assert (await zk.set(path, b"333", version=-1)).data_length == 3
    for wrong in (0, 2, 4, -2, 2**31 - 1, -(2**31)):
        with pytest.raises(zkwire.BadVersionError, match=path) as refused:
            await zk.set(path, b"no", wrong)
        assert (refused.value.code, refused.value.path) == (-103, path)
    assert (await zk.get(path)).data == b"333"


async def test_a_bytearray_is_sent_as_it_was_at_the_call(zk: Client, path: str) -> None:
    data: Any = bytearray(b"before")
    transaction = zk.transaction()
    transaction.create(path, data)
    transaction.create(f"{path}/child")
    transaction.set(f"{path}/child", data)
    data[:] = b"after"
    await transaction.commit()
    assert (await zk.get(path)).data == (await zk.get(f"{path}/child")).data == b"before"


async def test_delete_removes_the_node_if_the_version_is_right(zk: Client, path: str) -> None:
    await zk.create(path)
    await zk.set(path, b"")
    for wrong in (0, 2, -2):
        with pytest.raises(zkwire.BadVersionError) as refused:
            await zk.delete(path, wrong)
        assert (refused.value.code, refused.value.path) == (-103, path)
    await zk.delete(path, 1)
    assert await zk.exists(path) is None


async def test_delete_is_refused_for_nodes_with_children_and_for_the_servers_own(
    server: Server, zk: Client, path: str
) -> None:
    await zk.create(f"{path}/child", make_parents=True)
    with pytest.raises(zkwire.NotEmptyError, match=path) as refused:
        await zk.delete(path)
    assert (refused.value.code, refused.value.path) == (-111, path)
    with pytest.raises(zkwire.BadVersionError):  # the server checks the version first
        await zk.delete(path, 7)
    for protected in ("/", "/zookeeper"):
        with pytest.raises(zkwire.BadArgumentsError) as protected_refusal:
            await zk.delete(protected)
        assert protected_refusal.value.code == -8


async def test_discard_deletes_and_never_fails(zk: Client, path: str) -> None:
    await zk.create(f"{path}/child", make_parents=True)
    await zk.discard(path)  # not empty: logged
    assert await zk.exists(path) is not None
    await zk.discard(f"{path}/child")
    await zk.discard(f"{path}/child")
    zk.discard(path)  # sent in the order of the calls
    assert await zk.exists(path) is None


# Data and names


async def test_null_data_is_read_as_empty_bytes(zk: Client, path: str) -> None:
    async with zk.transaction() as tx:
        tx.create(path, None)
    node, watch = await zk.get_and_watch(path)
    watch.cancel()
    assert node.data == (await zk.get(path)).data == b""
    assert node.stat.data_length == 0
    async with zk.transaction() as tx:
        tx.set(path, b"x")
        tx.set(path, None)
    assert (await zk.get(path)).data == b""


@pytest.mark.parametrize(
    "name",
    ["é", "中文", "Ünïcode name", "a b", "\u00a0", "\ud7ff", "\uf900", "\uffef", "...", ".a", "a.", "a..b", "%2F", "~"],
)
async def test_unusual_names_that_the_server_accepts(zk: Client, path: str, name: str) -> None:
    node = f"{path}/{name}"
    assert await zk.create(node, name.encode(), make_parents=True) == node
    assert await zk.get_children(path) == [name]
    stat, watch = await zk.exists_and_watch(node)
    assert stat is not None
    await zk.set(node, b"")
    assert (await watch).path == node
    assert await zk.create(f"{node}-", sequential=True) == f"{node}-0000000001"
    await zk.delete(node)


# sync, ping, the session's own facts


async def test_a_read_after_a_sync_shows_earlier_writes_of_other_clients(zk: Client, other: Client, path: str) -> None:
    await other.create(path, b"seen")
    _, (data, _) = await asyncio.gather(zk.sync(path), zk.get(path))
    assert data == b"seen"
    await zk.sync(f"{path}/not/there")


async def test_the_properties_of_a_client_describe_its_session(server: Server) -> None:
    async with zkwire.connect(f"{server.hosts}/", session_timeout=4.0) as zk:
        assert zk.session_id != 0
        assert len(zk.session_password) == 16
        assert zk.session_timeout == 4.0
        assert zk.state is zkwire.SessionState.CONNECTED
        assert zk.server == server.hosts
        assert zk.chroot == ""  # that of a single slash is none
        loop = asyncio.get_running_loop()
        assert loop.time() < zk.certain_until <= loop.time() + 4.0


async def test_the_server_bounds_the_session_timeout(server: Server) -> None:
    async with zkwire.connect(server.hosts, session_timeout=0.2) as short:
        assert short.session_timeout == 1.0
    async with zkwire.connect(server.hosts, session_timeout=3600.0) as long:
        assert long.session_timeout == 60.0


async def test_last_zxid_grows_with_writes_even_refused_ones_and_not_with_reads(zk: Client, path: str) -> None:
    await zk.sync("/")
    seen = [zk.last_zxid]
    await zk.create(path)
    seen.append(zk.last_zxid)
    with pytest.raises(zkwire.NodeExistsError):
        await zk.create(path)
    seen.append(zk.last_zxid)
    assert seen == sorted(set(seen))

    async def reads_leave_it() -> bool:
        before = zk.last_zxid
        await zk.get(path)
        await zk.ping()
        return zk.last_zxid == before

    await eventually(reads_leave_it)  # not at once while sessions of other tests end
