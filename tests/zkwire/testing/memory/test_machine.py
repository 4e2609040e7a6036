"""What no comparison with a real server shows of the machine: time, restarts, the largest numbers, addresses.

tests/conformance, tests/captures and tests/differential compare all else with real servers.
"""

from __future__ import annotations

import pytest

from tests.support.machine_client import DELETED, OPEN, SEQUENTIAL, Client, World
from zkwire.testing.memory.machine import Settings
from zkwire.wire.records import ACL, ConnectResponse
from zkwire.wire.requests import (
    AddWatchRequest,
    CreateContainerRequest,
    DeleteRequest,
    GetChildren2Request,
    GetDataRequest,
    PingRequest,
)

TICK = 2.0
REFUSED = ConnectResponse(0, 0, 0, bytes(16))
BOB = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="


@pytest.fixture
def world() -> World:
    return World(Settings(tick_time=TICK))


@pytest.fixture
def client() -> Client:
    return World().client()


@pytest.mark.parametrize(
    ("scheme", "id_", "is_valid"),
    [
        ("digest", BOB, True),
        ("digest", "a:b:c", False),
        ("digest", "a:b::", True),
        ("digest", ":", False),
        ("ip", "1.2.3.4", True),
        ("ip", "1.2.3.4/0", True),
        ("ip", "1.2.3.4/33", False),
        ("ip", "1.2.3.256", False),
        ("ip", "::1", True),
        ("ip", "::1/129", False),
        ("ip", "1:2:3:4::5:6:7:8", False),
        ("ip", "host", False),
    ],
)
def test_what_may_stand_in_an_acl(client: Client, scheme: str, id_: str, is_valid: bool) -> None:
    """A wrong entry gives InvalidACL."""
    assert client.create("/a", acl=[ACL(31, scheme, id_)]).err == (0 if is_valid else -114)


@pytest.mark.parametrize(
    ("peer", "expression", "matches"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "9.9.9.9/0", True),
        ("10.1.2.3", "10.1.2.0/30", True),
        ("10.1.2.4", "10.1.2.0/30", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("::1", "::2/127", False),
        ("::3", "::2/127", True),
        ("10.1.2.3", "::/0", False),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
    ],
)
def test_addresses_match_by_their_leading_bits(peer: str, expression: str, matches: bool) -> None:
    world = World()
    owner = world.client()
    owner.create("/a", acl=[ACL(1, "ip", expression)])
    visitor = Client(world, peer)
    visitor.connect()
    assert visitor.ask(GetDataRequest("/a", False)).err == (0 if matches else -102)


def test_the_sequence_sticks_at_the_largest_number() -> None:
    """Servers from 3.6 on stop at the largest int, and answer that the node exists."""
    world = World()
    client = world.client()
    client.create("/p")
    world.machine.tree.nodes["/p"].creates = 2**31 - 1
    assert client.create("/p/n", flags=SEQUENTIAL).reply.path == "/p/n2147483647"
    assert client.create("/p/n", flags=SEQUENTIAL).err == -110
    assert client.create("/p/m", flags=SEQUENTIAL).reply.path == "/p/m2147483647"


def test_versions_wrap(client: Client) -> None:
    """A version is a Java int: after the largest comes the smallest."""
    client.create("/a")
    client.world.machine.tree.nodes["/a"].version = 2**31 - 1
    assert client.set("/a", b"", 2**31 - 1).reply.stat.version == -(2**31)


def test_children_come_in_no_order_that_one_could_rely_on(client: Client) -> None:
    for number in range(9):
        client.create(f"/{number}")
    first, again = (client.ask(GetChildren2Request("/", False)).reply.children for _ in range(2))
    assert first == again
    assert first != sorted(first)
    assert sorted(first) == [*map(str, range(9)), "zookeeper"]


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
