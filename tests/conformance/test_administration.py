"""Administrative verbs: get_ephemerals, count_descendants, get_config and reconfig."""

from typing import Any

import pytest

import zkwire
from tests.support.client import Server, sending_nothing
from zkwire import Client, Create


@pytest.mark.since("3.6", "getEphemerals")
async def test_get_ephemerals_returns_the_nodes_of_this_session_alone(zk: Client, other: Client, path: str) -> None:
    await zk.create(path)
    assert await zk.get_ephemerals() == []
    await zk.pipeline([Create(f"{path}/{name}", ephemeral=True) for name in ("a", "ab", "b")])
    await zk.create(f"{path}/persistent")
    await other.create(f"{path}/another's", ephemeral=True)
    assert sorted(await zk.get_ephemerals()) == [f"{path}/a", f"{path}/ab", f"{path}/b"]
    assert sorted(await zk.get_ephemerals("/")) == [f"{path}/a", f"{path}/ab", f"{path}/b"]
    assert sorted(await zk.get_ephemerals(f"{path}/a")) == [f"{path}/a", f"{path}/ab"]
    assert sorted(await zk.get_ephemerals(f"{path}/")) == [f"{path}/a", f"{path}/ab", f"{path}/b"]
    assert await zk.get_ephemerals(f"{path}/a/") == []
    assert await zk.get_ephemerals(f"{path}/none") == []
    await zk.delete(f"{path}/a")
    assert await zk.get_ephemerals(f"{path}/a") == [f"{path}/ab"]


@pytest.mark.since("3.6", "getEphemerals")
async def test_get_ephemerals_below_a_chroot_returns_nodes_below_it_only(server: Server, zk: Client, path: str) -> None:
    await zk.create(path)
    await zk.create(f"{path}beside")
    for chroot in (path, f"{path}/ephemeral"):
        async with zkwire.connect(f"{server.hosts}{chroot}") as app:
            ours = "/ours" if chroot == path else "/"
            assert await app.create(ours, ephemeral=True) == ours
            # The same session without the chroot, so that it owns a node beside the chroot too.
            resumed = await zkwire.connect(
                server.hosts, session_id=app.session_id, session_password=app.session_password
            )
            await resumed.create(f"{path}beside/ours", ephemeral=True)
            assert len(await resumed.get_ephemerals()) == 2
            assert await app.get_ephemerals() == [ours]
            assert await app.get_ephemerals(ours) == [ours]
            assert await app.get_ephemerals("/none") == []
            await resumed.close(keep_session=True)


@pytest.mark.parametrize("prefix", ["", "a", "//", "/a//", None, 5, b"/"])
async def test_a_bad_prefix_of_get_ephemerals_is_refused_and_nothing_is_sent(server: Server, prefix: Any) -> None:
    async with sending_nothing(server) as zk:
        with pytest.raises((ValueError, TypeError)) as refused:
            await zk.get_ephemerals(prefix)
        assert repr(prefix) in str(refused.value)


@pytest.mark.since("3.6", "getAllChildrenNumber")
async def test_descendants_are_counted_at_every_depth(zk: Client, path: str, app: Client) -> None:
    await zk.create(path)
    assert await zk.count_descendants(path) == 0
    await zk.pipeline([Create(f"{path}{end}") for end in ("/a", "/a/b", "/a/b/c", "/d")])
    await zk.create(f"{path}beside")
    assert await zk.count_descendants(path) == 4
    assert await app.count_descendants("/") == 4
    assert await app.count_descendants("/a/b") == 1
    assert await zk.count_descendants("/zookeeper") == 2
    assert await zk.count_descendants("/") >= 4 + 2 + 3
    with pytest.raises(zkwire.NoNodeError) as refused:
        await app.count_descendants("/none")
    assert refused.value.path == "/none"


async def test_the_configuration_of_a_single_server_is_empty(zk: Client, path: str, app: Client) -> None:
    config = await zk.get_config()
    data, stat = config
    assert (data, config.members, config.version) == (b"", {}, -1)
    assert stat == await zk.exists("/zookeeper/config")
    assert await app.get_config() == config


async def test_reconfig_is_refused_by_a_server_with_the_default_settings(server: Server, zk: Client) -> None:
    for change in ({"leaving": 3}, {"joining": "server.4=a:1:2:observer;3"}, {"members": {1: "a:1:2;3"}}):
        options: dict[str, Any] = change
        with pytest.raises(zkwire.ReconfigDisabledError, match="reconfigEnabled=true"):
            await zk.reconfig(**options)
    await zk.ping()


@pytest.mark.parametrize("bad", [{}, {"joining": 5}, {"leaving": 1, "from_config": -2}], ids=str)
async def test_bad_arguments_of_reconfig_are_refused_and_nothing_is_sent(server: Server, bad: Any) -> None:
    async with sending_nothing(server) as zk:
        with pytest.raises((ValueError, TypeError)):
            await zk.reconfig(**bad)


async def test_the_configuration_can_be_watched_below_a_chroot_too(path: str, app: Client) -> None:
    config, watch = await app.get_config_and_watch()
    assert config == await app.get_config()
    assert watch.path == "/zookeeper/config"
    assert not watch.done()
    with zkwire.WatchSet() as watches:
        assert (await app.get_config_and_watch(into=watches))[0] == config
