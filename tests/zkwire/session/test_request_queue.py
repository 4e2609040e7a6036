"""The queue of requests: what is written when, and what becomes of each call when the connection breaks."""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import zkwire
from tests.support.client import begun, cancelled, given_up, turns
from tests.support.observer import Records
from tests.support.recipes import outcome
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time
from zkwire import SessionState, WatchEventType, WatchSet
from zkwire.session.request_queue import RequestQueue, RequestTooLargeError
from zkwire.wire.connection import Call
from zkwire.wire.requests import CreateRequest, ExistsRequest


def started(call: Any) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(call)


async def _no_other_watch_is_left(server: Server, zk: zkwire.Client) -> None:
    """Check that the client asks the server to remove its watch on /a at once: it has no further one there."""
    _, watch = await zk.exists_and_watch("/a")
    server.names()
    watch.cancel()
    await zk.ping()
    assert server.names() == ["removeWatches", "ping"]


# -- what is written --------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_requests_of_one_turn_leave_in_one_write_and_no_more_than_may_be_in_flight() -> None:
    async with a_client(max_in_flight=3) as (server, zk):
        server.is_holding = True
        reading = [started(zk.exists(f"/{number}")) for number in range(8)]
        await turns()
        assert [sent.path for sent in server.requests] == ["/0", "/1", "/2"]
        assert len(server.writes) == 1
        server.release()
        await asyncio.gather(*reading)
        assert [sent.path for sent in server.requests] == [f"/{number}" for number in range(8)]
        assert len(server.writes) == 3  # of three, three and two


@in_virtual_time
async def test_four_megabytes_of_large_requests_are_in_flight_and_small_ones_behind_them() -> None:
    """The size of a small one does not count, and the next large one waits for room."""
    async with a_client(request_limit=6_000_000) as (server, zk):
        server.strike = lambda wire, sent: zkwire.NoNodeError.code if sent.path == "/largest" else None
        server.is_holding = True
        large = bytes(1_048_000)
        creating = [started(zk.create(f"/large-{number}", large)) for number in range(4)]
        small = started(zk.create("/small", bytes(3000)))
        more = await begun(zk.create("/more", large))
        first = ["/large-0", "/large-1", "/large-2", "/large-3", "/small"]
        assert [sent.path for sent in server.requests] == first
        server.release()
        await asyncio.gather(*creating, small, more)
        assert [sent.path for sent in server.requests] == [*first, "/more"]
        with pytest.raises(zkwire.NoNodeError):  # it is sent alone
            await zk.set("/largest", bytes(5_000_000))


@in_virtual_time
async def test_nothing_is_written_while_the_socket_is_full_and_all_of_it_afterwards() -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        server.requests.clear()
        server.wire.fill()
        reading = await begun(zk.exists("/a"))
        removing = zk.discard("/a")
        await turns()
        assert server.requests == []
        server.wire.drain()
        assert await reading is not None
        await removing
        assert server.names() == ["exists", "delete"]


@in_virtual_time
async def test_a_removal_is_written_before_the_call_returns_and_never_ahead_of_what_waits() -> None:
    async with a_client(max_in_flight=2) as (server, zk):
        await zk.create("/a")
        await zk.create("/b")
        server.writes.clear()
        server.names()
        server.is_holding = True
        removals = [zk.discard("/a")]
        assert len(server.writes) == 1
        reading = started(zk.exists("/a"))
        await asyncio.sleep(0)
        removals.append(zk.discard("/b"))  # after the read, which is written by this, too
        assert len(server.writes) == 2
        removals.append(zk.discard("/c"))  # there is no room
        assert len(server.writes) == 2
        server.release()
        await asyncio.gather(*removals)
        assert await reading is None
        assert server.names() == ["delete", "exists", "delete", "delete"]
        server.is_holding = True
        server.writes.clear()
        removals = [zk.discard("/a") for _ in range(3)]
        assert len(server.writes) == 2
        server.release()
        await asyncio.gather(*removals)
        server.wire.fill()
        removed = zk.discard("/a")
        assert len(server.writes) == 3
        server.wire.drain()
        await removed


@in_virtual_time
async def test_a_request_as_large_as_a_server_accepts_is_sent_and_a_larger_one_is_refused() -> None:
    async with a_client(request_limit=2000) as (server, zk):
        room = 2000 - Call(CreateRequest("/a", b"", [*zkwire.OPEN_ACL], 0)).size
        await zk.create("/a", bytes(room))
        with pytest.raises(RequestTooLargeError, match=r"create /b: the request has 2001 bytes, .* accepts 2000"):
            await zk.create("/b", bytes(room + 1))
        # A watch must be set again on the next connection, by a request that is 27 bytes larger.
        longest = "/" + "x" * (2000 - 27 - Call(ExistsRequest("/", True)).size)
        _, watch = await zk.exists_and_watch(longest)
        server.drop()
        await zk.ping()
        assert server.names("ping") == ["create", "exists", "connect", "setWatches"]
        watch.cancel()
        with pytest.raises(RequestTooLargeError, match="the request has 2001 bytes"):
            await zk.exists_and_watch(longest + "x")
        assert await zk.exists(longest + "x") is None


@in_virtual_time
async def test_the_requests_of_cancelled_callers_do_not_fill_the_memory() -> None:
    queue = RequestQueue(1000, 1 << 20)
    assert queue.session_id == 0
    futures: list[weakref.ref[asyncio.Future[Any]]] = []
    kept = []
    for number in range(2000):
        future = queue.submit(ExistsRequest(f"/{number}", False))
        if number % 20:
            futures.append(weakref.ref(future))
            future.cancel()
        else:
            kept.append(future)
        del future
        await asyncio.sleep(0)
    assert sum(ref() is not None for ref in futures) < 200
    assert len(queue.take_all()) - len(kept) < 200
    assert not [future for future in kept if future.done()]


# -- calls of which the answer is lost --------------------------------------------------------------------------------


@in_virtual_time
async def test_when_the_connection_breaks_each_call_in_flight_is_settled_once_and_the_others_go_on() -> None:
    """Reads are sent again, in order and before the calls that wait; writes fail."""
    seen = Records()
    async with a_client(max_in_flight=7, observer=seen) as (server, zk):
        await zk.create("/a", b"1")
        _, watch = await zk.exists_and_watch("/none")
        server.names()
        seen.requests.clear()
        server.is_holding = True
        watch.cancel()  # by a request of the client's own, whose answer no caller waits for
        first = [
            started(zk.get("/a")),
            started(zk.set("/a", b"2")),
            started(zk.exists_and_watch("/w")),
            started(zk.get_children("/")),
        ]
        given_up = [started(zk.exists_and_watch("/given-up")), started(zk.set("/given-up", b""))]
        waiting = [started(zk.set("/a", b"3")), started(zk.get("/a"))]
        never = await begun(zk.exists("/never"))
        await asyncio.gather(*map(cancelled, [*given_up, never]))
        first_names = ["removeWatches", "getData", "setData", "exists", "getChildren", "exists", "setData"]
        assert server.names() == first_names
        server.drop(ConnectionResetError("gone"))
        server.is_holding = False
        results: list[Any] = await asyncio.gather(*first, return_exceptions=True)
        node, error, watched, names = results
        await asyncio.gather(*waiting)
        assert server.names() == ["connect", "multi", "getData", "exists", "getChildren", "setData", "getData"]
        assert node.data == b"2"
        assert isinstance(error, zkwire.ConnectionLostError)
        assert error.maybe_applied
        assert str(error) == (
            "setData /a: the connection to a:2181 broke before the answer came (gone); it may have been carried out:"
            " look before you repeat it"
        )
        assert names == ["a", "zookeeper"]
        assert waiting[1].result().data == b"3"
        assert seen.requests == [
            ("setData", "/a", "ConnectionLostError"),
            ("multi", None, ""),
            ("getData", "/a", ""),
            ("exists", "/w", ""),
            ("getChildren", "/", ""),
            ("setData", "/a", ""),
            ("getData", "/a", ""),
        ]
        await zk.create("/w")
        assert (await watched[1]).type is WatchEventType.CREATED


@in_virtual_time
@pytest.mark.parametrize("when", ["in flight", "waiting", "one of many"])
async def test_a_read_with_a_watch_that_was_given_up_is_no_reason_to_keep_another_watch(when: str) -> None:
    """The server's watch stays while a request for it is under way: this one has no answer to wait for."""
    async with a_client(max_in_flight=1) as (server, zk):
        _, watch = await zk.exists_and_watch("/w")
        server.is_holding = True
        if when != "in flight":
            first = await begun(zk.get("/"))
        watch.cancel()
        asking = [started(zk.exists_and_watch("/a")) for _ in range(100 if when == "one of many" else 1)]
        await turns()
        await asyncio.gather(*map(cancelled, asking))
        if when == "in flight":
            server.drop_held()
        else:
            if when == "one of many":
                asking = [started(zk.exists("/b")) for _ in range(40)]
                await turns()
            server.release()
            await asyncio.gather(first, *(asking if when == "one of many" else []))
        await zk.ping()
        await _no_other_watch_is_left(server, zk)


@in_virtual_time
async def test_a_watch_learns_that_it_was_set_again_before_any_event_of_the_next_connection() -> None:
    async with a_client() as (server, zk):
        await zk.create("/a")
        with WatchSet() as watches:
            await zk.get_and_watch("/a", into=watches)
            assert not watches.was_rearmed
            server.drop()
            await zk.ping()
            assert watches.was_rearmed
            assert server.names() == ["create", "getData", "connect", "setWatches", "ping"]


@in_virtual_time
@pytest.mark.parametrize("when", ["unanswered", "waiting", "without a connection"])
async def test_a_watch_that_is_given_up_before_its_answer_is_removed_from_the_server(when: str) -> None:
    """The caller that waits for the read goes on; what it gets has no watch any more."""
    async with a_client(max_in_flight=1) as (server, zk):
        server.is_holding = True
        first = started(zk.get("/")) if when == "waiting" else None
        await turns()
        if when == "without a connection":
            await server.cut_off(zk)
        watches = WatchSet()
        asking = await begun(zk.exists_and_watch("/a", into=watches))
        watches.cancel()
        server.refused = set()
        server.release()
        _, watch = await asking  # kept: a watch that is collected is given up, too
        if first is not None:
            await first
        await zk.ping()
        assert "removeWatches" in server.names()
        assert watch.done()
        server.drop()
        await zk.ping()
        assert "setWatches" not in server.names()


@in_virtual_time
async def test_a_credential_that_waits_when_the_connection_breaks_is_shown_once_and_first() -> None:
    async with a_client(max_in_flight=1) as (server, zk):
        server.is_holding = True
        reading = await begun(zk.get("/"))
        adding = await begun(zk.add_auth("digest", b"user:password"))
        assert server.names() == ["getData"]
        server.drop_held()
        await reading
        await adding
        await zk.ping()
        assert server.names() == ["connect", "auth", "getData", "ping"]


@in_virtual_time
@pytest.mark.parametrize("name", ["setWatches", "setWatches2"])
async def test_a_refusal_to_set_the_watches_again_is_followed_by_another_connection(name: str) -> None:
    async with a_client() as (server, zk), AsyncExitStack() as stack:
        _, watch = await zk.exists_and_watch("/a")
        if name == "setWatches2":
            events = await stack.enter_async_context(zk.events("/a"))
        server.names()
        server.strike = lambda wire, sent: zkwire.ThrottledError.code if sent.name == name else None
        server.drop()
        await server.until(name, 3)
        server.strike = lambda wire, sent: None
        await server.until(name, 4)
        await zk.ping()
        assert server.names("ping") == ["connect", name] * 4
        await zk.create("/a")
        assert (await watch).type is WatchEventType.CREATED
        if name == "setWatches2":
            assert await anext(events) == zkwire.Resync()
            event = await anext(events)
            assert isinstance(event, zkwire.WatchEvent)
            assert event.type is WatchEventType.CREATED


@in_virtual_time
async def test_the_removal_of_a_watch_that_an_overloaded_server_refuses_is_sent_again_after_a_pause() -> None:
    async with a_client() as (server, zk):
        _, watch = await zk.exists_and_watch("/a")
        server.names()
        server.strike = lambda wire, sent: zkwire.ThrottledError.code if sent.name == "removeWatches" else None
        at = asyncio.get_running_loop().time()
        watch.cancel()
        await server.until("removeWatches", 2)
        server.strike = lambda wire, sent: None
        await server.until("removeWatches", 3)
        await asyncio.sleep(2.0)
        times = [sent.at - at for sent in server.requests if sent.name == "removeWatches"]
        assert times == pytest.approx([0.0, 0.2, 0.4], abs=0.05)


GARBAGE = b"\xff" * 8
UNREADABLE: dict[str, Callable[[int], bytes]] = {
    "a part of a record": lambda xid: b"\0\0\0\x14" + xid.to_bytes(4, "big") + bytes(12) + b"\0\0\0\1",
    "another xid": lambda xid: b"\0\0\0\x10" + (xid + 1).to_bytes(4, "big") + bytes(12),
    "an empty frame": lambda xid: bytes(4),
    "a negative length": lambda xid: GARBAGE,
    "a part of an event": lambda xid: b"\0\0\0\x11" + b"\xff" * 4 + bytes(13),
}


@in_virtual_time
@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_read_with_two_unreadable_answers_fails_and_is_no_reason_to_keep_another_watch(what: str) -> None:
    async with a_client() as (server, zk):

        def send_nonsense(wire: Wire, sent: Sent) -> bool | None:
            if sent.name != "exists":
                return None
            wire.send(UNREADABLE[what](sent.xid))
            return False

        server.strike = send_nonsense
        with pytest.raises(zkwire.ProtocolError) as failed:
            await zk.exists_and_watch("/a")
        assert server.names() == ["exists", "connect", "exists"]
        assert str(failed.value).startswith("exists /a: the server sent something else than the answer, or none: ")
        assert "ask for less at a time, or see `request_limit` and `reply_limit` of zkwire.connect" in str(failed.value)
        server.strike = lambda wire, sent: None
        await _no_other_watch_is_left(server, zk)


@in_virtual_time
async def test_a_large_read_fails_when_the_server_has_closed_four_connections_at_it() -> None:
    """It may be above the server's jute.maxbuffer.  The server answers none of the requests that came before it."""
    async with a_client() as (server, zk):

        def close(wire: Wire, sent: Sent) -> bool | None:
            if reading.done():
                return None
            if sent.name == "multiRead":
                wire.lose(BrokenPipeError())
            return False

        server.strike = close
        small = started(zk.exists("/a"))
        reading = started(zk.get_many([zkwire.GetData(f"/{number:060}") for number in range(100)]))
        with pytest.raises(zkwire.ProtocolError, match=r"^multiRead: .* or none: .* see `request_limit`"):
            await reading
        assert server.names("sync") == ["exists", "multiRead", *["connect", "exists", "multiRead"] * 3]
        assert await small is None


@in_virtual_time
async def test_an_event_of_an_unknown_type_is_logged_and_goes_to_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    seen = Records()
    async with a_client(observer=seen) as (server, zk):
        _, watch = await zk.exists_and_watch("/a")
        event = b"\0\0\0\x1e" + b"\xff\xff\xff\xff" + bytes(12) + b"\0\0\0\x63\0\0\0\x03\0\0\0\x02/a"
        server.wire.send(event * 3)
        await zk.ping()
        assert not watch.done()
        assert seen.events == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "an event of the unknown type 99 for '/a'"
    ]


@in_virtual_time
async def test_the_removal_of_one_watch_waits_for_no_answer_but_spares_the_watch_that_is_being_set() -> None:
    async with a_client() as (server, zk):
        _, first = await zk.exists_and_watch("/a")
        server.is_holding = True
        refused = await begun(zk.get_and_watch("/a"))
        first.cancel()
        server.release()
        with pytest.raises(zkwire.NoNodeError):  # it has set no watch
            await refused
        await zk.ping()
        assert server.names()[-2:] == ["removeWatches", "ping"]
        _, first = await zk.exists_and_watch("/a")
        server.is_holding = True
        asking = await begun(zk.exists_and_watch("/a"))
        first.cancel()
        server.release()
        _, second = await asking
        await zk.ping()
        assert "removeWatches" not in server.names()
        await zk.create("/a")
        assert (await second).type is WatchEventType.CREATED


@in_virtual_time
async def test_behind_an_answer_with_nonsense_in_the_same_read_nothing_is_sent_that_would_be_lost() -> None:
    async with a_client(max_in_flight=1) as (server, zk):
        server.is_holding = True
        reading, writing = started(zk.get("/")), started(zk.create("/a"))
        await turns()
        server.release()
        server.wire.send(GARBAGE)
        await reading
        assert await writing == "/a"
        assert server.names() == ["getData", "connect", "create"]
        # And so it is with what is written without waiting for the next turn.
        server.is_holding = True
        await given_up(zk.create("/b", ephemeral=True))
        server.release()
        server.wire.send(GARBAGE)
        await server.until("delete")
        await zk.ping()
        assert server.names("ping") == ["create", "connect", "exists", "delete"]


@in_virtual_time
@pytest.mark.parametrize("when", ["before", "with"])
async def test_the_search_for_the_node_of_a_cancelled_create_comes_ahead_of_all_calls_that_wait(when: str) -> None:
    """The caller is cancelled before the connection breaks, or in the turn in which it does."""
    async with a_client(max_in_flight=2) as (server, zk):
        server.is_holding = True
        reading, creating = started(zk.exists("/read")), started(zk.create("/a", ephemeral=True))
        waiting = await begun(zk.exists("/waiting"))
        if when == "before":
            await cancelled(creating)
        server.names()
        server.drop_held()
        asyncio.get_running_loop().call_soon(creating.cancel)
        await asyncio.gather(reading, waiting)
        await server.until("delete")
        assert [sent.path for sent in server.requests[2:6]] == ["/", "/a", "/read", "/waiting"]


# -- the end ----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_end_of_a_session_fails_all_that_waits_and_the_observer_hears_of_each() -> None:
    seen = Records()
    async with a_client(max_in_flight=2, observer=seen, renew=False) as (server, zk):
        _, watch = await zk.exists_and_watch("/a")
        seen.requests.clear()
        server.is_silent = True
        calls = [started(zk.set("/w", b"")), started(zk.get("/r")), started(zk.get("/waits"))]
        await given_up(zk.get("/given-up"))
        server.machine.expire(zk.session_id)
        server.drop()
        await turns()
        server.go_on()
        lost, *ended = [type(await outcome(call)) for call in calls]
        assert lost is zkwire.ConnectionLostError
        assert ended == [zkwire.SessionExpiredError] * 2
        with pytest.raises(zkwire.SessionExpiredError):
            await watch
        await turns()
        assert seen.requests == [
            ("setData", "/w", "ConnectionLostError"),
            ("getData", "/r", "SessionExpiredError"),
            ("getData", "/waits", "SessionExpiredError"),
        ]
        assert seen.seconds[-1] == 0.0  # it was never sent
        assert zk.state is SessionState.EXPIRED
