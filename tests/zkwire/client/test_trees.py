"""The creation of a path, and the deletion of a tree by a client whose server, or other clients, create without end."""

import asyncio
import contextlib
import gc
import itertools
import struct
import weakref
from functools import partial
from typing import Any

import pytest

import zkwire
from tests.support.client import memory_below, no_collector, turns
from tests.support.everywhere import no_watch_stays
from tests.support.examples import some_in_quick
from tests.support.rogue import Behaviour, Rogue, honest
from zkwire.client import trees as module
from zkwire.testing import Server

MiB = 1 << 20
DELETE, GET_CHILDREN, GET_CHILDREN2 = 2, 8, 12
STAT = bytes(68)


def endless(names: list[bytes]) -> Behaviour:
    """Return a behaviour: every node has children of these names, and every transaction is refused."""
    children = struct.pack(">i", len(names)) + b"".join(struct.pack(">i", len(name)) + name for name in names)
    bodies = {GET_CHILDREN: children, GET_CHILDREN2: children + STAT}
    return partial(honest, body=lambda request: bodies.get(request.opcode))


@pytest.mark.limit(30)
@pytest.mark.parametrize(
    "names", some_in_quick([[b"a"], [b"%06d" % number for number in range(1_000)]], 1), ids=["deep", "wide"]
)
async def test_an_endless_tree_is_given_up_in_bounded_memory(
    names: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LISTED", MiB)
    async with Rogue(endless(names)) as server, zkwire.connect(server.hosts) as zk:
        refused = pytest.raises(zkwire.ZooKeeperError, match=r"/tree: the tree has too many nodes .* one by one")
        with memory_below(16 * MiB), refused:
            await zk.delete_tree("/tree")
        await zk.ping()


async def test_a_tree_of_the_largest_size_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server() as server, zkwire.connect(server.hosts + "/app") as zk:
        await zk.ensure_path("/tree")
        for first, second in itertools.product("abc", "defg"):
            await zk.create(f"/tree/{first}/{second}", make_parents=True)
        nodes = [f"/app/tree/{first}" for first in "abc"]
        nodes += [f"{node}/{second}" for node in nodes for second in "defg"]
        size = sum(len(node) + module._NODE_SIZE for node in nodes)
        monkeypatch.setattr(module, "_MOST_LISTED", size - 1)
        with pytest.raises(zkwire.ZooKeeperError, match=r"^/tree: the tree"):
            await zk.delete_tree("/tree")
        monkeypatch.setattr(module, "_MOST_LISTED", size)
        await zk.delete_tree("/tree")
        assert await zk.get_children("/") == []


async def planted(zk: zkwire.Client) -> list[str]:
    """Create a tree of three levels, and return its paths."""
    nodes = ["/tree", "/tree/a", "/tree/b", "/tree/a/1", "/tree/b/1"]
    for node in nodes:
        await zk.create(node)
    return nodes


@pytest.mark.parametrize("error", [zkwire.ThrottledError, zkwire.MarshallingError])
async def test_a_refused_listing_ends_the_deletion_and_nothing_is_deleted(error: type[zkwire.ServerError]) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        nodes = await planted(zk)
        with server.answering("getChildren", error, path="/tree/b"), pytest.raises(error) as refused:
            await zk.delete_tree("/tree")
        assert refused.value.path == "/tree/b"
        for node in nodes:
            assert await zk.exists(node) is not None
        await no_watch_stays(server.hosts)


async def test_a_refused_transaction_is_followed_by_deletes_one_by_one() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        nodes = await planted(zk)
        for error in (zkwire.ThrottledError, zkwire.NotEmptyError):
            with (
                server.answering("multi", error) as refused,
                server.delay_replies(0, "delete", session=zk.session_id) as deletes,
            ):
                await zk.delete_tree("/tree")
            assert (refused.hits, deletes.hits) == (1, len(nodes))
            assert await zk.exists("/tree") is None
            await planted(zk)


async def test_a_tree_that_cannot_be_emptied_is_given_up_after_some_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROUNDS", 3)
    async with Server() as server, zkwire.connect(server.hosts + "/app") as zk:
        await zk.ensure_path("/")
        await planted(zk)
        with (
            server.answering("multi", zkwire.ThrottledError),
            server.answering("delete", zkwire.NotEmptyError, path="/app/tree/a") as refused,
            pytest.raises(zkwire.NotEmptyError, match="nodes are created below it as fast as they are del") as given_up,
        ):
            await zk.delete_tree("/tree")
        assert refused.hits == 2
        assert given_up.value.path == "/tree/a"
        assert await zk.get_children("/tree") == ["a"]
        with (
            server.answering("multi", zkwire.ThrottledError),
            server.answering("delete", zkwire.ThrottledError, path="/app/tree/a") as refused,
            pytest.raises(zkwire.ThrottledError) as throttled,
        ):
            await zk.delete_tree("/tree")
        assert (refused.hits, throttled.value.path) == (1, "/tree/a")
        assert "as fast as" not in str(throttled.value)


async def test_no_more_nodes_are_listed_at_a_time_than_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_UNANSWERED", 2)
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/tree")
        for number in range(5):
            await zk.create(f"/tree/{number}")
        async with server.hold_replies("getChildren", session=zk.session_id, nth=2) as held:
            task = asyncio.create_task(zk.delete_tree("/tree"))
            await held.until_hit(2)  # after the list of the tree's own children
            for _ in range(3):
                await zkwire.four_letter_word(server.hosts, "ruok")
            assert held.hits == 2
        await task
        assert await zk.exists("/tree") is None


async def test_ensure_path_looks_first_and_creates_what_is_missing() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        counting = partial(server.delay_replies, 0, session=zk.session_id)
        for path, counts in (("/a/b", (2, 2)), ("/a/b", (2, 0)), ("/a/b/c/d", (4, 2)), ("/", (0, 0))):
            with counting("exists") as looks, counting("create") as creates:
                await zk.ensure_path(path, container=path == "/a/b")
            assert (looks.hits, creates.hits) == counts
        owners = [server._machine.tree.nodes[path].owner for path in ("/a", "/a/b", "/a/b/c/d")]
        assert owners == [0, -(2**63), 0]  # only the node itself becomes a container
        # No server that can write, and no permission, is needed where all is there.
        with server.answering("create", zkwire.NotReadOnlyError):
            await zk.ensure_path("/a/b/c")
            with pytest.raises(zkwire.NotReadOnlyError):
                await zk.ensure_path("/a/x")


async def test_ensure_path_looks_again_after_a_lost_connection_and_if_a_node_above_is_gone() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        for path, fault in (
            ("/a/b", server.drop_before("create", path="/a/b")),
            ("/c/d", server.drop_after("create", path="/c/d")),
            ("/e/f", server.answering("create", zkwire.NoNodeError, path="/e/f", times=1)),
        ):
            with fault:
                await zk.ensure_path(path)
            assert (await zk.exists(path), fault.hits) != (None, 0)
        refusing = server.answering("create", zkwire.NoNodeError, path="/g", times=2)
        with refusing, pytest.raises(zkwire.NoNodeError, match=r"\[[^(]*$"):  # without a hint at a chroot
            await zk.create("/g", make_parents=True)  # it creates the parents once
        assert refusing.hits == 2
        # Before the server looks whether the node exists, it checks the permission to create it.
        for path, missing in (("/a/b", "/a/b"), ("/a/new", "/a")):
            with (
                server.answering("exists", zkwire.NoNodeError, times=2),
                server.answering("create", zkwire.NoAuthError, path=missing),
            ):
                await zk.ensure_path(path)


async def test_an_error_is_no_part_of_a_reference_cycle() -> None:
    left: list[weakref.ref[Any]] = []
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await planted(zk)
        gc.collect()
        with no_collector():
            for verb, path, refusals in (
                (zk.delete_tree, "/tree", {"multi": zkwire.ThrottledError, "delete": zkwire.NoAuthError}),
                (zk.delete_tree, "/tree", {"multi": zkwire.ThrottledError, "delete": zkwire.NotEmptyError}),
                (zk.delete_tree, "/tree", {"getChildren": zkwire.ThrottledError}),
                (zk.ensure_path, "/x/y", {"create": zkwire.NoAuthError}),
                (zk.get, "/none", {}),
            ):
                with contextlib.ExitStack() as stack:
                    for operation, error in refusals.items():
                        stack.enter_context(server.answering(operation, error, nth=1 + (operation == "getChildren")))
                    try:
                        await verb(path)
                    except zkwire.ServerError as caught:
                        left.append(weakref.ref(caught))
            left.append(weakref.ref((await zk.pipeline([zkwire.GetData("/none")]))[0]))  # a result, too
            await turns()
            assert [each() for each in left] == [None] * 6
