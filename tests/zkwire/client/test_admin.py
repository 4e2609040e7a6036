"""The administrative verbs with a scripted server; with real ones they are tested for conformance and on ensembles."""

import struct

import pytest

import zkwire
from tests.support.rogue import CLOSE_SESSION, GET_DATA, STAT, Peer, Rogue
from zkwire.wire.requests import ReconfigRequest

RECONFIG = ReconfigRequest.opcode
LENGTH = struct.Struct(">i")
NULL = LENGTH.pack(-1)


@pytest.mark.parametrize("data", [None, b"", b"version=7\n"])
async def test_the_configuration_is_the_data_of_its_node_and_null_data_is_read_as_empty(data: bytes | None) -> None:
    answer = (NULL if data is None else LENGTH.pack(len(data)) + data) + STAT
    asked: list[bytes] = []

    async def behaviour(peer: Peer) -> None:
        await peer.handshake()
        while True:
            request = await peer.request()
            if request.opcode in (GET_DATA, RECONFIG):
                asked.append(request.body)
                await peer.reply(request.xid, answer)
            else:
                await peer.answer(request)
            if request.opcode == CLOSE_SESSION:
                return

    async with Rogue(behaviour) as rogue, zkwire.connect(rogue.hosts + "/app") as zk:
        node, node_watch = await zk.get_and_watch("/a")
        assert (node.data, await zk.get("/a")) == (data or b"", node)
        config, watch = await zk.get_config_and_watch()
        assert (config.data, config.stat) == (data or b"", node.stat)
        assert await zk.get_config() == config
        assert config.version == (7 if data else -1)
        assert await zk.reconfig(joining={4: "a:1:2;3"}, leaving=5, from_config=6) == config
        assert await zk.reconfig(members="server.4=a:1:2;3") == config
        watch.cancel()
        node_watch.cancel()
    path = "/zookeeper/config"
    name = LENGTH.pack(len(path)) + path.encode()
    app = LENGTH.pack(6) + b"/app/a"
    server = LENGTH.pack(16) + b"server.4=a:1:2;3"
    assert asked == [
        app + b"\1",
        app + b"\0",
        name + b"\1",
        name + b"\0",
        server + LENGTH.pack(1) + b"5" + NULL + struct.pack(">q", 6),
        NULL + NULL + server + struct.pack(">q", -1),
    ]
