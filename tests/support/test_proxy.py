"""The proxy against a real server, driven by a client of a few lines of struct on a bare socket."""

import asyncio
import socket
import struct

import pytest

from tests.support.client import turns
from tests.support.proxy import Frame, Proxy
from tests.support.raw_client import (
    AUTH,
    CLOSE_SESSION,
    NO_NODE,
    PING,
    RawClient,
    create,
    delete,
    exists,
    get_data,
    string,
)
from zkwire.testing import RealServer


async def has_read(proxy: Proxy, count: int) -> None:
    await proxy.until(lambda: proxy.reads == count)


async def is_there(zookeeper: RealServer, path: str) -> bool:
    async with RawClient(zookeeper.hosts) as witness:
        return (await witness.call(exists(path))).err == 0


# The record.


async def test_frames_are_recorded_both_ways(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        await client.call(create(path, b"data"))
        assert (await client.call(get_data(path))).body[:8] == struct.pack(">i", 4) + b"data"
        assert (await client.call(get_data(path + "x"))).err == NO_NODE
        assert [(f.direction, f.opcode, f.xid, f.err, f.path) for f in proxy.log] == [
            ("request", "connect", 0, 0, ""),
            ("reply", "connect", 0, 0, ""),
            ("request", "create", 1, 0, path),
            ("reply", "create", 1, 0, path),
            ("request", "getData", 2, 0, path),
            ("reply", "getData", 2, 0, path),
            ("request", "getData", 3, 0, path + "x"),
            ("reply", "getData", 3, NO_NODE, path + "x"),
        ]
        assert proxy.requests() == ["connect", "create", "getData", "getData"]
        assert proxy.log[3].body == string(path)
        assert proxy.log[5].zxid == proxy.log[3].zxid > 0
        assert {f.connection for f in proxy.log} == {1}
        assert not any(f.dropped for f in proxy.log)


async def test_an_event_is_recorded_with_its_type_and_path(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        await client.call(create(path))
        await client.call(exists(path, watch=True))
        await client.call(delete(path))
        event = await proxy.seen("NodeDeleted", direction="event")
        assert (event.xid, event.path) == (-1, path)
        assert proxy.events() == [("NodeDeleted", path)]


async def test_pings_are_matched_and_left_out_of_the_requests(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        mark = proxy.mark()
        await client.send_bytes(client.request((PING, b""), xid=-2) + client.request(exists("/")))
        assert [(await client.reply()).xid for _ in range(2)] == [-2, 1]
        assert proxy.requests(mark) == ["exists"]
        assert proxy.requests(mark, ignore_pings=False) == ["ping", "exists"]
        assert [f.opcode for f in proxy.log[mark:] if f.direction == "reply"] == ["ping", "exists"]


async def test_the_reply_to_auth_is_matched_wherever_it_comes(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        mark = proxy.mark()
        auth = (AUTH, struct.pack(">i", 0) + string("digest") + string("user:password"))
        await client.send_bytes(client.request(exists("/")) + client.request(auth, xid=-4))
        await client.reply()
        await client.reply()
        replies = [(f.opcode, f.xid) for f in proxy.log[mark:] if f.direction == "reply"]
        assert sorted(replies) == [("auth", -4), ("exists", 1)]


async def test_separate_writes_are_counted(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        together = proxy.mark()
        await client.send(exists("/"), exists("/zookeeper"))
        await client.reply()
        await client.reply()
        assert (proxy.writes(together), proxy.segments(together)) == (1, 1)
        apart = proxy.mark()
        await client.call(exists("/"))
        await client.call(exists("/zookeeper"))
        assert (proxy.writes(apart), proxy.segments(apart)) == (2, 2)


async def test_a_frame_in_single_bytes_is_put_together(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        mark = proxy.mark()
        for count, byte in enumerate(client.request(exists("/")), start=proxy.reads + 1):
            await client.send_bytes(bytes([byte]))
            await has_read(proxy, count)
        assert (await client.reply()).err == 0
        assert proxy.requests(mark) == ["exists"]


async def test_a_four_letter_word_passes(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        client = RawClient(proxy.hosts)
        await client.connect()
        await client.send_bytes(b"srvr")
        answer = b""
        while piece := await client.receive():
            answer += piece
        client.socket.close()
        assert answer.startswith(b"Zookeeper version")
        assert proxy.requests() == ["srvr"]


async def test_the_end_of_a_connection_passes_both_ways(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        async with RawClient(proxy.hosts) as client:
            assert (await client.call((CLOSE_SESSION, b""))).err == 0
            assert await client.receive() == b""
        await proxy.until(lambda: proxy.open == 0)
        client = RawClient(proxy.hosts)
        await client.connect()
        client.socket.shutdown(socket.SHUT_WR)
        assert await client.receive() == b""
        client.socket.close()
        await proxy.until(lambda: proxy.open == 0)


async def test_a_server_that_is_down_looks_like_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with Proxy(f"127.0.0.1:{port}") as proxy:
        client = RawClient(proxy.hosts)
        await client.connect()
        with pytest.raises(ConnectionResetError):
            await client.receive()
        client.socket.close()


# Cuts.


@pytest.mark.parametrize("reset", [False, True])
async def test_a_drop_after_swallows_the_reply_to_what_was_applied(
    zookeeper: RealServer, path: str, reset: bool
) -> None:
    first, second, third = path + "-1", path + "-2", path + "-3"
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        mark = proxy.mark()
        lost = proxy.drop_after("create", nth=2, reset=reset)
        await client.call(create(first))
        await client.send(create(second), create(third))
        if reset:
            with pytest.raises(ConnectionResetError):
                await client.receive()
        else:
            assert await client.receive() == b""
        await lost.until_hit()
        reply = await proxy.seen(lambda frame: frame.path == second, direction="reply")
        assert reply.dropped
        assert proxy.requests(mark) == ["create"] * 3
        dropped = [f.dropped for f in proxy.log[mark:] if f.direction == "request"]
        assert dropped == [False, False, True]
        assert [await is_there(zookeeper, path) for path in (first, second, third)] == [True, True, False]


async def test_the_connect_response_can_be_swallowed(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        lost = proxy.drop_after("connect")
        client = RawClient(proxy.hosts)
        await client.connect()
        with pytest.raises(EOFError):
            await client.handshake()
        client.socket.close()
        await lost.until_hit()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_drop_before_keeps_the_request_from_the_server(zookeeper: RealServer, path: str, reset: bool) -> None:
    first, second = path + "-1", path + "-2"
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        lost = proxy.drop_before("create", nth=2, reset=reset)
        await client.call(create(first))
        await client.send(create(second))
        await lost.until_hit()
        assert proxy.log[-1].path == second
        assert proxy.log[-1].dropped
        if reset:
            with pytest.raises(ConnectionResetError):
                await client.receive()
        else:
            assert await client.receive() == b""
    assert await is_there(zookeeper, first)
    assert not await is_there(zookeeper, second)


async def test_fin_stays_fin_when_the_client_goes_on_writing(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        lost = proxy.drop_before("create")
        await client.send(create(path), *[exists("/" + "x" * 10_000)] * 200)
        assert await client.receive() == b""
        await lost.until_hit()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_drop_ends_all_present_connections(zookeeper: RealServer, reset: bool) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as one, RawClient(proxy.hosts) as two:
        await proxy.connected(2)
        proxy.drop(reset=reset)
        for client in (one, two):
            if reset:
                with pytest.raises(ConnectionResetError):
                    await client.receive()
            else:
                assert await client.receive() == b""
        async with RawClient(proxy.hosts) as client:
            assert (await client.call(exists("/"))).err == 0
        assert proxy.connections == 3


# Holding, pausing, refusing.


async def test_held_replies_come_in_order(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        await client.call(exists(path, watch=True))
        hold = proxy.hold_replies()
        mark = proxy.mark()
        await client.send(create(path), exists(path), delete(path))
        await proxy.seen("delete", mark, direction="reply")
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        hold.release()
        assert [(await client.reply()).xid for _ in range(4)] == [-1, 2, 3, 4]
        assert (await client.call(exists(path))).err == NO_NODE


async def test_a_cut_is_held_with_the_replies_in_front_of_it(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        hold = proxy.hold_replies()
        lost = proxy.drop_after("create")
        await client.send(exists("/"), create(path))
        await proxy.seen("create", direction="reply")
        assert not lost.hits
        hold.release()
        await lost.until_hit()
        assert (await client.reply()).xid == 1
        assert await client.receive() == b""


async def test_held_replies_are_lost_in_a_cut(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        proxy.hold_replies()
        await client.send(create(path))
        reply = await proxy.seen("create", direction="reply")
        assert not reply.dropped
        proxy.drop()
        assert reply.dropped
        assert await client.receive() == b""
    assert await is_there(zookeeper, path)


async def test_the_end_of_a_server_is_held_after_its_replies(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        hold = proxy.hold_replies()
        await client.send((CLOSE_SESSION, b""))
        await proxy.until(lambda: proxy._pairs[0].server.got_eof)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        hold.release()
        assert (await client.reply()).err == 0
        assert await client.receive() == b""


async def test_nothing_passes_in_a_pause(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        proxy.pause()
        mark = proxy.mark()
        await client.send(create(path))
        late = RawClient(proxy.hosts)
        await late.connect()
        await proxy.connected(2)
        shaking = asyncio.create_task(late.handshake())
        for _ in range(5):
            assert not await is_there(zookeeper, path)
        assert proxy.mark() == mark
        proxy.resume()
        assert (await client.reply()).body == string(path)
        await shaking
        late.socket.close()


async def test_a_client_that_leaves_in_a_pause_is_noticed_afterwards(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy:
        async with RawClient(proxy.hosts):
            proxy.pause()
        assert not await is_there(zookeeper, path)
        assert proxy.open == 1
        proxy.resume()
        await proxy.until(lambda: proxy.open == 0)


async def test_refused_connections_are_counted_apart(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        refusal = proxy.refuse_connections()
        refused = RawClient(proxy.hosts)
        await refused.connect()
        with pytest.raises(ConnectionResetError):
            await refused.receive()
        refused.socket.close()
        await proxy.until(lambda: proxy.refused == 1)
        assert (await client.call(exists("/"))).err == 0
        refusal.end()
        async with RawClient(proxy.hosts) as later:
            assert (await later.call(exists("/"))).err == 0
        assert proxy.connections == 2


# Waits and the end.


async def test_seen_finds_the_first_match_after_the_mark(zookeeper: RealServer) -> None:
    async with Proxy(zookeeper.hosts) as proxy, RawClient(proxy.hosts) as client:
        await client.call(exists("/"))
        assert (await proxy.seen("exists")).path == "/"
        mark = proxy.mark()
        waiting = asyncio.create_task(proxy.seen("exists", mark))
        await client.call(exists("/zookeeper"))
        assert (await waiting).path == "/zookeeper"

        def is_reply(frame: Frame) -> bool:
            return frame.direction == "reply"

        assert (await proxy.seen(is_reply, mark)).opcode == "exists"


async def test_closing_ends_connections_waits_and_faults_and_leaves_no_task(zookeeper: RealServer) -> None:
    before = asyncio.all_tasks()
    async with Proxy(zookeeper.hosts) as proxy:
        client = RawClient(proxy.hosts)
        await client.__aenter__()
        waiting = asyncio.create_task(proxy.seen("delete"))
        idle = asyncio.create_task(proxy.drop_before("delete").until_hit())
        proxy.hold_replies()
        pending = asyncio.create_task(proxy.drop_after("exists").until_hit())
        await client.send(exists("/"))
        await proxy.seen("exists", direction="reply")
        dialling = RawClient(proxy.hosts)
        await dialling.connect()
    with pytest.raises(ConnectionAbortedError):
        await waiting
    for fault in (idle, pending):
        with pytest.raises(ConnectionAbortedError):
            await fault
    with pytest.raises(ConnectionResetError):
        await client.receive()
    client.socket.close()
    dialling.socket.close()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("count", range(5))
async def test_closing_waits_for_a_connection_that_was_accepted_just_now(zookeeper: RealServer, count: int) -> None:
    before = asyncio.all_tasks()
    async with Proxy(zookeeper.hosts) as proxy:
        client = RawClient(proxy.hosts)
        await client.connect()
        await turns(count)
    assert asyncio.all_tasks() == before
    client.socket.close()
