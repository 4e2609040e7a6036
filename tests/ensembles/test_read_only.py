"""Servers without a quorum: used with read_only, left for one that can write, and not relied on for certainty."""

import asyncio
import struct
from functools import partial
from itertools import pairwise

import pytest

import zkwire
from tests.support.client import InOrder, eventually, states_until
from tests.support.rogue import NOT_READ_ONLY, Peer, Rogue, connect_response, eof_handshake, honest
from zkwire import SessionState, WatchEventType
from zkwire.testing import RealEnsemble

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


@pytest.mark.limit(240)
async def test_a_real_ensemble_that_loses_its_quorum_and_finds_it(reconfigurable: RealEnsemble, path: str) -> None:
    async with zkwire.connect(reconfigurable.hosts) as zk:
        await zk.create(path, b"before")
    left, *rest = reconfigurable.servers
    async with zkwire.connect(reconfigurable.hosts, 5.0, read_only=True) as zk:
        states, old = zk.states(), zk.session_id
        for server in rest:
            server.kill()
        # The read-only server does not know the former session: it expires, and a new one begins.
        seen = await states_until(states, READ_ONLY)
        assert seen[0] is CONNECTED
        assert seen[-1] is READ_ONLY
        assert (zk.server, zk.session_id != old) == (left.hosts, True)
        local = zk.session_id
        node, watch = await zk.get_and_watch(path)
        assert node.data == b"before"
        assert await zk.get_children("/") != []
        for refused in (zk.set(path, b""), zk.create(f"{path}-b", ephemeral=True), zk.delete(path), zk.sync("/")):
            with pytest.raises(zkwire.NotReadOnlyError):
                await refused
        assert zk.state is READ_ONLY
        assert zk.certain_for(local) == 0, "no lease may live by the word of a server without a quorum"
        assert (await left.mode(), await left.four_letter_word("isro")) == ("read-only", "ro")
        trying = asyncio.ensure_future(zkwire.connect(left.hosts))  # without read_only it is not used
        await zk.get("/")
        assert not trying.done()
        trying.cancel()
        await asyncio.wait({trying})
        async with asyncio.TaskGroup() as group:
            for server in rest:
                group.create_task(server.start())
        seen = await states_until(states, CONNECTED)
        assert EXPIRED not in seen, "nothing was lost: an ephemeral node cannot have belonged to that session"
        assert zk.session_id not in (old, local)
        await zk.certify()
        assert zk.certain_for(zk.session_id) > 0
        async with zkwire.connect(reconfigurable.hosts) as other:
            await other.set(path, b"after")
        assert (await watch).type is WatchEventType.CHANGED

        async def left_serves() -> bool:  # the client may be at another server, and this one still about to join
            return await left.four_letter_word("isro") == "rw"

        await eventually(left_serves)
        await zk.create(f"{path}-b", ephemeral=True)
        assert (await zk.get(f"{path}-b")).stat.ephemeral_owner == zk.session_id


# With scripted servers, for what does not need a real ensemble.


async def reading_only(peer: Peer, *, keeps: int = 0) -> None:
    """A server without a quorum; `keeps` is the id of a session that it accepts as known, as servers before 3.7 do."""
    handshake = await peer.connect_request()
    assert handshake.read_only
    session_id = handshake.session_id if keeps and handshake.session_id == keeps else peer.rogue.new_session_id()
    await peer.send_frame(connect_response(handshake.timeout, session_id) + b"\1")
    await peer.serve()


async def saying(peer: Peer, *, word: bytes = b"rw") -> None:
    """Answer the word `isro`; treat everything else as a handshake."""
    if await peer.start() == b"isro":
        await peer.send(word)
    else:
        await honest(peer)


async def test_the_client_leaves_a_read_only_server_and_its_session_for_one_that_can_write() -> None:
    async with (
        Rogue(reading_only) as there,
        Rogue(saying) as better,
        zkwire.connect(f"{there.hosts},{better.hosts}", read_only=True, rng=InOrder()) as zk,
    ):
        better.new_session_id()  # read-only servers count zxids by themselves
        states, local = zk.states(), zk.session_id
        assert zk.state is READ_ONLY
        assert await states_until(states, SUSPENDED) == [READ_ONLY, SUSPENDED]
        for session_id, error in ((local, zkwire.NotReadOnlyError), (None, zkwire.UnimplementedError)):
            transaction = zk.transaction(session_id=session_id)
            transaction.check("/")
            with pytest.raises(error):  # the other server knows no transaction
                await transaction.commit()
        assert await states_until(states, CONNECTED) == [CONNECTED]
        assert zk.server == better.hosts
        assert zk.session_id != local
        assert [handshake.session_id for handshake in better.handshakes] == [0]
        assert better.handshakes[0].password == bytes(16)
        assert (await zk.get("/a")).data == b"rogue"


async def test_another_read_only_server_is_asked_again_with_growing_pauses() -> None:
    asked: list[float] = []

    async def not_yet(peer: Peer) -> None:
        asked.append(asyncio.get_running_loop().time())
        await saying(peer, word=b"rw" if len(asked) > 4 else b"ro")

    async with Rogue(reading_only) as there, Rogue(not_yet) as other:
        hosts = f"{there.hosts},127.0.0.1:1,{other.hosts}"  # one cannot be reached at all
        async with zkwire.connect(hosts, read_only=True, rng=InOrder()) as zk:
            await states_until(zk.states(), CONNECTED)
            assert there.connections == 1
            pauses = [later - sooner for sooner, later in pairwise(asked)]
            assert pauses[3] > pauses[0]
            assert sum(pauses) >= 0.1 * (1 + 2 + 4 + 8)  # half of each at least


async def test_a_client_of_a_server_that_can_write_asks_no_other_server() -> None:
    async with (
        Rogue(honest) as there,
        Rogue(saying) as other,
        Rogue(reading_only) as read_only,
        Rogue(partial(saying, word=b"ro")) as other_of_the_next,
        zkwire.connect(f"{there.hosts},{other.hosts}", read_only=True, rng=InOrder()) as zk,
        zkwire.connect(f"{read_only.hosts},{other_of_the_next.hosts}", read_only=True, rng=InOrder()),
    ):
        await other_of_the_next.connected(3)  # the next client asks, and asks again
        assert other.connections == 0
        assert (zk.state, zk.server) == (CONNECTED, there.hosts)


async def test_the_answers_of_a_server_without_a_quorum_do_not_prolong_certainty() -> None:
    """Servers before 3.7 accept a session of the ensemble, although the ensemble may have expired it meanwhile."""

    async def first(peer: Peer) -> None:
        await peer.handshake()
        await peer.answer(await peer.first_request())

    async with Rogue(first, reading_only_keeping) as rogue, zkwire.connect(rogue.hosts, 2.0, read_only=True) as zk:
        await zk.get("/a")
        session_id, certain = zk.session_id, zk.certain_until
        await states_until(zk.states(), READ_ONLY)
        for _ in range(3):
            await zk.get("/a")
        assert zk.session_id == session_id
        assert zk.certain_until == certain
        assert zk.certain_for(session_id) > 0, "what was certain before stays so for its time"


async def test_certify_raises_at_a_server_without_a_quorum_which_it_would_ask_for_ever() -> None:
    async with Rogue(reading_only) as server, zkwire.connect(server.hosts, read_only=True) as zk:
        with pytest.raises(zkwire.NotReadOnlyError, match=f"sync /: .* by {server.hosts}"):
            await zk.certify()


async def reading_only_keeping(peer: Peer) -> None:
    await reading_only(peer, keeps=peer.rogue.handshakes[0].session_id or 0x0F0E000000000001)


async def test_watches_move_to_the_server_that_can_write() -> None:
    armed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def taking(peer: Peer) -> None:
        if await peer.start() == b"isro":
            await peer.send(b"rw")
            return
        await peer.handshake()
        request = await peer.request()
        assert request.opcode in (101, 105)
        armed.set_result(request.body)
        await peer.answer(request)
        await peer.event(3, "/a")
        await peer.serve()

    async with (
        Rogue(reading_only) as there,
        Rogue(taking) as better,
        zkwire.connect(f"{there.hosts},{better.hosts}", read_only=True, rng=InOrder()) as zk,
    ):
        _, watch = await zk.get_and_watch("/a")
        assert (await watch).type is WatchEventType.CHANGED
        assert struct.pack(">i", 2) + b"/a" in await armed
        assert zk.state is CONNECTED


async def test_the_session_of_a_read_only_server_ends_when_no_server_accepts_the_client_pitfall_53() -> None:
    """For example when all servers have lost their data, and refuse clients that have seen newer transactions."""

    async def once(peer: Peer) -> None:
        handshake = await peer.connect_request()
        await peer.send_frame(connect_response(handshake.timeout, peer.rogue.new_session_id()) + b"\1")
        request = await peer.first_request()
        await peer.reply(request.xid, err=NOT_READ_ONLY, zxid=77)

    async with Rogue(once, eof_handshake) as rogue, zkwire.connect(rogue.hosts, 1.0, read_only=True) as zk:
        states = zk.states()
        with pytest.raises(zkwire.NotReadOnlyError):
            await zk.create("/a")
        assert await states_until(states, EXPIRED) == [READ_ONLY, SUSPENDED, EXPIRED]
        assert [handshake.last_zxid for handshake in rogue.handshakes[:2]] == [0, 77]
        await rogue.until(lambda: rogue.handshakes[-1].last_zxid == 0)
        assert {handshake.session_id for handshake in rogue.handshakes} == {0}
