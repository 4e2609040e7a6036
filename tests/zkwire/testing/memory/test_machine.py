"""What no comparison with a real server shows of the machine: ACLs, time, the largest numbers, addresses.

tests/conformance, tests/captures and tests/differential compare all else with real servers.
"""

from __future__ import annotations

import pytest

import zkwire
from zkwire.errors import InvalidACLError
from zkwire.testing import Server, VirtualClock
from zkwire.testing.memory import access
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.sessions import Sessions
from zkwire.wire.multi import MultiRequest
from zkwire.wire.records import ACL
from zkwire.wire.requests import CreateRequest, CreateTTLRequest

BOB = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="


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
        ("ip", "1.2.3.4/255.0.0.0", False),
        ("ip", "1.2.3.256", False),
        ("ip", "::1", True),
        ("ip", "::1/129", False),
        ("ip", "fe80::1%eth0", False),
        ("ip", "1:2:3:4::5:6:7:8", False),
        ("ip", "host", False),
    ],
)
def test_what_may_stand_in_an_acl(scheme: str, id_: str, is_valid: bool) -> None:
    entry = ACL(31, scheme, id_)
    if is_valid:
        assert access.stored([entry], []) == (entry,)
    else:
        with pytest.raises(Refused, match=InvalidACLError.__name__):
            access.stored([entry], [])


@pytest.mark.parametrize(
    ("peer", "expression", "matches"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.9.9.9/8", True),
        ("10.1.2.3", "9.9.9.9/0", True),
        ("10.1.2.3", "10.1.2.0/30", True),
        ("10.1.2.4", "10.1.2.0/30", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("::1", "::2/127", False),
        ("::3", "::2/127", True),
        ("fe80::1%eth0", "fe80::/16", False),
        ("10.1.2.3", "::/0", False),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
    ],
)
def test_addresses_match_by_their_leading_bits(peer: str, expression: str, matches: bool) -> None:
    assert access.is_allowed([ACL(1, "ip", expression)], 1, [access.ip_identity(peer)]) is matches


async def test_numbers_end_as_those_of_java_do() -> None:
    """Servers from 3.6 on stop counting at the largest int; after the largest version comes the smallest."""
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/p")
        node = server._machine.tree.nodes["/p"]
        node.creates = node.version = 2**31 - 1
        assert await zk.create("/p/n", sequential=True) == "/p/n2147483647"
        with pytest.raises(zkwire.NodeExistsError):
            await zk.create("/p/n", sequential=True)
        assert await zk.create("/p/m", sequential=True) == "/p/m2147483647"
        assert (await zk.set("/p", b"")).version == -(2**31)


@pytest.mark.parametrize("flags", [5, 6, 7])
async def test_a_transaction_fails_as_a_whole_when_the_create_of_a_plain_node_has_another_mode(flags: int) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with pytest.raises(zkwire.MarshallingError):
            await zk._session.requests.submit(MultiRequest([CreateRequest("/a", b"", zkwire.OPEN_ACL, flags)]))
        await zk._session.requests.submit(MultiRequest([CreateTTLRequest("/b", b"plain", zkwire.OPEN_ACL, 0, 5)]))
        assert (await zk.get("/b")).data == b"plain"
        assert zk.session_id >> 56 == 1


async def test_children_come_in_no_order_that_one_could_rely_on() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        for number in range(9):
            await zk.create(f"/{number}")
        first, again = [await zk.get_children("/") for _ in range(2)]
    assert first == again
    assert first != sorted(first)
    assert sorted(first) == [*map(str, range(9)), "zookeeper"]


@pytest.mark.parametrize(
    ("start", "timeout", "ends"), [(1000.0, 4.0, 1006.0), (1000.5, 4.0, 1006.0), (1001.9, 5.0, 1008.0)]
)
def test_a_silent_session_ends_at_the_next_tick(start: float, timeout: float, ends: float) -> None:
    """A session ends at the first tick after its timeout, never at its timeout."""
    sessions: Sessions[object] = Sessions(tick_time=2.0)
    sessions.restart(start)
    session = sessions.create()
    session.timeout_ms = round(timeout * 1000)
    sessions.touch(session, start)
    assert sessions.next_tick(ends - 0.001) == session.ends_ms / 1000 == ends
    assert sessions.due(ends - 0.001) == []
    assert sessions.due(ends) == [session]


async def test_a_container_goes_once_its_last_child_has_gone_and_a_ttl_node_after_its_time() -> None:
    """It goes at the next clean-up, with a zxid of its own; a container that never had a child stays."""
    clock = VirtualClock()
    async with (
        Server(clock=clock, max_session_timeout=1000.0) as server,
        zkwire.connect(server.hosts, session_timeout=1000.0) as zk,
    ):
        await zk.create("/c", container=True)
        await zk.create("/unused", container=True)
        await zk.create("/ttl", ttl=70.0)
        await zk.create("/c/x")
        clock.advance(70)
        assert sorted(await zk.get_children("/")) == ["c", "ttl", "unused", "zookeeper"]
        await zk.delete("/c/x")
        _, watch = await zk.exists_and_watch("/c")
        before = zk.last_zxid
        clock.advance(40)
        assert not watch.done()
        clock.advance(20)
        assert (await watch).type is zkwire.WatchEventType.DELETED
        assert sorted(await zk.get_children("/")) == ["unused", "zookeeper"]
        assert zk.last_zxid == before + 2
