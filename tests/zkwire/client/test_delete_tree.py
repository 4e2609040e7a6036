"""The deletion of a tree by a client whose server, or whose colleagues, make nodes without end."""

import itertools
import struct
import tracemalloc

import pytest

import zkwire
from tests.support.examples import some_in_quick
from tests.support.rogue import Peer, Rogue
from zkwire.client import delete_tree as module
from zkwire.testing import Server

MiB = 1 << 20
DELETE, GET_CHILDREN, GET_CHILDREN2 = 2, 8, 12
STAT = bytes(68)


def endless(names: list[bytes]) -> object:
    """Return a behaviour: every node has children of these names, and every transaction is refused."""
    children = struct.pack(">i", len(names)) + b"".join(struct.pack(">i", len(name)) + name for name in names)

    async def behaviour(peer: Peer) -> None:
        await peer.handshake()
        while True:
            request = await peer.request()
            if request.opcode == GET_CHILDREN:
                await peer.reply(request.xid, children)
            elif request.opcode == GET_CHILDREN2:
                await peer.reply(request.xid, children + STAT)
            else:
                await peer.answer(request)
            if request.opcode == -11:
                return

    return behaviour


@pytest.mark.limit(30)
@pytest.mark.parametrize(
    "names", some_in_quick([[b"a"], [b"%06d" % number for number in range(1_000)]], 1), ids=["deep", "wide"]
)
async def test_a_tree_without_an_end_is_given_up_with_bounded_memory(
    names: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LISTED", MiB)
    async with Rogue(endless(names)) as server, zkwire.connect(server.hosts) as zk:  # type: ignore[arg-type]
        tracemalloc.start()
        try:
            with pytest.raises(zkwire.ZooKeeperError, match=r"/tree: the tree has too many nodes .* one by one"):
                await zk.delete_tree("/tree")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 * MiB
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
