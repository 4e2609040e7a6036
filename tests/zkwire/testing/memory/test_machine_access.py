"""ACLs and identities: what is stored, which identity matches, what is shown, and how an identity is gained.

What the recorded captures and the differential test compare with a real server is not repeated here.
"""

import pytest

from tests.support.machine_client import OPEN, Client, World
from zkwire.testing.memory import access
from zkwire.testing.memory.machine import Settings
from zkwire.wire.records import ACL
from zkwire.wire.requests import (
    AuthRequest,
    ClientInfoRecord,
    DeleteRequest,
    GetACLRequest,
    GetAllChildrenNumberRequest,
    GetChildrenRequest,
    GetDataRequest,
    SetACLRequest,
    WhoAmIRequest,
)

BOB = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="
SUPER = "super:" + access.digest_id("super:secret").partition(":")[2]


@pytest.fixture
def client() -> Client:
    return World().client()


def stored(client: Client, path: str) -> list[ACL]:
    return list(client.ask(GetACLRequest(path)).reply.acl)


def test_the_hash_of_a_password() -> None:
    """The user name ends at the first colon."""
    assert access.digest_id("bob:pw") == BOB
    assert access.digest_id("a:b:c").startswith("a:")
    assert access.digest_id("text").startswith("text:")


@pytest.mark.parametrize(
    ("scheme", "id_", "is_valid"),
    [
        ("world", "anyone", True),
        ("world", "bob", False),
        ("digest", BOB, True),
        ("digest", "bob", False),
        ("digest", "a:b:c", False),
        ("digest", "a:b::", True),
        ("digest", ":", False),
        ("digest", ":b", True),
        ("digest", "", False),
        ("ip", "1.2.3.4", True),
        ("ip", "1.2.3.4/0", True),
        ("ip", "1.2.3.4/32", True),
        ("ip", "1.2.3.4/33", False),
        ("ip", "1.2.3.4/x", False),
        ("ip", "1.2.3", False),
        ("ip", "1.2.3.256", False),
        ("ip", "::1", True),
        ("ip", "::1/128", True),
        ("ip", "::1/129", False),
        ("ip", "1:2:3:4:5:6:7:8", True),
        ("ip", "1:2:3", False),
        ("ip", "1::2::3", False),
        ("ip", "1:2:3:4::5:6:7:8", False),
        ("ip", "::12345", False),
        ("ip", "host", False),
        ("super", "", False),
        ("sasl", "bob", False),
        ("x509", "CN=bob", False),
        ("", "", False),
        ("auth", "", False),
    ],
)
def test_what_may_stand_in_an_acl(client: Client, scheme: str, id_: str, is_valid: bool) -> None:
    """A wrong entry gives InvalidACL, in create and in setACL."""
    assert client.create("/a", acl=[ACL(31, scheme, id_)]).err == (0 if is_valid else -114)
    client.create("/b")
    assert client.ask(SetACLRequest("/b", [ACL(31, scheme, id_)], -1)).err == (0 if is_valid else -114)


def test_auth_in_an_acl_becomes_the_identities_of_the_creator(client: Client) -> None:
    client.ask(AuthRequest(0, "digest", b"bob:pw"))
    client.ask(AuthRequest(0, "digest", b"ann:pw"))
    client.create("/a", acl=[ACL(23, "auth", "whatever")])
    assert sorted(entry.id for entry in stored(client, "/a")) == sorted([access.digest_id("ann:pw"), BOB])
    assert {(entry.perms, entry.scheme) for entry in stored(client, "/a")} == {(23, "digest")}


@pytest.mark.parametrize(
    ("peer", "expression", "matches"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "11.0.0.0/8", False),
        ("10.1.2.3", "9.9.9.9/0", True),
        ("10.1.2.3", "10.1.2.0/30", True),
        ("10.1.2.4", "10.1.2.0/30", False),
        ("::1", "::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("::1", "::2/127", False),
        ("::3", "::2/127", True),
        ("::1", "0.0.0.1", False),
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


def test_each_permission_guards_its_own(client: Client) -> None:
    """READ guards getData, getChildren and exists, WRITE setData, CREATE and DELETE the children, ADMIN setACL."""
    for perms in (1, 2, 4, 8, 16):
        path = f"/{perms}"
        client.create(path)
        client.create(path + "/c")
        client.ask(SetACLRequest(path, [ACL(perms, "world", "anyone")], -1))
        results = {
            1: client.ask(GetDataRequest(path, False)).err,
            2: client.set(path).err,
            4: client.create(path + "/new").err,
            8: client.ask(DeleteRequest(path + "/c", -1)).err,
            16: client.ask(SetACLRequest(path, [ACL(perms, "world", "anyone")], -1)).err,
        }
        assert results == {bit: 0 if bit == perms else -102 for bit in results}
        for read in (GetChildrenRequest(path, False), GetAllChildrenNumberRequest(path)):
            assert client.ask(read).err == results[1]
        assert client.exists(path).err == results[1], "exists needs READ where the node exists"
        assert client.ask(GetACLRequest(path)).err == (0 if perms in (1, 16) else -102)


def test_the_superuser_may_do_everything() -> None:
    world = World(Settings(super_digest=SUPER))
    client = world.client()
    client.create("/a", acl=[ACL(0, "world", "anyone")])
    client.ask(AuthRequest(0, "digest", b"super:wrong"))
    assert client.set("/a").err == -102
    client.ask(AuthRequest(0, "digest", b"super:secret"))
    assert client.set("/a").err == 0
    assert ClientInfoRecord("super", "") in client.ask(WhoAmIRequest()).reply.identities


def test_who_am_i(client: Client) -> None:
    client.ask(AuthRequest(0, "digest", b"bob:pw"))
    client.ask(AuthRequest(0, "digest", b"bob:pw"))
    client.ask(AuthRequest(0, "ip", b"ignored"))
    identities = client.ask(WhoAmIRequest()).reply.identities
    assert sorted((one.scheme, one.user) for one in identities) == [("digest", "bob"), ("ip", "127.0.0.1")]


def test_identities_end_with_the_connection(client: Client) -> None:
    client.ask(AuthRequest(0, "digest", b"bob:pw"))
    client.create("/a", acl=[ACL(31, "auth", "")])
    again = Client(client.world)
    again.connect(resume=client)
    assert again.set("/a").err == -102


@pytest.mark.parametrize(
    ("scheme", "data"),
    [("world", b""), ("auth", b""), ("super", b""), ("sasl", b"x"), ("nobody", b"x"), (None, b"x"), ("digest", None)],
)
def test_bad_credentials_are_answered_and_close(client: Client, scheme: str | None, data: bytes | None) -> None:
    """The error is sent under xid -4, then the connection closes; the session stays alive."""
    answer = client.ask(AuthRequest(0, scheme, data))
    assert (answer.xid, answer.zxid, answer.err, answer.body) == (-4, 0, -115, b"")
    assert client.is_closed
    assert client.world.machine.sessions.by_id


def test_an_ipv6_peer_is_named_as_java_names_it() -> None:
    world = World()
    client = Client(world, "2001:db8::1%eth0")
    client.connect()
    assert client.ask(WhoAmIRequest()).reply.identities == [ClientInfoRecord("ip", "2001:db8:0:0:0:0:0:1%eth0")]


def test_an_acl_of_many_entries_takes_no_quadratic_time(client: Client) -> None:
    entries = [ACL(number, "world", "anyone") for number in range(20_000)]
    assert client.create("/a", acl=entries).err == 0
    assert len(stored(client, "/a")) == len(entries)
    assert client.create("/b", acl=OPEN * 20_000).err == 0
    assert stored(client, "/b") == OPEN


def test_characters_beyond_16_bits_are_written_as_java_writes_them(client: Client) -> None:
    """Two surrogates of three bytes each."""
    client.create("/a", acl=[ACL(31, "digest", "😀:x"), *OPEN])
    assert (
        b"\x00\x00\x00\x08\xed\xa0\xbd\xed\xb8\x80:x"
        in client.send(bytes.fromhex("00000001 00000006 00000002 2f61"))[0]
    )
