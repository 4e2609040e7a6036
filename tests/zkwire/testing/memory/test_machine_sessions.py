"""Sessions: the handshake, timeouts in ticks, resumption, expiry, the clean-up of nodes, restarts."""

import pytest

from tests.support.machine_client import DELETED, EPHEMERAL, OPEN, Client, World
from zkwire.testing.memory.machine import Connection, Settings
from zkwire.wire.records import ConnectResponse
from zkwire.wire.requests import (
    AddWatchRequest,
    CloseSessionRequest,
    CreateContainerRequest,
    CreateTTLRequest,
    DeleteRequest,
    PingRequest,
)

TICK = 2.0
REFUSED = ConnectResponse(0, 0, 0, bytes(16))


@pytest.fixture
def world() -> World:
    return World(Settings(tick_time=TICK))


@pytest.mark.parametrize(
    ("asked", "granted"), [(-5, 4_000), (0, 4_000), (4_001, 4_001), (10_000, 10_000), (2**31 - 1, 40_000)]
)
def test_the_timeout_is_clamped(world: World, asked: int, granted: int) -> None:
    """The server grants 2 to 20 ticks unless it is configured otherwise."""
    welcome = Client(world).connect(timeout=asked)
    assert welcome is not None
    assert welcome.timeout == granted


def test_the_bounds_can_be_set() -> None:
    settings = Settings(min_session_timeout=0.5, max_session_timeout=1.5)
    for asked, granted in ((1, 500), (9_999, 1_500)):
        welcome = Client(World(settings)).connect(timeout=asked)
        assert welcome is not None
        assert welcome.timeout == granted


def test_ids_differ_and_a_new_session_takes_a_zxid(world: World) -> None:
    ids = [world.client().session_id for _ in range(3)]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]
    assert ids[0] >> 56 == 1
    assert world.machine.last_zxid == 3


def test_a_session_goes_on_under_another_connection(world: World) -> None:
    """The timeout is negotiated anew, the old connection is closed, and no zxid is taken."""
    first = world.client(timeout=4_000)
    first.create("/e", flags=EPHEMERAL)
    second = Client(world)
    welcome = second.connect(resume=first, timeout=20_000)
    assert welcome is not None
    assert first.welcome is not None
    assert (welcome.session_id, welcome.timeout, welcome.password) == (first.session_id, 20_000, first.welcome.password)
    assert first.is_closed
    assert world.machine.last_zxid == 2
    assert second.exists("/e").err == 0
    assert first.send(bytes.fromhex("00000001 0000000b")) == []


def test_a_wrong_password_is_refused_and_drops_the_owners_connection(world: World) -> None:
    owner = world.client()
    intruder = Client(world)
    assert intruder.connect(resume=owner, password=b"x" * 16) == REFUSED
    assert intruder.is_closed
    assert owner.is_closed
    again = Client(world)
    assert again.connect(resume=owner) == owner.welcome


def test_an_unknown_session_is_refused(world: World) -> None:
    """The reply has timeout 0 and session id 0."""
    other = World(now=5.0).client()
    client = Client(world)
    assert client.connect(resume=other) == REFUSED
    assert client.is_closed


def test_a_client_that_has_seen_a_later_zxid_gets_no_answer(world: World) -> None:
    for seen in (1, 2**62):
        client = Client(world)
        assert client.connect(seen=seen) is None
        assert client.is_closed
    owner = world.client()
    assert Client(world).connect(resume=owner, seen=1) == owner.welcome


# -- time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "timeout", "ends"), [(1000.0, 4.0, 1006.0), (1000.5, 4.0, 1006.0), (1001.9, 5.0, 1008.0)]
)
def test_a_silent_session_ends_at_the_next_tick(start: float, timeout: float, ends: float) -> None:
    """A session ends at the first tick after its timeout, never at its timeout."""
    world = World(Settings(tick_time=TICK), now=start)
    client = world.client(timeout=round(timeout * 1000))
    assert world.machine.sessions.next_deadline() == ends
    world.machine.advance(ends - 0.001)
    assert not client.is_closed
    world.machine.advance(ends)
    assert client.is_closed
    assert client.take() == [], "it is closed without a word"
    assert not world.machine.sessions.by_id
    assert world.machine.last_zxid == 2


def test_any_request_is_a_sign_of_life(world: World) -> None:
    client = world.client(timeout=4_000)
    for _ in range(5):
        world.sleep(3.9)
        assert client.ask(PingRequest()).err == 0
    world.sleep(6.0)
    assert client.is_closed


def test_a_lost_connection_leaves_its_session_until_its_time_is_over(world: World) -> None:
    """Its ephemeral nodes stay as long as it does."""
    client, other = world.client(timeout=4_000), world.client(timeout=40_000)
    client.create("/e", flags=EPHEMERAL)
    other.ask(AddWatchRequest("/e", 0))
    world.machine.lost(client.connection, world.now)
    world.sleep(3.9)
    assert other.exists("/e").err == 0
    world.sleep(2.2)
    assert other.look() == [(DELETED, "/e")]
    assert other.exists("/e").err == -101
    late = Client(world)
    assert late.connect(resume=client) == REFUSED


def test_a_session_can_be_expired_at_once(world: World) -> None:
    client, other = world.client(), world.client()
    client.create("/e", flags=EPHEMERAL)
    client.ask(AddWatchRequest("/e", 0))
    other.ask(AddWatchRequest("/e", 0))
    world.machine.expire(client.session_id, world.now)
    assert client.is_closed
    assert client.take() == []
    assert other.look() == [(DELETED, "/e")]
    with pytest.raises(KeyError):
        world.machine.expire(client.session_id, world.now)


def test_closing_ends_the_session(world: World) -> None:
    """Its ephemeral nodes go with it."""
    client = world.client()
    client.create("/e", flags=EPHEMERAL)
    answer = client.ask(CloseSessionRequest())
    assert (answer.err, answer.zxid) == (0, 3)
    assert client.is_closed
    assert "/e" not in world.machine.tree.nodes
    assert client.send(bytes.fromhex("00000001 0000000b")) == []
    late = Client(world)
    assert late.connect(resume=client) == REFUSED


# -- clean-up -----------------------------------------------------------------------------------------


def test_a_container_goes_once_its_last_child_has_gone(world: World) -> None:
    """It goes at the next clean-up, with a zxid of its own; a container that never had a child stays."""
    client = world.client(timeout=40_000)
    client.ask(CreateContainerRequest("/c", b"", OPEN, 4))
    client.ask(CreateContainerRequest("/unused", b"", OPEN, 4))
    client.create("/c/x")

    def live(seconds: float) -> None:
        for _ in range(round(seconds / 10)):
            world.sleep(10.0)
            client.ask(PingRequest())

    live(70)
    assert client.exists("/c").err == 0
    client.ask(DeleteRequest("/c/x", -1))
    client.ask(AddWatchRequest("/c", 0))
    before = client.exists("/c").zxid
    live(40)
    assert client.look() == []
    live(20)
    assert client.look() == [(DELETED, "/c")]
    assert client.event_zxids == [before + 1]
    assert client.exists("/unused").zxid == before + 1


def test_a_ttl_node_goes_when_it_is_childless_and_unchanged_for_its_time() -> None:
    """It goes at the clean-up after its time to live."""
    world = World(Settings(tick_time=TICK, container_interval=1.0, max_session_timeout=1000.0))
    client = world.client(timeout=1_000_000)
    client.ask(CreateTTLRequest("/t", b"", OPEN, 5, 5_000))
    client.ask(CreateTTLRequest("/with", b"", OPEN, 5, 5_000))
    client.create("/with/child")
    world.sleep(4.0)
    client.set("/t")
    world.sleep(5.0)
    assert client.exists("/t").err == 0, "a set starts its time anew"
    world.sleep(1.0)
    assert client.exists("/t").err == -101
    assert client.exists("/with").err == 0
    client.ask(DeleteRequest("/with/child", -1))
    world.sleep(1.0)
    assert client.exists("/with").err == -101


# -- the server ---------------------------------------------------------------------------------------


def test_a_restart_keeps_nodes_and_sessions_and_drops_connections_and_watches(world: World) -> None:
    """Sessions get their full timeout again."""
    client = world.client(timeout=4_000)
    client.create("/e", flags=EPHEMERAL)
    client.ask(AddWatchRequest("/e", 0))
    world.now += 100.0  # it was down for long: the time of its sessions begins anew
    world.machine.restart(world.now)
    assert client.is_closed
    assert not world.machine.connections
    assert not world.machine.watches.data.by_path
    world.sleep(3.9)
    again = Client(world)
    assert again.connect(resume=client, seen=2) is not None
    assert again.exists("/e").reply.stat.ephemeral_owner == client.session_id
    fresh = world.client()
    assert fresh.session_id != client.session_id


def test_a_restart_can_lose_everything(world: World) -> None:
    client = world.client()
    client.create("/a")
    world.machine.restart(world.now, lose_data=True)
    assert (world.machine.last_zxid, "/a" in world.machine.tree.nodes) == (0, False)
    ahead = Client(world)
    assert ahead.connect(resume=client, seen=2) is None
    lost = Client(world)
    assert lost.connect(resume=client) == REFUSED
    assert world.client().session_id != client.session_id


def test_a_request_can_be_refused_without_being_carried_out(world: World) -> None:
    client = world.client()
    world.machine.refuse(client.connection, 7, -127)
    assert client.take() == [bytes.fromhex("00000007 0000000000000001 ffffff81")]
    assert world.machine.last_zxid == 1


def test_a_connection_with_output_is_listed_once(world: World) -> None:
    def dirty() -> list[Connection]:
        return world.machine.take_dirty()

    one, other = Client(world), Client(world)
    assert dirty() == []
    one.connect()
    assert dirty() == [one.connection]
    assert dirty() == []
    one.ask(AddWatchRequest("/x", 0))
    one.ask(PingRequest())
    other.connect()
    assert dirty() == [one.connection, other.connection]
    other.create("/x")
    assert dirty() == [one.connection, other.connection]
    other.ask(CloseSessionRequest())
    assert dirty() == [other.connection]


def test_what_the_words_show_of_a_connection(world: World) -> None:
    client = world.client()
    client.create("/x")
    world.now += 1.0
    client.exists("/x")
    shown = client.connection
    assert (shown.received, shown.sent, shown.last_operation, shown.last_xid, shown.last_zxid) == (3, 3, "EXIS", 2, 2)
    assert (shown.opened, shown.last_response) == (1000.0, 1001.0)
    assert (world.machine.received, world.machine.sent) == (3, 3)
