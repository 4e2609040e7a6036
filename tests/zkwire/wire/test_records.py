"""The shared records: their bytes, as recorded from a real server, and their constants."""

import pytest

from zkwire.wire import records as r
from zkwire.wire.jute import Record

SESSION = 0x0100001E14CA0000
PASSWORD = bytes.fromhex("2445313ee1f9dd80a256706e92b7a4e2")


# Recorded from a real server, or written by hand after ZooKeeper's definition of the record.
RECORDS: dict[str, tuple[Record, str]] = {
    "a new session": (
        r.ConnectRequest(0, 0, 10_000, 0, bytes(16), False),
        "00000000 0000000000000000 00002710 0000000000000000 00000010 00000000000000000000000000000000 00",
    ),
    "a session to resume, by a client that takes a read-only server": (
        r.ConnectRequest(0, 0x1_0000_0002, 4000, -2, PASSWORD, True),
        "00000000 0000000100000002 00000fa0 fffffffffffffffe 00000010 2445313ee1f9dd80a256706e92b7a4e2 01",
    ),
    "an accepted session": (
        r.ConnectResponse(0, 10_000, SESSION, PASSWORD),
        "00000000 00002710 0100001e14ca0000 00000010 2445313ee1f9dd80a256706e92b7a4e2",
    ),
    "a refused session": (
        r.ConnectResponse(0, 0, 0, bytes(16)),
        "00000000 00000000 0000000000000000 00000010 00000000000000000000000000000000",
    ),
    "a node's stat": (
        r.Stat(2, 2, 0x01A1FA898892, 0x01A1FA898892, 0, 0, 0, SESSION, 2, 0, 2),
        "0000000000000002 0000000000000002 000001a1fa898892 000001a1fa898892 00000000 00000000 00000000"
        "0100001e14ca0000 00000002 00000000 0000000000000002",
    ),
    "a request": (r.RequestHeader(1, 1), "00000001 00000001"),
    "a ping": (r.RequestHeader(-2, 11), "fffffffe 0000000b"),
    "the close of a session": (r.RequestHeader(14, -11), "0000000e fffffff5"),
    "an event": (
        r.WatcherEvent(2, 3, "/lock-0000000000"),
        "00000002 00000003 00000010 2f6c6f636b2d30303030303030303030",
    ),
    "an operation of a transaction": (r.MultiHeader(1, False, -1), "00000001 00 ffffffff"),
    "the end of a transaction": (r.MultiHeader(-1, True, -1), "ffffffff 01 ffffffff"),
    "everything for all": (r.OPEN_ACL[0], "0000001f 00000005 776f726c64 00000006 616e796f6e65"),
    "reading for all": (r.READ_ONLY_ACL[0], "00000001 00000005 776f726c64 00000006 616e796f6e65"),
    "everything for the creator": (r.CREATOR_ALL_ACL[0], "0000001f 00000004 61757468 00000000"),
}


@pytest.mark.parametrize(("value", "hexadecimal"), RECORDS.values(), ids=RECORDS)
def test_a_record_has_the_bytes_that_a_server_expects_or_sends(value: Record, hexadecimal: str) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert value.encode() == encoded
    assert type(value).decode(encoded + b"after", 0) == (value, len(encoded))


def test_no_two_fields_of_a_stat_are_mixed_up() -> None:
    stat = r.Stat(
        czxid=1,
        mzxid=2,
        ctime=3,
        mtime=4,
        version=5,
        cversion=6,
        aversion=7,
        ephemeral_owner=8,
        data_length=9,
        num_children=10,
        pzxid=11,
    )
    assert stat.encode() == bytes.fromhex(
        "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006 00000007"
        "0000000000000008 00000009 0000000a 000000000000000b"
    )


def test_an_event_with_a_null_path_has_an_empty_one() -> None:
    """A change of the session's state has no path."""
    assert r.WatcherEvent.decode(bytes.fromhex("ffffffff 00000000 ffffffff"), 0)[0] == r.WatcherEvent(-1, 0, "")


def test_permissions_have_the_bits_of_the_protocol() -> None:
    assert [(perm.name, perm.value) for perm in r.Perms] == [
        ("READ", 1),
        ("WRITE", 2),
        ("CREATE", 4),
        ("DELETE", 8),
        ("ADMIN", 16),
    ]
    assert int(r.Perms.ALL) == 31
    assert r.ACL(r.Perms.READ | r.Perms.WRITE, "ip", "::1").encode()[:4] == b"\0\0\0\3"


def test_the_reserved_xids_are_those_of_the_protocol() -> None:
    assert (r.EVENT_XID, r.PING_XID) == (-1, -2)
