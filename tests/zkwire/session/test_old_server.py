"""Servers that lack an operation: they answer -6 before all other answers, and close the connection."""

from collections.abc import Awaitable, Callable

import pytest

import zkwire
from tests.support import rogue
from tests.support.rogue import Peer, Rogue
from zkwire import Client, GetData

# The opcode of each operation, the first version that knows it, and a call.
VERBS: dict[str, tuple[int, str, Callable[[Client], Awaitable[object]]]] = {
    "create_and_stat": (15, "3.5.0", lambda zk: zk.create_and_stat("/a")),
    "reconfig": (16, "3.5.0", lambda zk: zk.reconfig(leaving=1)),
    "create container": (19, "3.5.1", lambda zk: zk.create("/a", container=True)),
    "create ttl": (21, "3.5.3", lambda zk: zk.create("/a", ttl=5)),
    "get_many": (22, "3.6.0", lambda zk: zk.get_many([GetData("/a")])),
    "get_ephemerals": (103, "3.6.0", lambda zk: zk.get_ephemerals()),
    "count_descendants": (104, "3.6.0", lambda zk: zk.count_descendants("/a")),
    "events": (106, "3.6.0", lambda zk: zk.events("/a").__aenter__()),
    "whoami": (107, "3.7.0", lambda zk: zk.whoami()),
}
UNKNOWN = {rogue.SET_WATCHES2, *(opcode for opcode, *_ in VERBS.values())}


async def old(peer: Peer) -> None:
    """ZooKeeper 3.4: the reading thread refuses an unknown operation, before answers that are under way."""
    await peer.handshake()
    while True:
        request = await peer.request()
        if request.opcode in UNKNOWN:
            await peer.reply(request.xid, err=rogue.UNIMPLEMENTED, zxid=-1)
            return
        await peer.answer(request)
        if request.opcode == rogue.CLOSE_SESSION:
            return


@pytest.mark.parametrize("verb", VERBS)
async def test_an_unknown_operation_fails_with_the_version_it_needs_and_the_session_lives(verb: str) -> None:
    opcode, version, call = VERBS[verb]
    async with Rogue(old) as server, zkwire.connect(server.hosts) as zk:
        session = zk.session_id
        with pytest.raises(zkwire.UnimplementedError, match=f"needs ZooKeeper {version} or newer") as refused:
            await call(zk)
        assert refused.value.server == server.hosts
        assert (await zk.get("/a")).data == rogue.DATA
        assert zk.session_id == session
        assert server.connections == 2
        assert [code for _, code in server.requests].count(opcode) == 1


async def test_a_stream_fails_when_its_session_moves_to_a_server_without_such_watches_and_all_else_goes_on() -> None:
    async def newer(peer: Peer) -> None:
        await peer.handshake()
        await peer.reply((await peer.first_request()).xid, bytes(4))

    async with Rogue(newer, old) as server, zkwire.connect(server.hosts) as zk, zk.events("/a") as events:
        session = zk.session_id
        assert (await zk.get("/a")).data == rogue.DATA
        with pytest.raises(zkwire.UnimplementedError, match=r"needs ZooKeeper 3\.6\.0 or newer"):
            await anext(events)
        assert (await zk.get("/a")).data == rogue.DATA
        assert zk.session_id == session
        assert server.connections == 4
